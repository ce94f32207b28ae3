// Correcting the drafter's confidence online: what a q said against how often the target then drew that token.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/types.h"

namespace bastion {

/// A drafter trained on other text than it meets is over-confident, the more so the deeper the position: the tree is
/// then deeper and larger than it should be. This learns, for each depth d, the acceptance of an entry with conditional
/// probability q as
///     logit p = a_d + b_d logit q        (Platt scaling)
/// by online Newton steps on the log-loss, starting from the identity (a = 0, b = 1), which a prior of kPrior
/// observations holds against noise. b_d stays positive, so the order of a row never changes.
///
/// Outcomes exist only where the target drew: the row below a visited node. What lies beyond the first rejection was
/// never seen and is not told, so p is the probability given that the path above was accepted, just what rho needs.
/// Deterministic in what it is told; changes what is proposed, never what is drawn.
class ConfidenceCorrection {
 public:
    /// Row `depth` - 1 of `lattice` was below a visited node, and the target drew `drawn` there. Depths count from 1.
    void observe(const Lattice& lattice, int depth, Token drawn);

    /// log p for an entry of log-probability `logprob` at `depth`.
    double corrected(int depth, double logprob) const;

    /// p of `token` at `depth` >= 1, not scaled; 0 if the row lacks it, its entry is no number, or there is no such
    /// row.
    double probability(const Lattice& lattice, int depth, Token token) const;

    /// log p of every entry [depth][width]. A row whose probabilities would sum to more than 1 is scaled to 1.
    std::vector<double> corrected(const Lattice& lattice) const;

 private:
    struct Line {
        double offset = 0.0, slope = 1.0;
        double offset_weight = 0.0, slope_weight = 0.0;  ///< curvature of the loss seen so far, fading
    };
    static constexpr int kDepths = 16;  ///< deeper positions share the last line

    static int index(int depth);

    std::array<Line, kDepths> lines_;
};

}  // namespace bastion
