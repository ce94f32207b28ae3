#include "cli/bench_methods.h"

#include <gtest/gtest.h>

#include <set>

namespace bastion::cli {
namespace {

std::vector<std::string> names(const std::string& list) {
    const auto methods = parse_methods(list);
    EXPECT_TRUE(methods.ok()) << (methods.ok() ? "" : methods.error().message);
    std::vector<std::string> out;
    if (methods.ok()) {
        for (const BenchMethod& method : *methods) out.push_back(method.name);
    }
    return out;
}

TEST(BenchMethodsTest, ReadsEveryKind) {
    const auto methods = parse_methods("ar,chain,tree,tree:16,beam:4x15,llama.cpp");
    ASSERT_TRUE(methods.ok());
    ASSERT_EQ(methods->size(), 6u);
    EXPECT_EQ((*methods)[1].method, Method::chain);
    EXPECT_EQ((*methods)[2].budget, 0);
    const GenerateOptions tree = (*methods)[3].apply({});
    EXPECT_EQ(tree.method, Method::tree);
    EXPECT_EQ(tree.budget, 16);
    const GenerateOptions beam = (*methods)[4].apply({});
    EXPECT_EQ(beam.method, Method::beam);
    EXPECT_EQ(beam.beam_width, 4);
    EXPECT_EQ(beam.beam_depth, 15);
    EXPECT_TRUE((*methods)[5].reference);
    EXPECT_FALSE((*methods)[0].reference);
}

TEST(BenchMethodsTest, AlwaysRunsPlainDecoding) {
    EXPECT_EQ(names("tree:4"), (std::vector<std::string>{"ar", "tree:4"}));
    EXPECT_EQ(names("tree,ar"), (std::vector<std::string>{"tree", "ar"}));
}

TEST(BenchMethodsTest, ATreeMayNameItsController) {
    const auto methods = parse_methods("ar,tree,tree@static,tree@ema+static,tree:auto@curve");
    ASSERT_TRUE(methods.ok());
    GenerateOptions given;
    given.controller = ControllerKind::ema;
    EXPECT_EQ((*methods)[1].apply(given).controller, ControllerKind::ema) << "as in the options";
    EXPECT_EQ((*methods)[2].apply(given).controller, ControllerKind::fixed_fit);
    EXPECT_EQ((*methods)[3].apply(given).controller, ControllerKind::ema_fixed_fit);
    EXPECT_EQ((*methods)[4].apply(given).controller, ControllerKind::curve);
    EXPECT_EQ((*methods)[3].name, "tree@ema+static");
    EXPECT_TRUE((*methods)[4].adaptive());
    EXPECT_FALSE((*methods)[0].adaptive());
    const auto refused = parse_methods("tree@fast");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "--methods 'tree@fast': expected static, ema, ema+static or curve after the @");
}

TEST(BenchMethodsTest, RefusesOtherItems) {
    for (const char* list :
         {"", ",", "ar,", "ar,,tree", "trees", "tree:0", "tree:", "tree:x", "beam:4", "chain:3", "ar:1", "llama",
          "ar,ar", "tree, chain", "AR", "tree@", "tree:4@curve", "ar@curve", "@curve"}) {
        EXPECT_FALSE(parse_methods(list).ok()) << list;
    }
}

TEST(BenchMethodsTest, EveryMethodRunsFirstInTurn) {
    std::set<std::size_t> first;
    for (std::size_t prompt = 0; prompt < 3; ++prompt) {
        const auto order = method_order(3, prompt);
        EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 3u);
        first.insert(order.front());
    }
    EXPECT_EQ(first.size(), 3u);
}

}  // namespace
}  // namespace bastion::cli
