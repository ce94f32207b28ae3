#include "budget/batch_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace bastion {
namespace {

/// Cycles of a machine on which the parts take `truth` times what is predicted, give or take `noise`.
struct Machine {
    CycleCost truth;
    double noise = 0.0;
    std::mt19937 random{7};

    double factor() { return 1 + std::uniform_real_distribution<>(-noise, noise)(random); }

    void run(BatchCosts& costs, int requests, int cycles, bool drafting = false) {
        for (int i = 0; i < cycles; ++i) {
            const double rows_ms = std::uniform_real_distribution<>(0.0, 10.0)(random);
            const CycleCost predicted{10.0, rows_ms, drafting ? 1.5 : 0.0};
            costs.observe(requests, predicted, truth.ms(predicted) * factor());
        }
    }
};

void expect_near(const CycleCost& factors, const CycleCost& truth, double tolerance) {
    EXPECT_NEAR(factors.plain, truth.plain, tolerance * truth.plain);
    EXPECT_NEAR(factors.rows, truth.rows, tolerance * truth.rows);
    EXPECT_NEAR(factors.draft, truth.draft, tolerance * truth.draft);
}

TEST(BatchCosts, BelievesTheModelUntilToldOtherwise) { expect_near(BatchCosts().factors(16), {1, 1, 1}, 1e-12); }

TEST(BatchCosts, TellsThePartsApart) {
    for (const CycleCost& truth : {CycleCost{1.3, 0.8, 1}, CycleCost{0.7, 1.1, 2}, CycleCost{4, 5, 0.5}}) {
        BatchCosts costs;
        Machine machine{truth};
        machine.run(costs, 16, 200);
        machine.run(costs, 16, 60, /*drafting=*/true);
        expect_near(costs.factors(16), truth, 0.1);
    }
}

TEST(BatchCosts, NoiseDoesNotFoolIt) {
    const CycleCost truth{1.2, 1.0, 1.0};
    BatchCosts costs;
    Machine machine{truth, 0.1};
    machine.run(costs, 32, 300);
    const CycleCost factors = costs.factors(32);
    EXPECT_NEAR(factors.plain, truth.plain, 0.1);
    EXPECT_NEAR(factors.rows, truth.rows, 0.3);
}

TEST(BatchCosts, WithoutFurtherRowsTheyAreTakenToBeAsDearAsTheRest) {
    BatchCosts costs;
    for (int i = 0; i < 100; ++i) costs.observe(8, {10, 0, 0}, 14);
    EXPECT_NEAR(costs.factors(8).plain, 1.4, 0.01);
    EXPECT_NEAR(costs.factors(8).rows, 1.4, 0.01);
}

TEST(BatchCosts, FollowsAMachineThatChanges) {
    BatchCosts costs;
    Machine{{1, 1, 1}}.run(costs, 4, 500);
    Machine{{1.5, 1.5, 1}}.run(costs, 4, 200);
    expect_near(costs.factors(4), {1.5, 1.5, 1}, 0.03);
}

TEST(BatchCosts, AStalledCycleDoesNotOutweighTheOthers) {
    for (const double draft_ms : {0.0, 1.5}) {
        BatchCosts costs;
        Machine machine{{1, 1, 1}};
        machine.run(costs, 16, 100);
        machine.run(costs, 16, 30, /*drafting=*/true);
        costs.observe(16, {10, 2, draft_ms}, 5000);
        EXPECT_LT(costs.factors(16).plain, 1.1) << "drafted " << draft_ms;
        EXPECT_LT(costs.factors(16).rows, 1.2) << "drafted " << draft_ms;
        machine.run(costs, 16, 30, /*drafting=*/true);
        EXPECT_LT(costs.factors(16).draft, 1.1) << "drafted " << draft_ms;
    }
}

TEST(BatchCosts, SizesAreApart) {
    BatchCosts costs;
    Machine{{2, 2, 2}}.run(costs, 16, 100);
    expect_near(costs.factors(15), {1, 1, 1}, 1e-12);
    expect_near(costs.factors(31), costs.factors(16), 1e-12);
    expect_near(costs.factors(32), {1, 1, 1}, 1e-12);
    Machine{{3, 3, 3}}.run(costs, 1 << 20, 100);
    EXPECT_NEAR(costs.factors(2048).plain, 3, 0.1) << "the largest sizes share one";
}

TEST(BatchCosts, CountsNothingThatIsNoTime) {
    BatchCosts costs;
    const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    for (const double ms : {0.0, -1.0, nan, infinity}) {
        costs.observe(4, {ms, 1, 0}, 100);
        costs.observe(4, {10, 1, 0}, ms);
    }
    costs.observe(4, {10, nan, 0}, 100);
    costs.observe(4, {10, infinity, 1}, 100);
    expect_near(costs.factors(4), {1, 1, 1}, 1e-12);
    for (int i = 0; i < 1000; ++i) costs.observe(4, {1e-9, 0, 0}, 1e9);
    EXPECT_LE(costs.factors(4).plain, 100);
}

}  // namespace
}  // namespace bastion
