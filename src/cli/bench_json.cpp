// The results of a benchmark as JSON: everything bench/report.py draws.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "budget/calibration.h"
#include "cli/bench_report.h"
#include "cli/words.h"
#include "text/stream.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;

/// Cycles of a method that are written out, evenly spaced; correlations are of all.
constexpr std::size_t kSamples = 1000;

/// Names and ids come from files and may hold any bytes; JSON text may not.
Json safe(const std::string& text) { return sanitize_utf8(text); }

/// Every option under the name of its flag.
Json options_json(GenerateOptions options, int repeat) {
    Json json;
    json["repeat"] = repeat;
    const auto write = [&json]<class T>(const char* name, const T& value, const char*, const char*) {
        if constexpr (std::is_enum_v<T>) {
            json[name] = word(value);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            json[name] = Json::array();
            for (const std::string& text : value) json[name].push_back(safe(text));
        } else {
            json[name] = value;
        }
    };
    visit(options, write);
    visit(options.sampling, write);
    json.erase("method");  // every method says its own
    return json;
}

/// What the method is, beyond its name: only what means something for it.
Json kind_json(const BenchMethod& method, const GenerateOptions& all) {
    if (method.reference) return Json{{"method", "reference"}};
    const GenerateOptions options = method.apply(all);
    Json json{{"method", word(method.method)}};
    if (method.adaptive()) {
        json["budget"] = "auto";
        json["controller"] = word(options.controller);
    } else if (method.method == Method::tree) {
        json["budget"] = options.budget;
    } else if (method.method == Method::beam) {
        json["beam"] = {{"width", options.beam_width}, {"depth", options.beam_depth}};
    }
    return json;
}

Json totals_json(const BenchMethod& method, const MethodTotals& sum, double plain_tokens_per_s) {
    Json json{{"name", method.name},
              {"tokens", sum.tokens},
              {"decode_s", sum.decode_s},
              {"tokens_per_s", sum.tokens_per_s()},
              {"speedup_vs_ar", plain_tokens_per_s > 0 ? sum.tokens_per_s() / plain_tokens_per_s : 0.0},
              {"tau", sum.tau()},
              {"mean_nodes", sum.mean_nodes()},
              {"mismatched_prompts", sum.mismatched},
              {"cycles", sum.cycles}};
    if (method.adaptive()) json["off_cycles"] = sum.off_cycles;
    if (!method.reference) {
        json["time"] = {{"draft_ms", sum.stages.draft_ms},
                        {"build_ms", sum.stages.build_ms},
                        {"verify_ms", sum.stages.verify_ms},
                        {"commit_ms", sum.stages.commit_ms}};
    }
    return json;
}

/// Promised against committed lengths of the trees, drafted or copied; null without any.
Json samples_json(const BenchResults& results, std::size_t method) {
    std::vector<CycleSample> samples;
    for (const BenchEntry& entry : results.entries) {
        if (entry.method != method) continue;
        samples.insert(samples.end(), entry.best.trees.begin(), entry.best.trees.end());
    }
    if (samples.empty()) return nullptr;
    const auto correlation = pearson(samples);
    Json json{{"cycles", samples.size()}, {"pearson", correlation ? Json(*correlation) : Json()}};
    Json surrogate = Json::array(), committed = Json::array();
    const std::size_t step = (samples.size() + kSamples - 1) / kSamples;
    for (std::size_t i = 0; i < samples.size(); i += step) {
        surrogate.push_back(std::round(samples[i].surrogate * 1e4) / 1e4);
        committed.push_back(samples[i].committed);
    }
    json["surrogate"] = std::move(surrogate);
    json["committed"] = std::move(committed);
    return json;
}

Json methods_json(const BenchResults& results) {
    const double plain = results.totals(results.plain()).tokens_per_s();
    Json methods = Json::array();
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        const BenchMethod& method = results.methods[m];
        Json json = totals_json(method, results.totals(m), plain);
        json.update(kind_json(method, results.options));
        const OverSets over = results.over_sets(m);
        json["over_sets"] = {{"speedup_vs_ar", over.speedup}, {"tau", over.tau}};
        if (over.of_oracle) json["over_sets"]["of_oracle"] = *over.of_oracle;
        if (Json samples = samples_json(results, m); !samples.is_null()) json["acceptance"] = std::move(samples);
        methods.push_back(std::move(json));
    }
    return methods;
}

