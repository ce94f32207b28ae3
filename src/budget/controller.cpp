#include "budget/controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bastion {
namespace {

constexpr double kLatencyAlpha = 0.1;
constexpr double kFarthestRatio = 1e6;  // of observed to predicted; beyond it a clock or a profile is broken

/// No pass is believed to take less than this share of the roofline, nor less than a nanosecond.
constexpr double kLeastShareOfRoofline = 1e-3;
constexpr double kLeastMs = 1e-6;

constexpr int kFreeDrafts = 4;
constexpr double kGainAlpha = 0.2, kProbeAlpha = 0.5;
constexpr int kFirstProbe = 8, kProbeCap = 16;

double believable(double predicted_ms, double bare_ms) {
    const double floor = std::isfinite(bare_ms) ? std::max(kLeastShareOfRoofline * bare_ms, kLeastMs) : kLeastMs;
    return std::isfinite(predicted_ms) ? std::max(predicted_ms, floor) : floor;
}

bool learns(ControllerKind kind) { return kind == ControllerKind::ema || kind == ControllerKind::ema_fixed_fit; }

}  // namespace

LatencyModel::LatencyModel(Profile profile, ControllerKind kind)
    : profile_(std::move(profile)), kind_(kind), curve_(profile_.grid) {}

/// The prediction before gamma.
double LatencyModel::uncorrected_ms(int rows, int context) const {
    const double bare = roofline_ms(profile_.shape, profile_.peak, rows, context);
    if (kind_ == ControllerKind::ema) return believable(bare, bare);
    if (kind_ == ControllerKind::curve && !curve_.empty()) return believable(curve_.at(rows, context), bare);
    return believable(profile_.fit.a * bare + profile_.fit.b, bare);
}

double LatencyModel::verify_ms(int rows, int context) const {
    return gamma_ * uncorrected_ms(std::max(rows, 1), std::max(context, 0));
}

void LatencyModel::observe_verify(int rows, int context, double measured_ms) {
    if (!learns(kind_) || !std::isfinite(measured_ms) || measured_ms <= 0) return;
    const double ratio = measured_ms / uncorrected_ms(std::max(rows, 1), std::max(context, 0));
    gamma_ = (1 - kLatencyAlpha) * gamma_ + kLatencyAlpha * std::clamp(ratio, 1 / kFarthestRatio, kFarthestRatio);
}

BudgetSearch::BudgetSearch(const LatencyModel& latency, int context, int max_nodes, int other_rows)
    : latency_(&latency),
      context_(context),
      max_nodes_(max_nodes),
      other_rows_(std::max(other_rows, 0)),
      plain_ms_(latency.verify_ms(1 + other_rows_, context)),
      best_(evaluate(1, 1.0)) {}

BudgetSearch::Candidate BudgetSearch::evaluate(int nodes, double surrogate) const {
    const double verify = latency_->verify_ms(nodes + other_rows_, context_);
    const double cycle = latency_->draft_ms() + verify + latency_->aux_ms();
    return {nodes, surrogate * plain_ms_ / cycle, cycle, verify};
}

bool BudgetSearch::offer(double rho) {
    if (stopped_ || nodes_ >= max_nodes_) return false;
    const double surrogate = surrogate_ + (rho > 0 ? rho : 0.0);
    const Candidate next = evaluate(nodes_ + 1, surrogate);
    if (latency_->kind() == ControllerKind::curve) {
        if (next.speedup > best_.speedup) best_ = next;
    } else if (next.speedup < best_.speedup) {
        stopped_ = true;
        return false;
    } else {
        best_ = next;
    }
    ++nodes_;
    surrogate_ = surrogate;
    return true;
}

bool DraftSwitch::should_draft() {
    if (!off_) return true;
    if (undrafted_ >= interval_) {
        undrafted_ = 0;
        return true;
    }
    ++undrafted_;
    return false;
}

void DraftSwitch::observe_drafted(int emitted, double cycle_ms, double plain_ms) {
    const double realised = emitted * plain_ms / cycle_ms;
    if (!std::isfinite(realised)) return;
    const double weight = off_ ? kProbeAlpha : kGainAlpha;
    gain_ += weight * (realised - gain_);
    drafted_ = std::min(drafted_ + 1, kFreeDrafts);
    adapt_probing(realised);
}

void DraftSwitch::adapt_probing(double realised) {
    const bool was_off = off_;
    off_ = drafted_ >= kFreeDrafts && gain_ < 1;
    if (!off_) return;
    undrafted_ = 0;
    if (!was_off) {
        interval_ = kFirstProbe;
    } else if (realised >= 1) {
        interval_ = 0;
    } else {
        // A probe that disappoints right after a promising one starts over from the first interval.
        interval_ = std::clamp(2 * interval_, kFirstProbe, kProbeCap);
    }
}

}  // namespace bastion
