#include "tree/build.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lattices.h"
#include "tree/layout.h"

namespace bastion {
namespace {

using test::lattice_of;
using test::random_lattice;
using test::tied_lattice;

constexpr Token kRoot = 7;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// A node as the lattice alone knows it: the ranks on its path.
struct PathNode {
    std::vector<int> ranks;
    double logprob;
};

void collect_paths(const Lattice& lattice, const PathNode& node, std::vector<PathNode>& out) {
    const int row = static_cast<int>(node.ranks.size());
    if (row == lattice.depth) return;
    for (int rank = 0; rank < lattice.width; ++rank) {
        PathNode child = node;
        child.ranks.push_back(rank);
        child.logprob += lattice.logprob(row, rank);
        out.push_back(child);
        collect_paths(lattice, child, out);
    }
}

/// Every node below the root, sorted by the documented order.
std::vector<PathNode> all_nodes_in_order(const Lattice& lattice) {
    std::vector<PathNode> all;
    collect_paths(lattice, {{}, 0.0}, all);
    std::sort(all.begin(), all.end(), [](const PathNode& a, const PathNode& b) {
        if (a.logprob != b.logprob) return a.logprob > b.logprob;
        if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
        return a.ranks < b.ranks;
    });
    return all;
}

std::vector<int> ranks_of(const Tree& tree, std::int32_t node) {
    std::vector<int> ranks;
    for (const std::int32_t at : path_to(tree, node)) {
        if (at != 0) ranks.push_back(tree.nodes[at].rank);
    }
    return ranks;
}

/// The largest A-hat of any prefix-closed tree of `nodes` nodes, by trying all of them.
double best_surrogate_of_all_trees(const Lattice& lattice, int nodes) {
    double best = 0;
    std::vector<PathNode> open;
    const auto add_children = [&](const PathNode& node) {
        const int row = static_cast<int>(node.ranks.size());
        for (int rank = 0; row < lattice.depth && rank < lattice.width; ++rank) {
            PathNode child = node;
            child.ranks.push_back(rank);
            child.logprob += lattice.logprob(row, rank);
            open.push_back(child);
        }
    };
    // Each tree arises once: of the open nodes, those before `from` are decided to stay out.
    const std::function<void(std::size_t, int, double)> extend = [&](std::size_t from, int missing, double surrogate) {
        if (missing == 0) best = std::max(best, surrogate);
        if (missing == 0) return;
        for (std::size_t i = from; i < open.size(); ++i) {
            const PathNode node = open[i];
            const std::size_t before = open.size();
            add_children(node);
            extend(i + 1, missing - 1, surrogate + std::exp(node.logprob));
            open.resize(before);
        }
    };
    add_children({{}, 0.0});
    extend(0, nodes - 1, 1.0);
    return best;
}

double recomputed_surrogate(const Tree& tree) {
    double sum = 0;
    for (const Node& node : tree.nodes) sum += std::exp(node.logprob);
    return sum;
}

void expect_same_tree(const Tree& a, const Tree& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(a.surrogate, b.surrogate);
    for (int i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a.nodes[i].token, b.nodes[i].token) << "node " << i;
        EXPECT_EQ(a.nodes[i].parent, b.nodes[i].parent) << "node " << i;
        EXPECT_EQ(a.nodes[i].depth, b.nodes[i].depth) << "node " << i;
        EXPECT_EQ(a.nodes[i].rank, b.nodes[i].rank) << "node " << i;
        EXPECT_EQ(a.nodes[i].logprob, b.nodes[i].logprob) << "node " << i;
    }
}

void expect_documented_order(const Lattice& lattice) {
    const auto expected = all_nodes_in_order(lattice);
    const Tree tree = build_best_first(lattice, kRoot, static_cast<int>(expected.size()) + 1);
    ASSERT_EQ(tree.size(), static_cast<int>(expected.size()) + 1);
    for (int i = 1; i < tree.size(); ++i) {
        EXPECT_EQ(ranks_of(tree, i), expected[i - 1].ranks) << "node " << i;
        EXPECT_EQ(tree.nodes[i].logprob, expected[i - 1].logprob) << "node " << i;
        EXPECT_EQ(tree.nodes[i].token, lattice.token(tree.nodes[i].depth - 1, tree.nodes[i].rank));
    }
    EXPECT_TRUE(is_well_formed(tree));
}

TEST(BestFirst, IsTheBestOfAllPrefixClosedTrees) {
    for (int seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = seed % 3 == 0 ? tied_lattice(random, 3, 3) : random_lattice(random, 3, 3);
        for (int nodes = 1; nodes <= 7; ++nodes) {
            const Tree tree = build_best_first(lattice, kRoot, nodes);
            EXPECT_EQ(tree.size(), nodes);
            EXPECT_NEAR(tree.surrogate, best_surrogate_of_all_trees(lattice, nodes), 1e-12) << "seed " << seed;
        }
    }
}

TEST(BestFirst, FollowsTheDocumentedOrderOnRandomLattices) {
    for (int seed = 0; seed < 30; ++seed) {
        std::mt19937 random(seed);
        expect_documented_order(random_lattice(random, 1 + seed % 4, 1 + seed % 5));
    }
}

TEST(BestFirst, FollowsTheDocumentedOrderOnTies) {
    for (int seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        expect_documented_order(tied_lattice(random, 1 + seed % 5, 1 + seed % 4));
    }
    expect_documented_order(lattice_of({{-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}}));
    expect_documented_order(lattice_of({{0, 0}, {0, 0}, {0, 0}, {0, 0}}));
}

TEST(BestFirst, BreaksEqualProbabilitiesByDepthThenRanks) {
    const Tree tree = build_best_first(lattice_of({{0, -1}, {-1, -1}}), kRoot, 7);
    // rho 1: "0". rho e^-1: depth 1 "1" before depth 2 "0 0" before "0 1". rho e^-2: "1 0" before "1 1".
    const std::vector<std::vector<int>> expected = {{}, {0}, {1}, {0, 0}, {0, 1}, {1, 0}, {1, 1}};
    for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(ranks_of(tree, i), expected[i]) << "node " << i;
}

TEST(BestFirst, EveryTreeIsAPrefixOfTheNext) {
    std::mt19937 random(5);
    const Lattice lattice = random_lattice(random, 6, 4);
    const Tree large = build_best_first(lattice, kRoot, 200);
    for (const int nodes : {1, 2, 7, 12, 64, 199}) {
        const Tree small = build_best_first(lattice, kRoot, nodes);
        Tree prefix = large;
        prefix.nodes.resize(nodes);
        prefix.surrogate = recomputed_surrogate(prefix);
        expect_same_tree(small, prefix);
    }
}

TEST(BestFirst, AnyBudgetRunsAndIsCutToTheLattice) {
    std::mt19937 random(6);
    const Lattice small = random_lattice(random, 2, 3);  // 1 + 3 + 9 nodes
    const Lattice large = random_lattice(random, 15, 8);
    for (const int budget : {1, 2, 7, 12, 1024, 100000}) {
        EXPECT_EQ(build_best_first(small, kRoot, budget).size(), std::min(budget, 13));
        EXPECT_EQ(build_best_first(large, kRoot, budget).size(), budget);
    }
    EXPECT_EQ(build_best_first(small, kRoot, 0).size(), 1);
}

TEST(BestFirst, RootIsTheAnchorAlone) {
    const Tree tree = build_best_first(Lattice{}, kRoot, 64);
    ASSERT_EQ(tree.size(), 1);
    EXPECT_EQ(tree.nodes[0].token, kRoot);
    EXPECT_EQ(tree.nodes[0].parent, -1);
    EXPECT_EQ(tree.nodes[0].depth, 0);
    EXPECT_EQ(tree.surrogate, 1.0);
}

TEST(BestFirst, MaxDepthCutsTheLattice) {
    std::mt19937 random(8);
    const Lattice lattice = random_lattice(random, 5, 3);
    EXPECT_EQ(build_best_first(lattice, kRoot, 64, 0).size(), 1);
    const Tree tree = build_best_first(lattice, kRoot, 1000, 2);
    EXPECT_EQ(tree.size(), 13);
    for (const Node& node : tree.nodes) EXPECT_LE(node.depth, 2);
    EXPECT_EQ(build_best_first(lattice, kRoot, 1000, 99).size(), 1 + 3 + 9 + 27 + 81 + 243);
}

TEST(BestFirst, NeverProposesImpossibleTokens) {
    const float nan = std::nanf("");
    const Lattice lattice = lattice_of({{-1, -2, -kInf}, {-1, nan, -kInf}, {-kInf, -kInf, -kInf}});
    const Tree tree = build_best_first(lattice, kRoot, 100);
    EXPECT_EQ(tree.size(), 5);  // root, two at depth 1, one below each
    for (const Node& node : tree.nodes) EXPECT_TRUE(std::isfinite(node.logprob));
    EXPECT_EQ(build_chain(lattice, kRoot).size(), 3);
    EXPECT_EQ(build_beam(lattice, kRoot, 3, 3).size(), 5);
}

TEST(BestFirst, ReachesTokensBehindANaN) {
    const Tree tree = build_best_first(lattice_of({{std::nanf(""), -1, -2}}), kRoot, 100);
    ASSERT_EQ(tree.size(), 3);
    EXPECT_EQ(tree.nodes[1].rank, 1);
    EXPECT_EQ(tree.nodes[2].rank, 2);
}

/// Conditional probability of every child of the node that `path` leads to, beside a copied path: the definition.
std::map<Token, double> mixture(const Lattice& lattice, const CopiedPath& copied, const std::vector<Token>& path) {
    const std::size_t row = path.size();
    const bool on_path = row < copied.tokens.size() && std::equal(path.begin(), path.end(), copied.tokens.begin());
    const double weight = on_path ? copied.weights[row] : 0.0;
    std::map<Token, double> children;
    for (int rank = 0; std::cmp_less(row, lattice.depth) && rank < lattice.width; ++rank) {
        children[lattice.token(static_cast<int>(row), rank)] +=
            (1 - weight) * std::exp(static_cast<double>(lattice.logprob(static_cast<int>(row), rank)));
    }
    if (on_path) children[copied.tokens[row]] += weight;
    return children;
}

/// rho of every node below the root, by its path.
void all_mixed_nodes(const Lattice& lattice, const CopiedPath& copied, const std::vector<Token>& path, double rho,
                     std::map<std::vector<Token>, double>& out) {
    for (const auto& [token, p] : mixture(lattice, copied, path)) {
        if (p <= 0) continue;
        std::vector<Token> child = path;
        child.push_back(token);
        out[child] = rho * p;
        all_mixed_nodes(lattice, copied, child, rho * p, out);
    }
}

std::vector<Token> tokens_on(const Tree& tree, std::int32_t node) {
    std::vector<Token> tokens;
    for (const std::int32_t at : path_to(tree, node)) {
        if (at != 0) tokens.push_back(tree.nodes[at].token);
    }
    return tokens;
}

/// Paths that leave the lattice, that follow it, and that are longer than it is deep.
CopiedPath random_copy(std::mt19937& random, const Lattice& lattice) {
    CopiedPath copied;
    const int length = static_cast<int>(random() % 6);
    for (int i = 0; i < length; ++i) {
        const bool known = i < lattice.depth && random() % 2 == 0;
        copied.tokens.push_back(known ? lattice.token(i, static_cast<int>(random() % lattice.width)) : 5000 + i);
        copied.weights.push_back(std::uniform_real_distribution<double>(0, 1)(random));
    }
    return copied;
}

TEST(CopiedPath, GivesTheMixturesNodesBestFirst) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = random_lattice(random, 1 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed % 4));
        const CopiedPath copied = random_copy(random, lattice);
        std::map<std::vector<Token>, double> expected;
        all_mixed_nodes(lattice, copied, {}, 1.0, expected);
        const Tree tree = build_best_first(lattice, kRoot, 1000, -1, copied);
        ASSERT_EQ(tree.nodes.size(), expected.size() + 1) << "seed " << seed;
        EXPECT_TRUE(is_well_formed(tree));
        for (int i = 1; i < tree.size(); ++i) {
            const auto found = expected.find(tokens_on(tree, i));
            ASSERT_NE(found, expected.end()) << "seed " << seed << ", node " << i;
            EXPECT_NEAR(std::exp(tree.nodes[i].logprob), found->second, 1e-12);
            EXPECT_LE(tree.nodes[i].logprob, tree.nodes[i - 1].logprob) << "best first: so every cut is best";
        }
    }
}

