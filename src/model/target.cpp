#include "model/target.h"

#include <algorithm>
#include <list>

#include "model/blocks.h"

namespace bastion {
namespace {

/// What decides the shape of a pass's graph on the exact path.
struct GraphKey {
    int rows = 0, outputs_rows = 0;
    Outputs outputs = Outputs::none;
    bool features = false;
    bool operator==(const GraphKey&) const = default;
};

struct PassGraph {
    GraphKey key;
    Graph g;
    ggml_tensor *tokens = nullptr, *rope = nullptr, *cells = nullptr;
    ggml_tensor* feature_rows = nullptr;  ///< i64 [n]
    ggml_tensor* output_rows = nullptr;   ///< i32, rows whose logits are wanted; absent: all
    std::vector<ggml_tensor*> masks;
    ggml_tensor *argmax = nullptr, *logits = nullptr;
};

}  // namespace

struct Target::Impl {
    Impl(const ModelConfig& c, const Weights& w, const Device& d, KvPool& k, std::vector<int> t, FeaturePool* f)
        : config(c),
          weights(w),
          device(d),
          kv(k),
          taps(std::move(t)),
          features(f),
          rope(c, w, d),
          plan(empty_plan(c, d)) {}

    const ModelConfig& config;
    const Weights& weights;
    const Device& device;
    KvPool& kv;
    std::vector<int> taps;
    FeaturePool* features;
    const Rope rope;
    kernels::AttentionPlan plan;

    // Shapes recur from cycle to cycle, so graphs are kept, the latest first. Library kernels put the context length
    // into the shape; there only the graph in use is kept.
    static constexpr std::size_t kKeptGraphs = 48;
    static constexpr std::size_t kKeptBytes = std::size_t{256} << 20;
    std::list<PassGraph> graphs;

    std::vector<Token> tokens;
    std::vector<std::int32_t> positions, output_rows;
    std::vector<std::int64_t> cells, feature_rows;
    std::vector<RowRange> ranges;
    std::vector<Token> argmax;

