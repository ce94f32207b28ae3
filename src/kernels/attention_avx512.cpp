#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/attention_blocks.h"
#include "kernels/avx512.h"

namespace bastion::kernels {

#if defined(__x86_64__)

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kQueries = 12;  // that share a vector of keys or values in registers
constexpr int kLanes = 16;

/// Eight rows of sixteen become sixteen columns.
BASTION_AVX512_INLINE void transpose(const __m512 (&r)[kPlaceGroup], __m256 (&out)[kLanes]) {
    __m512 t[kPlaceGroup], u[kPlaceGroup];
    for (int i = 0; i < 4; ++i) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int half = 0; half < 2; ++half) {
        u[half * 4 + 0] = _mm512_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0x44);
        u[half * 4 + 1] = _mm512_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0xEE);
        u[half * 4 + 2] = _mm512_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0x44);
        u[half * 4 + 3] = _mm512_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0xEE);
    }
    // Quarter k of u[i] has column 4k + i of the first four rows, that of u[4 + i] of the last four.
    const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (int i = 0; i < 4; ++i) {
        const __m512d first = _mm512_castps_pd(u[i]), last = _mm512_castps_pd(u[4 + i]);
        const __m512d a = _mm512_permutex2var_pd(first, lower, last), b = _mm512_permutex2var_pd(first, upper, last);
        out[i] = _mm256_castpd_ps(_mm512_castpd512_pd256(a));
        out[4 + i] = _mm256_castpd_ps(_mm512_extractf64x4_pd(a, 1));
        out[8 + i] = _mm256_castpd_ps(_mm512_castpd512_pd256(b));
        out[12 + i] = _mm256_castpd_ps(_mm512_extractf64x4_pd(b, 1));
    }
}

template <Half H>
BASTION_AVX512_INLINE __m512 load16(const char* p) {
    return widen16<H>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <Half H>
BASTION_AVX512 void convert(const AttentionPlan& plan, const AttentionRow& row, std::int64_t first, int from, int to,
                            const HeadCells& head, Block& block) {
    const int d = plan.head_dim;
    for (int group = from; group < to; group += kPlaceGroup) {
        std::int64_t cells[kPlaceGroup];
        for (int c = 0; c < kPlaceGroup; ++c) {
            cells[c] = cell_of(plan, row, first + std::min(group + c, to - 1));
            head.prefetch(row, first + group + c, d);
        }
        for (int j = 0; j < d; j += kLanes) {
            __m512 k[kPlaceGroup];
            for (int c = 0; c < kPlaceGroup; ++c) k[c] = load16<H>(head.keys + cells[c] * head.key_stride + j * 2);
            __m256 columns[kLanes];
            transpose(k, columns);
            for (int i = 0; i < kLanes; ++i) _mm256_storeu_ps(&block.keys[(j + i) * kBlockPlaces + group], columns[i]);
        }
        for (int c = 0; c < kPlaceGroup; ++c) {
            const char* cell = head.values + cells[c] * head.value_stride;
            float* out = &block.values[static_cast<std::size_t>(group + c) * d];
            for (int j = 0; j < d; j += kLanes) _mm512_storeu_ps(out + j, load16<H>(cell + j * 2));
        }
    }
}

/// Dot products of C queries with the keys of the first 16 W places of a block: scores [C][kBlockPlaces].
template <int C, int W>
BASTION_AVX512_INLINE void dot(const Query* queries, const float* keys, int d, float (*scores)[kBlockPlaces]) {
    __m512 sums[C][W];
    for (int c = 0; c < C; ++c) {
        for (int w = 0; w < W; ++w) sums[c][w] = _mm512_setzero_ps();
    }
    for (int j = 0; j < d; ++j) {
        __m512 k[W];
        for (int w = 0; w < W; ++w) k[w] = _mm512_loadu_ps(keys + j * kBlockPlaces + w * kLanes);
        for (int c = 0; c < C; ++c) {
            const __m512 x = _mm512_set1_ps(queries[c].query[j]);
            for (int w = 0; w < W; ++w) sums[c][w] = _mm512_fmadd_ps(x, k[w], sums[c][w]);
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int w = 0; w < W; ++w) _mm512_store_ps(scores[c] + w * kLanes, sums[c][w]);
    }
}

/// exp8 of kernels/avx2.h, bit for bit.
BASTION_AVX512_INLINE __m512 exp16(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_GE_OQ);
    return _mm512_maskz_mul_ps(normal, p, _mm512_castsi512_ps(exponent));
}

BASTION_AVX512_INLINE __m256 lower_half(__m512 v) { return _mm512_castps512_ps256(v); }
BASTION_AVX512_INLINE __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

