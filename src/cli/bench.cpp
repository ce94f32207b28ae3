// bastion bench: methods over prompts, interleaved, compared with plain decoding first and timed second.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/bench_batch.h"
#include "cli/bench_llama.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/text.h"

namespace bastion::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct BenchFlags {
    EngineOptions engine;
    GenerateOptions generate;
    PromptOptions prompt;
    std::vector<std::string> prompts;
    std::string methods = "ar,chain,tree", out;
    int limit = 0, repeat = 1;
    std::vector<int> concurrency;
};

void declare(Flags& flags, BenchFlags& o) {
    flags.section("benchmark");
    flags("prompts", o.prompts, "FILE.jsonl",
          "one JSON object a line, with `prompt` or `turns`; repeatable, every file is a set of its own");
    flags("limit", o.limit, "N", "only the first N prompts of every set, 0: all");
    flags("methods", o.methods, "LIST", "of ar, chain, tree, tree@CONTROLLER, tree:N, beam:WxD, llama.cpp");
    flags.custom("concurrency", "LIST", "requests at once, separated by commas: throughput instead of single answers",
                 "", [&o](const std::string& text) { return parse_counts("concurrency", text, 1024, o.concurrency); });
    flags("repeat", o.repeat, "N", "runs of every method on every prompt; the fastest counts");
    flags("out", o.out, "FILE.json", "write all results");
    flags.limit("limit", 0, 1e9);
    flags.limit("repeat", 1, 1000);
    declare_prompt(flags, o.prompt);
    declare_method(flags, o.generate);
    for (const char* name : {"method", "budget", "beam"}) flags.remove(name);  // --methods says these
    declare_sampling(flags, o.generate.sampling);
    declare_engine(flags, o.engine);
}

/// Everything that is measured, and the answerer of each method.
class Bench {
 public:
    Bench(Engine& engine, const BenchFlags& o, std::vector<BenchMethod> methods, PromptSets prompts,
          ProgressLine& progress)
        : engine_(engine), o_(o), progress_(progress) {
        results_.methods = std::move(methods);
        results_.sets = std::move(prompts.sets);
        results_.prompts = std::move(prompts.prompts);
        results_.options = o.generate;
        results_.repeat = o.repeat;
    }

    /// Refuses what cannot be measured before anything is.
    Status prepare() {
        for (const BenchMethod& method : results_.methods) {
            if (!method.reference) BASTION_CHECK(engine_.check(method.apply(o_.generate)));
        }
        for (const BenchPrompt& prompt : results_.prompts) {
            const auto tokens = first_turn(engine_, prompt, o_.prompt);
            if (!tokens.ok()) return tokens.error();
        }
        BASTION_ASSIGN(answerers_, make_answerers());
        return warm_up();
    }

    /// Runs all prompts; an interruption leaves the complete ones. The slot of the engine is free between runs.
    Status run() {
        started_ = Clock::now();
        for (std::size_t p = 0; p < results_.prompts.size() && !interrupt::requested(); ++p) {
            BASTION_ASSIGN(std::vector<BenchEntry> entries, run_one(p));
            if (interrupt::requested()) break;
            results_.entries.insert(results_.entries.end(), entries.begin(), entries.end());
        }
        progress_.clear();
        results_.compare();
        return {};
    }

    const BenchResults& results() const { return results_; }

 private:
    using Answerers = std::vector<std::unique_ptr<Answerer>>;

    Result<Answerers> make_answerers() {
        const GenerateOptions& options = o_.generate;
        Answerers answerers;
        for (const BenchMethod& method : results_.methods) {
            if (method.reference) {
                BASTION_ASSIGN(auto answerer, make_llama_answerer(engine_, options));
                answerers.push_back(std::move(answerer));
            } else {
                answerers.push_back(make_engine_answerer(engine_, method.apply(options)));
            }
        }
        return answerers;
    }

    /// `done` of all runs are finished. The time left is guessed once every method has answered a prompt.
    void show_progress(std::size_t p, std::size_t done) {
        const std::size_t count = results_.methods.size(), all = results_.prompts.size() * o_.repeat * count;
        const double fraction = static_cast<double>(done) / static_cast<double>(all);
        std::string text = "bench " + one_line(results_.prompts[p].id);
        if (done >= count) {
            const std::chrono::duration<double> elapsed = Clock::now() - started_;
            text += ", " + clock_text(elapsed.count() * (1 - fraction) / fraction) + " left";
        }
        progress_.show(text, fraction);
    }

    Status warm_up() {
        progress_.show("warm up", 0);
        BenchPrompt prompt = results_.prompts.front();
        prompt.turns.resize(1);
        for (const auto& answerer : answerers_) {
            answerer->set_max_tokens(std::min(o_.generate.max_tokens, kWarmUpTokens));
            const auto run = run_prompt(engine_, *answerer, prompt, o_.prompt);
            if (!run.ok()) return run.error();
            BASTION_CHECK(answerer->restart());
            answerer->set_max_tokens(o_.generate.max_tokens);
        }
        return {};
    }

