#include "cli/bench_prompts.h"

#include <gtest/gtest.h>

namespace bastion::cli {
namespace {

std::vector<BenchPrompt> read(const std::string& text, int limit = 0) {
    auto prompts = parse_prompts(text, "p.jsonl", limit);
    EXPECT_TRUE(prompts.ok()) << (prompts.ok() ? "" : prompts.error().message);
    return prompts.ok() ? *prompts : std::vector<BenchPrompt>{};
}

std::string refuse(const std::string& text) {
    const auto prompts = parse_prompts(text, "p.jsonl", 0);
    EXPECT_FALSE(prompts.ok()) << text;
    if (prompts.ok()) return "";
    EXPECT_EQ(prompts.error().kind, ErrorKind::bad_input);
    return prompts.error().message;
}

TEST(BenchPromptsTest, ReadsPromptsAndTurns) {
    const auto prompts = read("{\"id\":\"a\",\"prompt\":\"one\"}\n{\"turns\":[\"x\",\"y\"],\"prompt\":\"x\"}\n");
    ASSERT_EQ(prompts.size(), 2u);
    EXPECT_EQ(prompts[0].turns, std::vector<std::string>{"one"});
    EXPECT_EQ(prompts[1].turns, (std::vector<std::string>{"x", "y"})) << "turns win over prompt";
}

TEST(BenchPromptsTest, TakesTheIdFromWhicheverFieldHasIt) {
    const auto prompts = read(
        "{\"task_id\":\"HumanEval/1\",\"prompt\":\"\"}\n{\"question_id\":81,\"prompt\":\"\"}\n\n{\"prompt\":\"\"}\n"
        "{\"id\":\"first\",\"task_id\":\"second\",\"prompt\":\"\"}");
    ASSERT_EQ(prompts.size(), 4u);
    EXPECT_EQ(prompts[0].id, "HumanEval/1");
    EXPECT_EQ(prompts[1].id, "81");
    EXPECT_EQ(prompts[2].id, "4") << "the line number, blank lines counted";
    EXPECT_EQ(prompts[2].line, 4);
    EXPECT_EQ(prompts[3].id, "first");
}

TEST(BenchPromptsTest, ToleratesBlankLinesCarriageReturnsAndAByteOrderMark) {
    const auto prompts = read("\xEF\xBB\xBF{\"prompt\":\"a\"}\r\n  \r\n{\"prompt\":\"b\"}\r\n");
    ASSERT_EQ(prompts.size(), 2u);
    EXPECT_EQ(prompts[1].turns[0], "b");
}

TEST(BenchPromptsTest, StopsAtTheLimitWithoutReadingOn) {
    EXPECT_EQ(read("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\nnot json\n", 2).size(), 2u);
}

TEST(BenchPromptsTest, NamesFileAndLineOfABadLine) {
    EXPECT_EQ(refuse("{\"prompt\":\"a\"}\n\n{\"prompt\":\n"),
              "'p.jsonl' line 3: expected a JSON object, this is not JSON");
    for (const char* bad : {"[]", "\"a\"", "{}", "{\"prompt\":3}", "{\"turns\":[]}", "{\"turns\":\"a\"}",
                            "{\"turns\":[1]}", "{\"prompt\":\"a\"} x", "{\"prompt\":\"\xff\"}", "nan"}) {
        EXPECT_EQ(refuse(bad).find("'p.jsonl' line 1: "), 0u) << bad;
    }
}

TEST(BenchPromptsTest, AFileWithoutPromptsIsRefused) {
    EXPECT_EQ(refuse(""), "'p.jsonl' has no prompts, expected one JSON object a line");
    refuse("\n \n");
}

}  // namespace
}  // namespace bastion::cli
