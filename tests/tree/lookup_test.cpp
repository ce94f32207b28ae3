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

/// What the ends of all other occurrences of half of the last `matched` tokens of `written` say about the token at
/// `from`, by definition. Of these tokens all after the first `known` have to be among those that occur.
Support support(const std::vector<Token>& written, std::size_t known, std::size_t from, int matched) {
    const std::size_t size = written.size();
    const auto copied = static_cast<int>(size - known);
    const int least = std::max(matched / 2, copied + 1);
    int others = 0, agreeing = 0;
    for (std::size_t end = least; end < size; ++end) {
        if (end == from || end - copied >= known) continue;
        if (!std::equal(written.end() - least, written.end(), written.begin() + static_cast<long>(end) - least))
            continue;
        ++others;
        agreeing += written[end] == written[from] ? 1 : 0;
    }
    if (others == 0) return Support::none;
    if (agreeing == others) return Support::confirmed;
    return agreeing > 0 ? Support::mixed : Support::contradicted;
}

TEST(LookUp, FindsTheLatestOccurrenceOfTheLongestSuffix) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<Token> text(1 + random() % 60);
        const unsigned alphabet = 1 + random() % 6;
        for (Token& t : text) t = static_cast<Token>(random() % alphabet);
        const auto [matched, from] = longest_match(text);
        const Continuation found = look_up(text, 40);
        ASSERT_EQ(found.tokens.size(), matched == 0 ? 0u : 40u);
        ASSERT_EQ(found.evidence.size(), found.tokens.size());
        if (matched == 0) continue;
        std::vector<Token> written = text;
        for (std::size_t i = 0; i < 40; ++i) {
            EXPECT_EQ(found.tokens[i], written[from + i])
                << "token " << i << " after " << from << " of " << text.size();
            EXPECT_EQ(found.evidence[i].matched, matched + static_cast<int>(i));
            EXPECT_EQ(found.evidence[i].support, support(written, text.size(), from + i, found.evidence[i].matched))
                << "token " << i << " after " << from << " of " << text.size();
            written.push_back(found.tokens[i]);
        }
    }
}

TEST(LookUp, FollowsALoop) {
    const Continuation found = look_up(std::vector<Token>{9, 1, 2, 3, 1, 2, 3, 1}, 7);
    EXPECT_EQ(found.evidence.front().matched, 4);
    EXPECT_EQ(found.tokens, (std::vector<Token>{2, 3, 1, 2, 3, 1, 2}));
    EXPECT_EQ(look_up(std::vector<Token>(500, 4), 3).evidence.front().matched, kLongestMatch);
}

TEST(LookUp, AsksTheOtherOccurrences) {
    const auto first = [](std::vector<Token> text) { return look_up(text, 1).evidence.at(0).support; };
    EXPECT_EQ(first({1, 2, 9, 1, 2}), Support::none);
    EXPECT_EQ(first({1, 2, 9, 1, 2, 9, 1, 2}), Support::confirmed);
    EXPECT_EQ(first({1, 2, 8, 1, 2, 9, 1, 2}), Support::contradicted);
    EXPECT_EQ(first({1, 2, 8, 1, 2, 9, 1, 2, 9, 1, 2}), Support::mixed);
    // Four tokens match; what follows one of them alone is not asked, what follows two is.
    EXPECT_EQ(first({4, 8, 7, 1, 2, 3, 4, 9, 6, 1, 2, 3, 4}), Support::none);
    EXPECT_EQ(first({3, 4, 8, 7, 1, 2, 3, 4, 9, 6, 1, 2, 3, 4}), Support::contradicted);
}

TEST(LookUp, FollowsOnlyOccurrencesThatAgreed) {
    const Continuation found = look_up(std::vector<Token>{1, 2, 8, 3, 1, 2, 9, 4, 1, 2}, 2);
    ASSERT_EQ(found.tokens, (std::vector<Token>{9, 4}));
    EXPECT_EQ(found.evidence[0].support, Support::contradicted);
    EXPECT_EQ(found.evidence[1].support, Support::none);
}

TEST(LookUp, KnowsNothingOfANewToken) {
    for (const std::vector<Token>& text : {std::vector<Token>{}, {5}, {1, 2, 3}}) {
        EXPECT_TRUE(look_up(text, 8).tokens.empty());
    }
    EXPECT_TRUE(look_up(std::vector<Token>{1, 1}, 0).tokens.empty());
}

}  // namespace
}  // namespace bastion
