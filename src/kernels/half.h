// Products with F16 and BF16 matrices as they lie in the file: a weight becomes f32 once for up to four activation rows
// (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// Whether this processor has the kernels (AVX2, FMA and F16C) and they take matrices of this type: F16, BF16.
bool half_kernels_support(ggml_type type);

/// Products of rows [begin, end) of w [k, m] with `count` f32 rows of k values, `x_stride` values apart:
/// out[c * out_stride + row]. Weights and activations enter unrounded. Every output is the sum of eight partial sums,
/// partial sum i a chain of fused multiply-adds over the columns i, i + 8, ..., in order.
/// REQUIRES half_kernels_support(w->type) and rows of w without gaps.
void multiply_half_rows(const ggml_tensor* w, std::int64_t begin, std::int64_t end, const float* x,
                        std::int64_t x_stride, std::int64_t count, float* out, std::int64_t out_stride);

/// As a graph operation: w [k, m] times x [k, n] f32 -> f32 [m, n].
ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* x);

}  // namespace bastion::kernels
