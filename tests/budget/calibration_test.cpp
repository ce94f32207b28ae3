#include "budget/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bastion {
namespace {

std::vector<GridPoint> grid_of(const std::vector<double>& verify_ms) {
    std::vector<GridPoint> grid;
    for (const double ms : verify_ms) grid.push_back({static_cast<int>(grid.size()) + 1, 64, ms});
    return grid;
}

TEST(LargestBump, IsNoneOfAConvexCost) {
    EXPECT_FALSE(largest_bump({}, 0.0));
    EXPECT_FALSE(largest_bump(grid_of({1, 1, 1.5, 2, 2.5, 4}), 1e-9));
}

TEST(LargestBump, IsTheStepOfATiledKernel) {
    // Three rows cost as much as four: above the line from 2 to 4 by 10 to 7.5.
    auto grid = grid_of({5, 5, 10, 10, 15});
    auto bump = largest_bump(grid, 0.05);
    ASSERT_TRUE(bump);
    EXPECT_EQ(bump->point.nodes, 3);
    EXPECT_EQ(bump->from, 2);
    EXPECT_EQ(bump->to, 4);
    EXPECT_NEAR(bump->excess, 1.0 / 3, 1e-12);
    EXPECT_FALSE(largest_bump(grid, 0.4)) << "below the noise";
    for (GridPoint& point : grid) point.context = point.nodes;
    EXPECT_FALSE(largest_bump(grid, 0.05)) << "contexts are not compared";
}

TEST(FitLinear, RecoversAKnownLine) {
    const std::vector<double> roofline = {1, 2, 3.5, 8, 20};
    std::vector<double> measured;
    for (const double r : roofline) measured.push_back(1.7 * r + 0.9);
    const LinearFit fit = fit_linear(grid_of(measured), roofline);
    EXPECT_NEAR(fit.a, 1.7, 1e-12);
    EXPECT_NEAR(fit.b, 0.9, 1e-12);
    EXPECT_NEAR(fit.rmse_after_ms, 0, 1e-12);
    EXPECT_GT(fit.rmse_before_ms, 1);
}

TEST(FitLinear, RecoversALineUnderNoiseAndNeverRaisesTheError) {
    for (int seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        std::normal_distribution<double> noise(0, 0.2);
        std::vector<double> roofline, measured;
        for (int i = 0; i < 42; ++i) {
            roofline.push_back(1 + i % 14 + 0.1 * (i / 14.0));
            measured.push_back(2.5 * roofline.back() + 4 + noise(random));
        }
        const LinearFit fit = fit_linear(grid_of(measured), roofline);
        EXPECT_NEAR(fit.a, 2.5, 0.05);
        EXPECT_NEAR(fit.b, 4, 0.4);
        EXPECT_NEAR(fit.rmse_after_ms, 0.2, 0.08);
        EXPECT_LT(fit.rmse_after_ms, fit.rmse_before_ms);
    }
}

TEST(FitLinear, IsTheLeastSquaresLine) {
    const std::vector<double> roofline = {1, 2, 4, 7}, measured = {3, 2, 9, 11};
    const auto grid = grid_of(measured);
    const LinearFit fit = fit_linear(grid, roofline);
    const auto error = [&](double a, double b) {
        double sum = 0;
        for (std::size_t i = 0; i < grid.size(); ++i) sum += std::pow(a * roofline[i] + b - measured[i], 2);
        return std::sqrt(sum / 4);
    };
    EXPECT_NEAR(fit.rmse_before_ms, error(1, 0), 1e-12);
    EXPECT_NEAR(fit.rmse_after_ms, error(fit.a, fit.b), 1e-12);
    for (const double da : {-0.01, 0.0, 0.01}) {
        for (const double db : {-0.01, 0.0, 0.01}) EXPECT_LE(fit.rmse_after_ms, error(fit.a + da, fit.b + db));
    }
}

TEST(FitLinear, EqualRooflinesGiveTheMean) {
    const std::vector<double> roofline = {3, 3, 3};
    const LinearFit fit = fit_linear(grid_of({1, 2, 6}), roofline);
    EXPECT_EQ(fit.a, 0);
    EXPECT_DOUBLE_EQ(fit.b, 3);
    const LinearFit single = fit_linear(grid_of({5}), std::vector<double>{2});
    EXPECT_EQ(single.a, 0);
    EXPECT_DOUBLE_EQ(single.b, 5);
    EXPECT_DOUBLE_EQ(single.rmse_before_ms, 3);
    EXPECT_DOUBLE_EQ(single.rmse_after_ms, 0);
}

TEST(MeasuredCurve, PassesThroughThePointsAndIsLinearBetweenThem) {
    const std::vector<GridPoint> grid = {{1, 100, 10}, {4, 100, 16}, {8, 100, 40},
                                         {1, 300, 20}, {4, 300, 36}, {8, 300, 80}};
    const MeasuredCurve curve(grid);
    for (const GridPoint& point : grid) EXPECT_DOUBLE_EQ(curve.at(point.nodes, point.context), point.verify_ms);
    EXPECT_DOUBLE_EQ(curve.at(2, 100), 12);
    EXPECT_DOUBLE_EQ(curve.at(6, 100), 28);
    EXPECT_DOUBLE_EQ(curve.at(1, 200), 15);
    EXPECT_DOUBLE_EQ(curve.at(6, 200), (28 + 58) / 2.0);
}

TEST(MeasuredCurve, GoesOnWithTheOuterSlopes) {
    const MeasuredCurve curve(std::vector<GridPoint>{{2, 100, 10}, {4, 100, 16}, {2, 300, 20}, {4, 300, 30}});
    EXPECT_DOUBLE_EQ(curve.at(1, 100), 7);
    EXPECT_DOUBLE_EQ(curve.at(6, 100), 22);
    EXPECT_DOUBLE_EQ(curve.at(2, 500), 30);
    EXPECT_DOUBLE_EQ(curve.at(4, 500), 44);
    EXPECT_DOUBLE_EQ(curve.at(2, 0), 5);
}

TEST(MeasuredCurve, IgnoresDipsInRows) {
    const MeasuredCurve curve(std::vector<GridPoint>{{1, 64, 5}, {2, 64, 4}, {4, 64, 4.5}, {8, 64, 9}, {16, 64, 8}});
    EXPECT_DOUBLE_EQ(curve.at(2, 64), 5);
    EXPECT_DOUBLE_EQ(curve.at(4, 64), 5);
    EXPECT_DOUBLE_EQ(curve.at(6, 64), 7);
    EXPECT_DOUBLE_EQ(curve.at(16, 64), 9);
    EXPECT_DOUBLE_EQ(curve.at(64, 64), 9) << "a falling end counts as flat";
}

TEST(MeasuredCurve, NeverDecreasesInRowsAtAnyContext) {
    for (int seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        std::vector<GridPoint> grid;
        for (const int context : {64, 256, 1024}) {
            for (const int nodes : {1, 2, 4, 8, 16, 32}) {
                if (random() % 4) grid.push_back({nodes, context, 1 + static_cast<double>(random() % 1000) / 50});
            }
        }
        const MeasuredCurve curve(grid);
        for (const double context : {0.0, 64.0, 100.0, 256.0, 700.0, 1024.0, 8000.0}) {
            for (int rows = 1; rows < 80; ++rows) {
                EXPECT_LE(curve.at(rows, context), curve.at(rows + 1, context) + 1e-9) << "seed " << seed;
            }
        }
    }
}

TEST(MeasuredCurve, AveragesRepeatsAndServesTinyGrids) {
    const MeasuredCurve point(std::vector<GridPoint>{{4, 64, 5}, {4, 64, 7}});
    EXPECT_DOUBLE_EQ(point.at(1, 0), 6);
    EXPECT_DOUBLE_EQ(point.at(100, 1000), 6);
    const MeasuredCurve column(std::vector<GridPoint>{{4, 64, 5}, {4, 128, 7}});
    EXPECT_DOUBLE_EQ(column.at(9, 96), 6);
    EXPECT_TRUE(MeasuredCurve(std::vector<GridPoint>{}).empty());
}

}  // namespace
}  // namespace bastion
