// Products with F16 and BF16 matrices as they lie in the file: a weight becomes f32 once for up to four activation rows
// (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// Whether the kernels take matrices of this type: F16, BF16.
bool half_kernels_support(ggml_type type);

/// Products of rows [begin, end) of w [k, m] with all rows of x [k, n] f32 -> dst f32 [m, n]. Weights and activations
/// enter unrounded. Every output is the sum of eight partial sums, partial sum i a chain of fused multiply-adds over
/// the columns i, i + 8, ..., in order. REQUIRES half_kernels_support(w->type), `isa` of avx2 or more, and elements of
/// a row without gaps.
void multiply_half_rows(Isa isa, const ggml_tensor* w, std::int64_t begin, std::int64_t end, const ggml_tensor* x,
                        ggml_tensor* dst);

/// The same as a graph operation: w [k, m] times x [k, n] f32 -> f32 [m, n]. REQUIRES pool.isa() of avx2 or more.
ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* x);

}  // namespace bastion::kernels