Json group_methods(const BenchResults& results, const PromptGroup& group) {
    const double plain = results.totals(results.plain(), group).tokens_per_s();
    Json methods = Json::array();
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        methods.push_back(totals_json(results.methods[m], results.totals(m, group), plain));
    }
    return methods;
}

Json oracle_json(const BenchResults& results, const PromptGroup& group, const Oracle& oracle) {
    const double plain = results.totals(results.plain(), group).tokens_per_s();
    const auto timed = [plain](const Timed& time) {
        return Json{{"tokens_per_s", time.per_s()}, {"speedup_vs_ar", plain > 0 ? time.per_s() / plain : 0.0}};
    };
    Json json = timed(oracle.timed());
    json["chosen_nodes"] = {oracle.halves[0].nodes, oracle.halves[1].nodes};
    json["hindsight"] = timed(oracle.hindsight);
    json["hindsight"]["nodes"] = oracle.hindsight_nodes;
    json["adaptive"] = Json::array();
    for (std::size_t m = 0; m < results.methods.size(); ++m) {
        if (!results.methods[m].adaptive() || oracle.timed().per_s() <= 0) continue;
        const double per_s = results.totals(m, group).tokens_per_s();
        json["adaptive"].push_back({{"name", results.methods[m].name},
                                    {"of_oracle", per_s / oracle.timed().per_s()},
                                    {"of_hindsight", per_s / oracle.hindsight.per_s()}});
    }
    return json;
}

Json sets_json(const BenchResults& results) {
    Json sets = Json::array();
    for (const PromptGroup& group : results.by_set()) {
        Json json{{"name", safe(group.name)}, {"prompts", group.prompts.size()}};
        json["methods"] = group_methods(results, group);
        if (const auto oracle = results.oracle(group)) json["oracle"] = oracle_json(results, group, *oracle);
        sets.push_back(std::move(json));
    }
    return sets;
}

Json contexts_json(const BenchResults& results) {
    Json contexts = Json::array();
    for (const PromptGroup& group : results.by_context()) {
        contexts.push_back({{"from", group.context.from},
                            {"to", group.context.to},
                            {"prompts", group.prompts.size()},
                            {"methods", group_methods(results, group)}});
    }
    return contexts;
}

/// The profile with the bare and the fitted roofline beside each measurement.
Json profile_json(const std::string& text) {
    if (text.empty()) return nullptr;
    const auto profile = profile_from_json(text, "in use");
    if (!profile.ok()) return nullptr;
    Json json = Json::parse(text);
    for (std::size_t i = 0; i < profile->grid.size(); ++i) {
        const GridPoint& point = profile->grid[i];
        const PassLoad load(point.nodes, point.context);
        json["grid"][i]["roofline_ms"] = roofline_ms(profile->shape, profile->peak, load);
        json["grid"][i]["fitted_ms"] = profile->fitted_ms(load);
    }
    return json;
}

Json prompts_json(const BenchResults& results) {
    Json per_prompt = Json::array();
    for (const BenchEntry& entry : results.entries) {
        const auto set = std::find_if(results.sets.begin(), results.sets.end(),
                                      [&](const PromptSet& candidate) { return candidate.has(entry.prompt); });
        per_prompt.push_back({{"set", safe(set == results.sets.end() ? "" : set->name)},
                              {"id", safe(results.prompts[entry.prompt].id)},
                              {"method", results.methods[entry.method].name},
                              {"prompt_tokens", entry.best.prompt_tokens},
                              {"tokens", entry.best.tokens},
                              {"cycle_tokens", entry.best.cycle_tokens},
                              {"cycles", entry.best.cycles},
                              {"decode_s", entry.best.decode_s},
                              {"tau", entry.best.tau()},
                              {"equal", entry.equal},
                              {"text", safe(entry.best.text())}});
    }
    return per_prompt;
}

}  // namespace

std::string bench_json(const BenchResults& results, const BenchFacts& facts) {
    Json json;
    json["options"] = options_json(results.options, results.repeat);
    json["methods"] = methods_json(results);
    json["sets"] = sets_json(results);
    json["contexts"] = contexts_json(results);
    json["machine"] = Json::parse(facts.machine);
    json["profile"] = profile_json(facts.profile);
    json["per_prompt"] = prompts_json(results);
    return json.dump(1);
}

}  // namespace bastion::cli
