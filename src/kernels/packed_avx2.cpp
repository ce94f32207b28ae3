#include "kernels/packed_avx2.h"

#include <cfloat>
#include <cstdlib>
#include <span>

#if defined(__x86_64__)
#include "kernels/packed_dot_avx2.h"

namespace bastion::kernels {
namespace {

// Tiles follow each other in memory. The hardware's own prefetching stops at page ends; past the last tile the
// instruction has no effect.
constexpr std::size_t kPrefetchAhead = 4096;

BASTION_AVX2_INLINE __m256 halves(const std::uint8_t* p) { return load8<Half::f16>(p); }

/// Eight unsigned bytes as f32.
BASTION_AVX2_INLINE __m256 small_numbers(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

/// A unit of C quantised rows.
template <int C>
struct Rows {
    const ActivationUnit* units[C];

    BASTION_AVX2_INLINE __m256 scale(int c) const { return _mm256_set1_ps(units[c]->scale); }
    BASTION_AVX2_INLINE __m256 sum(int c) const { return _mm256_set1_ps(units[c]->sum); }
    BASTION_AVX2_INLINE __m256i sums_of_16(int c) const { return broadcast4(units[c]->sums_of_16); }
    BASTION_AVX2_INLINE void next() {
        for (const ActivationUnit*& unit : units) ++unit;
    }
};

/// Pairs (a, b) of signed bytes as 16-bit numbers, of rows 0 to 7 and 8 to 15.
BASTION_AVX2_INLINE __m256i low_pairs(__m128i a, __m128i b) { return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)); }
BASTION_AVX2_INLINE __m256i high_pairs(__m128i a, __m128i b) { return _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)); }

/// Q6_K: each 16 columns have a signed 8-bit scale, which multiplies in integers. The result is below 2^24 in
/// magnitude (32 columns x 32 x 120 x 128), so f32 holds it.
template <int C>
BASTION_AVX2_INLINE void dot_scaled(const std::uint8_t* unit, const Rows<C>& x, __m256i (&sums)[C][2]) {
    const auto* levels = reinterpret_cast<const __m128i*>(unit + value_bytes(Form::q6_K));
    const __m128i first = _mm_loadu_si128(levels), second = _mm_loadu_si128(levels + 1);
    const __m256i factors[2][2] = {{low_pairs(first, first), high_pairs(first, first)},
                                   {low_pairs(second, second), high_pairs(second, second)}};
    dot_all_planes<2, C>(unit, x.units, factors, sums);
    const __m256i both[2] = {low_pairs(first, second), high_pairs(first, second)};
    for (int c = 0; c < C; ++c) {
        for (int half = 0; half < 2; ++half) {
            const __m256i excess = _mm256_slli_epi32(_mm256_madd_epi16(both[half], x.sums_of_16(c)), 5);
            static_assert(value_offset(Form::q6_K) == 1 << 5);
            sums[c][half] = _mm256_sub_epi32(sums[c][half], excess);
        }
    }
}

/// Integer dot products of one unit, those of signed values where the form has an offset. Every one is below 2^24 in
/// magnitude.
template <Form F, int C>
BASTION_AVX2_INLINE void dot(const std::uint8_t* unit, const Rows<C>& x, __m256i (&sums)[C][2]) {
    if constexpr (F == Form::q6_K) {
        dot_scaled<C>(unit, x, sums);
    } else if constexpr (F == Form::q8_0) {
        dot_bytes<C>(unit, x.units, sums);
    } else if constexpr (high_bits(F) == 1) {
        const __m256i ones = _mm256_set1_epi16(1);
        const __m256i factors[1][2] = {{ones, ones}};
        dot_all_planes<1, C>(unit, x.units, factors, sums);
    } else {
        dot_nibbles<C>(unit, x.units, sums);
    }
    if constexpr (value_offset(F) != 0 && F != Form::q6_K) {
        const __m256i offset = _mm256_set1_epi16(value_offset(F));
        for (int c = 0; c < C; ++c) {
            const __m256i excess = _mm256_madd_epi16(x.sums_of_16(c), offset);
            for (int half = 0; half < 2; ++half) sums[c][half] = _mm256_sub_epi32(sums[c][half], excess);
        }
    }
}

