// Best-first prefix trees over a lattice (paper sections 3.1-3.3), and the chain and beam shapes they are compared
// with.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace bastion {

/// Grows nested trees T_1, T_2, ... one node at a time. The order is total and depends on the lattice alone: larger
/// rho first, then smaller depth, then the smaller ranks along the path (compared from the root). Each T_N maximises
/// A-hat among the prefix-closed trees of size N (Proposition 3.3).
/// Entries whose log-probability is -inf or NaN bring nothing (rho = 0) and are never proposed.
/// The lattice must outlive the builder. Not thread-safe; one builder a request.
class TreeBuilder {
 public:
    /// Starts with T_1 = {root}. `max_depth` cuts the lattice (-1: all of it); nothing below it is ever proposed.
    TreeBuilder(const Lattice& lattice, Token root, int max_depth = -1);

    /// The same with `logprobs` [depth][width] in place of the lattice's own, for callers that hold them in double
    /// precision. `logprobs` must outlive the builder.
    TreeBuilder(const Lattice& lattice, std::span<const double> logprobs, Token root, int max_depth = -1);

    /// log rho of the node that `grow` would add; nothing when the lattice is exhausted.
    std::optional<double> next_logprob() const;

    /// Adds that node. Requires next_logprob().
    void grow();

    const Tree& tree() const { return tree_; }

    /// Hands the tree over, cut to its first `nodes` nodes (at least the root stays); the builder is spent.
    Tree take(int nodes);

 private:
    double entry(int row, int rank) const;
    void propose(std::int32_t parent, int first_rank);

    const Lattice* lattice_;
    std::span<const double> logprobs_;  // empty: those of the lattice
    int max_depth_;
    Tree tree_;
    std::vector<Node> heap_;  // candidates whose parent is in the tree; the front is the next node
};

/// T_budget, or the largest tree the lattice has if that is smaller. budget >= 1.
Tree build_best_first(const Lattice& lattice, Token root, int budget, int max_depth = -1);

/// The root and the top-1 token of every position: what DFlash verifies.
Tree build_chain(const Lattice& lattice, Token root, int max_depth = -1);

/// The `width` best extensions kept at every depth down to `depth` (paper section 4.3); same order for ties.
/// Nodes are inserted depth by depth, best first.
Tree build_beam(const Lattice& lattice, Token root, int width, int depth);

/// Number of nodes of the largest tree of this lattice, root included, saturating at `limit`.
int lattice_capacity(const Lattice& lattice, int max_depth, int limit);

}  // namespace bastion
