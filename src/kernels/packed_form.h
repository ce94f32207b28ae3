// How packed matrices lie in memory: what packing writes and the inner loops read (docs/kernels.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bastion::kernels {

inline constexpr int kTileRows = 16;     ///< weight rows a tile
inline constexpr int kUnitColumns = 32;  ///< columns that share one activation scale

/// A packed form, named after the source's type.
///
/// A tile is a sequence of blocks, a block one unit (32 columns) or, for the two-level types, eight. A unit holds
///   - the low 4 bits of the values: byte g * 64 + row * 4 + j has column 8g + j below and column 8g + 4 + j above;
///   - one plane of 64 bytes for each bit above the low four. With b such bits, plane p serves the groups g of
///     p * 4/b to (p + 1) * 4/b: bits b * i upwards of byte row * 4 + j belong to column 8g + 4 + j, and those b * i
///     + 4 upwards to column 8g + j, where i counts the plane's groups;
///     (Q8_0 has whole bytes instead: byte g * 64 + row * 4 + j is column 4g + j;)
///   - the unit's own scales and minima: 16 f16 each, or for the two-level types 16 bytes each (Q4_K, Q5_K: scales and
///     minima, unsigned; Q6_K: signed scales of the first and of the last 16 columns).
/// After its units a two-level block has the 16 f16 that scale the scales, then those that scale the minima.
///
/// 16-bit floats have neither scales nor planes: number (row / 4 * 16 + g * 4 + row % 4) * 8 + j of a unit is column 8g
/// + j, so that what four rows have of a unit lies together.
enum class Form { q4_0, q4_1, q5_0, q5_1, q8_0, q4_K, q5_K, q6_K, f16, bf16 };

inline constexpr int kQuantisedForms = 8;  ///< the first ones

/// Number in a unit of 16-bit floats that a row's column 8 `group` has.
constexpr int half_index(int row, int group) { return (row / 4 * 16 + group * 4 + row % 4) * 8; }

inline constexpr int kQuads = kTileRows / 4;                                  ///< of rows that lie together
inline constexpr std::size_t kQuadBytes = std::size_t{4} * kUnitColumns * 2;  ///< of a unit of 16-bit floats

constexpr bool is_half(Form f) { return f == Form::f16 || f == Form::bf16; }

/// Scales of scales, as in the source.
constexpr bool two_level(Form f) { return f == Form::q4_K || f == Form::q5_K || f == Form::q6_K; }

constexpr bool has_minima(Form f) { return f == Form::q4_1 || f == Form::q5_1 || f == Form::q4_K || f == Form::q5_K; }

/// Bits of a value above the low four that stand in planes.
constexpr int high_bits(Form f) {
    return f == Form::q6_K ? 2 : f == Form::q5_0 || f == Form::q5_1 || f == Form::q5_K ? 1 : 0;
}

/// What a stored value is above the source's signed one.
constexpr int value_offset(Form f) { return f == Form::q4_0 ? 8 : f == Form::q5_0 ? 16 : f == Form::q6_K ? 32 : 0; }

constexpr int units_per_block(Form f) { return two_level(f) ? 8 : 1; }

constexpr std::size_t low_bytes(Form f) { return kTileRows * (f == Form::q8_0 ? 32 : 16); }

/// Bytes of a unit's values; its scales follow.
constexpr std::size_t value_bytes(Form f) {
    return is_half(f) ? std::size_t{kTileRows} * kUnitColumns * 2 : low_bytes(f) + kTileRows * 4 * high_bits(f);
}

constexpr std::size_t kHalfs = kTileRows * 2;  ///< bytes of one f16 a row

constexpr std::size_t unit_bytes(Form f) {
    if (is_half(f)) return value_bytes(f);
    return value_bytes(f) + (two_level(f) || !has_minima(f) ? kHalfs : 2 * kHalfs);
}

/// Bytes of the f16 after a two-level block's units.
constexpr std::size_t shared_bytes(Form f) { return two_level(f) ? (has_minima(f) ? 2 * kHalfs : kHalfs) : 0; }

/// What a unit's largest activation becomes. Not 127: an activation plus a weight of four bits - 8 has to fit into a
/// signed byte, and plus a weight + 120 into an unsigned one (products of sums, docs/kernels.md).
inline constexpr int kLargestActivation = 120;

/// The groups of eight columns of a unit, from the first on, that products of sums serve, column 8g + j with column
/// 8g + 4 + j. The last one stays out, so that multiplications and additions take equally long.
inline constexpr int kSummedGroups = 3;

/// 32 quantised activations; a row is a sequence of them.
struct ActivationUnit {
    std::int8_t values[kUnitColumns];
    float scale;
    float sum;                   ///< scale x sum of the values, for minima
    std::int16_t sums_of_16[2];  ///< of the first and the last 16 values, for offsets
    std::int32_t cross_terms;    ///< sum of 8a - (a + 120)b over the pairs (a, b) of the summed groups
};
static_assert(sizeof(ActivationUnit) == 48);

/// Where products go: that of activation row c and weight row r of the tile to `first[c * stride + r]`, for all rows of
/// the tile or pair of tiles, also those beyond the matrix.
struct ProductsTo {
    float* first;
    std::int64_t stride;
};

/// An inner loop for one form and number of activation rows: products of a tile of so many units with activation rows
/// that lie so many bytes apart.
using TileKernel = void (*)(const std::uint8_t* tile, std::int64_t units, const char* activations, std::size_t stride,
                            const ProductsTo& out);

constexpr std::size_t block_bytes(Form f) { return units_per_block(f) * unit_bytes(f) + shared_bytes(f); }

}  // namespace bastion::kernels
