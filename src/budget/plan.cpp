#include "budget/plan.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "budget/controller.h"

namespace bastion {
namespace {

double bound_ms(double flops, double bytes, const DevicePeak& peak) {
    return 1e3 * std::max(flops / peak.flops_per_s, bytes / peak.bytes_per_s);
}

double term_ms(const ModelShape& shape, const DevicePeak& peak, int rows, int context, std::string_view name) {
    double ms = 0;
    for (const CostTerm& term : cost_terms(shape, rows, context)) {
        if (term.name == name) ms += bound_ms(term.flops, term.bytes, peak);
    }
    return ms;
}

double attention_ms(const ModelShape& shape, const DevicePeak& peak, int rows, int context) {
    return term_ms(shape, peak, rows, context, "attention");
}

/// Everything that rows of different sequences share.
double shared_ms(const ModelShape& shape, const DevicePeak& peak, int rows) {
    double ms = 0;
    for (const CostTerm& term : cost_terms(shape, rows, 0)) {
        if (term.name != std::string_view("attention")) ms += bound_ms(term.flops, term.bytes, peak);
    }
    return ms;
}

double injection_ms(const DraftShape& draft, const DevicePeak& peak, int rows) {
    const double h = draft.pass.hidden, read = draft.taps * h;
    const double bytes = read * h * draft.fc_weight_bytes + rows * (read + h) * draft.pass.activation_bytes;
    return bound_ms(2.0 * rows * read * h, bytes, peak) + term_ms(draft.pass, peak, rows, 0, "kv");
}

/// What the search finds when it is offered the gains one after the other.
BudgetSearch searched(const LatencyModel& latency, std::span<const double> gains, int context, int max_nodes) {
    BudgetSearch search(latency, context, max_nodes);
    for (const double gain : gains) {
        if (!search.offer(gain)) break;
    }
    return search;
}

}  // namespace

DraftShape draft_shape_like(const ModelShape& target, int layers, int block) {
    DraftShape draft;
    draft.pass = target;
    draft.pass.layers = layers;
    if (target.experts > 0) draft.pass.ffn_width = 3 * target.hidden;
    draft.pass.experts = draft.pass.experts_used = 0;
    draft.block = block;
    draft.taps = layers;
    draft.fc_weight_bytes = target.attn_weight_bytes;
    return draft;
}

double batch_verify_ms(const ModelShape& shape, const DevicePeak& peak, int requests, int rows, int context) {
    PassLoad load;
    for (int i = 0; i < requests; ++i) load.add(rows, context);
    return roofline_ms(shape, peak, load);
}

double batch_draft_ms(const DraftShape& draft, const DevicePeak& peak, int requests, int context) {
    // Attention grows with its layers, so those with a window are counted apart.
    ModelShape full = draft.pass, windowed = draft.pass;
    windowed.layers = std::min(draft.windowed_layers, draft.pass.layers);
    full.layers -= windowed.layers;
    const double attention = attention_ms(full, peak, draft.block, context) +
                             attention_ms(windowed, peak, draft.block, std::min(context, draft.window));
    return shared_ms(draft.pass, peak, requests * draft.block) + requests * attention +
           injection_ms(draft, peak, requests * draft.block);
}

Profile predicted_profile(const PlanSetup& setup, int requests, int context) {
    Profile profile;
    profile.shape = setup.target;
    profile.peak = setup.peak;
    for (int nodes = 1; nodes <= setup.max_nodes; ++nodes) {
        profile.grid.push_back({nodes, context, batch_verify_ms(setup.target, setup.peak, requests, nodes, context)});
    }
    profile.ar_ms = profile.grid.front().verify_ms;
    profile.draft_ms = batch_draft_ms(setup.draft, setup.peak, requests, context);
    return profile;
}

PlanPoint plan_point(const PlanSetup& setup, std::span<const double> gains, int requests, int context) {
    const Profile profile = predicted_profile(setup, requests, context);
    PlanPoint point;
    point.context = context;
    point.requests = requests;
    point.plain_ms = profile.ar_ms;
    point.draft_ms = profile.draft_ms;
    point.grid = profile.grid;

    const LatencyModel exact(profile, ControllerKind::curve);
    const BudgetSearch best = searched(exact, gains, context, setup.max_nodes);
    point.best_nodes = best.best_nodes();
    point.tau = tokens_a_cycle(gains, point.best_nodes);
    point.verify_ms = best.predicted_verify_ms();
    point.cycle_ms = best.predicted_cycle_ms();
    point.speedup = best.best_speedup();
    if (requests == 1) {
        const LatencyModel fitted(profile, ControllerKind::fixed_fit);
        point.first_decrease_nodes = searched(fitted, gains, context, setup.max_nodes).best_nodes();
    }
    return point;
}

double tokens_a_cycle(std::span<const double> gains, int nodes) {
    return std::accumulate(gains.begin(), gains.begin() + (nodes - 1), 1.0);
}

}  // namespace bastion
