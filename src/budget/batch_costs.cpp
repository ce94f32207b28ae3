#include "budget/batch_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bastion {
namespace {

constexpr double kKept = 0.98;          // of the sums of undrafted cycles, a cycle
constexpr double kRowsPrior = 0.3;      // weight of (rows - plain)^2, in cycles
constexpr double kPlainPrior = 0.1;     // weight of (plain - 1)^2
constexpr double kDraftKept = 0.9;      // of the sums of drafted cycles
constexpr double kSurprise = 2;         // a cycle counts as this much dearer or cheaper than expected at most
constexpr double kFarthestPlain = 100;  // beyond it a clock is broken
constexpr double kFarthestRest = 5;     // the same for differences of two times, in plain factors or 1

}  // namespace

CycleCost BatchCosts::Sums::factors() const {
    const double pp = n + kRowsPrior + kPlainPrior, pr = x - kRowsPrior, rr = xx + kRowsPrior;
    const double pt = t + kPlainPrior, rt = xt, determinant = pp * rr - pr * pr;
    CycleCost factors;
    factors.plain = std::clamp((pt * rr - rt * pr) / determinant, 1 / kFarthestPlain, kFarthestPlain);
    factors.rows =
        std::clamp((rt - factors.plain * pr) / rr, factors.plain / kFarthestRest, factors.plain * kFarthestRest);
    if (draft_predicted_ms > 0) {
        factors.draft = std::clamp(draft_ms / draft_predicted_ms, 1 / kFarthestRest, kFarthestRest);
    }
    return factors;
}

void BatchCosts::Sums::add_undrafted(double x_now, double t_now) {
    for (double* sum : {&n, &x, &xx, &t, &xt}) *sum *= kKept;
    n += 1;
    x += x_now;
    xx += x_now * x_now;
    t += t_now;
    xt += x_now * t_now;
}

void BatchCosts::Sums::add_drafted(const CycleCost& predicted_ms, double measured_ms) {
    CycleCost rest = factors();
    rest.draft = 0;
    // As if a draft as dear as a plain pass had been seen to cost what is predicted: the first small ones say little.
    if (draft_predicted_ms <= 0) draft_ms = draft_predicted_ms = predicted_ms.plain;
    // One stalled cycle must not outweigh all others.
    const double most = kFarthestRest * predicted_ms.draft;
    draft_ms = kDraftKept * draft_ms + std::clamp(measured_ms - rest.ms(predicted_ms), -most, most);
    draft_predicted_ms = kDraftKept * draft_predicted_ms + predicted_ms.draft;
}

std::size_t BatchCosts::size_class(int requests) {
    return std::min<std::size_t>(std::bit_width(static_cast<unsigned>(std::max(requests, 1))) - 1, kSizes - 1);
}

CycleCost BatchCosts::factors(int requests) const { return sums_[size_class(requests)].factors(); }

void BatchCosts::observe(int requests, const CycleCost& predicted_ms, double measured_ms) {
    const auto usable = [](double ms) { return std::isfinite(ms) && ms > 0; };
    if (!usable(predicted_ms.plain) || !usable(measured_ms) || !std::isfinite(predicted_ms.rows)) return;
    Sums& sums = sums_[size_class(requests)];
    if (usable(predicted_ms.draft)) {
        sums.add_drafted(predicted_ms, measured_ms);
        return;
    }
    const double expected_ms = sums.factors().ms({predicted_ms.plain, predicted_ms.rows, 0});
    const double seen_ms = std::clamp(measured_ms, expected_ms / kSurprise, expected_ms * kSurprise);
    sums.add_undrafted(predicted_ms.rows / predicted_ms.plain, seen_ms / predicted_ms.plain);
}

}  // namespace bastion
