#include "kernels/elementwise_avx2.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/avx2.h"

namespace bastion::kernels {

#if defined(__x86_64__)

namespace {

/// silu(g) = g / (1 + e^-g), written with e^-|g| so that nothing overflows.
BASTION_AVX2_INLINE __m256 silu8(__m256 g) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 e = exp8(_mm256_or_ps(g, _mm256_set1_ps(-0.0f)));  // sign bit set: -|g|
    const __m256 numerator = _mm256_blendv_ps(one, e, g);           // e^-|g| where g is negative
    return _mm256_mul_ps(g, _mm256_div_ps(numerator, _mm256_add_ps(one, e)));
}

}  // namespace

BASTION_AVX2 void gated_avx2(const float* gate, const float* up, std::int64_t n, float* out) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_mul_ps(silu8(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    }
    if (i == n) return;
    alignas(32) float rest_gate[8] = {}, rest_up[8] = {};
    for (std::int64_t j = i; j < n; ++j) {
        rest_gate[j - i] = gate[j];
        rest_up[j - i] = up[j];
    }
    _mm256_store_ps(rest_gate, _mm256_mul_ps(silu8(_mm256_load_ps(rest_gate)), _mm256_load_ps(rest_up)));
    for (std::int64_t j = i; j < n; ++j) out[j] = rest_gate[j - i];
}

BASTION_AVX2 float largest_avx2(const float* x, std::int64_t n) {
    // With a NaN the instruction gives its second operand: the maximum so far stays.
    __m256 best[4];
    for (auto& b : best) b = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; ++j) best[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + j * 8), best[j]);
    }
    float result = largest(_mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3])));
    for (; i < n; ++i) {
        if (x[i] > result) result = x[i];
    }
    return result;
}

BASTION_AVX2 double sum_of_exp_avx2(const float* x, std::int64_t n, float maximum) {
    const __m256 shift = _mm256_set1_ps(maximum);
    double sum = 0.0;
    std::int64_t i = 0;
    while (i + 8 <= n) {
        // Short runs in f32, so that a vocabulary of hundreds of thousands loses nothing.
        __m256 part = _mm256_setzero_ps();
        for (int j = 0; j < 64 && i + 8 <= n; ++j, i += 8) {
            part = _mm256_add_ps(part, exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift)));
        }
        sum += static_cast<double>(total(part));
    }
    for (; i < n; ++i) sum += std::exp(x[i] - maximum);
    return sum;
}

BASTION_AVX2 std::int64_t find_at_least_avx2(const float* x, std::int64_t from, std::int64_t n, float bound) {
    const __m256 wanted = _mm256_set1_ps(bound);
    std::int64_t i = from;
    for (; i + 8 <= n; i += 8) {
        const int hits = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_GE_OQ));
        if (hits != 0) return i + __builtin_ctz(static_cast<unsigned>(hits));
    }
    for (; i < n; ++i) {
        if (x[i] >= bound) return i;
    }
    return n;
}

#else  // other processors: never called, best_isa() says no

void gated_avx2(const float*, const float*, std::int64_t, float*) { std::abort(); }
float largest_avx2(const float*, std::int64_t) { std::abort(); }
double sum_of_exp_avx2(const float*, std::int64_t, float) { std::abort(); }
std::int64_t find_at_least_avx2(const float*, std::int64_t, std::int64_t, float) { std::abort(); }

#endif

}  // namespace bastion::kernels
