#include "cli/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/lines.h"

namespace bastion::cli {
namespace {

namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
 protected:
    FilesTest() {
        folder = fs::temp_directory_path() / ("bastion_files_test_" + std::to_string(::getpid()));
        fs::create_directories(folder);
    }
    ~FilesTest() override { fs::remove_all(folder); }

    std::string path(const std::string& name) const { return (folder / name).string(); }

    fs::path folder;
};

TEST_F(FilesTest, ReadsBackWhatItWrote) {
    const std::string text("line\n\0more\r\n", 12);
    ASSERT_TRUE(write_text(path("a"), text, "results").ok());
    ASSERT_TRUE(write_text(path("a"), text + "x", "results").ok());
    EXPECT_EQ(*read_text(path("a"), "prompt file"), text + "x");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1)
        << "no temporary file is left";
}

TEST_F(FilesTest, NamesTheFileItCannotRead) {
    const auto missing = read_text(path("missing"), "prompt file");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(missing.error().message.find("prompt file '" + path("missing") + "' cannot be read: "), 0u);
    const auto directory = read_text(folder.string(), "prompt file");
    ASSERT_FALSE(directory.ok());
    EXPECT_NE(directory.error().message.find("is a directory"), std::string::npos);
}

TEST_F(FilesTest, ChecksOutputsBeforeTheWork) {
    EXPECT_TRUE(check_writable(path("new"), "results").ok());
    EXPECT_FALSE(fs::exists(path("new"))) << "checking leaves no file behind";
    EXPECT_TRUE(check_writable("/dev/null", "results").ok());
    EXPECT_FALSE(check_writable(folder.string(), "results").ok());
    EXPECT_FALSE(check_writable(path("no/such/folder"), "results").ok());
    EXPECT_FALSE(check_writable("", "results").ok());
}

TEST_F(FilesTest, CreatesFoldersWhereAsked) {
    EXPECT_FALSE(write_text(path("deep/er/profile"), "x", "profile").ok());
    EXPECT_TRUE(write_text(path("deep/er/profile"), "x", "profile", true).ok());
    EXPECT_EQ(*read_text(path("deep/er/profile"), "profile"), "x");
}

TEST_F(FilesTest, WritesIntoDevicesWithoutReplacingThem) {
    ASSERT_TRUE(write_text("/dev/null", "x", "results").ok());
    EXPECT_FALSE(fs::is_regular_file("/dev/null"));
}

TEST(Utf8Test, TellsValidTextFromOther) {
    EXPECT_TRUE(is_utf8(""));
    EXPECT_TRUE(is_utf8("a\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD"));
    for (const char* bad : {"\xff", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
        EXPECT_FALSE(is_utf8(bad));
}

TEST(LineReaderTest, SplitsLinesAndKeepsTheLastOne) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const std::string text = "one\r\n\nthree";
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
    LineReader lines(ends[0]);
    std::string line;
    for (const char* expected : {"one", "", "three"}) {
        ASSERT_EQ(lines.next(line), LineReader::Got::line);
        EXPECT_EQ(line, expected);
    }
    EXPECT_EQ(lines.next(line), LineReader::Got::end);
    ::close(ends[0]);
}

}  // namespace
}  // namespace bastion::cli
