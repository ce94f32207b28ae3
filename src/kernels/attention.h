// Tree attention on the CPU as a ggml custom operation, row-independent (docs/exactness.md).
#pragma once

#include <cstdint>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

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

}  // namespace bastion::kernels
