// bench/report.py on what `bastion bench` writes. The script's parts have tests of their own (bench/report_test.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "../model/support.h"
#include "process.h"

namespace bastion {
namespace {

using test::model_path;
using test::scratch_path;
using testing::Outcome;
using testing::write_file;

TEST(BenchScriptTest, ReadsTheResultsOfBench) {
    const std::string sums = write_file("sums.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n");
    const std::string poems = write_file("poems.jsonl", "{\"prompt\":\"three\"}\n{\"prompt\":\"four\"}\n");
    const std::string results = scratch_path("results.json"), folder = scratch_path("report");
    const Outcome outcome =
        testing::run({.args = {"bench", "--prompts", sums, "--prompts", poems, "--methods",
                               "chain,tree@static,tree@curve,tree:4,tree:7,beam:2x3", "--max-tokens", "12",
                               "--ignore-eos", "--target", model_path("tiny-llama3"), "--drafter",
                               model_path("tiny-llama3-dflash"), "--threads", "2", "--out", results}});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string command = "python3 '" BASTION_SOURCE_DIR "/bench/report.py' --no-figures '" + results +
                                "' --out '" + folder + "' > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::stringstream report;
    report << std::ifstream(folder + "/report.md").rdbuf();
    for (const char* part : {"## results", "| tree:7 / beam:2x3 | 7 |", "| method | sums | poems | mean |",
                             "| set | N=4 | N=7 | tree@static | tree@curve |", "| tree@curve | curve |",
                             "gave the text of `ar` for all 4 prompts", "| context | nodes | measured ms |",
                             "| method | trees | Pearson |", "| mean cycle, ms |"}) {
        EXPECT_NE(report.str().find(part), std::string::npos) << part << "\n" << report.str();
    }
}

}  // namespace
}  // namespace bastion
