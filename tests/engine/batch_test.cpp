// Requests that join and leave: on scripted answers of an engine without a model, and on the embedded pair.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include "cli/fake_engine.h"
#include "engine/support.h"

namespace bastion::test {
namespace {

using testing::FakeEngine;

/// A request that keeps what it is told.
struct Told {
    std::string text;
    int endings = 0;
    StopReason reason = StopReason::none;
};

Batch::Request request(Told& told, std::vector<Token> prompt, const GenerateOptions& options = {}) {
    return {std::move(prompt), options,
            [&told](std::string_view more) {
                told.text += more;
                return true;
            },
            [&told](const Session& session) {
                ++told.endings;
                told.reason = session.stats().stop_reason;
                return Status();
            }};
}

TEST(BatchTest, AFreeSeatIsTakenWhileOthersGoOn) {
    FakeEngine engine;
    engine.answers = {"a", "long answer"};  // of the two seats
    Batch batch(engine, 2);
    EXPECT_TRUE(batch.empty());
    std::vector<Told> told(3);
    ASSERT_TRUE(batch.join(request(told[0], {1})).ok());
    ASSERT_TRUE(batch.join(request(told[1], {2})).ok());
    EXPECT_TRUE(batch.full());
    while (told[0].endings == 0) ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(told[0].text, "a");
    EXPECT_EQ(told[0].reason, StopReason::eos);
    EXPECT_FALSE(batch.full());
    ASSERT_TRUE(batch.join(request(told[2], {3})).ok());
    EXPECT_EQ(batch.active().size(), 2u);
    while (!batch.empty()) ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(told[1].text, "long answer");
    EXPECT_EQ(told[2].text, "a") << "the seat of the first";
    EXPECT_EQ(engine.open_sessions, 2);
    for (const Told& one : told) EXPECT_EQ(one.endings, 1);
}

TEST(BatchTest, ASeatIsGivenToThePromptThatSharesMost) {
    FakeEngine engine;
    engine.answers = {"first", "second"};
    Batch batch(engine, 2);
    std::vector<Told> told(2);
    ASSERT_TRUE(batch.join(request(told[0], {1, 2, 3})).ok());
    ASSERT_TRUE(batch.join(request(told[1], {7, 8, 9})).ok());
    while (!batch.empty()) ASSERT_TRUE(batch.step().ok());
    Told third;
    ASSERT_TRUE(batch.join(request(third, {7, 8, 5})).ok());
    while (!batch.empty()) ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(third.text, "second");
}

TEST(BatchTest, WhoWantsNoMoreIsInterruptedAlone) {
    FakeEngine engine;
    engine.answers = {"stopped", "goes on"};
    Batch batch(engine, 2);
    std::vector<Told> told(2);
    Batch::Request stops = request(told[0], {1});
    stops.on_text = [&told](std::string_view more) {
        told[0].text += more;
        return told[0].text.size() < 3;
    };
    ASSERT_TRUE(batch.join(std::move(stops)).ok());
    ASSERT_TRUE(batch.join(request(told[1], {2})).ok());
    while (!batch.empty()) ASSERT_TRUE(batch.step().ok());
    EXPECT_EQ(told[0].text, "sto");
    EXPECT_EQ(told[0].reason, StopReason::interrupted);
    EXPECT_EQ(told[1].text, "goes on");
}

TEST(BatchTest, AFailedEndingIsTheStepsErrorButNotTheOthersLoss) {
    FakeEngine engine;
    engine.answers = {"", ""};
    Batch batch(engine, 2);
    std::vector<Told> told(2);
    Batch::Request fails = request(told[0], {1});
    fails.on_done = [](const Session&) -> Status { return runtime_error("disk full"); };
    ASSERT_TRUE(batch.join(std::move(fails)).ok());
    ASSERT_TRUE(batch.join(request(told[1], {2})).ok());
    const Status status = batch.step();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "disk full");
    EXPECT_EQ(told[1].endings, 1);
    EXPECT_TRUE(batch.empty());
}

/// Twelve prompts five at once, half of them sampled: whatever joins and leaves, each text is that of plain decoding
/// alone. The controller decides for the whole batch.
TEST(BatchTest, TextsAreThoseOfSingleRuns) {
    EngineOptions engine_options;
    engine_options.slots = 6;
    engine_options.ctx = 512;
    const auto engine = open_embedded(engine_options);
    const std::vector<std::string> prompts = sample_prompts();
    constexpr std::size_t kPrompts = 12;
    for (const ControllerKind controller : {ControllerKind::fixed_fit, ControllerKind::curve}) {
        std::vector<Told> told(kPrompts);
        std::vector<GenerateOptions> options;
        long nodes = 0, cycles = 0;
        Batch batch(*engine, 5);
        std::size_t next = 0;
        while (next < kPrompts || !batch.empty()) {
            while (next < kPrompts && !batch.full()) {
                GenerateOptions o = method(Method::tree, 0, 24 + 4 * static_cast<int>(next % 5));
                o.controller = controller;
                o.sampling.temperature = next % 2 == 0 ? 0.0 : 0.9;
                o.sampling.seed = next;
                options.push_back(o);
                Batch::Request r = request(told[next], chat_prompt(*engine, prompts[next]), o);
                r.on_done = [&](const Session& session) {
                    nodes += session.stats().nodes;
                    cycles += session.stats().cycles;
                    return Status();
                };
                ASSERT_TRUE(batch.join(std::move(r)).ok());
                ++next;
            }
            ASSERT_TRUE(batch.step().ok());
        }
        EXPECT_GT(nodes, cycles) << "nothing was ever drafted";
        for (std::size_t i = 0; i < kPrompts; ++i) {
            GenerateOptions plain = options[i];
            plain.method = Method::ar;
            EXPECT_EQ(told[i].text, answer(*engine, chat_prompt(*engine, prompts[i]), plain).text) << "prompt " << i;
        }
    }
}

}  // namespace
}  // namespace bastion::test
