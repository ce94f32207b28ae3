// Row-independent kernels for the CPU as ggml custom operations: the portable, exact path (docs/exactness.md).
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

/// Which cells each row of a pass attends to, in position order. Cells are rows of a layer's cache tensor.
struct AttentionRow {
    std::int64_t first_cell = 0;   ///< first cell of the contiguous run before the row's own cells
    std::int32_t run = 0;          ///< number of cells in that run
    std::int32_t extra_begin = 0;  ///< then the cells AttentionPlan::extra[extra_begin, extra_end), one a position
    std::int32_t extra_end = 0;
};

/// The shape of a model's attention, and what the rows of the pass at hand attend to. Filled before every computation;
/// its address is part of the graph.
struct AttentionPlan {
    ThreadPool* pool = nullptr;
    bool vectorised = false;  ///< kernels/attention_avx2.h where it serves the cache type
    int head_dim = 0, heads = 0, kv_heads = 0;
    float scale = 1.0f;               ///< of the dot products, before softmax
    std::vector<AttentionRow> rows;   ///< [n]
    std::vector<std::int64_t> extra;  ///< ancestors (or block members) of the rows, root first
};

/// Softmax attention with grouped heads. q [head_dim, heads, n] f32; keys, values [head_dim * kv_heads, cells] of any
/// type with a dot product; -> f32 [head_dim * heads, n]. `plan` must outlive the graph.
/// A row visits its cells in plan order with one running maximum and sum (online softmax).
ggml_tensor* attend(ggml_context* ctx, ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values,
                    const AttentionPlan* plan);

/// Index of the largest of each row of x [m, n] f32 (the smallest index on ties) -> i32 [n].
ggml_tensor* argmax(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x);

/// Log-softmax of each row of x [m, n] f32, then its `k` largest, sorted (the smaller index first on ties)
/// -> f32 [2k, n]: k log-probabilities, then k indices stored as the bits of i32.
ggml_tensor* top_logprobs(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, int k);

}  // namespace bastion::kernels
