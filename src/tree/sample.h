// Exact sampling with one counter-based draw per position, so that drawing at a visited tree node equals drawing there
// in plain decoding (docs/exactness.md).
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "bastion/options.h"

namespace bastion {

/// True if the argmax of the raw logits is the token that `Sampler::draw` returns: temperature 0 (or top-k 1) and no
/// penalty or bias. Then logits need not leave the device.
bool is_plain_argmax(const SamplingOptions& options);

/// Index of the largest value, the smallest index on ties; NaN counts as -inf.
Token argmax(std::span<const float> logits);

/// Draws tokens. Holds scratch memory only: `draw` is a pure function of its arguments.
class Sampler {
 public:
    explicit Sampler(SamplingOptions options);

    /// The token for absolute position `position` given raw `logits` [vocab] and all earlier tokens (prompt and
    /// answer). Order: bias, penalties, then temperature 0 -> argmax; else top-k, temperature-scaled softmax, top-p,
    /// min-p on the scaled distribution; then inverse CDF over the survivors in token-id order, in double precision.
    /// Whatever the options, one token survives: the most likely (smallest id on ties). NaN logits count as -inf and
    /// are never drawn unless nothing else is there; +inf leaves only the tokens that have it. Ids in the bias or the
    /// history that are outside the vocabulary are skipped. Requires a non-empty vocabulary.
    Token draw(std::span<const float> logits, std::span<const Token> history, std::int64_t position);

    const SamplingOptions& options() const { return options_; }

 private:
    /// One candidate of the nucleus: its weight relative to the most likely token, and its id.
    struct Weighted {
        double weight;
        Token token;
    };

    void adjust(std::span<const float> logits, std::span<const Token> history);
    void penalise(std::span<const Token> history);
    void keep_top_k(int k);
    void keep_nucleus(double total);

    SamplingOptions options_;
    // Scratch of one draw, kept for its memory only.
    std::vector<double> scores_;     // [vocab] adjusted logits, later weights; what is filtered out becomes nothing
    std::vector<double> selection_;  // [vocab] for the k-th largest score
    std::vector<Weighted> nucleus_;  // [survivors]
    std::vector<Token> recent_;      // [penalty window]
};

}  // namespace bastion
