// The results of a benchmark: comparing with plain decoding, sums by method, JSON and table.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_methods.h"
#include "cli/bench_prompts.h"
#include "cli/bench_run.h"

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
    int tokens = 0, cycle_tokens = 0, cycles = 0;
    long nodes = 0;
    double decode_s = 0;
    int mismatched = 0;

    double tokens_per_s() const { return decode_s > 0 ? cycle_tokens / decode_s : 0.0; }
    double tau() const { return cycles > 0 ? static_cast<double>(cycle_tokens) / cycles : 0.0; }
    double mean_nodes() const { return cycles > 0 ? static_cast<double>(nodes) / cycles : 0.0; }
};

struct BenchResults {
    std::vector<BenchMethod> methods;
    std::vector<PromptSet> sets;
    std::vector<BenchPrompt> prompts;
    std::vector<BenchEntry> entries;  ///< complete prompts only

    /// Fills `equal` of every entry. Requires an entry of method "ar" for every prompt that has entries.
    void compare();
    MethodTotals totals(std::size_t method) const;
    std::size_t plain() const;  ///< index of "ar"
};

/// The R.json of the command line's contract; `machine` is JSON text.
std::string bench_json(const BenchResults& results, const std::string& machine);

/// One line a method, ended by newlines.
std::string bench_table(const BenchResults& results);

/// "method on prompt: texts differ from byte N on" for every entry that is not equal.
std::vector<std::string> describe_mismatches(const BenchResults& results);

}  // namespace bastion::cli
