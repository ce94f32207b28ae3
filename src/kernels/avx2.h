// What the files with AVX2 code share. Each is compiled for any x86-64; only functions marked BASTION_AVX2 use the
// instructions, and only Isa::avx2 (kernels/isa.h) lets them be called. Products and sums are not contracted into fused
// multiply-adds (-ffp-contract=off): where a kernel fuses, it says so.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

#define BASTION_AVX2 __attribute__((target("avx2,fma,f16c")))
#define BASTION_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace bastion::kernels {

/// Asks for every cache line of [begin, begin + bytes); past the end of memory that has no effect.
__attribute__((always_inline)) inline void prefetch(const void* begin, std::size_t bytes) {
    for (std::size_t line = 0; line < bytes; line += 64) {
        _mm_prefetch(static_cast<const char*>(begin) + line, _MM_HINT_T0);
    }
}

enum class Half { f16, bf16 };

/// Eight 16-bit floats as f32.
template <Half H>
BASTION_AVX2_INLINE __m256 load8(const void* p) {
    const __m128i raw = _mm_loadu_si128(static_cast<const __m128i*>(p));
    if constexpr (H == Half::f16) return _mm256_cvtph_ps(raw);
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

/// The largest of 8 lanes.
BASTION_AVX2_INLINE float largest(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/// The sum of 8 lanes.
BASTION_AVX2_INLINE float total(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

}  // namespace bastion::kernels

#endif
