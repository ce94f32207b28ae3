#include <algorithm>
#include <cstdlib>

#include "kernels/packed_avx512.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

namespace bastion::kernels {
namespace {

constexpr int kPairs = kTileRows / 2;  // a vector has eight columns of two weight rows
constexpr std::size_t kUnit = unit_bytes(Form::f16);
// Taken at a time, so that eight activation rows of so many are in the first-level cache.
constexpr std::int64_t kPieceUnits = 32;

/// The partial sums of a tile: of weight row 2p in the lower half, of row 2p + 1 in the upper.
template <int C>
using Sums = __m512[kPairs][C];

/// Quads of weight rows taken at once with C activation rows: enough sums that do not wait for each other, all in
/// registers.
template <int C>
constexpr int kQuadsAtOnce = C <= 3 ? 4 : 1;

/// Eight columns, group `g` of a unit, of Q quads with C activation rows.
template <Half H, int Q, int C>
BASTION_AVX512_INLINE void add_group(const std::uint8_t* weights, int g, const char* x, std::size_t stride,
                                     __m512 (&sums)[2 * Q][C]) {
    __m512 w[2 * Q];
    for (int p = 0; p < 2 * Q; ++p) {
        const std::uint8_t* pair = weights + p / 2 * kQuadBytes + g * 64 + p % 2 * 32;
        w[p] = widen16<H>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pair)));
    }
    for (int c = 0; c < C; ++c) {
        const auto* row = reinterpret_cast<const float*>(x + c * stride + g * 32);
        const __m512 both = _mm512_broadcast_f32x8(_mm256_loadu_ps(row));
        for (int p = 0; p < 2 * Q; ++p) sums[p][c] = _mm512_fmadd_ps(w[p], both, sums[p][c]);
    }
}

/// Units [begin, end) of the tile's quads `quad` to `quad` + Q; `next`: how far what comes after them is.
template <Half H, int Q, int C>
BASTION_AVX512_INLINE void add_units(const std::uint8_t* tile, int quad, std::int64_t begin, std::int64_t end,
                                     std::size_t next, const char* activations, std::size_t stride, Sums<C>& all) {
    __m512 sums[2 * Q][C];
    for (int p = 0; p < 2 * Q; ++p) {
        for (int c = 0; c < C; ++c) sums[p][c] = all[2 * quad + p][c];
    }
    const std::uint8_t* weights = tile + begin * kUnit + quad * kQuadBytes;
    const char* x = activations + begin * kUnitColumns * sizeof(float);
#pragma GCC unroll 1
    for (std::int64_t u = begin; u < end; ++u, weights += kUnit, x += kUnitColumns * sizeof(float)) {
        prefetch(weights + next, Q * kQuadBytes);
        add_group<H, Q, C>(weights, 0, x, stride, sums);
        add_group<H, Q, C>(weights, 1, x, stride, sums);
        add_group<H, Q, C>(weights, 2, x, stride, sums);
        add_group<H, Q, C>(weights, 3, x, stride, sums);
    }
    for (int p = 0; p < 2 * Q; ++p) {
        for (int c = 0; c < C; ++c) all[2 * quad + p][c] = sums[p][c];
    }
}

template <Half H, int C>
BASTION_AVX512 void tile(const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                         const ProductsTo& out) {
    constexpr int kAtOnce = kQuadsAtOnce<C>;
    constexpr std::size_t kAhead = 8 * kUnit;  // where whole units are read one after the other
    Sums<C> sums;
    for (auto& pair : sums) {
        for (auto& sum : pair) sum = _mm512_setzero_ps();
    }
    for (std::int64_t begin = 0; begin < units; begin += kPieceUnits) {
        const std::int64_t end = std::min(begin + kPieceUnits, units);
        for (int quad = 0; quad < kQuads; quad += kAtOnce) {
            // The next quad of the same units, or the first of the units behind these.
            const std::size_t next = kAtOnce == kQuads   ? kAhead
                                     : quad + 1 < kQuads ? kQuadBytes
                                                         : (end - begin) * kUnit - quad * kQuadBytes;
            add_units<H, kAtOnce, C>(data, quad, begin, end, next, activations, stride, sums);
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int pair = 0; pair < kPairs; ++pair) {
            out.first[c * out.stride + 2 * pair] = total(_mm512_castps512_ps256(sums[pair][c]));
            out.first[c * out.stride + 2 * pair + 1] = total(_mm512_extractf32x8_ps(sums[pair][c], 1));
        }
    }
}

template <Half H>
constexpr TileKernel kByColumns[kMaxColumnsAvx512] = {tile<H, 1>, tile<H, 2>, tile<H, 3>, tile<H, 4>,
                                                      tile<H, 5>, tile<H, 6>, tile<H, 7>, tile<H, 8>};

}  // namespace

void tile_half_avx512(Form form, const std::uint8_t* data, std::int64_t units, const char* activations,
                      std::size_t stride, int columns, const ProductsTo& out) {
    const TileKernel* kernels = form == Form::f16 ? kByColumns<Half::f16> : kByColumns<Half::bf16>;
    kernels[columns - 1](data, units, activations, stride, out);
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_half_avx512(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&) {
    std::abort();
}

}  // namespace bastion::kernels

#endif
