// What the files with AVX-512 code share; see kernels/avx2.h, whose functions serve here too. Only functions marked
// BASTION_AVX512 use the instructions, and only Isa::avx512 or more lets them be called.
#pragma once

#include "kernels/avx2.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC's own intrinsics leave vectors undefined on purpose and are warned about.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define BASTION_AVX512_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define BASTION_AVX512 __attribute__((target(BASTION_AVX512_TARGET)))
#define BASTION_AVX512_INLINE __attribute__((target(BASTION_AVX512_TARGET), always_inline)) inline

namespace bastion::kernels {

/// Sixteen 16-bit floats as f32.
template <Half H>
BASTION_AVX512_INLINE __m512 widen16(__m256i raw) {
    if constexpr (H == Half::f16) return _mm512_cvtph_ps(raw);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
}

}  // namespace bastion::kernels

#endif
