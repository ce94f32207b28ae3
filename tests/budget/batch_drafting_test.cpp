#include "budget/batch_drafting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "profiles.h"

namespace bastion {
namespace {

/// A pass takes 10 ms, and `row_ms` more for each row beyond `free_rows`.
LatencyModel machine(double row_ms, int free_rows, double draft_ms, double draft_more_ms) {
    Profile profile = test::profile_with(draft_ms, 0.0);
    profile.draft_more_ms = draft_more_ms;
    profile.grid = {{1, 64, 10.0}, {free_rows, 64, 10.0}, {free_rows + 100, 64, 10.0 + 100 * row_ms}};
    return {profile, ControllerKind::curve};
}

PassLoad plain_pass(int requests) {
    PassLoad load;
    for (int i = 0; i < requests; ++i) load.add(1, 64);
    return load;
}

/// Requests whose trees are chains of `nodes`, of which in each cycle the first `drawn` are drawn at.
struct Traffic {
    BatchDrafting drafting;
    std::vector<DraftFortune> fortunes;
    std::vector<int> drawn;  ///< by request
    int nodes = 5;
    CycleCost factors;

    Traffic(int requests, int all_drawn) : fortunes(requests), drawn(requests, all_drawn) {}

    /// One cycle; which requests drafted.
    std::vector<bool> cycle(const LatencyModel& latency) {
        const int n = static_cast<int>(fortunes.size());
        const std::vector<bool> drafts = drafting.choose(latency, factors, plain_pass(n), n, fortunes);
        for (int i = 0; i < n; ++i) {
            std::vector<std::int32_t> accepted;
            for (int node = 0; node < drawn[i]; ++node) accepted.push_back(node);
            if (drafts[i]) {
                drafting.observe(nodes, accepted, fortunes[i]);
            } else {
                drafting.observe_undrafted(fortunes[i]);
            }
        }
        return drafts;
    }

