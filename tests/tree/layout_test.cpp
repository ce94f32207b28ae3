#include "tree/layout.h"

#include <gtest/gtest.h>

#include "lattices.h"
#include "tree/build.h"

namespace bastion {
namespace {

/// root 5 -> (10 -> (20, 21), 11 -> 20)
Tree small_tree() {
    Tree tree;
    tree.nodes = {{5, -1, 0, 0, 0.0},  {10, 0, 1, 0, -0.1}, {11, 0, 1, 1, -0.2},
                  {20, 1, 2, 0, -0.3}, {21, 1, 2, 1, -0.4}, {20, 2, 2, 0, -0.5}};
    return tree;
}

TEST(Layout, PositionIsDepthNotRow) {
    EXPECT_EQ(positions(small_tree(), 100), (std::vector<std::int32_t>{100, 101, 101, 102, 102, 102}));
    EXPECT_EQ(positions(small_tree(), 0).back(), 2);
}

TEST(Layout, ParentsAreListedByRow) {
    EXPECT_EQ(parents(small_tree()), (std::vector<std::int32_t>{-1, 0, 0, 1, 1, 2}));
}

TEST(Layout, PathGoesFromTheRootToTheNode) {
    EXPECT_EQ(path_to(small_tree(), 0), (std::vector<std::int32_t>{0}));
    EXPECT_EQ(path_to(small_tree(), 4), (std::vector<std::int32_t>{0, 1, 4}));
    EXPECT_EQ(path_to(small_tree(), 5), (std::vector<std::int32_t>{0, 2, 5}));
}

TEST(Layout, ChildIsFoundByParentAndToken) {
    const Tree tree = small_tree();
    EXPECT_EQ(child_with(tree, 0, 10), 1);
    EXPECT_EQ(child_with(tree, 1, 20), 3);
    EXPECT_EQ(child_with(tree, 2, 20), 5);
    EXPECT_EQ(child_with(tree, 0, 20), -1);
    EXPECT_EQ(child_with(tree, 5, 20), -1);
}

TEST(Layout, BuiltTreesAreWellFormed) {
    EXPECT_TRUE(is_well_formed(small_tree()));
    for (int seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        const Lattice lattice = test::random_lattice(random, 15, 8);
        EXPECT_TRUE(is_well_formed(build_best_first(lattice, 1, 300)));
        EXPECT_TRUE(is_well_formed(build_chain(lattice, 1)));
        EXPECT_TRUE(is_well_formed(build_beam(lattice, 1, 4, 15)));
    }
}

TEST(Layout, EveryDefectIsSeen) {
    const auto broken = [](int node, auto&& change) {
        Tree tree = small_tree();
        change(tree.nodes[node]);
        return !is_well_formed(tree);
    };
    EXPECT_TRUE(broken(0, [](Node& root) { root.parent = 0; }));
    EXPECT_TRUE(broken(0, [](Node& root) { root.depth = 1; }));
    EXPECT_TRUE(broken(2, [](Node& node) { node.parent = -1; })) << "second root";
    EXPECT_TRUE(broken(3, [](Node& node) { node.parent = 3; })) << "own parent";
    EXPECT_TRUE(broken(3, [](Node& node) { node.parent = 4; })) << "parent behind its child";
    EXPECT_TRUE(broken(3, [](Node& node) { node.depth = 3; }));
    EXPECT_TRUE(broken(4, [](Node& node) { node.token = 20; })) << "siblings with equal tokens";
    EXPECT_FALSE(is_well_formed(Tree{}));
}

TEST(Layout, ARepeatedTokenInALatticeRowIsSeen) {
    Lattice lattice = test::lattice_of({{-1, -2}});
    lattice.tokens = {3, 3};
    EXPECT_FALSE(is_well_formed(build_best_first(lattice, 1, 3)));
}

}  // namespace
}  // namespace bastion