TEST(CopiedPath, OfNoWeightChangesNoRho) {
    std::mt19937 random(3);
    const Lattice lattice = random_lattice(random, 4, 3);
    const CopiedPath copied{{lattice.token(0, 1), 77}, {0.0, 0.0}};
    const Tree with = build_best_first(lattice, kRoot, 60, -1, copied), without = build_best_first(lattice, kRoot, 60);
    ASSERT_EQ(with.size(), without.size());
    EXPECT_NEAR(with.surrogate, without.surrogate, 1e-12);
}

TEST(CopiedPath, AloneIsAChain) {
    const Tree tree = build_best_first(Lattice{}, kRoot, 10, -1, {{3, 1, 4}, {0.5, 0.5, 1.0}});
    ASSERT_EQ(tree.size(), 4);
    EXPECT_EQ(tokens_on(tree, 3), (std::vector<Token>{3, 1, 4}));
    EXPECT_DOUBLE_EQ(tree.surrogate, 1 + 0.5 + 0.25 + 0.25);
}

TEST(CopiedPath, IsCutByMaxDepth) {
    const CopiedPath copied{{3, 1, 4}, {0.5, 0.5, 0.5}};
    EXPECT_EQ(build_best_first(Lattice{}, kRoot, 10, 2, copied).size(), 3);
    EXPECT_EQ(build_best_first(Lattice{}, kRoot, 10, 0, copied).size(), 1);
}

