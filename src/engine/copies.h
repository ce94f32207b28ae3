// Copies of earlier text in trees: finding them, how far they are trusted, and what they promise without a draft.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "budget/confidence.h"
#include "budget/controller.h"
#include "budget/copying.h"
#include "tree/build.h"
#include "tree/lookup.h"

namespace bastion {

/// One for all sessions of an engine: what is learned from one text is used for all. Not thread-safe.
class Copies {
 public:
    /// How `text` would go on if it repeated itself, at most `most` tokens.
    static Continuation find(std::span<const Token> text, int most);

    /// `copy` as a path beside a lattice of `rows` rows (0: nothing was drafted).
    CopiedPath path(const Continuation& copy, int rows) const;

    /// The best tree of a copy alone below `root`, at `context` committed tokens and within the room that `max_depth`
    /// and `max_nodes` leave; a plain step where no node pays.
    CopyOffer offer(const Continuation& copy, Token root, const LatencyModel& latency, int context, int max_depth,
                    int max_nodes) const;

    /// Tells what the target drew at the root and below it, in order, beside `lattice` (empty if nothing was drafted).
    void learn(const Continuation& copy, const Lattice& lattice, const ConfidenceCorrection& confidence,
               std::span<const Token> drawn);

 private:
    CopyWeights beside_draft_{CopyWeights::Beside::draft}, alone_{CopyWeights::Beside::nothing};
};

}  // namespace bastion
