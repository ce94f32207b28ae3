#include "cli/plan_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/text.h"
#include "cli/words.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;

/// How far a prediction may be off to count as good.
constexpr double kWanted = 0.10;

/// Six digits that count: a planned time may be a microsecond or an hour.
double rounded(double value) { return std::strtod(format("%.6g", value).c_str(), nullptr); }

/// The budgets shown of a curve: those that `calibrate` measures, where experts saturate, and the last.
std::vector<int> shown_nodes(const PlanReport& report) {
    std::vector<int> nodes{1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};
    const ModelShape& target = report.models.target;
    const int last = static_cast<int>(report.gains.size()) + 1;
    if (target.experts > 0) nodes.push_back((target.experts + target.experts_used - 1) / target.experts_used);
    nodes.push_back(last);
    std::erase_if(nodes, [&](int n) { return n > last; });
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return nodes;
}

std::vector<int> concurrencies(const PlanReport& report) {
    std::vector<int> result;
    for (const PlanPoint& point : report.points) {
        if (result.empty() || result.back() != point.requests) result.push_back(point.requests);
    }
    return result;
}

std::string heading(const PlanReport& report) {
    const ModelShape& t = report.models.target;
    const DraftShape& d = report.models.draft;
    std::string out = "device   " + one_line(report.device.name);
    out += format(": %.6g TFLOP/s, %.6g GB/s\ntarget   ", report.device.peak.flops_per_s / 1e12,
                  report.device.peak.bytes_per_s / 1e9);
    out += one_line(report.models.target_name);
    out += format(": %d layers of width %d, %.3g bytes a weight", t.layers, t.hidden, t.ffn_weight_bytes);
    if (t.experts > 0) out += format(", %d of %d experts", t.experts_used, t.experts);
    out += "\ndrafter  " + one_line(report.models.drafter_name);
    out += format(": %d layers, block %d\n", d.pass.layers, d.block);
    if (report.recorded) {
        out += "guesses  " + one_line(report.trace);
        out += format(": %d drafted cycles, trees of %d to %d nodes\n", report.recorded->cycles,
                      report.recorded->smallest, report.recorded->largest);
    } else {
        out += format("guesses  rank 1 right with %.3g, ranks 2 to %d with %.3g\n", report.acceptance.top1,
                      report.acceptance.topk, report.acceptance.further_mass);
    }
    return out;
}

/// T_verify by budget, contexts across.
std::string curve_table(const PlanReport& report, int requests) {
    std::string out = format("\nverify, ms, concurrency %d\n nodes    tau", requests);
    for (const PlanPoint& point : report.points) {
        if (point.requests == requests) out += format("%14s", ("ctx " + std::to_string(point.context)).c_str());
    }
    out += "\n";
    for (const int nodes : shown_nodes(report)) {
        out += format("%6d %6.2f", nodes, tokens_a_cycle(report.gains, nodes));
        for (const PlanPoint& point : report.points) {
            if (point.requests == requests) out += format("%14.5g", point.grid[nodes - 1].verify_ms);
        }
        out += "\n";
    }
    return out;
}

std::string best_table(const PlanReport& report) {
    std::string out =
        "\ncontext  concurrency   plain ms   draft ms  best N     tau   cycle ms  speedup   tokens/s (plain)";
    if (report.recorded) out += "   each cycle its own N";
    out += "\n";
    for (std::size_t i = 0; i < report.points.size(); ++i) {
        const PlanPoint& p = report.points[i];
        out += format("%7d  %11d  %9.4g  %9.4g  %6d  %6.2f  %9.4g  %6.2fx  %9.4g (%.4g)", p.context, p.requests,
                      p.plain_ms, p.draft_ms, p.best_nodes, p.tau, p.cycle_ms, p.speedup, p.tokens_per_s(),
                      p.plain_tokens_per_s());
        if (report.recorded) {
            const Replay& replay = report.replays[i];
            out += format("   %.2fx (%.1f nodes, tau %.2f)", replay.speedup, replay.mean_nodes, replay.tau);
        }
        if (p.speedup < 1) out += "   off: plain decoding is faster";
        out += "\n";
    }
    return out;
}

