#include "budget/copying.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bastion {
namespace {

using Beside = CopyWeights::Beside;

TEST(CopyWeights, StartBelowOneAndTrustLongerMatchesMore) {
    for (const Beside beside : {Beside::draft, Beside::nothing}) {
        const CopyWeights weights(beside);
        for (int m = 2; m <= 16; ++m) EXPECT_GT(weights.weight(m), weights.weight(m - 1));
        EXPECT_LT(weights.weight(16), 0.9);
        EXPECT_EQ(weights.weight(99), weights.weight(16));
    }
    EXPECT_DOUBLE_EQ(CopyWeights(Beside::draft).weight(1), 0.125);
    EXPECT_DOUBLE_EQ(CopyWeights(Beside::nothing).weight(1), 1.0 / 3);
}

/// A world in which the text repeats itself with probability `w`, and else a token is drawn, the copied one with
/// probability q.
double learned(double w, double largest_q, unsigned seed) {
    CopyWeights weights(Beside::draft);
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
    CopyWeights weights(Beside::draft);
    for (int i = 0; i < 100; ++i) weights.observe(2, 0.0, false);
    EXPECT_LT(weights.weight(2), 0.1);
    EXPECT_EQ(weights.weight(3), CopyWeights(Beside::draft).weight(3));
    for (int i = 0; i < 10000; ++i) weights.observe(2, 0.0, false);
    EXPECT_GT(weights.weight(2), 0.0) << "never certain, so it can come back";
    const double before = weights.weight(5);
    weights.observe(5, std::nan(""), true);
    EXPECT_EQ(weights.weight(5), before);
}

TEST(CopyBeatsDraft, AgreesWithBothSpeeds) {
    std::mt19937 random(4);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    int better = 0;
    for (int i = 0; i < 1000; ++i) {
        const CopyOffer copy{2, 1 + 8 * uniform(random), 1 + 5 * uniform(random), uniform(random)};
        const double draft_ms = uniform(random), tokens = 1 + 2 * uniform(random);
        const double alone = copy.surrogate / copy.cycle_ms;
        const double drafted = (copy.surrogate + (1 - copy.weight) * (tokens - 1)) / (copy.cycle_ms + draft_ms);
        EXPECT_EQ(copy_beats_draft(copy, draft_ms, tokens), alone >= drafted);
        better += alone >= drafted;
    }
    EXPECT_GT(better, 100);
    EXPECT_LT(better, 900);
}

TEST(CopyBeatsDraft, ADraftThatBringsNothingIsNotMade) {
    EXPECT_TRUE(copy_beats_draft({2, 2.0, 3.0, 0.5}, 0.5, 1.0));
    EXPECT_TRUE(copy_beats_draft({2, 2.0, 3.0, 0.5}, 0.5, 0.0));
    EXPECT_FALSE(copy_beats_draft({2, 2.0, 3.0, 0.5}, 0.0, 2.0)) << "a draft that costs nothing";
}

}  // namespace
}  // namespace bastion
