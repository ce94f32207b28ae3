#include "engine/cycle.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "engine/tree_policy.h"
#include "tree/accept.h"
#include "tree/build.h"
#include "tree/layout.h"

namespace bastion {
namespace {

/// Milliseconds since construction or the last lap.
class Stopwatch {
 public:
    double lap_ms() {
        const auto now = Clock::now();
        const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
        last_ = now;
        return ms;
    }

 private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point last_ = Clock::now();
};

bool adaptive(const GenerateOptions& o) { return o.method == Method::tree && o.budget == 0; }

}  // namespace

void CycleRunner::set_profile(const Profile& profile) {
    profile_ = profile;
    latency_.clear();
}

LatencyModel& CycleRunner::latency(ControllerKind kind) {
    return latency_.try_emplace(kind, *profile_, kind).first->second;
}

Token CycleRunner::draw(SessionState& session, int row) {
    if (is_plain_argmax(session.options.sampling)) return models_.target->argmax(row);
    logits_.resize(models_.config.vocab);
    models_.target->read_logits(row, logits_);
    return session.sampler().draw(logits_, session.tokens(), static_cast<std::int64_t>(session.tokens().size()));
}

Status CycleRunner::inject(std::span<SessionState* const> sessions) {
    if (!models_.draft) return {};
    std::vector<std::vector<std::int32_t>> positions;
    std::vector<Injection> injections;
    positions.reserve(sessions.size());
    for (SessionState* s : sessions) {
        if (s->pending().empty()) continue;
        positions.emplace_back(s->pending().size());
        std::iota(positions.back().begin(), positions.back().end(), s->injected);
        injections.push_back({s->slot, s->pending(), positions.back()});
    }
    BASTION_CHECK(models_.draft->drafter->inject(injections));
    for (SessionState* s : sessions) s->mark_injected();
    return {};
}

Status CycleRunner::prefill_chunk(SessionState& s, int rows, bool last) {
    std::vector<std::int32_t> positions(rows), parents(rows), features;
    std::iota(positions.begin(), positions.end(), s.computed);
    std::iota(parents.begin(), parents.end(), -1);
    if (models_.draft) features = models_.draft->features->take(rows);
    const SequenceRows chain{s.slot,    s.computed, std::span(s.tokens()).subspan(s.computed, rows),
                             positions, parents,    features};
    const bool argmax = is_plain_argmax(s.options.sampling);
    const Outputs outputs = !last ? Outputs::none : argmax ? Outputs::argmax : Outputs::logits;
    if (Status status = models_.target->pass({&chain, 1}, outputs, /*last_only=*/last); !status.ok()) {
        if (models_.draft) models_.draft->features->give_back(features);
        return status;
    }
    s.computed += rows;
    s.add_pending(features);
    SessionState* const one = &s;
    return inject({&one, 1});
}

Status CycleRunner::prefill(SessionState& s) {
    Stopwatch watch;
    const int total = s.counters.prompt_tokens, start = s.computed;
    const int rows = std::min(models_.chunk, total - start);
    const bool last = start + rows == total;
    if (Status status = prefill_chunk(s, rows, last); !status.ok()) {
        s.truncate(start);
        s.finish(StopReason::interrupted);
        return status;
    }
    if (last) {
        s.phase = Phase::decoding;
        s.emit(draw(s, 0));
    }
    s.counters.prefill_ms += watch.lap_ms();
    return {};
}

CycleRunner::Entry CycleRunner::plan(SessionState& s) {
    Entry e;
    e.session = &s;
    e.position = s.computed;
    const GenerateOptions& o = s.options;
    // Nothing below the last token that may still be emitted can be accepted.
    e.max_depth = s.room() - 1;
    if (o.method == Method::ar) {
        e.off_reason = "method ar";
        return e;
    }
    if (e.max_depth <= 0) {
        e.off_reason = "last token";
    } else if (o.method == Method::tree && o.budget == 1) {
        e.off_reason = "budget 1";
    } else {
        if (o.method == Method::tree && !o.no_lookup) e.copied = Copies::find(s.tokens(), e.max_depth);
        e.drafted = models_.draft != nullptr;
    }
    if (!models_.draft) e.off_reason = "no drafter";
    return e;
}

/// Takes automatic sessions out of the draft where it would not pay: one alone by its own past and by what the text
/// itself suggests, several by what all of them together could expect.
void CycleRunner::choose_drafting(std::span<Entry> entries) {
    std::vector<Entry*> automatic;
    std::vector<DraftFortune> fortunes;
    for (Entry& e : entries) {
        if (!e.drafted || !adaptive(e.session->options)) continue;
        automatic.push_back(&e);
        fortunes.push_back(e.session->fortune);
    }
    if (automatic.empty()) return;
    std::vector<bool> drafts;
    if (entries.size() == 1) {
        drafts = {pays_alone(*automatic.front())};
    } else {
        // Measured, not fitted: the difference between two passes decides, and a fit may be off by more than that.
        drafts = batch_drafting_.choose(latency(ControllerKind::curve), cost_factors(entries.size()),
                                        plain_load(entries), static_cast<int>(entries.size()), fortunes);
    }
    for (std::size_t i = 0; i < automatic.size(); ++i) {
        if (drafts[i]) continue;
        automatic[i]->drafted = false;
        if (automatic[i]->off_reason.empty()) automatic[i]->off_reason = "drafting does not pay";
        batch_drafting_.observe_undrafted(automatic[i]->session->fortune);
    }
}

bool CycleRunner::pays_alone(Entry& e) {
    const LatencyModel& model = latency(e.session->options.controller);
    const CopyOffer offer =
        copies_.offer(e.copied, e.session->tokens().back(), model, e.position, e.max_depth, models_.auto_nodes);
    e.undrafted_token_ms = offer.cycle_ms / offer.surrogate;
    const DraftRecord& record = batch_drafting_.record();
    if (offer.nodes > 1 && record.cycles() > 0 &&
        copy_beats_draft(offer, model.draft_ms() + model.aux_ms(), record.tokens(record.most_nodes()))) {
        e.off_reason = "copying suffices";
        return false;
    }
    return e.session->draft_switch.should_draft();
}

Status CycleRunner::draft(std::span<Entry> entries) {
    // Sessions that draft need all their features injected; the others only before their buffer runs over.
    std::vector<SessionState*> due;
    for (Entry& e : entries) {
        if (e.drafted || static_cast<int>(e.session->pending().size()) >= kPendingFeatures) due.push_back(e.session);
    }
    BASTION_CHECK(inject(due));

    std::map<int, std::vector<Entry*>> by_topk;
    for (Entry& e : entries) {
        if (e.drafted) by_topk[e.session->options.topk].push_back(&e);
    }
    for (auto& [topk, group] : by_topk) {
        std::vector<DraftRequest> requests;
        for (Entry* e : group) requests.push_back({e->session->slot, e->session->tokens().back(), e->position});
        BASTION_ASSIGN(std::vector<Lattice> lattices, models_.draft->drafter->draft(requests, topk));
        for (std::size_t i = 0; i < group.size(); ++i) group[i]->lattice = std::move(lattices[i]);
    }
    return {};
}

void CycleRunner::build(std::span<Entry> entries) {
    std::set<ControllerKind> kinds;
    for (Entry& e : entries) {
        if (e.grows() && adaptive(e.session->options)) {
            kinds.insert(e.session->options.controller);
        } else {
            build_fixed(e);
        }
    }
    for (const ControllerKind kind : kinds) build_automatic(entries, kind);
    for (Entry& e : entries) lay_out(e);
}

void CycleRunner::build_fixed(Entry& e) {
    const GenerateOptions& o = e.session->options;
    const Token root = e.session->tokens().back();
    if (!e.grows()) {
        e.tree = build_chain(Lattice{}, root);
    } else if (o.method == Method::chain) {
        e.tree = build_chain(e.lattice, root, e.max_depth);
    } else if (o.method == Method::beam) {
        e.tree = build_beam(e.lattice, root, o.beam_width, std::min(o.beam_depth, e.max_depth));
    } else {
        e.tree = build_best_first(e.lattice, root, o.budget, e.max_depth, copies_.path(e.copied, e.lattice.depth));
    }
}

/// The trees of all sessions whose budget this controller decides: one search, one heap. Trees that are still to be
/// built by another controller count as their roots.
void CycleRunner::build_automatic(std::span<Entry> entries, ControllerKind kind) {
    std::vector<Entry*> growing;
    std::vector<PassPart> parts, others;
    std::vector<std::vector<double>> logprobs;
    int drafting = 0;
    double surrogate = 0;
    for (Entry& e : entries) {
        drafting += e.drafted ? 1 : 0;
        surrogate += std::max(1.0, e.tree.surrogate);
        if (e.tree.nodes.empty() && e.session->options.controller == kind) {
            growing.push_back(&e);
            parts.push_back({e.position, 1});
            logprobs.push_back(e.session->options.raw_confidence ? std::vector<double>()  // the lattice's own
                                                                 : confidence_.corrected(e.lattice));
        } else {
            others.push_back({e.position, std::max(1, e.tree.size())});
        }
    }
    parts.insert(parts.end(), others.begin(), others.end());
    const LatencyModel& model = latency(kind);
    // Learned of what the measured grid says; other controllers have their own ways.
    const CycleCost factors = kind == ControllerKind::curve ? cost_factors(entries.size()) : CycleCost();
    BudgetSearch search(model, std::move(parts), drafting, surrogate, models_.auto_nodes, factors);
    std::vector<TreeBuilder> builders;
    for (std::size_t i = 0; i < growing.size(); ++i) {
        const Entry& e = *growing[i];
        builders.emplace_back(e.lattice, logprobs[i], e.session->tokens().back(), e.max_depth,
                              copies_.path(e.copied, e.lattice.depth));
    }
    const std::vector<int> nodes = grow_together(builders, search, models_.auto_nodes);
    for (std::size_t i = 0; i < growing.size(); ++i) {
        Entry& e = *growing[i];
        e.tree = builders[i].take(nodes[i]);
        e.predicted_verify_ms = search.predicted_verify_ms();
        e.predicted_cycle_ms = search.predicted_cycle_ms();
    }
}

/// The rows of the entry's tree in the pass.
void CycleRunner::lay_out(Entry& e) {
    for (const Node& n : e.tree.nodes) e.tokens.push_back(n.token);
    e.positions = positions(e.tree, e.position);
    e.parents = parents(e.tree);
    if (models_.draft) e.feature_rows = models_.draft->features->take(e.tree.size());
}

Status CycleRunner::verify(std::span<Entry> entries) {
    std::vector<SequenceRows> sequences;
    bool argmax = true;
    int row = 0;
    for (Entry& e : entries) {
        e.first_row = row;
        row += e.tree.size();
        argmax = argmax && is_plain_argmax(e.session->options.sampling);
        sequences.push_back({e.session->slot, e.position, e.tokens, e.positions, e.parents, e.feature_rows});
    }
    return models_.target->pass(sequences, argmax ? Outputs::argmax : Outputs::logits);
}

Status CycleRunner::commit(Entry& e) {
    SessionState& s = *e.session;
    const std::size_t before = s.answer().size();
    e.verdict = accept(
        e.tree, [&](std::int32_t node) { return draw(s, e.first_row + node); },
        [&](Token token) { return s.emit(token); });
    e.emitted.assign(s.answer().begin() + static_cast<std::ptrdiff_t>(before), s.answer().end());
    BASTION_CHECK(models_.kv->keep_rows(*models_.device, s.slot, e.position, e.verdict.accepted));
    s.computed += static_cast<int>(e.verdict.accepted.size());
    if (models_.draft) {
        std::vector<std::int32_t> kept, dropped;
        for (std::int32_t node : e.verdict.accepted) kept.push_back(e.feature_rows[node]);
        for (std::int32_t r : e.feature_rows) {
            if (std::find(kept.begin(), kept.end(), r) == kept.end()) dropped.push_back(r);
        }
        e.feature_rows.clear();
        s.add_pending(kept);
        models_.draft->features->give_back(dropped);
    }
    return {};
}

/// What a drafted cycle says about the drafter and about drafting. The target drew a token at every visited node; each
/// says something about the lattice row below that node.
void CycleRunner::learn(const Entry& e, bool alone) {
    SessionState& s = *e.session;
    // What was copied would have been there without a draft.
    std::vector<std::int32_t> own = e.verdict.accepted;
    std::erase_if(own, [&](std::int32_t node) { return e.tree.nodes[node].rank == kCopied; });
    if (s.options.method == Method::tree) batch_drafting_.observe(e.tree.size(), own, s.fortune);
    if (alone && adaptive(s.options)) {
        s.draft_switch.observe_drafted(static_cast<int>(e.emitted.size()), e.predicted_cycle_ms, e.undrafted_token_ms);
    }
    const std::size_t rows = std::min<std::size_t>(e.verdict.emitted.size(), e.lattice.depth);
    for (std::size_t i = 0; i < rows; ++i) {
        confidence_.observe(e.lattice, static_cast<int>(i) + 1, e.verdict.emitted[i]);
    }
}

void CycleRunner::report(const Entry& e) const {
    CycleTrace trace;
    trace.cycle = e.session->counters.cycles;
    trace.position = e.position;
    trace.budget = e.tree.size();
    trace.predicted_ms = e.predicted_verify_ms;
    trace.draft_ms = e.drafted ? draft_ms_ : 0.0;
    trace.verify_ms = verify_ms_;
    for (const Node& n : e.tree.nodes) trace.nodes.push_back({n.token, n.parent, n.depth, n.logprob, false});
    for (std::int32_t node : e.verdict.accepted) trace.nodes[node].accepted = true;
    trace.emitted = e.emitted;
    e.session->trace()(trace);
}

/// After a failure: what the pass took is given back, and the answers end where they stood before it.
void CycleRunner::abandon(std::span<Entry> entries) {
    for (Entry& e : entries) {
        if (models_.draft) models_.draft->features->give_back(e.feature_rows);
        e.session->truncate(e.position);
        e.session->finish(StopReason::interrupted);
    }
}

Status CycleRunner::run(std::span<Entry> entries) {
    Stopwatch watch;
    BASTION_CHECK(draft(entries));
    draft_ms_ = watch.lap_ms();
    build(entries);
    build_ms_ = watch.lap_ms();
    BASTION_CHECK(verify(entries));
    verify_ms_ = watch.lap_ms();
    for (Entry& e : entries) BASTION_CHECK(commit(e));
    for (const Entry& e : entries) {
        copies_.learn(e.copied, e.lattice, confidence_, e.verdict.emitted);
        if (e.drafted) learn(e, entries.size() == 1);
    }
    commit_ms_ = watch.lap_ms();
    return {};
}

/// What the cycle of several sessions took against what the measured grid says.
void CycleRunner::observe_batch(std::span<const Entry> entries, const PassLoad& load) {
    const auto drafting = std::count_if(entries.begin(), entries.end(), [](const Entry& e) { return e.drafted; });
    const LatencyModel& model = latency(ControllerKind::curve);
    const double plain_ms = model.verify_ms(plain_load(entries)), verify_ms = model.verify_ms(load);
    const double draft_ms = model.draft_ms(static_cast<int>(drafting)) + model.aux_ms(static_cast<int>(drafting));
    batch_costs_.observe(static_cast<int>(entries.size()), {plain_ms, verify_ms - plain_ms, draft_ms},
                         draft_ms_ + build_ms_ + verify_ms_ + commit_ms_);
}

/// One session alone is what the profile was measured with.
CycleCost CycleRunner::cost_factors(std::size_t requests) const {
    return requests > 1 ? batch_costs_.factors(static_cast<int>(requests)) : CycleCost();
}

/// The pass of these sessions if nobody drafts.
PassLoad CycleRunner::plain_load(std::span<const Entry> entries) {
    PassLoad plain;
    for (const Entry& e : entries) plain.add(1, e.position);
    return plain;
}

Status CycleRunner::cycle(std::span<SessionState* const> sessions) {
    std::vector<Entry> entries;
    entries.reserve(sessions.size());
    for (SessionState* s : sessions) entries.push_back(plan(*s));
    choose_drafting(entries);
    if (Status status = run(entries); !status.ok()) {
        abandon(entries);
        return status;
    }

    PassLoad load;
    for (const Entry& e : entries) load.add(e.tree.size(), e.position);
    for (auto& [kind, model] : latency_) model.observe_verify(load, verify_ms_);
    if (profile_ && entries.size() > 1) observe_batch(entries, load);
    for (const Entry& e : entries) {
        Stats& c = e.session->counters;
        ++c.cycles;
        c.cycle_tokens += static_cast<int>(e.emitted.size());
        c.copied_tokens += static_cast<int>(std::ranges::count_if(
            e.verdict.accepted, [&](std::int32_t node) { return e.tree.nodes[node].rank == kCopied; }));
        c.nodes += e.tree.size();
        c.draft_ms += draft_ms_;
        c.build_ms += build_ms_;
        c.verify_ms += verify_ms_;
        c.commit_ms += commit_ms_;
        c.decode_ms += draft_ms_ + build_ms_ + verify_ms_ + commit_ms_;
        if (!e.drafted) e.session->count_off(e.off_reason);
        if (e.session->trace()) report(e);
    }
    return {};
}

}  // namespace bastion
