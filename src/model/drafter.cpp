#include "model/drafter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include "model/blocks.h"

namespace bastion {
namespace {

struct InjectGraph {
    int rows = 0;
    Graph g;
    ggml_tensor *feature_rows = nullptr, *rope = nullptr, *cells = nullptr;
};

struct DraftGraph {
    int blocks = 0, topk = 0;
    Graph g;
    ggml_tensor *tokens = nullptr, *rope = nullptr, *cells = nullptr, *mask_rows = nullptr;
    std::vector<ggml_tensor*> masks, windowed_masks;
    ggml_tensor* lattice = nullptr;                        ///< exact: f32 [2 topk, rows] of kernels::top_logprobs
    ggml_tensor *ids = nullptr, *probabilities = nullptr;  ///< library: i32 and f32 [topk, rows], unsorted
};

/// Sorts one row's candidates: more likely first, smaller token first on ties.
void sort_row(std::vector<std::pair<float, Token>>& row) {
    std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
}

}  // namespace

struct Drafter::Impl {
    Impl(const ModelConfig& c, const Weights& w, const Device& d, KvPool& k, FeaturePool& f)
        : config(c),
          weights(w),
          device(d),
          kv(k),
          features(f),
          rope(c, w, d),
          plan(empty_plan(c, d)),
          windowed_plan(plan) {}

    const ModelConfig& config;
    const Weights& weights;
    const Device& device;
    KvPool& kv;
    FeaturePool& features;
    const Rope rope;
    Matrix embeddings;
    Matrix head;
    std::vector<Token> target_ids;  ///< of the head's rows; empty: the row is the id
    kernels::AttentionPlan plan, windowed_plan;

    static constexpr std::size_t kKeptGraphs = 8;
    std::list<InjectGraph> inject_graphs;
    std::list<DraftGraph> draft_graphs;

    std::vector<RowRange> ranges;

    Status build(InjectGraph& pass);
    Status build(DraftGraph& pass);
    void plan_blocks(std::span<const DraftRequest> requests);
    std::vector<Lattice> read(const DraftGraph& pass, std::size_t requests) const;
    Token target_id(std::int32_t row) const { return target_ids.empty() ? row : target_ids[row]; }

