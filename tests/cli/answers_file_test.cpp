#include "cli/answers_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace bastion::cli {
namespace {

namespace fs = std::filesystem;

AnswerRecord answer(const std::string& id) {
    return {.id = id,
            .source = "sums",
            .temperature = 0.5,
            .prompt_tokens = {1, 2},
            .tokens = {3, 0},
            .text = "say \"four\"\n",
            .stop_reason = StopReason::eos};
}

class AnswersFileTest : public ::testing::Test {
 protected:
    AnswersFileTest() {
        folder = fs::temp_directory_path() / ("bastion_answers_test_" + std::to_string(::getpid()));
        fs::create_directories(folder);
        path = (folder / "a.jsonl").string();
    }
    ~AnswersFileTest() override { fs::remove_all(folder); }

    void put(const std::string& text) const {
        fs::remove(path);  // replacing the content makes some file systems wait for the disk
        std::ofstream(path, std::ios::binary) << text;
    }
    std::string content() const {
        std::stringstream text;
        text << std::ifstream(path, std::ios::binary).rdbuf();
        return text.str();
    }

    AnswersFile open() const {
        auto file = AnswersFile::open(path);
        if (!file.ok()) throw std::runtime_error(file.error().message);
        return std::move(file).value();
    }

    std::string refuse(const std::string& name) const {
        const auto file = AnswersFile::open(name);
        EXPECT_FALSE(file.ok()) << name;
        if (file.ok()) return "";
        EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
        return file.error().message;
    }

    fs::path folder;
    std::string path;
};

TEST_F(AnswersFileTest, ALineHoldsTheAnswerAndWhatItWasMadeFrom) {
    EXPECT_EQ(answer_line(answer("a\n1")),
              R"({"id":"a\n1","source":"sums","temperature":0.5,"prompt_tokens":[1,2],"tokens":[3,0],)"
              R"("text":"say \"four\"\n","stop_reason":"eos"})");
}

TEST_F(AnswersFileTest, IsCreatedWithTheFirstAnswer) {
    AnswersFile file = open();
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(file.append(answer("a")).ok());
    EXPECT_EQ(content(), answer_line(answer("a")) + "\n") << "flushed while the file is still open";
}

TEST_F(AnswersFileTest, GoesOnBehindWhatIsThere) {
    ASSERT_TRUE(open().append(answer("a")).ok());
    AnswersFile file = open();
    EXPECT_TRUE(file.has("a"));
    EXPECT_FALSE(file.has("b"));
    ASSERT_TRUE(file.append(answer("b")).ok());
    EXPECT_EQ(content(), answer_line(answer("a")) + "\n" + answer_line(answer("b")) + "\n");
}

TEST_F(AnswersFileTest, ALastLineCutShortIsRemovedWhereverItWasCut) {
    const std::string first = answer_line(answer("a")) + "\n";
    const std::string second = answer_line(answer("b \"\\")) + "\n";
    for (std::size_t bytes = 0; bytes + 1 < second.size(); ++bytes) {
        put(first + second.substr(0, bytes));
        AnswersFile file = open();
        EXPECT_TRUE(file.has("a")) << bytes;
        EXPECT_FALSE(file.has("b \"\\")) << bytes;
        EXPECT_EQ(content(), first) << bytes;
        ASSERT_TRUE(file.append(answer("b \"\\")).ok());
        EXPECT_EQ(content(), first + second) << bytes;
    }
}

TEST_F(AnswersFileTest, ALastLineThatOnlyLacksItsNewlineIsKept) {
    const std::string line = answer_line(answer("a"));
    put(line);
    AnswersFile file = open();
    EXPECT_TRUE(file.has("a"));
    ASSERT_TRUE(file.append(answer("b")).ok());
    EXPECT_EQ(content(), line + "\n" + answer_line(answer("b")) + "\n");
}

TEST_F(AnswersFileTest, AnythingElseIsRefusedAndLeftAlone) {
    const std::string line = answer_line(answer("a")) + "\n";
    for (const std::string& other :
         {std::string("hello"), std::string("hello\n"), std::string("\n"), std::string("[]\n"),
          std::string("{\"id\":\"a\"}\n"), std::string("{\"id\":\"a\",\"prompt\":\"x\"}"),
          std::string("{\"id\":\"a\",\"prompt\":\"x"), std::string("GGUF\x03\0\0\0", 8), std::string("\xff\xfe\n"),
          line.substr(0, line.size() / 2) + "\n", "{\"id\":7" + line.substr(line.find(',')),
          line.substr(0, line.find("[3,0]")) + "[1.5]" + line.substr(line.find(",\"text"))}) {
        put(line + other);
        EXPECT_EQ(refuse(path).find("answers '" + path + "' line 2 is no answer of this command"), 0u) << other;
        EXPECT_EQ(content(), line + other);
    }
}

TEST_F(AnswersFileTest, IsWrittenByOneProcessAtATime) {
    AnswersFile file = open();
    ASSERT_TRUE(file.append(answer("a")).ok());
    EXPECT_EQ(refuse(path), "answers '" + path + "' is being written by another process");
    ASSERT_TRUE(file.append(answer("b")).ok());
}

TEST_F(AnswersFileTest, AFileThatAppearsMeanwhileIsNotWrittenTo) {
    AnswersFile file = open();
    put("somebody else's");
    EXPECT_FALSE(file.append(answer("a")).ok());
    EXPECT_EQ(content(), "somebody else's");
}

TEST_F(AnswersFileTest, PlacesThatHoldNoFileAreRefused) {
    EXPECT_NE(refuse(folder.string()).find("is a directory"), std::string::npos);
    EXPECT_NE(refuse((folder / "missing" / "a.jsonl").string()).find("there is no folder"), std::string::npos);
    EXPECT_TRUE(AnswersFile::open("/dev/null").ok()) << "devices are only written to";
}

TEST(PromptSourceTest, IsATextOrNothing) {
    const auto prompts = parse_prompts(
        "{\"prompt\":\"x\",\"source\":\"sums\"}\n{\"prompt\":\"x\",\"source\":3}\n{\"prompt\":\"x\"}\n", "p", 0);
    ASSERT_TRUE(prompts.ok());
    EXPECT_EQ((*prompts)[0].source, "sums");
    EXPECT_EQ((*prompts)[1].source, "");
    EXPECT_EQ((*prompts)[2].source, "");
}

}  // namespace
}  // namespace bastion::cli
