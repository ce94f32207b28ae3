#include "cli/bench_stats.h"

#include <gtest/gtest.h>

#include <limits>

namespace bastion::cli {
namespace {

/// A budget that takes so many seconds for ten tokens of each prompt.
FixedBudget budget(int nodes, const std::vector<double>& seconds) {
    FixedBudget result{nodes, {}};
    for (const double s : seconds) result.prompts.push_back({10, s});
    return result;
}

TEST(OracleTest, ChoosesOnOneHalfAndTimesOnTheOther) {
    // 8 nodes are fastest on the prompts at even places, 16 on those at odd places.
    const std::vector<FixedBudget> budgets{budget(4, {4, 4, 4, 4}), budget(8, {1, 3, 1, 3}), budget(16, {2, 2, 2, 2})};
    const auto oracle = find_oracle(budgets);
    ASSERT_TRUE(oracle);
    EXPECT_EQ(oracle->halves[0].nodes, 16) << "even places get what is best at odd places";
    EXPECT_DOUBLE_EQ(oracle->halves[0].timed.seconds, 4.0);
    EXPECT_EQ(oracle->halves[1].nodes, 8);
    EXPECT_DOUBLE_EQ(oracle->halves[1].timed.seconds, 6.0);
    EXPECT_EQ(oracle->timed().tokens, 40);
    EXPECT_DOUBLE_EQ(oracle->timed().per_s(), 4.0);
    EXPECT_EQ(oracle->hindsight_nodes, 8) << "of equals the first";
    EXPECT_DOUBLE_EQ(oracle->hindsight.per_s(), 5.0) << "flattered by having seen the answers";
}

TEST(OracleTest, AgreesWithHindsightWhereOneBudgetIsAlwaysBest) {
    const auto oracle = find_oracle(std::vector{budget(4, {4, 4, 4}), budget(8, {1, 3, 1}), budget(16, {5, 5, 5})});
    ASSERT_TRUE(oracle);
    EXPECT_EQ(oracle->halves[0].nodes, 8);
    EXPECT_EQ(oracle->halves[1].nodes, 8);
    EXPECT_DOUBLE_EQ(oracle->timed().per_s(), oracle->hindsight.per_s());
}

TEST(OracleTest, SpeedIsTokensOverTimeAndNotAMeanOfRatios) {
    FixedBudget small{4, {{100, 1}, {100, 1}, {1, 9}, {1, 9}}}, large{8, {{100, 6}, {100, 6}, {1, 6}, {1, 6}}};
    const auto oracle = find_oracle(std::vector{small, large});
    ASSERT_TRUE(oracle);
    EXPECT_EQ(oracle->hindsight_nodes, 4) << "20 seconds against 24 for the same tokens";
}

TEST(OracleTest, NeedsAChoiceAndTwoHalves) {
    EXPECT_FALSE(find_oracle(std::vector{budget(4, {1, 2})}));
    EXPECT_FALSE(find_oracle(std::vector{budget(4, {1}), budget(8, {2})}));
    EXPECT_FALSE(find_oracle({}));
}

TEST(MeanTest, GeometricMeansOfSpeedups) {
    EXPECT_DOUBLE_EQ(geometric_mean(std::vector{2.0, 8.0}), 4.0);
    EXPECT_EQ(geometric_mean(std::vector<double>{}), 0.0);
    EXPECT_EQ(geometric_mean(std::vector{2.0, 0.0}), 0.0);
}

TEST(PearsonTest, IsOneOnARisingLineAndMinusOneOnAFallingOne) {
    EXPECT_NEAR(*pearson(std::vector<CycleSample>{{1.5, 1}, {2.5, 2}, {3.5, 3}}), 1.0, 1e-12);
    EXPECT_NEAR(*pearson(std::vector<CycleSample>{{3, 1}, {2, 2}, {1, 3}}), -1.0, 1e-12);
    // By hand: deviations (-1,-1), (0,1), (1,0).
    EXPECT_NEAR(*pearson(std::vector<CycleSample>{{1, 1}, {2, 3}, {3, 2}}), 0.5, 1e-12);
}

TEST(PearsonTest, IsUndefinedWhereNothingVaries) {
    EXPECT_FALSE(pearson({}));
    EXPECT_FALSE(pearson(std::vector<CycleSample>{{1, 1}}));
    EXPECT_FALSE(pearson(std::vector<CycleSample>{{1, 4}, {2, 4}, {3, 4}}));
    EXPECT_FALSE(pearson(std::vector<CycleSample>{{0.1, 1}, {0.1, 2}, {0.1, 3}, {0.1, 4}}));
}

TEST(ContextRangeTest, GrowsFourfold) {
    for (const auto& [tokens, from, to] : std::vector<std::array<int, 3>>{{0, 0, 256},
                                                                          {255, 0, 256},
                                                                          {256, 256, 1024},
                                                                          {1023, 256, 1024},
                                                                          {1024, 1024, 4096},
                                                                          {4096, 4096, 16384}}) {
        EXPECT_EQ(context_range(tokens).from, from) << tokens;
        EXPECT_EQ(context_range(tokens).to, to) << tokens;
    }
    EXPECT_EQ(context_range(std::numeric_limits<int>::max()).from, 1 << 30);
}

}  // namespace
}  // namespace bastion::cli
