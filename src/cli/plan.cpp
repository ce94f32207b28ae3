// bastion plan: what tree drafting would bring on a device, before anything runs on it; and how well a profile predicts
// what ran.
#include "engine/plan.h"

#include <algorithm>
#include <utility>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/plan_report.h"

namespace bastion::cli {

namespace {

constexpr int kMostNodes = 1024, kMostNodesOnCpu = 64;

struct PlanFlags {
    PlanInputs inputs;
    AcceptanceModel acceptance;
    std::string trace, profile;
    ControllerKind controller = ControllerKind::curve;
    std::vector<int> contexts, concurrency{1};
    int max_nodes = 0;
    bool check = false, json = false;
};

void declare(Flags& flags, PlanFlags& o) {
    declare_plan_inputs(flags, o.inputs);
    flags.section("what the drafter guesses right");
    flags("trace", o.trace, "FILE.jsonl", "as recorded by bastion generate --trace, - for stdin");
    flags("acceptance", o.acceptance.top1, "A", "probability that the first candidate of a position is right");
    flags.custom("topk-mass", "M",
                 "probability that one of the further candidates is (default: half of what A leaves, at most A)", "",
                 [&o](const std::string& text) -> Status {
                     if (parse_number(text, o.acceptance.further_mass)) return {};
                     return bad_input("--topk-mass: expected a number from 0 to 1, got '" + text + "'");
                 });
    flags("topk", o.acceptance.topk, "K", "candidates a position");
    flags.limit("topk", 1, 1024);
    flags.section("what to plan for");
    flags.custom("contexts", "LIST", "committed tokens, separated by commas", "256,1024,4096",
                 [&o](const std::string& text) { return parse_counts("contexts", text, 1 << 30, o.contexts); });
    flags.custom("concurrency", "LIST", "requests that share a pass, separated by commas", "1",
                 [&o](const std::string& text) { return parse_counts("concurrency", text, 4096, o.concurrency); });
    flags.custom("max-nodes", "N", "largest tree of a request (default: 64 on a CPU, else 1024)", "",
                 [&o](const std::string& text) -> Status {
                     std::vector<int> one;
                     if (parse_counts("max-nodes", text, kMostNodes, one).ok() && one.size() == 1) {
                         o.max_nodes = one.front();
                         return {};
                     }
                     return bad_input("--max-nodes: expected a whole number from 1 to " + std::to_string(kMostNodes) +
                                      ", got '" + text + "'");
                 });
    flags.section("check instead of plan");
    flags("check", o.check, "", "compare the times of --trace with those that --profile predicts");
    flags("profile", o.profile, "FILE", "latency profile of bastion calibrate");
    flags("controller", o.controller, "C", "whose prediction: static, ema, ema+static or curve");
    flags.section("output");
    flags("json", o.json, "", "one JSON object instead of tables");
}

/// Flags that would have no effect are refused.
Status check_combination(const Flags& flags, const PlanFlags& o) {
    if (o.check) {
        for (const char* needed : {"trace", "profile"}) {
            if (!flags.given(needed)) {
                return bad_input(std::string("--check needs --trace FILE and --profile FILE, --") + needed +
                                 " is missing");
            }
        }
        for (const char* other :
             {"device", "peak-tflops", "bandwidth-gbs", "model", "target", "bytes-per-weight", "kv-type", "drafter",
              "draft-layers", "block", "acceptance", "topk-mass", "topk", "contexts", "concurrency", "max-nodes"}) {
            if (!flags.given(other)) continue;
            return bad_input(std::string("--check takes everything from --trace and --profile, expected no --") +
                             other);
        }
        return {};
    }
    for (const char* other : {"profile", "controller"}) {
        if (flags.given(other)) return bad_input(std::string("--") + other + " belongs to --check");
    }
    for (const char* other : {"acceptance", "topk-mass", "topk"}) {
        if (flags.given("trace") && flags.given(other)) {
            return bad_input(std::string("--trace says what the drafter guesses right, expected no --") + other);
        }
    }
    for (const char* other : {"draft-layers", "block"}) {
        if (flags.given("drafter") && flags.given(other)) {
            return bad_input(std::string("--drafter brings its own shape, expected no --") + other);
        }
    }
    return {};
}

/// The contexts asked for, or those of the default that the model can hold.
Result<std::vector<int>> choose_contexts(const PlanFlags& o, const PlannedModels& models) {
    std::vector<int> contexts = o.contexts;
    if (contexts.empty()) {
        for (const int context : {256, 1024, 4096}) {
            if (context < models.context) contexts.push_back(context);
        }
        if (contexts.empty()) contexts.push_back(std::max(models.context / 2, 1));
    }
    if (contexts.back() >= models.context) {
        return bad_input("--contexts: " + std::to_string(contexts.back()) + " is beyond " + models.target_name +
                         ", which was made for " + std::to_string(models.context) +
                         " positions, the token after the context included");
    }
    return contexts;
}

Result<std::vector<RecordedCycle>> load_trace(const std::string& path) {
    BASTION_ASSIGN(const std::string text, read_text(path, "trace"));
    return read_trace(text, path);
}

/// A trace of trees as deep as this drafter can make them, at most.
Status check_depth(const std::vector<RecordedCycle>& cycles, const std::string& path, int block) {
    for (const RecordedCycle& cycle : cycles) {
        if (cycle.depth < block) continue;
        return bad_input("trace '" + path + "' line " + std::to_string(cycle.line) + ": a node has depth " +
                         std::to_string(cycle.depth) + ", but a block of " + std::to_string(block) +
                         " positions ends at depth " + std::to_string(block - 1) +
                         " (record with --no-lookup: copies of the text go deeper than any draft)");
    }
    return {};
}

Result<int> check(const PlanFlags& o) {
    BASTION_ASSIGN(const std::string text, read_text(o.profile, "profile"));
    BASTION_ASSIGN(const Profile profile, profile_from_json(text, o.profile));
    BASTION_ASSIGN(const std::vector<RecordedCycle> cycles, load_trace(o.trace));
    const TraceCheck result = check_trace(cycles, profile, o.controller);
    return print_result(o.json ? check_json(result, o.controller) + "\n" : check_text(result, o.controller));
}

Result<int> plan(PlanFlags& o, bool mass_given) {
    PlanReport report;
    BASTION_ASSIGN(report.device, plan_device(o.inputs));
    BASTION_ASSIGN(report.models, plan_models(o.inputs));
    BASTION_ASSIGN(const std::vector<int> contexts, choose_contexts(o, report.models));
    report.max_nodes = o.max_nodes > 0 ? o.max_nodes : report.device.gpu ? kMostNodes : kMostNodesOnCpu;

    std::vector<RecordedCycle> cycles;
    if (o.trace.empty()) {
        o.acceptance.depth = report.models.draft.block - 1;
        // A guess that no rank 2 can make likelier than rank 1; --acceptance alone then never contradicts itself.
        if (!mass_given) {
            const double a = o.acceptance.top1;
            o.acceptance.further_mass = o.acceptance.topk > 1 ? std::max(std::min((1 - a) / 2, a), 0.0) : 0.0;
        }
        report.acceptance = o.acceptance;
        BASTION_ASSIGN(report.gains, expected_gains(o.acceptance, report.max_nodes));
    } else {
        BASTION_ASSIGN(cycles, load_trace(o.trace));
        BASTION_CHECK(check_best_first(cycles, o.trace));
        BASTION_CHECK(check_depth(cycles, o.trace, report.models.draft.block));
        report.trace = o.trace;
        report.recorded = recorded_acceptance(cycles);
        report.gains = report.recorded->gains;
        if (std::cmp_greater_equal(report.gains.size(), report.max_nodes)) report.gains.resize(report.max_nodes - 1);
    }
    const PlanSetup setup{report.models.target, report.models.draft, report.device.peak, report.max_nodes};
    for (const int requests : o.concurrency) {
        for (const int context : contexts) {
            report.points.push_back(plan_point(setup, report.gains, requests, context));
            if (cycles.empty()) continue;
            // The stop rule decides cycle by cycle; on means of what was accepted it says nothing.
            report.points.back().first_decrease_nodes = 0;
            const LatencyModel latency(predicted_profile(setup, requests, context), ControllerKind::curve);
            report.replays.push_back(replay_search(cycles, latency, context, report.max_nodes));
        }
    }
    return print_result(o.json ? plan_json(report) + "\n" : plan_text(report));
}

}  // namespace

Result<int> plan_command(const Args& args) {
    PlanFlags o;
    Flags flags("plan", "--device NAME [--model NAME | --target FILE] [options]",
                "Predicts what tree drafting would bring on a device, without weights.");
    declare(flags, o);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    BASTION_CHECK(check_combination(flags, o));
    interrupt::exit_on_first();
    return o.check ? check(o) : plan(o, flags.given("topk-mass"));
}

}  // namespace bastion::cli
