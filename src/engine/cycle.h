// One step of the machine: prefill chunks, and the draft-build-verify-commit cycle over a batch of sessions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "budget/batch_costs.h"
#include "budget/batch_drafting.h"
#include "budget/confidence.h"
#include "engine/copies.h"
#include "engine/models.h"
#include "engine/session.h"

namespace bastion {

/// Runs steps on shared models. Holds the latency models of the controllers and scratch memory.
class CycleRunner {
 public:
    explicit CycleRunner(Models& models) : models_(models) {}

    /// Replaces what the controllers know.
    void set_profile(const Profile& profile);
    const std::optional<Profile>& profile() const { return profile_; }

    /// The next chunk of the session's prompt; after the last one the first token is drawn.
    Status prefill(SessionState& session);

    /// One cycle for all sessions together. REQUIRES every session to be decoding.
    Status cycle(std::span<SessionState* const> sessions);

 private:
    /// What one session puts into a cycle.
    struct Entry {
        SessionState* session = nullptr;
        int position = 0;  ///< of the root
        bool drafted = false;
        std::string off_reason;  ///< if not drafted
        int max_depth = 0;
        Continuation copied;  ///< what the text itself suggests; only method tree asks
        Lattice lattice;      ///< empty if not drafted
        Tree tree;
        std::vector<Token> tokens;
        std::vector<std::int32_t> positions, parents, feature_rows;
        int first_row = 0;  ///< of the pass
        double predicted_verify_ms = 0, predicted_cycle_ms = 0;
        double undrafted_token_ms = 0;  ///< what a token would cost without a draft; of an automatic session alone
        Verdict verdict;
        std::vector<Token> emitted;  ///< what became part of the answer: no end-of-text token

        bool grows() const { return drafted || !copied.tokens.empty(); }
    };

    Status prefill_chunk(SessionState& session, int rows, bool last);
    Entry plan(SessionState& session);
    bool pays_alone(Entry& entry);
    void choose_drafting(std::span<Entry> entries);
    Status draft(std::span<Entry> entries);
    void build(std::span<Entry> entries);
    void build_fixed(Entry& entry);
    void build_automatic(std::span<Entry> entries, ControllerKind kind);
    void lay_out(Entry& entry);
    Status verify(std::span<Entry> entries);
    Status commit(Entry& entry);
    void learn(const Entry& entry, bool alone);
    void observe_batch(std::span<const Entry> entries, const PassLoad& load);
    CycleCost cost_factors(std::size_t requests) const;
    static PassLoad plain_load(std::span<const Entry> entries);
    Status run(std::span<Entry> entries);
    void abandon(std::span<Entry> entries);
    Status inject(std::span<SessionState* const> sessions);
    Token draw(SessionState& session, int row);
    void report(const Entry& entry) const;
    LatencyModel& latency(ControllerKind kind);

    Models& models_;
    std::optional<Profile> profile_;
    std::map<ControllerKind, LatencyModel> latency_;
    ConfidenceCorrection confidence_;  ///< of the drafter, learned over all sessions; only `--budget auto` uses it
    Copies copies_;
    BatchCosts batch_costs_;
    BatchDrafting batch_drafting_;  ///< which of several automatic sessions draft; one alone has its DraftSwitch
    std::vector<float> logits_;
    double draft_ms_ = 0, build_ms_ = 0, verify_ms_ = 0, commit_ms_ = 0;  ///< of the cycle at hand
};

}  // namespace bastion
