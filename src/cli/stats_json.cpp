#include "cli/stats_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/text.h"
#include "cli/words.h"
#include "text/stream.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;

/// Six decimals are finer than any clock here, and keep the lines readable.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

std::string counted(int count, const char* what) { return format("%d %s%s", count, what, count == 1 ? "" : "s"); }

/// With what decides how large its trees are.
std::string method_text(const Stats& stats) {
    std::string text = word(stats.method);
    if (stats.method != Method::tree) return text;
    if (stats.budget > 0) return text + ", budget " + std::to_string(stats.budget);
    return text + ", budget auto, controller " + word(stats.controller);
}

}  // namespace

std::string stats_json(const Stats& stats, const EngineInfo& info) {
    Json json;
    json["method"] = word(stats.method);
    if (stats.budget == 0) {
        json["budget"] = "auto";
    } else {
        json["budget"] = stats.budget;
    }
    json["controller"] = word(stats.controller);
    json["prompt_tokens"] = stats.prompt_tokens;
    json["tokens"] = stats.tokens;
    json["stop_reason"] = to_string(stats.stop_reason);
    json["prefill_ms"] = rounded(stats.prefill_ms);
    json["decode_ms"] = rounded(stats.decode_ms);
    json["tokens_per_s"] = rounded(stats.tokens_per_s());
    json["cycles"] = stats.cycles;
    json["tau"] = rounded(stats.tau());
    json["mean_nodes"] = rounded(stats.mean_nodes());
    json["off_cycles"] = stats.off_cycles;
    json["off_reason"] = sanitize_utf8(stats.off_reason);
    json["draft_ms"] = rounded(stats.draft_ms);
    json["build_ms"] = rounded(stats.build_ms);
    json["verify_ms"] = rounded(stats.verify_ms);
    json["commit_ms"] = rounded(stats.commit_ms);
    json["device"] = sanitize_utf8(info.device);
    json["kernel"] = sanitize_utf8(info.kernels);
    json["threads"] = info.threads;
    return json.dump();
}

std::string stats_text(const Stats& stats, const EngineInfo& info) {
    std::string out = format("prompt   %d tokens in %.1f ms", stats.prompt_tokens, stats.prefill_ms);
    if (stats.reused_tokens > 0) out += format(" (%d from the cache)", stats.reused_tokens);
    out += format("\nanswer   %d tokens in %.1f ms, %.1f tokens/s, stop reason %s\n", stats.tokens, stats.decode_ms,
                  stats.tokens_per_s(), to_string(stats.stop_reason));
    out += "method   " + method_text(stats) + ": " + counted(stats.cycles, "cycle") +
           format(", tau %.2f, %.1f nodes a cycle", stats.tau(), stats.mean_nodes());
    if (stats.copied_tokens > 0) out += ", " + counted(stats.copied_tokens, "token") + " copied";
    if (stats.off_cycles > 0) out += ", " + counted(stats.off_cycles, "cycle") + " not drafted";
    if (!stats.off_reason.empty()) out += " (" + sanitize_utf8(stats.off_reason) + ")";
    out += format("\ntime     draft %.1f ms, build %.1f ms, verify %.1f ms, commit %.1f ms", stats.draft_ms,
                  stats.build_ms, stats.verify_ms, stats.commit_ms);
    out += format(" on %s, %s kernels, %d threads\n", info.device.c_str(), info.kernels.c_str(), info.threads);
    return out;
}

std::string trace_json(const CycleTrace& cycle, const Engine& engine) {
    Json nodes = Json::array();
    for (const CycleTrace::TraceNode& node : cycle.nodes) {
        nodes.push_back({{"token", node.token},
                         {"text", sanitize_utf8(engine.piece(node.token))},
                         {"parent", node.parent},
                         {"depth", node.depth},
                         {"logprob", node.logprob},
                         {"accepted", node.accepted}});
    }
    Json json;
    json["cycle"] = cycle.cycle;
    json["position"] = cycle.position;
    json["budget"] = cycle.budget;
    json["predicted_ms"] = rounded(cycle.predicted_ms);
    json["draft_ms"] = rounded(cycle.draft_ms);
    json["verify_ms"] = rounded(cycle.verify_ms);
    json["nodes"] = std::move(nodes);
    json["emitted"] = cycle.emitted;
    return json.dump();
}

}  // namespace bastion::cli
