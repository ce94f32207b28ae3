// bastion answers: a file of prompts, many answered at once, a line of JSON for each finished answer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answers_file.h"
#include "cli/bench_prompts.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "engine/batch.h"

namespace bastion::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct AnswersFlags {
    EngineOptions engine;
    GenerateOptions generate;
    PromptOptions prompt;
    std::string prompts, out;
    int limit = 0, concurrency = 16;
};

void declare(Flags& flags, AnswersFlags& o) {
    flags.section("input and output");
    flags("prompts", o.prompts, "FILE.jsonl",
          "one JSON object a line, with `prompt` or `turns` (the first turn only) and maybe `id` and `source`");
    flags("limit", o.limit, "N", "only the first N prompts, 0: all");
    flags("out", o.out, "FILE.jsonl",
          "append one JSON object for each finished answer; ids that are in it are skipped");
    flags("concurrency", o.concurrency, "C", "answers in progress at once; changes the speed, not the answers");
    flags.limit("limit", 0, 1e9);
    flags.limit("concurrency", 1, 1024);
    declare_prompt(flags, o.prompt);
    declare_method(flags, o.generate);
    declare_sampling(flags, o.generate.sampling);
    declare_engine(flags, o.engine);
}

/// Sizes the engine for `sessions` conversations.
void settle_engine(const Flags& flags, AnswersFlags& o, std::size_t sessions) {
    EngineOptions& engine = o.engine;
    const std::string target = engine.target.empty() ? embedded_target_path() : engine.target;
    engine.slots = static_cast<int>(sessions);
    if (!flags.given("ctx")) engine.ctx = batch_ctx(target);
    // Plain decoding has no use for the embedded drafter, which would cost memory and time. Naming the embedded target
    // leaves it out.
    if (o.generate.method == Method::ar && engine.drafter.empty()) engine.target = target;
}

std::string rate_text(double tokens_per_s) { return format("%.1f tokens/s", tokens_per_s); }

/// Answers prompts, as many at once as the engine has slots.
class AnswerRun {
 public:
    /// `waiting`: the prompts to answer.
    AnswerRun(Engine& engine, const AnswersFlags& o, std::vector<const BenchPrompt*> waiting, AnswersFile& file,
              ProgressLine& progress)
        : engine_(engine),
          o_(o),
          waiting_(std::move(waiting)),
          file_(file),
          progress_(progress),
          batch_(engine, o.engine.slots) {}

    /// Runs to the end, or until a signal asks to stop: answers in progress are dropped then, finished ones are kept.
    Status run() {
        while (!interrupt::requested()) {
            while (!batch_.full() && next_ < waiting_.size()) BASTION_CHECK(join(*waiting_[next_++]));
            if (batch_.empty()) break;
            BASTION_CHECK(batch_.step());
            show_progress();
        }
        progress_.clear();
        return {};
    }

    bool complete() const { return written_ + skipped_ == static_cast<int>(waiting_.size()); }

    /// "3 answers written, 1 there already, ...: 120 tokens, 40.0 tokens/s".
    std::string summary(std::size_t already) const {
        std::string text = std::to_string(written_) + (written_ == 1 ? " answer written" : " answers written");
        if (already > 0) text += ", " + std::to_string(already) + " there already";
        if (skipped_ > 0) text += ", " + std::to_string(skipped_) + " skipped (too long for the context)";
        const int left = static_cast<int>(waiting_.size()) - written_ - skipped_;
        if (left > 0) text += ", " + std::to_string(left) + " left";
        const double rate = static_cast<double>(written_tokens_) / std::max(1e-3, seconds());
        return text + ": " + std::to_string(written_tokens_) + " tokens, " + rate_text(rate);
    }

 private:
    /// Takes the prompt in, or skips it if it does not fit.
    Status join(const BenchPrompt& prompt) {
        auto tokens = encode_messages(engine_, o_.prompt, opening(o_.prompt, prompt.turns.front()));
        if (!tokens.ok()) return Error{tokens.error().kind, where(prompt) + ": " + tokens.error().message};
        if (tokens->size() >= static_cast<std::size_t>(engine_.info().ctx)) {
            skip(prompt, tokens->size());
            return {};
        }
        const auto text = std::make_shared<std::string>();
        const auto on_text = [text](std::string_view more) {
            *text += more;
            return true;
        };
        const auto on_done = [this, &prompt, text](const Session& session) -> Status {
            // Interrupted: the step failed, and the caller says why.
            if (session.stats().stop_reason == StopReason::interrupted) return {};
            return write(prompt, *text, session);
        };
        return batch_.join({std::move(*tokens), o_.generate, on_text, on_done});
    }

    /// The id as JSON writes it, so that no character of it can break the line.
    static std::string where(const BenchPrompt& prompt) {
        return "prompt " + nlohmann::json(prompt.id).dump() + " (line " + std::to_string(prompt.line) + ")";
    }

