#include "kernels/packed_avx512.h"

#include <cstdlib>

#if defined(__x86_64__)
#include "kernels/packed_unit_avx512.h"

namespace bastion::kernels {
namespace {

// As in packed_avx2.cpp; farther, because a unit takes less time.
constexpr std::size_t kPrefetchAhead = 8192;

/// Values of columns 8g to 8g + 3 and 8g + 4 to 8g + 7 of a unit, of forms with nibbles and maybe planes.
template <Form F, int G>
BASTION_AVX512_INLINE void values_of(const std::uint8_t* unit, __m512i& first, __m512i& second) {
    constexpr int kBits = high_bits(F);
    const __m512i mask = _mm512_set1_epi8(0xF);
    const __m512i w = load64(unit + G * 64);
    first = _mm512_and_si512(w, mask);
    second = _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);
    if constexpr (kBits > 0) {
        constexpr int kGroups = 4 / kBits;  // a plane serves
        // What a 16-bit shift brings over from the neighbouring byte falls beside the mask.
        const __m512i high = _mm512_set1_epi8(kBits == 1 ? 0x10 : 0x30);
        const __m512i plane = _mm512_srli_epi16(load64(unit + low_bytes(F) + G / kGroups * 64), G % kGroups * kBits);
        first = _mm512_or_si512(first, _mm512_and_si512(plane, high));
        second = _mm512_or_si512(second, _mm512_and_si512(_mm512_slli_epi16(plane, 4), high));
    }
}

/// One integer sum for each of 16 weight rows, by tile and activation row.
template <int T, int C>
using Sums = __m512i[T][C];

template <Form F, int T, int C, int G>
BASTION_AVX512_INLINE void add_group(const Units<T>& units, const Rows& x, Sums<T, C>& sums) {
    __m512i first[T], second[T];
    for (int t = 0; t < T; ++t) values_of<F, G>(units[t], first[t], second[t]);
    for (int c = 0; c < C; ++c) {
        const __m512i four = x[c].four(2 * G);
        for (int t = 0; t < T; ++t) sums[t][c] = _mm512_dpbusd_epi32(sums[t][c], first[t], four);
    }
    for (int c = 0; c < C; ++c) {
        const __m512i four = x[c].four(2 * G + 1);
        for (int t = 0; t < T; ++t) sums[t][c] = _mm512_dpbusd_epi32(sums[t][c], second[t], four);
    }
}

template <int T, int C>
BASTION_AVX512_INLINE void clear(Sums<T, C>& sums) {
    for (auto& of_tile : sums) {
        for (__m512i& sum : of_tile) sum = _mm512_setzero_si512();
    }
}

/// Signed bytes are raised by 128, because the multiplication takes unsigned times signed ones.
template <int T, int C>
BASTION_AVX512_INLINE void dot_bytes(const Units<T>& units, const Rows& x, Sums<T, C>& sums) {
    const __m512i raise = _mm512_set1_epi8(static_cast<char>(0x80));
    clear<T, C>(sums);
    for (int g = 0; g < 8; ++g) {
        __m512i w[T];
        for (int t = 0; t < T; ++t) w[t] = _mm512_xor_si512(load64(units[t] + g * 64), raise);
        for (int c = 0; c < C; ++c) {
            const __m512i four = x[c].four(g);
            for (int t = 0; t < T; ++t) sums[t][c] = _mm512_dpbusd_epi32(sums[t][c], w[t], four);
        }
    }
}

/// Sixteen signed bytes as 32-bit numbers.
BASTION_AVX512_INLINE __m512i levels16(const std::uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

/// Q6_K: each 16 columns have a signed 8-bit scale, which multiplies in integers. The result is below 2^24 in
/// magnitude (32 columns x 32 x 120 x 128), so f32 holds it.
template <int C>
BASTION_AVX512_INLINE void dot_scaled(const Units<1>& units, const Rows& x, Sums<1, C>& sums) {
    constexpr Form kForm = Form::q6_K;
    const __m512i first = levels16(units[0] + value_bytes(kForm));
    const __m512i second = levels16(units[0] + value_bytes(kForm) + kTileRows);
    // Pairs of 16-bit numbers: the first level below, the second above.
    const __m512i both = _mm512_mask_blend_epi16(0xAAAAAAAA, first, _mm512_slli_epi32(second, 16));
    Sums<1, C> later;
    clear<1, C>(sums);
    add_group<kForm, 1, C, 0>(units, x, sums);
    add_group<kForm, 1, C, 1>(units, x, sums);
    clear<1, C>(later);
    add_group<kForm, 1, C, 2>(units, x, later);
    add_group<kForm, 1, C, 3>(units, x, later);
    for (int c = 0; c < C; ++c) {
        const __m512i scaled =
            _mm512_add_epi32(_mm512_mullo_epi32(sums[0][c], first), _mm512_mullo_epi32(later[0][c], second));
        const __m512i excess = _mm512_slli_epi32(_mm512_madd_epi16(both, x[c].sums_of_16()), 5);
        static_assert(value_offset(kForm) == 1 << 5);
        sums[0][c] = _mm512_sub_epi32(scaled, excess);
    }
}

/// Integer dot products of one unit, those of signed values where the form has an offset.
template <Form F, int T, int C>
BASTION_AVX512_INLINE void dot(const Units<T>& units, const Rows& x, Sums<T, C>& sums) {
    if constexpr (F == Form::q6_K) {
        dot_scaled<C>(units, x, sums);
        return;
    } else if constexpr (F == Form::q8_0) {
        dot_bytes<T, C>(units, x, sums);
    } else {
        clear<T, C>(sums);
        add_group<F, T, C, 0>(units, x, sums);
        add_group<F, T, C, 1>(units, x, sums);
        add_group<F, T, C, 2>(units, x, sums);
        add_group<F, T, C, 3>(units, x, sums);
    }
    constexpr int kOffset = F == Form::q8_0 ? 128 : value_offset(F);
    if constexpr (kOffset != 0) {
        const __m512i offset = _mm512_set1_epi16(kOffset);
        for (int c = 0; c < C; ++c) {
            const __m512i excess = _mm512_madd_epi16(x[c].sums_of_16(), offset);
            for (int t = 0; t < T; ++t) sums[t][c] = _mm512_sub_epi32(sums[t][c], excess);
        }
    }
}

/// `shared`: what the units' blocks share.
template <Form F, int T, int C>
BASTION_AVX512_INLINE void add_unit(const Units<T>& units, const Units<T>& shared, const Rows& x,
                                    __m512 (&totals)[T][C]) {
    if constexpr (has_minima(F)) {
        __m512 minimum[T];
        for (int t = 0; t < T; ++t) minimum[t] = minimum_of<F>(units[t], shared[t]);
        for (int c = 0; c < C; ++c) {
            const __m512 of_row = x[c].sum();
            for (int t = 0; t < T; ++t) totals[t][c] = add_minimum<F>(minimum[t], of_row, totals[t][c]);
        }
    }
    Sums<T, C> sums;
    dot<F, T, C>(units, x, sums);
    __m512 scale[T];
    for (int t = 0; t < T; ++t) scale[t] = scale_of<F>(units[t], shared[t]);
    for (int c = 0; c < C; ++c) {
        const __m512 of_row = x[c].scale();
        for (int t = 0; t < T; ++t) {
            const __m512 both = _mm512_mul_ps(scale[t], of_row);
            totals[t][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][c]), both, totals[t][c]);
        }
    }
}

