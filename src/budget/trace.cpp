#include "budget/trace.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace bastion {
namespace {

/// Of the cycles, how many may have smaller trees than those that are called known: the last ones before a length limit
/// are cut by depth, whatever the budget.
constexpr double kShareOfSmallTrees = 0.05;

/// A log-probability may be rounded to a little above 0, and a child then seem likelier than its parent.
constexpr double kRounding = 1e-5;

}  // namespace

int RecordedCycle::drawn_within(int size) const {
    return static_cast<int>(std::lower_bound(accepted.begin(), accepted.end(), size) - accepted.begin());
}

Status check_best_first(std::span<const RecordedCycle> cycles, const std::string& file_name) {
    for (const RecordedCycle& cycle : cycles) {
        for (int i = 1; i < cycle.nodes(); ++i) {
            if (cycle.logprobs[i] <= cycle.logprobs[i - 1] + kRounding) continue;
            return bad_input("trace '" + file_name + "' line " + std::to_string(cycle.line) + ": node " +
                             std::to_string(i) +
                             " is likelier than the one before it, expected the best-first order of --method tree");
        }
    }
    return {};
}

RecordedAcceptance recorded_acceptance(std::span<const RecordedCycle> cycles) {
    RecordedAcceptance result;
    std::vector<int> sizes;
    for (const RecordedCycle& cycle : cycles) {
        if (cycle.drafted()) sizes.push_back(cycle.nodes());
        if (!cycle.drafted() && cycle.nodes() > 1) ++result.undrafted_trees;
    }
    std::sort(sizes.begin(), sizes.end());
    result.cycles = static_cast<int>(sizes.size());
    result.smallest = sizes.front();
    result.largest = sizes.back();
    result.known_nodes = sizes[static_cast<std::size_t>(kShareOfSmallTrees * result.cycles)];
    result.gains.assign(result.known_nodes - 1, 0.0);
    for (const RecordedCycle& cycle : cycles) {
        if (!cycle.drafted()) continue;
        for (const int node : cycle.accepted) {
            if (node > 0 && node < result.known_nodes) result.gains[node - 1] += 1;
        }
    }
    for (double& gain : result.gains) gain /= result.cycles;
    return result;
}

Replay replay_search(std::span<const RecordedCycle> cycles, const LatencyModel& latency, int context, int max_nodes) {
    Replay replay;
    double count = 0, nodes = 0, tokens = 0, ms = 0;
    for (const RecordedCycle& cycle : cycles) {
        if (!cycle.drafted()) continue;
        BudgetSearch search(latency, context, max_nodes);
        for (int i = 1; i < cycle.nodes() && search.offer(std::exp(cycle.logprobs[i])); ++i) continue;
        const int chosen = search.best_nodes();
        if (chosen == cycle.nodes() && chosen < max_nodes) ++replay.at_the_end;
        count += 1;
        nodes += chosen;
        tokens += cycle.drawn_within(chosen);
        ms += search.predicted_cycle_ms();
    }
    replay.mean_nodes = nodes / count;
    replay.tau = tokens / count;
    replay.speedup = tokens * latency.plain_ms(context) / ms;
    return replay;
}

double TraceCheck::error() const {
    // Both speed-ups have the same tokens and the same plain step, which leaves the times.
    return (recorded_draft_ms + recorded_verify_ms) / (predicted_draft_ms + predicted_verify_ms) - 1;
}

TraceCheck check_trace(std::span<const RecordedCycle> cycles, const Profile& profile, ControllerKind kind) {
    LatencyModel latency(profile, kind);
    TraceCheck check;
    std::map<int, TraceCheck::Size> sizes;
    for (const RecordedCycle& cycle : cycles) {
        const double predicted = latency.verify_ms(cycle.nodes(), cycle.position);
        latency.observe_verify(cycle.nodes(), cycle.position, cycle.verify_ms);
        ++check.cycles;
        check.tokens += cycle.emitted;
        check.predicted_verify_ms += predicted;
        check.recorded_verify_ms += cycle.verify_ms;
        if (cycle.drafted()) {
            ++check.drafted;
            check.predicted_draft_ms += latency.draft_ms();
            check.recorded_draft_ms += cycle.draft_ms;
        }
        TraceCheck::Size& size = sizes[cycle.nodes()];
        size.nodes = cycle.nodes();
        ++size.cycles;
        size.predicted_verify_ms += predicted;
        size.recorded_verify_ms += cycle.verify_ms;
    }
    for (auto& [nodes, size] : sizes) {
        size.predicted_verify_ms /= size.cycles;
        size.recorded_verify_ms /= size.cycles;
        check.sizes.push_back(size);
    }
    const double plain_ms = check.tokens * profile.ar_ms;
    check.predicted_speedup = plain_ms / (check.predicted_draft_ms + check.predicted_verify_ms);
    check.recorded_speedup = plain_ms / (check.recorded_draft_ms + check.recorded_verify_ms);
    return check;
}

}  // namespace bastion