TEST(CopiedPath, TakesExactLogprobsAndSkipsWhatIsNoNumber) {
    const Lattice lattice = lattice_of({{-0.5f, -1, -kInf}, {-0.5f, -1, -2}});
    const std::vector<double> exact = {std::log(0.6), std::nan(""), -kInf, std::log(0.5), std::log(0.3), std::log(0.1)};
    TreeBuilder builder(lattice, exact, kRoot, -1, {{1, 101, 9}, {0.5, 0.2, 0.4}});
    while (builder.next_logprob()) builder.grow();
    const Tree tree = builder.take(100);
    // Depth 1: token 0 and the copied 1, whose own entry is no number; below each three; below the copied path one
    // more.
    ASSERT_EQ(tree.size(), 1 + 2 + 6 + 1);
    EXPECT_TRUE(is_well_formed(tree));
    for (const Node& node : tree.nodes) EXPECT_TRUE(std::isfinite(node.logprob));
    EXPECT_NEAR(std::exp(tree.nodes[child_with(tree, 0, 0)].logprob), 0.5 * 0.6, 1e-12);
    EXPECT_NEAR(std::exp(tree.nodes[child_with(tree, 0, 1)].logprob), 0.5, 1e-12);
}

TEST(CopiedPath, OfFullWeightLeavesNothingElse) {
    const Tree tree = build_best_first(lattice_of({{-0.1f, -3}, {-0.1f, -3}}), kRoot, 10, -1, {{9}, {1.0}});
    ASSERT_EQ(tree.size(), 4);  // the copied token, and the lattice below it
    EXPECT_EQ(tree.nodes[1].token, 9);
    EXPECT_EQ(tree.nodes[1].rank, kCopied);
}

