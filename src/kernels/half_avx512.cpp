#include <algorithm>
#include <cstdlib>

#include "kernels/avx512.h"
#include "kernels/half_tiles.h"

#if defined(__x86_64__)

namespace bastion::kernels {
namespace {

constexpr int kLanes = 8;              // columns, as in half_avx2.cpp; a vector has those of two weight rows
constexpr std::int64_t kPiece = 1024;  // columns taken at a time, as there
constexpr int kPairs = kHalfTileRows / 2;

/// The partial sums of a tile: of weight row 2p in the lower half, of row 2p + 1 in the upper.
using Sums = __m512[kPairs][kHalfColumns];

/// Pairs of weight rows taken at once with C activation rows: enough sums that do not wait for each other.
template <int C>
constexpr int kPairsAtOnce = C == 1   ? 8
                             : C == 2 ? 4
                                      : 2;

template <Half H>
BASTION_AVX512_INLINE __m512 load_pair(const std::uint16_t* first, const std::uint16_t* second) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    return widen16<H>(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
}

/// Eight numbers, for both rows.
BASTION_AVX512_INLINE __m512 twice(const float* x) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(x)); }

/// Eight columns of P pairs of weight rows with C activation rows.
template <Half H, int P, int C>
BASTION_AVX512_INLINE void add_8(const std::uint16_t* weights, const HalfTile& tile, const float* x,
                                 __m512 (&sums)[P][C]) {
    __m512 activations[C];
    for (int c = 0; c < C; ++c) activations[c] = twice(x + c * tile.x_stride);
    for (int p = 0; p < P; ++p) {
        const __m512 w = load_pair<H>(weights + 2 * p * tile.k, weights + (2 * p + 1) * tile.k);
        for (int c = 0; c < C; ++c) sums[p][c] = _mm512_fmadd_ps(w, activations[c], sums[p][c]);
    }
}

/// Columns [begin, end), a multiple of 8, of the tile's pairs `pair` to `pair` + P.
template <Half H, int P, int C>
BASTION_AVX512_INLINE void add_columns(const HalfTile& tile, int pair, std::int64_t begin, std::int64_t end,
                                       Sums& all) {
    __m512 sums[P][C];
    for (int p = 0; p < P; ++p) {
        for (int c = 0; c < C; ++c) sums[p][c] = all[pair + p][c];
    }
    const std::uint16_t* weights = tile.weights + 2 * pair * tile.k;
    std::int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
        // A cache line of each of the rows that come next; past the matrix the instruction has no effect.
        for (int r = 2 * P; r < 4 * P; ++r) {
            _mm_prefetch(reinterpret_cast<const char*>(weights + r * tile.k + i), _MM_HINT_T0);
        }
        for (int step = 0; step < 4; ++step) {
            add_8<H, P, C>(weights + i + step * kLanes, tile, tile.x + i + step * kLanes, sums);
        }
    }
    for (; i < end; i += kLanes) add_8<H, P, C>(weights + i, tile, tile.x + i, sums);
    for (int p = 0; p < P; ++p) {
        for (int c = 0; c < C; ++c) all[pair + p][c] = sums[p][c];
    }
}

/// The last columns, less than 8, as if zeros followed.
template <Half H>
BASTION_AVX512_INLINE void add_rest(const HalfTile& tile, std::int64_t begin, Sums& sums) {
    const std::int64_t count = tile.k - begin;
    for (int pair = 0; pair < kPairs; ++pair) {
        std::uint16_t weights[2][kLanes] = {};
        for (int r = 0; r < 2; ++r) std::copy_n(tile.weights + (2 * pair + r) * tile.k + begin, count, weights[r]);
        for (int c = 0; c < tile.columns; ++c) {
            float x[kLanes] = {};
            std::copy_n(tile.x + c * tile.x_stride + begin, count, x);
            sums[pair][c] = _mm512_fmadd_ps(load_pair<H>(weights[0], weights[1]), twice(x), sums[pair][c]);
        }
    }
}

template <Half H, int C>
BASTION_AVX512 void multiply(const HalfTile& tile, float* out, std::int64_t out_stride) {
    constexpr int kAtOnce = kPairsAtOnce<C>;
    static_assert(kPairs % kAtOnce == 0);
    Sums sums;
    for (int pair = 0; pair < kPairs; ++pair) {
        for (int c = 0; c < C; ++c) sums[pair][c] = _mm512_setzero_ps();
    }
    const std::int64_t whole = tile.k / kLanes * kLanes;
    for (std::int64_t begin = 0; begin < whole; begin += kPiece) {
        const std::int64_t end = std::min(begin + kPiece, whole);
        for (int pair = 0; pair < kPairs; pair += kAtOnce) add_columns<H, kAtOnce, C>(tile, pair, begin, end, sums);
    }
    if (whole < tile.k) add_rest<H>(tile, whole, sums);
    for (int c = 0; c < C; ++c) {
        for (int pair = 0; pair < kPairs; ++pair) {
            out[c * out_stride + 2 * pair] = total(_mm512_castps512_ps256(sums[pair][c]));
            out[c * out_stride + 2 * pair + 1] = total(_mm512_extractf32x8_ps(sums[pair][c], 1));
        }
    }
}

template <Half H>
void multiply_any(const HalfTile& tile, float* out, std::int64_t out_stride) {
    static_assert(kHalfColumns == 8);
    switch (tile.columns) {
        case 1:
            return multiply<H, 1>(tile, out, out_stride);
        case 2:
            return multiply<H, 2>(tile, out, out_stride);
        case 3:
            return multiply<H, 3>(tile, out, out_stride);
        case 4:
            return multiply<H, 4>(tile, out, out_stride);
        case 5:
            return multiply<H, 5>(tile, out, out_stride);
        case 6:
            return multiply<H, 6>(tile, out, out_stride);
        case 7:
            return multiply<H, 7>(tile, out, out_stride);
        default:
            return multiply<H, 8>(tile, out, out_stride);
    }
}

}  // namespace

void tile_f16_avx512(const HalfTile& tile, float* out, std::int64_t out_stride) {
    multiply_any<Half::f16>(tile, out, out_stride);
}

void tile_bf16_avx512(const HalfTile& tile, float* out, std::int64_t out_stride) {
    multiply_any<Half::bf16>(tile, out, out_stride);
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_f16_avx512(const HalfTile&, float*, std::int64_t) { std::abort(); }
void tile_bf16_avx512(const HalfTile&, float*, std::int64_t) { std::abort(); }

}  // namespace bastion::kernels

#endif
