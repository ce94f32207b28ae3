// Trees that follow repetitions in the text: with and without a drafter, beyond its block, and without a draft.
#include <gtest/gtest.h>

#include <fstream>

#include "budget/calibration.h"
#include "engine/support.h"

namespace bastion::test {
namespace {

TEST(Lookup, WorksWithoutADrafter) {
    EngineOptions options;
    options.ctx = 512;
    const auto alone = open_without_drafter(options);
    const std::vector<Token> prompt = chat_prompt(*alone, "Count from 1 to 40, separated by commas.");
    GenerateOptions o = method(Method::ar, 0, 100);
    o.ignore_eos = true;
    const Answer plain = answer(*alone, prompt, o);
    for (const int budget : {0, 2, 9, 64}) {
        o.method = Method::tree;
        o.budget = budget;
        o.no_lookup = false;
        const Answer copied = answer(*alone, prompt, o);
        EXPECT_EQ(copied.tokens, plain.tokens) << budget;
        // What an automatic budget makes of it depends on the machine.
        const double most = budget > 0 ? 0.9 : 1.0;
        EXPECT_LE(copied.stats.cycles, most * plain.stats.cycles) << "text that repeats itself, budget " << budget;
        EXPECT_EQ(copied.stats.off_reason, "no drafter");
        o.no_lookup = true;
        const Answer off = answer(*alone, prompt, o);
        EXPECT_EQ(off.tokens, plain.tokens);
        EXPECT_EQ(off.stats.cycles, plain.stats.cycles);
    }
}

TEST(Lookup, WorksInABatchWithoutADrafterAndAtTheContextsEnd) {
    EngineOptions options;
    options.ctx = 96;
    options.slots = 4;
    const auto alone = open_without_drafter(options);
    const std::vector<Token> prompt = chat_prompt(*alone, "Say la la la la la la la la la la la la.");
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> batch;
    for (const int budget : {0, 7, 40, 1}) {
        GenerateOptions o = method(budget == 1 ? Method::ar : Method::tree, budget, 100);
        o.ignore_eos = true;
        o.sampling.temperature = 1.0;
        o.sampling.seed = 11;
        sessions.push_back(new_session(*alone));
        batch.push_back(sessions.back().get());
        ASSERT_TRUE(batch.back()->begin(prompt, o).ok());
    }
    const std::vector<Answer> answers = finish(*alone, batch);
    for (const Answer& a : answers) {
        EXPECT_EQ(a.tokens, answers.back().tokens);
        EXPECT_EQ(a.tokens.size(), 96 - prompt.size()) << "up to the context's end";
    }
}

// With a profile by which a draft is dear and a row cheap.
TEST(Lookup, SparesTheDraftWhereTheCopyIsSure) {
    auto profile = profile_from_json(*shared_engine().calibrate(true, {}), "measured");
    ASSERT_TRUE(profile.ok());
    profile->grid.clear();
    for (const int context : {64, 512}) {
        for (const int nodes : {1, 4, 16, 64}) profile->grid.push_back({nodes, context, 5.0 + 0.1 * nodes});
    }
    profile->draft_ms = 1.0;
    EngineOptions options;
    options.ctx = 512;
    options.profile = testing::TempDir() + "dear_draft.json";
    std::ofstream(options.profile) << profile_to_json(*profile);
    const auto dear = open_embedded(options);
    const std::vector<Token> loop = chat_prompt(*dear, "Repeat: la la la la la la la la la la la la la la la la la la");
    GenerateOptions o = method(Method::tree, 0, 300);
    o.ignore_eos = true;
    const Answer tree = answer(*dear, loop, o);
    EXPECT_EQ(tree.stats.off_reason, "copying suffices");
    EXPECT_GT(tree.stats.copied_tokens, tree.stats.tokens / 4);
    EXPECT_GT(tree.stats.off_cycles, tree.stats.cycles / 4);
    EXPECT_LT(tree.stats.off_cycles, tree.stats.cycles) << "only a draft can tell what one is worth";
    o.method = Method::ar;
    EXPECT_EQ(tree.tokens, answer(*dear, loop, o).tokens);
}

TEST(Lookup, ReachesBeyondTheBlock) {
    const std::vector<Token> loop =
        chat_prompt(shared_engine(), "Repeat: la la la la la la la la la la la la la la la la la la");
    GenerateOptions o = method(Method::tree, 32, 120);
    o.ignore_eos = true;
    int deepest = 0;
    const auto session = new_session(shared_engine());
    session->set_trace([&](const CycleTrace& cycle) {
        for (const auto& node : cycle.nodes) {
            if (node.accepted) deepest = std::max(deepest, node.depth);
        }
    });
    const Answer tree = answer(shared_engine(), *session, loop, o);
    EXPECT_GT(deepest, shared_engine().info().block_size);
    o.method = Method::ar;
    EXPECT_EQ(tree.tokens, answer(shared_engine(), *session, loop, o).tokens);
}

}  // namespace
}  // namespace bastion::test
