#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bench_llama.h"
#include "cli/machine.h"

namespace bastion::cli {
namespace {

using Json = nlohmann::ordered_json;

BenchRun run(const std::string& text, int tokens, int cycles, double decode_s) {
    BenchRun result;
    result.texts = {text};
    result.tokens = tokens;
    result.cycle_tokens = tokens - 1;
    result.cycles = cycles;
    result.nodes = 4 * cycles;
    result.decode_s = decode_s;
    return result;
}

BenchEntry entry(std::size_t prompt, std::size_t method, BenchRun best) {
    BenchEntry result{.prompt = prompt, .method = method};
    result.add(std::move(best), true);
    return result;
}

/// Two prompts; the tree is twice as fast and wrong on the second prompt.
BenchResults two_prompts() {
    BenchResults results;
    results.methods = *parse_methods("tree:4,ar");
    results.prompts = {{"p0", 1, {"x"}}, {"p1", 2, {"y"}}};
    results.entries = {entry(0, 0, run("same", 11, 5, 0.5)), entry(0, 1, run("same", 11, 10, 1.0)),
                       entry(1, 0, run("not", 11, 5, 0.5)), entry(1, 1, run("now", 11, 10, 1.0))};
    results.compare();
    return results;
}

std::vector<std::string> keys(const Json& object) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items()) names.push_back(key);
    return names;
}

TEST(BenchReportTest, WritesTheKeysOfTheContract) {
    const Json json = Json::parse(bench_json(two_prompts(), machine_json({})));
    EXPECT_EQ(keys(json), (std::vector<std::string>{"methods", "per_prompt", "machine"}));
    EXPECT_EQ(keys(json["methods"][0]),
              (std::vector<std::string>{"name", "tokens", "decode_s", "tokens_per_s", "speedup_vs_ar", "tau",
                                        "mean_nodes", "mismatched_prompts"}));
    EXPECT_EQ(keys(json["per_prompt"][0]),
              (std::vector<std::string>{"id", "method", "tokens", "decode_s", "tau", "equal", "text"}));
    for (const char* key :
         {"cpu", "threads", "kernels", "ggml_version", "ggml_commit", "ggml_system_info", "build_flags"}) {
        EXPECT_TRUE(json["machine"].contains(key)) << key;
    }
}

TEST(BenchReportTest, SumsByMethodAndComparesSpeedWithPlainDecoding) {
    const Json methods = Json::parse(bench_json(two_prompts(), "{}"))["methods"];
    EXPECT_EQ(methods[0]["name"], "tree:4");
    EXPECT_EQ(methods[0]["tokens"], 22);
    EXPECT_DOUBLE_EQ(methods[0]["decode_s"], 1.0);
    EXPECT_DOUBLE_EQ(methods[0]["tokens_per_s"], 20.0);
    EXPECT_DOUBLE_EQ(methods[0]["speedup_vs_ar"], 2.0);
    EXPECT_DOUBLE_EQ(methods[0]["tau"], 2.0);
    EXPECT_DOUBLE_EQ(methods[0]["mean_nodes"], 4.0);
    EXPECT_EQ(methods[0]["mismatched_prompts"], 1);
    EXPECT_DOUBLE_EQ(methods[1]["speedup_vs_ar"], 1.0);
    EXPECT_EQ(methods[1]["mismatched_prompts"], 0);
}

TEST(BenchReportTest, SaysWhereTextsFork) {
    EXPECT_EQ(describe_mismatches(two_prompts()),
              std::vector<std::string>{"tree:4 on prompt 'p1': the text differs from that of ar from byte 2 on"});
}

TEST(BenchReportTest, TheFastestRepeatCountsAndAllMustAgree) {
    BenchEntry repeated = entry(0, 0, run("a", 5, 4, 2.0));
    repeated.add(run("a", 5, 4, 1.0), false);
    repeated.add(run("a", 5, 4, 3.0), false);
    EXPECT_DOUBLE_EQ(repeated.best.decode_s, 1.0);
    EXPECT_TRUE(repeated.repeats_equal);
    repeated.add(run("b", 5, 4, 9.0), false);
    EXPECT_FALSE(repeated.repeats_equal);
}

TEST(BenchReportTest, ATableRowForEachMethod) {
    const std::string table = bench_table(two_prompts());
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
    EXPECT_NE(table.find("2.00x"), std::string::npos);
}

TEST(BenchReportTest, SurvivesResultsWithoutAnyTime) {
    BenchResults results;
    results.methods = *parse_methods("ar");
    const Json json = Json::parse(bench_json(results, "{}"));
    EXPECT_EQ(json["methods"][0]["tokens_per_s"], 0.0);
    EXPECT_EQ(json["methods"][0]["speedup_vs_ar"], 0.0);
}

TEST(BenchReportTest, LlamaIsComparedAtTemperatureZeroOnly) {
    GenerateOptions options;
    EXPECT_TRUE(check_llama_options(options).ok());
    options.sampling.temperature = 0.5;
    EXPECT_FALSE(check_llama_options(options).ok());
    options.sampling.temperature = 0;
    options.sampling.repeat_penalty = 1.1;
    EXPECT_FALSE(check_llama_options(options).ok());
}

}  // namespace
}  // namespace bastion::cli
