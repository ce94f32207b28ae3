// The arithmetic of a benchmark's report: means over sets, ranges of context, correlation, the best budget in
// hindsight.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace bastion::cli {

/// Tokens and the time they took.
struct Timed {
    long tokens = 0;
    double seconds = 0;

    void add(const Timed& other);
    double per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0; }
};

/// One tree: what was promised and what the target made of it.
struct CycleSample {
    double surrogate = 0;  ///< sum of rho over the tree, root included
    int committed = 0;     ///< accepted nodes, root included
};

/// 0 for no values and where one is not positive.
double geometric_mean(std::span<const double> values);

/// Pearson's correlation of promised and committed length; nothing if one of them never varies.
std::optional<double> pearson(std::span<const CycleSample> samples);

/// [from, to) tokens.
struct ContextRange {
    int from = 0, to = 0;
};

/// The range of a context: up to 256, then up to four times as much each: 1024, 4096, 16384, ...
ContextRange context_range(int tokens);

/// What a fixed budget took for each prompt of a set.
struct FixedBudget {
    int nodes = 0;
    std::vector<Timed> prompts;
};

/// The best fixed budget of a set. Choosing it by the same times that it is credited with would flatter it, so it is
/// chosen on one half of the prompts and timed on the other, both ways round.
struct Oracle {
    struct Half {
        int nodes = 0;  ///< chosen on the other half
        Timed timed;    ///< on this one
    };
    std::array<Half, 2> halves;  ///< prompts at even places, at odd places
    int hindsight_nodes = 0;     ///< chosen on all prompts
    Timed hindsight;             ///< and timed on the same

    /// Both halves: every prompt with a budget that was chosen without it.
    Timed timed() const;
};

/// Nothing for less than two budgets or two prompts. Of equally fast budgets the first counts. Requires the same number
/// of prompts for every budget.
std::optional<Oracle> find_oracle(std::span<const FixedBudget> budgets);

}  // namespace bastion::cli
