// The pieces that the graphs of targets and drafters are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/packed_fused.h"
#include "kernels/rows.h"
#include "model/config.h"
#include "model/device.h"
#include "model/kv.h"
#include "model/weights.h"

namespace bastion {

/// A built and allocated graph with the arena its tensors live in.
struct Graph {
    ggml_context_ptr ctx;
    ggml_gallocr_ptr allocator;
    ggml_cgraph* graph = nullptr;

    /// An arena for about `nodes` nodes.
    static Result<Graph> create(std::size_t nodes);

    /// Gives every tensor memory, after checking that the device implements every operation.
    Status allocate(const Device& device);
    std::size_t bytes() const { return allocator ? ggml_gallocr_get_buffer_size(allocator.get(), 0) : 0; }
};

/// A graph input that the host fills before every computation.
inline ggml_tensor* input(ggml_context* ctx, ggml_type type, std::int64_t ne0, std::int64_t ne1 = 1) {
    ggml_tensor* t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    ggml_set_input(t);
    return t;
}

template <class T>
void upload(ggml_tensor* t, const std::vector<T>& data) {
    ggml_backend_tensor_set(t, data.data(), 0, data.size() * sizeof(T));
}

/// The same for an input that no operation of the graph may need: such a tensor has no memory.
template <class T>
void upload_if_used(ggml_tensor* t, const std::vector<T>& data) {
    if (t->buffer) upload(t, data);
}

/// A range of a pass's rows that attend within one cache slot.
struct RowRange {
    int slot = 0;
    int first = 0;  ///< row of the pass
    int count = 0;
    int cells = 0;  ///< cells of the slot that any of the rows may see (used by library kernels)
};

/// The rows' positions as the device's rope wants them: i32 [n], or on the exact path cos and sin, f32 [head_dim, n],
/// which are worked out once a pass.
class Rope {
 public:
    /// `weights` may hold frequency factors.
    Rope(const ModelConfig& config, const Weights& weights, const Device& device)
        : config_(config), weights_(weights), device_(device) {}

    ggml_tensor* input(ggml_context* ctx, std::int64_t rows) const;
    void upload(ggml_tensor* input, const std::vector<std::int32_t>& positions) const;

    /// x [head_dim, heads, n] rotated.
    ggml_tensor* rotate(ggml_context* ctx, ggml_tensor* x, ggml_tensor* input) const;
    kernels::RopePairs pairs() const;

 private:
    const ModelConfig& config_;
    const Weights& weights_;
    const Device& device_;
};

/// What every layer of one pass shares.
struct PassInputs {
    ggml_tensor* rope = nullptr;                   ///< angles of the rows: `Rope`
    ggml_tensor* cells = nullptr;                  ///< i64 [n], cache row each row's K and V are written to
    const kernels::AttentionPlan* plan = nullptr;  ///< exact kernels
    std::span<const RowRange> ranges;              ///< library kernels, with one mask each
    std::span<ggml_tensor* const> masks;           ///< f16 [cells, count]
};

/// A row input of several matrices: where they want it quantised, that happens once for all of them.
class Activations {
 public:
    Activations(ggml_context* ctx, const Device& device, ggml_tensor* x) : ctx_(ctx), device_(device), x_(x) {}
    /// `before` [k, n] through an RMS norm and times `weight` [k].
    Activations(ggml_context* ctx, const Device& device, ggml_tensor* before, ggml_tensor* weight, float eps)
        : ctx_(ctx), device_(device), before_(before), norm_weight_(weight), eps_(eps) {}
    /// The rows themselves, as f32.
    ggml_tensor* values();
    /// w [k, m], x [k, n] -> f32 [m, n]
    ggml_tensor* times(const Matrix& w);
    /// The same plus `residual` [m, n].
    ggml_tensor* times(const Matrix& w, ggml_tensor* residual);
    /// The index of the largest of w times x, the smallest on ties -> i32 [n].
    ggml_tensor* argmax_of(const Matrix& w);
    /// All matrices of a group, one behind the other; REQUIRES a group that is not empty.
    ggml_tensor* times(const kernels::PackedGroup& group);
    /// silu(gate times x) * (up times x) for a group of two, as `next` takes it.
    Activations gated_times(const kernels::PackedGroup& gate_up, const Matrix& next);
    /// w [k, m, experts], x [k, n] or [k, used, n], chosen i32 [used, n] -> f32 [m, used, n]
    ggml_tensor* times_experts(const Matrix& w, ggml_tensor* chosen);