Json point_json(const PlanReport& report, std::size_t index) {
    const PlanPoint& p = report.points[index];
    Json curve = Json::array();
    for (const int nodes : shown_nodes(report)) {
        curve.push_back({{"nodes", nodes}, {"verify_ms", rounded(p.grid[nodes - 1].verify_ms)}});
    }
    Json json = {{"context", p.context},
                 {"concurrency", p.requests},
                 {"plain_ms", rounded(p.plain_ms)},
                 {"draft_ms", rounded(p.draft_ms)},
                 {"curve", std::move(curve)},
                 {"best_nodes", p.best_nodes},
                 {"tau", rounded(p.tau)},
                 {"verify_ms", rounded(p.verify_ms)},
                 {"cycle_ms", rounded(p.cycle_ms)},
                 {"speedup", rounded(p.speedup)},
                 {"drafting_pays", p.speedup >= 1},
                 {"tokens_per_s", rounded(p.tokens_per_s())},
                 {"plain_tokens_per_s", rounded(p.plain_tokens_per_s())},
                 {"first_decrease_nodes", nullptr},
                 {"replay", nullptr}};
    if (p.first_decrease_nodes > 0) json["first_decrease_nodes"] = p.first_decrease_nodes;
    if (report.recorded) {
        const Replay& replay = report.replays[index];
        json["replay"] = {{"mean_nodes", rounded(replay.mean_nodes)},
                          {"tau", rounded(replay.tau)},
                          {"speedup", rounded(replay.speedup)},
                          {"cycles_at_the_end", replay.at_the_end}};
    }
    return json;
}

Json acceptance_json(const PlanReport& report) {
    if (report.recorded) {
        return {{"trace", one_line(report.trace)},
                {"cycles", report.recorded->cycles},
                {"smallest", report.recorded->smallest},
                {"largest", report.recorded->largest},
                {"known_nodes", report.recorded->known_nodes}};
    }
    return {{"acceptance", report.acceptance.top1},
            {"topk_mass", rounded(report.acceptance.further_mass)},
            {"topk", report.acceptance.topk}};
}

}  // namespace

std::vector<std::string> PlanReport::notes() const {
    std::vector<std::string> notes{
        "times are bare rooflines: a real pass takes longer, ratios are closer than milliseconds"};
    const int last = static_cast<int>(gains.size()) + 1;
    const auto best_is = [&](int nodes) {
        return std::any_of(points.begin(), points.end(), [&](const PlanPoint& p) { return p.best_nodes == nodes; });
    };
    if (recorded && recorded->known_nodes < max_nodes) {
        notes.push_back(format("the trace knows trees of up to %d nodes, nothing is said about larger ones%s",
                               recorded->known_nodes,
                               best_is(last) ? "; the best N may lie among them: record with a larger --budget" : ""));
    } else if (last == max_nodes && best_is(last)) {
        notes.push_back(format("the best N is the largest allowed, --max-nodes %d", max_nodes));
    }
    if (recorded && recorded->undrafted_trees > 0) {
        notes.push_back(
            format("trees of copies without a draft say nothing about a drafter: %d cycles are left out, record with "
                   "--no-lookup to have all drafted",
                   recorded->undrafted_trees));
    }
    for (const PlanPoint& p : points) {
        if (p.first_decrease_nodes == 0 || p.first_decrease_nodes == p.best_nodes) continue;
        notes.push_back(
            format("at context %d the cost is not convex: the stop rule of controller static ends at "
                   "N = %d, only controller curve looks at all N",
                   p.context, p.first_decrease_nodes));
    }
    return notes;
}

std::string plan_text(const PlanReport& report) {
    std::string out = heading(report);
    for (const int requests : concurrencies(report)) out += curve_table(report, requests);
    out += best_table(report) + "\n";
    for (const std::string& note : report.notes()) out += "note: " + note + "\n";
    return out;
}

