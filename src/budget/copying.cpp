#include "budget/copying.h"

#include <algorithm>

namespace bastion {
namespace {

constexpr double kPrior = 8.0;
constexpr double kMemory = 300.0;  // outcomes
constexpr double kLeast = 0.01, kGreatest = 0.99;

}  // namespace

CopyWeights::CopyWeights() {
    for (int m = 1; m <= kMost; ++m) weights_[index(m)] = {(m - 0.5) / (m + 3), kPrior};
}

int CopyWeights::index(int matched) { return std::clamp(matched, 1, kMost) - 1; }

std::vector<double> CopyWeights::along(int matched, int count) const {
    std::vector<double> out;
    out.reserve(count);
    for (int i = 0; i < count; ++i) out.push_back(weight(matched + i));
    return out;
}

void CopyWeights::observe(int matched, double q, bool copied) {
    Weight& w = weights_[index(matched)];
    const double credit = copied ? w.value / (w.value + (1 - w.value) * std::clamp(q, 0.0, 1.0)) : 0.0;
    w.outcomes = std::min(w.outcomes + 1, kMemory);
    w.value = std::clamp(w.value + (credit - w.value) / w.outcomes, kLeast, kGreatest);
}

}  // namespace bastion
