#include "budget/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "budget/catalog.h"
#include "profiles.h"

namespace bastion {
namespace {

/// One layer with dimensions of which every product can be followed by hand, and a device of 1000 FLOP/s and 1000
/// bytes/s: a millisecond is one FLOP or one byte.
ModelShape hand_shape() {
    ModelShape shape;
    shape.layers = 1;
    shape.hidden = 2;
    shape.q_width = 2;
    shape.kv_width = 1;
    shape.ffn_width = 3;
    shape.vocab = 5;
    shape.activation_bytes = 1;
    return shape;
}
constexpr DevicePeak kOneAMillisecond{1000, 1000};

TEST(PlanLatency, AgreesWithTheRooflineByHand) {
    // Two rows, ten tokens of context.  FLOPs | bytes of weights and activations | the larger
    // qo    4*2*2*2 = 32                      | 2*2*2*2 + 2*(4+4) = 32            | 32
    // kv    4*2*2*1 = 16                      | 2*2*1*2 + 2*(2+2) = 16            | 16
    // attn  4*2*12*2 = 192                    | (2*12*1 + 2*2*1)*2 = 56           | 192
    // ffn   6*2*2*3 = 72                      | 3*2*3*2 + 2*(4+9) = 62            | 72
    // head  2*2*2*5 = 40                      | 2*5*2 + 2*(2+5) = 34              | 40
    // embed 0                                 | 2*2*2 + 2*2 = 12                  | 12
    EXPECT_DOUBLE_EQ(batch_verify_ms(hand_shape(), kOneAMillisecond, 1, 2, 10), 364);
    EXPECT_DOUBLE_EQ(batch_verify_ms(hand_shape(), kOneAMillisecond, 1, 2, 10),
                     roofline_ms(hand_shape(), kOneAMillisecond, 2, 10));
}

TEST(PlanLatency, RequestsShareWeightsButNotTheirCaches) {
    // Two requests of one row each: everything but attention as for two rows of one, 364 - 192 = 172. Attention twice
    // that of one row: 4*1*11*2 = 88 FLOPs against (2*11*1 + 2*1*1)*2 = 48 bytes.
    EXPECT_DOUBLE_EQ(batch_verify_ms(hand_shape(), kOneAMillisecond, 2, 1, 10), 172 + 2 * 88);
}

TEST(PlanLatency, ADraftIsOnePassOverTheBlockAndTheInjection) {
    DraftShape draft;
    draft.pass = hand_shape();
    draft.block = 2;
    draft.taps = 3;
    // fc, two rows: 2*2*(3*2)*2 = 48 FLOPs | (3*2)*2*2 + 2*(6+2) = 40 bytes; then keys and values, 16 as above.
    EXPECT_DOUBLE_EQ(batch_draft_ms(draft, kOneAMillisecond, 1, 10), 364 + 48 + 16);
    draft.windowed_layers = 1;
    draft.window = 4;
    // Attention over 4 positions and the block: 4*2*6*2 = 96 FLOPs instead of 192.
    EXPECT_DOUBLE_EQ(batch_draft_ms(draft, kOneAMillisecond, 1, 10), 364 - 96 + 48 + 16);
    draft.window = 400;
    EXPECT_DOUBLE_EQ(batch_draft_ms(draft, kOneAMillisecond, 1, 10), 364 + 48 + 16)
        << "a window larger than the context";
}

TEST(PlanLatency, ADrafterLikeTheTargetIsDense) {
    const ModelShape moe = find_model("qwen3-coder-30b-a3b")->shape(1);
    const DraftShape draft = draft_shape_like(moe, 6, 8);
    EXPECT_EQ(draft.pass.layers, 6);
    EXPECT_EQ(draft.taps, 6);
    EXPECT_EQ(draft.block, 8);
    EXPECT_EQ(draft.pass.experts, 0);
    EXPECT_EQ(draft.pass.ffn_width, 3 * moe.hidden);
    EXPECT_EQ(draft.pass.vocab, moe.vocab);
    EXPECT_EQ(draft.fc_weight_bytes, 1);
}

PlanSetup setup_of(const char* model, const char* device, int max_nodes) {
    PlanSetup setup;
    setup.target = find_model(model)->shape(2);
    setup.draft = draft_shape_like(setup.target, 5, 16);
    setup.peak = find_device(device)->peak();
    setup.max_nodes = max_nodes;
    return setup;
}

TEST(PlanLatency, ExpertsSaturateAtExpertsOverUsed) {
    const PlanSetup setup = setup_of("qwen3-coder-30b-a3b", "h200", 64);
    const auto grid = predicted_profile(setup, 1, 256).grid;
    const auto slope = [&](int nodes) { return grid[nodes].verify_ms - grid[nodes - 1].verify_ms; };  // N to N + 1
    // 8 of 128: each of the first 16 rows brings 8 experts of 3 x 2048 x 768 weights in 48 layers.
    const double experts_ms = 1e3 * 48.0 * 8 * 3 * 2048 * 768 * 2 / 4.8e12;
    for (int nodes = 1; nodes < 16; ++nodes) EXPECT_NEAR(slope(nodes), experts_ms, 0.05 * experts_ms) << nodes;
    for (int nodes = 16; nodes < 60; ++nodes) EXPECT_LT(slope(nodes), 0.1 * experts_ms) << nodes;
}

TEST(PlanLatency, ADenseModelCostsTheSameUntilItIsBoundByArithmetic) {
    const PlanSetup setup = setup_of("qwen3-8b", "h200", 1024);
    const auto grid = predicted_profile(setup, 1, 256).grid;
    EXPECT_LT(grid[63].verify_ms, 1.2 * grid[0].verify_ms) << "64 rows are bound by the weights, as one is";
    EXPECT_GT(grid[1023].verify_ms, 3 * grid[0].verify_ms);
    for (std::size_t i = 1; i < grid.size(); ++i) {
        EXPECT_GT(grid[i].verify_ms, grid[i - 1].verify_ms);
        EXPECT_EQ(grid[i].nodes, static_cast<int>(i) + 1);
    }
}

/// Speed-up of N nodes from the definition alone.
double speedup(const PlanSetup& s, const std::vector<double>& gains, int requests, int context, int nodes) {
    double tau = 1;
    for (int i = 0; i < nodes - 1; ++i) tau += gains[i];
    return tau * batch_verify_ms(s.target, s.peak, requests, 1, context) /
           (batch_draft_ms(s.draft, s.peak, requests, context) +
            batch_verify_ms(s.target, s.peak, requests, nodes, context));
}

int best_by_brute_force(const PlanSetup& s, const std::vector<double>& gains, int requests, int context) {
    int best = 1;
    for (int nodes = 2; nodes <= std::min<int>(s.max_nodes, static_cast<int>(gains.size()) + 1); ++nodes) {
        if (speedup(s, gains, requests, context, nodes) > speedup(s, gains, requests, context, best)) best = nodes;
    }
    return best;
}

std::vector<double> falling_gains(int count, double ratio) {
    std::vector<double> gains;
    for (int i = 0; i < count; ++i) gains.push_back(0.8 * std::pow(ratio, i));
    return gains;
}

TEST(PlanPoint, FindsTheBestBudgetOfAll) {
    int smallest = 2000, largest = 0;
    for (const char* model : {"qwen3-8b", "qwen3-coder-30b-a3b"}) {
        for (const char* device : {"h200", "l4", "laptop-avx2"}) {
            for (const double ratio : {0.5, 0.9, 0.99}) {
                for (const int requests : {1, 4, 32}) {
                    const PlanSetup setup = setup_of(model, device, 300);
                    const auto gains = falling_gains(250, ratio);
                    const PlanPoint point = plan_point(setup, gains, requests, 1000);
                    const int best = best_by_brute_force(setup, gains, requests, 1000);
                    EXPECT_NEAR(speedup(setup, gains, requests, 1000, point.best_nodes),
                                speedup(setup, gains, requests, 1000, best), 1e-9);
                    EXPECT_NEAR(point.speedup, speedup(setup, gains, requests, 1000, best), 1e-9);
                    EXPECT_NEAR(point.cycle_ms, point.draft_ms + point.verify_ms, 1e-9 * point.cycle_ms);
                    EXPECT_NEAR(point.tokens_per_s() / point.plain_tokens_per_s(), point.speedup, 1e-9);
                    smallest = std::min(smallest, point.best_nodes);
                    largest = std::max(largest, point.best_nodes);
                }
            }
        }
    }
    EXPECT_LT(smallest, 8) << "cases must differ";
    EXPECT_GT(largest, 100);
}

TEST(PlanPoint, MoreRequestsWantSmallerTrees) {
    const PlanSetup setup = setup_of("qwen3-8b", "a100-80gb", 512);
    const auto gains = falling_gains(511, 0.98);
    const int alone = plan_point(setup, gains, 1, 1000).best_nodes;
    int last = alone;
    for (const int requests : {4, 16, 64}) {
        const int best = plan_point(setup, gains, requests, 1000).best_nodes;
        EXPECT_LE(best, last) << requests;
        last = best;
    }
    EXPECT_LT(last, alone / 2);
}

TEST(PlanPoint, ShowsWhereTheStopRuleMissesTheBestOfExperts) {
    // Every node up to the saturation costs more than it brings; far beyond it they cost next to nothing.
    const PlanSetup setup = setup_of("qwen3-coder-30b-a3b", "h200", 256);
    const std::vector<double> gains(255, 0.05);
    const PlanPoint point = plan_point(setup, gains, 1, 256);
    EXPECT_LT(point.first_decrease_nodes, 16);
    EXPECT_GT(point.best_nodes, 100);
    EXPECT_EQ(plan_point(setup, gains, 2, 256).first_decrease_nodes, 0) << "not known for several requests";
    const PlanPoint dense = plan_point(setup_of("qwen3-8b", "h200", 256), falling_gains(255, 0.9), 1, 256);
    EXPECT_EQ(dense.first_decrease_nodes, dense.best_nodes) << "a convex cost";
}

TEST(PlanPoint, ADraftThatGuessesNothingDoesNotPay) {
    const PlanPoint point = plan_point(setup_of("qwen3-8b", "h200", 64), {}, 1, 256);
    EXPECT_EQ(point.best_nodes, 1);
    EXPECT_EQ(point.tau, 1);
    EXPECT_LT(point.speedup, 1);
    EXPECT_NEAR(point.speedup, point.plain_ms / (point.plain_ms + point.draft_ms), 1e-9);
}

TEST(PlanPoint, SumsTheGains) {
    const std::vector<double> gains{0.5, 0.25, 0.125};
    EXPECT_EQ(tokens_a_cycle(gains, 1), 1);
    EXPECT_EQ(tokens_a_cycle(gains, 3), 1.75);
    EXPECT_EQ(tokens_a_cycle(gains, 4), 1.875);
}

}  // namespace
}  // namespace bastion
