#include "cli/bench_stats.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace bastion::cli {

namespace {

enum class Part { even, odd, all };

Timed sum(const FixedBudget& budget, Part part) {
    Timed total;
    for (std::size_t i = 0; i < budget.prompts.size(); ++i) {
        if (part == Part::all || (part == Part::odd) == (i % 2 == 1)) total.add(budget.prompts[i]);
    }
    return total;
}

const FixedBudget& fastest(std::span<const FixedBudget> budgets, Part part) {
    return *std::max_element(budgets.begin(), budgets.end(), [part](const FixedBudget& a, const FixedBudget& b) {
        return sum(a, part).per_s() < sum(b, part).per_s();
    });
}

}  // namespace

void Timed::add(const Timed& other) {
    tokens += other.tokens;
    seconds += other.seconds;
}

double geometric_mean(std::span<const double> values) {
    if (values.empty()) return 0;
    double logs = 0;
    for (const double value : values) {
        if (!(value > 0)) return 0;
        logs += std::log(value);
    }
    return std::exp(logs / static_cast<double>(values.size()));
}

std::optional<double> pearson(std::span<const CycleSample> samples) {
    if (samples.empty()) return {};
    const double count = static_cast<double>(samples.size());
    double mean_x = 0, mean_y = 0;
    for (const CycleSample& s : samples) {
        mean_x += s.surrogate / count;
        mean_y += s.committed / count;
    }
    double xx = 0, yy = 0, xy = 0;
    for (const CycleSample& s : samples) {
        const double x = s.surrogate - mean_x, y = s.committed - mean_y;
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    // What rounding of the means leaves of a constant is no variation.
    const double nothing = 1e-18 * count * (mean_x * mean_x + mean_y * mean_y);
    if (xx <= nothing || yy <= nothing) return {};
    return xy / std::sqrt(xx * yy);
}

ContextRange context_range(int tokens) {
    std::int64_t from = 0, to = 256;
    while (tokens >= to) {
        from = to;
        to *= 4;
    }
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    return {static_cast<int>(from), static_cast<int>(std::min(to, kMost))};
}

Timed Oracle::timed() const {
    Timed both = halves[0].timed;
    both.add(halves[1].timed);
    return both;
}

std::optional<Oracle> find_oracle(std::span<const FixedBudget> budgets) {
    if (budgets.size() < 2 || budgets.front().prompts.size() < 2) return {};
    const FixedBudget& for_even = fastest(budgets, Part::odd);
    const FixedBudget& for_odd = fastest(budgets, Part::even);
    const FixedBudget& in_hindsight = fastest(budgets, Part::all);
    Oracle oracle;
    oracle.halves[0] = {for_even.nodes, sum(for_even, Part::even)};
    oracle.halves[1] = {for_odd.nodes, sum(for_odd, Part::odd)};
    oracle.hindsight_nodes = in_hindsight.nodes;
    oracle.hindsight = sum(in_hindsight, Part::all);
    return oracle;
}

}  // namespace bastion::cli
