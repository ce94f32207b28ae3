#include "kernels/attention_avx2.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

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

template <ggml_type T>
BASTION_AVX2 void attend(const float* query, int d, float scale, const HeadCells& cells, float* out) {
    const std::int64_t count = static_cast<std::int64_t>(cells.run) + cells.extra_count;
    std::fill(out, out + d, 0.0f);
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (std::int64_t first = 0; first < count; first += kBlock) {
        const int valid = static_cast<int>(std::min<std::int64_t>(kBlock, count - first));
        const char* values[kBlock];
        __m256 dots[kBlock];
        for (int c = 0; c < kBlock; ++c) {
            // Lanes beyond the last cell repeat it; their weight is zero.
            const std::int64_t i = first + std::min(c, valid - 1);
            const std::int64_t cell = i < cells.run ? cells.first_cell + i : cells.extra[i - cells.run];
            const char* key = cells.keys + cell * cells.key_stride;
            values[c] = cells.values + cell * cells.value_stride;
            dots[c] = _mm256_setzero_ps();
            for (int j = 0; j < d; j += 8)
                dots[c] = _mm256_fmadd_ps(_mm256_loadu_ps(query + j), load8<T>(key + j * 2), dots[c]);
        }
        const __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(valid), lanes));
        const __m256 lowest = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
        const __m256 scores = _mm256_blendv_ps(lowest, _mm256_mul_ps(add_across(dots), _mm256_set1_ps(scale)), inside);
        const float block_maximum = largest(scores);
        __m256 shrink = _mm256_set1_ps(1.0f);
        if (block_maximum > maximum) {
            const float factor = sum > 0.0f ? std::exp(maximum - block_maximum) : 0.0f;
            shrink = _mm256_set1_ps(factor);
            sum *= factor;
            maximum = block_maximum;
        }
        const __m256 weights = exp8(_mm256_sub_ps(scores, _mm256_set1_ps(maximum)));
        sum += total(weights);
        alignas(32) float w[kBlock];
        _mm256_store_ps(w, weights);
        for (int j = 0; j < d; j += 8) {
            __m256 acc = _mm256_mul_ps(_mm256_loadu_ps(out + j), shrink);
            for (int c = 0; c < kBlock; ++c)
                acc = _mm256_fmadd_ps(_mm256_set1_ps(w[c]), load8<T>(values[c] + j * 2), acc);
            _mm256_storeu_ps(out + j, acc);
        }
    }
    const __m256 inverse = _mm256_set1_ps(sum > 0.0f ? 1.0f / sum : 0.0f);
    for (int j = 0; j < d; j += 8) _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_loadu_ps(out + j), inverse));
}

}  // namespace

bool attention_avx2_available(ggml_type type, int head_dim) {
    static const bool processor =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    return processor && head_dim % 8 == 0 && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
}

void attend_head_avx2(ggml_type type, const float* query, int head_dim, float scale, const HeadCells& cells,
                      float* out) {
    if (type == GGML_TYPE_F16) {
        attend<GGML_TYPE_F16>(query, head_dim, scale, cells, out);
    } else {
        attend<GGML_TYPE_BF16>(query, head_dim, scale, cells, out);
    }
}

}  // namespace bastion::kernels

#else  // other processors: never called, attention_avx2_available() says no

namespace bastion::kernels {

bool attention_avx2_available(ggml_type, int) { return false; }
void attend_head_avx2(ggml_type, const float*, int, float, const HeadCells&, float*) { std::abort(); }

}  // namespace bastion::kernels

#endif
