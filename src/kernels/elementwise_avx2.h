// The inner loops of kernels/elementwise.h for processors with AVX2 (Isa::avx2). A value depends on its own
// inputs alone; sums are eight partial sums, one a lane, added in a fixed order.
#pragma once

#include <cstdint>

namespace bastion::kernels {

/// out[i] = silu(gate[i]) * up[i]
void gated_avx2(const float* gate, const float* up, std::int64_t n, float* out);

/// The largest of n values, NaN left out; -infinity if there is none.
float largest_avx2(const float* x, std::int64_t n);

/// Sum of e^(x[i] - maximum), where maximum is the largest x.
double sum_of_exp_avx2(const float* x, std::int64_t n, float maximum);

/// The first index at or after `from` with x[i] >= bound, or n.
std::int64_t find_at_least_avx2(const float* x, std::int64_t from, std::int64_t n, float bound);

}  // namespace bastion::kernels
