#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/attention_blocks.h"
#include "kernels/avx2.h"

namespace bastion::kernels {

#if defined(__x86_64__)

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kQueries = 6;  // that share a vector of keys or values in registers

/// Rows become columns.
BASTION_AVX2_INLINE void transpose(__m256 (&r)[kPlaceGroup]) {
    __m256 t[kPlaceGroup];
    for (int i = 0; i < 4; ++i) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    __m256 u[kPlaceGroup];
    for (int half = 0; half < 2; ++half) {
        u[half * 4 + 0] = _mm256_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0x44);
        u[half * 4 + 1] = _mm256_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0xEE);
        u[half * 4 + 2] = _mm256_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0x44);
        u[half * 4 + 3] = _mm256_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0xEE);
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

template <Half H>
BASTION_AVX2 void convert(const AttentionPlan& plan, const AttentionRow& row, std::int64_t first, int from, int to,
                          const HeadCells& head, Block& block) {
    const int d = plan.head_dim;
    for (int group = from; group < to; group += kPlaceGroup) {
        std::int64_t cells[kPlaceGroup];
        for (int c = 0; c < kPlaceGroup; ++c) {
            cells[c] = cell_of(plan, row, first + std::min(group + c, to - 1));
            head.prefetch(row, first + group + c, d);
        }
        for (int j = 0; j < d; j += 8) {
            __m256 k[kPlaceGroup];
            for (int c = 0; c < kPlaceGroup; ++c) k[c] = load8<H>(head.keys + cells[c] * head.key_stride + j * 2);
            transpose(k);
            for (int c = 0; c < kPlaceGroup; ++c) _mm256_storeu_ps(&block.keys[(j + c) * kBlockPlaces + group], k[c]);
        }
        for (int c = 0; c < kPlaceGroup; ++c) {
            const char* cell = head.values + cells[c] * head.value_stride;
            float* out = &block.values[static_cast<std::size_t>(group + c) * d];
            for (int j = 0; j < d; j += 8) _mm256_storeu_ps(out + j, load8<H>(cell + j * 2));
        }
    }
}

/// Dot products of C queries with the keys of a block: scores [C][kBlockPlaces]. Groups of places from `valid` on are
/// left.
template <int C>
BASTION_AVX2_INLINE void dot(const Query* queries, const float* keys, int valid, int d, float (*scores)[kBlockPlaces]) {
    for (int place = 0; place < valid; place += 2 * kPlaceGroup) {
        __m256 sums[C][2];
        for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_ps();
        for (int j = 0; j < d; ++j) {
            const __m256 k0 = _mm256_loadu_ps(keys + j * kBlockPlaces + place);
            const __m256 k1 = _mm256_loadu_ps(keys + j * kBlockPlaces + place + kPlaceGroup);
            for (int c = 0; c < C; ++c) {
                const __m256 x = _mm256_broadcast_ss(queries[c].query + j);
                sums[c][0] = _mm256_fmadd_ps(x, k0, sums[c][0]);
                sums[c][1] = _mm256_fmadd_ps(x, k1, sums[c][1]);
            }
        }
        for (int c = 0; c < C; ++c) {
            _mm256_store_ps(scores[c] + place, sums[c][0]);
            _mm256_store_ps(scores[c] + place + kPlaceGroup, sums[c][1]);
        }
    }
}

/// Scores become weights relative to the running maximum; returns what the output so far is to be multiplied by.
BASTION_AVX2_INLINE float softmax(Running& r, float* scores, int valid, float scale) {
    const __m256 lanes = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 s[kBlockPlaces / kPlaceGroup];
    __m256 best = _mm256_set1_ps(kLowest);
    for (int i = 0; i < kBlockPlaces / kPlaceGroup; ++i) {
        const __m256 inside =
            _mm256_cmp_ps(lanes, _mm256_set1_ps(static_cast<float>(valid - i * kPlaceGroup)), _CMP_LT_OQ);
        s[i] = _mm256_mul_ps(_mm256_load_ps(scores + i * kPlaceGroup), _mm256_set1_ps(scale));
        s[i] = _mm256_blendv_ps(_mm256_set1_ps(kLowest), s[i], inside);
        best = _mm256_max_ps(best, s[i]);
    }
    const float block_maximum = largest(best);
    float shrink = 1.0f;
    if (block_maximum > r.maximum) {
        shrink = r.sum > 0.0f ? std::exp(r.maximum - block_maximum) : 0.0f;
        r.maximum = block_maximum;
    }
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < kBlockPlaces / kPlaceGroup; ++i) {
        const __m256 weights = exp8(_mm256_sub_ps(s[i], _mm256_set1_ps(r.maximum)));
        _mm256_store_ps(scores + i * kPlaceGroup, weights);
        sum = _mm256_add_ps(sum, weights);
    }
    r.sum = r.sum * shrink + total(sum);
    return shrink;
}

/// out = out * shrink + weights x values, for C queries and 16 dimensions from `j` on.
template <int C>
BASTION_AVX2_INLINE void mix(Query* queries, const float* shrinks, const float (*weights)[kBlockPlaces],
                             const float* values, int valid, int d, int j) {
    __m256 acc[C][2];
    for (int c = 0; c < C; ++c) {
        const float* out = queries[c].segment.out + j;
        acc[c][0] = _mm256_mul_ps(_mm256_loadu_ps(out), _mm256_set1_ps(shrinks[c]));
        acc[c][1] = _mm256_mul_ps(_mm256_loadu_ps(out + 8), _mm256_set1_ps(shrinks[c]));
    }
    for (int place = 0; place < valid; ++place) {
        const float* value = values + static_cast<std::ptrdiff_t>(place) * d + j;
        const __m256 v0 = _mm256_loadu_ps(value), v1 = _mm256_loadu_ps(value + 8);
        for (int c = 0; c < C; ++c) {
            const __m256 w = _mm256_broadcast_ss(weights[c] + place);
            acc[c][0] = _mm256_fmadd_ps(w, v0, acc[c][0]);
            acc[c][1] = _mm256_fmadd_ps(w, v1, acc[c][1]);
        }
    }
    for (int c = 0; c < C; ++c) {
        _mm256_storeu_ps(queries[c].segment.out + j, acc[c][0]);
        _mm256_storeu_ps(queries[c].segment.out + j + 8, acc[c][1]);
    }
}

/// Takes the first `valid` places of a block into the segments of C queries.
template <int C>
BASTION_AVX2 void take_block(Query* queries, const Block& block, int valid, int d, float scale) {
    alignas(32) float scores[C][kBlockPlaces];
    float shrinks[C];
    dot<C>(queries, block.keys.get(), valid, d, scores);
    for (int c = 0; c < C; ++c) shrinks[c] = softmax(queries[c].segment, scores[c], valid, scale);
    for (int j = 0; j < d; j += 16) mix<C>(queries, shrinks, scores, block.values.get(), valid, d, j);
}

using TakeBlock = void (*)(Query*, const Block&, int, int, float);
constexpr TakeBlock kByQueries[kQueries] = {take_block<1>, take_block<2>, take_block<3>,
                                            take_block<4>, take_block<5>, take_block<6>};

}  // namespace

AttentionLoops attention_loops_avx2(ggml_type type) {
    return {type == GGML_TYPE_F16 ? convert<Half::f16> : convert<Half::bf16>, kByQueries, kQueries};
}

#else  // other processors: never called, best_isa() says no

AttentionLoops attention_loops_avx2(ggml_type) { std::abort(); }

#endif

}  // namespace bastion::kernels
