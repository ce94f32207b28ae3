#include "budget/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "profiles.h"

namespace bastion {
namespace {

using Kind = ControllerKind;

/// A profile whose `curve` is verify_ms[i] for i + 1 rows, at any context.
Profile stepped(const std::vector<double>& verify_ms, double draft_ms = 0.0) {
    Profile profile = test::profile_with(draft_ms, 0.0);
    profile.grid.clear();
    for (std::size_t i = 0; i < verify_ms.size(); ++i)
        profile.grid.push_back({static_cast<int>(i) + 1, 64, verify_ms[i]});
    return profile;
}

/// Offers the gains until the search says stop; returns how many it took.
int feed(BudgetSearch& search, const std::vector<double>& gains) {
    int taken = 0;
    while (taken < static_cast<int>(gains.size()) && search.offer(gains[taken])) ++taken;
    return taken;
}

/// Falling gains rho(2) >= rho(3) >= ...
std::vector<double> falling_gains(std::mt19937& random, int count) {
    std::vector<double> gains;
    for (int i = 0; i < count; ++i) gains.push_back(std::uniform_real_distribution<double>(0, 1)(random));
    std::sort(gains.begin(), gains.end(), std::greater<>());
    return gains;
}

/// The N of the largest S(N), computed from the model's public predictions.
int best_of_all(const LatencyModel& model, const std::vector<double>& gains, int context) {
    int best = 1;
    double best_rate = 0, surrogate = 1;
    for (int nodes = 1; nodes <= static_cast<int>(gains.size()) + 1; ++nodes) {
        if (nodes > 1) surrogate += gains[nodes - 2];
        const double cost = model.draft_ms() + model.verify_ms(nodes, context) + model.aux_ms();
        if (surrogate / cost > best_rate) {
            best = nodes;
            best_rate = surrogate / cost;
        }
    }
    return best;
}

TEST(LatencyModel, StaticIsTheFittedLine) {
    const Profile profile = test::profile_with();
    const LatencyModel model(profile, Kind::fixed_fit);
    const double bare = roofline_ms(profile.shape, profile.peak, 9, 300);
    EXPECT_DOUBLE_EQ(model.verify_ms(9, 300), 1.25 * bare + 0.75);
    EXPECT_EQ(model.plain_ms(300), model.verify_ms(1, 300));
    EXPECT_EQ(model.draft_ms(), profile.draft_ms);
    EXPECT_EQ(model.aux_ms(), profile.aux_ms);
}

TEST(LatencyModel, CurveIsTheMeasuredGrid) {
    const LatencyModel model(test::profile_with(), Kind::curve);
    EXPECT_DOUBLE_EQ(model.verify_ms(8, 64), 8.064);
    EXPECT_DOUBLE_EQ(model.verify_ms(12, 64), 10.064);
    EXPECT_DOUBLE_EQ(model.verify_ms(100, 256), 54.256);
}

TEST(LatencyModel, EmaFollowsWhatItIsToldOnTheBareRoofline) {
    const Profile profile = test::profile_with();
    LatencyModel model(profile, Kind::ema);
    const double bare = roofline_ms(profile.shape, profile.peak, 4, 100);
    EXPECT_DOUBLE_EQ(model.verify_ms(4, 100), bare);
    model.observe_verify(4, 100, 3 * bare);
    EXPECT_NEAR(model.verify_ms(4, 100), (0.9 * 1 + 0.1 * 3) * bare, 1e-12);
    model.observe_verify(4, 100, 2 * bare);
    EXPECT_NEAR(model.verify_ms(4, 100), (0.9 * 1.2 + 0.1 * 2) * bare, 1e-12);
    for (int i = 0; i < 200; ++i) model.observe_verify(4, 100, 5 * bare);
    EXPECT_NEAR(model.verify_ms(4, 100), 5 * bare, 1e-6);
    EXPECT_NEAR(model.verify_ms(9, 300), 5 * roofline_ms(profile.shape, profile.peak, 9, 300), 1e-6);
}

TEST(LatencyModel, EmaOnTopOfTheFitCorrectsTheFit) {
    const Profile profile = test::profile_with();
    LatencyModel model(profile, Kind::ema_fixed_fit);
    const double fitted = 1.25 * roofline_ms(profile.shape, profile.peak, 4, 100) + 0.75;
    EXPECT_DOUBLE_EQ(model.verify_ms(4, 100), fitted);
    model.observe_verify(4, 100, 2 * fitted);
    EXPECT_NEAR(model.verify_ms(4, 100), 1.1 * fitted, 1e-12);
}

TEST(LatencyModel, StaticAndCurveDoNotLearn) {
    for (const Kind kind : {Kind::fixed_fit, Kind::curve}) {
        LatencyModel model(test::profile_with(), kind);
        const double before = model.verify_ms(4, 100);
        model.observe_verify(4, 100, 1000);
        EXPECT_EQ(model.verify_ms(4, 100), before);
    }
}

TEST(LatencyModel, PredictionsArePositiveAndFiniteWhateverTheProfileSays) {
    const double inf = std::numeric_limits<double>::infinity();
    std::vector<Profile> odd(5, test::profile_with());
    odd[0].fit = {1, -1e6, 0, 0};
    odd[1].fit = {-5, 0, 0, 0};
    odd[2].peak = {0, 0};
    odd[3].grid = {{8, 1000, 100}, {16, 1000, 900}, {8, 2000, 1000}, {16, 2000, 5000}};
    odd[4].grid.clear();
    for (const Profile& profile : odd) {
        for (const Kind kind : {Kind::fixed_fit, Kind::ema, Kind::ema_fixed_fit, Kind::curve}) {
            LatencyModel model(profile, kind);
            for (const double observed : {inf, -1.0, 0.0, std::nan(""), 1e300, 1e-300}) {
                model.observe_verify(3, 10, observed);
            }
            for (const int rows : {0, 1, 2, 1024}) {
                for (const int context : {0, 1, 100000}) {
                    EXPECT_GT(model.verify_ms(rows, context), 0);
                    EXPECT_TRUE(std::isfinite(model.verify_ms(rows, context)));
                }
            }
            BudgetSearch search(model, 10, 8);
            feed(search, {0.5, 0.25});
            EXPECT_TRUE(std::isfinite(search.best_speedup()));
        }
    }
}

TEST(BudgetSearch, FirstDecreaseIsTheGlobalBestWhenThePremisesHold) {
    for (int seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        Profile profile = test::profile_with(std::uniform_real_distribution<double>(0, 5)(random), 0.1);
        profile.fit.a = std::uniform_real_distribution<double>(0.1, 10)(random);
        profile.fit.b = std::uniform_real_distribution<double>(0, 10)(random);
        const LatencyModel model(profile, Kind::fixed_fit);
        // Premises of Proposition 3.4: gains fall, and the cost is convex in N.
        for (int n = 2; n < 128; ++n) {
            ASSERT_GE(model.verify_ms(n + 1, 200) - model.verify_ms(n, 200) + 1e-9,
                      model.verify_ms(n, 200) - model.verify_ms(n - 1, 200));
        }
        const auto gains = falling_gains(random, 127);
        BudgetSearch search(model, 200, 128);
        feed(search, gains);
        EXPECT_EQ(search.best_nodes(), best_of_all(model, gains, 200)) << "seed " << seed;
    }
}

TEST(BudgetSearch, CurveFindsTheBestOfAnyCost) {
    for (int seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        std::vector<double> cost = {5};
        for (int i = 1; i < 64; ++i) cost.push_back(cost.back() + (random() % 8 == 0 ? 4.0 : 0.01));
        const LatencyModel model(stepped(cost, 2), Kind::curve);
        const auto gains = falling_gains(random, 63);
        BudgetSearch search(model, 64, 64);
        feed(search, gains);
        EXPECT_EQ(search.best_nodes(), best_of_all(model, gains, 64)) << "seed " << seed;
    }
}

TEST(BudgetSearch, StepsStopTheFirstDecreaseTooEarly) {
    // Rows 1-2 cost 10, from 3 on 15: the step at 3 loses at first and wins by 8.
    const std::vector<double> cost = {10, 10, 15, 15, 15, 15, 15, 15};
    const std::vector<double> gains = {0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6};
    const LatencyModel curve(stepped(cost), Kind::curve);
    BudgetSearch patient(curve, 64, 8);
    feed(patient, gains);
    EXPECT_EQ(patient.best_nodes(), 8);
    // First decrease on the same curve ends before the step: S(3) = 2.75 / 15 < S(2) = 1.9 / 10.
    EXPECT_LT(2.75 / curve.verify_ms(3, 64), 1.9 / curve.verify_ms(2, 64));
    EXPECT_GT(patient.best_speedup(), 1.9 * curve.plain_ms(64) / curve.verify_ms(2, 64));
}

TEST(BudgetSearch, StaticStopsEarlyWhereExpertsSaturate) {
    // MoE: memory grows steeply until all experts are touched, then hardly at all, so the cost is not convex.
    Profile profile = test::profile_with(0, 0);
    profile.shape.experts = 64;
    profile.shape.experts_used = 8;
    profile.peak = {1e15, 1e10};
    profile.fit = {1, 0, 0, 0};
    profile.grid.clear();
    for (int nodes = 1; nodes <= 64; ++nodes) {
        profile.grid.push_back({nodes, 64, roofline_ms(profile.shape, profile.peak, nodes, 64)});
    }
    const std::vector<double> gains(63, 0.7);
    const LatencyModel fitted(profile, Kind::fixed_fit), measured(profile, Kind::curve);
    BudgetSearch impatient(fitted, 64, 64), patient(measured, 64, 64);
    feed(impatient, gains);
    feed(patient, gains);
    EXPECT_LT(impatient.best_nodes(), 8);
    EXPECT_EQ(patient.best_nodes(), 64);
    EXPECT_GT(patient.best_speedup(), impatient.best_speedup());
}

TEST(BudgetSearch, StopsAtMaxNodesAndStaysStopped) {
    const LatencyModel curve(stepped({10, 10, 10, 10, 10}), Kind::curve);
    BudgetSearch search(curve, 64, 3);
    EXPECT_TRUE(search.offer(0.9));
    EXPECT_TRUE(search.offer(0.9));
    EXPECT_FALSE(search.offer(0.9));
    EXPECT_EQ(search.best_nodes(), 3);

    const LatencyModel fitted(test::profile_with(), Kind::fixed_fit);
    BudgetSearch stopped(fitted, 64, 64);
    EXPECT_FALSE(stopped.offer(0.0));
    EXPECT_FALSE(stopped.offer(1.0));
    EXPECT_EQ(stopped.best_nodes(), 1);

    BudgetSearch one(fitted, 64, 1);
    EXPECT_FALSE(one.offer(1.0));
    EXPECT_EQ(one.best_nodes(), 1);
    BudgetSearch none(fitted, 64, 0);
    EXPECT_FALSE(none.offer(1.0));
    EXPECT_EQ(none.best_nodes(), 1);
}

TEST(BudgetSearch, SpeedupCountsDraftAndAux) {
    Profile profile = stepped({10, 12, 14}, 3);
    profile.aux_ms = 2;
    const LatencyModel model(profile, Kind::curve);
    BudgetSearch search(model, 64, 3);
    EXPECT_DOUBLE_EQ(search.best_speedup(), 10.0 / 15) << "the draft is paid even if one node is verified";
    EXPECT_TRUE(search.offer(0.8));
    EXPECT_EQ(search.best_nodes(), 2);
    EXPECT_DOUBLE_EQ(search.best_speedup(), 1.8 * 10 / 17);
    EXPECT_DOUBLE_EQ(search.predicted_cycle_ms(), 17);
    EXPECT_DOUBLE_EQ(search.predicted_verify_ms(), 12);
    EXPECT_TRUE(search.offer(0.01));
    EXPECT_EQ(search.best_nodes(), 2);
    EXPECT_DOUBLE_EQ(search.predicted_cycle_ms(), 17);
}

TEST(BudgetSearch, RowsOfOthersAreChargedAndShareThePlainPass) {
    const LatencyModel model(stepped({10, 12, 14, 16, 30, 44}), Kind::curve);
    BudgetSearch alone(model, 64, 3), together(model, std::vector<PassPart>(4, {64, 1}), 1, 4.0, 3);
    feed(alone, {0.5, 0.5});
    feed(together, {0.5, 0.5});
    EXPECT_EQ(alone.best_nodes(), 3);
    EXPECT_EQ(together.best_nodes(), 4) << "two more rows would cross the step at 5 rows";
    EXPECT_DOUBLE_EQ(together.predicted_verify_ms(), 16);
    EXPECT_DOUBLE_EQ(together.best_speedup(), 1.0) << "nothing drafted costs what plain decoding costs in company";
}

TEST(BudgetSearch, SpeedupOfSeveralIsTheirTokensOverThoseOfAPlainPass) {
    Profile profile = stepped({10, 12, 14, 16, 18}, 3);
    profile.draft_more_ms = 1;
    profile.aux_ms = 0.5;
    const LatencyModel model(profile, Kind::curve);
    // A chain of two nodes that is there already (1.5 tokens expected), one that grows, and one that does not draft.
    BudgetSearch search(model, {{64, 1}, {64, 2}, {64, 1}}, 2, 3.5, 3);
    EXPECT_EQ(search.best_nodes(), 4);
    EXPECT_DOUBLE_EQ(search.predicted_cycle_ms(), 3 + 1 + 2 * 0.5 + 16);
    EXPECT_DOUBLE_EQ(search.best_speedup(), 3.5 / 21 / (3 / 14.0));
    EXPECT_TRUE(search.offer(0.9, 0));
    EXPECT_EQ(search.best_nodes(), 5);
    EXPECT_DOUBLE_EQ(search.best_speedup(), 4.4 / 23 / (3 / 14.0));
    EXPECT_TRUE(search.offer(0.1, 0));
    EXPECT_FALSE(search.offer(1.0, 0)) << "three rows are the most a part may have";
}

TEST(BudgetSearch, FactorsSayWhatThePartsReallyTake) {
    const LatencyModel model(stepped({10, 12, 14, 16, 18}, 3), Kind::curve);
    BudgetSearch search(model, {{64, 1}, {64, 1}}, 1, 2.0, 3, {1.5, 0.5, 2});
    EXPECT_DOUBLE_EQ(search.predicted_cycle_ms(), 2 * 3 + 1.5 * 12);
    EXPECT_TRUE(search.offer(0.9, 0));
    EXPECT_DOUBLE_EQ(search.predicted_verify_ms(), 1.5 * 12 + 0.5 * 2);
    EXPECT_DOUBLE_EQ(search.best_speedup(), 2.9 / 25 / (2 / 18.0));
    // As dear as what a token costs, less likely than one: worth it only where rows are cheaper than predicted.
    BudgetSearch dear(model, {{64, 1}, {64, 1}}, 0, 2.0, 3);
    dear.offer(0.2, 0);
    EXPECT_EQ(dear.best_nodes(), 2);
    BudgetSearch cheap(model, {{64, 1}, {64, 1}}, 0, 2.0, 3, {1, 0.5, 1});
    cheap.offer(0.2, 0);
    EXPECT_EQ(cheap.best_nodes(), 3);
}

TEST(LatencyModel, OtherRequestsCachesCostWhatTheFitByPartsSays) {
    Profile profile = test::profile_with();
    const LatencyModel unfitted(profile, Kind::curve);
    profile.parts.matrices = 1;
    profile.parts.cache = 2;
    const LatencyModel model(profile, Kind::curve);
    PassLoad several(1, 300), one(3, 200);
    several.add(2, 150);
    const auto bytes_ms = [&](const PassLoad& load) {
        return roofline_parts(profile.shape, profile.peak, load).cache_ms;
    };
    PassLoad shared = several;
    shared.cached = 200;
    EXPECT_NEAR(model.verify_ms(several) - unfitted.verify_ms(several), 2 * (bytes_ms(several) - bytes_ms(shared)),
                1e-9);
    EXPECT_GT(model.verify_ms(several), unfitted.verify_ms(several));
    EXPECT_EQ(model.verify_ms(one), unfitted.verify_ms(one));
}

TEST(LatencyModel, KnowsWhatSeveralRequestsAttendTo) {
    const Profile profile = test::profile_with();
    PassLoad load(3, 100);
    load.add(2, 400);
    const LatencyModel fitted(profile, Kind::fixed_fit), measured(profile, Kind::curve);
    EXPECT_DOUBLE_EQ(fitted.verify_ms(load), 1.25 * roofline_ms(profile.shape, profile.peak, load) + 0.75);
    EXPECT_DOUBLE_EQ(measured.verify_ms(load), 4.0 + 0.5 * 5 + 0.001 * (3 * 100 + 2 * 400) / 5);
    EXPECT_EQ(fitted.verify_ms(PassLoad(4, 100)), fitted.verify_ms(4, 100));
    EXPECT_EQ(measured.verify_ms(PassLoad(4, 100)), measured.verify_ms(4, 100));
    LatencyModel learning(profile, Kind::ema_fixed_fit);
    learning.observe_verify(load, 2 * learning.verify_ms(load));
    EXPECT_NEAR(learning.verify_ms(load), 1.1 * fitted.verify_ms(load), 1e-12);
}

TEST(LatencyModel, DraftsOfSeveralShareAPass) {
    Profile profile = test::profile_with(2.0, 0.5);
    profile.draft_more_ms = 0.75;
    const LatencyModel model(profile, Kind::fixed_fit);
    EXPECT_EQ(model.draft_ms(0), 0);
    EXPECT_EQ(model.draft_ms(1), 2);
    EXPECT_EQ(model.draft_ms(5), 5);
    EXPECT_EQ(model.aux_ms(0), 0);
    EXPECT_EQ(model.aux_ms(4), 2);
}

/// A session whose drafted cycles all gain the same.
struct Text {
    DraftSwitch drafting;