    void gather(std::span<const SequenceRows> sequences, bool last_only);
    void plan_sequence(const SequenceRows& s);
    Result<PassGraph*> graph_for(const GraphKey& key);
    Status build(PassGraph& pass);
    ggml_tensor* tap(const std::vector<ggml_tensor*>& inputs, ggml_context* ctx) const;
    std::size_t compute_bytes() const;
};

void Target::Impl::plan_sequence(const SequenceRows& s) {
    const std::int64_t base = static_cast<std::int64_t>(s.slot) * kv.cells();
    const int rows = static_cast<int>(s.tokens.size());
    std::vector<int> spine(rows);  // number of rows on the path if it is exactly rows 0..i, else 0
    std::vector<std::int32_t> path;
    for (int i = 0; i < rows; ++i) {
        const int parent = s.parents[i];
        spine[i] = parent == i - 1 && (i == 0 || spine[i - 1] > 0) ? i + 1 : 0;
        kernels::AttentionRow row;
        row.first_cell = base;
        row.run = s.committed + spine[i];
        row.extra_begin = static_cast<std::int32_t>(plan.extra.size());
        if (spine[i] == 0) {
            path.clear();
            for (int a = i; a >= 0; a = s.parents[a]) path.push_back(a);
            for (auto a = path.rbegin(); a != path.rend(); ++a) plan.extra.push_back(base + s.committed + *a);
        }
        row.extra_end = static_cast<std::int32_t>(plan.extra.size());
        plan.rows.push_back(row);
    }
}

void Target::Impl::gather(std::span<const SequenceRows> sequences, bool last_only) {
    tokens.clear();
    positions.clear();
    cells.clear();
    feature_rows.clear();
    output_rows.clear();
    ranges.clear();
    plan.rows.clear();
    plan.extra.clear();
    for (const SequenceRows& s : sequences) {
        const int rows = static_cast<int>(s.tokens.size());
        const int first = static_cast<int>(tokens.size());
        ranges.push_back({s.slot, first, rows, padded_cells(s.committed + rows, kv.cells())});
        tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
        positions.insert(positions.end(), s.positions.begin(), s.positions.end());
        feature_rows.insert(feature_rows.end(), s.feature_rows.begin(), s.feature_rows.end());
        for (int i = 0; i < rows; ++i) {
            cells.push_back(static_cast<std::int64_t>(s.slot) * kv.cells() + s.committed + i);
        }
        if (last_only) output_rows.push_back(first + rows - 1);
        plan_sequence(s);
    }
}

ggml_tensor* Target::Impl::tap(const std::vector<ggml_tensor*>& inputs, ggml_context* ctx) const {
    ggml_tensor* all = nullptr;
    for (int layer : taps) all = all ? ggml_concat(ctx, all, inputs[layer], 0) : inputs[layer];
    return all;
}

Status Target::Impl::build(PassGraph& pass) {
    const GraphKey& key = pass.key;
    const std::size_t per_layer = 64 + 4 * static_cast<std::size_t>(config.experts_used) + 10 * ranges.size();
    BASTION_ASSIGN(pass.g, Graph::create(per_layer * config.layers + 64));
    ggml_context* ctx = pass.g.ctx.get();
    pass.tokens = input(ctx, GGML_TYPE_I32, key.rows);
    pass.rope = rope.input(ctx, key.rows);
    pass.cells = input(ctx, GGML_TYPE_I64, key.rows);
    if (!device.exact()) {
        for (const RowRange& r : ranges) pass.masks.push_back(input(ctx, GGML_TYPE_F16, r.cells, r.count));
    }
    const PassInputs inputs{pass.rope, pass.cells, &plan, ranges, pass.masks};
    const LayerBuilder builder(pass.g, config, weights, device, kv);

    std::vector<ggml_tensor*> layer_inputs;
    ggml_tensor* x = look_up(ctx, weights.matrix("token_embd.weight"), pass.tokens);
    for (int layer = 0; layer < config.layers; ++layer) {
        layer_inputs.push_back(x);
        x = builder.layer(layer, x, inputs);
    }
    layer_inputs.push_back(x);
    if (key.features) {
        pass.feature_rows = input(ctx, GGML_TYPE_I64, key.rows);
        ggml_build_forward_expand(pass.g.graph,
                                  ggml_set_rows(ctx, features->tensor(), tap(layer_inputs, ctx), pass.feature_rows));
    }
    if (key.outputs == Outputs::none) {
        ggml_build_forward_expand(pass.g.graph, x);
        return pass.g.allocate(device);
    }
    if (key.outputs_rows != key.rows) {
        pass.output_rows = input(ctx, GGML_TYPE_I32, key.outputs_rows);
        x = ggml_get_rows(ctx, x, pass.output_rows);
    }
    const Matrix head = weights.matrix(config.tied_head ? "token_embd.weight" : "output.weight");
    Activations last(ctx, device, x, weights.find("output_norm.weight"), config.norm_eps);
    if (key.outputs == Outputs::logits) {
        pass.logits = last.times(head);
        pass.argmax = bastion::argmax(ctx, device, pass.logits);
        ggml_set_output(pass.logits);
    } else {
        pass.argmax = last.argmax_of(head);
    }
    ggml_set_output(pass.argmax);
    ggml_build_forward_expand(pass.g.graph, pass.argmax);
    return pass.g.allocate(device);
}

Result<PassGraph*> Target::Impl::graph_for(const GraphKey& key) {
    const auto found = std::find_if(graphs.begin(), graphs.end(), [&](const PassGraph& p) { return p.key == key; });
    if (device.exact() && found != graphs.end()) {
        graphs.splice(graphs.begin(), graphs, found);
        return &graphs.front();
    }
    if (!device.exact()) graphs.clear();
    graphs.emplace_front();
    graphs.front().key = key;
    if (Status built = build(graphs.front()); !built) {
        graphs.pop_front();
        return built.error();
    }
    while (graphs.size() > 1 && (graphs.size() > kKeptGraphs || compute_bytes() > kKeptBytes)) graphs.pop_back();
    return &graphs.front();
}

Target::Target(const ModelConfig& config, const Weights& weights, const Device& device, KvPool& kv,
               std::vector<int> taps, FeaturePool* features)
    : impl_(std::make_unique<Impl>(config, weights, device, kv, std::move(taps), features)) {}

Target::~Target() = default;

Status Target::pass(std::span<const SequenceRows> sequences, Outputs outputs, bool last_only) {
    Impl& m = *impl_;
    m.gather(sequences, last_only);
    const int rows = static_cast<int>(m.tokens.size());
    const bool features = m.features && m.feature_rows.size() == m.tokens.size();
    const int output_rows = last_only ? static_cast<int>(m.output_rows.size()) : rows;
    BASTION_ASSIGN(PassGraph * pass, m.graph_for({rows, output_rows, outputs, features}));

    upload(pass->tokens, m.tokens);
    m.rope.upload(pass->rope, m.positions);
    upload(pass->cells, m.cells);
    if (pass->feature_rows) upload(pass->feature_rows, m.feature_rows);
    if (pass->output_rows) upload(pass->output_rows, m.output_rows);
    for (std::size_t i = 0; i < pass->masks.size(); ++i) {
        upload(pass->masks[i], mask_from_plan(m.plan, m.ranges[i], m.kv.cells()));
    }
    BASTION_CHECK(compute(m.device, pass->g.graph));
    if (outputs != Outputs::none) {
        m.argmax.resize(output_rows);
        ggml_backend_tensor_get(pass->argmax, m.argmax.data(), 0, m.argmax.size() * sizeof(Token));
    }
    return {};
}

Token Target::argmax(int row) const { return impl_->argmax[row]; }

void Target::read_logits(int row, std::span<float> out) const {
    const ggml_tensor* logits = impl_->graphs.front().logits;
    ggml_backend_tensor_get(logits, out.data(), static_cast<std::size_t>(row) * logits->nb[1], out.size_bytes());
}

std::size_t Target::Impl::compute_bytes() const {
    std::size_t total = 0;
    for (const PassGraph& pass : graphs) total += pass.g.bytes();
    return total;
}

}  // namespace bastion