    /// Drafts in `cycles` cycles.
    int run(int cycles, const LatencyModel& latency) {
        long drafts = 0;
        for (int i = 0; i < cycles; ++i) {
            const std::vector<bool> now = cycle(latency);
            drafts += std::count(now.begin(), now.end(), true);
        }
        return static_cast<int>(drafts);
    }
};

TEST(DraftRecord, KnowsWhatEverySmallerTreeWouldHaveDrawn) {
    std::mt19937 random(3);
    DraftRecord record;
    std::vector<std::pair<int, std::vector<std::int32_t>>> cycles;
    for (int i = 0; i < 100; ++i) {
        const int nodes = 1 + static_cast<int>(random() % 12);
        std::vector<std::int32_t> accepted{0};
        for (int node = 1; node < nodes; ++node) {
            if (random() % 3 == 0) accepted.push_back(node);
        }
        record.observe(nodes, accepted);
        cycles.emplace_back(nodes, accepted);
    }
    EXPECT_EQ(record.cycles(), 100);
    EXPECT_EQ(record.most_nodes(), 12);
    for (int size = 1; size <= 20; ++size) {
        double tokens = 0, rows = 0;
        for (const auto& [nodes, accepted] : cycles) {
            tokens +=
                static_cast<double>(std::count_if(accepted.begin(), accepted.end(), [&](int a) { return a < size; }));
            rows += std::min(size, nodes);
        }
        EXPECT_NEAR(record.tokens(size), tokens / 100, 1e-12) << size;
        EXPECT_NEAR(record.rows(size), rows / 100, 1e-12) << size;
    }
}

TEST(DraftRecord, KnowsNothingAtFirstAndForgetsLater) {
    DraftRecord record;
    EXPECT_EQ(record.tokens(8), 1);
    EXPECT_EQ(record.rows(8), 1);
    const std::vector<std::int32_t> all{0, 1, 2}, none{0};
    for (int i = 0; i < 1000; ++i) record.observe(3, all);
    EXPECT_DOUBLE_EQ(record.tokens(3), 3);
    for (int i = 0; i < 1000; ++i) record.observe(3, none);
    EXPECT_LT(record.tokens(3), 1.02);
}

TEST(BatchDrafting, AFewLearnForAll) {
    const LatencyModel cheap = machine(0.01, 100, 0.5, 0.1);
    Traffic traffic(16, 4);
    std::vector<int> drafting;
    for (int i = 0; i < 7; ++i) drafting.push_back(traffic.run(1, cheap));
    EXPECT_EQ(drafting, (std::vector<int>{1, 1, 2, 4, 8, 16, 16})) << "as many as cycles have been seen";
    EXPECT_EQ(traffic.run(100, cheap), 1600);
}

TEST(BatchDrafting, OffForTheWholeBatchWherePlainDecodingIsBetter) {
    // A row costs what it brings: 16 requests need 10 + 16 x 0.6 ms; drafting two of three tokens would add 2 x 2.4
    // + 1.
    const LatencyModel dear = machine(0.6, 1, 1.0, 1.0);
    Traffic traffic(16, 2);
    EXPECT_EQ(traffic.run(1, dear), 1) << "something has to be known";
    const int probes = traffic.run(2000, dear);
    EXPECT_GT(probes, 5);
    // Each costs at most a draft and four rows, 3.4 ms, and 0.25 % of the plain pass of 19 ms may be spent on them.
    EXPECT_LE(probes, 2000 * 0.0025 * 19.0 / 3.4 + 1);
}

TEST(BatchDrafting, ProbesTakeTurnsAndBringDraftingBack) {
    const LatencyModel dear = machine(0.6, 1, 1.0, 1.0);
    Traffic traffic(4, 1);
    std::vector<int> probed(4, 0);
    for (int i = 0; i < 4000; ++i) {
        const std::vector<bool> drafts = traffic.cycle(dear);
        for (int r = 0; r < 4; ++r) probed[r] += drafts[r] ? 1 : 0;
    }
    const auto [fewest, most] = std::minmax_element(probed.begin(), probed.end());
    EXPECT_GT(*fewest, 0);
    EXPECT_LE(*most, *fewest + 1);

    std::fill(traffic.drawn.begin(), traffic.drawn.end(), 5);
    traffic.run(20000, dear);
    EXPECT_EQ(traffic.run(10, dear), 40) << "five tokens of five rows pay";
}

TEST(BatchDrafting, TheSameTrafficPaysInASmallerBatch) {
    // Up to 16 rows cost nothing: four requests of five rows hardly exceed that, sixteen do by far.
    const LatencyModel model = machine(1.0, 16, 1.0, 0.2);
    Traffic few(4, 2), many(16, 2);
    few.run(50, model);
    many.run(50, model);
    EXPECT_GT(few.run(100, model), 300);
    EXPECT_LT(many.run(100, model), 20);
}

TEST(BatchDrafting, ThoseWhoseDraftsAreAcceptedDraft) {
    const LatencyModel model = machine(0.6, 8, 1.0, 1.0);
    Traffic traffic(8, 1);
    for (int r = 0; r < 3; ++r) traffic.drawn[r] = 5;
    // Everybody has drafted for a while, as with a fixed budget before.
    for (int i = 0; i < 20; ++i) {
        for (int r = 0; r < 8; ++r) {
            const std::vector<std::int32_t> accepted{0, 1, 2, 3, 4};
            traffic.drafting.observe(5, std::span(accepted).first(traffic.drawn[r]), traffic.fortunes[r]);
        }
    }
    const std::vector<bool> drafts = traffic.cycle(model);
    EXPECT_EQ(drafts, (std::vector<bool>{true, true, true, false, false, false, false, false}));
}

TEST(BatchDrafting, WhatCyclesReallyTakeDecides) {
    // By the model a draft adds 1 + 0.4 ms to 10 for 3 tokens a request instead of 1.
    const LatencyModel model = machine(0.1, 4, 1.0, 0.1);
    const auto drafting_with = [&](const CycleCost& factors) {
        Traffic traffic(4, 3);
        traffic.run(20, model);
        traffic.factors = factors;
        const std::vector<bool> drafts = traffic.cycle(model);
        return std::count(drafts.begin(), drafts.end(), true);
    };
    EXPECT_EQ(drafting_with({}), 4);
    EXPECT_LE(drafting_with({0.1, 4, 4}), 1) << "a plain pass of 1 ms and a draft of 4 and more";
    EXPECT_LE(drafting_with({1, 40, 1}), 1) << "rows of 4 ms";
    EXPECT_EQ(drafting_with({2, 4, 4}), 4) << "dear drafts beside dear passes";
    EXPECT_EQ(drafting_with({1, 0, 0}), 4);
}

TEST(BatchDrafting, NobodyAsksNobodyDrafts) {
    BatchDrafting drafting;
    EXPECT_TRUE(drafting.choose(machine(1, 1, 1, 1), {}, plain_pass(3), 3, {}).empty());
}

}  // namespace
}  // namespace bastion
