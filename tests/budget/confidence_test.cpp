#include "budget/confidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace bastion {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

Lattice lattice_of(std::vector<std::vector<float>> probabilities) {
    Lattice lattice;
    lattice.depth = static_cast<int>(probabilities.size());
    lattice.width = static_cast<int>(probabilities[0].size());
    for (const auto& row : probabilities) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            lattice.tokens.push_back(static_cast<Token>(i));
            lattice.logprobs.push_back(row[i] == 0 ? kNever : std::log(row[i]));
        }
    }
    return lattice;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// A world in which the top entry of a row with probability q is drawn with probability sigmoid(a + b logit q).
void live(ConfidenceCorrection& correction, int depth, double a, double b, int rows, unsigned seed) {
    std::mt19937 rng(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    for (int i = 0; i < rows; ++i) {
        const double q = 0.05 + 0.9 * uniform(rng);
        std::vector<std::vector<float>> rows_above(depth, {static_cast<float>(q)});
        const double p = sigmoid(a + b * std::log(q / (1 - q)));
        correction.observe(lattice_of(rows_above), depth, uniform(rng) < p ? 0 : 99);
    }
}

TEST(ConfidenceCorrection, StartsAsTheDraftersOwnWord) {
    const Lattice lattice = lattice_of({{0.7f, 0.2f, 0.0f}, {0.5f, 0.4f, 0.1f}});
    const std::vector<double> corrected = ConfidenceCorrection().corrected(lattice);
    for (std::size_t i = 0; i < corrected.size(); ++i) EXPECT_EQ(corrected[i], lattice.logprobs[i]);
}

TEST(ConfidenceCorrection, KnowsATokensProbability) {
    const Lattice lattice = lattice_of({{0.7f, 0.2f, 0.0f}, {0.5f, 0.4f, 0.1f}});
    ConfidenceCorrection correction;
    EXPECT_NEAR(correction.probability(lattice, 1, 1), 0.2, 1e-6);
    EXPECT_EQ(correction.probability(lattice, 1, 2), 0.0) << "an impossible entry";
    EXPECT_EQ(correction.probability(lattice, 2, 7), 0.0) << "not in the row";
    EXPECT_EQ(correction.probability(lattice, 3, 0), 0.0) << "below the lattice";
    const Lattice broken = lattice_of({{0.7f, std::nanf("")}});
    EXPECT_EQ(correction.probability(broken, 1, 1), 0.0);
    live(correction, 2, -1.0, 0.6, 500, 7);
    EXPECT_EQ(correction.probability(lattice, 2, 0), std::exp(correction.corrected(2, lattice.logprob(1, 0))));
}

TEST(ConfidenceCorrection, LearnsHowOftenAnOverConfidentDrafterIsRight) {
    ConfidenceCorrection correction;
    live(correction, 1, -1.0, 0.6, 4000, 7);
    for (double q : {0.2, 0.5, 0.8}) {
        const double truth = sigmoid(-1.0 + 0.6 * std::log(q / (1 - q)));
        EXPECT_NEAR(std::exp(correction.corrected(1, std::log(q))), truth, 0.06) << "q " << q;
    }
}

TEST(ConfidenceCorrection, AWellCalibratedDrafterStaysAsItIs) {
    ConfidenceCorrection correction;
    live(correction, 1, 0.0, 1.0, 4000, 8);
    for (double q : {0.2, 0.5, 0.8}) EXPECT_NEAR(std::exp(correction.corrected(1, std::log(q))), q, 0.06);
}

TEST(ConfidenceCorrection, DepthsAreLearnedSeparately) {
    ConfidenceCorrection correction;
    live(correction, 2, -2.0, 1.0, 1000, 9);
    EXPECT_EQ(correction.corrected(1, std::log(0.5)), std::log(0.5));
    EXPECT_LT(std::exp(correction.corrected(2, std::log(0.5))), 0.2);
}

TEST(ConfidenceCorrection, FollowsTextThatChangesItsCharacter) {
    ConfidenceCorrection correction;
    live(correction, 1, -3.0, 1.0, 2000, 10);
    live(correction, 1, 1.0, 1.0, 2000, 11);
    EXPECT_NEAR(std::exp(correction.corrected(1, std::log(0.5))), sigmoid(1.0), 0.08);
}

TEST(ConfidenceCorrection, NeverReordersARow) {
    std::mt19937 rng(12);
    std::uniform_real_distribution<double> uniform(-4.0, 4.0);
    for (unsigned world = 0; world < 20; ++world) {
        ConfidenceCorrection correction;
        live(correction, 1, uniform(rng), uniform(rng), 300, world);  // negative slopes too
        double before = 1.0;
        for (double q : {0.99, 0.9, 0.6, 0.3, 0.1, 0.01}) {
            const double p = std::exp(correction.corrected(1, std::log(q)));
            EXPECT_LE(p, before);
            EXPECT_GE(p, 0.0);
            before = p;
        }
    }
}

TEST(ConfidenceCorrection, ARowNeverHoldsMoreThanCertainty) {
    ConfidenceCorrection correction;
    live(correction, 1, 3.0, 1.0, 2000, 13);  // an under-confident drafter: every p is pushed up
    const std::vector<double> p = correction.corrected(lattice_of({{0.4f, 0.3f, 0.2f}}));
    double sum = 0;
    for (double logp : p) sum += std::exp(logp);
    EXPECT_LE(sum, 1.0 + 1e-12);
    EXPECT_GT(sum, 0.95);
}

TEST(ConfidenceCorrection, ImpossibleAndCertainEntriesStayFinite) {
    ConfidenceCorrection correction;
    Lattice lattice = lattice_of({{1.0f, 0.0f}});
    for (int i = 0; i < 50; ++i) correction.observe(lattice, 1, 5);
    const std::vector<double> p = correction.corrected(lattice);
    EXPECT_TRUE(std::isfinite(p[0]));
    EXPECT_LT(p[0], 0.0);
    EXPECT_EQ(p[1], kNever);
}

}  // namespace
}  // namespace bastion