TEST(TreeBuilder, AnnouncesTheNodeItGrows) {
    std::mt19937 random(9);
    const Lattice lattice = random_lattice(random, 3, 3);
    TreeBuilder builder(lattice, kRoot);
    double previous = 0;
    while (const auto next = builder.next_logprob()) {
        const double surrogate = builder.tree().surrogate;
        builder.grow();
        EXPECT_EQ(builder.tree().nodes.back().logprob, *next);
        EXPECT_LE(*next, previous);
        EXPECT_EQ(builder.tree().surrogate, surrogate + std::exp(*next));
        EXPECT_EQ(builder.tree().surrogate, recomputed_surrogate(builder.tree()));
        previous = *next;
    }
    EXPECT_EQ(builder.tree().size(), 40);
}

TEST(TreeBuilder, TakeCutsTheTreeAndItsSurrogate) {
    std::mt19937 random(10);
    const Lattice lattice = random_lattice(random, 4, 4);
    for (const int taken : {0, 1, 2, 17, 40, 41}) {
        TreeBuilder builder(lattice, kRoot);
        while (builder.tree().size() < 40) builder.grow();
        expect_same_tree(builder.take(taken), build_best_first(lattice, kRoot, std::clamp(taken, 1, 40)));
    }
}

TEST(TreeBuilder, SurvivesBeingMoved) {
    std::mt19937 random(11);
    const Lattice lattice = random_lattice(random, 4, 4);
    std::vector<TreeBuilder> builders;
    for (int i = 0; i < 3; ++i) {
        builders.emplace_back(lattice, kRoot);
        for (TreeBuilder& builder : builders) builder.grow();
    }
    expect_same_tree(builders[0].take(100), build_best_first(lattice, kRoot, 4));
}

