// Plain data that the stages hand to each other: lattice -> tree -> verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bastion/token.h"

namespace bastion {

/// The drafter's top-K tokens for each of the next positions (paper section 3.1: marginals, independent by position).
/// Row d (0-based) belongs to tree depth d+1. Each row is sorted: higher log-probability first, then smaller id.
struct Lattice {
    int depth = 0;                ///< number of rows, at most block_size - 1
    int width = 0;                ///< K, entries a row
    std::vector<Token> tokens;    ///< [depth][width]
    std::vector<float> logprobs;  ///< [depth][width], log q_k(v), normalised over the full (reduced) vocabulary

    Token token(int row, int rank) const { return tokens[static_cast<std::size_t>(row) * width + rank]; }
    float logprob(int row, int rank) const { return logprobs[static_cast<std::size_t>(row) * width + rank]; }
};

/// What other earlier occurrences of (nearly) the same words say about a copied token.
enum class Support {
    none,          ///< there are no others
    confirmed,     ///< all go on with the same token
    mixed,         ///< some do
    contradicted,  ///< none does
};

/// What speaks for a copied token.
struct CopyEvidence {
    int matched = 0;  ///< tokens before it that equal those before its source
    Support support = Support::none;
};

/// The rank of a node that continues a copy of earlier text (tree/lookup.h).
inline constexpr std::int32_t kCopied = -1;

/// One node of a draft tree. The root is the anchor: depth 0, parent -1, logprob 0.
struct Node {
    Token token = -1;
    std::int32_t parent = -1;  ///< index into Tree::nodes, always smaller than the node's own index
    std::int32_t depth = 0;
    std::int32_t rank = 0;  ///< which entry of its lattice row, or kCopied
    double logprob = 0.0;   ///< log rho: sum of log p along the path
};

/// A prefix-closed tree in insertion order; its first M nodes form the tree of size M (paper, Proposition 3.3).
struct Tree {
    std::vector<Node> nodes;
    double surrogate = 0.0;  ///< expected committed length A-hat = sum of rho over the nodes, root included

    int size() const { return static_cast<int>(nodes.size()); }
};

/// What the target made of a tree.
struct Verdict {
    std::vector<std::int32_t> accepted;  ///< accepted nodes, root first, each the parent of the next
    std::vector<Token> emitted;          ///< tokens drawn at them; the last one has no node and is the next anchor
};

}  // namespace bastion