    void skip(const BenchPrompt& prompt, std::size_t tokens) {
        ++skipped_;
        progress_.clear();
        std::fprintf(stderr, "bastion: %s is skipped: it has %zu tokens and the context holds %d\n",
                     where(prompt).c_str(), tokens, engine_.info().ctx);
    }

    Status write(const BenchPrompt& prompt, const std::string& text, const Session& session) {
        const Stats& stats = session.stats();
        AnswerRecord answer;
        answer.id = prompt.id;
        answer.source = prompt.source;
        answer.temperature = o_.generate.sampling.temperature;
        answer.prompt_tokens.assign(session.tokens().begin(), session.tokens().begin() + stats.prompt_tokens);
        answer.tokens = session.answer();
        if (stats.end_token >= 0) answer.tokens.push_back(stats.end_token);
        answer.text = text;
        answer.stop_reason = stats.stop_reason;
        BASTION_CHECK(file_.append(answer));
        ++written_;
        written_tokens_ += stats.tokens;
        return {};
    }

    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

    double tokens_per_s() const {
        long tokens = written_tokens_;
        for (const Session* session : batch_.active()) tokens += static_cast<long>(session->answer().size());
        return static_cast<double>(tokens) / std::max(1e-3, seconds());
    }

    /// A few times a second; the time left is guessed from the mean length of the answers so far.
    void show_progress() {
        const auto now = Clock::now();
        if (now - shown_ < std::chrono::milliseconds(250)) return;
        shown_ = now;
        const double done = written_ + skipped_, total = static_cast<double>(waiting_.size());
        const double rate = tokens_per_s();
        std::string text = "answers " + std::to_string(written_ + skipped_) + "/" + std::to_string(waiting_.size()) +
                           ", " + rate_text(rate);
        if (written_ > 0 && rate > 0) {
            const double expected = static_cast<double>(written_tokens_) / written_ * (total - skipped_);
            text += ", " + clock_text(std::max(0.0, expected / rate - seconds())) + " left";
        }
        progress_.show(text, done / total);
    }

    Engine& engine_;
    const AnswersFlags& o_;
    std::vector<const BenchPrompt*> waiting_;
    std::size_t next_ = 0;  ///< of `waiting_`
    AnswersFile& file_;
    ProgressLine& progress_;
    Batch batch_;
    int written_ = 0, skipped_ = 0;
    long written_tokens_ = 0;
    const Clock::time_point start_ = Clock::now();
    Clock::time_point shown_{};
};

/// Answers what `file` does not hold yet.
Result<int> answer_all(const Flags& flags, AnswersFlags& o, const std::vector<BenchPrompt>& prompts,
                       AnswersFile& file) {
    std::vector<const BenchPrompt*> waiting;
    for (const BenchPrompt& prompt : prompts) {
        if (!file.has(prompt.id)) waiting.push_back(&prompt);
    }
    const std::size_t already = prompts.size() - waiting.size();
    if (waiting.empty()) {
        std::fprintf(stderr, "nothing to do: all %zu answers are there already\n", already);
        return kExitOk;
    }
    settle_engine(flags, o, std::min<std::size_t>(o.concurrency, waiting.size()));
    ProgressLine progress;
    BASTION_ASSIGN(const auto engine, open_engine(o.engine, progress));
    BASTION_CHECK(engine->check(o.generate));
    AnswerRun run(*engine, o, std::move(waiting), file, progress);
    BASTION_CHECK(run.run());
    std::fprintf(stderr, "%s\n", run.summary(already).c_str());
    return run.complete() ? kExitOk : kExitInterrupted;
}

}  // namespace

Result<int> answers_command(const Args& args) {
    AnswersFlags o;
    o.generate.method = Method::ar;
    o.engine.ctx = kBatchCtx;
    Flags flags("answers", "--prompts FILE.jsonl --out FILE.jsonl [options]",
                "Answers a file of prompts, many at once. Every prompt gets the answer that generate gives it with the "
                "same options, in the order of finishing. The same command again goes on where a run was cut short.");
    declare(flags, o);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    BASTION_CHECK(settle_method(flags, o.generate));
    BASTION_CHECK(check_prompt_options(flags, o.prompt));
    for (const char* needed : {"prompts", "out"}) {
        if (!flags.given(needed)) return bad_input("answers needs --prompts FILE.jsonl and --out FILE.jsonl");
    }
    BASTION_ASSIGN(const std::string text, read_text(o.prompts, "prompts"));
    BASTION_ASSIGN(const std::vector<BenchPrompt> prompts, parse_prompts(text, o.prompts, o.limit));
    BASTION_CHECK(check_unique_ids(prompts, o.prompts));
    BASTION_ASSIGN(AnswersFile file, AnswersFile::open(o.out));
    return answer_all(flags, o, prompts, file);
}

}  // namespace bastion::cli
