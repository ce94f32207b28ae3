#include "budget/confidence.h"

#include <algorithm>
#include <cmath>

namespace bastion {
namespace {

constexpr double kPrior = 4.0;     // curvature the start is worth: 16 entries at even odds
constexpr double kFade = 0.998;    // an observation's weight halves after about 350 more
constexpr double kFarthest = 8.0;  // |logit| beyond which entries say nothing about the line
constexpr double kLeastSlope = 0.2, kMostSlope = 3.0;

double logit(double logprob) {
    const double q = std::exp(std::min(logprob, 0.0));
    return std::clamp(std::log(q) - std::log1p(-q), -kFarthest, kFarthest);
}

double log_sigmoid(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }

}  // namespace

int ConfidenceCorrection::index(int depth) { return std::clamp(depth, 1, kDepths) - 1; }

void ConfidenceCorrection::observe(const Lattice& lattice, int depth, Token drawn) {
    Line& l = lines_[index(depth)];
    for (int rank = 0; rank < lattice.width; ++rank) {
        const double logprob = lattice.logprob(depth - 1, rank);
        if (!std::isfinite(logprob)) continue;
        const double x = logit(logprob);
        const double p = std::exp(log_sigmoid(l.offset + l.slope * x));
        const double gradient = p - (lattice.token(depth - 1, rank) == drawn ? 1.0 : 0.0);
        const double curvature = p * (1.0 - p);
        l.offset_weight = kFade * l.offset_weight + curvature;
        l.slope_weight = kFade * l.slope_weight + curvature * x * x;
        // The slope's prior is in units of logit squared, so that both start equally firm.
        l.offset -= gradient / (kPrior + l.offset_weight);
        l.slope -= gradient * x / (kPrior * kFarthest + l.slope_weight);
        l.slope = std::clamp(l.slope, kLeastSlope, kMostSlope);
    }
}

double ConfidenceCorrection::corrected(int depth, double logprob) const {
    if (!std::isfinite(logprob)) return logprob;
    const Line& l = lines_[index(depth)];
    if (l.offset_weight == 0.0) return logprob;  // nothing seen yet: exactly the drafter's own
    return log_sigmoid(l.offset + l.slope * logit(logprob));
}

double ConfidenceCorrection::probability(const Lattice& lattice, int depth, Token token) const {
    for (int rank = 0; depth <= lattice.depth && rank < lattice.width; ++rank) {
        if (lattice.token(depth - 1, rank) != token) continue;
        const double logprob = corrected(depth, lattice.logprob(depth - 1, rank));
        return std::isnan(logprob) ? 0.0 : std::exp(logprob);
    }
    return 0.0;
}

std::vector<double> ConfidenceCorrection::corrected(const Lattice& lattice) const {
    std::vector<double> out;
    out.reserve(lattice.logprobs.size());
    for (int row = 0; row < lattice.depth; ++row) {
        double sum = 0.0;
        for (int rank = 0; rank < lattice.width; ++rank) {
            out.push_back(corrected(row + 1, lattice.logprob(row, rank)));
            if (std::isfinite(out.back())) sum += std::exp(out.back());
        }
        if (lines_[index(row + 1)].offset_weight > 0.0 && sum > 1.0) {
            for (int rank = 0; rank < lattice.width; ++rank) out[out.size() - 1 - rank] -= std::log(sum);
        }
    }
    return out;
}

}  // namespace bastion
