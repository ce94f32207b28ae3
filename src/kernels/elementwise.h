// What happens to rows between the products, as ggml custom operations on our own threads: a pass of few rows spends a
// good part of its time there when one thread does it all (docs/kernels.md). Row-independent (docs/exactness.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// Which values of a head are rotated together.
enum class RopePairs {
    neighbours,  ///< 2i and 2i + 1 (GGML_ROPE_TYPE_NORMAL)
    halves       ///< i and i + head_dim / 2 (GGML_ROPE_TYPE_NEOX)
};

/// Rotary angles of a model.
struct RopeAngles {
    int head_dim = 0;
    float base = 0, scale = 1;            ///< angle of pair i at position p: scale * p * base^(-2i/head_dim) / factor
    const float* pair_factors = nullptr;  ///< [head_dim / 2], null: all 1
};

/// For every position cos of all pairs, then sin of all pairs: [positions.size()][head_dim]. Computed once a pass, it
/// serves the queries and keys of all layers.
std::vector<float> rope_table(const RopeAngles& angles, std::span<const std::int32_t> positions);

/// x [head_dim, heads, n] f32, table [head_dim, n] f32 of the rows' positions -> x rotated.
ggml_tensor* rotate(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* table, RopePairs pairs);

/// What the rows of a pass have in one layer: q [head_dim, heads, n], k [head_dim, kv_heads, n], v [head_dim *
/// kv_heads, n], all f32.
struct LayerRows {
    ggml_tensor *q, *k, *v;
};

/// The queries and keys of a layer rotated, and keys and values written to the cache -> q rotated; k rotated and v go
/// to the rows `cells`, i64 [n], of `keys` and `values` [head_dim * kv_heads, all cells]. What reads these has to come
/// after the result. The bits are those of `rotate` and ggml_set_rows.
ggml_tensor* rotate_and_store(ggml_context* ctx, ThreadPool& pool, const LayerRows& rows, ggml_tensor* table,
                              ggml_tensor* keys, ggml_tensor* values, ggml_tensor* cells, RopePairs pairs);

/// silu(gate) * up, both f32 of one shape without gaps.
ggml_tensor* gated(ggml_context* ctx, ThreadPool& pool, ggml_tensor* gate, ggml_tensor* up);

/// Index of the largest of m values, the smallest on ties; of nothing but NaN the last one.
std::int64_t index_of_largest(const float* row, std::int64_t m, bool vectorised);

/// Index of the largest of each row of x [m, n] f32 (the smallest index on ties) -> i32 [n].
ggml_tensor* argmax(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x);

/// Log-softmax of each row of x [m, n] f32, then its `k` largest, sorted (the smaller index first on ties)
/// -> f32 [2k, n]: k log-probabilities, then k indices stored as the bits of i32.
ggml_tensor* top_logprobs(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, int k);

}  // namespace bastion::kernels
