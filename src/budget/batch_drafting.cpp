#include "budget/batch_drafting.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bastion {
namespace {

constexpr double kFortuneAlpha = 0.05;      // weight of a drafted cycle
constexpr double kFade = 0.02;              // of a fortune's distance to 1, an undrafted cycle
constexpr double kMostFortune = 4;          // one cycle may have luck, not ten times what is usual
constexpr double kPromise = 1.02;           // of plain decoding, by which a draft must be better
constexpr double kProbationShare = 0.0025;  // of the time

/// `plain` with `rows` more rows of requests like those in it, `tree` of them at a time.
PassLoad with_rows(PassLoad plain, double rows, double tree) {
    const double context = plain.attended / plain.rows;
    plain.rows += rows;
    plain.attended += rows * context;
    plain.own += rows * (tree + 1);
    return plain;
}

/// Sizes worth comparing: all small ones, then about four an octave, at last the largest.
std::vector<int> sizes_up_to(int most) {
    std::vector<int> sizes;
    for (int size = 2; size < most; size += std::max(1, size / 4)) sizes.push_back(size);
    if (most > 1) sizes.push_back(most);
    return sizes;
}

}  // namespace

void DraftRecord::observe(int nodes, std::span<const std::int32_t> accepted) {
    // Sizes beyond the largest so far have been what the largest was.
    if (nodes > most_nodes()) sizes_.resize(nodes, sizes_.empty() ? Size{} : sizes_.back());
    ++cycles_;
    const double weight = 1.0 / std::min(cycles_, kMemory);
    std::size_t drawn = 0;
    for (int i = 0; i < most_nodes(); ++i) {
        while (drawn < accepted.size() && accepted[drawn] <= i) ++drawn;
        sizes_[i].tokens += weight * (static_cast<double>(drawn) - sizes_[i].tokens);
        sizes_[i].rows += weight * (std::min(i + 1, nodes) - sizes_[i].rows);
    }
}

DraftRecord::Size DraftRecord::at(int nodes) const {
    if (sizes_.empty()) return {};
    return sizes_[std::clamp(nodes, 1, most_nodes()) - 1];
}

std::vector<bool> BatchDrafting::choose(const LatencyModel& latency, const CycleCost& factors, const PassLoad& plain,
                                        int plain_requests, std::span<const DraftFortune> requests) {
    std::vector<bool> drafts(requests.size(), false);
    if (requests.empty()) return drafts;
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return requests[a].factor > requests[b].factor; });

    const double predicted_ms = latency.verify_ms(plain), plain_ms = factors.plain * predicted_ms;
    // What it costs that so many draft, and have so many rows more.
    const auto extra_ms = [&](int drafting, double rows) {
        const double rows_ms = latency.verify_ms(with_rows(plain, drafting * rows, rows + 1)) - predicted_ms;
        return factors.ms({0, rows_ms, latency.draft_ms(drafting) + latency.aux_ms(drafting)});
    };
    double best_rate = kPromise * plain_requests / plain_ms;
    int best = 0;
    const int most = std::min<int>(static_cast<int>(requests.size()), record_.cycles());
    for (const int size : sizes_up_to(record_.most_nodes())) {
        const double gain = record_.tokens(size) - 1, rows = record_.rows(size) - 1;
        double tokens = plain_requests;
        for (int k = 1; k <= most; ++k) {
            tokens += requests[order[k - 1]].factor * gain;
            if (const double rate = tokens / (plain_ms + extra_ms(k, rows)); rate > best_rate) {
                best_rate = rate;
                best = k;
            }
        }
    }
    for (int k = 0; k < best; ++k) drafts[order[k]] = true;
    if (best > 0) return drafts;

    saved_ms_ += kProbationShare * plain_ms;
    if (record_.cycles() > 0 && saved_ms_ < extra_ms(1, record_.rows(record_.most_nodes()) - 1)) return drafts;
    saved_ms_ = 0;
    const auto longest = std::max_element(requests.begin(), requests.end(),
                                          [](const auto& a, const auto& b) { return a.undrafted < b.undrafted; });
    drafts[longest - requests.begin()] = true;
    return drafts;
}

void BatchDrafting::observe(int nodes, std::span<const std::int32_t> accepted, DraftFortune& fortune) {
    // Of trees of all sizes: a large one is large because much is expected of it.
    const double expected = record_.tokens(record_.most_nodes()) - 1, drawn = static_cast<double>(accepted.size()) - 1;
    record_.observe(nodes, accepted);
    fortune.undrafted = 0;
    if (expected <= 0) return;
    const double seen = std::min(drawn / expected, kMostFortune);
    fortune.factor += kFortuneAlpha * (seen - fortune.factor);
}

void BatchDrafting::observe_undrafted(DraftFortune& fortune) const {
    ++fortune.undrafted;
    fortune.factor += kFade * (1 - fortune.factor);
}

}  // namespace bastion