    /// Runs cycles; returns how many were drafted.
    int run(int cycles, double gain) {
        int drafted = 0;
        for (int i = 0; i < cycles; ++i) {
            if (!drafting.should_draft()) continue;
            drafting.observe_drafted(2, 2.0, gain);
            ++drafted;
        }
        return drafted;
    }
};

TEST(DraftSwitch, StartsOptimistic) {
    Text text;
    EXPECT_FALSE(text.drafting.off());
    EXPECT_EQ(text.run(4, 0.1), 4);
    EXPECT_TRUE(text.drafting.off());
}

TEST(DraftSwitch, KeepsDraftingWhileItGains) {
    Text text;
    EXPECT_EQ(text.run(500, 1.3), 500);
    EXPECT_NEAR(text.drafting.gain(), 1.3, 1e-9);
}

TEST(DraftSwitch, TextThatLosesALittleGoesOffAfterTheDocumentedCycles) {
    for (const double loss : {0.5, 0.8, 0.9, 0.95}) {
        Text text;
        const double cycles = 1 + std::log((1 - loss) / (1.15 - loss)) / std::log(0.9);
        text.run(std::max(4, static_cast<int>(cycles)), loss);
        EXPECT_TRUE(text.drafting.off()) << loss;
    }
}

TEST(DraftSwitch, AFewPoorCyclesDoNotEndASmallGain) {
    Text text;
    for (int i = 0; i < 100; ++i) text.run(1, i % 3 == 2 ? 1.98 : 0.6);  // 1.06 on average
    EXPECT_FALSE(text.drafting.off());
}

TEST(DraftSwitch, GainIsTheDocumentedAverage) {
    DraftSwitch drafting;
    drafting.observe_drafted(3, 10, 5);
    EXPECT_DOUBLE_EQ(drafting.gain(), 0.9 * 1.15 + 0.1 * 1.5);
    drafting.observe_drafted(1, 10, 5);
    EXPECT_DOUBLE_EQ(drafting.gain(), 0.9 * (0.9 * 1.15 + 0.1 * 1.5) + 0.1 * 0.5);
}

TEST(DraftSwitch, HopelessTextPaysForFewProbes) {
    Text text;
    text.run(4, 0.3);
    EXPECT_EQ(text.run(8, 0.3), 0) << "the first probe comes after 8 undrafted cycles";
    EXPECT_EQ(text.run(1, 0.3), 1);
    EXPECT_EQ(text.run(16, 0.3), 0);
    EXPECT_EQ(text.run(1, 0.3), 1);
    EXPECT_EQ(text.run(1700, 0.3), 100);
    EXPECT_TRUE(text.drafting.off());
}

TEST(DraftSwitch, ComesBackWithinTwentyCycles) {
    for (const double good : {1.1, 1.5, 3.0}) {
        for (int bad_cycles = 200; bad_cycles < 220; ++bad_cycles) {
            Text text;
            text.run(bad_cycles, 0.2);
            ASSERT_TRUE(text.drafting.off());
            int cycles = 0;
            while (text.drafting.off() && cycles < 1000) {
                text.run(1, good);
                ++cycles;
            }
            EXPECT_LE(cycles, 20) << "gain " << good << " after " << bad_cycles;
            EXPECT_EQ(text.run(50, good), 50);
        }
    }
}

TEST(DraftSwitch, OneBadCycleInGoodTextChangesNothing) {
    Text text;
    text.run(20, 1.6);
    text.run(1, 0.2);
    EXPECT_FALSE(text.drafting.off());
}

TEST(DraftSwitch, GoesOffAgainAndProbesFromTheStart) {
    Text text;
    text.run(200, 0.3);
    text.run(40, 2.0);
    ASSERT_FALSE(text.drafting.off());
    while (!text.drafting.off()) text.run(1, 0.3);
    EXPECT_EQ(text.run(8, 0.3), 0);
    EXPECT_EQ(text.run(1, 0.3), 1);
}

TEST(DraftSwitch, BrokenClocksAreIgnored) {
    DraftSwitch drafting;
    drafting.observe_drafted(3, 0, 0);
    drafting.observe_drafted(3, 0, 5);
    drafting.observe_drafted(3, 5, std::nan(""));
    EXPECT_EQ(drafting.gain(), DraftSwitch().gain());
}

}  // namespace
}  // namespace bastion
