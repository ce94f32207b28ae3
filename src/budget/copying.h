// How far text copied from earlier on is to be trusted, beside the drafter or alone.
#pragma once

#include <array>

#include "base/types.h"

namespace bastion {

/// The weight w_e of a copy in the mixture
///     p(t) = w_e [t is the copied token] + (1 - w_e) q(t)
/// by its evidence e, where q is the drafter's probability: the chance that the text repeats itself beyond what the
/// drafter knew, or, where nothing is drafted (q = 0), the chance that it repeats itself at all. Learned online by
/// expectation-maximisation: an outcome counts as the copy's doing with its posterior probability
/// w [hit] / (w [hit] + (1 - w) q). Each kind of support has weights of its own, by the length m of the match: each up
/// to 8, then those up to 10, 12, 16, 24, 32, 48 and 64, and all longer ones, share one.
///
/// Starts, with the shortest m of a weight, from m / (m + c) alone, c = 2 without other occurrences, 0.5 where they
/// confirm, 3 where they are mixed and 7 where they contradict, and from the square of that beside a draft, close to
/// what the embedded target's answers show; held by a prior of 8 outcomes, and of later ones the last few hundred
/// count. As with the drafter's confidence, only what the target drew below a visited node is told. Deterministic in
/// what it is told; changes what is proposed, never what is drawn.
class CopyWeights {
 public:
    enum class Beside { draft, nothing };
    static constexpr int kMost = 65;  ///< longer matches are not told apart

    explicit CopyWeights(Beside beside);

    double weight(const CopyEvidence& evidence) const { return slot(evidence).value; }

    /// After a copy with this evidence the target drew the copied token or another. `q`: the drafter's probability of
    /// the copied one; an outcome whose q is no number is not counted.
    void observe(const CopyEvidence& evidence, double q, bool copied);

 private:
    struct Weight {
        double value = 0.0;
        double outcomes = 0.0;
    };
    static constexpr int kLengths = 16, kSupports = 4;

    static int slot_index(const CopyEvidence& evidence);
    const Weight& slot(const CopyEvidence& evidence) const { return weights_[slot_index(evidence)]; }

    std::array<Weight, kLengths * kSupports> weights_;
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