 private:
    ggml_tensor* rows() { return ggml_reshape_2d(ctx_, values(), values()->ne[0], ggml_nrows(values())); }
    ggml_tensor* quantized_for(ggml_tensor* w);
    /// The rows as `w` and its like take them.
    ggml_tensor* packed_rows(const kernels::PackedMatrix& w);

    ggml_context* ctx_;
    const Device& device_;
    ggml_tensor* x_ = nullptr;  ///< null: not worked out yet
    ggml_tensor *before_ = nullptr, *norm_weight_ = nullptr;
    float eps_ = 0;
    ggml_type quantized_type_ = GGML_TYPE_COUNT;
    ggml_tensor* quantized_ = nullptr;
    ggml_tensor* quantized_for_packed_ = nullptr;
};

/// Index of the largest of each row of x [m, n], the smallest on ties -> i32 [n].
ggml_tensor* argmax(ggml_context* ctx, const Device& device, ggml_tensor* x);

/// Rows of an embedding [width, vocabulary] by token, i32 [n] -> f32 [width, n].
ggml_tensor* look_up(ggml_context* ctx, const Matrix& embedding, ggml_tensor* tokens);

/// Builds the layers of one model into one graph.
class LayerBuilder {
 public:
    LayerBuilder(Graph& graph, const ModelConfig& config, const Weights& weights, const Device& device, KvPool& kv)
        : ctx_(graph.ctx.get()), graph_(graph.graph), config_(config), weights_(weights), device_(device), kv_(kv) {}

    /// A whole transformer layer: x f32 [hidden, n] -> f32 [hidden, n].
    ggml_tensor* layer(int index, ggml_tensor* x, const PassInputs& inputs) const;

    /// Writes K and V of the rows into the cache. `in` are the rows before the projections.
    struct Written {
        ggml_tensor *keys, *values;  ///< the cache tensors, after the write
    };
    Written write_kv(int index, Activations& in, const PassInputs& inputs) const;

 private:
    Written write_kv(int index, ggml_tensor* k, ggml_tensor* v, const PassInputs& inputs) const;
    /// x [sum of widths, n] cut into [width, n] each.
    std::vector<ggml_tensor*> cut(ggml_tensor* x, std::initializer_list<int> widths) const;
    /// Plus `residual`, like the next.
    ggml_tensor* attention(int index, Activations& in, ggml_tensor* residual, const PassInputs& inputs) const;
    ggml_tensor* attend_library(ggml_tensor* q, const Written& kv, const PassInputs& inputs) const;
    ggml_tensor* feed_forward(int index, Activations& in, ggml_tensor* residual) const;
    ggml_tensor* experts(int index, Activations& in) const;
    Activations normed(ggml_tensor* x, int index, const char* weight) const;
    ggml_tensor* gated(ggml_tensor* gate, ggml_tensor* up) const;
    /// x [head_dim * heads, n] -> [head_dim, heads, n], each head through an RMS norm if there is a weight.
    ggml_tensor* heads_norm(ggml_tensor* x, int heads, ggml_tensor* norm_weight) const;

    ggml_context* ctx_;
    ggml_cgraph* graph_;
    const ModelConfig& config_;
    const Weights& weights_;
    const Device& device_;
    KvPool& kv_;
};

/// The attention plan of a model, without rows.
kernels::AttentionPlan empty_plan(const ModelConfig& config, const Device& device);

/// Fills a mask [cells, count] from the plan's rows: 0 where row `first + i` sees a cell of the slot, -inf elsewhere.
std::vector<ggml_fp16_t> mask_from_plan(const kernels::AttentionPlan& plan, const RowRange& range, int slot_cells);

/// Cells rounded up to what attention kernels like, not above `limit`.
int padded_cells(int cells, int limit);

}  // namespace bastion
