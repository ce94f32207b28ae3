#include "cli/bench_batch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/machine.h"
#include "fake_engine.h"

namespace bastion::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::FakeEngine;

TEST(BenchBatchTest, CountsTokensAndCyclesOfAllRequests) {
    FakeEngine engine;
    engine.answers = {"abcd", "ef"};  // of the two seats
    const auto run = run_batch(engine, {{1}, {2}, {3}}, {}, 2);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->texts, (std::vector<std::string>{"abcd", "ef", "ef"}));
    EXPECT_EQ(run->tokens, 8);
    EXPECT_EQ(run->cycle_tokens, 5) << "the first token of each answer comes from the prefill";
    EXPECT_GT(run->wall_s, 0.0);
    EXPECT_EQ(run->all.tokens, 5);
    EXPECT_LT(run->full.cycles, run->all.cycles) << "cycles beside a prefill and of the last answer are not full";
    EXPECT_LE(run->full.tokens, 2 * run->full.cycles);
    EXPECT_DOUBLE_EQ(run->all.verify_ms, run->all.cycles - 2.0)
        << "a millisecond each, but for the two that end a text";
    EXPECT_FALSE(run->interrupted);
}

BatchRun run_of(std::vector<std::string> texts, int tokens, double wall_s) {
    BatchRun run;
    run.texts = std::move(texts);
    run.tokens = tokens;
    run.wall_s = wall_s;
    run.all = {4, tokens, 100.0 * wall_s, 400.0 * wall_s};
    run.full = {2, tokens / 2, 50.0 * wall_s, 200.0 * wall_s};
    return run;
}

TEST(BenchBatchTest, ComparesTextsAndThroughput) {
    const std::vector<BenchMethod> methods = *parse_methods("tree,ar,chain");
    BatchPoint point;
    point.requests = 2;
    point.runs = {run_of({"x", "y"}, 100, 1), run_of({"x", "y"}, 100, 2), run_of({"x", "z"}, 100, 4)};
    point.compare(methods, {"x", "y"});
    EXPECT_EQ(point.different, (std::vector<int>{0, 0, 1}));
    EXPECT_EQ(point.speedup, (std::vector<double>{2, 1, 0.5}));
    EXPECT_EQ(point.of_best, (std::vector<double>{1, 0.5, 0.25}));
    EXPECT_DOUBLE_EQ(point.runs[0].decode_tokens_per_s(), 200);

    const Json json = Json::parse(batch_json(methods, {point}, machine_json({})));
    ASSERT_EQ(json["concurrency"].size(), 1u);
    EXPECT_EQ(json["concurrency"][0]["requests"], 2);
    const Json& tree = json["concurrency"][0]["methods"][0];
    EXPECT_EQ(tree["name"], "tree");
    EXPECT_EQ(tree["tokens_per_s"], 100.0);
    EXPECT_EQ(tree["full_cycles"]["cycles"], 2);
    EXPECT_TRUE(json["machine"].contains("cpu"));
    const std::string table = batch_table(methods, {point});
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5) << table;
    EXPECT_NE(table.find("2 at once"), std::string::npos);
}

}  // namespace
}  // namespace bastion::cli
