#include "budget/copying.h"

#include <algorithm>
#include <cmath>

namespace bastion {
namespace {

constexpr double kPrior = 8.0;
constexpr double kMemory = 300.0;  // outcomes
constexpr double kLeast = 0.01, kGreatest = 0.99;

}  // namespace

CopyWeights::CopyWeights(Beside beside) {
    for (int m = 1; m <= kMost; ++m) {
        weights_[index(m)] = {beside == Beside::draft ? (m - 0.5) / (m + 3) : m / (m + 2.0), kPrior};
    }
}

int CopyWeights::index(int matched) { return std::clamp(matched, 1, kMost) - 1; }

void CopyWeights::observe(int matched, double q, bool copied) {
    if (!std::isfinite(q)) return;
    Weight& w = weights_[index(matched)];
    const double credit = copied ? w.value / (w.value + (1 - w.value) * std::clamp(q, 0.0, 1.0)) : 0.0;
    w.outcomes = std::min(w.outcomes + 1, kMemory);
    w.value = std::clamp(w.value + (credit - w.value) / w.outcomes, kLeast, kGreatest);
}

bool copy_beats_draft(const CopyOffer& copy, double draft_ms, double drafted_tokens) {
    const double more = (1 - copy.weight) * std::max(drafted_tokens - 1, 0.0);
    return copy.surrogate * draft_ms >= more * copy.cycle_ms;
}

}  // namespace bastion
