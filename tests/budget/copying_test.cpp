#include "budget/copying.h"

#include <gtest/gtest.h>

#include <random>

namespace bastion {
namespace {

TEST(CopyWeights, StartBelowOneAndTrustLongerMatchesMore) {
    const CopyWeights weights;
    EXPECT_DOUBLE_EQ(weights.weight(1), 0.125);
    for (int m = 2; m <= 16; ++m) EXPECT_GT(weights.weight(m), weights.weight(m - 1));
    EXPECT_LT(weights.weight(16), 0.85);
    EXPECT_EQ(weights.weight(99), weights.weight(16));
}

TEST(CopyWeights, AlongAPathTheMatchGrows) {
    const CopyWeights weights;
    const std::vector<double> along = weights.along(15, 4);
    ASSERT_EQ(along.size(), 4u);
    EXPECT_EQ(along[0], weights.weight(15));
    for (int i = 1; i < 4; ++i) EXPECT_EQ(along[i], weights.weight(16));
    EXPECT_TRUE(weights.along(0, 0).empty());
}

/// A world in which the text repeats itself with probability `w`, and else a token is drawn, the copied one with
/// probability q.
double learned(double w, double largest_q, unsigned seed) {
    CopyWeights weights;
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    double sum = 0;
    for (int i = 0; i < 6000; ++i) {
        const double q = largest_q * uniform(random);
        weights.observe(3, q, uniform(random) < w || uniform(random) < q);
        if (i >= 3000) sum += weights.weight(3);
    }
    return sum / 3000;
}

TEST(CopyWeights, LearnWhatTheDrafterDidNotKnow) {
    for (double w : {0.1, 0.5, 0.9}) {
        EXPECT_NEAR(learned(w, 0.0, 1), w, 0.05) << "nothing drafted";
        EXPECT_NEAR(learned(w, 0.6, 2), w, 0.08) << "beside a drafter";
    }
}

TEST(CopyWeights, OtherLengthsKeepTheirWeight) {
    CopyWeights weights;
    for (int i = 0; i < 100; ++i) weights.observe(2, 0.0, false);
    EXPECT_LT(weights.weight(2), 0.1);
    EXPECT_EQ(weights.weight(3), CopyWeights().weight(3));
    for (int i = 0; i < 10000; ++i) weights.observe(2, 0.0, false);
    EXPECT_GT(weights.weight(2), 0.0) << "never certain, so it can come back";
}

}  // namespace
}  // namespace bastion
