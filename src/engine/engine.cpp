#include "bastion/engine.h"

#include <algorithm>
#include <cmath>

#include "engine/calibrate.h"
#include "engine/cycle.h"
#include "engine/models.h"
#include "engine/profile_store.h"
#include "engine/session.h"

namespace bastion {
namespace {

Error out_of_range(const char* field, double value, const std::string& expected) {
    std::string number = std::to_string(value);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    return bad_input(std::string(field) + " is " + number + ", expected " + expected);
}

Status check_sampling(const SamplingOptions& o, int vocab) {
    if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
        return out_of_range("temperature", o.temperature, "a finite number of 0 or more");
    }
    if (o.top_k < 0) return out_of_range("top-k", o.top_k, "0 or more");
    if (!(o.top_p > 0 && o.top_p <= 1)) return out_of_range("top-p", o.top_p, "a number above 0, at most 1");
    if (!(o.min_p >= 0 && o.min_p <= 1)) return out_of_range("min-p", o.min_p, "a number from 0 to 1");
    if (!(o.repeat_penalty > 0) || !std::isfinite(o.repeat_penalty)) {
        return out_of_range("repeat-penalty", o.repeat_penalty, "a positive number");
    }
    if (!std::isfinite(o.frequency_penalty)) {
        return out_of_range("frequency-penalty", o.frequency_penalty, "a finite number");
    }
    if (!std::isfinite(o.presence_penalty)) {
        return out_of_range("presence-penalty", o.presence_penalty, "a finite number");
    }
    if (o.penalty_window < -1) return out_of_range("penalty-window", o.penalty_window, "-1 or more");
    for (const auto& [token, bias] : o.logit_bias) {
        if (token < 0 || token >= vocab) {
            return out_of_range("logit-bias token", token, "an id below " + std::to_string(vocab));
        }
        if (std::isnan(bias) || bias == INFINITY) return out_of_range("logit-bias", bias, "a number or -inf");
    }
    return {};
}

class EngineImpl final : public Engine {
 public:
    EngineImpl(std::unique_ptr<Models> models, EngineOptions options, Progress progress)
        : models_(std::move(models)), options_(std::move(options)), progress_(std::move(progress)), runner_(*models_) {
        for (int slot = models_->slots; slot-- > 0;) free_slots_.push_back(slot);
        fill_info();
    }

    Status load_profiles() {
        const Profile identity = profile_identity(*models_);
        stored_path_ = profile_file(options_.cache_dir, identity);
        if (!options_.profile.empty()) {
            BASTION_ASSIGN(const Profile profile, load_profile(options_.profile, identity));
            runner_.set_profile(profile);
            return {};
        }
        // A stored profile that cannot be used is as good as none: a new one is measured when needed.
        if (stored_path_.empty()) return {};
        if (auto stored = load_profile(stored_path_, identity); stored.ok()) runner_.set_profile(*stored);
        return {};
    }

    const EngineInfo& info() const override { return info_; }
    bool has_chat_template() const override { return models_->chat.has_value(); }
    std::vector<Token> encode(std::string_view text, bool special) const override {
        return models_->tokenizer->encode(text, special, /*add_bos=*/true);
    }
    std::string piece(Token token) const override { return models_->tokenizer->piece(token); }
    std::string profile() const override { return runner_.profile() ? profile_to_json(*runner_.profile()) : ""; }
    std::string profile_path() const override {
        // What was measured in a context too small for its grid says nothing to others.
        constexpr int kRepresentativeCtx = 256;
        return models_->ctx >= kRepresentativeCtx ? stored_path_ : "";
    }

    Result<std::string> render_chat(const std::vector<ChatMessage>& messages, bool thinking) const override {
        if (!models_->chat) return bad_input(models_->config.path + " has no chat template (tokenizer.chat_template)");
        return models_->chat->render(messages, /*add_generation_prompt=*/true, thinking);
    }

    Result<std::unique_ptr<Session>> open_session() override {
        if (free_slots_.empty()) {
            return runtime_error("all " + std::to_string(models_->slots) + " session slots are taken");
        }
        const int slot = free_slots_.back();
        free_slots_.pop_back();
        return std::unique_ptr<Session>(new SessionState(
            *models_, slot, [this](const GenerateOptions& o) { return check(o); },
            [this](int freed) { free_slots_.push_back(freed); }));
    }

