// `bastion answers` as a program: what it writes does not depend on how many answers are in progress, equals what
// `generate` says, and is completed by the next run after an interruption.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../model/support.h"
#include "process.h"
#include "text/tokenizer.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;
using test::model_path;
using test::scratch_path;
using testing::Outcome;
using testing::write_file;

using Lines = std::vector<std::string>;

Outcome run(Lines args) { return testing::run({.args = std::move(args)}); }

Lines lines_of(const std::string& text) {
    std::istringstream stream(text);
    Lines lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

Lines read_lines(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return lines_of(text.str());
}

Lines sorted(Lines lines) {
    std::sort(lines.begin(), lines.end());
    return lines;
}

Lines operator+(Lines a, const Lines& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// Random weights answer with noise, in milliseconds.
Lines target() { return {"--target", model_path("tiny-llama3"), "--threads", "2"}; }

/// Sampling under which some answers end by themselves (token 0 is the model's end of text) and others by length.
Lines sampling() { return {"--max-tokens", "24", "--temperature", "0.9", "--seed", "11", "--logit-bias", "0=1.6"}; }

const char* const kPrompts =
    "{\"id\":\"a\",\"prompt\":\"one two\",\"source\":\"counting\"}\n"
    "{\"id\":\"b\",\"turns\":[\"three\",\"never asked\"]}\n"
    "{\"id\":\"c\",\"prompt\":\"four five six seven eight nine ten\"}\n"
    "{\"prompt\":\"\"}\n"
    "{\"id\":\"e\",\"prompt\":\"eleven\"}\n"
    "{\"id\":\"f\",\"prompt\":\"twelve thirteen\"}\n"
    "{\"id\":\"g\",\"prompt\":\"one two\"}\n";

/// A file name that no earlier test has used.
std::string new_path(const std::string& name) {
    const std::string path = scratch_path(name);
    std::filesystem::remove(path);
    return path;
}

Outcome answer(const std::string& out, const Lines& more) {
    return run(Lines{"answers", "--prompts", write_file("answers_prompts.jsonl", kPrompts), "--out", out} + target() +
               sampling() + more);
}

/// The answers to kPrompts, `concurrency` at once.
Lines answers(const std::string& name, const std::string& concurrency) {
    const std::string out = new_path(name);
    const Outcome outcome = answer(out, {"--concurrency", concurrency});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.last_error_line().starts_with("7 answers written: ")) << outcome.err;
    return read_lines(out);
}

/// The model does not exist, so nobody can have looked at it.
void expect_refused(const Lines& args, const std::string& part) {
    testing::expect_refused(run(Lines{"answers", "--target", "/nonexistent.gguf"} + args), {part});
}

TEST(AnswersTest, TheLinesDoNotDependOnTheConcurrency) {
    const Lines one = answers("answers_1.jsonl", "1");
    const Lines five = answers("answers_5.jsonl", "5");
    ASSERT_EQ(one.size(), 7u);
    EXPECT_EQ(sorted(five), sorted(one));
    EXPECT_EQ(Json::parse(one[0])["id"], "a") << "one at a time finish in the order of the file";
    EXPECT_EQ(Json::parse(one[0])["source"], "counting");
    EXPECT_EQ(Json::parse(one[3])["id"], "4") << "the line number where there is no id";
    EXPECT_EQ(Json::parse(one[3])["source"], "");
    EXPECT_EQ(Json::parse(one[0])["text"], Json::parse(one[6])["text"]) << "the same prompt with the same seed";
}

TEST(AnswersTest, EveryAnswerIsTheOneOfGenerate) {
    const Tokenizer tokenizer = test::must(Tokenizer::load(model_path("tiny-llama3")));
    const Lines lines = answers("answers_like_generate.jsonl", "3");
    const std::vector<std::pair<std::string, std::string>> asked{
        {"a", "one two"}, {"b", "three"}, {"c", "four five six seven eight nine ten"}, {"e", "eleven"}};
    int ended = 0;
    for (const std::string& line : lines) {
        const Json json = Json::parse(line);
        EXPECT_EQ(json["temperature"], 0.9);
        std::vector<Token> tokens = json["tokens"];
        if (json["stop_reason"] == "eos") {
            ++ended;
            ASSERT_FALSE(tokens.empty());
            EXPECT_TRUE(tokenizer.is_end(tokens.back()));
            tokens.pop_back();
        } else {
            EXPECT_EQ(json["stop_reason"], "length");
            EXPECT_EQ(tokens.size(), 24u);
        }
        const auto prompt =
            std::find_if(asked.begin(), asked.end(), [&](const auto& p) { return p.first == json["id"]; });
        if (prompt == asked.end()) continue;

        // In one conversation and as trees: another way to the same text.
        const std::string trace = scratch_path("answers_trace.jsonl");
        const Outcome outcome = run(Lines{"generate", "--prompt", prompt->second, "--stats", "json", "--budget", "6",
                                          "--drafter", model_path("tiny-llama3-dflash"), "--trace", trace} +
                                    target() + sampling());
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_EQ(outcome.out, json["text"]);
        const Json stats = Json::parse(outcome.last_error_line());
        EXPECT_EQ(stats["stop_reason"], json["stop_reason"]);
        EXPECT_EQ(stats["prompt_tokens"], json["prompt_tokens"].size());
        ASSERT_EQ(stats["tokens"], tokens.size());
        std::vector<Token> emitted(tokens.begin(),
                                   tokens.begin() + !tokens.empty());  // by the prefill, not in the trace
        for (const std::string& cycle : read_lines(trace)) {
            const std::vector<Token> more = Json::parse(cycle)["emitted"];
            emitted.insert(emitted.end(), more.begin(), more.end());
        }
        EXPECT_EQ(emitted, tokens);
    }
    EXPECT_GT(ended, 0) << "or the end of text has not been looked at";
    EXPECT_LT(ended, 7) << "or the length has not";
}

TEST(AnswersTest, ACutFileIsCompletedByTheNextRun) {
    const Lines whole = answers("answers_whole.jsonl", "2");
    ASSERT_EQ(whole.size(), 7u);
    const std::string out = new_path("answers_cut.jsonl");
    write_file("answers_cut.jsonl", whole[0] + "\n" + whole[1] + "\n" + whole[2].substr(0, whole[2].size() / 2));
    const Outcome outcome = answer(out, {"--concurrency", "4"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.last_error_line().starts_with("5 answers written, 2 there already: ")) << outcome.err;
    EXPECT_EQ(sorted(read_lines(out)), sorted(whole));
    const Outcome again = answer(out, {"--target", "/nonexistent.gguf"});
    EXPECT_EQ(again.code, 0) << "no model is needed where nothing is left: " << again.err;
    EXPECT_EQ(sorted(read_lines(out)), sorted(whole));
}

TEST(AnswersTest, AnInterruptKeepsWhatIsFinished) {
    std::string prompts;
    for (int i = 0; i < 2000; ++i) prompts += "{\"prompt\":\"one\"}\n";
    const Outcome outcome = testing::run(
        {.args = Lines{"answers", "--prompts", write_file("many_prompts.jsonl", prompts), "--out", "/dev/stdout",
                       "--concurrency", "2", "--max-tokens", "64", "--ignore-eos"} +
                 target(),
         .signal_when = [](const std::string& out) { return out.find('\n') == std::string::npos ? 0 : SIGINT; }});
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_TRUE(outcome.out.ends_with("\n"));
    const Lines lines = lines_of(outcome.out);
    EXPECT_LT(lines.size(), 2000u);
    for (const std::string& line : lines) EXPECT_EQ(Json::parse(line)["tokens"].size(), 64u);
    EXPECT_NE(outcome.last_error_line().find(" left: "), std::string::npos) << outcome.err;
}

TEST(AnswersTest, APromptBeyondTheContextIsSkippedWithAWarning) {
    std::string longest = "one";
    for (int i = 0; i < 100; ++i) longest += " two";
    const std::string prompts = write_file("long_prompts.jsonl", "{\"id\":\"long\\n1\",\"prompt\":\"" + longest +
                                                                     "\"}\n{\"id\":\"short\",\"prompt\":\"one\"}\n");
    const std::string out = new_path("answers_long.jsonl");
    const Outcome outcome =
        run(Lines{"answers", "--prompts", prompts, "--out", out, "--ctx", "64"} + target() + sampling());
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Lines said = lines_of(outcome.err);
    ASSERT_EQ(said.size(), 2u) << outcome.err;
    EXPECT_TRUE(said[0].starts_with("bastion: prompt \"long\\n1\" (line 1) is skipped: it has ")) << said[0];
    EXPECT_TRUE(said[1].starts_with("1 answer written, 1 skipped")) << said[1];
    ASSERT_EQ(read_lines(out).size(), 1u);
    EXPECT_EQ(Json::parse(read_lines(out)[0])["id"], "short");
}

TEST(AnswersTest, RefusesBadInputBeforeAnyModelIsLoaded) {
    const std::string prompts = write_file("answers_prompts.jsonl", kPrompts);
    const std::string twice = write_file("twice.jsonl", "{\"prompt\":\"x\"}\n{\"id\":1,\"prompt\":\"x\"}\n");
    const std::string out = new_path("answers_refused.jsonl");
    expect_refused({"--prompts", prompts}, "--out");
    expect_refused({"--out", out}, "--prompts");
    expect_refused({"--prompts", "/nonexistent.jsonl", "--out", out}, "'/nonexistent.jsonl'");
    expect_refused({"--prompts", twice, "--out", out}, "the id '1' on line 1 and on line 2");
    expect_refused({"--prompts", prompts, "--out", prompts}, "line 1 is no answer");
    expect_refused({"--prompts", prompts, "--out", "/"}, "is a directory");
    expect_refused({"--prompts", prompts, "--out", out, "--concurrency", "0"}, "--concurrency");
    expect_refused({"--prompts", prompts, "--out", out, "--budget", "4"}, "--budget belongs to --method tree");
    expect_refused({"--prompts", prompts, "--out", out}, "/nonexistent.gguf");
    EXPECT_FALSE(std::filesystem::exists(out)) << "nothing is left behind";
    EXPECT_EQ(lines_of(kPrompts), read_lines(prompts));
}

}  // namespace
}  // namespace bastion
