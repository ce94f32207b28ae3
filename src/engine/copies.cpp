#include "engine/copies.h"

#include <algorithm>

#include "engine/tree_policy.h"

namespace bastion {
namespace {

static_assert(kLongestMatch == CopyWeights::kMost, "every length that is told apart has a weight of its own");

/// Enough for whole lines; of a copy that ends later the next cycle knows as well.
constexpr int kLongestCopy = 32;

}  // namespace

Continuation Copies::find(std::span<const Token> text, int most) { return look_up(text, std::min(most, kLongestCopy)); }

CopiedPath Copies::path(const Continuation& copy, int rows) const {
    CopiedPath path{copy.tokens, {}};
    for (int i = 0; i < std::ssize(copy.tokens); ++i) {
        path.weights.push_back((i < rows ? beside_draft_ : alone_).weight(copy.evidence[i]));
    }
    return path;
}

CopyOffer Copies::offer(const Continuation& copy, Token root, const LatencyModel& latency, int context, int max_depth,
                        int max_nodes) const {
    BudgetSearch search(latency, {{context, 1}}, /*drafting=*/0, 1.0, max_nodes);
    const Lattice nothing;
    TreeBuilder builder(nothing, root, max_depth, path(copy, 0));
    CopyOffer offer;
    offer.nodes = grow(builder, search, max_nodes);
    offer.surrogate = builder.take(offer.nodes).surrogate;
    offer.cycle_ms = search.predicted_cycle_ms();
    if (offer.nodes > 1) offer.weight = alone_.weight(copy.evidence.front());
    return offer;
}

void Copies::learn(const Continuation& copy, const Lattice& lattice, const ConfidenceCorrection& confidence,
                   std::span<const Token> drawn) {
    bool hit = true;
    for (int i = 0; hit && i < std::ssize(copy.tokens) && i < std::ssize(drawn); ++i) {
        hit = drawn[i] == copy.tokens[i];
        alone_.observe(copy.evidence[i], 0.0, hit);
        if (i >= lattice.depth) continue;
        beside_draft_.observe(copy.evidence[i], confidence.probability(lattice, i + 1, copy.tokens[i]), hit);
    }
}

}  // namespace bastion