/// One tile is fetched ahead as it is read; `ahead` is what a pair fetches.
template <Form F, int T, int C>
BASTION_AVX512 void multiply(const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                             const ProductsTo& out, const Ahead& ahead) {
    __m512 totals[T][C];
    for (auto& of_tile : totals) {
        for (__m512& total : of_tile) total = _mm512_setzero_ps();
    }
    Rows x{activations, stride};
    const std::uint8_t* next = ahead.next;
    constexpr std::size_t kUnits = units_per_block(F) * unit_bytes(F);
    const std::size_t tile_bytes = units / units_per_block(F) * block_bytes(F);
    for (std::int64_t done = 0; done < units; done += units_per_block(F), data += block_bytes(F)) {
        Units<T> shared;
        for (int t = 0; t < T; ++t) {
            shared[t] = data + t * tile_bytes + kUnits;
            if constexpr (T == 1 && two_level(F)) prefetch(shared[t] + kPrefetchAhead, shared_bytes(F));
        }
#pragma GCC unroll 1
        for (std::size_t at = 0; at < kUnits; at += unit_bytes(F)) {
            Units<T> unit;
            for (int t = 0; t < T; ++t) {
                unit[t] = data + t * tile_bytes + at;
                if constexpr (T == 1) prefetch(unit[t] + kPrefetchAhead, unit_bytes(F));
            }
            if constexpr (T > 1) {
                prefetch(next, ahead.bytes_a_unit);
                next += ahead.bytes_a_unit;
            }
            add_unit<F, T, C>(unit, shared, x, totals);
            x.next();
        }
    }
    for (int t = 0; t < T; ++t) {
        for (int c = 0; c < C; ++c) _mm512_storeu_ps(out.first + c * out.stride + t * kTileRows, totals[t][c]);
    }
}

using Kernel = void (*)(const std::uint8_t*, std::int64_t, const char*, std::size_t, const ProductsTo&, const Ahead&);

template <Form F>
constexpr Kernel kOfTile[kMaxColumnsAvx512] = {multiply<F, 1, 1>, multiply<F, 1, 2>, multiply<F, 1, 3>,
                                               multiply<F, 1, 4>, multiply<F, 1, 5>, multiply<F, 1, 6>,
                                               multiply<F, 1, 7>, multiply<F, 1, 8>};
template <Form F>
constexpr Kernel kOfPair[kMaxColumnsOfPair] = {multiply<F, 2, 1>, multiply<F, 2, 2>, multiply<F, 2, 3>,
                                               multiply<F, 2, 4>, multiply<F, 2, 5>, multiply<F, 2, 6>};

constexpr const Kernel* kOfTiles[kQuantisedForms] = {  // in the order of Form
    kOfTile<Form::q4_0>, kOfTile<Form::q4_1>, kOfTile<Form::q5_0>, kOfTile<Form::q5_1>,
    kOfTile<Form::q8_0>, kOfTile<Form::q4_K>, kOfTile<Form::q5_K>, kOfTile<Form::q6_K>};
constexpr const Kernel* kOfPairs[kQuantisedForms] = {
    kOfPair<Form::q4_0>, kOfPair<Form::q4_1>, kOfPair<Form::q5_0>, kOfPair<Form::q5_1>,
    kOfPair<Form::q8_0>, kOfPair<Form::q4_K>, kOfPair<Form::q5_K>, nullptr};

}  // namespace

void tile_avx512(Form form, const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out) {
    kOfTiles[static_cast<int>(form)][columns - 1](data, units, activations, stride, out, {});
}

bool has_pairs_avx512(Form form) { return !is_half(form) && kOfPairs[static_cast<int>(form)]; }

void pair_avx512(Form form, const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out, const Ahead& ahead) {
    kOfPairs[static_cast<int>(form)][columns - 1](data, units, activations, stride, out, ahead);
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_avx512(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&) {
    std::abort();
}
bool has_pairs_avx512(Form) { return false; }
void pair_avx512(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&,
                 const Ahead&) {
    std::abort();
}

}  // namespace bastion::kernels

#endif
