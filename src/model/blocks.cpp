#include "model/blocks.h"

#include <algorithm>
#include <cmath>

namespace bastion {

Result<Graph> Graph::create(std::size_t nodes) {
    Graph g;
    g.ctx.reset(
        ggml_init({ggml_tensor_overhead() * nodes * 2 + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
    if (!g.ctx) return runtime_error("out of memory while building a graph");
    g.graph = ggml_new_graph_custom(g.ctx.get(), nodes, false);
    return g;
}

Status Graph::allocate(const Device& device) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor* node = ggml_graph_node(graph, i);
        if (!ggml_backend_supports_op(device.backend(), node)) {
            return runtime_error("device " + device.name() + " does not implement " + ggml_op_desc(node) + " for " +
                                 ggml_type_name(node->src[0] ? node->src[0]->type : node->type));
        }
    }
    allocator.reset(ggml_gallocr_new(device.buffer_type()));
    if (!ggml_gallocr_alloc_graph(allocator.get(), graph)) {
        return runtime_error("not enough memory on " + device.name() + " for a pass");
    }
    return {};
}

ggml_tensor* Activations::quantized_for(ggml_tensor* w) {
    if (!quantized_ || quantized_type_ != w->type) {
        quantized_ = kernels::quantize_rows(ctx_, device_.pool(), rows(), w);
        quantized_type_ = w->type;
    }
    return quantized_;
}

ggml_tensor* Activations::values() {
    if (!x_) x_ = ggml_mul(ctx_, ggml_rms_norm(ctx_, before_, eps_), norm_weight_);
    return x_;
}

ggml_tensor* Activations::packed_rows(const kernels::PackedMatrix& w) {
    if (w.takes_floats()) return rows();
    if (quantized_for_packed_) return quantized_for_packed_;
    if (before_) {
        quantized_for_packed_ = kernels::norm_quantize_for_packed(ctx_, device_.pool(), before_, norm_weight_, eps_);
    } else {
        quantized_for_packed_ = kernels::quantize_for_packed(ctx_, device_.pool(), rows());
    }
    return quantized_for_packed_;
}

ggml_tensor* Activations::times(const kernels::PackedGroup& group) {
    return kernels::multiply_packed(ctx_, group, packed_rows(*group.front()));
}

Activations Activations::gated_times(const kernels::PackedGroup& gate_up, const Matrix& next) {
    ggml_tensor* rows = packed_rows(*gate_up.front());
    if (!next.packed || next.packed->takes_floats()) {
        return {ctx_, device_, kernels::gated_packed(ctx_, gate_up, rows)};
    }
    Activations gated(ctx_, device_, nullptr);
    gated.quantized_for_packed_ = kernels::gated_quantized_packed(ctx_, gate_up, rows);
    return gated;
}

ggml_tensor* Activations::times(const Matrix& w) {
    if (!device_.exact()) return ggml_mul_mat(ctx_, w.tensor, values());
    if (w.packed) return kernels::multiply_packed(ctx_, *w.packed, packed_rows(*w.packed));
    return kernels::multiply(ctx_, device_.pool(), w.tensor, quantized_for(w.tensor));
}

ggml_tensor* Activations::times(const Matrix& w, ggml_tensor* residual) {
    if (w.packed) return kernels::multiply_packed(ctx_, *w.packed, packed_rows(*w.packed), residual);
    return ggml_add(ctx_, times(w), residual);
}

ggml_tensor* Activations::argmax_of(const Matrix& w) {
    if (w.packed) return kernels::argmax_packed(ctx_, *w.packed, packed_rows(*w.packed));
    return argmax(ctx_, device_, times(w));
}

ggml_tensor* Activations::times_experts(const Matrix& w, ggml_tensor* chosen) {
    if (w.packed) {
        return kernels::multiply_experts_packed(ctx_, *w.packed, w.tensor->ne[1], packed_rows(*w.packed), chosen);
    }
    if (device_.exact()) {
        return kernels::multiply_experts(ctx_, device_.pool(), w.tensor, quantized_for(w.tensor), chosen);
    }
    ggml_tensor* x = values();
    ggml_tensor* in = x->ne[2] == chosen->ne[1] ? x : ggml_reshape_3d(ctx_, x, x->ne[0], 1, x->ne[1]);
    return ggml_mul_mat_id(ctx_, w.tensor, in, chosen);
}

ggml_tensor* argmax(ggml_context* ctx, const Device& device, ggml_tensor* x) {
    return device.exact() ? kernels::argmax(ctx, device.pool(), x) : ggml_argmax(ctx, x);
}

ggml_tensor* look_up(ggml_context* ctx, const Matrix& embedding, ggml_tensor* tokens) {
    return embedding.packed ? kernels::rows_of_packed(ctx, *embedding.packed, tokens)
                            : ggml_get_rows(ctx, embedding.tensor, tokens);
}

ggml_tensor* Rope::input(ggml_context* ctx, std::int64_t rows) const {
    return device_.exact() ? bastion::input(ctx, GGML_TYPE_F32, config_.head_dim, rows)
                           : bastion::input(ctx, GGML_TYPE_I32, rows);
}

void Rope::upload(ggml_tensor* input, const std::vector<std::int32_t>& positions) const {
    if (!device_.exact()) {
        bastion::upload(input, positions);
        return;
    }
    const ggml_tensor* factors = weights_.find("rope_freqs.weight");
    bastion::upload(input, kernels::rope_table({config_.head_dim, config_.rope_base, config_.rope_scale,
                                                factors ? static_cast<const float*>(factors->data) : nullptr},
                                               positions));
}

ggml_tensor* Rope::rotate(ggml_context* ctx, ggml_tensor* x, ggml_tensor* input) const {
    if (device_.exact()) {
        return kernels::rotate(ctx, device_.pool(), x, input, pairs());
    }
    return ggml_rope_ext(ctx, x, input, weights_.find("rope_freqs.weight"), config_.rope_dims, config_.arch->rope_mode,
                         config_.train_ctx, config_.rope_base, config_.rope_scale, 0.0f, 1.0f, 32.0f, 1.0f);
}

kernels::RopePairs Rope::pairs() const {
    return config_.arch->rope_mode == GGML_ROPE_TYPE_NEOX ? kernels::RopePairs::halves : kernels::RopePairs::neighbours;
}

ggml_tensor* LayerBuilder::heads_norm(ggml_tensor* x, int heads, ggml_tensor* norm_weight) const {
    const std::size_t head_bytes = config_.head_dim * x->nb[0];
    x = ggml_view_3d(ctx_, x, config_.head_dim, heads, x->ne[1], head_bytes, x->nb[1], 0);
    return norm_weight ? ggml_mul(ctx_, ggml_rms_norm(ctx_, x, config_.norm_eps), norm_weight) : x;
}

std::vector<ggml_tensor*> LayerBuilder::cut(ggml_tensor* x, std::initializer_list<int> widths) const {
    std::vector<ggml_tensor*> parts;
    std::size_t at = 0;
    for (const int width : widths) {
        parts.push_back(ggml_view_2d(ctx_, x, width, x->ne[1], x->nb[1], at));
        at += width * x->nb[0];
    }
    return parts;
}

LayerBuilder::Written LayerBuilder::write_kv(int index, Activations& in, const PassInputs& inputs) const {
    if (const auto& group = weights_.groups(index).key_value; !group.empty()) {
        const std::vector<ggml_tensor*> parts = cut(in.times(group), {config_.kv_width(), config_.kv_width()});
        return write_kv(index, parts[0], parts[1], inputs);
    }
    ggml_tensor* k = in.times(weights_.matrix(index, "attn_k.weight"));
    return write_kv(index, k, in.times(weights_.matrix(index, "attn_v.weight")), inputs);
}

LayerBuilder::Written LayerBuilder::write_kv(int index, ggml_tensor* k, ggml_tensor* v,
                                             const PassInputs& inputs) const {
    k = heads_norm(k, config_.kv_heads, weights_.find(index, "attn_k_norm.weight"));
    k = Rope(config_, weights_, device_).rotate(ctx_, k, inputs.rope);
    k = ggml_reshape_2d(ctx_, k, config_.kv_width(), k->ne[2]);
    Written written{ggml_set_rows(ctx_, kv_.keys(index), k, inputs.cells),
                    ggml_set_rows(ctx_, kv_.values(index), v, inputs.cells)};
    ggml_build_forward_expand(graph_, written.keys);
    ggml_build_forward_expand(graph_, written.values);
    return written;
}

ggml_tensor* LayerBuilder::attend_library(ggml_tensor* q, const Written& kv, const PassInputs& inputs) const {
    const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    ggml_tensor* all = nullptr;
    for (std::size_t i = 0; i < inputs.ranges.size(); ++i) {
        const RowRange& range = inputs.ranges[i];
        const auto view = [&](ggml_tensor* cache) {  // [head_dim, cells, kv_heads] of the slot
            return ggml_view_3d(ctx_, cache, config_.head_dim, range.cells, config_.kv_heads, cache->nb[1],
                                ggml_row_size(cache->type, config_.head_dim),
                                static_cast<std::size_t>(range.slot) * kv_.cells() * cache->nb[1]);
        };
        ggml_tensor* rows = ggml_view_3d(ctx_, q, q->ne[0], q->ne[1], range.count, q->nb[1], q->nb[2],
                                         static_cast<std::size_t>(range.first) * q->nb[2]);
        ggml_tensor* out = ggml_flash_attn_ext(ctx_, ggml_permute(ctx_, rows, 0, 2, 1, 3), view(kv.keys),
                                               view(kv.values), inputs.masks[i], scale, 0.0f, 0.0f);
        ggml_prec_set_acc(out, GGML_PREC_F32);
        out = ggml_reshape_2d(ctx_, out, config_.q_width(), range.count);
        all = all ? ggml_concat(ctx_, all, out, 1) : out;
    }
    return all;
}

ggml_tensor* LayerBuilder::attention(int index, Activations& in, ggml_tensor* residual,
                                     const PassInputs& inputs) const {
    ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr;
    if (const auto& group = weights_.groups(index).query_key_value; !group.empty()) {
        const std::vector<ggml_tensor*> parts =
            cut(in.times(group), {config_.q_width(), config_.kv_width(), config_.kv_width()});
        q = parts[0], k = parts[1], v = parts[2];
    } else {
        q = in.times(weights_.matrix(index, "attn_q.weight"));
        k = in.times(weights_.matrix(index, "attn_k.weight"));
        v = in.times(weights_.matrix(index, "attn_v.weight"));
    }
    q = heads_norm(q, config_.heads, weights_.find(index, "attn_q_norm.weight"));
    const Rope rope(config_, weights_, device_);
    ggml_tensor* mixed = nullptr;
    if (device_.exact()) {
        k = heads_norm(k, config_.kv_heads, weights_.find(index, "attn_k_norm.weight"));
        ggml_tensor *keys = kv_.keys(index), *values = kv_.values(index);
        q = kernels::rotate_and_store(ctx_, device_.pool(), {q, k, v}, inputs.rope, keys, values, inputs.cells,
                                      rope.pairs());
        mixed = kernels::attend(ctx_, q, keys, values, inputs.plan);
    } else {
        mixed = attend_library(rope.rotate(ctx_, q, inputs.rope), write_kv(index, k, v, inputs), inputs);
    }
    return Activations(ctx_, device_, mixed).times(weights_.matrix(index, "attn_output.weight"), residual);
}

ggml_tensor* LayerBuilder::gated(ggml_tensor* gate, ggml_tensor* up) const {
    return device_.exact() ? kernels::gated(ctx_, device_.pool(), gate, up) : ggml_swiglu_split(ctx_, gate, up);
}

ggml_tensor* LayerBuilder::feed_forward(int index, Activations& in, ggml_tensor* residual) const {
    if (config_.arch->experts) return ggml_add(ctx_, experts(index, in), residual);
    const Matrix down = weights_.matrix(index, "ffn_down.weight");
    if (const auto& group = weights_.groups(index).gate_up; !group.empty()) {
        return in.gated_times(group, down).times(down, residual);
    }
    ggml_tensor* gate = in.times(weights_.matrix(index, "ffn_gate.weight"));
    ggml_tensor* up = in.times(weights_.matrix(index, "ffn_up.weight"));
    return Activations(ctx_, device_, gated(gate, up)).times(down, residual);
}

/// Softmax router, the K most likely experts of every row with their weights renormalised, results added in rank order.
ggml_tensor* LayerBuilder::experts(int index, Activations& in) const {
    const int used = config_.experts_used;
    constexpr float kSmallestSum = 6.103515625e-5f;  // smallest normal f16: keeps the division finite
    ggml_tensor* logits = in.times(weights_.matrix(index, "ffn_gate_inp.weight"));
    const std::int64_t n = logits->ne[1];
    ggml_tensor* probabilities = ggml_soft_max(ctx_, logits);             // [experts, n]
    ggml_tensor* chosen = ggml_argsort_top_k(ctx_, probabilities, used);  // i32 [used, n]
    ggml_tensor* share = ggml_get_rows(ctx_, ggml_reshape_3d(ctx_, probabilities, 1, config_.experts, n), chosen);
    share = ggml_reshape_2d(ctx_, share, used, n);
    share = ggml_div(ctx_, share, ggml_clamp(ctx_, ggml_sum_rows(ctx_, share), kSmallestSum, INFINITY));
    share = ggml_reshape_3d(ctx_, share, 1, used, n);

    ggml_tensor* up = in.times_experts(weights_.matrix(index, "ffn_up_exps.weight"), chosen);
    ggml_tensor* gate = in.times_experts(weights_.matrix(index, "ffn_gate_exps.weight"), chosen);
    Activations inner(ctx_, device_, gated(gate, up));  // [ffn, used, n]
    ggml_tensor* out =
        inner.times_experts(weights_.matrix(index, "ffn_down_exps.weight"), chosen);  // [hidden, used, n]
    out = ggml_mul(ctx_, out, share);
    ggml_tensor* sum = nullptr;
    for (int rank = 0; rank < used; ++rank) {
        ggml_tensor* part = ggml_view_2d(ctx_, out, config_.hidden, n, out->nb[2], rank * out->nb[1]);
        sum = sum ? ggml_add(ctx_, sum, part) : part;
    }
    return used == 1 ? ggml_cont(ctx_, sum) : sum;
}

Activations LayerBuilder::normed(ggml_tensor* x, int index, const char* weight) const {
    return {ctx_, device_, x, weights_.find(index, weight), config_.norm_eps};
}

ggml_tensor* LayerBuilder::layer(int index, ggml_tensor* x, const PassInputs& inputs) const {
    Activations in = normed(x, index, "attn_norm.weight");
    x = attention(index, in, x, inputs);
    Activations inner = normed(x, index, "ffn_norm.weight");
    return feed_forward(index, inner, x);
}

kernels::AttentionPlan empty_plan(const ModelConfig& config, const Device& device) {
    kernels::AttentionPlan plan;
    plan.pool = device.exact() ? &device.pool() : nullptr;
    plan.head_dim = config.head_dim;
    plan.heads = config.heads;
    plan.kv_heads = config.kv_heads;
    plan.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
    return plan;
}

std::vector<ggml_fp16_t> mask_from_plan(const kernels::AttentionPlan& plan, const RowRange& range, int slot_cells) {
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
    const ggml_fp16_t seen = ggml_fp32_to_fp16(0.0f);
    const std::int64_t base = static_cast<std::int64_t>(range.slot) * slot_cells;
    std::vector<ggml_fp16_t> mask(static_cast<std::size_t>(range.cells) * range.count, hidden);
    for (int i = 0; i < range.count; ++i) {
        const kernels::AttentionRow& row = plan.rows[range.first + i];
        ggml_fp16_t* out = mask.data() + static_cast<std::size_t>(i) * range.cells;
        std::fill_n(out + (row.first_cell - base), row.run, seen);
        for (int e = row.extra_begin; e < row.extra_end; ++e) out[plan.extra[e] - base] = seen;
    }
    return mask;
}

int padded_cells(int cells, int limit) { return std::min((cells + 255) / 256 * 256, limit); }

}  // namespace bastion
