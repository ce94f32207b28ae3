// Integer dot products of packed units (kernels/packed_form.h) with C quantised activation rows, for
// packed_avx2.cpp alone. `acts[c]` are the activations; sums[c][half] are 8 rows of 32 bits each.
//
// The multiplication of bytes takes unsigned times signed ones and saturates pairs at 16 bits, so each function says
// why its sums fit. Activations lie between -120 and 120 (kLargestActivation).
#pragma once

#include <cstdint>

#include "kernels/avx2.h"
#include "kernels/packed_form.h"

namespace bastion::kernels {

BASTION_AVX2_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

/// Four bytes, for every row of the vector.
BASTION_AVX2_INLINE __m256i broadcast4(const void* p) {
    int bytes;
    __builtin_memcpy(&bytes, p, sizeof bytes);
    return _mm256_set1_epi32(bytes);
}

/// The low and the high nibbles of every byte.
BASTION_AVX2_INLINE void split_nibbles(__m256i w, __m256i& low, __m256i& high) {
    const __m256i mask = _mm256_set1_epi8(0xF);
    low = _mm256_and_si256(w, mask);
    high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
}

/// 4 bits: a pair of products is at most 2 x 15 x 120 = 3600 in magnitude and 8 pairs are added, 28800 < 2^15, so the
/// 16-bit sums cannot overflow.
template <int C>
BASTION_AVX2_INLINE void dot_nibbles(const std::uint8_t* unit, const ActivationUnit* const* acts,
                                     __m256i (&sums)[C][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
        // Not unrolled: the compiler would start all groups at once and spill every register.
#pragma GCC unroll 1
    for (int g = 0; g < 4; ++g) {
        __m256i low[2], high[2];
        for (int half = 0; half < 2; ++half) split_nibbles(load(unit + g * 64 + half * 32), low[half], high[half]);
        for (int c = 0; c < C; ++c) {
            const __m256i a = broadcast4(acts[c]->values + g * 8);
            sums[c][0] = _mm256_add_epi16(sums[c][0], _mm256_maddubs_epi16(low[0], a));
            sums[c][1] = _mm256_add_epi16(sums[c][1], _mm256_maddubs_epi16(low[1], a));
        }
        for (int c = 0; c < C; ++c) {
            const __m256i a = broadcast4(acts[c]->values + g * 8 + 4);
            sums[c][0] = _mm256_add_epi16(sums[c][0], _mm256_maddubs_epi16(high[0], a));
            sums[c][1] = _mm256_add_epi16(sums[c][1], _mm256_maddubs_epi16(high[1], a));
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int half = 0; half < 2; ++half) sums[c][half] = _mm256_madd_epi16(sums[c][half], ones);
    }
}

/// 4 bits and `Bits` more from planes, for N halves of the tile from `unit` on. Each plane's products are multiplied by
/// factors[plane][half], 16-bit numbers that stand twice for each row.
///
/// Two pairs are added in 16 bits, at most 4 x 63 x 120 = 30240 < 2^15; the rest happens in 32 bits: 32 x 63 x 120
/// times a factor of at most 128 is below 2^25.
template <int Bits, int C, int N>
BASTION_AVX2_INLINE void dot_planes(const std::uint8_t* unit, const ActivationUnit* const* acts,
                                    const __m256i (&factors)[Bits][N], __m256i (&sums)[C][N]) {
    constexpr std::size_t kGroups = 4 / Bits;  // a plane serves
    const __m256i high_mask = _mm256_set1_epi8(Bits == 1 ? 0x10 : 0x30);
    for (int c = 0; c < C; ++c) {
        for (int half = 0; half < N; ++half) sums[c][half] = _mm256_setzero_si256();
    }
#pragma GCC unroll 1
    for (std::size_t g = 0; g < 4; ++g) {
        const std::size_t p = g / kGroups;
        const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(g % kGroups * Bits));
        __m256i low[N], high[N];
        for (int half = 0; half < N; ++half) {
            split_nibbles(load(unit + g * 64 + half * 32), low[half], high[half]);
            // What a 16-bit shift brings over from the neighbouring byte falls beside the mask.
            const __m256i first = _mm256_srl_epi16(load(unit + kTileRows * 16 + p * 64 + half * 32), shift);
            const __m256i second = _mm256_slli_epi16(first, 4);
            low[half] = _mm256_or_si256(low[half], _mm256_and_si256(first, high_mask));
            high[half] = _mm256_or_si256(high[half], _mm256_and_si256(second, high_mask));
        }
        for (int c = 0; c < C; ++c) {
            const __m256i a = broadcast4(acts[c]->values + g * 8), b = broadcast4(acts[c]->values + g * 8 + 4);
            for (int half = 0; half < N; ++half) {
                const __m256i pairs =
                    _mm256_add_epi16(_mm256_maddubs_epi16(low[half], a), _mm256_maddubs_epi16(high[half], b));
                sums[c][half] = _mm256_add_epi32(sums[c][half], _mm256_madd_epi16(pairs, factors[p][half]));
            }
        }
    }
}

/// The same for the whole tile. From three activation rows on, both halves at once would not fit into the registers.
template <int Bits, int C>
BASTION_AVX2_INLINE void dot_all_planes(const std::uint8_t* unit, const ActivationUnit* const* acts,
                                        const __m256i (&factors)[Bits][2], __m256i (&sums)[C][2]) {
    if constexpr (C <= 2) {
        dot_planes<Bits, C, 2>(unit, acts, factors, sums);
    } else {
        for (int half = 0; half < 2; ++half) {
            __m256i own_factors[Bits][1], own_sums[C][1];
            for (int p = 0; p < Bits; ++p) own_factors[p][0] = factors[p][half];
            dot_planes<Bits, C, 1>(unit + half * 32, acts, own_factors, own_sums);
            for (int c = 0; c < C; ++c) sums[c][half] = own_sums[c][0];
        }
    }
}

/// 8 bits, signed: the sign of a weight moves to the activation. A pair is at most 2 x 128 x 120 = 30720 < 2^15.
template <int C>
BASTION_AVX2_INLINE void dot_bytes(const std::uint8_t* unit, const ActivationUnit* const* acts, __m256i (&sums)[C][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int g = 0; g < 8; ++g) {
        for (int half = 0; half < 2; ++half) {
            const __m256i w = load(unit + g * 64 + half * 32);
            const __m256i magnitude = _mm256_abs_epi8(w);
            for (int c = 0; c < C; ++c) {
                const __m256i a = _mm256_sign_epi8(broadcast4(acts[c]->values + g * 4), w);
                sums[c][half] =
                    _mm256_add_epi32(sums[c][half], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, a), ones));
            }
        }
    }
}

}  // namespace bastion::kernels
