#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "budget/calibration.h"
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
    results.sets = {{"all", 0, 2}};
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
    const Json json = Json::parse(bench_json(two_prompts(), {machine_json({}), ""}));
    EXPECT_EQ(keys(json),
              (std::vector<std::string>{"options", "methods", "sets", "contexts", "machine", "profile", "per_prompt"}));
    EXPECT_EQ(
        keys(json["methods"][0]),
        (std::vector<std::string>{"name", "tokens", "decode_s", "tokens_per_s", "speedup_vs_ar", "tau", "mean_nodes",
                                  "mismatched_prompts", "cycles", "time", "method", "budget", "over_sets"}));
    EXPECT_EQ(keys(json["per_prompt"][0]),
              (std::vector<std::string>{"set", "id", "method", "prompt_tokens", "tokens", "cycle_tokens", "cycles",
                                        "decode_s", "tau", "equal", "text"}));
    EXPECT_EQ(json["options"]["max-tokens"], 512);
    EXPECT_EQ(json["options"]["temperature"], 0.0);
    EXPECT_TRUE(json["profile"].is_null());
    for (const char* key :
         {"cpu", "threads", "kernels", "ggml_version", "ggml_commit", "ggml_system_info", "build_flags"}) {
        EXPECT_TRUE(json["machine"].contains(key)) << key;
    }
}

TEST(BenchReportTest, SumsByMethodAndComparesSpeedWithPlainDecoding) {
    const Json methods = Json::parse(bench_json(two_prompts(), {"{}", ""}))["methods"];
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
    EXPECT_EQ(std::count(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(table.find("\n\n")), '\n'), 2);
    EXPECT_EQ(table.find(" by set"), std::string::npos) << "there is one set only";
    EXPECT_NE(table.find("2.00x"), std::string::npos);
}

/// Two sets of two prompts, the second with long ones. Seconds of each method for the ten cycle tokens of a prompt:
/// ar 8 and 4; 4 nodes 4 and 4; 8 nodes 2 and 5; adaptive 2 and 2.
BenchResults two_sets() {
    BenchResults results;
    results.methods = *parse_methods("ar,tree:4,tree:8,tree@curve,beam:2x3,llama.cpp");
    results.sets = {{"sums", 0, 2}, {"poems", 2, 2}};
    const double seconds[2][6] = {{8, 4, 2, 2, 4, 8}, {4, 4, 5, 2, 4, 4}};
    for (std::size_t p = 0; p < 4; ++p) {
        results.prompts.push_back({"p" + std::to_string(p), static_cast<int>(p) + 1, {"x"}});
        for (std::size_t m = 0; m < 6; ++m) {
            BenchRun one = run("same", 11, 5, seconds[p / 2][m]);
            one.prompt_tokens = p < 3 ? 100 : 2000;
            one.stages = {5, 1, 20, 2};
            if (m > 0) one.trees = {{1.5, 1}, {2.5, 2}, {3.5, 3}};
            results.entries.push_back(entry(p, m, one));
        }
    }
    results.compare();
    return results;
}

TEST(BenchReportTest, EverySetCountsTheSameOverSets) {
    const Json json = Json::parse(bench_json(two_sets(), {"{}", ""}));
    ASSERT_EQ(json["sets"].size(), 2u);
    EXPECT_EQ(json["sets"][0]["name"], "sums");
    EXPECT_EQ(json["sets"][1]["prompts"], 2);
    EXPECT_DOUBLE_EQ(json["sets"][0]["methods"][3]["speedup_vs_ar"], 4.0);
    EXPECT_DOUBLE_EQ(json["sets"][1]["methods"][3]["speedup_vs_ar"], 2.0);
    EXPECT_DOUBLE_EQ(json["methods"][3]["speedup_vs_ar"], 3.0) << "all tokens over all time";
    EXPECT_DOUBLE_EQ(json["methods"][3]["over_sets"]["speedup_vs_ar"], std::sqrt(8.0));
    EXPECT_DOUBLE_EQ(json["methods"][3]["over_sets"]["tau"], 2.0);
}

