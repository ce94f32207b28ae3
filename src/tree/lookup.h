// Prompt lookup (Saxena, 2023): text that repeats itself tells how it goes on.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"

namespace bastion {

/// What followed the latest earlier occurrence of the longest suffix of a text. Empty if the last token is new.
struct Continuation {
    std::vector<Token> tokens;
    std::vector<CopyEvidence> evidence;  ///< of each of them
};

/// Longer equal suffixes are not told apart.
inline constexpr int kLongestMatch = 65;

/// The continuation of `history`, `most` tokens. An occurrence that overlaps the end goes on with its own continuation,
/// so that a loop is followed for as long as one likes.
///
/// A token's evidence: the suffix before it is as long as the one found and the tokens copied since; its support comes
/// from the other occurrences of at least half of that suffix (which all contain the tokens copied since). Linear
/// in the history, no state.
Continuation look_up(std::span<const Token> history, int most);

}  // namespace bastion
