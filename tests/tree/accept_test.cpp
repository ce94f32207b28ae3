#include "tree/accept.h"

#include <gtest/gtest.h>

#include <map>

#include "lattices.h"
#include "tree/build.h"
#include "tree/layout.h"

namespace bastion {
namespace {

/// A target that answers every token path with a token of its own choice, often one of the lattice's.
class PathTarget {
 public:
    PathTarget(const Lattice& lattice, std::uint32_t seed) : lattice_(lattice), seed_(seed) {}

    Token after(const std::vector<Token>& path) const {
        std::uint32_t hash = seed_;
        for (const Token token : path) hash = (hash ^ static_cast<std::uint32_t>(token)) * 2654435761u;
        const int row = static_cast<int>(path.size()) - 1;
        const std::uint32_t choice = hash >> 16;
        if (row >= lattice_.depth || choice % 5 == 0) return 9999;
        return lattice_.token(row, static_cast<int>(choice) % lattice_.width);
    }

 private:
    const Lattice& lattice_;
    std::uint32_t seed_;
};

std::vector<Token> tokens_to(const Tree& tree, std::int32_t node) {
    std::vector<Token> path;
    for (const std::int32_t at : path_to(tree, node)) path.push_back(tree.nodes[at].token);
    return path;
}

/// Plain decoding of the target, kept up as long as the tree holds the path.
std::vector<Token> decode_along(const Tree& tree, const PathTarget& target, std::size_t max_tokens) {
    std::map<std::vector<Token>, std::int32_t> drafted;
    for (std::int32_t i = 0; i < tree.size(); ++i) drafted[tokens_to(tree, i)] = i;
    std::vector<Token> path = {tree.nodes[0].token}, emitted;
    while (drafted.count(path) && emitted.size() < max_tokens) {
        const Token token = target.after(path);
        emitted.push_back(token);
        path.push_back(token);
    }
    return emitted;
}

void expect_path_of(const Tree& tree, const Verdict& verdict) {
    ASSERT_EQ(verdict.accepted.size(), verdict.emitted.size());
    EXPECT_EQ(verdict.accepted[0], 0);
    for (std::size_t i = 1; i < verdict.accepted.size(); ++i) {
        EXPECT_EQ(tree.nodes[verdict.accepted[i]].parent, verdict.accepted[i - 1]);
        EXPECT_EQ(tree.nodes[verdict.accepted[i]].token, verdict.emitted[i - 1]);
    }
}

TEST(Accept, EmitsWhatPlainDecodingWouldEmit) {
    int longest = 0;
    for (int seed = 0; seed < 300; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = test::random_lattice(random, 5, 3);
        const PathTarget target(lattice, static_cast<std::uint32_t>(seed) * 7919u + 1);
        for (const Tree& tree : {build_best_first(lattice, 1, 40), build_chain(lattice, 1),
                                 build_beam(lattice, 1, 3, 5), build_best_first(lattice, 1, 1)}) {
            for (const std::size_t max_tokens : {1, 2, 3, 100}) {
                std::size_t emitted = 0;
                const Verdict verdict = accept(
                    tree, [&](std::int32_t node) { return target.after(tokens_to(tree, node)); },
                    [&](Token) { return ++emitted < max_tokens; });
                EXPECT_EQ(verdict.emitted, decode_along(tree, target, max_tokens)) << "seed " << seed;
                expect_path_of(tree, verdict);
                longest = std::max(longest, static_cast<int>(verdict.emitted.size()));
            }
        }
    }
    EXPECT_GE(longest, 4) << "the targets of this test must accept drafted tokens";
}

TEST(Accept, EndsAfterTheTokenThatStops) {
    const Tree chain = build_chain(test::lattice_of({{-1}, {-1}, {-1}}), 1);  // tokens 0, 100, 200
    std::vector<Token> told;
    const Verdict verdict = accept(
        chain, [](std::int32_t node) { return node * 100; },
        [&](Token token) {
            told.push_back(token);
            return token != 100;
        });
    EXPECT_EQ(verdict.emitted, (std::vector<Token>{0, 100}));
    EXPECT_EQ(verdict.accepted, (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(told, verdict.emitted);
}

TEST(Accept, DrawsOnlyAtVisitedNodes) {
    const Tree tree = build_best_first(test::lattice_of({{-1, -2}, {-1, -2}}), 1, 7);
    std::vector<std::int32_t> drawn_at;
    const Verdict verdict = accept(
        tree,
        [&](std::int32_t node) {
            drawn_at.push_back(node);
            return node == 0 ? 1 : 555;
        },
        [](Token) { return true; });
    EXPECT_EQ(drawn_at, verdict.accepted);
    EXPECT_EQ(verdict.emitted, (std::vector<Token>{1, 555}));
}

TEST(Accept, ASpineTreeIsAcceptedAsTheChain) {
    std::mt19937 random(3);
    const Lattice spine = test::random_lattice(random, 15, 1);
    const Tree tree = build_best_first(spine, 1, 16), chain = build_chain(spine, 1);
    for (int wrong_at = 0; wrong_at <= 15; ++wrong_at) {
        const auto draw = [&](std::int32_t node) { return node == wrong_at ? 9999 : spine.token(node, 0); };
        const auto keep_going = [](Token) { return true; };
        const Verdict a = accept(tree, draw, keep_going), b = accept(chain, draw, keep_going);
        EXPECT_EQ(a.emitted, b.emitted);
        EXPECT_EQ(a.accepted, b.accepted);
        EXPECT_EQ(std::ssize(a.emitted), wrong_at + 1);
    }
}

}  // namespace
}  // namespace bastion
