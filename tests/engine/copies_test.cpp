#include "engine/copies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../budget/profiles.h"
#include "../tree/lattices.h"

namespace bastion {
namespace {

const std::vector<Token> kLoop{9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1};

TEST(Copies, TrustThemselvesMoreBesideNothingThanBesideADraft) {
    const Continuation copy = Copies::find(kLoop, 6);
    ASSERT_EQ(copy.evidence.front().matched, 7);
    const CopiedPath path = Copies().path(copy, 2);
    EXPECT_EQ(path.tokens, (std::vector<Token>{2, 3, 1, 2, 3, 1}));
    const CopyWeights beside(CopyWeights::Beside::draft), alone(CopyWeights::Beside::nothing);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(path.weights[i], (i < 2 ? beside : alone).weight(copy.evidence[i])) << i;
}

TEST(Copies, AreNeverLongerThanTheRoom) {
    EXPECT_EQ(Copies::find(kLoop, 3).tokens.size(), 3u);
    EXPECT_EQ(Copies::find(kLoop, 1000).tokens.size(), 32u);
    EXPECT_TRUE(Copies::find(kLoop, 0).tokens.empty());
}

TEST(Copies, OfferTheBestTreeOfThemselvesAlone) {
    const LatencyModel latency(test::profile_with(), ControllerKind::curve);  // 4 ms and 0.5 ms a row
    const Copies copies;
    const CopyOffer offer = copies.offer(Copies::find(kLoop, 32), 1, latency, 64, 40, 64);
    EXPECT_GT(offer.nodes, 2);
    EXPECT_GT(offer.surrogate / offer.cycle_ms, 1 / latency.plain_ms(64)) << "faster than plain decoding";
    EXPECT_NEAR(offer.cycle_ms, latency.verify_ms(offer.nodes, 64), 1e-9) << "no draft is paid for";
    EXPECT_EQ(copies.offer(Copies::find(kLoop, 32), 1, latency, 64, 3, 64).nodes, 4) << "the depth that is left";
    EXPECT_EQ(copies.offer(Copies::find(kLoop, 32), 1, latency, 64, 40, 3).nodes, 3) << "the nodes that are left";
}

TEST(Copies, OfferAPlainStepWhereNothingRepeats) {
    const LatencyModel latency(test::profile_with(), ControllerKind::curve);
    const CopyOffer offer = Copies().offer(Copies::find(std::vector<Token>{1, 2, 3}, 32), 3, latency, 64, 40, 64);
    EXPECT_EQ(offer.nodes, 1);
    EXPECT_EQ(offer.surrogate, 1.0);
    EXPECT_EQ(offer.cycle_ms, latency.plain_ms(64));
}

TEST(Copies, LearnUpToTheFirstTokenThatDiffers) {
    const Continuation copy = Copies::find(kLoop, 6);
    const Lattice nothing;
    Copies copies;
    const std::vector<Token> drawn{2, 3, 7};
    copies.learn(copy, nothing, ConfidenceCorrection(), drawn);
    const CopiedPath before = Copies().path(copy, 0), after = copies.path(copy, 0);
    EXPECT_GT(after.weights[0], before.weights[0]);
    EXPECT_GT(after.weights[1], before.weights[1]);
    EXPECT_LT(after.weights[2], before.weights[2]) << "the copy said 1";
    EXPECT_EQ(after.weights[4], before.weights[4]) << "never seen";
    EXPECT_EQ(copies.path(copy, 6).weights, Copies().path(copy, 6).weights) << "nothing was drafted";
}

TEST(Copies, WhatTheDrafterKnewIsItsMerit) {
    const Continuation copy = Copies::find(kLoop, 6);
    Lattice sure = test::lattice_of({{std::log(0.99f)}});
    sure.tokens = {2};
    Copies copies;
    for (int i = 0; i < 200; ++i) copies.learn(copy, sure, ConfidenceCorrection(), std::vector<Token>{2});
    EXPECT_GT(copies.path(copy, 0).weights[0], 0.99) << "alone it would have held";
    EXPECT_NEAR(copies.path(copy, 6).weights[0], Copies().path(copy, 6).weights[0], 0.01)
        << "beside the draft it brought next to nothing";
}

}  // namespace
}  // namespace bastion
