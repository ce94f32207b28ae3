#include "kernels/packed_avx2.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

namespace bastion::kernels {
namespace {

// The file is compiled for any x86-64; these functions alone use the instructions that avx2_available() checks.
#define BASTION_AVX2 __attribute__((target("avx2,f16c")))
#define BASTION_AVX2_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline

// Tiles follow each other in memory. The hardware's own prefetching stops at page ends; past the last tile the
// instruction has no effect.
constexpr std::size_t kPrefetchAhead = 4096;

enum class Form { q4_0, q4_1, q8_0 };

template <Form F>
constexpr std::size_t kQuantBytes = F == Form::q8_0 ? kTileRows * 32 : kTileRows * 16;
template <Form F>
constexpr std::size_t kBlockBytes = kQuantBytes<F> + kTileRows * 2 * (F == Form::q4_1 ? 2 : 1);

BASTION_AVX2_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

/// Four activation bytes, for every row of the vector.
BASTION_AVX2_INLINE __m256i broadcast4(const char* p) {
    int bytes;
    __builtin_memcpy(&bytes, p, sizeof bytes);
    return _mm256_set1_epi32(bytes);
}

BASTION_AVX2_INLINE __m256 halves(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

/// Integer dot products of one block: sums[c][half] are 8 rows of 32 bits each.
///
/// 4 bits: a pair of products is at most 2 x 15 x 127 = 3810 in magnitude and 8 pairs are added, 30480 < 2^15, so the
/// 16-bit sums cannot overflow.
template <int C>
BASTION_AVX2_INLINE void dot_nibbles(const std::uint8_t* block, const char* const* acts, __m256i (&sums)[C][2]) {
    const __m256i low_mask = _mm256_set1_epi8(0xF);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
        // Not unrolled: the compiler would start all groups at once and spill every register.
#pragma GCC unroll 1
    for (int g = 0; g < 4; ++g) {
        const __m256i w0 = load(block + g * 64), w1 = load(block + g * 64 + 32);
        const __m256i low0 = _mm256_and_si256(w0, low_mask), low1 = _mm256_and_si256(w1, low_mask);
        for (int c = 0; c < C; ++c) {
            const __m256i a = broadcast4(acts[c] + g * 8);
            sums[c][0] = _mm256_add_epi16(sums[c][0], _mm256_maddubs_epi16(low0, a));
            sums[c][1] = _mm256_add_epi16(sums[c][1], _mm256_maddubs_epi16(low1, a));
        }
        const __m256i high0 = _mm256_and_si256(_mm256_srli_epi16(w0, 4), low_mask);
        const __m256i high1 = _mm256_and_si256(_mm256_srli_epi16(w1, 4), low_mask);
        for (int c = 0; c < C; ++c) {
            const __m256i a = broadcast4(acts[c] + g * 8 + 4);
            sums[c][0] = _mm256_add_epi16(sums[c][0], _mm256_maddubs_epi16(high0, a));
            sums[c][1] = _mm256_add_epi16(sums[c][1], _mm256_maddubs_epi16(high1, a));
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int half = 0; half < 2; ++half) sums[c][half] = _mm256_madd_epi16(sums[c][half], ones);
    }
}

/// 8 bits: the multiplication takes unsigned times signed bytes, so the sign of a weight moves to the activation. A
/// pair is at most 2 x 128 x 127 = 32512 < 2^15.
template <int C>
BASTION_AVX2_INLINE void dot_bytes(const std::uint8_t* block, const char* const* acts, __m256i (&sums)[C][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int g = 0; g < 8; ++g) {
        for (int half = 0; half < 2; ++half) {
            const __m256i w = load(block + g * 64 + half * 32);
            const __m256i magnitude = _mm256_abs_epi8(w);
            for (int c = 0; c < C; ++c) {
                const __m256i a = _mm256_sign_epi8(broadcast4(acts[c] + g * 4), w);
                sums[c][half] =
                    _mm256_add_epi32(sums[c][half], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, a), ones));
            }
        }
    }
}

template <Form F, int C>
BASTION_AVX2 void tile(const std::uint8_t* tile, std::int64_t blocks, const char* activations, std::size_t stride,
                       float* out) {
    __m256 totals[C][2];
    const char* acts[C];
    const float* scales[C];
    for (int c = 0; c < C; ++c) {
        totals[c][0] = totals[c][1] = _mm256_setzero_ps();
        acts[c] = activations + c * stride;
        scales[c] = reinterpret_cast<const float*>(acts[c] + blocks * 32);
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
        const std::uint8_t* block = tile + b * kBlockBytes<F>;
        for (std::size_t line = 0; line < kBlockBytes<F>; line += 64) {
            _mm_prefetch(reinterpret_cast<const char*>(block) + kPrefetchAhead + line, _MM_HINT_T0);
        }
        __m256i sums[C][2];
        if constexpr (F == Form::q8_0) {
            dot_bytes<C>(block, acts, sums);
        } else {
            dot_nibbles<C>(block, acts, sums);
        }
        for (int half = 0; half < 2; ++half) {
            const std::uint8_t* halfs = block + kQuantBytes<F> + half * 16;
            const __m256 scale = halves(halfs);
            __m256 minimum = _mm256_setzero_ps();
            if constexpr (F == Form::q4_0) minimum = _mm256_mul_ps(scale, _mm256_set1_ps(-8.0f));
            if constexpr (F == Form::q4_1) minimum = halves(halfs + kTileRows * 2);
            for (int c = 0; c < C; ++c) {
                const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(scales[c][b]));
                totals[c][half] =
                    _mm256_add_ps(totals[c][half], _mm256_mul_ps(_mm256_cvtepi32_ps(sums[c][half]), both));
                if constexpr (F != Form::q8_0) {
                    const __m256 sum = _mm256_set1_ps(scales[c][blocks + b]);
                    totals[c][half] = _mm256_add_ps(totals[c][half], _mm256_mul_ps(minimum, sum));
                }
            }
        }
        for (int c = 0; c < C; ++c) acts[c] += 32;
    }
    for (int c = 0; c < C; ++c) {
        _mm256_storeu_ps(out + c * kTileRows, totals[c][0]);
        _mm256_storeu_ps(out + c * kTileRows + 8, totals[c][1]);
    }
}

