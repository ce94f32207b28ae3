// How far text copied from earlier on is to be trusted, beside the drafter or alone.
#pragma once

#include <array>

namespace bastion {

/// The weight w_m of a copy in the mixture
///     p(t) = w_m [t is the copied token] + (1 - w_m) q(t)
/// after m equal tokens, where q is the drafter's probability: the chance that the text repeats itself beyond what the
/// drafter knew, or, where nothing is drafted (q = 0), the chance that it repeats itself at all. Learned online by
/// expectation-maximisation: an outcome counts as the copy's doing with its posterior probability
/// w [hit] / (w [hit] + (1 - w) q). Matches of kMost and more share a weight.
///
/// Starts from (m - 0.5) / (m + 3) beside a draft and m / (m + 2) alone, held by a prior of 8 outcomes; of later ones
/// the last few hundred count. As with the drafter's confidence, only what the target drew below a visited node is
/// told. Deterministic in what it is told; changes what is proposed, never what is drawn.
class CopyWeights {
 public:
    enum class Beside { draft, nothing };
    static constexpr int kMost = 16;

    explicit CopyWeights(Beside beside);

    /// w_m for m = `matched` >= 1.
    double weight(int matched) const { return weights_[index(matched)].value; }

    /// After `matched` equal tokens the target drew a token: the copied one or another. `q`: the drafter's probability
    /// of the copied one; an outcome whose q is no number is not counted.
    void observe(int matched, double q, bool copied);

 private:
    struct Weight {
        double value = 0.0;
        double outcomes = 0.0;
    };

    static int index(int matched);

    std::array<Weight, kMost> weights_;
};

/// The best tree of a copy alone; as it is: a plain step.
struct CopyOffer {
    int nodes = 1;
    double surrogate = 1;  ///< A-hat
    double cycle_ms = 0;   ///< C-hat, without a draft
    double weight = 0;     ///< of its first token
};

/// Whether a cycle does better with this tree than with a draft of `draft_ms`. What drafted cycles bring beyond copies,
/// `drafted_tokens` on average, could come on top only where the copy fails, so drafting loses if
///     A-hat / C-hat >= (A-hat + (1 - w) (drafted_tokens - 1)) / (C-hat + draft_ms).
bool copy_beats_draft(const CopyOffer& copy, double draft_ms, double drafted_tokens);

}  // namespace bastion
