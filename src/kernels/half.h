// Products with F16 and BF16 matrices as they lie in the file: a weight becomes f32 once for up to four activation rows
// (docs/kernels.md).
#pragma once

#include <cstdint>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// Whether the kernels take matrices of this type: F16, BF16.
bool half_kernels_support(ggml_type type);

/// Products of rows [begin, end) of w [k, m] with all rows of x [k, n] f32: that of row r with row c of x goes to
/// out[c * stride + r - begin]. Weights and activations
/// enter unrounded. Every output is the sum of eight partial sums, partial sum i a chain of fused multiply-adds over
/// the columns i, i + 8, ..., in order. REQUIRES half_kernels_support(w->type), `isa` of avx2 or more, and elements of
/// a row without gaps.
void multiply_half_rows(Isa isa, const ggml_tensor* w, std::int64_t begin, std::int64_t end, const ggml_tensor* x,
                        float* out, std::int64_t stride);

// As graph operations. REQUIRE pool.isa() of avx2 or more.

/// All matrices of a group times x [k, n] f32, one behind the other -> f32 [sum of their rows, n]. At most 8.
ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, const std::vector<ggml_tensor*>& group, ggml_tensor* x);

/// silu(gate times x) * (up times x), both of m rows -> f32 [m, n].
ggml_tensor* gated_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* x);

}  // namespace bastion::kernels
