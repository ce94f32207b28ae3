#include "engine/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

namespace bastion {
namespace {

std::vector<double> gains(const AcceptanceModel& model, int max_nodes) {
    auto result = expected_gains(model, max_nodes);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return result.ok() ? std::move(result).value() : std::vector<double>();
}

double tau(const std::vector<double>& gains) { return std::accumulate(gains.begin(), gains.end(), 1.0); }

TEST(ExpectedGains, AChainIsAGeometricSum) {
    const auto chain = gains({.top1 = 0.8, .further_mass = 0, .topk = 1, .depth = 15}, 1000);
    ASSERT_EQ(chain.size(), 15u);
    EXPECT_NEAR(tau(chain), (1 - std::pow(0.8, 16)) / (1 - 0.8), 1e-12);
    EXPECT_EQ(gains({.top1 = 0.8, .further_mass = 0, .topk = 8, .depth = 15}, 1000).size(), 15u)
        << "ranks without mass are no nodes";
    EXPECT_EQ(gains({.top1 = 1, .further_mass = 0, .topk = 1, .depth = 3}, 1000), (std::vector<double>{1, 1, 1}));
}

TEST(ExpectedGains, TheWholeLatticeReachesAsDeepAsAnyRankIsRight) {
    // With all ranks in the tree a position is right with a + m, so tau is the geometric sum of that.
    const AcceptanceModel model{.top1 = 0.6, .further_mass = 0.3, .topk = 3, .depth = 5};
    const auto all = gains(model, 100000);
    EXPECT_EQ(all.size(), 3u + 9 + 27 + 81 + 243);
    EXPECT_NEAR(tau(all), (1 - std::pow(0.9, 6)) / (1 - 0.9), 1e-9);
}

TEST(ExpectedGains, AreTheLargestPathProbabilitiesInOrder) {
    const AcceptanceModel model{.top1 = 0.5, .further_mass = 0.3, .topk = 4, .depth = 4};
    // 0.3 halving over three ranks: 4/7, 2/7 and 1/7 of it.
    const std::vector<double> p{0.5, 0.3 * 4 / 7, 0.3 * 2 / 7, 0.3 * 1 / 7};
    std::vector<double> paths;
    const std::function<void(double, int)> visit = [&](double rho, int depth) {
        if (depth == model.depth) return;
        for (const double q : p) {
            paths.push_back(rho * q);
            visit(rho * q, depth + 1);
        }
    };
    visit(1, 0);
    std::sort(paths.begin(), paths.end(), std::greater<>());
    const auto found = gains(model, 100);
    ASSERT_EQ(found.size(), 99u);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], paths[i], 1e-12) << i;
}

TEST(ExpectedGains, AreWhatARandomTargetAccepts) {
    // A target whose token at each position has rank k with p_k: the depth reached in the tree of all nodes with the
    // first two ranks is the number of leading positions of rank 1 or 2.
    const AcceptanceModel model{.top1 = 0.7, .further_mass = 0.2, .topk = 2, .depth = 6};
    const double expected = tau(gains(model, 1 << 20));
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform;
    double tokens = 0;
    constexpr int kTries = 200000;
    for (int i = 0; i < kTries; ++i) {
        int depth = 0;
        while (depth < model.depth && uniform(random) < 0.9) ++depth;
        tokens += depth + 1;
    }
    EXPECT_NEAR(tokens / kTries, expected, 0.02);
}

TEST(ExpectedGains, StopAtTheLimit) {
    EXPECT_EQ(gains({}, 1).size(), 0u);
    EXPECT_EQ(gains({}, 2).size(), 1u);
    EXPECT_EQ(gains({}, 1024).size(), 1023u);
}

TEST(ExpectedGains, RefusesWhatIsNoProbability) {
    const std::vector<std::pair<AcceptanceModel, std::string>> cases = {
        {{.top1 = 0}, "acceptance is 0"},
        {{.top1 = -0.5}, "acceptance is -0.5"},
        {{.top1 = 1.5}, "acceptance is 1.5"},
        {{.top1 = std::nan("")}, "acceptance is nan"},
        {{.top1 = 0.8, .further_mass = 0.3},
         "topk-mass is 0.3, expected at least 0 and, with acceptance 0.8, at most 0.2"},
        {{.top1 = 0.8, .further_mass = -0.1}, "topk-mass is -0.1"},
        {{.top1 = 0.8, .further_mass = 0.1, .topk = 1}, "topk 1"},
        {{.top1 = 0.8, .further_mass = 0.1, .topk = 0}, "topk is 0"},
        {{.top1 = 0.2, .further_mass = 0.7}, "likelier than acceptance 0.2"},
    };
    for (const auto& [model, part] : cases) {
        const auto result = expected_gains(model, 10);
        ASSERT_FALSE(result.ok()) << part;
        EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
        EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
    }
    EXPECT_TRUE(expected_gains({.top1 = 0.7, .further_mass = 0.3}, 10).ok()) << "all of it";
}

}  // namespace
}  // namespace bastion
