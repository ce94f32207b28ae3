#include "cli/bench_report.h"

#include <algorithm>
#include <map>

namespace bastion::cli {

namespace {

const BenchEntry* find_entry(const BenchResults& results, std::size_t prompt, std::size_t method) {
    for (const BenchEntry& entry : results.entries) {
        if (entry.prompt == prompt && entry.method == method) return &entry;
    }
    return nullptr;
}

const BenchEntry* find_plain(const BenchResults& results, std::size_t prompt) {
    return find_entry(results, prompt, results.plain());
}

void add(MethodTotals& sum, const BenchEntry& entry) {
    sum.tokens += entry.best.tokens;
    sum.cycle_tokens += entry.best.cycle_tokens;
    sum.cycles += entry.best.cycles;
    sum.off_cycles += entry.best.off_cycles;
    sum.nodes += entry.best.nodes;
    sum.decode_s += entry.best.decode_s;
    sum.stages.add(entry.best.stages);
    sum.mismatched += entry.equal ? 0 : 1;
}

}  // namespace

void BenchEntry::add(BenchRun run, bool first) {
    if (first) {
        best = std::move(run);
        return;
    }
    repeats_equal = repeats_equal && run.texts == best.texts;
    if (run.decode_s < best.decode_s) best = std::move(run);
}

std::size_t BenchResults::plain() const { return plain_index(methods); }

void BenchResults::compare() {
    for (BenchEntry& entry : entries) {
        const BenchEntry* reference = find_plain(*this, entry.prompt);
        entry.equal = entry.repeats_equal && reference && entry.best.texts == reference->best.texts;
    }
}

MethodTotals BenchResults::totals(std::size_t method) const {
    MethodTotals sum;
    for (const BenchEntry& entry : entries) {
        if (entry.method == method) add(sum, entry);
    }
    return sum;
}

MethodTotals BenchResults::totals(std::size_t method, const PromptGroup& group) const {
    MethodTotals sum;
    for (const BenchEntry& entry : entries) {
        const bool inside = std::binary_search(group.prompts.begin(), group.prompts.end(), entry.prompt);
        if (entry.method == method && inside) add(sum, entry);
    }
    return sum;
}

double BenchResults::speedup(std::size_t method, const PromptGroup& group) const {
    const double base = totals(plain(), group).tokens_per_s();
    return base > 0 ? totals(method, group).tokens_per_s() / base : 0.0;
}

OverSets BenchResults::over_sets(std::size_t method) const {
    OverSets over;
    std::vector<double> speedups, of_oracle;
    const std::vector<PromptGroup> groups = by_set();
    for (const PromptGroup& group : groups) {
        const MethodTotals sum = totals(method, group);
        speedups.push_back(speedup(method, group));
        over.tau += sum.tau() / static_cast<double>(groups.size());
        if (!methods[method].adaptive()) continue;
        const auto best = oracle(group);
        if (best && best->timed().per_s() > 0) of_oracle.push_back(sum.tokens_per_s() / best->timed().per_s());
    }
    over.speedup = geometric_mean(speedups);
    if (!groups.empty() && of_oracle.size() == groups.size()) over.of_oracle = geometric_mean(of_oracle);
    return over;
}

std::vector<PromptGroup> BenchResults::by_set() const {
    std::vector<PromptGroup> groups;
    for (const PromptSet& set : sets) {
        PromptGroup group{.name = set.name, .prompts = {}};
        for (std::size_t p = set.first; p < set.first + set.count; ++p) {
            if (find_plain(*this, p)) group.prompts.push_back(p);
        }
        if (!group.prompts.empty()) groups.push_back(std::move(group));
    }
    return groups;
}

std::vector<PromptGroup> BenchResults::by_context() const {
    std::map<int, PromptGroup> groups;  // by the beginning of the range
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        const BenchEntry* entry = find_plain(*this, p);
        if (!entry) continue;
        const ContextRange range = context_range(entry->best.prompt_tokens);
        PromptGroup& group = groups[range.from];
        group.context = range;
        group.prompts.push_back(p);
    }
    std::vector<PromptGroup> ordered;
    for (auto& [from, group] : groups) ordered.push_back(std::move(group));
    return ordered;
}

std::optional<Oracle> BenchResults::oracle(const PromptGroup& group) const {
    std::vector<FixedBudget> budgets;
    for (std::size_t m = 0; m < methods.size(); ++m) {
        if (methods[m].method != Method::tree || methods[m].adaptive()) continue;
        FixedBudget budget{methods[m].budget, {}};
        for (const std::size_t p : group.prompts) {
            const BenchEntry* entry = find_entry(*this, p, m);
            budget.prompts.push_back(entry ? Timed{entry->best.cycle_tokens, entry->best.decode_s} : Timed{});
        }
        budgets.push_back(std::move(budget));
    }
    return find_oracle(budgets);
}

std::vector<std::string> describe_mismatches(const BenchResults& results) {
    std::vector<std::string> lines;
    for (const BenchEntry& entry : results.entries) {
        if (entry.equal) continue;
        const std::string what =
            results.methods[entry.method].name + " on prompt '" + results.prompts[entry.prompt].id + "': ";
        const BenchEntry* reference = find_plain(results, entry.prompt);
        if (!entry.repeats_equal || !reference) {
            lines.push_back(what + "the repeats gave different texts");
            continue;
        }
        const std::string mine = entry.best.text(), theirs = reference->best.text();
        const auto fork = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end()).first;
        lines.push_back(what + "the text differs from that of ar from byte " + std::to_string(fork - mine.begin()) +
                        " on");
    }
    return lines;
}

}  // namespace bastion::cli
