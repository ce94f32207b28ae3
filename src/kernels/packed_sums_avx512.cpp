#include <cstdlib>

#include "kernels/packed_avx512.h"

#if defined(__x86_64__)
#include "kernels/packed_unit_avx512.h"

#define BASTION_SUMS __attribute__((target(BASTION_AVX512_TARGET ",gfni,prfchw")))
#define BASTION_SUMS_INLINE __attribute__((target(BASTION_AVX512_TARGET ",gfni,prfchw"), always_inline)) inline

namespace bastion::kernels {
namespace {

// Products of sums (S. Winograd, A New Algorithm for Inner Product, 1968): with weights p, q and activations a, b of
// two columns, p a + q b = (p + b)(q + a) - p q - a b. One multiplication serves two columns; the products of weights
// are made once a unit for all rows (Weights::excess), those of activations when these are quantised (cross_terms).
// Unsigned times signed bytes: with p - 8 for p and q + 120 for q the sums are -128 to 127 and 0 to 255, and p a + q b
// = (p - 8 + b)(q + 120 + a) - (p - 8)(q + 120) + 8a - (a + 120)b.
constexpr int kTiles = 2;
constexpr int kGroups = 4;      // of eight columns a unit
constexpr int kUnitsAhead = 4;  // fetched from the second-level cache or another core's
static_assert(kSummedGroups <= kGroups && kLargestActivation == 120);

// The values of a byte as affine maps of its bits, each row of the matrix one bit of the result: the low nibble - 8 is
// bits 0 to 2 and, from bit 3 on, the inverse of bit 3; the high nibble + 120 is bits 4 to 6, then four times the
// inverse of bit 7, then bit 7. The last one is the high nibble alone.
constexpr long long kLowMatrix = 0x0102040808080808, kHighMatrix = 0x1020408080808080;
constexpr long long kShiftMatrix = 0x1020408000000000;
constexpr int kLowInverted = 0xF8, kHighInverted = 0x78;

/// Values of a unit of both tiles, and what does not depend on the activations.
struct Weights {
    __m512i low[kTiles][kGroups], high[kTiles][kGroups];
    __m512i excess[kTiles];
};

BASTION_SUMS_INLINE void read(const Units<kTiles>& units, Weights& w) {
    const __m512i low_matrix = _mm512_set1_epi64(kLowMatrix), high_matrix = _mm512_set1_epi64(kHighMatrix);
    const __m512i shift_matrix = _mm512_set1_epi64(kShiftMatrix), mask = _mm512_set1_epi8(0xF);
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) {
        w.excess[t] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
            const __m512i bytes = load64(units[t] + g * 64);
            if (g < kSummedGroups) {
                w.low[t][g] = _mm512_gf2p8affine_epi64_epi8(bytes, low_matrix, kLowInverted);
                w.high[t][g] = _mm512_gf2p8affine_epi64_epi8(bytes, high_matrix, kHighInverted);
                w.excess[t] = _mm512_dpbusd_epi32(w.excess[t], w.high[t][g], w.low[t][g]);
            } else {
                w.low[t][g] = _mm512_and_si512(bytes, mask);
                w.high[t][g] = _mm512_gf2p8affine_epi64_epi8(bytes, shift_matrix, 0);
            }
        }
    }
}

/// Integer dot products of a unit of both tiles with one row.
template <Form F>
BASTION_SUMS_INLINE void dot(const Weights& w, const Row& x, __m512i (&sums)[kTiles]) {
    __m512i start = x.cross_terms();
    if constexpr (value_offset(F) != 0) {
        start = _mm512_sub_epi32(start, _mm512_madd_epi16(x.sums_of_16(), _mm512_set1_epi16(value_offset(F))));
    }
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) sums[t] = start;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
        const __m512i first = x.four(2 * g), second = x.four(2 * g + 1);
