#include "cli/stats_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fake_engine.h"

namespace bastion::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& object) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items()) names.push_back(key);
    return names;
}

Stats example() {
    Stats stats;
    stats.method = Method::tree;
    stats.controller = ControllerKind::ema_fixed_fit;
    stats.prompt_tokens = 12;
    stats.tokens = 31;
    stats.cycle_tokens = 30;
    stats.cycles = 10;
    stats.nodes = 75;
    stats.stop_reason = StopReason::length;
    stats.decode_ms = 600;
    stats.off_cycles = 2;
    stats.off_reason = "predicted slower";
    return stats;
}

const EngineInfo kInfo = testing::FakeEngine::describe();

TEST(StatsJsonTest, HasTheKeysOfTheContractInOrder) {
    EXPECT_EQ(keys(Json::parse(stats_json(example(), kInfo))),
              (std::vector<std::string>{
                  "method",    "budget",       "controller", "prompt_tokens", "tokens",     "stop_reason", "prefill_ms",
                  "decode_ms", "tokens_per_s", "cycles",     "tau",           "mean_nodes", "off_cycles",  "off_reason",
                  "draft_ms",  "build_ms",     "verify_ms",  "commit_ms",     "device",     "kernel",      "threads"}));
}

TEST(StatsJsonTest, HasTheValues) {
    const Json json = Json::parse(stats_json(example(), kInfo));
    EXPECT_EQ(json["method"], "tree");
    EXPECT_EQ(json["controller"], "ema+static");
    EXPECT_EQ(json["tokens"], 31);
    EXPECT_DOUBLE_EQ(json["tau"], 3.0);
    EXPECT_DOUBLE_EQ(json["mean_nodes"], 7.5);
    EXPECT_DOUBLE_EQ(json["tokens_per_s"], 50.0);
    EXPECT_EQ(json["off_cycles"], 2);
    EXPECT_EQ(json["off_reason"], "predicted slower");
    EXPECT_EQ(json["kernel"], "generic");
    EXPECT_EQ(json["threads"], 2);
}

TEST(StatsJsonTest, TheBudgetIsAutoOrANumber) {
    Stats stats = example();
    EXPECT_EQ(Json::parse(stats_json(stats, kInfo))["budget"], "auto");
    stats.budget = 16;
    EXPECT_EQ(Json::parse(stats_json(stats, kInfo))["budget"], 16);
}

TEST(StatsJsonTest, AnEmptyAnswerHasFiniteNumbers) {
    const Json json = Json::parse(stats_json({}, kInfo));
    EXPECT_EQ(json["tau"], 0.0);
    EXPECT_EQ(json["tokens_per_s"], 0.0);
}

TEST(StatsJsonTest, IsOneLineOfValidJsonWhateverTheDeviceIsCalled) {
    EngineInfo info = kInfo;
    info.device = "bad\nname \xff\"";
    const std::string line = stats_json(example(), info);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(Json::parse(line)["device"], "bad\nname \xEF\xBF\xBD\"");
}

TEST(StatsTextTest, NamesMethodBudgetAndWhyDraftingWasOff) {
    const std::string text = stats_text(example(), kInfo);
    for (const char* part : {"method   tree", "budget auto", "tau 3.00", "2 cycles not drafted (predicted slower)",
                             "31 tokens", "50.0 tokens/s", "generic kernels"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(text.back(), '\n');
}

TEST(StatsTextTest, SaysOnlyWhatTheMethodHas) {
    Stats stats = example();
    stats.copied_tokens = 1;
    EXPECT_NE(stats_text(stats, kInfo).find("controller ema+static: 10 cycles"), std::string::npos);
    EXPECT_NE(stats_text(stats, kInfo).find(", 1 token copied"), std::string::npos);
    stats.budget = 16;
    stats.cycles = 1;
    EXPECT_NE(stats_text(stats, kInfo).find("tree, budget 16: 1 cycle,"), std::string::npos);
    stats.method = Method::chain;
    EXPECT_NE(stats_text(stats, kInfo).find("method   chain: 1 cycle,"), std::string::npos);
}

TEST(TraceJsonTest, HasTheKeysOfTheContract) {
    testing::FakeEngine engine;
    CycleTrace cycle;
    cycle.cycle = 3;
    cycle.position = 17;
    cycle.budget = 2;
    cycle.nodes = {{'a', -1, 0, 0.0, true}, {0xff, 0, 1, -0.5, false}};
    cycle.emitted = {'b'};
    const Json json = Json::parse(trace_json(cycle, engine));
    EXPECT_EQ(keys(json), (std::vector<std::string>{"cycle", "position", "budget", "predicted_ms", "draft_ms",
                                                    "verify_ms", "nodes", "emitted"}));
    EXPECT_EQ(keys(json["nodes"][0]),
              (std::vector<std::string>{"token", "text", "parent", "depth", "logprob", "accepted"}));
    EXPECT_EQ(json["nodes"][0]["text"], "a");
    EXPECT_EQ(json["nodes"][1]["text"], "\xEF\xBF\xBD") << "half a character becomes U+FFFD";
    EXPECT_EQ(json["nodes"][1]["logprob"], -0.5);
    EXPECT_EQ(json["emitted"], Json::array({'b'}));
}

}  // namespace
}  // namespace bastion::cli
