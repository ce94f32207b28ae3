#include "engine/cycle.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

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
    if (!models_.draft || o.method == Method::ar) {
        e.off_reason = o.method == Method::ar ? "method ar" : "no drafter";
        return e;
    }
    // Nothing below the last token that may still be emitted can be accepted.
    e.max_depth = std::min(models_.draft->config.block_size - 1, s.room() - 1);
    if (e.max_depth <= 0) {
        e.off_reason = "last token";
    } else if (o.method == Method::tree && o.budget == 1) {
        e.off_reason = "budget 1";
    } else if (adaptive(o) && !s.draft_switch.should_draft()) {
        e.off_reason = "drafting does not pay";
    } else {
        e.drafted = true;
    }
    return e;
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

void CycleRunner::build(Entry& e, int other_rows) {
    const GenerateOptions& o = e.session->options;
    const Token root = e.session->tokens().back();
    if (!e.drafted) {
        e.tree = build_chain(Lattice{}, root);
    } else if (o.method == Method::chain) {
        e.tree = build_chain(e.lattice, root, e.max_depth);
    } else if (o.method == Method::beam) {
        e.tree = build_beam(e.lattice, root, o.beam_width, std::min(o.beam_depth, e.max_depth));
    } else if (o.budget > 0) {
        e.tree = build_best_first(e.lattice, root, o.budget, e.max_depth);
    } else {
        const LatencyModel& model = latency(o.controller);
        BudgetSearch search(model, e.position, models_.auto_nodes, other_rows);
        const std::vector<double> logprobs = confidence_.corrected(e.lattice);
        TreeBuilder builder(e.lattice, logprobs, root, e.max_depth);
        e.tree = builder.take(grow(builder, search, models_.auto_nodes));
        e.predicted_verify_ms = search.predicted_verify_ms();
        e.predicted_cycle_ms = search.predicted_cycle_ms();
        e.plain_ms = model.verify_ms(1 + other_rows, e.position);
    }
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
    if (e.drafted) learn_confidence(e);
    if (e.drafted && adaptive(s.options)) {
        s.draft_switch.observe_drafted(static_cast<int>(e.emitted.size()), e.predicted_cycle_ms, e.plain_ms);
    }
    return {};
}

/// The target drew a token at every visited node; each says something about the lattice row below that node.
void CycleRunner::learn_confidence(const Entry& e) {
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
    for (Entry& e : entries) build(e, static_cast<int>(entries.size()) - 1);
    build_ms_ = watch.lap_ms();
    BASTION_CHECK(verify(entries));
    verify_ms_ = watch.lap_ms();
    for (Entry& e : entries) BASTION_CHECK(commit(e));
    commit_ms_ = watch.lap_ms();
    return {};
}

Status CycleRunner::cycle(std::span<SessionState* const> sessions) {
    std::vector<Entry> entries;
    entries.reserve(sessions.size());
    for (SessionState* s : sessions) entries.push_back(plan(*s));
    if (Status status = run(entries); !status.ok()) {
        abandon(entries);
        return status;
    }

    int rows = 0;
    for (const Entry& e : entries) rows += e.tree.size();
    for (auto& [kind, model] : latency_) model.observe_verify(rows, entries.front().position, verify_ms_);
    for (const Entry& e : entries) {
        Stats& c = e.session->counters;
        ++c.cycles;
        c.cycle_tokens += static_cast<int>(e.emitted.size());
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
