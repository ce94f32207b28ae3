#include "cli/bench_run.h"

#include <chrono>
#include <cmath>

#include "cli/interrupt.h"

namespace bastion::cli {

namespace {

class EngineAnswerer : public Answerer {
 public:
    EngineAnswerer(Engine& engine, GenerateOptions options) : engine_(engine), options_(std::move(options)) {}

    Status restart() override {
        session_.reset();  // before the new one: the engine has a single slot
        return {};
    }

    void set_max_tokens(int max_tokens) override { options_.max_tokens = max_tokens; }

    Result<BenchRun> answer(const std::vector<Token>& prompt) override {
        if (!session_) {
            BASTION_ASSIGN(session_, engine_.open_session());
            session_->set_trace([this](const CycleTrace& cycle) { take_sample(cycle); });
        }
        BASTION_CHECK(session_->begin(prompt, options_));
        samples_.clear();
        Session* const one[] = {session_.get()};
        std::string text;
        BenchRun run;
        while (!session_->done()) {
            if (interrupt::requested()) session_->interrupt();
            // The clock runs around whole cycles, as it does for llama.cpp, and not only around their stages.
            const bool decoding = !session_->prefilling();
            const auto start = std::chrono::steady_clock::now();
            BASTION_CHECK(engine_.step(one));
            text += session_->take_text();
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
            if (decoding) run.decode_s += elapsed.count();
        }
        const Stats& stats = session_->stats();
        run.texts = {text + session_->take_text()};
        run.tokens = stats.tokens;
        run.cycle_tokens = stats.cycle_tokens;
        run.cycles = stats.cycles;
        run.off_cycles = stats.off_cycles;
        run.nodes = stats.nodes;
        run.stages = {stats.draft_ms, stats.build_ms, stats.verify_ms, stats.commit_ms};
        run.trees = std::move(samples_);
        run.interrupted = stats.stop_reason == StopReason::interrupted;
        return run;
    }

 private:
    void take_sample(const CycleTrace& cycle) {
        if (cycle.nodes.size() < 2) return;  // a plain step promises nothing
        CycleSample sample;
        for (const CycleTrace::TraceNode& node : cycle.nodes) {
            sample.surrogate += std::exp(node.logprob);
            sample.committed += node.accepted ? 1 : 0;
        }
        samples_.push_back(sample);
    }

    Engine& engine_;
    GenerateOptions options_;
    std::unique_ptr<Session> session_;
    std::vector<CycleSample> samples_;  ///< of the answer in progress
};

std::string where(const BenchPrompt& prompt) {
    return "prompt '" + prompt.id + "' (line " + std::to_string(prompt.line) + ")";
}

}  // namespace

void StageTimes::add(const StageTimes& other) {
    draft_ms += other.draft_ms;
    build_ms += other.build_ms;
    verify_ms += other.verify_ms;
    commit_ms += other.commit_ms;
}

void BenchRun::add(const BenchRun& answer) {
    texts.insert(texts.end(), answer.texts.begin(), answer.texts.end());
    tokens += answer.tokens;
    cycle_tokens += answer.cycle_tokens;
    cycles += answer.cycles;
    off_cycles += answer.off_cycles;
    nodes += answer.nodes;
    decode_s += answer.decode_s;
    stages.add(answer.stages);
    trees.insert(trees.end(), answer.trees.begin(), answer.trees.end());
    interrupted = interrupted || answer.interrupted;
}

std::string BenchRun::text() const {
    std::string joined;
    for (std::size_t i = 0; i < texts.size(); ++i) joined += (i > 0 ? "\n\n" : "") + texts[i];
    return joined;
}

std::unique_ptr<Answerer> make_engine_answerer(Engine& engine, GenerateOptions options) {
    return std::make_unique<EngineAnswerer>(engine, std::move(options));
}

Result<std::vector<Token>> first_turn(const Engine& engine, const BenchPrompt& prompt, const PromptOptions& options) {
    if (options.raw && prompt.turns.size() > 1) {
        return bad_input(where(prompt) + " has several turns, which need the chat template that --raw leaves out");
    }
    auto tokens = encode_messages(engine, options, opening(options, prompt.turns.front()));
    if (!tokens.ok()) return Error{tokens.error().kind, where(prompt) + ": " + tokens.error().message};
    if (static_cast<int>(tokens->size()) >= engine.info().ctx) {
        return bad_input(where(prompt) + " has " + std::to_string(tokens->size()) + " tokens and the context holds " +
                         std::to_string(engine.info().ctx) + ", raise --ctx");
    }
    return tokens;
}

Result<BenchRun> run_prompt(const Engine& engine, Answerer& answerer, const BenchPrompt& prompt,
                            const PromptOptions& options) {
    BASTION_CHECK(answerer.restart());
    std::vector<ChatMessage> messages = opening(options, prompt.turns.front());
    BASTION_ASSIGN(std::vector<Token> tokens, first_turn(engine, prompt, options));
    BenchRun total;
    total.prompt_tokens = static_cast<int>(tokens.size());
    for (std::size_t turn = 0;; ++turn) {
        BASTION_ASSIGN(const BenchRun answer, answerer.answer(tokens));
        total.add(answer);
        if (total.interrupted || interrupt::requested() || turn + 1 == prompt.turns.size()) break;
        messages.push_back({"assistant", answer.texts.front()});
        messages.push_back({"user", prompt.turns[turn + 1]});
        BASTION_ASSIGN(tokens, encode_messages(engine, options, messages));
        if (static_cast<int>(tokens.size()) >= engine.info().ctx) {
            total.cut_short = true;
            break;
        }
    }
    total.interrupted = total.interrupted || interrupt::requested();
    return total;
}

}  // namespace bastion::cli
