#include "tree/build.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bastion {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

int usable_depth(const Lattice& lattice, int max_depth) {
    return max_depth < 0 ? lattice.depth : std::min(lattice.depth, max_depth);
}

double or_nothing(double logprob) { return std::isnan(logprob) ? kNothing : logprob; }

/// Whether the rank path of `a` is lexicographically smaller than that of `b`. Both have the same depth, and their
/// parents are nodes of `nodes`. Climbing in step, the last difference met is the one nearest to the root.
bool smaller_path(const std::vector<Node>& nodes, const Node& a, const Node& b) {
    bool smaller = a.rank < b.rank;
    std::int32_t pa = a.parent, pb = b.parent;
    while (pa != pb) {
        const Node &na = nodes[pa], &nb = nodes[pb];
        if (na.rank != nb.rank) smaller = na.rank < nb.rank;
        pa = na.parent;
        pb = nb.parent;
    }
    return smaller;
}

/// The total order of nodes: true if `a` comes before `b`.
bool before(const std::vector<Node>& nodes, const Node& a, const Node& b) {
    if (a.logprob != b.logprob) return a.logprob > b.logprob;
    if (a.depth != b.depth) return a.depth < b.depth;
    return smaller_path(nodes, a, b);
}

void append(Tree& tree, const Node& node) {
    tree.nodes.push_back(node);
    tree.surrogate += std::exp(node.logprob);
}

Tree only_root(Token token) {
    Tree tree;
    append(tree, Node{.token = token});
    return tree;
}

}  // namespace

TreeBuilder::TreeBuilder(const Lattice& lattice, Token root, int max_depth, CopiedPath copied)
    : TreeBuilder(lattice, std::span<const double>(), root, max_depth, std::move(copied)) {}

TreeBuilder::TreeBuilder(const Lattice& lattice, std::span<const double> logprobs, Token root, int max_depth,
                         CopiedPath copied)
    : lattice_(&lattice),
      logprobs_(logprobs),
      rows_(usable_depth(lattice, max_depth)),
      copied_(std::move(copied)),
      tree_(only_root(root)) {
    if (max_depth >= 0 && std::cmp_greater(copied_.tokens.size(), max_depth)) copied_.tokens.resize(max_depth);
    propose(0, 0);
    propose_copy(0);
}

double TreeBuilder::entry(int row, int rank) const {
    if (logprobs_.empty()) return or_nothing(lattice_->logprob(row, rank));
    return or_nothing(logprobs_[static_cast<std::size_t>(row) * lattice_->width + rank]);
}

/// Whether a child of `node` would continue the copied path.
bool TreeBuilder::has_copy_below(std::int32_t node) const {
    const Node& n = tree_.nodes[node];
    return (node == 0 || n.rank == kCopied) && std::cmp_less(n.depth, copied_.tokens.size());
}

void TreeBuilder::push(const Node& candidate) {
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(),
                   [this](const Node& a, const Node& b) { return before(tree_.nodes, b, a); });
}

/// Makes the first child of `parent` with rank >= `first_rank` and rho > 0 a candidate, but not the copied token.
void TreeBuilder::propose(std::int32_t parent, int first_rank) {
    const Node& above = tree_.nodes[parent];
    const int row = above.depth;
    if (row >= rows_) return;
    const bool copy = has_copy_below(parent);
    const double share = copy ? std::log1p(-copied_.weights[row]) : 0.0;
    for (int rank = first_rank; rank < lattice_->width; ++rank) {
        const double logprob = or_nothing(above.logprob + share + entry(row, rank));
        if (logprob == kNothing || (copy && lattice_->token(row, rank) == copied_.tokens[row])) continue;
        push({lattice_->token(row, rank), parent, row + 1, rank, logprob});
        return;
    }
}

/// Makes the child of `parent` that continues the copied path a candidate, if there is one and its rho > 0.
void TreeBuilder::propose_copy(std::int32_t parent) {
    if (!has_copy_below(parent)) return;
    const Node& above = tree_.nodes[parent];
    const int row = above.depth;
    const Token token = copied_.tokens[row];
    const double weight = copied_.weights[row];
    double p = weight;
    for (int rank = 0; row < rows_ && rank < lattice_->width; ++rank) {
        if (lattice_->token(row, rank) == token) p += (1 - weight) * std::exp(entry(row, rank));
    }
    if (p > 0) push({token, parent, row + 1, kCopied, above.logprob + std::log(std::min(p, 1.0))});
}

std::optional<double> TreeBuilder::next_logprob() const {
    if (heap_.empty()) return std::nullopt;
    return heap_.front().logprob;
}

void TreeBuilder::grow() {
    std::pop_heap(heap_.begin(), heap_.end(),
                  [this](const Node& a, const Node& b) { return before(tree_.nodes, b, a); });
    const Node node = heap_.back();
    heap_.pop_back();
    append(tree_, node);
    // All successors come after `node` in the total order (rows are sorted, log q <= 0), so nothing is missed.
    if (node.rank != kCopied) propose(node.parent, node.rank + 1);
    propose(tree_.size() - 1, 0);
    propose_copy(tree_.size() - 1);
}

Tree TreeBuilder::take(int nodes) {
    Tree cut = std::move(tree_);
    tree_ = Tree{};
    heap_.clear();
    const int kept = std::clamp(nodes, 1, cut.size());
    if (kept < cut.size()) {
        cut.nodes.resize(kept);
        // Summed anew in insertion order: the same bits as A-hat had when the tree was that small.
        cut.surrogate = 0;
        for (const Node& node : cut.nodes) cut.surrogate += std::exp(node.logprob);
    }
    return cut;
}

Tree build_best_first(const Lattice& lattice, Token root, int budget, int max_depth, CopiedPath copied) {
    TreeBuilder builder(lattice, root, max_depth, std::move(copied));
    while (builder.tree().size() < budget && builder.next_logprob()) builder.grow();
    return builder.take(budget);
}

Tree build_chain(const Lattice& lattice, Token root, int max_depth) {
    return build_beam(lattice, root, 1, usable_depth(lattice, max_depth));
}

Tree build_beam(const Lattice& lattice, Token root, int width, int depth) {
    Tree tree = only_root(root);
    const int rows = usable_depth(lattice, std::max(depth, 0));
    std::int32_t first = 0;  // hypotheses kept at the depth above: nodes [first, end)
    for (int row = 0; row < rows; ++row) {
        const std::int32_t end = tree.size();
        std::vector<Node> candidates;
        for (std::int32_t parent = first; parent < end; ++parent) {
            for (int rank = 0; rank < lattice.width; ++rank) {
                const double logprob = tree.nodes[parent].logprob + or_nothing(lattice.logprob(row, rank));
                if (logprob == kNothing) continue;
                candidates.push_back({lattice.token(row, rank), parent, row + 1, rank, logprob});
            }
        }
        const auto kept = std::min<std::ptrdiff_t>(std::max(width, 0), std::ssize(candidates));
        std::partial_sort(candidates.begin(), candidates.begin() + kept, candidates.end(),
                          [&tree](const Node& a, const Node& b) { return before(tree.nodes, a, b); });
        for (std::ptrdiff_t i = 0; i < kept; ++i) append(tree, candidates[i]);
        if (kept == 0) break;
        first = end;
    }
    return tree;
}

}  // namespace bastion