template <Form F>
void tile_any(const std::uint8_t* data, std::int64_t blocks, const char* activations, std::size_t stride, int columns,
              float* out) {
    static_assert(kMaxColumns == 4);
    switch (columns) {
        case 1:
            tile<F, 1>(data, blocks, activations, stride, out);
            break;
        case 2:
            tile<F, 2>(data, blocks, activations, stride, out);
            break;
        case 3:
            tile<F, 3>(data, blocks, activations, stride, out);
            break;
        default:
            tile<F, 4>(data, blocks, activations, stride, out);
            break;
    }
}

}  // namespace

bool avx2_available() {
    static const bool available = [] {
        constexpr unsigned kF16c = 1u << 29;  // CPUID leaf 1, ECX
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & kF16c);
        return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }();
    return available;
}

void tile_q4_0_avx2(const std::uint8_t* data, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out) {
    tile_any<Form::q4_0>(data, blocks, activations, stride, columns, out);
}

void tile_q4_1_avx2(const std::uint8_t* data, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out) {
    tile_any<Form::q4_1>(data, blocks, activations, stride, columns, out);
}

void tile_q8_0_avx2(const std::uint8_t* data, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out) {
    tile_any<Form::q8_0>(data, blocks, activations, stride, columns, out);
}

BASTION_AVX2 void quantize_activations_avx2(const float* x, std::int64_t k, char* out) {
    const std::int64_t blocks = k / 32;
    auto* scales = reinterpret_cast<float*>(out + k);
    float* sums = scales + blocks;
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    // _mm256_packs interleaves the 128-bit lanes; this order undoes it.
    const __m256i lane_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (std::int64_t b = 0; b < blocks; ++b) {
        __m256 v[4];
        __m256 largest = _mm256_setzero_ps();
        for (int i = 0; i < 4; ++i) {
            v[i] = _mm256_loadu_ps(x + b * 32 + i * 8);
            largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign_bit, v[i]));
        }
        __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
        top = _mm_max_ps(top, _mm_movehl_ps(top, top));
        top = _mm_max_ss(top, _mm_movehdup_ps(top));
        const float magnitude = _mm_cvtss_f32(top);
        const float scale = magnitude / 127.0f;
        const __m256 inverse = _mm256_set1_ps(magnitude > 0.0f ? 127.0f / magnitude : 0.0f);
        __m256i q[4];
        __m256i total = _mm256_setzero_si256();
        for (int i = 0; i < 4; ++i) {
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
            total = _mm256_add_epi32(total, q[i]);
        }
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + b * 32), _mm256_permutevar8x32_epi32(bytes, lane_order));
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
        scales[b] = scale;
        sums[b] = scale * static_cast<float>(_mm_cvtsi128_si32(sum));
    }
}

}  // namespace bastion::kernels

#else  // other processors: never called, packed_kernels_available() says no

namespace bastion::kernels {

bool avx2_available() { return false; }
void tile_q4_0_avx2(const std::uint8_t*, std::int64_t, const char*, std::size_t, int, float*) { std::abort(); }
void tile_q4_1_avx2(const std::uint8_t*, std::int64_t, const char*, std::size_t, int, float*) { std::abort(); }
void tile_q8_0_avx2(const std::uint8_t*, std::int64_t, const char*, std::size_t, int, float*) { std::abort(); }
void quantize_activations_avx2(const float*, std::int64_t, char*) { std::abort(); }

}  // namespace bastion::kernels

#endif
