// Row-independent products for the CPU as ggml custom operations: the portable, exact path (docs/exactness.md).
// Every output row is computed by one fixed sequence of operations that depends on that row's inputs alone, never on
// the other rows of the pass, their number, or the number of threads. The operations run on a pool of their own; the
// ggml graph around them runs on one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// x [k, n] f32, quantised row by row to the type that `weights` are multiplied with. Returns i8 [row bytes, n]; one
/// result serves every matrix of that type and input.
ggml_tensor* quantize_rows(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* weights);

/// w [k, m] times rows from `quantize_rows` -> f32 [m, n].
ggml_tensor* multiply(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized);

/// w [k, m, experts] times rows, each by its own experts: chosen i32 [used, n], quantised rows for n rows (every
/// expert of a row reads the same) or for used * n rows (each its own) -> f32 [m, used, n].
ggml_tensor* multiply_experts(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized,
                              ggml_tensor* chosen);

}  // namespace bastion::kernels