/// Scores become weights relative to the running maximum; returns what the output so far is to be multiplied by.
BASTION_AVX512_INLINE float softmax(Running& r, float* scores, int valid, float scale) {
    constexpr int kVectors = kBlockPlaces / kLanes;
    const std::uint32_t inside = valid >= kBlockPlaces ? ~0u : (1u << valid) - 1;
    __m512 s[kVectors];
    __m512 best = _mm512_set1_ps(kLowest);
    for (int i = 0; i < kVectors; ++i) {
        s[i] = _mm512_mask_mul_ps(_mm512_set1_ps(kLowest), static_cast<__mmask16>(inside >> (i * kLanes)),
                                  _mm512_load_ps(scores + i * kLanes), _mm512_set1_ps(scale));
        best = _mm512_max_ps(best, s[i]);
    }
    const float block_maximum = largest(_mm256_max_ps(lower_half(best), upper_half(best)));
    float shrink = 1.0f;
    if (block_maximum > r.maximum) {
        shrink = r.sum > 0.0f ? std::exp(r.maximum - block_maximum) : 0.0f;
        r.maximum = block_maximum;
    }
    // Added up eight lanes after eight, as with vectors of eight.
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < kVectors; ++i) {
        const __m512 weights = exp16(_mm512_sub_ps(s[i], _mm512_set1_ps(r.maximum)));
        _mm512_store_ps(scores + i * kLanes, weights);
        sum = _mm256_add_ps(_mm256_add_ps(sum, lower_half(weights)), upper_half(weights));
    }
    r.sum = r.sum * shrink + total(sum);
    return shrink;
}

/// out = out * shrink + weights x values, for C queries and 16 W dimensions from `j` on.
template <int C, int W>
BASTION_AVX512_INLINE void mix(Query* queries, const float* shrinks, const float (*weights)[kBlockPlaces],
                               const float* values, int valid, int d, int j) {
    __m512 acc[C][W];
    for (int c = 0; c < C; ++c) {
        const float* out = queries[c].segment.out + j;
        for (int w = 0; w < W; ++w) {
            acc[c][w] = _mm512_mul_ps(_mm512_loadu_ps(out + w * kLanes), _mm512_set1_ps(shrinks[c]));
        }
    }
    for (int place = 0; place < valid; ++place) {
        const float* value = values + static_cast<std::ptrdiff_t>(place) * d + j;
        __m512 v[W];
        for (int w = 0; w < W; ++w) v[w] = _mm512_loadu_ps(value + w * kLanes);
        for (int c = 0; c < C; ++c) {
            const __m512 weight = _mm512_set1_ps(weights[c][place]);
            for (int w = 0; w < W; ++w) acc[c][w] = _mm512_fmadd_ps(weight, v[w], acc[c][w]);
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int w = 0; w < W; ++w) _mm512_storeu_ps(queries[c].segment.out + j + w * kLanes, acc[c][w]);
    }
}

template <int C>
BASTION_AVX512 void take_block(Query* queries, const Block& block, int valid, int d, float scale) {
    alignas(64) float scores[C][kBlockPlaces];
    float shrinks[C];
    if (valid > kLanes) {
        dot<C, 2>(queries, block.keys.get(), d, scores);
    } else {
        dot<C, 1>(queries, block.keys.get(), d, scores);
    }
    for (int c = 0; c < C; ++c) shrinks[c] = softmax(queries[c].segment, scores[c], valid, scale);
    int j = 0;
    for (; j + 2 * kLanes <= d; j += 2 * kLanes) {
        mix<C, 2>(queries, shrinks, scores, block.values.get(), valid, d, j);
    }
    for (; j < d; j += kLanes) mix<C, 1>(queries, shrinks, scores, block.values.get(), valid, d, j);
}

using TakeBlock = void (*)(Query*, const Block&, int, int, float);
constexpr TakeBlock kByQueries[kQueries] = {take_block<1>, take_block<2>,  take_block<3>,  take_block<4>,
                                            take_block<5>, take_block<6>,  take_block<7>,  take_block<8>,
                                            take_block<9>, take_block<10>, take_block<11>, take_block<12>};

}  // namespace

AttentionLoops attention_loops_avx512(ggml_type type) {
    return {type == GGML_TYPE_F16 ? convert<Half::f16> : convert<Half::bf16>, kByQueries, kQueries};
}

#else  // other processors: never called, best_isa() says no

AttentionLoops attention_loops_avx512(ggml_type) { std::abort(); }

#endif

}  // namespace bastion::kernels
