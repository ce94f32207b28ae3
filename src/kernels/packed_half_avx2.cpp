#include <algorithm>
#include <cstdlib>

#include "kernels/packed_avx2.h"

#if defined(__x86_64__)
#include "kernels/avx2.h"

namespace bastion::kernels {
namespace {

constexpr std::size_t kUnit = unit_bytes(Form::f16);
// Taken at a time, so that four activation rows of so many are half of a first-level cache.
constexpr std::int64_t kPieceUnits = 32;

/// The partial sums of a tile.
template <int C>
using Sums = __m256[kTileRows][C];

/// Weight rows of a quad taken at once with C activation rows: about 8 sums that do not wait for each other, which is
/// what keeps two multiply-add units of latency 4 busy, and all in registers. With one activation row, two quads.
template <int C>
constexpr int kRowsAtOnce = C == 1   ? 8
                            : C == 2 ? 4
                                     : 2;

/// Units [begin, end) of the tile's rows `row` to `row` + R; what comes after them is `next` bytes further.
template <Half H, int R, int C>
BASTION_AVX2_INLINE void add_units(const std::uint8_t* tile, int row, std::int64_t begin, std::int64_t end,
                                   std::size_t next, const char* activations, std::size_t stride, Sums<C>& all) {
    __m256 sums[R][C];
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) sums[r][c] = all[row + r][c];
    }
    const std::uint8_t* weights = tile + begin * kUnit + half_index(row, 0) * 2;
    const char* x = activations + begin * kUnitColumns * sizeof(float);
    for (std::int64_t u = begin; u < end; ++u, weights += kUnit, x += kUnitColumns * sizeof(float)) {
        prefetch(weights + next, R * 64);
        for (int g = 0; g < 4; ++g) {
            __m256 rows[C];
            for (int c = 0; c < C; ++c) {
                rows[c] = _mm256_loadu_ps(reinterpret_cast<const float*>(x + c * stride + g * 32));
            }
            for (int r = 0; r < R; ++r) {
                const __m256 w = load8<H>(weights + half_index(r, g) * 2);
                for (int c = 0; c < C; ++c) sums[r][c] = _mm256_fmadd_ps(w, rows[c], sums[r][c]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) all[row + r][c] = sums[r][c];
    }
}

template <Half H, int C>
BASTION_AVX2 void tile(const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                       const ProductsTo& out) {
    constexpr int kAtOnce = kRowsAtOnce<C>;
    Sums<C> sums;
    for (auto& row : sums) {
        for (auto& sum : row) sum = _mm256_setzero_ps();
    }
    for (std::int64_t begin = 0; begin < units; begin += kPieceUnits) {
        const std::int64_t end = std::min(begin + kPieceUnits, units);
        for (int row = 0; row < kTileRows; row += kAtOnce) {
            // The next rows of the same units, or the first of the units behind these.
            const std::size_t next = row + kAtOnce < kTileRows ? kAtOnce * 64 : (end - begin) * kUnit - row * 64;
            add_units<H, kAtOnce, C>(data, row, begin, end, next, activations, stride, sums);
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int row = 0; row < kTileRows; ++row) out.first[c * out.stride + row] = total(sums[row][c]);
    }
}

template <Half H>
constexpr TileKernel kByColumns[kMaxColumns] = {tile<H, 1>, tile<H, 2>, tile<H, 3>, tile<H, 4>};

}  // namespace

void tile_half_avx2(Form form, const std::uint8_t* data, std::int64_t units, const char* activations,
                    std::size_t stride, int columns, const ProductsTo& out) {
    const TileKernel* kernels = form == Form::f16 ? kByColumns<Half::f16> : kByColumns<Half::bf16>;
    kernels[columns - 1](data, units, activations, stride, out);
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_half_avx2(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&) {
    std::abort();
}

}  // namespace bastion::kernels

#endif
