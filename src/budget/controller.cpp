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
constexpr double kGainAlpha = 0.1, kProbeAlpha = 0.5;
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
double LatencyModel::uncorrected_ms(const PassLoad& load) const {
    const double bare = roofline_ms(profile_.shape, profile_.peak, load);
    if (kind_ == ControllerKind::ema) return believable(bare, bare);
    if (kind_ == ControllerKind::curve && !curve_.empty()) {
        const double context = load.attended / load.rows;
        return believable(curve_.at(load.rows, context) + other_caches_ms(load, context), bare);
    }
    return believable(profile_.fitted_ms(load), bare);
}

/// Reading the caches of all requests beyond one of `context`, which is what the curve was measured with.
double LatencyModel::other_caches_ms(const PassLoad& load, double context) const {
    if (load.cached <= context) return 0.0;
    PassLoad others;
    others.cached = load.cached - context;
    return profile_.parts.caches_ms(profile_.shape, profile_.peak, others);
}

double LatencyModel::verify_ms(const PassLoad& load) const { return gamma_ * uncorrected_ms(load); }

double LatencyModel::verify_ms(int rows, int context) const {
    return verify_ms({std::max(rows, 1), std::max(context, 0)});
}

double LatencyModel::draft_ms(int requests) const {
    return requests < 1 ? 0.0 : profile_.draft_ms + (requests - 1) * profile_.draft_more_ms;
}

void LatencyModel::observe_verify(const PassLoad& load, double measured_ms) {
    if (!learns(kind_) || !std::isfinite(measured_ms) || measured_ms <= 0) return;
    const double ratio = measured_ms / uncorrected_ms(load);
    gamma_ = (1 - kLatencyAlpha) * gamma_ + kLatencyAlpha * std::clamp(ratio, 1 / kFarthestRatio, kFarthestRatio);
}

BudgetSearch::BudgetSearch(const LatencyModel& latency, int context, int max_nodes)
    : BudgetSearch(latency, {{context, 1}}, 1, 1.0, max_nodes) {}

BudgetSearch::BudgetSearch(const LatencyModel& latency, std::vector<PassPart> parts, int drafting, double surrogate,
                           int max_nodes, const CycleCost& factors)
    : latency_(&latency),
      parts_(std::move(parts)),
      max_nodes_(max_nodes),
      factors_(factors),
      fixed_ms_(factors.draft * (latency.draft_ms(drafting) + latency.aux_ms(drafting))),
      surrogate_(surrogate) {
    PassLoad plain;
    for (const PassPart& part : parts_) {
        plain.add(1, std::max(part.context, 0));
        load_.add(part.rows, std::max(part.context, 0));
        room_ += std::max(0, max_nodes_ - part.rows);
    }
    plain_pass_ms_ = latency.verify_ms(plain);
    plain_ms_ = factors_.plain * plain_pass_ms_ / static_cast<double>(parts_.size());
    best_ = evaluate();
    cycle_ms_ = best_.cycle_ms;
}

BudgetSearch::Candidate BudgetSearch::evaluate() const {
    const double verify = factors_.ms({plain_pass_ms_, latency_->verify_ms(load_) - plain_pass_ms_, 0});
    const double cycle = fixed_ms_ + verify;
    return {static_cast<int>(load_.rows), surrogate_ * plain_ms_ / cycle, cycle, verify};
}

/// Whether all nodes that may still come, each as likely as the next one and free, would not reach the best.
bool BudgetSearch::hopeless(double rho) const {
    return (surrogate_ + std::max(rho, 0.0) * static_cast<double>(room_)) * plain_ms_ <= best_.speedup * cycle_ms_;
}

bool BudgetSearch::offer(double rho, int part) {
    PassPart& grown = parts_[part];
    if (stopped_ || grown.rows >= max_nodes_) return false;
    if (latency_->kind() == ControllerKind::curve && hopeless(rho)) {
        stopped_ = true;
        return false;
    }
    load_.add_row(grown.rows, std::max(grown.context, 0));
    surrogate_ += rho > 0 ? rho : 0.0;
    const Candidate next = evaluate();
    cycle_ms_ = next.cycle_ms;
    --room_;
    if (latency_->kind() == ControllerKind::curve) {
        if (next.speedup > best_.speedup) best_ = next;
    } else if (next.speedup < best_.speedup) {
        stopped_ = true;
        return false;
    } else {
        best_ = next;
    }
    ++grown.rows;
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

void DraftSwitch::observe_drafted(int emitted, double cycle_ms, double undrafted_token_ms) {
    const double realised = emitted * undrafted_token_ms / cycle_ms;
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
