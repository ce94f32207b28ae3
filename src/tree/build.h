// Best-first prefix trees over a lattice (paper sections 3.1-3.3), and the chain and beam shapes they are compared
// with.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace bastion {

/// A path from the root that the text itself suggests, beside the lattice. Below a node of this path the token
/// tokens[depth] has probability w + (1 - w) q, where w = weights[depth] and q is the lattice's, and every other token
/// (1 - w) q. Off the path, and with no tokens, the lattice alone counts.
struct CopiedPath {
    std::vector<Token> tokens;    ///< [length]; may be longer than the lattice is deep
    std::vector<double> weights;  ///< [length], each in 0 .. 1
};

/// Grows nested trees T_1, T_2, ... one node at a time. The order is total and depends on lattice and copied path
/// alone: larger rho first, then smaller depth, then the smaller ranks along the path (compared from the root; a copied
/// node's is kCopied). Each T_N maximises A-hat among the prefix-closed trees of size N (Proposition 3.3, whose proof
/// needs no more than that rho does not grow along a path). Entries whose log-probability is -inf or NaN bring nothing
/// (rho = 0) and are never proposed. The lattice must outlive the builder. Not thread-safe; one builder a request.
class TreeBuilder {
 public:
    /// Starts with T_1 = {root}. `max_depth` cuts the lattice and the copied path (-1: all of them); nothing below it
    /// is ever proposed.
    TreeBuilder(const Lattice& lattice, Token root, int max_depth = -1, CopiedPath copied = {});

    /// The same with `logprobs` [depth][width] in place of the lattice's own, for callers that hold them in double
    /// precision. `logprobs` must outlive the builder.
    TreeBuilder(const Lattice& lattice, std::span<const double> logprobs, Token root, int max_depth = -1,
                CopiedPath copied = {});

    /// log rho of the node that `grow` would add; nothing when lattice and copied path are exhausted.
    std::optional<double> next_logprob() const;

    /// Adds that node. Requires next_logprob().
    void grow();

    const Tree& tree() const { return tree_; }

    /// Hands the tree over, cut to its first `nodes` nodes (at least the root stays); the builder is spent.
    Tree take(int nodes);

 private:
    double entry(int row, int rank) const;
    bool has_copy_below(std::int32_t node) const;
    void propose(std::int32_t parent, int first_rank);
    void propose_copy(std::int32_t parent);
    void push(const Node& candidate);

    const Lattice* lattice_;
    std::span<const double> logprobs_;  // empty: those of the lattice
    int rows_;                          // of the lattice that are used
    CopiedPath copied_;
    Tree tree_;
    std::vector<Node> heap_;  // candidates whose parent is in the tree; the front is the next node
};

/// T_budget, or the largest tree there is if that is smaller. budget >= 1.
Tree build_best_first(const Lattice& lattice, Token root, int budget, int max_depth = -1, CopiedPath copied = {});

/// The root and the top-1 token of every position: what DFlash verifies.
Tree build_chain(const Lattice& lattice, Token root, int max_depth = -1);

/// The `width` best extensions kept at every depth down to `depth` (paper section 4.3); same order for ties.
/// Nodes are inserted depth by depth, best first.
Tree build_beam(const Lattice& lattice, Token root, int width, int depth);

}  // namespace bastion
