#include "tree/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bastion {
namespace {

/// The longest suffix that stands earlier in `text`, and the end of its latest earlier occurrence, by trying all.
std::pair<int, std::size_t> longest_match(const std::vector<Token>& text) {
    std::pair<int, std::size_t> best{0, 0};
    for (int length = 1; length <= kLongestMatch; ++length) {
        for (std::size_t end = length; end < text.size(); ++end) {
            if (std::equal(text.end() - length, text.end(), text.begin() + static_cast<long>(end) - length)) {
                best = {length, end};
            }
        }
    }
    return best;
}

TEST(LookUp, FindsTheLatestOccurrenceOfTheLongestSuffix) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<Token> text(1 + random() % 60);
        const unsigned alphabet = 1 + random() % 6;
        for (Token& t : text) t = static_cast<Token>(random() % alphabet);
        const auto [matched, from] = longest_match(text);
        const Continuation found = look_up(text, 40);
        ASSERT_EQ(found.matched, matched);
        if (matched == 0) {
            EXPECT_TRUE(found.tokens.empty());
            continue;
        }
        ASSERT_EQ(found.tokens.size(), 40u);
        std::vector<Token> written = text;
        for (std::size_t i = 0; i < 40; ++i) {
            EXPECT_EQ(found.tokens[i], written[from + i])
                << "token " << i << " after " << from << " of " << text.size();
            written.push_back(found.tokens[i]);
        }
    }
}

TEST(LookUp, FollowsALoop) {
    const Continuation found = look_up(std::vector<Token>{9, 1, 2, 3, 1, 2, 3, 1}, 7);
    EXPECT_EQ(found.matched, 4);
    EXPECT_EQ(found.tokens, (std::vector<Token>{2, 3, 1, 2, 3, 1, 2}));
    EXPECT_EQ(look_up(std::vector<Token>(500, 4), 3).matched, kLongestMatch);
}

TEST(LookUp, KnowsNothingOfANewToken) {
    for (const std::vector<Token>& text : {std::vector<Token>{}, {5}, {1, 2, 3}}) {
        const Continuation found = look_up(text, 8);
        EXPECT_EQ(found.matched, 0);
        EXPECT_TRUE(found.tokens.empty());
    }
    EXPECT_TRUE(look_up(std::vector<Token>{1, 1}, 0).tokens.empty());
}

}  // namespace
}  // namespace bastion
