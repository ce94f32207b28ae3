#include "budget/copying.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace bastion {
namespace {

using Beside = CopyWeights::Beside;

constexpr Support kSupports[] = {Support::contradicted, Support::mixed, Support::none, Support::confirmed};

TEST(CopyWeights, StartBelowOneAndTrustLongerMatchesAndMoreSupport) {
    for (const Beside beside : {Beside::draft, Beside::nothing}) {
        const CopyWeights weights(beside);
        double least = 0;
        for (const Support support : kSupports) {
            for (int m = 2; m <= 100; ++m) {
                EXPECT_GE(weights.weight({m, support}), weights.weight({m - 1, support}));
            }
            EXPECT_LT(weights.weight({100, support}), 1.0);
            EXPECT_EQ(weights.weight({1000, support}), weights.weight({CopyWeights::kMost, support}));
            EXPECT_GT(weights.weight({1, support}), least);
            least = weights.weight({1, support});
        }
    }
    EXPECT_DOUBLE_EQ(CopyWeights(Beside::nothing).weight({1, Support::none}), 1.0 / 3);
    EXPECT_DOUBLE_EQ(CopyWeights(Beside::draft).weight({1, Support::none}), 1.0 / 9);
}

TEST(CopyWeights, TellLengthsApartAsDocumented) {
    const CopyWeights weights(Beside::nothing);
    const int last[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64};
    for (int m = 1; m < 70; ++m) {
        const bool differs = weights.weight({m, Support::none}) != weights.weight({m + 1, Support::none});
        EXPECT_EQ(differs, std::ranges::count(last, m) == 1) << m;
    }
}

/// A world in which the text repeats itself with probability `w`, and else a token is drawn, the copied one with
/// probability q.
double learned(double w, double largest_q, unsigned seed) {
    CopyWeights weights(Beside::draft);
    const CopyEvidence evidence{3, Support::none};
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    double sum = 0;
    for (int i = 0; i < 6000; ++i) {
        const double q = largest_q * uniform(random);
        weights.observe(evidence, q, uniform(random) < w || uniform(random) < q);
        if (i >= 3000) sum += weights.weight(evidence);
    }
    return sum / 3000;
}

TEST(CopyWeights, LearnWhatTheDrafterDidNotKnow) {
    for (double w : {0.1, 0.5, 0.9}) {
        EXPECT_NEAR(learned(w, 0.0, 1), w, 0.05) << "nothing drafted";
        EXPECT_NEAR(learned(w, 0.6, 2), w, 0.08) << "beside a drafter";
    }
}

TEST(CopyWeights, OtherEvidenceKeepsItsWeight) {
    CopyWeights weights(Beside::draft);
    const CopyWeights fresh(Beside::draft);
    for (int i = 0; i < 100; ++i) weights.observe({2, Support::none}, 0.0, false);
    EXPECT_LT(weights.weight({2, Support::none}), 0.1);
    EXPECT_EQ(weights.weight({3, Support::none}), fresh.weight({3, Support::none}));
    EXPECT_EQ(weights.weight({2, Support::mixed}), fresh.weight({2, Support::mixed}));
    for (int i = 0; i < 10000; ++i) weights.observe({2, Support::none}, 0.0, false);
    EXPECT_GT(weights.weight({2, Support::none}), 0.0) << "never certain, so it can come back";
    weights.observe({5, Support::none}, std::nan(""), true);
    EXPECT_EQ(weights.weight({5, Support::none}), fresh.weight({5, Support::none}));
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
