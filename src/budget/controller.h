// How many nodes a cycle verifies: Algorithm 4 of the paper, with "off" (plain decoding) as an arm.
#pragma once

#include <vector>

#include "bastion/options.h"
#include "budget/batch_costs.h"
#include "budget/calibration.h"

namespace bastion {

/// Predicts latencies from a profile and learns from observed ones. One per engine; not thread-safe.
class LatencyModel {
 public:
    LatencyModel(Profile profile, ControllerKind kind);

    /// Predicted milliseconds of a target pass over `rows` rows at `context` committed tokens; positive and finite
    /// whatever the profile says.
    /// static: Profile::fitted_ms. ema: gamma R with gamma <- (1-alpha) gamma + alpha obs/pred. ema+static: gamma times
    /// static.
    /// curve: the measured grid, made monotone in rows, piecewise linear in rows and context.
    /// Several requests: the roofline counts what each does with its own cache; the grid, measured with one request, is
    /// read at the sum of the rows and at the mean context that a row attends to, and what the fit by parts says of
    /// reading the other requests' caches comes on top.
    double verify_ms(const PassLoad& load) const;
    double verify_ms(int rows, int context) const;

    /// L_AR: one plain step at `context`, from the same predictor.
    double plain_ms(int context) const { return verify_ms(1, context); }

    /// One draft pass over the blocks of `requests` requests.
    double draft_ms(int requests = 1) const;
    /// The rest of a cycle in which `requests` requests draft.
    double aux_ms(int requests = 1) const { return requests * profile_.aux_ms; }

    /// Tells the model what a pass really took. `static` and `curve` do not learn.
    void observe_verify(const PassLoad& load, double measured_ms);
    void observe_verify(int rows, int context, double measured_ms) { observe_verify({rows, context}, measured_ms); }

    const Profile& profile() const { return profile_; }
    ControllerKind kind() const { return kind_; }

 private:
    double uncorrected_ms(const PassLoad& load) const;
    double other_caches_ms(const PassLoad& load, double context) const;

    Profile profile_;
    ControllerKind kind_;
    MeasuredCurve curve_;
    double gamma_ = 1.0;
};

/// What one request puts into a pass.
struct PassPart {
    int context = 0;  ///< committed tokens
    int rows = 1;     ///< at the start of a search: the root, or all of a tree that is not searched for
};

/// One cycle's search for the best N over nested trees (paper section 3.4): feed it rho of each next node until it
/// says stop, then ask for the best N seen. S-hat(N) = A-hat(N) * L_AR / C-hat(N).
///
/// A draft of the cycle is already paid, so every N, N = 1 included, is charged for it: S-hat(1) < 1.
///
/// Several requests that share the pass are searched together: N counts the rows of all of them, A-hat is the sum of
/// their A-hat, C-hat is of the whole pass, and L_AR that of a pass with one row of each, which brings as many tokens
/// as there are requests. Offered in falling order of rho over all requests, whose nodes then cost (nearly) the same,
/// each N is the best division of N rows, so nodes go where they are worth most.
class BudgetSearch {
 public:
    /// One request. `latency` must outlive the search.
    BudgetSearch(const LatencyModel& latency, int context, int max_nodes);

    /// The pass of all `parts`, of which `drafting` have drafted; no part grows beyond `max_nodes` rows. `surrogate`:
    /// the sum of A-hat over the rows that are there at the start. `factors`: on what `latency` says.
    BudgetSearch(const LatencyModel& latency, std::vector<PassPart> parts, int drafting, double surrogate,
                 int max_nodes, const CycleCost& factors = {});

    /// Offers the next node's rho, a node of parts[part], no larger than the one before. Returns true if the search
    /// wants it added. For static, ema and ema+static it stops at the first N with S(N+1) < S(N) (Proposition 3.4); for
    /// curve it goes on as long as a larger N could still be better, and keeps the argmax (the smallest such N). A
    /// search that has stopped stays stopped.
    bool offer(double rho, int part = 0);

    int best_nodes() const { return best_.nodes; }                ///< N*: rows of the whole pass, at least one a part
    double best_speedup() const { return best_.speedup; }         ///< S-hat(N*), relative to plain decoding
    double predicted_cycle_ms() const { return best_.cycle_ms; }  ///< C-hat(N*)
    double predicted_verify_ms() const { return best_.verify_ms; }

 private:
    struct Candidate {
        int nodes;
        double speedup, cycle_ms, verify_ms;
    };

    Candidate evaluate() const;
    bool hopeless(double rho) const;

    const LatencyModel* latency_;
    std::vector<PassPart> parts_;
    int max_nodes_;
    CycleCost factors_;
    double fixed_ms_;           ///< draft and aux
    double plain_pass_ms_ = 0;  ///< of one row of each part, as predicted
    double plain_ms_ = 0;       ///< L_AR, a token
    PassLoad load_;
    double surrogate_;
    double cycle_ms_ = 0;  ///< of the nodes taken so far
    long room_ = 0;        ///< nodes that may still come
    bool stopped_ = false;
    Candidate best_;
};

/// Decides per session whether the next cycle drafts at all: off while drafted cycles gain less than cycles without a
/// draft would have (plain steps, or trees of copies), with probes to come back. Deterministic in what it is told.
///
/// The gain is a running average g <- (1-w) g + w emitted * undrafted_token_ms / cycle_ms with w = 0.1, g = 1.15 at
/// first: what one cycle brings varies by half of itself, so a shorter memory would turn off a draft that gains 5 %
/// by chance, and a lower start would do so before the memory fills. The first 4 drafted cycles are free; after them
/// g < 1 turns drafting off. While off, one single cycle is drafted after 8 and then after every 16 undrafted cycles,
/// and weighs w = 0.5; a probe that gains is followed by another at once. Hence
/// - text that gains o < 1 from the start is drafted for at most max(4, 1 + ln((1 - o) / (1.15 - o)) / ln 0.9) cycles;
/// - hopeless text pays for at most one drafted cycle in 17 after that;
/// - text that becomes good is drafted again within 16 undrafted cycles and k probes, where k is the smallest number
///   with o - (o - g) / 2^k >= 1 for a gain o of the new text: 20 cycles in all for o >= 1.1 and g >= 0.2.
class DraftSwitch {
 public:
    /// True if the next cycle should draft. Advances the probe counter of an off phase.
    bool should_draft();

    /// After a drafted cycle: `emitted` tokens, their predicted cost and what each would have cost without a draft.
    void observe_drafted(int emitted, double cycle_ms, double undrafted_token_ms);

    bool off() const { return off_; }
    /// Running realised speed-up of drafted cycles over undrafted ones.
    double gain() const { return gain_; }

 private:
    void adapt_probing(double realised);

    double gain_ = 1.15;
    int drafted_ = 0;  // cycles observed, counted up to the free ones
    bool off_ = false;
    int interval_ = 0;   // undrafted cycles before the next probe
    int undrafted_ = 0;  // of them so far
};

}  // namespace bastion