    Result<std::vector<BenchEntry>> run_one(std::size_t p) {
        const std::size_t count = results_.methods.size();
        std::vector<BenchEntry> entries(count);
        for (int repeat = 0; repeat < o_.repeat; ++repeat) {
            std::size_t done = (p * o_.repeat + repeat) * count;
            for (const std::size_t m : method_order(count, p)) {
                show_progress(p, done++);
                BASTION_ASSIGN(BenchRun run, run_prompt(engine_, *answerers_[m], results_.prompts[p], o_.prompt));
                if (run.interrupted) return entries;
                BASTION_CHECK(answerers_[m]->restart());
                entries[m].prompt = p;
                entries[m].method = m;
                entries[m].add(std::move(run), repeat == 0);
            }
        }
        return entries;
    }

    Engine& engine_;
    const BenchFlags& o_;
    BenchResults results_;
    Answerers answerers_;
    ProgressLine& progress_;
    Clock::time_point started_ = Clock::now();
};

/// Says what differed; true if one of our methods broke the promise of equal texts.
bool report_mismatches(const BenchResults& results, const EngineInfo& info) {
    for (const std::string& line : describe_mismatches(results)) std::fprintf(stderr, "bastion: %s\n", line.c_str());
    for (const BenchEntry& entry : results.entries) {
        if (entry.best.cut_short) {
            std::fprintf(stderr, "bastion: prompt '%s', method %s: the later turns do not fit the context\n",
                         results.prompts[entry.prompt].id.c_str(), results.methods[entry.method].name.c_str());
        }
    }
    // Library kernels may round differently for different shapes; only our own promise the same bytes.
    if (info.kernels == "library") return false;
    return std::any_of(results.entries.begin(), results.entries.end(), [&](const BenchEntry& entry) {
        return !entry.equal && !results.methods[entry.method].reference;
    });
}

Result<int> finish(const BenchResults& results, const BenchFlags& o, const Engine& engine) {
    const bool interrupted = interrupt::requested();
    if (!results.entries.empty()) {
        BASTION_ASSIGN(const int code, print_result(bench_table(results)));
        const BenchFacts facts{machine_json(engine.info()), engine.profile()};
        if (!o.out.empty()) BASTION_CHECK(write_text(o.out, bench_json(results, facts) + "\n", "results"));
        if (code != kExitOk) return code;
    }
    const bool broken = report_mismatches(results, engine.info());
    if (interrupted) return kExitInterrupted;
    if (broken) return runtime_error("texts differ from plain decoding, which must not happen with these kernels");
    return kExitOk;
}

Status check_methods(const Flags& flags, const BenchFlags& o, const std::vector<BenchMethod>& methods) {
    for (const BenchMethod& method : methods) {
        if (method.reference) BASTION_CHECK(check_llama_options(o.generate));
    }
    const auto undecided = [](const BenchMethod& method) { return method.adaptive() && !method.controller; };
    if (flags.given("controller") && std::none_of(methods.begin(), methods.end(), undecided)) {
        return bad_input("--controller belongs to the method tree, which --methods does not list");
    }
    return {};
}

}  // namespace

Result<int> bench_command(const Args& args) {
    BenchFlags o;
    o.generate.max_tokens = 128;
    Flags flags(
        "bench", "--prompts FILE.jsonl [options]",
        "Runs decoding methods over prompts, interleaved; checks that the texts are equal and shows the speed.");
    declare(flags, o);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    BASTION_CHECK(check_prompt_options(flags, o.prompt));
    if (!flags.given("prompts")) return bad_input("bench needs --prompts FILE.jsonl");
    if (flags.given("out")) BASTION_CHECK(check_writable(o.out, "results"));
    BASTION_ASSIGN(std::vector<BenchMethod> methods, parse_methods(o.methods));
    BASTION_CHECK(check_methods(flags, o, methods));
    BASTION_ASSIGN(PromptSets prompts, read_prompt_sets(o.prompts, o.limit));
    if (!o.concurrency.empty()) {
        return bench_batch({o.engine, o.generate, o.prompt, methods, prompts.prompts, o.concurrency, o.repeat, o.out});
    }

    ProgressLine progress;
    BASTION_ASSIGN(const auto engine, open_engine(o.engine, progress));
    Bench bench(*engine, o, std::move(methods), std::move(prompts), progress);
    BASTION_CHECK(bench.prepare());
    BASTION_CHECK(bench.run());
    return finish(bench.results(), o, *engine);
}

}  // namespace bastion::cli
