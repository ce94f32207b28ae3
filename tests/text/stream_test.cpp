#include "text/stream.h"

#include <gtest/gtest.h>

#include <random>

namespace bastion {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

/// Streams pieces and keeps every chunk.
struct Listener {
    explicit Listener(std::vector<std::string> stops = {}) : stream(std::move(stops)) {}

    bool say(const std::string& piece) {
        const bool stopped = stream.add(piece);
        hear();
        return stopped;
    }

    std::string end() {
        stream.finish();
        hear();
        return heard;
    }

    void hear() {
        const std::string chunk = stream.take();
        EXPECT_EQ(sanitize_utf8(chunk), chunk) << "a chunk must be valid UTF-8 by itself";
        heard += chunk;
    }

    TextStream stream;
    std::string heard;
};

/// A second, table-free decoder: decodes by value and checks it, to find maximal subparts by trying.
bool is_character(std::string_view bytes) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    for (std::size_t i = 1; i < bytes.size(); ++i) {
        if (at(i) >> 6 != 2) return false;
    }
    unsigned value = 0;
    switch (bytes.size()) {
        case 1:
            return at(0) < 0x80;
        case 2:
            return at(0) >> 5 == 6 && (at(0) & 0x1F) >= 2;
        case 3:
            value = (at(0) & 0x0Fu) << 12 | (at(1) & 0x3Fu) << 6;
            return at(0) >> 4 == 14 && value >= 0x800 && (value < 0xD800 || value > 0xDFFF);
        case 4:
            value = (at(0) & 0x07u) << 18 | (at(1) & 0x3Fu) << 12;
            return at(0) >> 3 == 30 && value >= 0x10000 && value <= 0x10FFFF;
        default:
            return false;
    }
}

/// Whether some bytes appended to `bytes` make it one character.
bool starts_character(const std::string& bytes) {
    for (const char filler : {'\x80', '\x90', '\xA0'}) {
        for (std::size_t more = 0; more < 4; ++more) {
            if (is_character(bytes + std::string(more, filler))) return true;
        }
    }
    return false;
}

std::string naive_sanitize(const std::string& bytes) {
    std::string result;
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t length = 0;
        for (std::size_t n = 1; n <= 4 && at + n <= bytes.size() && starts_character(bytes.substr(at, n)); ++n)
            length = n;
        const std::string part = bytes.substr(at, std::max<std::size_t>(length, 1));
        result += is_character(part) ? part : kReplacement;
        at += part.size();
    }
    return result;
}

/// Position of the stop that completes first (the longest of those that end together), or the end.
std::size_t naive_cut(const std::string& text, const std::vector<std::string>& stops) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& stop : stops) {
            if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
        }
        if (longest > 0) return end - longest;
    }
    return text.size();
}

std::string random_text(std::mt19937& random) {
    static const std::vector<std::string> alphabet = {
        "a",        "b",           "ab",       "\n",      "é",    "ß",        "中",       "語",
        "😀",        "👩‍💻", "\xFF",     "\x80",    "\xE4", "\xE4\xB8", "\xF0\x9F", "\xED\xA0\x80",
        "\xC0\xAF", "\xF4\x90",    "\xE0\x80", "\xF0\x80"};
    std::string text;
    for (std::size_t i = random() % 30; i > 0; --i) text += alphabet[random() % alphabet.size()];
    return text;
}

template <class Say>
void in_random_pieces(std::mt19937& random, const std::string& text, Say&& say) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = 1 + random() % 4;
        if (say(text.substr(at, length))) return;
        at += length;
    }
}

TEST(CompletePrefix, LeavesOutAnUnfinishedCharacter) {
    const std::string text = "a😀";
    EXPECT_EQ(complete_utf8_prefix("abc"), 3u);
    EXPECT_EQ(complete_utf8_prefix(""), 0u);
    EXPECT_EQ(complete_utf8_prefix(text), 5u);
    for (std::size_t cut = 1; cut < 4; ++cut) EXPECT_EQ(complete_utf8_prefix(text.substr(0, 1 + cut)), 1u);
    EXPECT_EQ(complete_utf8_prefix("a\xC3"), 1u);
}

TEST(CompletePrefix, CountsHopelessBytesAsComplete) {
    for (const std::string hopeless :
         {"\xFF", "\x80", "\xC0", "\xC1", "\xF5", "\xED\xA0", "\xE0\x80", "\xF4\x90", "\xF0\x80", "\xE4\xB8\xAD\x80"}) {
        EXPECT_EQ(complete_utf8_prefix(hopeless), hopeless.size());
    }
}

