// Running one method over one prompt of a benchmark.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bastion/engine.h"
#include "bastion/status.h"
#include "cli/bench_prompts.h"
#include "cli/bench_stats.h"
#include "cli/common.h"

namespace bastion::cli {

/// Tokens of the untimed run before the measurement, which touches weights and caches once for every method.
inline constexpr int kWarmUpTokens = 8;

/// What the stages of all cycles took together.
struct StageTimes {
    double draft_ms = 0, build_ms = 0, verify_ms = 0, commit_ms = 0;

    void add(const StageTimes& other);
};

/// What one answer, or the answers of one conversation together, gave. Prefill is left out of all times.
struct BenchRun {
    std::vector<std::string> texts;  ///< a turn each
    int prompt_tokens = 0;           ///< of the first turn
    int tokens = 0;                  ///< emitted
    int cycle_tokens = 0;            ///< without the first token of each answer, which the prefill draws
    int cycles = 0;
    int off_cycles = 0;  ///< without a draft
    long nodes = 0;
    double decode_s = 0;
    StageTimes stages;               ///< of our engine alone
    std::vector<CycleSample> trees;  ///< every cycle that verified more than the root
    bool interrupted = false;
    bool cut_short = false;  ///< a later turn did not fit the context any more

    void add(const BenchRun& answer);
    double tau() const { return cycles > 0 ? static_cast<double>(cycle_tokens) / cycles : 0.0; }
    std::string text() const;  ///< the turns, separated by an empty line
};

/// Something that answers prompts: our engine with one method, or llama.cpp.
class Answerer {
 public:
    virtual ~Answerer() = default;
    /// Forgets the conversation, so that the next answer starts from an empty cache.
    virtual Status restart() = 0;
    virtual void set_max_tokens(int max_tokens) = 0;
    /// Answers the whole prompt; what it shares with the conversation so far need not be computed again.
    virtual Result<BenchRun> answer(const std::vector<Token>& prompt) = 0;
};

std::unique_ptr<Answerer> make_engine_answerer(Engine& engine, GenerateOptions options);

/// All turns of a prompt, each with the method's own earlier answers before it. The first turn must fit the context,
/// a later one that does not ends the conversation.
Result<BenchRun> run_prompt(const Engine& engine, Answerer& answerer, const BenchPrompt& prompt,
                            const PromptOptions& options);

/// Tokens of the first turn; an error names the prompt if it does not fit the context or cannot be rendered.
Result<std::vector<Token>> first_turn(const Engine& engine, const BenchPrompt& prompt, const PromptOptions& options);

}  // namespace bastion::cli