TEST(BenchReportTest, ComparesAdaptiveBudgetsWithTheBestFixedOneOfEachSet) {
    const Json json = Json::parse(bench_json(two_sets(), {"{}", ""}));
    const Json& sums = json["sets"][0]["oracle"];
    EXPECT_EQ(sums["chosen_nodes"], Json::parse("[8,8]"));
    EXPECT_DOUBLE_EQ(sums["speedup_vs_ar"], 4.0);
    EXPECT_EQ(sums["hindsight"]["nodes"], 8);
    ASSERT_EQ(sums["adaptive"].size(), 1u);
    EXPECT_EQ(sums["adaptive"][0]["name"], "tree@curve");
    EXPECT_DOUBLE_EQ(sums["adaptive"][0]["of_oracle"], 1.0);
    EXPECT_EQ(json["sets"][1]["oracle"]["chosen_nodes"], Json::parse("[4,4]"));
    EXPECT_DOUBLE_EQ(json["sets"][1]["oracle"]["adaptive"][0]["of_oracle"], 2.0);
    EXPECT_DOUBLE_EQ(json["methods"][3]["over_sets"]["of_oracle"], std::sqrt(2.0));
    EXPECT_FALSE(json["methods"][1]["over_sets"].contains("of_oracle"));
}

TEST(BenchReportTest, GroupsPromptsByTheirTokens) {
    const Json contexts = Json::parse(bench_json(two_sets(), {"{}", ""}))["contexts"];
    ASSERT_EQ(contexts.size(), 2u) << "ranges without prompts are left out";
    EXPECT_EQ(contexts[0]["from"], 0);
    EXPECT_EQ(contexts[0]["to"], 256);
    EXPECT_EQ(contexts[0]["prompts"], 3);
    EXPECT_EQ(contexts[1]["from"], 1024);
    EXPECT_DOUBLE_EQ(contexts[1]["methods"][3]["speedup_vs_ar"], 2.0);
}

TEST(BenchReportTest, EveryMethodSaysWhatMeansSomethingForIt) {
    const Json methods = Json::parse(bench_json(two_sets(), {"{}", ""}))["methods"];
    const Json &ar = methods[0], &fixed = methods[1], &adaptive = methods[3], &beam = methods[4], &llama = methods[5];
    EXPECT_EQ(adaptive["budget"], "auto");
    EXPECT_EQ(adaptive["controller"], "curve");
    EXPECT_EQ(fixed["budget"], 4);
    EXPECT_EQ(beam["beam"], Json::parse(R"({"width":2,"depth":3})"));
    for (const Json* other : {&ar, &fixed, &beam, &llama}) {
        EXPECT_FALSE(other->contains("controller")) << *other;
        EXPECT_FALSE(other->contains("off_cycles")) << *other;
    }
    EXPECT_FALSE(ar.contains("budget"));
    EXPECT_FALSE(llama.contains("time"));
    EXPECT_DOUBLE_EQ(ar["time"]["verify_ms"], 80.0) << "of all prompts";
    EXPECT_FALSE(ar.contains("acceptance")) << "it grew no tree";
    EXPECT_EQ(adaptive["acceptance"]["cycles"], 12);
    EXPECT_DOUBLE_EQ(adaptive["acceptance"]["pearson"], 1.0);
    EXPECT_EQ(adaptive["acceptance"]["surrogate"].size(), adaptive["acceptance"]["committed"].size());
}

TEST(BenchReportTest, TheProfileHasTheRooflineBesideEachMeasurement) {
    Profile profile;
    profile.shape = {.layers = 2, .hidden = 64, .q_width = 64, .kv_width = 32, .ffn_width = 128, .vocab = 1000};
    profile.peak = {1e12, 1e10};
    profile.ar_ms = 1;
    profile.grid = {{1, 64, 2.0}, {8, 64, 3.0}};
    profile.fit = {2.0, 0.5, 1.5, 0.1};
    const Json json = Json::parse(bench_json(two_sets(), {"{}", profile_to_json(profile)}))["profile"];
    ASSERT_EQ(json["grid"].size(), 2u);
    const double bare = roofline_ms(profile.shape, profile.peak, 8, 64);
    EXPECT_DOUBLE_EQ(json["grid"][1]["verify_ms"], 3.0);
    EXPECT_DOUBLE_EQ(json["grid"][1]["roofline_ms"], bare);
    EXPECT_DOUBLE_EQ(json["grid"][1]["fitted_ms"], 2.0 * bare + 0.5);
    EXPECT_DOUBLE_EQ(json["fit"]["rmse_after_ms"], 0.1);
}

TEST(BenchReportTest, TablesBySetByContextAndOfTheOracle) {
    const std::string table = bench_table(two_sets());
    for (const char* part : {"speed over ar by set", "2.83x", "speed over ar by context", "1k-4k", "best fixed budget",
                             "200.0%", "mean cycle, ms"}) {
        EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
    }
}

TEST(BenchReportTest, SurvivesResultsWithoutAnyTime) {
    BenchResults results;
    results.methods = *parse_methods("ar");
    const Json json = Json::parse(bench_json(results, {"{}", ""}));
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
