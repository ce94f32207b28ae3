// Recorded cycles (`bastion generate --trace`): reading them, what they say about smaller trees, and how well a profile
// predicts them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "budget/calibration.h"
#include "budget/controller.h"

namespace bastion {

struct RecordedCycle {
    int line = 0;                  ///< of the file, from 1
    int position = 0;              ///< of the root: its committed context
    double draft_ms = 0;           ///< 0: not drafted
    double verify_ms = 0;          ///< of the whole pass
    int emitted = 0;               ///< tokens; one less than accepted nodes if the last drawn one ended the text
    int depth = 0;                 ///< of the deepest node
    std::vector<double> logprobs;  ///< log rho by node, in insertion order
    std::vector<int> accepted;     ///< nodes drawn at: the root, then each a child of the one before

    int nodes() const { return static_cast<int>(logprobs.size()); }
    bool drafted() const { return draft_ms > 0; }  ///< without a draft a tree has copies of the text alone

    /// Tokens this cycle would have drawn from the first `size` nodes of its tree. The walk is the same until it meets
    /// a node that is not there.
    int drawn_within(int size) const;
};

/// The cycles of a trace, one JSON object a line; `file_name` is for messages. Refused with the line's number: anything
/// that is no such object, trees whose parents, depths or accepted nodes contradict each other; refused as a whole: no
/// cycle at all, none with a draft.
Result<std::vector<RecordedCycle>> read_trace(const std::string& text, const std::string& file_name);

/// That the nodes of every tree stand in best-first order (rho never rises), as those of `--method tree` do. Only then
/// is the beginning of a tree the tree of a smaller budget.
Status check_best_first(std::span<const RecordedCycle> cycles, const std::string& file_name);

/// What the drafted cycles of a trace say about trees of at most `known_nodes` nodes.
struct RecordedAcceptance {
    int cycles = 0;                 ///< drafted ones
    int undrafted_trees = 0;        ///< left out: copies of the text alone
    int smallest = 0, largest = 0;  ///< trees
    int known_nodes = 1;        ///< at least 95 % of the cycles recorded so many nodes; the others count as they are
    std::vector<double> gains;  ///< mean tokens that node i+2 added, known_nodes - 1 of them
};

/// Requires a drafted cycle. Counted at the recorded starts of cycles, which with another budget would lie elsewhere.
RecordedAcceptance recorded_acceptance(std::span<const RecordedCycle> cycles);

/// What a controller would have made of the drafted cycles.
struct Replay {
    double mean_nodes = 0, tau = 0;
    double speedup = 0;  ///< over plain decoding
    int at_the_end = 0;  ///< cycles in which it wanted all recorded nodes and might have wanted more
};

/// The search of every cycle over its own rho, at one context. Requires a drafted cycle.
Replay replay_search(std::span<const RecordedCycle> cycles, const LatencyModel& latency, int context, int max_nodes);

/// Predicted against recorded times. All of them are of draft and verification, which is what a trace holds.
struct TraceCheck {
    /// Cycles of one tree size; means over them.
    struct Size {
        int nodes = 0, cycles = 0;
        double predicted_verify_ms = 0, recorded_verify_ms = 0;
    };

    int cycles = 0, drafted = 0, tokens = 0;
    double predicted_draft_ms = 0, recorded_draft_ms = 0;  ///< sums
    double predicted_verify_ms = 0, recorded_verify_ms = 0;
    double predicted_speedup = 0, recorded_speedup = 0;  ///< tokens x profile.ar_ms / time
    std::vector<Size> sizes;                             ///< ascending

    /// Predicted over recorded speed-up, less 1.
    double error() const;
};

/// Replays all cycles in their order with the profile's predictor of that kind; `ema` kinds learn on the way.
TraceCheck check_trace(std::span<const RecordedCycle> cycles, const Profile& profile, ControllerKind kind);

}  // namespace bastion
