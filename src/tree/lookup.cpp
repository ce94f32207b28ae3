#include "tree/lookup.h"

#include <algorithm>

namespace bastion {
namespace {

/// How many tokens before `a` and before `b` agree, at most kLongestMatch; a < b.
int agreement(std::span<const Token> history, std::size_t a, std::size_t b) {
    const int most = static_cast<int>(std::min<std::size_t>(a, kLongestMatch));
    int agree = 0;
    while (agree < most && history[a - 1 - agree] == history[b - 1 - agree]) ++agree;
    return agree;
}

}  // namespace

Continuation look_up(std::span<const Token> history, int most) {
    const std::size_t end = history.size();
    Continuation found;
    std::size_t from = 0;
    for (std::size_t at = end; at-- > 1 && found.matched < kLongestMatch;) {
        const int matched = agreement(history, at, end);
        if (matched <= found.matched) continue;
        found.matched = matched;
        from = at;
    }
    if (found.matched == 0) return found;
    for (int i = 0; i < most; ++i) {
        const std::size_t at = from + i;
        found.tokens.push_back(at < end ? history[at] : found.tokens[at - end]);
    }
    return found;
}

}  // namespace bastion