    Status step(std::span<Session* const> sessions) override {
        std::vector<SessionState*> reading, decoding;
        for (Session* s : sessions) {
            auto* state = static_cast<SessionState*>(s);
            if (state->phase == Phase::prefilling) reading.push_back(state);
            if (state->phase == Phase::decoding) decoding.push_back(state);
        }
        for (SessionState* s : reading) {
            if (Status measured = ensure_profile(*s); !measured.ok()) {
                s->interrupt();
                return measured;
            }
            BASTION_CHECK(runner_.prefill(*s));
        }
        return decoding.empty() ? Status() : runner_.cycle(decoding);
    }

    Status check(const GenerateOptions& o) const override {
        if (o.budget < 0 || o.budget > models_->max_nodes) {
            return out_of_range("budget", o.budget, "auto or 1 to " + std::to_string(models_->max_nodes));
        }
        if (o.max_tokens < 1) return out_of_range("max-tokens", o.max_tokens, "1 or more");
        const int head_rows = models_->draft ? models_->draft->config.head_rows() : models_->config.vocab;
        const int most = std::min(head_rows, 256);
        if (o.topk < 1 || o.topk > most) return out_of_range("topk", o.topk, "1 to " + std::to_string(most));
        if (o.method == Method::beam) {
            if (o.beam_depth < 1) return out_of_range("beam depth", o.beam_depth, "1 or more");
            const int block = models_->draft ? models_->draft->config.block_size - 1 : o.beam_depth;
            const int widest = std::max(1, (models_->max_nodes - 1) / std::min(o.beam_depth, block));
            if (o.beam_width < 1 || o.beam_width > widest) {
                return out_of_range("beam width", o.beam_width, "1 to " + std::to_string(widest));
            }
        }
        return check_sampling(o.sampling, models_->config.vocab);
    }

    Result<std::string> calibrate(bool brief, const Progress& progress) override {
        if (free_slots_.empty()) return runtime_error("calibration needs a free session slot");
        BASTION_CHECK(measure(free_slots_.back(), /*used=*/0, brief, progress));
        return profile_to_json(measured_);
    }

 private:
    /// Measures on `slot` behind its first `used` cells and keeps the result.
    Status measure(int slot, int used, bool brief, const Progress& progress) {
        BASTION_ASSIGN(measured_, measure_profile(*models_, slot, used, brief, progress));
        runner_.set_profile(measured_);
        // Not being able to store it costs the next run a measurement, no more.
        if (options_.keep_profiles && !profile_path().empty()) (void)save_profile(stored_path_, measured_).ok();
        return {};
    }

    /// A controller that has nothing to go by gets a brief measurement, on the slot of the session that needs it.
    Status ensure_profile(SessionState& session) {
        const GenerateOptions& o = session.options;
        const bool needed = (models_->draft || !o.no_lookup) && o.method == Method::tree && o.budget == 0;
        if (!needed || runner_.profile()) return {};
        constexpr int kRoom = 80;  // what a measurement needs behind the session's own tokens
        if (session.computed + kRoom >= models_->ctx) {
            session.truncate(0);
            session.counters.reused_tokens = 0;
        }
        return measure(session.slot, session.computed, /*brief=*/true, progress_);
    }

    void fill_info() {
        const Models& m = *models_;
        info_.target_path = m.config.path;
        info_.target_name = m.config.name;
        info_.device = m.device->name();
        info_.device_description = m.device->description();
        info_.kernels = m.device->kernels_name();
        info_.threads = m.device->threads();
        info_.ctx = m.ctx;
        info_.vocab = m.config.vocab;
        if (m.draft) {
            info_.drafter_path = m.draft->config.path;
            info_.drafter_name = m.draft->config.name;
            info_.block_size = m.draft->config.block_size;
        }
    }

    std::unique_ptr<Models> models_;
    EngineOptions options_;
    Progress progress_;
    CycleRunner runner_;
    EngineInfo info_;
    std::vector<int> free_slots_;
    std::string stored_path_;
    Profile measured_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options, const Progress& progress) {
    BASTION_ASSIGN(std::unique_ptr<Models> models, Models::load(options, progress));
    auto engine = std::make_unique<EngineImpl>(std::move(models), options, progress);
    BASTION_CHECK(engine->load_profiles());
    return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace bastion