/// What multiplies the integers of 8 rows. Exact: 11 bits times at most 6.
template <Form F>
BASTION_AVX2_INLINE __m256 scale_of(const std::uint8_t* unit, const std::uint8_t* shared, int half) {
    const std::uint8_t* own = unit + value_bytes(F);
    if constexpr (F == Form::q6_K) return halves(shared + half * 16);  // the rest is in the integers
    if constexpr (!two_level(F)) return halves(own + half * 16);
    return _mm256_mul_ps(halves(shared + half * 16), small_numbers(own + half * 8));
}

/// What multiplies the sum of the activations; the two-level forms subtract it. Exact.
template <Form F>
BASTION_AVX2_INLINE __m256 minimum_of(const std::uint8_t* unit, const std::uint8_t* shared, int half) {
    const std::uint8_t* own = unit + value_bytes(F);
    if constexpr (!two_level(F)) return halves(own + kHalfs + half * 16);
    return _mm256_mul_ps(halves(shared + kHalfs + half * 16), small_numbers(own + kTileRows + half * 8));
}

template <Form F, int C>
BASTION_AVX2_INLINE void add_unit(const std::uint8_t* unit, const std::uint8_t* shared, const Rows<C>& x,
                                  __m256 (&totals)[C][2]) {
    __m256i sums[C][2];
    dot<F, C>(unit, x, sums);
    for (int half = 0; half < 2; ++half) {
        const __m256 scale = scale_of<F>(unit, shared, half);
        __m256 minimum = _mm256_setzero_ps();
        if constexpr (has_minima(F)) minimum = minimum_of<F>(unit, shared, half);
        for (int c = 0; c < C; ++c) {
            __m256 total = totals[c][half];
            if constexpr (has_minima(F)) {
                total = two_level(F) ? _mm256_fnmadd_ps(minimum, x.sum(c), total)
                                     : _mm256_fmadd_ps(minimum, x.sum(c), total);
            }
            const __m256 both = _mm256_mul_ps(scale, x.scale(c));
            totals[c][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[c][half]), both, total);
        }
    }
}

template <Form F, int C>
BASTION_AVX2 void tile(const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
                       const ProductsTo& out) {
    __m256 totals[C][2];
    Rows<C> x;
    for (int c = 0; c < C; ++c) {
        totals[c][0] = totals[c][1] = _mm256_setzero_ps();
        x.units[c] = reinterpret_cast<const ActivationUnit*>(activations + c * stride);
    }
    constexpr std::size_t kUnits = units_per_block(F) * unit_bytes(F);
    for (std::int64_t done = 0; done < units; done += units_per_block(F), data += block_bytes(F)) {
        if constexpr (two_level(F)) prefetch(data + kPrefetchAhead + kUnits, shared_bytes(F));
        for (std::size_t at = 0; at < kUnits; at += unit_bytes(F)) {
            prefetch(data + kPrefetchAhead + at, unit_bytes(F));
            add_unit<F, C>(data + at, data + kUnits, x, totals);
            x.next();
        }
    }
    for (int c = 0; c < C; ++c) {
        float* row = out.first + c * out.stride;
        _mm256_storeu_ps(row, totals[c][0]);
        _mm256_storeu_ps(row + 8, totals[c][1]);
    }
}

template <Form F>
constexpr TileKernel kByColumns[kMaxColumns] = {tile<F, 1>, tile<F, 2>, tile<F, 3>, tile<F, 4>};

constexpr const TileKernel* kKernels[kQuantisedForms] = {  // in the order of Form
    kByColumns<Form::q4_0>, kByColumns<Form::q4_1>, kByColumns<Form::q5_0>, kByColumns<Form::q5_1>,
    kByColumns<Form::q8_0>, kByColumns<Form::q4_K>, kByColumns<Form::q5_K>, kByColumns<Form::q6_K>};

