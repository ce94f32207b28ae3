// How far text copied from earlier on is to be trusted, beside the drafter.
#pragma once

#include <array>
#include <vector>

namespace bastion {

/// The weight w_m of a copy in the mixture
///     p(t) = w_m [t is the copied token] + (1 - w_m) q(t)
/// after m equal tokens, where q is the drafter's probability (0 where nothing was drafted): the chance that the text
/// repeats itself beyond what the drafter knew. Learned online by expectation-maximisation: an outcome counts as the
/// copy's doing with its posterior probability w [hit] / (w [hit] + (1 - w) q). Matches of kMost and more share a
/// weight.
///
/// Starts from (m - 0.5) / (m + 3), held by a prior of kPrior outcomes; of later ones the last few hundred count.
/// As with the drafter's confidence, only what the target drew below a visited node is told. Deterministic in what it
/// is told; changes what is proposed, never what is drawn.
class CopyWeights {
 public:
    CopyWeights();

    /// w_m for m = `matched` >= 1.
    double weight(int matched) const { return weights_[index(matched)].value; }

    /// The weights along a copied path of `count` tokens: each accepted token makes the match one longer.
    std::vector<double> along(int matched, int count) const;

    /// After `matched` equal tokens the target drew a token: the copied one or another. `q`: the drafter's probability
    /// of the copied one.
    void observe(int matched, double q, bool copied);

 private:
    struct Weight {
        double value = 0.0;
        double outcomes = 0.0;
    };
    static constexpr int kMost = 16;

    static int index(int matched);

    std::array<Weight, kMost> weights_;
};

}  // namespace bastion
