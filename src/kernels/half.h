// Products with F16 and BF16 matrices as they lie in the file: a weight becomes f32 once for up to four activation rows
// (docs/kernels.md).
#pragma once

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// Whether the kernels take matrices of this type: F16, BF16.
bool half_kernels_support(ggml_type type);

/// w [k, m] times x [k, n] f32 -> f32 [m, n], as a graph operation. Weights and activations enter unrounded. Every output
/// is the sum of eight partial sums, partial sum i a chain of fused multiply-adds over the columns i, i + 8, ..., in
/// order. REQUIRES half_kernels_support(w->type), pool.isa() of avx2 or more, and rows of w and x without gaps.
ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* x);

}  // namespace bastion::kernels
