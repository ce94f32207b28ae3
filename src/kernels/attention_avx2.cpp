#include "kernels/attention_avx2.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/packed_avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bastion::kernels {
namespace {

#define BASTION_AVX2 __attribute__((target("avx2,fma,f16c")))
#define BASTION_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

constexpr int kBlock = 8;  // cells whose scores fill one vector

template <ggml_type T>
BASTION_AVX2_INLINE __m256 load8(const char* p) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (T == GGML_TYPE_F16) return _mm256_cvtph_ps(raw);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));  // bf16: the upper half of f32
}

/// e^x for x <= 0, about 2 units in the last place: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes' coefficients).
/// Below -87 the result is 0.
BASTION_AVX2_INLINE __m256 exp8(__m256 x) {
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 result = _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
    return _mm256_and_ps(result, _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_GE_OQ));
}

/// The sums of the 8 vectors, one a lane.
BASTION_AVX2_INLINE __m256 add_across(const __m256 (&v)[kBlock]) {
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

BASTION_AVX2_INLINE float largest(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

BASTION_AVX2_INLINE float total(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/// Where one row with one head is: the output so far (unnormalised), its running maximum and sum.
struct Running {
    const float* query;
    float* out;
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
};

/// Eight cells' keys or values as f32, [kBlock][head_dim].
template <ggml_type T>
BASTION_AVX2_INLINE void convert(const char* base, std::size_t stride, const std::int64_t (&cells)[kBlock], int d,
                                 float* out) {
    for (int c = 0; c < kBlock; ++c) {
        const char* cell = base + cells[c] * stride;
        for (int j = 0; j < d; j += 8) _mm256_storeu_ps(out + c * d + j, load8<T>(cell + j * 2));
    }
}

/// Takes eight cells into a running softmax, of which the first `valid` count.
BASTION_AVX2_INLINE void take_block(Running& r, const float* keys, const float* values, int valid, int d, float scale) {
    __m256 dots[kBlock];
    for (int c = 0; c < kBlock; ++c) dots[c] = _mm256_setzero_ps();
    for (int j = 0; j < d; j += 8) {
        const __m256 query = _mm256_loadu_ps(r.query + j);
        for (int c = 0; c < kBlock; ++c) dots[c] = _mm256_fmadd_ps(query, _mm256_loadu_ps(keys + c * d + j), dots[c]);
    }
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(valid), lanes));
    const __m256 lowest = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    const __m256 scores = _mm256_blendv_ps(lowest, _mm256_mul_ps(add_across(dots), _mm256_set1_ps(scale)), inside);
    const float block_maximum = largest(scores);
    __m256 shrink = _mm256_set1_ps(1.0f);
    if (block_maximum > r.maximum) {
        const float factor = r.sum > 0.0f ? std::exp(r.maximum - block_maximum) : 0.0f;
        shrink = _mm256_set1_ps(factor);
        r.sum *= factor;
        r.maximum = block_maximum;
    }
    const __m256 weights = exp8(_mm256_sub_ps(scores, _mm256_set1_ps(r.maximum)));
    r.sum += total(weights);
    alignas(32) float w[kBlock];
    _mm256_store_ps(w, weights);
    for (int j = 0; j < d; j += 8) {
        __m256 acc = _mm256_mul_ps(_mm256_loadu_ps(r.out + j), shrink);
        for (int c = 0; c < kBlock; ++c) {
            acc = _mm256_fmadd_ps(_mm256_set1_ps(w[c]), _mm256_loadu_ps(values + c * d + j), acc);
        }
        _mm256_storeu_ps(r.out + j, acc);
    }
}

/// The cells of places [first, first + valid) of a row. Places beyond the last one repeat it; their weight is zero.
void cells_of_block(const AttentionPlan& plan, const AttentionRow& row, std::int64_t first, int valid,
                    std::int64_t (&cells)[kBlock]) {
    for (int c = 0; c < kBlock; ++c) {
        const std::int64_t i = first + std::min(c, valid - 1);
        cells[c] = i < row.run ? row.first_cell + i : plan.extra[row.extra_begin + (i - row.run)];
    }
}

template <ggml_type T>
BASTION_AVX2 void attend(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q,
                         const ggml_tensor* keys, const ggml_tensor* values, ggml_tensor* dst) {
    const int d = plan.head_dim;
    const int heads = task.last_head - task.first_head;
    const std::size_t offset =
        static_cast<std::size_t>(task.first_head / (plan.heads / plan.kv_heads)) * ggml_row_size(T, d);
    const char* key_base = static_cast<const char*>(keys->data) + offset;
    const char* value_base = static_cast<const char*>(values->data) + offset;
    std::vector<float> scratch(static_cast<std::size_t>(2) * kBlock * d);
    float *key_block = scratch.data(), *value_block = scratch.data() + static_cast<std::ptrdiff_t>(kBlock) * d;

    std::vector<Running> running;
    std::int32_t shared = std::numeric_limits<std::int32_t>::max();
    for (int row = task.first_row; row < task.last_row; ++row) {
        shared = std::min(shared, plan.rows[row].run / kBlock * kBlock);
        for (int head = task.first_head; head < task.last_head; ++head) {
            Running r;
            r.query =
                reinterpret_cast<const float*>(static_cast<const char*>(q->data) + row * q->nb[2] + head * q->nb[1]);
            r.out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[1]) +
                    static_cast<std::ptrdiff_t>(head) * d;
            std::fill(r.out, r.out + d, 0.0f);
            running.push_back(r);
        }
    }

    std::int64_t cells[kBlock];
    for (std::int64_t first = 0; first < shared; first += kBlock) {
        cells_of_block(plan, plan.rows[task.first_row], first, kBlock, cells);
        convert<T>(key_base, keys->nb[1], cells, d, key_block);
        convert<T>(value_base, values->nb[1], cells, d, value_block);
        for (Running& r : running) take_block(r, key_block, value_block, kBlock, d, plan.scale);
    }
    for (int row = task.first_row; row < task.last_row; ++row) {
        const AttentionRow& row_cells = plan.rows[row];
        const std::int64_t count =
            static_cast<std::int64_t>(row_cells.run) + row_cells.extra_end - row_cells.extra_begin;
        Running* own = running.data() + static_cast<std::ptrdiff_t>(row - task.first_row) * heads;
        for (std::int64_t first = shared; first < count; first += kBlock) {
            const int valid = static_cast<int>(std::min<std::int64_t>(kBlock, count - first));
            cells_of_block(plan, row_cells, first, valid, cells);
            convert<T>(key_base, keys->nb[1], cells, d, key_block);
            convert<T>(value_base, values->nb[1], cells, d, value_block);
            for (int h = 0; h < heads; ++h) take_block(own[h], key_block, value_block, valid, d, plan.scale);
        }
    }
    for (const Running& r : running) {
        const __m256 inverse = _mm256_set1_ps(r.sum > 0.0f ? 1.0f / r.sum : 0.0f);
        for (int j = 0; j < d; j += 8) _mm256_storeu_ps(r.out + j, _mm256_mul_ps(_mm256_loadu_ps(r.out + j), inverse));
    }
}

}  // namespace

bool attention_avx2_available(ggml_type type, int head_dim) {
    return avx2_available() && head_dim % 8 == 0 && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
}

void attend_avx2(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
                 const ggml_tensor* values, ggml_tensor* dst) {
    if (keys->type == GGML_TYPE_F16) {
        attend<GGML_TYPE_F16>(plan, task, q, keys, values, dst);
    } else {
        attend<GGML_TYPE_BF16>(plan, task, q, keys, values, dst);
    }
}

}  // namespace bastion::kernels

#else  // other processors: never called, attention_avx2_available() says no

namespace bastion::kernels {

bool attention_avx2_available(ggml_type, int) { return false; }
void attend_avx2(const AttentionPlan&, const AttentionTask&, const ggml_tensor*, const ggml_tensor*, const ggml_tensor*,
                 ggml_tensor*) {
    std::abort();
}

}  // namespace bastion::kernels

#endif
