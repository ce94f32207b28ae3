#include "cli/bench_prompts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "../model/support.h"

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

TEST(BenchPromptsTest, TheSameIdTwiceIsRefusedWithBothLines) {
    EXPECT_TRUE(check_unique_ids({{"a", 1, {"x"}}, {"b", 2, {"x"}}}, "p.jsonl").ok());
    // A prompt without an id goes by its line number, which may be another prompt's id.
    const Status refused = check_unique_ids({{"4", 1, {"x"}}, {"b", 2, {"x"}}, {"4", 4, {"y"}}}, "p.jsonl");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(refused.error().message, "'p.jsonl' has the id '4' on line 1 and on line 4, expected every id once");
}

std::string write(const std::string& name, const std::string& text) {
    const std::string path = test::scratch_path(name);
    std::ofstream(path) << text;
    return path;
}

TEST(BenchPromptsTest, FilesAreSetsOneAfterTheOther) {
    const std::string a = write("sums.jsonl", "{\"prompt\":\"1\"}\n{\"prompt\":\"2\"}\n{\"prompt\":\"3\"}\n");
    const std::string b = write("poems.v2.jsonl", "{\"prompt\":\"4\"}\n");
    const auto all = read_prompt_sets({a, b}, 2);
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(all->sets.size(), 2u);
    EXPECT_EQ(all->sets[0].name, "sums");
    EXPECT_EQ(all->sets[1].name, "poems.v2");
    ASSERT_EQ(all->prompts.size(), 3u) << "two of the first file, one of the second";
    EXPECT_TRUE(all->sets[0].has(1));
    EXPECT_FALSE(all->sets[0].has(2));
    EXPECT_TRUE(all->sets[1].has(2));
    EXPECT_EQ(all->prompts[2].turns[0], "4") << "ids of different sets may be the same";
}

TEST(BenchPromptsTest, TwoSetsOfOneNameAreRefused) {
    const std::string a = write("sums.jsonl", "{\"prompt\":\"1\"}\n");
    const auto refused = read_prompt_sets({a, a}, 0);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "--prompts: two files are called 'sums'");
}

}  // namespace
}  // namespace bastion::cli