/// Sums of the 8 numbers of `a`, of `b` and of the 4 of `c`.
BASTION_AVX2_INLINE __m128i add_across(__m256i a, __m256i b, __m128i c) {
    const __m256i both = _mm256_hadd_epi32(a, b);
    const __m128i parts = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    return _mm_hadd_epi32(parts, _mm_hadd_epi32(c, c));
}

/// 8a - (a + 120)b for pairs of activations as 16-bit numbers, a below and b above; two pairs are added.
BASTION_AVX2_INLINE __m128i cross_terms(__m256i pairs) {
    const __m128i a = _mm256_castsi256_si128(pairs), b = _mm256_extracti128_si256(pairs, 1);
    const __m128i raised = _mm_add_epi16(a, _mm_set1_epi16(kLargestActivation));
    return _mm_sub_epi32(_mm_madd_epi16(a, _mm_set1_epi16(8)), _mm_madd_epi16(raised, b));
}

}  // namespace

void tile_avx2(Form form, const std::uint8_t* data, std::int64_t units, const char* activations, std::size_t stride,
               int columns, const ProductsTo& out) {
    kKernels[static_cast<int>(form)][columns - 1](data, units, activations, stride, out);
}

BASTION_AVX2 void quantize_activations_avx2(const float* x, std::int64_t k, char* out) {
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    // _mm256_packs interleaves the 128-bit lanes; this order undoes it.
    const __m256i lane_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i ones = _mm256_set1_epi16(1);
    constexpr float kLargest = kLargestActivation;
    // Below it kLargest / magnitude is no finite number, and the block counts as zero.
    constexpr float kSmallest = 32.0f * FLT_MIN;
    for (auto& unit : std::span(reinterpret_cast<ActivationUnit*>(out), k / kUnitColumns)) {
        __m256 v[4];
        __m256 magnitudes = _mm256_setzero_ps();
        for (int i = 0; i < 4; ++i) {
            v[i] = _mm256_loadu_ps(x + i * 8);
            magnitudes = _mm256_max_ps(magnitudes, _mm256_andnot_ps(sign_bit, v[i]));
        }
        const float magnitude = largest(magnitudes);
        const __m256 inverse = _mm256_set1_ps(magnitude > kSmallest ? kLargest / magnitude : 0.0f);
        __m256i q[4];
        for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        // Columns 8g to 8g + 3 of two groups below, 8g + 4 to 8g + 7 above.
        __m256i pairs[2] = {_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])};
        // What is not a number has become the least one, which sums have no room for.
        for (__m256i& numbers : pairs) numbers = _mm256_max_epi16(numbers, _mm256_set1_epi16(-kLargestActivation));
        const __m256i bytes = _mm256_packs_epi16(pairs[0], pairs[1]);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(unit.values), _mm256_permutevar8x32_epi32(bytes, lane_order));
        // The fourth group has no cross terms: the upper two of four sums of two are its.
        static_assert(kSummedGroups == 3);
        const __m128i paired = _mm_add_epi32(cross_terms(pairs[0]), _mm_move_epi64(cross_terms(pairs[1])));
        const __m128i added = add_across(_mm256_madd_epi16(pairs[0], ones), _mm256_madd_epi16(pairs[1], ones), paired);
        const int first = _mm_cvtsi128_si32(added), last = _mm_extract_epi32(added, 1);
        unit.sums_of_16[0] = static_cast<std::int16_t>(first);
        unit.sums_of_16[1] = static_cast<std::int16_t>(last);
        unit.cross_terms = _mm_extract_epi32(added, 2);
        unit.scale = magnitude / kLargest;
        unit.sum = unit.scale * static_cast<float>(first + last);
        x += kUnitColumns;
    }
}

}  // namespace bastion::kernels

#else  // other processors: never called, best_isa() says no

namespace bastion::kernels {

void tile_avx2(Form, const std::uint8_t*, std::int64_t, const char*, std::size_t, int, const ProductsTo&) {
    std::abort();
}
void quantize_activations_avx2(const float*, std::int64_t, char*) { std::abort(); }

}  // namespace bastion::kernels

#endif
