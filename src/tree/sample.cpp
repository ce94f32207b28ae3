#include "tree/sample.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/philox.h"

namespace bastion {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

bool penalises(const SamplingOptions& options) {
    return options.penalty_window != 0 &&
           (options.repeat_penalty != 1.0 || options.frequency_penalty != 0.0 || options.presence_penalty != 0.0);
}

/// Works for float and double spans; NaN never compares greater, so it counts as -inf.
template <class T>
Token index_of_largest(std::span<const T> values) {
    Token best = 0;
    T largest = -std::numeric_limits<T>::infinity();
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] > largest) {
            largest = values[i];
            best = static_cast<Token>(i);
        }
    }
    return best;
}

}  // namespace

bool is_plain_argmax(const SamplingOptions& options) {
    const bool greedy = !(options.temperature > 0.0) || options.top_k == 1;
    return greedy && options.logit_bias.empty() && !penalises(options);
}

Token argmax(std::span<const float> logits) { return index_of_largest(logits); }

Sampler::Sampler(SamplingOptions options) : options_(std::move(options)) {}

/// scores_ <- logits with bias and penalties.
void Sampler::adjust(std::span<const float> logits, std::span<const Token> history) {
    scores_.assign(logits.begin(), logits.end());
    for (const auto& [token, bias] : options_.logit_bias) {
        if (token >= 0 && std::cmp_less(token, scores_.size())) scores_[token] += bias;
    }
    if (penalises(options_)) penalise(history);
    for (double& score : scores_) score = std::isnan(score) ? kNothing : score;
}

void Sampler::penalise(std::span<const Token> history) {
    const auto window = static_cast<std::size_t>(options_.penalty_window);
    if (options_.penalty_window > 0 && history.size() > window) history = history.last(window);
    recent_.assign(history.begin(), history.end());
    std::sort(recent_.begin(), recent_.end());
    for (auto it = recent_.begin(); it != recent_.end();) {
        const Token token = *it;
        const auto end = std::upper_bound(it, recent_.end(), token);
        const auto count = static_cast<double>(end - it);
        it = end;
        if (token < 0 || std::cmp_greater_equal(token, scores_.size())) continue;
        double& score = scores_[token];
        score = score > 0 ? score / options_.repeat_penalty : score * options_.repeat_penalty;
        score -= count * options_.frequency_penalty + options_.presence_penalty;
    }
}

/// Everything but the k largest scores becomes nothing; of equal scores the smaller ids stay. O(vocab).
void Sampler::keep_top_k(int k) {
    selection_ = scores_;
    const auto kth = selection_.begin() + (k - 1);
    std::nth_element(selection_.begin(), kth, selection_.end(), std::greater<>());
    const double threshold = *kth;
    std::ptrdiff_t room_for_ties = k;
    for (const double score : scores_) room_for_ties -= score > threshold;
    for (double& score : scores_) {
        if (score > threshold) continue;
        if (score == threshold && room_for_ties > 0) {
            --room_for_ties;
        } else {
            score = kNothing;
        }
    }
}

/// Drops all weights but the smallest set of largest ones that together have top_p of `total`. A heap gives them up
/// one by one, so the cost is O(vocab + kept log vocab).
void Sampler::keep_nucleus(double total) {
    nucleus_.clear();
    for (std::size_t i = 0; i < scores_.size(); ++i) {
        if (scores_[i] > 0) nucleus_.push_back({scores_[i], static_cast<Token>(i)});
        scores_[i] = 0;
    }
    const auto less_likely = [](const Weighted& a, const Weighted& b) {
        return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
    };
    std::make_heap(nucleus_.begin(), nucleus_.end(), less_likely);
    double kept = 0;
    for (auto end = nucleus_.end(); end != nucleus_.begin(); --end) {
        std::pop_heap(nucleus_.begin(), end, less_likely);
        const Weighted& likeliest = *(end - 1);
        scores_[likeliest.token] = likeliest.weight;
        kept += likeliest.weight;
        if (kept >= options_.top_p * total) break;
    }
}

Token Sampler::draw(std::span<const float> logits, std::span<const Token> history, std::int64_t position) {
    if (is_plain_argmax(options_)) return argmax(logits);
    adjust(logits, history);
    const Token likeliest = index_of_largest(std::span<const double>(scores_));
    const double largest = scores_[likeliest];
    if (!(options_.temperature > 0.0) || options_.top_k == 1 || largest == kNothing) return likeliest;

    if (options_.top_k > 0 && std::cmp_less(options_.top_k, scores_.size())) keep_top_k(options_.top_k);

    // Weights relative to the most likely token: exp((score - largest) / T), the softmax up to its normalisation.
    // The comparisons keep infinite scores and extreme temperatures away from inf - inf and inf / inf.
    double total = 0;
    for (double& score : scores_) {
        if (score == largest) {
            score = 1;
        } else if (score == kNothing || std::isinf(largest)) {
            score = 0;
        } else {
            score = std::exp((score - largest) / options_.temperature);
        }
        total += score;
    }
    if (options_.top_p < 1.0) keep_nucleus(total);

    double survivors = 0;
    for (double& weight : scores_) {
        if (weight < options_.min_p) weight = 0;
        survivors += weight;
    }
    const double target = survivors * uniform_at(options_.seed, options_.choice, static_cast<std::uint64_t>(position));
    double cumulated = 0;
    Token drawn = likeliest;  // stays if min_p > 1 left nothing
    for (std::size_t i = 0; i < scores_.size(); ++i) {
        if (!(scores_[i] > 0)) continue;
        cumulated += scores_[i];
        drawn = static_cast<Token>(i);
        if (cumulated > target) break;
    }
    return drawn;
}

}  // namespace bastion
