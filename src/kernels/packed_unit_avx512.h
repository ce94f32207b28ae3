// What the loops over packed units for AVX-512 share (kernels/packed_form.h): activation rows, scales and minima.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/avx512.h"
#include "kernels/packed_form.h"

#if defined(__x86_64__)

namespace bastion::kernels {

BASTION_AVX512_INLINE __m512i load64(const void* p) { return _mm512_loadu_si512(p); }

BASTION_AVX512_INLINE __m512 halves16(const std::uint8_t* p) {
    return widen16<Half::f16>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

/// Sixteen unsigned bytes as f32.
BASTION_AVX512_INLINE __m512 small_numbers16(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

/// An ActivationUnit, its parts for every weight row.
struct Row {
    const char* unit;

    BASTION_AVX512_INLINE __m512i broadcast4(std::size_t at) const {
        int word;
        __builtin_memcpy(&word, unit + at, sizeof word);
        return _mm512_set1_epi32(word);
    }
    BASTION_AVX512_INLINE __m512 broadcast(std::size_t at) const { return _mm512_castsi512_ps(broadcast4(at)); }
    /// Values 4g to 4g + 3.
    BASTION_AVX512_INLINE __m512i four(int g) const { return broadcast4(offsetof(ActivationUnit, values) + g * 4); }
    BASTION_AVX512_INLINE __m512 scale() const { return broadcast(offsetof(ActivationUnit, scale)); }
    BASTION_AVX512_INLINE __m512 sum() const { return broadcast(offsetof(ActivationUnit, sum)); }
    BASTION_AVX512_INLINE __m512i sums_of_16() const { return broadcast4(offsetof(ActivationUnit, sums_of_16)); }
    BASTION_AVX512_INLINE __m512i cross_terms() const { return broadcast4(offsetof(ActivationUnit, cross_terms)); }
};

/// A unit of quantised rows `stride` bytes apart.
struct Rows {
    const char* first;
    std::size_t stride;

    BASTION_AVX512_INLINE Row operator[](int c) const { return {first + c * stride}; }
    BASTION_AVX512_INLINE void next() { first += sizeof(ActivationUnit); }
};

/// The same unit of T tiles.
template <int T>
using Units = const std::uint8_t* [T];

/// See packed_avx2.cpp: the same numbers in the same order.
template <Form F>
BASTION_AVX512_INLINE __m512 scale_of(const std::uint8_t* unit, const std::uint8_t* shared) {
    const std::uint8_t* own = unit + value_bytes(F);
    if constexpr (F == Form::q6_K) return halves16(shared);
    if constexpr (!two_level(F)) return halves16(own);
    return _mm512_mul_ps(halves16(shared), small_numbers16(own));
}

template <Form F>
BASTION_AVX512_INLINE __m512 minimum_of(const std::uint8_t* unit, const std::uint8_t* shared) {
    const std::uint8_t* own = unit + value_bytes(F);
    if constexpr (!two_level(F)) return halves16(own + kHalfs);
    return _mm512_mul_ps(halves16(shared + kHalfs), small_numbers16(own + kTileRows));
}

/// What the minima of a unit add, with the activation sum of a row.
template <Form F>
BASTION_AVX512_INLINE __m512 add_minimum(__m512 minimum, __m512 sum, __m512 total) {
    return two_level(F) ? _mm512_fnmadd_ps(minimum, sum, total) : _mm512_fmadd_ps(minimum, sum, total);
}

}  // namespace bastion::kernels

#endif
