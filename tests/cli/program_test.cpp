// The built program: exit codes, what goes to which stream, and the JSON that others rely on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../model/support.h"
#include "process.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;
using test::model_path;
using test::scratch_path;
using testing::Outcome;
using testing::write_file;

/// A pair with random weights: answers are noise, but take milliseconds.
std::vector<std::string> with_pair(std::vector<std::string> args) {
    for (const std::string& arg : {std::string("--target"), model_path("tiny-llama3"), std::string("--drafter"),
                                   model_path("tiny-llama3-dflash"), std::string("--threads"), std::string("2")}) {
        args.push_back(arg);
    }
    return args;
}

/// `generate` with the pair and 40 tokens whatever comes; trees, if no method is named, of a fixed budget.
std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> args{"generate", "--max-tokens", "40", "--ignore-eos"};
    const bool other = std::any_of(more.begin(), more.end(), [](const std::string& arg) {
        return arg == "--method" || arg == "--beam" || arg == "--budget";
    });
    if (!other) args.insert(args.end(), {"--budget", "6"});
    args.insert(args.end(), more.begin(), more.end());
    return with_pair(args);
}

Outcome run(std::vector<std::string> args, std::string input = "") {
    return testing::run({.args = std::move(args), .input = std::move(input)});
}

std::string read_file(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

void expect_refused(const Outcome& outcome, const std::string& part) { testing::expect_refused(outcome, {part}); }

TEST(ProgramTest, KnowsItsCommands) {
    EXPECT_EQ(run({"--version"}).code, 0);
    EXPECT_TRUE(run({"--version"}).out.starts_with("bastion "));
    const Outcome help = run({"help"});
    EXPECT_EQ(help.code, 0);
    for (const char* command : {"generate", "chat", "inspect", "calibrate", "tree", "plan", "bench", "answers"}) {
        EXPECT_NE(help.out.find(command), std::string::npos);
        const Outcome detail = run({command, "--help"});
        EXPECT_EQ(detail.code, 0);
        EXPECT_TRUE(detail.out.starts_with(std::string("usage: bastion ") + command)) << detail.out;
        EXPECT_EQ(run({"help", command}).out, detail.out);
    }
}

TEST(ProgramTest, RefusesOtherCommandsWithTheList) {
    expect_refused(
        run({"serve"}),
        "unknown command 'serve', expected generate, chat, inspect, calibrate, tree, plan, bench or answers");
    expect_refused(run({"help", "plane"}), "unknown command 'plane'");
    expect_refused(run({"a\nb"}), "unknown command 'a b'");
    EXPECT_EQ(run({}).code, 2);
    EXPECT_EQ(run({}).out, "");
}

TEST(GenerateTest, TextGoesToStdoutAndStatisticsToStderr) {
    const Outcome outcome = run(generate({"--prompt", "one two", "--stats", "json"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(outcome.out.empty());
    const Json stats = Json::parse(outcome.last_error_line());
    EXPECT_EQ(stats["method"], "tree");
    EXPECT_EQ(stats["budget"], 6);
    EXPECT_EQ(stats["tokens"], 40);
    EXPECT_EQ(stats["stop_reason"], "length");
    EXPECT_EQ(stats["device"], "cpu");
    EXPECT_EQ(stats["threads"], 2);
    EXPECT_EQ(stats.size(), 21u);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(GenerateTest, WithoutStatisticsStderrStaysEmpty) {
    const Outcome outcome = run(generate({"--prompt", "one two", "--stats", "none"}));
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(run(generate({"--prompt", "one two"})).err.find("method   tree"), std::string::npos) << "text by default";
}

TEST(GenerateTest, EveryMethodGivesTheSameText) {
    const Outcome plain = run(generate({"--prompt", "one two", "--method", "ar"}));
    ASSERT_EQ(plain.code, 0) << plain.err;
    for (const char* method : {"chain", "tree", "beam"}) {
        EXPECT_EQ(run(generate({"--prompt", "one two", "--method", method})).out, plain.out) << method;
    }
    EXPECT_EQ(run(generate({"--prompt", "one two", "--beam", "2x3"})).out, plain.out);
}

TEST(GenerateTest, RefusesFlagsThatWouldHaveNoEffect) {
    expect_refused(run(generate({"--prompt", "a", "--method", "ar", "--budget", "3"})), "--budget");
    expect_refused(run(generate({"--prompt", "a", "--beam", "2x3", "--budget", "3"})), "--budget");
    expect_refused(run(generate({"--prompt", "a", "--budget", "3", "--controller", "ema"})), "--controller");
    expect_refused(run({"generate", "--prompt", "a", "--target", ""}), "--target");
}

TEST(GenerateTest, ReadsThePromptFromWhereverItIs) {
    const Outcome direct = run(generate({"--prompt", "three\nfour"}));
    const std::string file = write_file("prompt", "three\nfour");
    EXPECT_EQ(run(generate({"--prompt-file", file})).out, direct.out);
    EXPECT_EQ(run(generate({"--prompt-file", "-"}), "three\nfour").out, direct.out);
}

TEST(GenerateTest, RawLeavesTheTemplateOut) {
    const Outcome raw = run(generate({"--raw", "--prompt", "one two", "--stats", "json"}));
    const Outcome chat = run(generate({"--prompt", "one two", "--stats", "json"}));
    ASSERT_EQ(raw.code, 0) << raw.err;
    EXPECT_LT(Json::parse(raw.last_error_line())["prompt_tokens"],
              Json::parse(chat.last_error_line())["prompt_tokens"]);
    const std::string rendered = "<|im_start|>user\none two<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(run(generate({"--raw", "--prompt", rendered})).out, chat.out);
}

TEST(GenerateTest, AnEmptyPromptIsAnEmptyMessage) {
    EXPECT_EQ(run(generate({"--prompt", ""})).code, 0);
    EXPECT_EQ(run(generate({"--prompt="})).code, 0);
    EXPECT_EQ(run(generate({"--prompt-file", "-"}), "").code, 0);
    EXPECT_EQ(run(generate({"--prompt", "x", "--system", "be brief"})).code, 0);
}

TEST(GenerateTest, AnEmptyRawPromptStartsFromTheBeginningOfTextOrIsRefused) {
    const Outcome outcome = run(generate({"--raw", "--prompt", "", "--stats", "json"}));
    if (outcome.code == 0) {
        EXPECT_EQ(Json::parse(outcome.last_error_line())["prompt_tokens"], 1);
    } else {
        expect_refused(outcome, "the prompt is empty");
    }
}

TEST(GenerateTest, RefusesBadPrompts) {
    expect_refused(run(generate({})), "--prompt TEXT and --prompt-file");
    expect_refused(run(generate({"--prompt", "a", "--prompt-file", "b"})), "not both");
    expect_refused(run(generate({"--prompt", "a\xff"})), "valid UTF-8");
    expect_refused(run(generate({"--prompt-file", write_file("latin1", "caf\xe9")})), "valid UTF-8");
    expect_refused(run(generate({"--prompt-file", "/nonexistent/prompt"})), "'/nonexistent/prompt'");
    expect_refused(run(generate({"--prompt-file", "/"})), "is a directory");
}

TEST(GenerateTest, RefusesBadFlags) {
    for (const std::vector<std::string>& bad :
         std::vector<std::vector<std::string>>{{"--budget", "0"},
                                               {"--budget", "x"},
                                               {"--method", "magic"},
                                               {"--temperature", "nan"},
                                               {"--top-p", "0"},
                                               {"--max-tokens", "0"},
                                               {"--logit-bias", "100000=1"},
                                               {"--stats", "xml"},
                                               {"--frobnicate"},
                                               {"--prompt"},
                                               {"--device", "tpu9"},
                                               {"--trace", "/dev/null/t.jsonl"},
                                               {"--system", "x", "--raw"},
                                               {"--beam", "2x2", "--method", "tree"},
                                               {"extra"}}) {
        std::vector<std::string> args = generate({"--prompt", "a"});
        args.insert(args.end(), bad.begin(), bad.end());
        SCOPED_TRACE(bad.front());
        expect_refused(run(args), "");
    }
}

TEST(GenerateTest, RefusesFilesThatAreNoModels) {
    expect_refused(run({"generate", "--prompt", "a", "--target", "/nonexistent.gguf"}), "/nonexistent.gguf");
    expect_refused(run({"generate", "--prompt", "a", "--target", write_file("text.gguf", "hello")}), "text.gguf");
}

TEST(GenerateTest, APromptBeyondTheContextIsRefusedWithBothNumbers) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "one two ";
    const Outcome outcome = run(generate({"--prompt", text, "--ctx", "64"}));
    expect_refused(outcome, "64");
}

TEST(GenerateTest, WritesATraceOfEveryCycle) {
    const std::string path = scratch_path("trace.jsonl");
    const Outcome outcome = run(generate({"--prompt", "one two", "--stats", "json", "--trace", path}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json stats = Json::parse(outcome.last_error_line());
    std::istringstream lines(read_file(path));
    int cycles = 0, emitted = 1;  // the first token comes from the prefill
    for (std::string line; std::getline(lines, line); ++cycles) {
        const Json cycle = Json::parse(line);
        ASSERT_EQ(cycle["nodes"].size(), cycle["budget"]);
        EXPECT_EQ(cycle["nodes"][0]["parent"], -1);
        EXPECT_EQ(cycle["nodes"][0]["accepted"], true);
        emitted += static_cast<int>(cycle["emitted"].size());
    }
    EXPECT_EQ(cycles, stats["cycles"]);
    EXPECT_EQ(emitted, stats["tokens"]);
}

/// The embedded target: slow enough that a signal arrives in the middle of the answer.
TEST(GenerateTest, AnInterruptKeepsTheTextSoFar) {
    if (!std::filesystem::exists(test::smollm_path())) GTEST_SKIP() << "the embedded model has not been fetched";
    for (const int number : {SIGINT, SIGTERM}) {
        const Outcome outcome = testing::run(
            {.args = {"generate", "--prompt", "Count to a thousand.", "--max-tokens", "2000", "--ctx", "2100",
                      "--method", "ar", "--ignore-eos", "--stats", "json", "--target", test::smollm_path()},
             .signal_when = [number](const std::string& out) { return out.empty() ? 0 : number; }});
        EXPECT_EQ(outcome.code, 130) << outcome.err;
        EXPECT_FALSE(outcome.out.empty());
        const Json stats = Json::parse(outcome.last_error_line());
        EXPECT_EQ(stats["stop_reason"], "interrupted");
        EXPECT_GT(stats["tokens"], 0);
        EXPECT_LT(stats["tokens"], 2000);
    }
}

TEST(GenerateTest, StopsQuietlyWhenNobodyReads) {
    const Outcome outcome = testing::run({.args = generate({"--prompt", "one"}), .close_stdout = true});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.err.find("error"), std::string::npos) << outcome.err;
}

TEST(GenerateTest, SaysWhyNothingWasDrafted) {
    const Outcome outcome = run({"generate", "--prompt", "one", "--max-tokens", "8", "--ignore-eos", "--stats", "json",
                                 "--target", model_path("tiny-llama3")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json stats = Json::parse(outcome.last_error_line());
    EXPECT_EQ(stats["off_cycles"], stats["cycles"]);
    EXPECT_EQ(stats["off_reason"], "no drafter");
}

TEST(ChatTest, AnswersEveryLineAndKeepsTheConversation) {
    const auto chat = with_pair({"chat", "--max-tokens", "6", "--ignore-eos", "--budget", "4", "--stats", "json"});
    const Outcome outcome = run(chat, "one\ntwo\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream lines(outcome.err);
    std::string first, second;
    std::getline(lines, first);
    std::getline(lines, second);
    EXPECT_GT(Json::parse(second)["prompt_tokens"], Json::parse(first)["prompt_tokens"]);
    const Outcome fresh = run(chat, "one\n/reset now\none\n  /exit\ntwo\n");
    EXPECT_EQ(fresh.out.substr(0, fresh.out.size() / 2), fresh.out.substr(fresh.out.size() / 2)) << "reset forgets";
}

TEST(ChatTest, ABackslashContinuesTheMessage) {
    const auto chat = with_pair({"chat", "--max-tokens", "6", "--ignore-eos", "--budget", "4", "--stats", "json"});
    const Outcome outcome = run(chat, "one\\\ntwo\n");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << "one answer: " << outcome.err;
}

TEST(ChatTest, GoesOnAfterWhatItCannotAnswer) {
    std::string longest = "one";
    for (int i = 0; i < 200; ++i) longest += " two";
    const Outcome outcome =
        run(with_pair({"chat", "--max-tokens", "6", "--ignore-eos", "--budget", "4", "--ctx", "64"}),
            longest + "\n\xff\n/nonsense\n\n/stats\none\n");
    EXPECT_EQ(outcome.code, 0);
    for (const char* part : {"context holds 64", "not valid UTF-8", "unknown command /nonsense", "no answer yet"}) {
        EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
    }
    EXPECT_FALSE(outcome.out.empty()) << "the last message is answered";
}

TEST(InspectTest, DescribesAPair) {
    const Outcome text = run(with_pair({"inspect"}));
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_NE(text.out.find("fits        yes"), std::string::npos) << text.out;
    const Outcome json = run({"inspect", model_path("tiny-llama3"), model_path("tiny-llama3-dflash"), "--json"});
    ASSERT_EQ(json.code, 0) << json.err;
    const Json report = Json::parse(json.out);
    EXPECT_EQ(report["files"][0]["role"], "target");
    EXPECT_EQ(report["files"][1]["role"], "drafter");
    EXPECT_GT(report["files"][1]["block_size"], 1);
    EXPECT_EQ(report["pair"]["fits"], true);
    EXPECT_EQ(report["device"]["name"], "cpu");
}

TEST(InspectTest, SaysWhyAPairDoesNotFit) {
    const Outcome outcome = run({"inspect", model_path("tiny-qwen3"), model_path("tiny-llama3-dflash")});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.out.find("fits        no: "), std::string::npos) << outcome.out;
    EXPECT_TRUE(outcome.err.starts_with("bastion: error: ")) << outcome.err;
    EXPECT_EQ(run({"inspect", model_path("tiny-qwen3"), model_path("tiny-llama3")}).code, 2) << "two targets";
    EXPECT_EQ(run({"inspect", model_path("tiny-llama3-dflash")}).code, 0) << "one file alone is fine";
    expect_refused(run({"inspect", "/nonexistent.gguf"}), "/nonexistent.gguf");
}

TEST(TreeTest, BuildsTheTreeOfALattice) {
    const std::string lattice =
        write_file("lattice.json", R"({"tokens":[[7,8],[9,10]],"logprobs":[[-0.1,-2.0],[-0.2,-3.0]]})");
    const Outcome outcome = run({"tree", "--lattice", lattice, "--budget", "3"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const Json tree = Json::parse(outcome.out);
    ASSERT_EQ(tree["nodes"].size(), 3u);
    EXPECT_EQ(tree["nodes"][0]["token"], -1);
    EXPECT_EQ(tree["nodes"][1]["token"], 7);
    EXPECT_EQ(tree["nodes"][2]["token"], 9);
    EXPECT_EQ(run({"tree", "--lattice", "-", "--budget", "3"}, read_file(lattice)).out, outcome.out);
}

TEST(TreeTest, RefusesWhatIsNoLattice) {
    expect_refused(run({"tree", "--budget", "3"}), "--lattice");
    expect_refused(run({"tree", "--lattice", write_file("bad.json", "{"), "--budget", "3"}), "bad.json");
    expect_refused(run({"tree", "--lattice", write_file("a.json", "{}"), "--budget", "0"}), "--budget");
    expect_refused(run({"tree", "--lattice", write_file("a.json", "{}"), "--budget", "auto"}), "--profile");
    expect_refused(run({"tree", "--lattice", "/nonexistent.json", "--budget", "2"}), "/nonexistent.json");
}

TEST(BenchTest, ComparesMethodsAndWritesTheResults) {
    const std::string prompts =
        write_file("prompts.jsonl", "{\"id\":\"a\",\"prompt\":\"one two\"}\n{\"turns\":[\"three\",\"four\"]}\n");
    const std::string results = scratch_path("results.json");
    const Outcome outcome =
        run(with_pair({"bench", "--prompts", prompts, "--methods", "tree:6,chain,beam:2x3,llama.cpp", "--max-tokens",
                       "12", "--ignore-eos", "--repeat", "2", "--out", results}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string overview = outcome.out.substr(0, outcome.out.find("\n\n") + 1);
    EXPECT_EQ(std::count(overview.begin(), overview.end(), '\n'), 6) << "a head and five methods: " << outcome.out;
    const Json json = Json::parse(read_file(results));
    ASSERT_EQ(json["methods"].size(), 5u);
    EXPECT_EQ(json["methods"][0]["name"], "ar");
    ASSERT_EQ(json["per_prompt"].size(), 10u);
    for (const Json& entry : json["per_prompt"]) {
        EXPECT_EQ(entry["tokens"], entry["id"] == "a" ? 12 : 24) << entry;
        if (entry["method"] != "llama.cpp") {
            EXPECT_EQ(entry["equal"], true) << entry;
        }
    }
    EXPECT_EQ(json["per_prompt"][5]["id"], "2") << "the line number where there is no id";
}

TEST(BenchTest, ComparesControllersOverSetsAtAnyTemperature) {
    const std::string sums = write_file("sums.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n");
    const std::string poems = write_file("poems.jsonl", "{\"prompt\":\"three\"}\n{\"prompt\":\"four\"}\n");
    const std::string results = scratch_path("sets.json");
    const Outcome outcome = run(
        with_pair({"bench", "--prompts", sums, "--prompts", poems, "--methods", "tree@static,tree@curve,tree:4,tree:8",
                   "--max-tokens", "12", "--ignore-eos", "--temperature", "1", "--out", results}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json json = Json::parse(read_file(results));
    EXPECT_EQ(json["methods"][2]["controller"], "curve");
    EXPECT_EQ(json["methods"][2]["mismatched_prompts"], 0);
    ASSERT_EQ(json["sets"].size(), 2u);
    EXPECT_EQ(json["sets"][1]["name"], "poems");
    EXPECT_EQ(json["sets"][1]["oracle"]["adaptive"].size(), 2u);
    EXPECT_EQ(json["options"]["temperature"], 1.0);
    EXPECT_GT(json["profile"]["grid"][0]["roofline_ms"], 0.0) << "measured for the first adaptive method";
    const Json& entry = json["per_prompt"].back();
    EXPECT_EQ(entry["set"], "poems");
    EXPECT_GT(entry["prompt_tokens"], 1);
    EXPECT_GT(json["methods"][4]["time"]["verify_ms"], 0.0);
    EXPECT_EQ(json["methods"][4]["acceptance"]["surrogate"].size(), json["methods"][4]["acceptance"]["cycles"]);
}

TEST(BenchTest, MeasuresManyRequestsAtOnce) {
    std::string prompts;
    for (const char* word : {"one", "two", "three", "four", "five", "six"}) {
        prompts += std::string("{\"prompt\":\"") + word + "\"}\n";
    }
    const std::string file = write_file("batch.jsonl", prompts), results = scratch_path("batch.json");
    const std::vector<std::string> args{"bench",      "--prompts",     file,    "--concurrency", "4,1", "--methods",
                                        "tree,chain", "--out",         results, "--max-tokens",  "12",  "--repeat",
                                        "2",          "--temperature", "0.8",   "--ignore-eos"};
    const Outcome outcome = run(with_pair(args));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json json = Json::parse(read_file(results));
    ASSERT_EQ(json["concurrency"].size(), 2u);
    EXPECT_EQ(json["concurrency"][0]["requests"], 1);
    EXPECT_EQ(json["concurrency"][1]["requests"], 4);
    for (const Json& point : json["concurrency"]) {
        ASSERT_EQ(point["methods"].size(), 3u);
        for (const Json& method : point["methods"]) {
            EXPECT_EQ(method["tokens"], 72);
            EXPECT_EQ(method["mismatched_prompts"], 0);
            EXPECT_GT(method["full_cycles"]["cycles"], 0);
        }
    }
    expect_refused(run(with_pair({"bench", "--prompts", file, "--concurrency", "7"})), "--concurrency 7");
    expect_refused(run(with_pair({"bench", "--prompts", file, "--concurrency", "2,0"})), "--concurrency");
    expect_refused(run(with_pair({"bench", "--prompts", file, "--concurrency", "2", "--methods", "llama.cpp"})),
                   "llama.cpp");
}

TEST(BenchTest, RefusesBadInputBeforeAnyWork) {
    const std::string prompts = write_file("p.jsonl", "{\"prompt\":\"one\"}\nnot json\n");
    expect_refused(run(with_pair({"bench"})), "--prompts");
    expect_refused(run(with_pair({"bench", "--prompts", prompts})), "p.jsonl' line 2");
    expect_refused(run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--methods", "ar,warp"})), "'warp'");
    expect_refused(run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--method", "ar"})), "--methods");
    expect_refused(
        run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--methods", "llama.cpp", "--temperature", "1"})),
        "--temperature 0");
    const std::string twice = write_file("twice.jsonl", "{\"id\":7,\"prompt\":\"a\"}\n{\"id\":7,\"prompt\":\"b\"}\n");
    expect_refused(run(with_pair({"bench", "--prompts", twice})), "has the id '7' on line 1 and on line 2");
    expect_refused(run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--prompts", prompts})),
                   "two files are called");
    expect_refused(run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--methods", "tree@curve",
                                  "--controller", "ema"})),
                   "--controller");
    expect_refused(run(with_pair({"bench", "--prompts", prompts, "--limit", "1", "--out", "/dev/null/r.json"})),
                   "/dev/null/r.json");
}

TEST(CalibrateTest, PrintsOnlyTheProfileAsJson) {
    const std::string profile = scratch_path("profile.json");
    const Outcome outcome = run(with_pair({"calibrate", "--json", "--out", profile}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const Json json = Json::parse(outcome.out);
    for (const char* key : {"device", "target", "drafter", "ar_ms", "draft_ms", "aux_ms", "grid", "fit", "seconds"}) {
        EXPECT_TRUE(json.contains(key)) << key;
    }
    EXPECT_EQ(json["grid"].size(), 28u) << "14 budgets at the 2 contexts that this small model can hold";
    EXPECT_EQ(read_file(profile), outcome.out);
    const Outcome tree = run({"tree", "--lattice", "-", "--budget", "auto", "--profile", profile},
                             R"({"tokens":[[7,8]],"logprobs":[[-0.1,-2.0]]})");
    EXPECT_EQ(tree.code, 0) << tree.err;
    const Outcome used = run(with_pair({"generate", "--prompt", "one", "--max-tokens", "8", "--profile", profile}));
    EXPECT_EQ(used.code, 0) << used.err;
}

}  // namespace
}  // namespace bastion
