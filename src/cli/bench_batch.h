// Many requests at once: `bastion bench --concurrency`.
#pragma once

#include <string>
#include <vector>

#include "bastion/engine.h"
#include "cli/bench_methods.h"
#include "cli/bench_prompts.h"
#include "cli/common.h"

namespace bastion::cli {

struct BatchBench {
    EngineOptions engine;  ///< its slots and, where 0, its context are settled here
    GenerateOptions generate;
    PromptOptions prompt;
    std::vector<BenchMethod> methods;
    std::vector<BenchPrompt> prompts;  ///< the first turn of each is a request
    std::vector<int> concurrency;      ///< ascending
    int repeat = 1;                    ///< the fastest counts
    std::string out;                   ///< empty: no file
};

/// What the cycles of one kind took together. Preparing is drafting, building and committing.
struct CycleTimes {
    int cycles = 0;
    long tokens = 0;  ///< emitted by them, over all requests
    double prepare_ms = 0, verify_ms = 0;
};

/// One method over all prompts, so many at once.
struct BatchRun {
    std::vector<std::string> texts;  ///< by prompt
    double wall_s = 0;               ///< from the first request to the end of the last answer, prefill included
    int tokens = 0;
    int cycle_tokens = 0;            ///< without the first token of each answer, which the prefill draws
    int cycles = 0, off_cycles = 0;  ///< summed over the requests
    long nodes = 0;
    CycleTimes all, full;  ///< full: every seat decodes, nobody reads its prompt
    bool interrupted = false;
    bool unlike = false;  ///< another repeat gave other texts

    double tokens_per_s() const { return wall_s > 0 ? tokens / wall_s : 0.0; }
    /// The full cycles, or all where none was full.
    const CycleTimes& steady() const { return full.cycles > 0 ? full : all; }
    double decode_tokens_per_s() const;  ///< of those cycles
    double tau() const { return cycles > 0 ? static_cast<double>(cycle_tokens) / cycles : 0.0; }
    double mean_nodes() const { return cycles > 0 ? static_cast<double>(nodes) / cycles : 0.0; }
};

/// Runs `prompts` (tokens) with `options`, `requests` at once, each next one as soon as a seat is free.
Result<BatchRun> run_batch(Engine& engine, const std::vector<std::vector<Token>>& prompts,
                           const GenerateOptions& options, int requests);

/// The best run of every method at one concurrency.
struct BatchPoint {
    int requests = 0;
    std::vector<BatchRun> runs;          ///< by method
    std::vector<int> different;          ///< by method: prompts whose text is not that of plain decoding, one at a time
    std::vector<double> of_best;         ///< by method: throughput over that of the best method
    std::vector<double> speedup;         ///< by method: throughput over that of `ar`
    std::vector<double> decode_speedup;  ///< the same with decode_tokens_per_s

    /// Fills what follows from `runs`. `expected`: the texts of plain decoding.
    void compare(const std::vector<BenchMethod>& methods, const std::vector<std::string>& expected);
};

std::string batch_table(const std::vector<BenchMethod>& methods, const std::vector<BatchPoint>& points);
/// `machine` is JSON text.
std::string batch_json(const std::vector<BenchMethod>& methods, const std::vector<BatchPoint>& points,
                       const std::string& machine);

/// The whole command. Refuses methods and concurrencies that cannot be measured, and prompts beyond the context.
Result<int> bench_batch(BatchBench bench);

}  // namespace bastion::cli
