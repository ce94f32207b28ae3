#include "engine/session.h"

#include <algorithm>
#include <limits>

namespace bastion {

const char* to_string(StopReason reason) {
    switch (reason) {
        case StopReason::eos:
            return "eos";
        case StopReason::length:
            return "length";
        case StopReason::stop:
            return "stop";
        case StopReason::interrupted:
            return "interrupted";
        default:
            return "none";
    }
}

SessionState::SessionState(Models& models, int s, std::function<Status(const GenerateOptions&)> check,
                           std::function<void(int)> release)
    : slot(s), models_(models), check_(std::move(check)), release_(std::move(release)) {}

SessionState::~SessionState() {
    truncate(0);
    release_(slot);
}

Status SessionState::begin(std::vector<Token> prompt, const GenerateOptions& o) {
    if (phase != Phase::idle) return bad_input("this session is still answering");
    if (prompt.empty()) return bad_input("the prompt is empty");
    const int length = static_cast<int>(std::min<std::size_t>(prompt.size(), std::numeric_limits<int>::max()));
    if (length >= models_.ctx) {
        return bad_input("the prompt has " + std::to_string(prompt.size()) + " tokens, the context holds " +
                         std::to_string(models_.ctx) + " with at least one of them for the answer");
    }
    for (Token t : prompt) {
        if (t < 0 || t >= models_.config.vocab) {
            return bad_input("token " + std::to_string(t) + " is outside the vocabulary of " +
                             std::to_string(models_.config.vocab));
        }
    }
    BASTION_CHECK(check_(o));

    // The last prompt token is always computed: its logits give the first token of the answer.
    const auto common = std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end()).first;
    truncate(std::min({computed, static_cast<int>(common - tokens_.begin()), length - 1}));

    options = o;
    tokens_ = std::move(prompt);
    answer_.clear();
    stream_ = TextStream(options.stop);
    sampler_ = std::make_unique<Sampler>(options.sampling);
    draft_switch = DraftSwitch();
    fortune = DraftFortune();
    off_reasons_.clear();
    counters = Stats();
    counters.method = options.method;
    counters.budget = options.budget;
    counters.controller = options.controller;
    counters.prompt_tokens = length;
    counters.reused_tokens = computed;
    phase = Phase::prefilling;
    return {};
}

double SessionState::prefill_fraction() const {
    const int todo = counters.prompt_tokens - counters.reused_tokens;
    if (phase != Phase::prefilling || todo <= 0) return 1.0;
    return static_cast<double>(computed - counters.reused_tokens) / todo;
}

bool SessionState::emit(Token token) {
    if (models_.tokenizer->is_end(token) && !options.ignore_eos) {
        counters.end_token = token;
        finish(StopReason::eos);
        return false;
    }
    tokens_.push_back(token);
    answer_.push_back(token);
    ++counters.tokens;
    if (stream_.add(models_.tokenizer->piece(token))) {
        finish(StopReason::stop);
    } else if (room() == 0) {
        finish(StopReason::length);
    }
    return phase != Phase::idle;
}

void SessionState::finish(StopReason reason) {
    if (phase == Phase::idle) return;
    phase = Phase::idle;
    counters.stop_reason = reason;
    stream_.finish();
}

int SessionState::room() const {
    return std::max(0, std::min(options.max_tokens - counters.tokens, models_.ctx - static_cast<int>(tokens_.size())));
}

void SessionState::truncate(int keep) {
    computed = std::min(computed, keep);
    if (!models_.draft) return;
    const std::size_t wanted = computed > injected ? static_cast<std::size_t>(computed - injected) : 0;
    injected = std::min(injected, computed);
    if (pending_.size() > wanted) {
        models_.draft->features->give_back(std::span(pending_).subspan(wanted));
        pending_.resize(wanted);
    }
}

void SessionState::add_pending(std::span<const std::int32_t> rows) {
    pending_.insert(pending_.end(), rows.begin(), rows.end());
}

void SessionState::mark_injected() {
    models_.draft->features->give_back(pending_);
    injected += static_cast<int>(pending_.size());
    pending_.clear();
}

void SessionState::count_off(const std::string& reason) {
    ++counters.off_cycles;
    const int times = ++off_reasons_[reason];
    const auto shown = off_reasons_.find(counters.off_reason);
    if (shown == off_reasons_.end() || times > shown->second) counters.off_reason = reason;
}

}  // namespace bastion