TEST(Sanitize, ReplacesMaximalSubparts) {
    EXPECT_EQ(sanitize_utf8("naïve 中😀"), "naïve 中😀");
    // The example of the Unicode standard, table 3-8.
    EXPECT_EQ(sanitize_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                            "b\x80"
                            "c\x80\xBF"
                            "d"),
              "a" + kReplacement + kReplacement + kReplacement + "b" + kReplacement + "c" + kReplacement +
                  kReplacement + "d");
    EXPECT_EQ(sanitize_utf8("\xED\xA0\x80"), kReplacement + kReplacement + kReplacement);
    EXPECT_EQ(sanitize_utf8(std::string("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Sanitize, AgreesWithASecondDecoder) {
    for (int seed = 0; seed < 3000; ++seed) {
        std::mt19937 random(seed);
        std::string bytes = random_text(random);
        for (std::size_t i = random() % 3; i > 0; --i) bytes += static_cast<char>(random());
        EXPECT_EQ(sanitize_utf8(bytes), naive_sanitize(bytes)) << "seed " << seed;
    }
}

TEST(TextStream, ReleasesTextAtOnce) {
    Listener listener;
    listener.say("Hel");
    EXPECT_EQ(listener.heard, "Hel");
    listener.say("lo\n");
    EXPECT_EQ(listener.heard, "Hello\n");
    EXPECT_FALSE(listener.stream.stopped());
}

TEST(TextStream, KeepsCharactersWhole) {
    Listener listener;
    for (const char byte : std::string("中😀")) listener.say(std::string(1, byte));
    EXPECT_EQ(listener.heard, "中😀");
    listener.say("\xF0\x9F");
    EXPECT_EQ(listener.heard, "中😀");
    EXPECT_EQ(listener.end(), "中😀" + kReplacement);
}

TEST(TextStream, CutsBeforeAStopThatSpansPieces) {
    Listener listener({"</end>"});
    EXPECT_FALSE(listener.say("text <"));
    EXPECT_EQ(listener.heard, "text ");
    EXPECT_FALSE(listener.say("/en"));
    EXPECT_TRUE(listener.say("d> tail"));
    EXPECT_TRUE(listener.stream.stopped());
    EXPECT_EQ(listener.end(), "text ");
}

TEST(TextStream, ReleasesWhatOnlyLookedLikeAStop) {
    Listener listener({"aab"});
    listener.say("aa");
    EXPECT_EQ(listener.heard, "");
    listener.say("a");
    EXPECT_EQ(listener.heard, "a");
    listener.say("c");
    EXPECT_EQ(listener.heard, "aaac");
    listener.say("aa");
    EXPECT_EQ(listener.end(), "aaacaa");
}

TEST(TextStream, TheEarliestCompletedStopWins) {
    Listener listener({"world", "lo w", "x"});
    EXPECT_TRUE(listener.say("hello world x"));
    EXPECT_EQ(listener.end(), "hel");
}

TEST(TextStream, OfStopsThatEndTogetherTheLongestWins) {
    Listener listener({"b", "aab"});
    EXPECT_FALSE(listener.say("xaa"));
    EXPECT_EQ(listener.heard, "x");
    EXPECT_TRUE(listener.say("b"));
    EXPECT_EQ(listener.end(), "x");
}

TEST(TextStream, IgnoresEmptyStops) {
    Listener listener({"", "z"});
    EXPECT_FALSE(listener.say("abc"));
    EXPECT_TRUE(listener.say("z"));
    EXPECT_EQ(listener.end(), "abc");
}

TEST(TextStream, NothingAfterTheStopCounts) {
    Listener listener({"."});
    EXPECT_TRUE(listener.say("one. two"));
    EXPECT_TRUE(listener.say("three"));
    EXPECT_EQ(listener.end(), "one");
}

TEST(TextStream, StopsMayHoldAnyCharacters) {
    Listener listener({"終了"});
    for (const char byte : std::string("答え終り終了後")) listener.say(std::string(1, byte));
    EXPECT_EQ(listener.end(), "答え終り");
}

TEST(TextStream, AnyPiecesGiveTheSameText) {
    const std::vector<std::vector<std::string>> stop_sets = {
        {}, {"ab"}, {"aab", "b"}, {"中", "語ab"}, {"bab", "ab\n", "\xF0\x9F"}, {"", "ababab"}, {"\xB8"}};
    int stopped = 0;
    for (int seed = 0; seed < 4000; ++seed) {
        std::mt19937 random(seed);
        const std::string text = random_text(random);
        const auto& stops = stop_sets[random() % stop_sets.size()];
        Listener listener(stops);
        in_random_pieces(random, text, [&](const std::string& piece) { return listener.say(piece); });
        const std::size_t cut = naive_cut(text, stops);
        EXPECT_EQ(listener.end(), sanitize_utf8(text.substr(0, cut))) << "seed " << seed;
        EXPECT_EQ(listener.stream.stopped(), cut != text.size()) << "seed " << seed;
        stopped += listener.stream.stopped();
    }
    EXPECT_GT(stopped, 500);
}

}  // namespace
}  // namespace bastion
