// The state of one conversation. Invariants between steps:
//   tokens_[0, computed) have their K and V in the target's cache, in cells 0..computed-1 of `slot`;
//   positions 0..injected-1 are in the drafter's cache, and pending_[i] holds the features of position injected + i,
//   so injected + pending_.size() == computed (with a drafter);
//   while decoding, computed == tokens.size() - 1: the last token is the anchor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bastion/engine.h"
#include "budget/batch_drafting.h"
#include "engine/models.h"
#include "text/stream.h"
#include "tree/sample.h"

namespace bastion {

enum class Phase { idle, prefilling, decoding };

class SessionState final : public Session {
 public:
    /// Takes slot `slot`; `release` is called with it on destruction.
    SessionState(Models& models, int slot, std::function<Status(const GenerateOptions&)> check,
                 std::function<void(int)> release);
    ~SessionState() override;

    Status begin(std::vector<Token> prompt, const GenerateOptions& options) override;
    bool done() const override { return phase == Phase::idle; }
    bool prefilling() const override { return phase == Phase::prefilling; }
    double prefill_fraction() const override;
    void interrupt() override { finish(StopReason::interrupted); }
    std::string take_text() override { return stream_.take(); }
    const std::vector<Token>& tokens() const override { return tokens_; }
    const std::vector<Token>& answer() const override { return answer_; }
    const Stats& stats() const override { return counters; }
    void set_trace(std::function<void(const CycleTrace&)> trace) override { trace_ = std::move(trace); }

    // For the cycle.

    /// Takes a drawn token into the answer and applies the stop rules in order: end of text, stop texts, length.
    /// Returns false if the answer ends with (or at) this token.
    bool emit(Token token);
    void finish(StopReason reason);

    /// Tokens that may still be emitted: by max-tokens and by the context.
    int room() const;

    /// Forgets cached positions from `keep` on.
    void truncate(int keep);

    /// Takes rows of the feature pool as the features of the next positions.
    void add_pending(std::span<const std::int32_t> rows);
    void mark_injected();

    /// Counts a cycle without a draft and why.
    void count_off(const std::string& reason);

    const std::vector<std::int32_t>& pending() const { return pending_; }
    const std::function<void(const CycleTrace&)>& trace() const { return trace_; }
    Sampler& sampler() { return *sampler_; }

    const int slot;
    Phase phase = Phase::idle;
    int computed = 0;
    int injected = 0;
    GenerateOptions options;
    Stats counters;
    DraftSwitch draft_switch;
    DraftFortune fortune;

 private:
    Models& models_;
    std::function<Status(const GenerateOptions&)> check_;
    std::function<void(int)> release_;
    std::function<void(const CycleTrace&)> trace_;
    std::vector<Token> tokens_, answer_;
    std::vector<std::int32_t> pending_;
    std::unique_ptr<Sampler> sampler_;
    TextStream stream_;
    std::map<std::string, int> off_reasons_;
};

}  // namespace bastion