TEST(TreeBuilder, TakesLogprobsInDoublePrecision) {
    const Lattice lattice = lattice_of({{-0.1f, -0.3f}, {-0.2f, -0.9f}});
    const std::vector<double> exact = {-0.1, -0.3, -0.2, -0.9};
    TreeBuilder builder(lattice, exact, kRoot);
    builder.grow();
    EXPECT_EQ(builder.tree().nodes[1].logprob, -0.1);
    builder.grow();
    EXPECT_EQ(builder.tree().nodes[2].logprob, -0.3);
    builder.grow();
    EXPECT_EQ(builder.tree().nodes[3].logprob, -0.1 + -0.2);
}

TEST(Chain, IsTheSpineOfTopTokens) {
    std::mt19937 random(12);
    const Lattice lattice = random_lattice(random, 15, 8);
    const Tree chain = build_chain(lattice, kRoot);
    ASSERT_EQ(chain.size(), 16);
    for (int i = 1; i < chain.size(); ++i) {
        EXPECT_EQ(chain.nodes[i].token, lattice.token(i - 1, 0));
        EXPECT_EQ(chain.nodes[i].parent, i - 1);
        EXPECT_EQ(chain.nodes[i].depth, i);
    }
    EXPECT_EQ(chain.surrogate, recomputed_surrogate(chain));
    EXPECT_EQ(build_chain(lattice, kRoot, 3).size(), 4);
    EXPECT_EQ(build_chain(Lattice{}, kRoot).size(), 1);
}

TEST(Chain, EqualsTheTreeOfALatticeThatIsAllSpine) {
    std::mt19937 random(13);
    const Lattice spine = random_lattice(random, 15, 1);
    expect_same_tree(build_best_first(spine, kRoot, 16), build_chain(spine, kRoot));
    expect_same_tree(build_best_first(spine, kRoot, 500), build_chain(spine, kRoot));
}

TEST(Beam, KeepsTheBestOfEveryDepth) {
    for (int seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = seed % 2 ? tied_lattice(random, 4, 3) : random_lattice(random, 4, 3);
        for (const int width : {1, 2, 4}) {
            const Tree beam = build_beam(lattice, kRoot, width, 4);
            EXPECT_TRUE(is_well_formed(beam));
            EXPECT_EQ(beam.surrogate, recomputed_surrogate(beam));
            std::vector<std::vector<int>> kept = {{}};
            int next = 1;
            for (int depth = 1; depth <= 4; ++depth) {
                std::vector<std::vector<int>> level;
                for (const PathNode& node : all_nodes_in_order(lattice)) {
                    const std::vector<int> parent(node.ranks.begin(), node.ranks.end() - 1);
                    const bool extends = std::find(kept.begin(), kept.end(), parent) != kept.end();
                    if (std::ssize(node.ranks) == depth && extends && std::ssize(level) < width) {
                        level.push_back(node.ranks);
                    }
                }
                for (const auto& ranks : level) EXPECT_EQ(ranks_of(beam, next++), ranks) << "seed " << seed;
                kept = level;
            }
            EXPECT_EQ(beam.size(), next);
        }
    }
}

TEST(Beam, IsCutToTheLattice) {
    std::mt19937 random(15);
    const Lattice lattice = random_lattice(random, 3, 2);
    EXPECT_EQ(build_beam(lattice, kRoot, 4, 15).size(), 1 + 2 + 4 + 4);
    EXPECT_EQ(build_beam(lattice, kRoot, 4, 1).size(), 3);
    EXPECT_EQ(build_beam(lattice, kRoot, 4, 0).size(), 1);
}

TEST(BestFirst, ExpectsAtLeastWhatChainAndBeamExpect) {
    for (int seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = random_lattice(random, 15, 8);
        const Tree chain = build_chain(lattice, kRoot), beam = build_beam(lattice, kRoot, 4, 15);
        EXPECT_GE(build_best_first(lattice, kRoot, chain.size()).surrogate, chain.surrogate);
        EXPECT_GT(build_best_first(lattice, kRoot, beam.size()).surrogate, beam.surrogate);
    }
}

}  // namespace
}  // namespace bastion
