#include "cli/bench_run.h"

#include <gtest/gtest.h>

#include "fake_engine.h"

namespace bastion::cli {
namespace {

using testing::FakeEngine;

TEST(BenchRunTest, LaterTurnsFollowTheMethodsOwnAnswers) {
    FakeEngine engine;
    engine.answers = {"first answer"};
    const auto answerer = make_engine_answerer(engine, {});
    const auto run = run_prompt(engine, *answerer, {"id", 1, {"one", "two"}}, {.system = "sys"});
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->texts, (std::vector<std::string>{"first answer", "first answer"})) << "one session, both turns";
    EXPECT_EQ(engine.open_sessions, 1);
    EXPECT_EQ(engine.rendered.back(), "system:sys|user:one|assistant:first answer|user:two|");
    EXPECT_EQ(run->text(), "first answer\n\nfirst answer");
    EXPECT_EQ(run->tokens, 24);
    EXPECT_EQ(run->cycle_tokens, 22) << "the first token of each answer comes from the prefill";
    EXPECT_GT(run->decode_s, 0.0);
    EXPECT_DOUBLE_EQ(run->tau(), 1.0);
    EXPECT_EQ(run->prompt_tokens, static_cast<int>(std::string("system:sys|user:one|").size())) << "of the first turn";
    EXPECT_DOUBLE_EQ(run->stages.verify_ms, 22.0) << "both turns";
}

TEST(BenchRunTest, KeepsASampleOfEveryTree) {
    FakeEngine engine;
    GenerateOptions options;
    options.method = Method::chain;
    const auto run = run_prompt(engine, *make_engine_answerer(engine, options), {"id", 1, {"one", "two"}}, {});
    ASSERT_TRUE(run.ok());
    ASSERT_EQ(run->trees.size(), 10u) << "two answers of six bytes, the first byte of each from the prefill";
    EXPECT_DOUBLE_EQ(run->trees.back().surrogate, 1.5);
    EXPECT_EQ(run->trees.back().committed, 1);
    options.method = Method::ar;
    EXPECT_TRUE(run_prompt(engine, *make_engine_answerer(engine, options), {"id", 1, {"one"}}, {})->trees.empty());
}

TEST(BenchRunTest, EveryPromptStartsFromAnEmptyCache) {
    FakeEngine engine;
    engine.answers = {"a", "b"};
    const auto answerer = make_engine_answerer(engine, {});
    EXPECT_EQ(run_prompt(engine, *answerer, {"id", 1, {"one"}}, {})->text(), "a");
    EXPECT_EQ(run_prompt(engine, *answerer, {"id", 1, {"one"}}, {})->text(), "b");
}

TEST(BenchRunTest, RawPromptsSkipTheTemplate) {
    FakeEngine engine;
    const auto answerer = make_engine_answerer(engine, {});
    ASSERT_TRUE(run_prompt(engine, *answerer, {"id", 1, {"one"}}, {.raw = true}).ok());
    EXPECT_TRUE(engine.rendered.empty());
    const auto refused = first_turn(engine, {"id", 7, {"one", "two"}}, {.raw = true});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message.find("prompt 'id' (line 7) has several turns"), 0u);
}

TEST(BenchRunTest, APromptBeyondTheContextIsRefusedWithBothNumbers) {
    FakeEngine engine;
    engine.description.ctx = 10;
    const auto refused = first_turn(engine, {"id", 7, {"hello"}}, {});  // "user:hello|" is 11 bytes
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "prompt 'id' (line 7) has 11 tokens and the context holds 10, raise --ctx");
}

TEST(BenchRunTest, ALaterTurnBeyondTheContextEndsTheConversation) {
    FakeEngine engine;
    engine.description.ctx = 20;
    const auto answerer = make_engine_answerer(engine, {});
    const auto run = run_prompt(engine, *answerer, {"id", 1, {"one", "two"}}, {});
    ASSERT_TRUE(run.ok());
    EXPECT_TRUE(run->cut_short);
    EXPECT_EQ(run->texts.size(), 1u);
}

TEST(RunAnswerTest, GivesTheTextInChunksAsItIsMade) {
    FakeEngine engine;
    engine.answers = {"abc"};
    const auto session = engine.open_session();
    ASSERT_TRUE((*session)->begin({1, 2}, {}).ok());
    std::vector<std::string> chunks;
    ProgressLine silent(false);
    ASSERT_TRUE(run_answer(engine, **session, silent, [&](std::string_view text) {
                    chunks.emplace_back(text);
                    return true;
                }).ok());
    EXPECT_EQ(chunks, (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ((*session)->stats().stop_reason, StopReason::eos);
}

TEST(RunAnswerTest, StopsWhereNobodyReadsAnyMore) {
    FakeEngine engine;
    engine.answers = {"abc"};
    const auto session = engine.open_session();
    ASSERT_TRUE((*session)->begin({1, 2}, {}).ok());
    int chunks = 0;
    ProgressLine silent(false);
    ASSERT_TRUE(run_answer(engine, **session, silent, [&](std::string_view) {
                    ++chunks;
                    return false;
                }).ok());
    EXPECT_EQ(chunks, 1);
    EXPECT_EQ((*session)->stats().stop_reason, StopReason::interrupted);
}

TEST(EncodeTest, RawPromptsGetTheModelsBosOnce) {
    FakeEngine engine;
    EXPECT_EQ(*encode_raw(engine, "ab"), (std::vector<Token>{'a', 'b'}));
    engine.with_bos = true;
    EXPECT_EQ(*encode_raw(engine, "ab"), (std::vector<Token>{FakeEngine::kBos, 'a', 'b'}));
    EXPECT_EQ(*encode_raw(engine, ""), std::vector<Token>{FakeEngine::kBos});
}

TEST(EncodeTest, ChatsNeedATemplate) {
    FakeEngine engine;
    engine.with_template = false;
    const auto refused = encode_chat(engine, {{"user", "hi"}}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("--raw"), std::string::npos);
}

}  // namespace
}  // namespace bastion::cli
