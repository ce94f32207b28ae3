#include "cli/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "text/stream.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;

const BenchEntry* find_plain(const BenchResults& results, std::size_t prompt) {
    for (const BenchEntry& entry : results.entries) {
        if (entry.prompt == prompt && entry.method == results.plain()) return &entry;
    }
    return nullptr;
}

std::string table_row(const std::string& name, const std::vector<std::string>& cells) {
    std::string line = name + std::string(name.size() < 12 ? 12 - name.size() : 1, ' ');
    for (const std::string& cell : cells) line += std::string(cell.size() < 11 ? 11 - cell.size() : 1, ' ') + cell;
    return line + "\n";
}

std::string fixed(double value, int digits) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return buffer;
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

std::size_t BenchResults::plain() const {
    const auto it = std::find_if(methods.begin(), methods.end(), [](const BenchMethod& m) { return m.name == "ar"; });
    return static_cast<std::size_t>(it - methods.begin());
}

void BenchResults::compare() {
    for (BenchEntry& entry : entries) {
        const BenchEntry* reference = find_plain(*this, entry.prompt);
        entry.equal = entry.repeats_equal && reference && entry.best.texts == reference->best.texts;
    }
}

MethodTotals BenchResults::totals(std::size_t method) const {
    MethodTotals sum;
    for (const BenchEntry& entry : entries) {
        if (entry.method != method) continue;
        sum.tokens += entry.best.tokens;
        sum.cycle_tokens += entry.best.cycle_tokens;
        sum.cycles += entry.best.cycles;
        sum.nodes += entry.best.nodes;
        sum.decode_s += entry.best.decode_s;
        sum.mismatched += entry.equal ? 0 : 1;
    }
    return sum;
}

std::string bench_json(const BenchResults& results, const std::string& machine) {
    const double plain = results.totals(results.plain()).tokens_per_s();
    Json methods = Json::array();
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        const MethodTotals sum = results.totals(m);
        methods.push_back({{"name", results.methods[m].name},
                           {"tokens", sum.tokens},
                           {"decode_s", sum.decode_s},
                           {"tokens_per_s", sum.tokens_per_s()},
                           {"speedup_vs_ar", plain > 0 ? sum.tokens_per_s() / plain : 0.0},
                           {"tau", sum.tau()},
                           {"mean_nodes", sum.mean_nodes()},
                           {"mismatched_prompts", sum.mismatched}});
    }
    Json per_prompt = Json::array();
    for (const BenchEntry& entry : results.entries) {
        per_prompt.push_back({{"id", sanitize_utf8(results.prompts[entry.prompt].id)},
                              {"method", results.methods[entry.method].name},
                              {"tokens", entry.best.tokens},
                              {"decode_s", entry.best.decode_s},
                              {"tau", entry.best.tau()},
                              {"equal", entry.equal},
                              {"text", sanitize_utf8(entry.best.text())}});
    }
    Json json;
    json["methods"] = std::move(methods);
    json["per_prompt"] = std::move(per_prompt);
    json["machine"] = Json::parse(machine);
    return json.dump(1);
}

std::string bench_table(const BenchResults& results) {
    const double plain = results.totals(results.plain()).tokens_per_s();
    std::string out = table_row("method", {"tokens", "decode s", "tokens/s", "vs ar", "tau", "nodes", "different"});
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        const MethodTotals sum = results.totals(m);
        out += table_row(results.methods[m].name,
                         {std::to_string(sum.tokens), fixed(sum.decode_s, 2), fixed(sum.tokens_per_s(), 1),
                          plain > 0 ? fixed(sum.tokens_per_s() / plain, 2) + "x" : "-", fixed(sum.tau(), 2),
                          fixed(sum.mean_nodes(), 1), std::to_string(sum.mismatched)});
    }
    return out;
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
