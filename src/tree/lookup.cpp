#include "tree/lookup.h"

#include <algorithm>

namespace bastion {
namespace {

/// Of a loop that goes on for thousands of tokens so many occurrences tell enough.
constexpr std::size_t kEnough = 64;

/// An earlier place with the same token (or more) before it.
struct Occurrence {
    std::size_t next;  ///< index of what follows there
    int matched;       ///< tokens before it that equal the end of the history
};

/// How many tokens before `a` and before `b` agree, at most kLongestMatch; a < b.
int agreement(std::span<const Token> history, std::size_t a, std::size_t b) {
    const int most = static_cast<int>(std::min<std::size_t>(a, kLongestMatch));
    int agree = 0;
    while (agree < most && history[a - 1 - agree] == history[b - 1 - agree]) ++agree;
    return agree;
}

/// The latest first: all of them, or kEnough if one of those is as long as is told apart.
std::vector<Occurrence> occurrences(std::span<const Token> history) {
    std::vector<Occurrence> found;
    const std::size_t end = history.size();
    int longest = 0;
    for (std::size_t at = end; at-- > 1 && (longest < kLongestMatch || found.size() < kEnough);) {
        const int matched = agreement(history, at, end);
        if (matched > 0) found.push_back({at, matched});
        longest = std::max(longest, matched);
    }
    return found;
}

/// The latest of the longest.
Occurrence best_of(const std::vector<Occurrence>& found) {
    return *std::ranges::max_element(found, {}, &Occurrence::matched);
}

}  // namespace

Continuation look_up(std::span<const Token> history, int most) {
    Continuation copy;
    std::vector<Occurrence> found = occurrences(history);
    if (found.empty()) return copy;
    const Occurrence source = best_of(found);
    std::erase_if(found, [&](const Occurrence& o) { return o.next == source.next; });
    for (int i = 0; i < most; ++i) {
        const auto following = [&](const Occurrence& o) {
            const std::size_t at = o.next + i;
            return at < history.size() ? history[at] : copy.tokens[at - history.size()];
        };
        const Token token = following(source);
        int others = 0, agreeing = 0;
        for (const Occurrence& o : found) {
            if (o.matched + i < (source.matched + i) / 2) continue;
            ++others;
            agreeing += following(o) == token ? 1 : 0;
        }
        const Support support = others == 0          ? Support::none
                                : agreeing == others ? Support::confirmed
                                : agreeing > 0       ? Support::mixed
                                                     : Support::contradicted;
        std::erase_if(found, [&](const Occurrence& o) { return following(o) != token; });
        copy.tokens.push_back(token);
        copy.evidence.push_back({source.matched + i, support});
    }
    return copy;
}

}  // namespace bastion