    template <class G, class Same>
    Result<G*> graph_for(std::list<G>& graphs, const G& wanted_shape, Same same);
};

/// The kept graph of the wanted shape, or a new one. Library kernels put the context length into the shape, so there
/// every pass is built anew.
template <class G, class Same>
Result<G*> Drafter::Impl::graph_for(std::list<G>& graphs, const G& wanted_shape, Same same) {
    const auto found = std::find_if(graphs.begin(), graphs.end(), [&](const G& g) { return same(g, wanted_shape); });
    if (device.exact() && found != graphs.end()) {
        graphs.splice(graphs.begin(), graphs, found);
        return &graphs.front();
    }
    if (!device.exact()) graphs.clear();
    graphs.emplace_front();
    if constexpr (requires { wanted_shape.blocks; }) {
        graphs.front().blocks = wanted_shape.blocks;
        graphs.front().topk = wanted_shape.topk;
    } else {
        graphs.front().rows = wanted_shape.rows;
    }
    if (Status built = build(graphs.front()); !built) {
        graphs.pop_front();
        return built.error();
    }
    if (graphs.size() > kKeptGraphs) graphs.pop_back();
    return &graphs.front();
}

Status Drafter::Impl::build(InjectGraph& pass) {
    BASTION_ASSIGN(pass.g, Graph::create(32 * static_cast<std::size_t>(config.layers) + 32));
    ggml_context* ctx = pass.g.ctx.get();
    pass.feature_rows = input(ctx, GGML_TYPE_I32, pass.rows);
    pass.rope = rope.input(ctx, pass.rows);
    pass.cells = input(ctx, GGML_TYPE_I64, pass.rows);
    const PassInputs inputs{pass.rope, pass.cells, nullptr, {}, {}};
    const LayerBuilder builder(pass.g, config, weights, device, kv);

    ggml_tensor* x = ggml_get_rows(ctx, features.tensor(), pass.feature_rows);
    x = Activations(ctx, device, x).times(weights.matrix("fc.weight"));
    Activations fused(ctx, device, x, weights.find("enc.output_norm.weight"), config.norm_eps);
    for (int layer = 0; layer < config.layers; ++layer) builder.write_kv(layer, fused, inputs);
    return pass.g.allocate(device);
}

Status Drafter::Impl::build(DraftGraph& pass) {
    const std::int64_t rows = static_cast<std::int64_t>(pass.blocks) * config.block_size;
    const std::int64_t masks = static_cast<std::int64_t>(pass.blocks) * (config.block_size - 1);
    BASTION_ASSIGN(pass.g, Graph::create((64 + 10 * ranges.size()) * config.layers + 64));
    ggml_context* ctx = pass.g.ctx.get();
    pass.tokens = input(ctx, GGML_TYPE_I32, rows);
    pass.rope = rope.input(ctx, rows);
    pass.cells = input(ctx, GGML_TYPE_I64, rows);
    pass.mask_rows = input(ctx, GGML_TYPE_I32, masks);
    if (!device.exact()) {
        for (const RowRange& r : ranges) {
            pass.masks.push_back(input(ctx, GGML_TYPE_F16, r.cells, r.count));
            pass.windowed_masks.push_back(input(ctx, GGML_TYPE_F16, r.cells, r.count));
        }
    }
    const PassInputs full{pass.rope, pass.cells, &plan, ranges, pass.masks};
    const PassInputs windowed{pass.rope, pass.cells, &windowed_plan, ranges, pass.windowed_masks};
    const LayerBuilder builder(pass.g, config, weights, device, kv);

    ggml_tensor* x = look_up(ctx, embeddings, pass.tokens);
    for (int layer = 0; layer < config.layers; ++layer) {
        x = builder.layer(layer, x, config.windowed[layer] ? windowed : full);
    }
    Activations last(ctx, device, ggml_get_rows(ctx, x, pass.mask_rows), weights.find("output_norm.weight"),
                     config.norm_eps);
    ggml_tensor* logits = last.times(head);  // [draft vocabulary, masks]
    if (device.exact()) {
        pass.lattice = kernels::top_logprobs(ctx, device.pool(), logits, pass.topk);
        ggml_set_output(pass.lattice);
        ggml_build_forward_expand(pass.g.graph, pass.lattice);
    } else {
        ggml_tensor* distribution = ggml_soft_max(ctx, logits);
        pass.ids = ggml_cont(ctx, ggml_top_k(ctx, logits, pass.topk));
        pass.probabilities =
            ggml_get_rows(ctx, ggml_reshape_3d(ctx, distribution, 1, distribution->ne[0], masks), pass.ids);
        ggml_set_output(pass.ids);
        ggml_set_output(pass.probabilities);
        ggml_build_forward_expand(pass.g.graph, pass.ids);
        ggml_build_forward_expand(pass.g.graph, pass.probabilities);
    }
    return pass.g.allocate(device);
}

/// Every row of a block sees all injected positions (or the window's) and the whole block.
void Drafter::Impl::plan_blocks(std::span<const DraftRequest> requests) {
    for (kernels::AttentionPlan* p : {&plan, &windowed_plan}) {
        p->rows.clear();
        p->extra.clear();
        for (const DraftRequest& r : requests) {
            const std::int64_t base = static_cast<std::int64_t>(r.slot) * kv.cells();
            for (int i = 0; i < config.block_size; ++i) {
                // A key is outside the window when it lies `window` or more positions before the query.
                const int first = p == &plan ? 0 : std::max(0, r.position + i - config.window + 1);
                const int seen = r.position + config.block_size - first;
                const auto extra = static_cast<std::int32_t>(p->extra.size());
                p->rows.push_back({base + first, std::max(seen, 0), extra, extra});
            }
        }
    }
    ranges.clear();
    for (std::size_t i = 0; i < requests.size(); ++i) {
        ranges.push_back({requests[i].slot, static_cast<int>(i) * config.block_size, config.block_size,
                          padded_cells(requests[i].position + config.block_size, kv.cells())});
    }
}

std::vector<Lattice> Drafter::Impl::read(const DraftGraph& pass, std::size_t requests) const {
    const int depth = config.block_size - 1;
    const auto rows = static_cast<std::size_t>(depth) * requests;
    const auto k = static_cast<std::size_t>(pass.topk);
    std::vector<std::int32_t> ids(rows * k);
    std::vector<float> logprobs(rows * k);
    if (pass.lattice) {
        std::vector<float> packed(rows * 2 * k);
        ggml_backend_tensor_get(pass.lattice, packed.data(), 0, packed.size() * sizeof(float));
        for (std::size_t r = 0; r < rows; ++r) {
            std::copy_n(packed.data() + r * 2 * k, k, logprobs.data() + r * k);
            std::memcpy(ids.data() + r * k, packed.data() + r * 2 * k + k, k * sizeof(std::int32_t));
        }
    } else {
        ggml_backend_tensor_get(pass.ids, ids.data(), 0, ids.size() * sizeof(std::int32_t));
        ggml_backend_tensor_get(pass.probabilities, logprobs.data(), 0, logprobs.size() * sizeof(float));
        for (float& p : logprobs) p = std::log(p);
    }

    std::vector<Lattice> lattices(requests);
    std::vector<std::pair<float, Token>> row(k);
    for (std::size_t r = 0; r < rows; ++r) {
        Lattice& lattice = lattices[r / depth];
        lattice.depth = depth;
        lattice.width = pass.topk;
        for (std::size_t i = 0; i < k; ++i) row[i] = {logprobs[r * k + i], target_id(ids[r * k + i])};
        sort_row(row);
        for (const auto& [logprob, token] : row) {
            lattice.tokens.push_back(token);
            lattice.logprobs.push_back(logprob);
        }
    }
    return lattices;
}

Drafter::Drafter(const ModelConfig& config, const Weights& weights, const ModelConfig& target_config,
                 const Weights& target_weights, const Device& device, KvPool& kv, FeaturePool& features)
    : impl_(std::make_unique<Impl>(config, weights, device, kv, features)) {
    impl_->embeddings = (config.own_embeddings ? weights : target_weights).matrix("token_embd.weight");
    if (config.own_head) {
        impl_->head = weights.matrix("output.weight");
    } else if (config.own_embeddings) {
        impl_->head = weights.matrix("token_embd.weight");  // as the format says: own embeddings serve as the head
    } else {
        impl_->head = target_weights.matrix(target_config.tied_head ? "token_embd.weight" : "output.weight");
    }
    if (config.draft_vocab > 0) {
        std::vector<std::int64_t> ids(config.draft_vocab);
        ggml_backend_tensor_get(weights.find("d2t"), ids.data(), 0, ids.size() * sizeof(std::int64_t));
        impl_->target_ids.assign(ids.begin(), ids.end());
    }
}

Drafter::~Drafter() = default;

Status Drafter::inject(std::span<const Injection> injections) {
    Impl& m = *impl_;
    std::vector<std::int32_t> feature_rows, positions;
    std::vector<std::int64_t> cells;
    for (const Injection& in : injections) {
        feature_rows.insert(feature_rows.end(), in.feature_rows.begin(), in.feature_rows.end());
        positions.insert(positions.end(), in.positions.begin(), in.positions.end());
        for (std::int32_t p : in.positions) cells.push_back(static_cast<std::int64_t>(in.slot) * m.kv.cells() + p);
    }
    if (feature_rows.empty()) return {};
    InjectGraph shape;
    shape.rows = static_cast<int>(feature_rows.size());
    BASTION_ASSIGN(InjectGraph * pass,
                   m.graph_for(m.inject_graphs, shape, [](const auto& a, const auto& b) { return a.rows == b.rows; }));
    upload(pass->feature_rows, feature_rows);
    m.rope.upload(pass->rope, positions);
    upload(pass->cells, cells);
    return compute(m.device, pass->g.graph);
}

Result<std::vector<Lattice>> Drafter::draft(std::span<const DraftRequest> requests, int topk) {
    Impl& m = *impl_;
    m.plan_blocks(requests);
    DraftGraph shape;
    shape.blocks = static_cast<int>(requests.size());
    shape.topk = topk;
    BASTION_ASSIGN(DraftGraph * pass, m.graph_for(m.draft_graphs, shape, [](const auto& a, const auto& b) {
        return a.blocks == b.blocks && a.topk == b.topk;
    }));

    std::vector<Token> tokens;
    std::vector<std::int32_t> positions, mask_rows;
    std::vector<std::int64_t> cells;
    for (const DraftRequest& r : requests) {
        for (int i = 0; i < m.config.block_size; ++i) {
            if (i > 0) mask_rows.push_back(static_cast<std::int32_t>(tokens.size()));
            tokens.push_back(i == 0 ? r.anchor : m.config.mask_token);
            positions.push_back(r.position + i);
            cells.push_back(static_cast<std::int64_t>(r.slot) * m.kv.cells() + r.position + i);
        }
    }
    upload(pass->tokens, tokens);
    m.rope.upload(pass->rope, positions);
    upload(pass->cells, cells);
    upload(pass->mask_rows, mask_rows);
    for (std::size_t i = 0; i < pass->masks.size(); ++i) {
        upload_if_used(pass->masks[i], mask_from_plan(m.plan, m.ranges[i], m.kv.cells()));
        upload_if_used(pass->windowed_masks[i], mask_from_plan(m.windowed_plan, m.ranges[i], m.kv.cells()));
    }
    BASTION_CHECK(compute(m.device, pass->g.graph));
    return m.read(*pass, requests.size());
}

}  // namespace bastion
