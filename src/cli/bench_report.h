// The results of a benchmark: comparing with plain decoding, sums by method and by group of prompts, JSON and tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bastion/options.h"
#include "cli/bench_methods.h"
#include "cli/bench_prompts.h"
#include "cli/bench_run.h"
#include "cli/bench_stats.h"

namespace bastion::cli {

/// One method over one prompt: the run with the least decode time of all repeats.
struct BenchEntry {
    std::size_t prompt = 0, method = 0;  ///< indices
    BenchRun best = {};
    bool repeats_equal = true;  ///< all repeats gave the same text
    bool equal = true;          ///< the text is that of `ar`; filled by `compare`

    /// Takes one more repeat in.
    void add(BenchRun run, bool first);
};

struct MethodTotals {
    int tokens = 0, cycle_tokens = 0, cycles = 0, off_cycles = 0;
    long nodes = 0;
    double decode_s = 0;
    StageTimes stages;
    int mismatched = 0;

    double tokens_per_s() const { return decode_s > 0 ? cycle_tokens / decode_s : 0.0; }
    double tau() const { return cycles > 0 ? static_cast<double>(cycle_tokens) / cycles : 0.0; }
    double mean_nodes() const { return cycles > 0 ? static_cast<double>(nodes) / cycles : 0.0; }
};

/// Some of the measured prompts, and what they have in common.
struct PromptGroup {
    std::string name;                  ///< of the set; empty for a range of contexts
    ContextRange context = {};         ///< of prompts with so many tokens
    std::vector<std::size_t> prompts;  ///< ascending
};

/// A method over several sets, each of which counts the same.
struct OverSets {
    double speedup = 0;               ///< geometric mean
    double tau = 0;                   ///< mean
    std::optional<double> of_oracle;  ///< geometric mean of speed over the oracle's; adaptive methods only
};

struct BenchResults {
    std::vector<BenchMethod> methods;
    std::vector<PromptSet> sets;
    std::vector<BenchPrompt> prompts;
    std::vector<BenchEntry> entries;  ///< complete prompts only
    GenerateOptions options = {};     ///< of all methods, but for what each of them says itself
    int repeat = 1;

    /// Fills `equal` of every entry. Requires an entry of method "ar" for every prompt that has entries.
    void compare();
    std::size_t plain() const;  ///< index of "ar"

    MethodTotals totals(std::size_t method) const;
    MethodTotals totals(std::size_t method, const PromptGroup& group) const;
    /// Tokens a second over those of "ar"; 0 without any time.
    double speedup(std::size_t method, const PromptGroup& group) const;
    OverSets over_sets(std::size_t method) const;

    /// The measured prompts of each set, and of each range of contexts; groups without one are left out.
    std::vector<PromptGroup> by_set() const;
    std::vector<PromptGroup> by_context() const;

    /// The best of the methods tree:N; nothing where there is no choice.
    std::optional<Oracle> oracle(const PromptGroup& group) const;
};

/// JSON texts about the run; `profile` may be empty.
struct BenchFacts {
    std::string machine, profile;
};

/// The R.json of the command line's contract.
std::string bench_json(const BenchResults& results, const BenchFacts& facts);

/// Tables for people, each of whose lines is ended by a newline: one line a method first.
std::string bench_table(const BenchResults& results);

/// "method on prompt: texts differ from byte N on" for every entry that is not equal.
std::vector<std::string> describe_mismatches(const BenchResults& results);

}  // namespace bastion::cli
