// The results of a benchmark as tables for people.
#include <algorithm>
#include <functional>

#include "cli/bench_report.h"
#include "cli/text.h"

namespace bastion::cli {

namespace {

/// Rows of cells in columns: the first to the left, the others to the right.
class Columns {
 public:
    void row(std::vector<std::string> cells) {
        widths_.resize(std::max(widths_.size(), cells.size()));
        for (std::size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
        rows_.push_back(std::move(cells));
    }

    std::string text() const {
        std::string out;
        for (const std::vector<std::string>& cells : rows_) {
            for (std::size_t i = 0; i < cells.size(); ++i) {
                const std::string blanks(widths_[i] - cells[i].size(), ' ');
                out += i == 0 ? cells[i] + (cells.size() > 1 ? blanks : "") : "  " + blanks + cells[i];
            }
            out += "\n";
        }
        return out;
    }

 private:
    std::vector<std::size_t> widths_;
    std::vector<std::vector<std::string>> rows_;
};

using Cell = std::function<std::string(std::size_t method)>;
struct Column {
    std::string head;
    Cell cell;
};

/// A line for each method that `wanted` names, all of them without it.
std::string by_method(const BenchResults& results, const std::vector<Column>& columns,
                      const std::function<bool(const BenchMethod&)>& wanted = {}) {
    Columns table;
    std::vector<std::string> head{"method"};
    for (const Column& column : columns) head.push_back(column.head);
    table.row(std::move(head));
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        if (wanted && !wanted(results.methods[m])) continue;
        std::vector<std::string> row{results.methods[m].name};
        for (const Column& column : columns) row.push_back(column.cell(m));
        table.row(std::move(row));
    }
    return table.text();
}

std::string ratio(double value) { return value > 0 ? format("%.2fx", value) : "-"; }

std::string overview(const BenchResults& results) {
    std::vector<MethodTotals> sums;
    for (std::size_t m = 0; m < results.methods.size(); ++m) sums.push_back(results.totals(m));
    const double plain = sums[results.plain()].tokens_per_s();
    return by_method(results,
                     {{"tokens", [&](std::size_t m) { return std::to_string(sums[m].tokens); }},
                      {"decode s", [&](std::size_t m) { return format("%.2f", sums[m].decode_s); }},
                      {"tokens/s", [&](std::size_t m) { return format("%.1f", sums[m].tokens_per_s()); }},
                      {"vs ar", [&](std::size_t m) { return ratio(plain > 0 ? sums[m].tokens_per_s() / plain : 0.0); }},
                      {"tau", [&](std::size_t m) { return format("%.2f", sums[m].tau()); }},
                      {"nodes", [&](std::size_t m) { return format("%.1f", sums[m].mean_nodes()); }},
                      {"different", [&](std::size_t m) { return std::to_string(sums[m].mismatched); }}});
}

std::string stages(const BenchResults& results) {
    const auto column = [&](const char* head, double StageTimes::*time) {
        return Column{head, [&results, time](std::size_t m) {
                          const MethodTotals sum = results.totals(m);
                          return sum.cycles > 0 ? format("%.2f", sum.stages.*time / sum.cycles) : "-";
                      }};
    };
    return "\nmean cycle, ms\n" +
           by_method(results,
                     {column("draft", &StageTimes::draft_ms), column("build", &StageTimes::build_ms),
                      column("verify", &StageTimes::verify_ms), column("commit", &StageTimes::commit_ms)},
                     [](const BenchMethod& method) { return !method.reference; });
}

std::string range_text(const ContextRange& range) {
    const auto number = [](int n) { return n >= 1024 ? std::to_string(n / 1024) + "k" : std::to_string(n); };
    return number(range.from) + "-" + number(range.to);
}

/// Speed-up and tau, a column for each group; over sets their means too.
std::string groups_table(const BenchResults& results, const std::string& what, const std::vector<PromptGroup>& groups) {
    if (groups.size() < 2) return "";
    std::vector<Column> speedups, taus;
    for (const PromptGroup& group : groups) {
        const std::string head = group.name.empty() ? range_text(group.context) : one_line(group.name);
        speedups.push_back({head, [&](std::size_t m) { return ratio(results.speedup(m, group)); }});
        taus.push_back({head, [&](std::size_t m) { return format("%.2f", results.totals(m, group).tau()); }});
    }
    if (!groups.front().name.empty()) {
        speedups.push_back({"geo. mean", [&](std::size_t m) { return ratio(results.over_sets(m).speedup); }});
        taus.push_back({"mean", [&](std::size_t m) { return format("%.2f", results.over_sets(m).tau); }});
    }
    return "\nspeed over ar by " + what + "\n" + by_method(results, speedups) + "\ntau by " + what + "\n" +
           by_method(results, taus);
}

std::string oracle_table(const BenchResults& results) {
    Columns table;
    std::vector<std::string> head{"set", "nodes", "oracle", "hindsight"};
    for (const BenchMethod& method : results.methods) {
        if (method.adaptive()) head.push_back(method.name);
    }
    table.row(std::move(head));
    bool any = false;
    for (const PromptGroup& group : results.by_set()) {
        const auto oracle = results.oracle(group);
        const double plain = results.totals(results.plain(), group).tokens_per_s();
        if (!oracle || plain <= 0 || oracle->timed().per_s() <= 0) continue;
        any = true;
        std::vector<std::string> row{one_line(group.name),
                                     format("%d, %d", oracle->halves[0].nodes, oracle->halves[1].nodes),
                                     ratio(oracle->timed().per_s() / plain), ratio(oracle->hindsight.per_s() / plain)};
        for (std::size_t m = 0; m < results.methods.size(); ++m) {
            if (!results.methods[m].adaptive()) continue;
            const double share = results.totals(m, group).tokens_per_s() / oracle->timed().per_s();
            row.push_back(format("%.1f%%", 100 * share));
        }
        table.row(std::move(row));
    }
    if (!any) return "";
    return "\nbest fixed budget, chosen on the other half of the prompts (hindsight: on the same), and what adaptive "
           "budgets reach of it\n" +
           table.text();
}

}  // namespace

std::string bench_table(const BenchResults& results) {
    return overview(results) + stages(results) + groups_table(results, "set", results.by_set()) +
           groups_table(results, "context (tokens of the prompt)", results.by_context()) + oracle_table(results);
}

}  // namespace bastion::cli
