// `bastion plan` as a user runs it.
#include "budget/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../model/support.h"
#include "budget/catalog.h"
#include "process.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;
using test::model_path;
using test::scratch_path;
using testing::expect_refused;
using testing::Outcome;
using testing::write_file;

Outcome plan(std::vector<std::string> args, std::string input = "") {
    args.insert(args.begin(), "plan");
    return testing::run({.args = std::move(args), .input = std::move(input)});
}

Json plan_json(std::vector<std::string> args, std::string input = "") {
    args.push_back("--json");
    const Outcome outcome = plan(std::move(args), std::move(input));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
    return outcome.code == 0 ? Json::parse(outcome.out) : Json();
}

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

const std::vector<std::string> kQwen{"--device", "h200", "--model", "qwen3-8b"};

/// A cycle whose chain of two drafted tokens has its first `accepted` ones right.
std::string cycle(int accepted, double draft_ms = 1.5) {
    Json json = {{"cycle", 0},           {"position", 50}, {"budget", 3}, {"predicted_ms", 0},
                 {"draft_ms", draft_ms}, {"verify_ms", 6}, {"nodes", {}}, {"emitted", Json::array()}};
    for (int i = 0; i < (draft_ms > 0 ? 3 : 1); ++i) {
        json["nodes"].push_back({{"token", i},
                                 {"text", ""},
                                 {"parent", i - 1},
                                 {"depth", i},
                                 {"logprob", -0.1 * i},
                                 {"accepted", i <= accepted}});
    }
    for (int i = 0; i <= accepted; ++i) json["emitted"].push_back(i);
    return json.dump() + "\n";
}

TEST(PlanTest, TellsEveryContextAndConcurrency) {
    const Json json = plan_json(with(kQwen, {"--contexts", "4096,64", "--concurrency", "1,8"}));
    ASSERT_EQ(json["points"].size(), 4u);
    EXPECT_EQ(json["points"][0]["context"], 64);
    EXPECT_EQ(json["points"][1]["context"], 4096);
    EXPECT_EQ(json["points"][3]["concurrency"], 8);
    EXPECT_EQ(json["device"]["peak_tflops"], 989.4);
    EXPECT_EQ(json["max_nodes"], 1024);
    for (const Json& point : json["points"]) {
        EXPECT_EQ(point["curve"][0]["verify_ms"], point["plain_ms"]);
        EXPECT_GT(point["best_nodes"], 1);
        EXPECT_GT(point["speedup"], 1.5);
        EXPECT_EQ(point["drafting_pays"], true);
        const double speedup =
            point["tau"].get<double>() * point["plain_ms"].get<double>() / point["cycle_ms"].get<double>();
        EXPECT_NEAR(point["speedup"].get<double>(), speedup, 1e-3 * speedup);
    }
    const ModelShape shape = find_model("qwen3-8b")->shape(2);
    const double expected = roofline_ms(shape, find_device("h200")->peak(), 16, 64);
    for (const Json& entry : json["points"][0]["curve"]) {
        if (entry["nodes"] == 16) {
            EXPECT_NEAR(entry["verify_ms"].get<double>(), expected, 1e-4 * expected);
        }
    }
}

