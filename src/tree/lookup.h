// Prompt lookup (Saxena, 2023): text that repeats itself tells how it goes on.
#pragma once

#include <span>
#include <vector>

#include "bastion/token.h"

namespace bastion {

/// What followed the latest earlier occurrence of the longest suffix of a text.
struct Continuation {
    int matched = 0;  ///< tokens of that suffix, at most kLongestMatch; 0: its last token is new
    std::vector<Token> tokens;
};

inline constexpr int kLongestMatch = 16;

/// The continuation of `history`, `most` tokens. An occurrence that overlaps the end goes on with its own continuation,
/// so that a loop is followed for as long as one likes. Linear in the history, no state.
Continuation look_up(std::span<const Token> history, int most);

}  // namespace bastion