std::string plan_json(const PlanReport& report) {
    const ModelShape& t = report.models.target;
    Json json;
    json["device"] = {{"name", one_line(report.device.name)},
                      {"peak_tflops", rounded(report.device.peak.flops_per_s / 1e12)},
                      {"bandwidth_gbs", rounded(report.device.peak.bytes_per_s / 1e9)}};
    json["target"] = {{"name", one_line(report.models.target_name)},
                      {"layers", t.layers},
                      {"hidden", t.hidden},
                      {"experts", t.experts},
                      {"experts_used", t.experts_used},
                      {"context", report.models.context},
                      {"bytes_per_weight",
                       {{"attention", rounded(t.attn_weight_bytes)},
                        {"ffn", rounded(t.ffn_weight_bytes)},
                        {"head", rounded(t.head_weight_bytes)}}}};
    json["drafter"] = {{"name", one_line(report.models.drafter_name)},
                       {"layers", report.models.draft.pass.layers},
                       {"block", report.models.draft.block}};
    json["acceptance"] = acceptance_json(report);
    json["max_nodes"] = report.max_nodes;
    json["tau"] = Json::array();
    for (const int nodes : shown_nodes(report)) {
        json["tau"].push_back({{"nodes", nodes}, {"tokens", rounded(tokens_a_cycle(report.gains, nodes))}});
    }
    json["points"] = Json::array();
    for (std::size_t i = 0; i < report.points.size(); ++i) json["points"].push_back(point_json(report, i));
    json["notes"] = report.notes();
    return json.dump();
}

std::string check_text(const TraceCheck& check, ControllerKind kind) {
    std::string out = format("%d cycles, %d of them drafted, %d tokens; controller %s\n\n", check.cycles, check.drafted,
                             check.tokens, word(kind).c_str());
    out += "               predicted    recorded\n";
    out += format("draft, ms    %11.2f %11.2f\n", check.predicted_draft_ms, check.recorded_draft_ms);
    out += format("verify, ms   %11.2f %11.2f\n", check.predicted_verify_ms, check.recorded_verify_ms);
    out +=
        format("speedup      %10.3fx %10.3fx   %+.1f %%: %s 10 %%\n\n", check.predicted_speedup, check.recorded_speedup,
               100 * check.error(), std::fabs(check.error()) <= kWanted ? "within" : "beyond");
    out += "nodes  cycles  verify ms predicted  recorded\n";
    for (const TraceCheck::Size& size : check.sizes) {
        out += format("%5d  %6d  %19.3f  %8.3f  %+.1f %%\n", size.nodes, size.cycles, size.predicted_verify_ms,
                      size.recorded_verify_ms, 100 * (size.predicted_verify_ms / size.recorded_verify_ms - 1));
    }
    return out;
}

std::string check_json(const TraceCheck& check, ControllerKind kind) {
    Json sizes = Json::array();
    for (const TraceCheck::Size& size : check.sizes) {
        sizes.push_back({{"nodes", size.nodes},
                         {"cycles", size.cycles},
                         {"predicted_verify_ms", rounded(size.predicted_verify_ms)},
                         {"recorded_verify_ms", rounded(size.recorded_verify_ms)}});
    }
    const Json json = {{"cycles", check.cycles},
                       {"drafted", check.drafted},
                       {"tokens", check.tokens},
                       {"controller", word(kind)},
                       {"predicted",
                        {{"draft_ms", rounded(check.predicted_draft_ms)},
                         {"verify_ms", rounded(check.predicted_verify_ms)},
                         {"speedup", rounded(check.predicted_speedup)}}},
                       {"recorded",
                        {{"draft_ms", rounded(check.recorded_draft_ms)},
                         {"verify_ms", rounded(check.recorded_verify_ms)},
                         {"speedup", rounded(check.recorded_speedup)}}},
                       {"error", rounded(check.error())},
                       {"within_10_percent", std::fabs(check.error()) <= kWanted},
                       {"sizes", std::move(sizes)}};
    return json.dump();
}

}  // namespace bastion::cli