TEST(PlanTest, PrintsTables) {
    const Outcome outcome = plan(with(kQwen, {"--contexts", "64,1024"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const char* part : {"NVIDIA H200", "qwen3-8b", "ctx 64", "ctx 1024", "best N", "speedup", "note: "}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
    }
}

TEST(PlanTest, OwnValuesReplaceTheTable) {
    const auto plain_ms = [](const std::vector<std::string>& device) {
        return plan_json(with(device, {"--model", "qwen3-8b", "--contexts", "64"}))["points"][0]["plain_ms"]
            .get<double>();
    };
    const double table = plain_ms({"--device", "h200"});
    EXPECT_NEAR(plain_ms({"--device", "h200", "--bandwidth-gbs", "2400"}), 2 * table, 1e-3 * table);
    EXPECT_NEAR(plain_ms({"--peak-tflops", "989.4", "--bandwidth-gbs", "4800"}), table, 1e-5 * table);
    EXPECT_NEAR(plain_ms({"--device", "h200", "--bytes-per-weight", "1"}), table / 2, 0.05 * table);
}

TEST(PlanTest, ReadsShapesFromFilesWithoutTheirWeights) {
    const Json json = plan_json({"--device", "laptop-avx2", "--target", model_path("tiny-llama3"), "--drafter",
                                 model_path("tiny-llama3-dflash"), "--contexts", "16"});
    EXPECT_EQ(json["max_nodes"], 64) << "on a CPU";
    EXPECT_GT(json["target"]["layers"], 0);
    EXPECT_GT(json["drafter"]["block"], 1);
    EXPECT_EQ(json["points"].size(), 1u);
    const Json f16 = plan_json({"--device", "l4", "--target", model_path("tiny-llama3-f16")});
    const Json q4 = plan_json({"--device", "l4", "--target", model_path("tiny-llama3-q4_0")});
    EXPECT_EQ(f16["target"]["bytes_per_weight"]["ffn"], 2.0);
    EXPECT_EQ(q4["target"]["bytes_per_weight"]["ffn"], 0.5625);
    expect_refused(
        plan({"--device", "l4", "--target", model_path("tiny-qwen3"), "--drafter", model_path("tiny-llama3-dflash")}),
        {"tiny-"});
    expect_refused(plan(with(kQwen, {"--drafter", model_path("tiny-llama3-dflash")})), {"hidden size", "4096"});
    expect_refused(plan({"--device", "l4", "--target", model_path("tiny-llama3-dflash")}), {"dflash"});
}

TEST(PlanTest, TakesAcceptanceFromATrace) {
    // Of ten cycles, six accept both drafted tokens, two the first, two none.
    std::string text;
    for (const int accepted : {2, 2, 2, 2, 2, 2, 1, 1, 0, 0}) text += cycle(accepted);
    const Json json = plan_json(with(kQwen, {"--trace", write_file("plan.jsonl", text), "--contexts", "64"}));
    EXPECT_EQ(json["acceptance"]["cycles"], 10);
    EXPECT_EQ(json["acceptance"]["known_nodes"], 3);
    ASSERT_EQ(json["tau"].size(), 3u);
    EXPECT_EQ(json["tau"][1]["tokens"], 1.8);
    EXPECT_EQ(json["tau"][2]["tokens"], 2.4);
    const Json& point = json["points"][0];
    EXPECT_EQ(point["best_nodes"], 3) << "on a GPU three rows cost what one costs";
    EXPECT_EQ(point["replay"]["tau"], 2.4);
    EXPECT_NE(json["notes"].dump().find("up to 3 nodes"), std::string::npos) << json["notes"];
    EXPECT_EQ(plan_json(with(kQwen, {"--trace", "-", "--contexts", "64"}), text)["tau"], json["tau"]);
    EXPECT_EQ(plan_json(with(kQwen, {"--trace", "-", "--max-nodes", "2"}), text)["points"][0]["tau"], 1.8);
}

TEST(PlanTest, ATraceOfGenerateIsUnderstood) {
    const std::string trace = scratch_path("plan-trace.jsonl");
    const std::vector<std::string> pair{"--target", model_path("tiny-llama3"), "--drafter",
                                        model_path("tiny-llama3-dflash")};
    const Outcome generated =
        testing::run({.args = with({"generate", "--prompt", "one two", "--max-tokens", "40", "--ignore-eos", "--budget",
                                    "6", "--no-lookup", "--trace", trace},
                                   pair)});
    ASSERT_EQ(generated.code, 0) << generated.err;
    const Json json = plan_json(with(pair, {"--device", "l4", "--trace", trace}));
    EXPECT_EQ(json["acceptance"]["largest"], 6);
    EXPECT_GE(json["points"][0]["tau"], 1.0);

    const std::string profile = scratch_path("plan-profile.json");
    ASSERT_EQ(testing::run({.args = with({"calibrate", "--json", "--out", profile}, pair)}).code, 0);
    const Json checked = plan_json({"--check", "--trace", trace, "--profile", profile});
    EXPECT_EQ(checked["tokens"], 39) << "the first one came from the prefill";
    EXPECT_EQ(checked["controller"], "curve");
    EXPECT_NEAR(checked["error"].get<double>(),
                checked["predicted"]["speedup"].get<double>() / checked["recorded"]["speedup"].get<double>() - 1, 1e-3);
    EXPECT_EQ(checked["within_10_percent"], std::abs(checked["error"].get<double>()) <= 0.1);
    const Outcome table = plan({"--check", "--trace", trace, "--profile", profile, "--controller", "static"});
    EXPECT_NE(table.out.find("controller static"), std::string::npos) << table.out << table.err;
}

TEST(PlanTest, RefusesUnknownNamesWithTheKnownOnes) {
    expect_refused(plan({"--device", "h300", "--model", "qwen3-8b"}), {"'h300'", "did you mean h200", "laptop-avx2"});
    expect_refused(plan({"--device", "", "--model", "qwen3-8b"}), {"--device", "known: ", "h200"});
    expect_refused(plan({"--device", "h200", "--model", "gpt-5"}), {"'gpt-5'", "qwen3-4b", "qwen3-coder-30b-a3b"});
    expect_refused(plan({"--model", "qwen3-8b"}), {"--device", "--peak-tflops", "--bandwidth-gbs", "h200"});
    expect_refused(plan({"--model", "qwen3-8b", "--peak-tflops", "100"}), {"--bandwidth-gbs"});
    expect_refused(plan(with(kQwen, {"--target", "x.gguf"})), {"--model and --target"});
}

TEST(PlanTest, RefusesNumbersThatMeanNothing) {
    const std::vector<std::vector<std::string>> cases = {{"--peak-tflops", "0"},       {"--peak-tflops", "-3"},
                                                         {"--peak-tflops", "nan"},     {"--bandwidth-gbs", "0"},
                                                         {"--bandwidth-gbs", "1e99"},  {"--bytes-per-weight", "0"},
                                                         {"--bytes-per-weight", "x"},  {"--contexts", ""},
                                                         {"--contexts", "64,"},        {"--contexts", "0"},
                                                         {"--contexts", "-64"},        {"--contexts", "1e3"},
                                                         {"--contexts", "9999999999"}, {"--concurrency", "0"},
                                                         {"--concurrency", "1;2"},     {"--concurrency", "4097"},
                                                         {"--max-nodes", "0"},         {"--max-nodes", "1025"},
                                                         {"--max-nodes", "2,3"},       {"--block", "1"},
                                                         {"--draft-layers", "0"},      {"--topk", "0"},
                                                         {"--topk-mass", "x"}};
    for (const auto& flag : cases) expect_refused(plan(with(kQwen, flag)), {flag[0] + ": expected"});
    for (const char* value : {"0", "-1", "1.1"}) {
        expect_refused(plan(with(kQwen, {"--acceptance", value})), {"acceptance is "});
    }
    expect_refused(plan(with(kQwen, {"--topk-mass", "0.3"})), {"topk-mass is 0.3"});
    expect_refused(plan(with(kQwen, {"--contexts", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"})), {"at most 16"});
    for (const char* value : {"0.001", "0.2", "0.5", "1"}) {
        EXPECT_EQ(plan(with(kQwen, {"--acceptance", value})).code, 0) << "the default mass must go with " << value;
    }
}

TEST(PlanTest, RefusesContextsBeyondTheModel) {
    expect_refused(plan(with(kQwen, {"--contexts", "64,40960"})), {"40960", "qwen3-8b"});
    EXPECT_EQ(plan(with(kQwen, {"--contexts", "40959"})).code, 0);
}

TEST(PlanTest, RefusesTracesThatSayNothing) {
    const auto refused = [](const std::string& text, const std::string& part) {
        expect_refused(plan(with(kQwen, {"--trace", "-"}), text), {"trace '-'", part});
    };
    refused("", "is empty");
    refused("{\n", "line 1");
    refused(cycle(1) + cycle(1).substr(0, 30), "line 2");
    refused(cycle(0, 0), "none with a draft");
    std::string unsorted = cycle(1);
    unsorted.replace(unsorted.find("-0.2"), 4, "-0.0");
    refused(unsorted, "best-first");
    expect_refused(plan(with(kQwen, {"--trace", "-", "--block", "2"}), cycle(1)), {"depth 2", "block of 2"});
    expect_refused(plan(with(kQwen, {"--trace", "/nonexistent.jsonl"})), {"/nonexistent.jsonl"});
}

TEST(PlanTest, RefusesFlagsThatWouldHaveNoEffect) {
    expect_refused(plan(with(kQwen, {"--trace", "-", "--acceptance", "0.5"})), {"--acceptance"});
    expect_refused(plan(with(kQwen, {"--profile", "p.json"})), {"--profile belongs to --check"});
    expect_refused(plan(with(kQwen, {"--controller", "curve"})), {"--controller belongs to --check"});
    expect_refused(plan(with(kQwen, {"--drafter", "d.gguf", "--block", "8"})), {"--block"});
    expect_refused(plan({"--check"}), {"--trace"});
    expect_refused(plan({"--check", "--trace", "-"}), {"--profile"});
    expect_refused(plan({"--check", "--trace", "-", "--profile", "p", "--device", "h200"}), {"--device"});
}

}  // namespace
}  // namespace bastion
