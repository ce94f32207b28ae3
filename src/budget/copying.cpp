#include "budget/copying.h"

#include <algorithm>
#include <cmath>

namespace bastion {
namespace {

constexpr double kPrior = 8.0;
constexpr double kMemory = 300.0;  // outcomes
constexpr double kLeast = 0.01, kGreatest = 0.998;
/// The shortest match of each weight.
constexpr std::array kLengthsFrom = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25, 33, 49, CopyWeights::kMost};

double doubt(Support support) {
    switch (support) {
        case Support::none:
            return 2.0;
        case Support::confirmed:
            return 0.5;
        case Support::mixed:
            return 3.0;
        case Support::contradicted:
            return 7.0;
    }
    return 7.0;
}

}  // namespace

CopyWeights::CopyWeights(Beside beside) {
    static_assert(kLengthsFrom.size() == kLengths);
    for (int support = 0; support < kSupports; ++support) {
        const auto kind = static_cast<Support>(support);
        for (const int m : kLengthsFrom) {
            const double alone = m / (m + doubt(kind));
            weights_[slot_index({m, kind})] = {beside == Beside::draft ? alone * alone : alone, kPrior};
        }
    }
}

int CopyWeights::slot_index(const CopyEvidence& evidence) {
    const auto longer = std::ranges::upper_bound(kLengthsFrom, evidence.matched);
    const auto length = std::max<std::ptrdiff_t>(longer - kLengthsFrom.begin() - 1, 0);
    return static_cast<int>(evidence.support) * kLengths + static_cast<int>(length);
}

void CopyWeights::observe(const CopyEvidence& evidence, double q, bool copied) {
    if (!std::isfinite(q)) return;
    Weight& w = weights_[slot_index(evidence)];
    const double credit = copied ? w.value / (w.value + (1 - w.value) * std::clamp(q, 0.0, 1.0)) : 0.0;
    w.outcomes = std::min(w.outcomes + 1, kMemory);
    w.value = std::clamp(w.value + (credit - w.value) / w.outcomes, kLeast, kGreatest);
}

bool copy_beats_draft(const CopyOffer& copy, double draft_ms, double drafted_tokens) {
    const double more = (1 - copy.weight) * std::max(drafted_tokens - 1, 0.0);
    return copy.surrogate * draft_ms >= more * copy.cycle_ms;
}

}  // namespace bastion
