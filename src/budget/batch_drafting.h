// Which requests of a batch draft: what drafting has brought so far, and whether that pays in the company of the
// others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "budget/batch_costs.h"
#include "budget/controller.h"

namespace bastion {

/// What drafted cycles have brought, over all requests: for each size N the tokens and rows that their trees, cut to N
/// nodes, would have meant. Trees are nested, so one cycle tells of all sizes; a tree smaller than N counts as it is.
/// Means of the first kMemory cycles, then running ones that forget at that rate.
class DraftRecord {
 public:
    /// A tree of `nodes` nodes, best first; `accepted`: those the target drew at, root first, without copies of the
    /// text, which would have been there without a draft.
    void observe(int nodes, std::span<const std::int32_t> accepted);

    double tokens(int nodes) const { return at(nodes).tokens; }  ///< drawn by a cycle, at least 1
    double rows(int nodes) const { return at(nodes).rows; }      ///< verified by it
    int most_nodes() const { return static_cast<int>(sizes_.size()); }
    int cycles() const { return cycles_; }

 private:
    static constexpr int kMemory = 200;

    struct Size {
        double tokens = 1, rows = 1;
    };
    Size at(int nodes) const;

    std::vector<Size> sizes_;  ///< [i]: cut to i + 1 nodes
    int cycles_ = 0;
};

/// One request's share in that record.
struct DraftFortune {
    double factor = 1.0;  ///< of the tokens beyond the first that the record lets expect; fades to 1 while undrafted
    int undrafted = 0;    ///< cycles since its last draft
};

/// Decides before the draft which requests of a batch take part in it, possibly none. For each number k of drafting
/// requests, those of the best fortune first, and each size N it compares expected tokens a millisecond, by the record
/// and the latency model, and takes the best k. A draft must promise 2 % more than plain decoding, because the best of
/// many guesses is one in luck. Deterministic in what it is told.
///
/// What the model predicts is corrected by the factors given (budget/batch_costs.h).
///
/// Nothing is known at first, and little of requests that do not draft, so
/// - at most as many requests draft as cycles have been observed, and one at least: a first impression of few cycles is
///   not acted on by many requests at once;
/// - while drafting does not pay, single requests draft on probation, the longest undrafted first, as soon as what
///   they cost at most is 0.25 % of the time since the last one.
class BatchDrafting {
 public:
    /// Which of the `requests` draft. `plain`: the pass if nobody does, with one row of each of `plain_requests`
    /// requests.
    std::vector<bool> choose(const LatencyModel& latency, const CycleCost& factors, const PassLoad& plain,
                             int plain_requests, std::span<const DraftFortune> requests);

    /// Tells what a request's tree brought; changes its fortune.
    void observe(int nodes, std::span<const std::int32_t> accepted, DraftFortune& fortune);

    /// Tells that a request did not draft.
    void observe_undrafted(DraftFortune& fortune) const;

    const DraftRecord& record() const { return record_; }

 private:
    DraftRecord record_;
    double saved_ms_ = 0;  ///< what probation may cost by now
};

}  // namespace bastion
