// An engine without a model: tokens are bytes, answers come from a script, one byte a cycle.
#pragma once

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bastion/engine.h"

namespace bastion::testing {

class FakeSession : public Session {
 public:
    explicit FakeSession(std::string answer) : script_(std::move(answer)) {}

    Status begin(std::vector<Token> prompt, const GenerateOptions& options) override {
        tokens_ = std::move(prompt);
        answer_.clear();
        pending_.clear();
        stats_ = Stats();
        stats_.method = options.method;
        drafting_ = options.method != Method::ar;
        stats_.prompt_tokens = static_cast<int>(tokens_.size());
        prefilling_ = true;
        done_ = false;
        return {};
    }

    bool done() const override { return done_; }
    bool prefilling() const override { return prefilling_; }
    double prefill_fraction() const override { return prefilling_ ? 0.5 : 1.0; }
    void interrupt() override { finish(StopReason::interrupted); }
    std::string take_text() override { return std::exchange(pending_, {}); }
    const std::vector<Token>& tokens() const override { return tokens_; }
    const std::vector<Token>& answer() const override { return answer_; }
    const Stats& stats() const override { return stats_; }
    void set_trace(std::function<void(const CycleTrace&)> trace) override { trace_ = std::move(trace); }

    /// One step of the engine: the prefill draws the first byte, a cycle each further one.
    void advance() {
        if (done_) return;
        if (answer_.size() == script_.size()) return finish(StopReason::eos);
        const char byte = script_[answer_.size()];
        answer_.push_back(static_cast<unsigned char>(byte));
        pending_ += byte;
        ++stats_.tokens;
        if (!prefilling_) {
            ++stats_.cycles;
            ++stats_.cycle_tokens;
            ++stats_.nodes;
            stats_.decode_ms += 1;
            stats_.verify_ms += 1;
            if (trace_) trace_(cycle());
        }
        prefilling_ = false;
    }

 private:
    /// Without a draft the root alone, else the root with a child of probability 1/2 that is never right.
    CycleTrace cycle() const {
        CycleTrace cycle;
        cycle.verify_ms = 1;
        cycle.nodes = {{0, -1, 0, 0.0, true}};
        if (drafting_) {
            cycle.draft_ms = 1;
            cycle.nodes.push_back({1, 0, 1, std::log(0.5), false});
        }
        return cycle;
    }

    void finish(StopReason reason) {
        stats_.stop_reason = reason;
        done_ = true;
    }

    std::string script_, pending_;
    std::vector<Token> tokens_, answer_;
    Stats stats_;
    std::function<void(const CycleTrace&)> trace_;
    bool prefilling_ = false, done_ = true, drafting_ = false;
};

class FakeEngine : public Engine {
 public:
    static constexpr Token kBos = 1000;

    EngineInfo description = describe();
    std::deque<std::string> answers;            ///< taken by the sessions opened, in order
    mutable std::vector<std::string> rendered;  ///< every chat that was rendered
    bool with_template = true;
    bool with_bos = false;
    int open_sessions = 0;

    static EngineInfo describe() {
        EngineInfo info;
        info.target_path = "fake.gguf";
        info.device = "cpu";
        info.kernels = "generic";
        info.threads = 2;
        info.ctx = 4096;
        return info;
    }

    const EngineInfo& info() const override { return description; }
    bool has_chat_template() const override { return with_template; }

    Result<std::string> render_chat(const std::vector<ChatMessage>& messages, bool) const override {
        std::string text;
        for (const ChatMessage& message : messages) text += message.role + ":" + message.content + "|";
        rendered.push_back(text);
        return text;
    }

    std::vector<Token> encode(std::string_view text, bool special) const override {
        std::vector<Token> tokens;
        if (with_bos && !special) tokens.push_back(kBos);
        for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
        return tokens;
    }

    std::string piece(Token token) const override { return std::string(1, static_cast<char>(token)); }

    Result<std::unique_ptr<Session>> open_session() override {
        std::string answer = answers.empty() ? "answer" : answers.front();
        if (!answers.empty()) answers.pop_front();
        ++open_sessions;
        return std::unique_ptr<Session>(std::make_unique<FakeSession>(std::move(answer)));
    }

    Status step(std::span<Session* const> sessions) override {
        for (Session* session : sessions) static_cast<FakeSession*>(session)->advance();
        return {};
    }

    Status check(const GenerateOptions&) const override { return {}; }
    Result<std::string> calibrate(bool, const Progress&) override { return runtime_error("no device"); }
    std::string profile() const override { return ""; }
    std::string profile_path() const override { return ""; }
};

}  // namespace bastion::testing
