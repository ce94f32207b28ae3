#include "budget/parts_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "profiles.h"

namespace bastion {
namespace {

std::vector<GridPoint> measured(const ModelShape& shape, const DevicePeak& peak, const PartsFit& truth, double noise) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0, noise);
    std::vector<GridPoint> grid;
    for (const int context : {64, 256, 1024}) {
        for (const int nodes : {1, 2, 4, 8, 16, 32, 64}) {
            grid.push_back({nodes, context, truth.ms(shape, peak, {nodes, context}) * (1 + normal(random))});
        }
    }
    return grid;
}

ModelShape experts_shape() {
    ModelShape shape = test::profile_with().shape;
    shape.experts = 64;
    shape.experts_used = 4;
    return shape;
}

TEST(PartsFit, FindsTheFactorsThatMadeTheGrid) {
    const DevicePeak peak = test::profile_with().peak;
    for (const ModelShape& shape : {test::profile_with().shape, experts_shape()}) {
        for (const bool overlapped : {false, true}) {
            PartsFit truth{overlapped, 1.4, 0, 3.0, 2.5, 1.9, 0};
            if (shape.experts > 0 && !overlapped) truth.experts = 1.2;
            const auto grid = measured(shape, peak, truth, 0);
            const PartsFit fit = fit_parts(shape, peak, grid);
            ASSERT_TRUE(fit.valid());
            EXPECT_LT(fit.rmse_ms, 1e-3 * grid.back().verify_ms);
            for (const PassLoad& load : {PassLoad(3, 100), PassLoad(100, 2000)}) {
                EXPECT_NEAR(fit.ms(shape, peak, load), truth.ms(shape, peak, load), 0.01 * truth.ms(shape, peak, load));
            }
        }
    }
}

TEST(PartsFit, StaysCloseUnderNoiseAndNeverNegative) {
    const Profile profile = test::profile_with();
    const PartsFit truth{false, 1.4, 0, 3.0, 0, 0, 0};  // factors at the border of what is allowed
    const auto grid = measured(profile.shape, profile.peak, truth, 0.05);
    const PartsFit fit = fit_parts(profile.shape, profile.peak, grid);
    for (const double factor : {fit.matrices, fit.experts, fit.attention, fit.cache, fit.b}) EXPECT_GE(factor, 0);
    const PassLoad load(24, 512);
    const double expected = truth.ms(profile.shape, profile.peak, load);
    EXPECT_NEAR(fit.ms(profile.shape, profile.peak, load), expected, 0.1 * expected);
}

TEST(PartsFit, RefusesGridsThatDoNotTellThePartsApart) {
    const Profile profile = test::profile_with();
    std::vector<GridPoint> grid;
    for (int nodes = 1; nodes <= 20; ++nodes) grid.push_back({nodes, 64, 1.0 + nodes});
    EXPECT_FALSE(fit_parts(profile.shape, profile.peak, grid).valid());
    EXPECT_FALSE(fit_parts(profile.shape, profile.peak, std::vector<GridPoint>{{1, 64, 1}, {2, 128, 2}}).valid());
}

}  // namespace
}  // namespace bastion
