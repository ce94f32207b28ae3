#include <algorithm>
#include <cstdlib>

#include "kernels/avx2.h"
#include "kernels/half_tiles.h"

#if defined(__x86_64__)

namespace bastion::kernels {
namespace {

constexpr int kLanes = 8;
// Columns taken at a time: four activation rows of so many are half of a first-level cache, and the weight rows of a
// tile pass by. A multiple of 32.
constexpr std::int64_t kPiece = 1024;

/// The partial sums of a tile.
using Sums = __m256[kHalfTileRows][kHalfColumns / 2];

/// Weight rows taken at once with C activation rows: about 8 sums that do not wait for each other, which is what
/// keeps two multiply-add units of latency 4 busy, and all in registers.
template <int C>
constexpr int kRowsAtOnce = C == 1   ? 8
                            : C == 2 ? 4
                                     : 2;

/// Eight columns of R weight rows with C activation rows.
template <Half H, int R, int C>
BASTION_AVX2_INLINE void add_8(const std::uint16_t* weights, const HalfTile& tile, const float* x,
                               __m256 (&sums)[R][C]) {
    __m256 activations[C];
    for (int c = 0; c < C; ++c) activations[c] = _mm256_loadu_ps(x + c * tile.x_stride);
    for (int r = 0; r < R; ++r) {
        const __m256 w = load8<H>(weights + r * tile.k);
        for (int c = 0; c < C; ++c) sums[r][c] = _mm256_fmadd_ps(w, activations[c], sums[r][c]);
    }
}

/// Columns [begin, end), a multiple of 8, of the tile's rows `row` to `row` + R.
template <Half H, int R, int C>
BASTION_AVX2_INLINE void add_columns(const HalfTile& tile, int row, std::int64_t begin, std::int64_t end, Sums& all) {
    __m256 sums[R][C];
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) sums[r][c] = all[row + r][c];
    }
    const std::uint16_t* weights = tile.weights + row * tile.k;
    std::int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
        // A cache line of each of the R rows that come next; past the matrix the instruction has no effect.
        for (int r = R; r < 2 * R; ++r) {
            _mm_prefetch(reinterpret_cast<const char*>(weights + r * tile.k + i), _MM_HINT_T0);
        }
        for (int step = 0; step < 4; ++step) {
            add_8<H, R, C>(weights + i + step * kLanes, tile, tile.x + i + step * kLanes, sums);
        }
    }
    for (; i < end; i += kLanes) add_8<H, R, C>(weights + i, tile, tile.x + i, sums);
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) all[row + r][c] = sums[r][c];
    }
}

/// The last columns, less than 8, as if zeros followed.
template <Half H>
BASTION_AVX2_INLINE void add_rest(const HalfTile& tile, std::int64_t begin, Sums& sums) {
    const std::int64_t count = tile.k - begin;
    for (int row = 0; row < tile.rows; ++row) {
        std::uint16_t weights[kLanes] = {};
        std::copy_n(tile.weights + row * tile.k + begin, count, weights);
        for (int c = 0; c < tile.columns; ++c) {
            float x[kLanes] = {};
            std::copy_n(tile.x + c * tile.x_stride + begin, count, x);
            sums[row][c] = _mm256_fmadd_ps(load8<H>(weights), _mm256_loadu_ps(x), sums[row][c]);
        }
    }
}

template <Half H, int C>
BASTION_AVX2 void multiply(const HalfTile& tile, float* out, std::int64_t out_stride) {
    constexpr int kAtOnce = kRowsAtOnce<C>;
    Sums sums;
    for (int row = 0; row < tile.rows; ++row) {
        for (int c = 0; c < C; ++c) sums[row][c] = _mm256_setzero_ps();
    }
    const std::int64_t whole = tile.k / kLanes * kLanes;
    for (std::int64_t begin = 0; begin < whole; begin += kPiece) {
        const std::int64_t end = std::min(begin + kPiece, whole);
        int row = 0;
        for (; row + kAtOnce <= tile.rows; row += kAtOnce) add_columns<H, kAtOnce, C>(tile, row, begin, end, sums);
        for (; row < tile.rows; ++row) add_columns<H, 1, C>(tile, row, begin, end, sums);
    }
    if (whole < tile.k) add_rest<H>(tile, whole, sums);
    for (int c = 0; c < C; ++c) {
        for (int row = 0; row < tile.rows; ++row) out[c * out_stride + row] = total(sums[row][c]);
    }
}

template <Half H>
void multiply_any(const HalfTile& tile, float* out, std::int64_t out_stride) {
    static_assert(kHalfColumns / 2 == 4);
    switch (tile.columns) {
        case 1:
            return multiply<H, 1>(tile, out, out_stride);
        case 2:
            return multiply<H, 2>(tile, out, out_stride);
        case 3:
            return multiply<H, 3>(tile, out, out_stride);
        default:
            return multiply<H, 4>(tile, out, out_stride);
    }
}

}  // namespace

void tile_f16_avx2(const HalfTile& tile, float* out, std::int64_t out_stride) {
    multiply_any<Half::f16>(tile, out, out_stride);
}

void tile_bf16_avx2(const HalfTile& tile, float* out, std::int64_t out_stride) {
    multiply_any<Half::bf16>(tile, out, out_stride);
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_f16_avx2(const HalfTile&, float*, std::int64_t) { std::abort(); }
void tile_bf16_avx2(const HalfTile&, float*, std::int64_t) { std::abort(); }

}  // namespace bastion::kernels

#endif