#pragma GCC unroll 2
        for (int t = 0; t < kTiles; ++t) {
            if (g < kSummedGroups) {
                sums[t] = _mm512_dpbusd_epi32(sums[t], _mm512_add_epi8(w.high[t][g], first),
                                              _mm512_add_epi8(w.low[t][g], second));
            } else {
                sums[t] = _mm512_dpbusd_epi32(sums[t], w.low[t][g], first);
                sums[t] = _mm512_dpbusd_epi32(sums[t], w.high[t][g], second);
            }
        }
    }
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) sums[t] = _mm512_sub_epi32(sums[t], w.excess[t]);
}

template <Form F>
BASTION_SUMS void multiply(const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                           int rows, const ProductsTo& out, const Ahead& ahead) {
    __m512 totals[kMaxColumnsOfSums][kTiles];
    for (int c = 0; c < rows; ++c) {
        totals[c][0] = totals[c][1] = _mm512_setzero_ps();
        // The output's cache lines, for writing: or else the stores at the end would miss one after the other.
        for (int t = 0; t < kTiles; ++t) __builtin_prefetch(out.first + c * out.stride + t * kTileRows, 1);
    }
    constexpr std::size_t kUnits = units_per_block(F) * unit_bytes(F);
    const std::size_t tile_bytes = units / units_per_block(F) * block_bytes(F);
    const std::uint8_t* next = ahead.next;
    for (std::int64_t done = 0; done < units; done += units_per_block(F), data += block_bytes(F)) {
#pragma GCC unroll 1
        for (std::size_t at = 0; at < kUnits; at += unit_bytes(F)) {
            prefetch(next, ahead.bytes_a_unit);
            next += ahead.bytes_a_unit;
            Units<kTiles> unit;
            __m512 scale[kTiles], minimum[kTiles];
#pragma GCC unroll 2
            for (int t = 0; t < kTiles; ++t) {
                unit[t] = data + t * tile_bytes + at;
                prefetch(unit[t] + kUnitsAhead * unit_bytes(F), unit_bytes(F));
                const std::uint8_t* shared = data + t * tile_bytes + kUnits;
                scale[t] = scale_of<F>(unit[t], shared);
                minimum[t] = has_minima(F) ? minimum_of<F>(unit[t], shared) : _mm512_setzero_ps();
            }
            Weights w;
            read(unit, w);
            Row row{activations};
#pragma GCC unroll 1
            for (int c = 0; c < rows; ++c, row.unit += stride) {
                __m512i sums[kTiles];
                // Another thread may have written the row, and the rows are too many for the hardware to follow.
                prefetch(row.unit + kUnitsAhead * sizeof(ActivationUnit), 1);
                dot<F>(w, row, sums);
                const __m512 row_scale = row.scale(), row_sum = row.sum();
#pragma GCC unroll 2
                for (int t = 0; t < kTiles; ++t) {
                    __m512 total = totals[c][t];
                    if constexpr (has_minima(F)) total = add_minimum<F>(minimum[t], row_sum, total);
                    const __m512 both = _mm512_mul_ps(scale[t], row_scale);
                    totals[c][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t]), both, total);
                }
            }
            activations += sizeof(ActivationUnit);
        }
    }
    for (int c = 0; c < rows; ++c) {
        for (int t = 0; t < kTiles; ++t) _mm512_storeu_ps(out.first + c * out.stride + t * kTileRows, totals[c][t]);
    }
}

}  // namespace

bool has_sums_avx512(Form form) { return form == Form::q4_0 || form == Form::q4_1 || form == Form::q4_K; }

void sums_avx512(Form form, const std::uint8_t* tiles, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out, const Ahead& ahead) {
    switch (form) {
        case Form::q4_0:
            return multiply<Form::q4_0>(tiles, units, activations, stride, columns, out, ahead);
        case Form::q4_1:
            return multiply<Form::q4_1>(tiles, units, activations, stride, columns, out, ahead);
        case Form::q4_K:
            return multiply<Form::q4_K>(tiles, units, activations, stride, columns, out, ahead);
        default:
            std::abort();
    }
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

bool has_sums_avx512(Form) { return false; }
void sums_avx512(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&,
                 const Ahead&) {
    std::abort();
}

}  // namespace bastion::kernels

#endif
