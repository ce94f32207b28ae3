#include "cli/bench_batch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/bench_run.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/text.h"
#include "engine/batch.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using Prompts = std::vector<std::vector<Token>>;

double prepare_ms(const Stats& stats) { return stats.draft_ms + stats.build_ms + stats.commit_ms; }

long emitted(const std::vector<Session*>& sessions) {
    long tokens = 0;
    for (const Session* session : sessions) tokens += session->stats().cycle_tokens;
    return tokens;
}

/// One step, and what its cycle took: every session in the cycle counts the whole of it.
Status timed_step(Batch& batch, int seats, BatchRun& run) {
    const std::vector<Session*> sessions = batch.active();
    const auto decodes = [](const Session* session) { return !session->prefilling(); };
    const auto decoding = std::find_if(sessions.begin(), sessions.end(), decodes);
    const bool full = std::count_if(sessions.begin(), sessions.end(), decodes) == seats;
    if (decoding == sessions.end()) return batch.step();
    const Stats before = (*decoding)->stats();
    const long tokens = emitted(sessions);
    BASTION_CHECK(batch.step());
    const Stats& after = (*decoding)->stats();
    for (CycleTimes* times : {&run.all, &run.full}) {
        if (times == &run.full && !full) continue;
        ++times->cycles;
        times->tokens += emitted(sessions) - tokens;
        times->prepare_ms += prepare_ms(after) - prepare_ms(before);
        times->verify_ms += after.verify_ms - before.verify_ms;
    }
    return {};
}

void add(BatchRun& run, const Stats& stats) {
    run.tokens += stats.tokens;
    run.cycle_tokens += stats.cycle_tokens;
    run.cycles += stats.cycles;
    run.off_cycles += stats.off_cycles;
    run.nodes += stats.nodes;
}

/// Checks before anything runs; the tokens of all prompts.
Result<Prompts> prepare(const Engine& engine, const BatchBench& bench) {
    for (const BenchMethod& method : bench.methods) BASTION_CHECK(engine.check(method.apply(bench.generate)));
    Prompts prompts;
    for (const BenchPrompt& prompt : bench.prompts) {
        BASTION_ASSIGN(std::vector<Token> tokens, first_turn(engine, prompt, bench.prompt));
        prompts.push_back(std::move(tokens));
    }
    return prompts;
}

/// All methods at one concurrency, interleaved over the repeats. The runs end early when a signal asks to stop.
Result<BatchPoint> measure(Engine& engine, const BatchBench& bench, const Prompts& prompts, int requests,
                           ProgressLine& progress) {
    BatchPoint point;
    point.requests = requests;
    point.runs.resize(bench.methods.size());
    for (int repeat = 0; repeat < bench.repeat; ++repeat) {
        for (const std::size_t m : method_order(bench.methods.size(), repeat)) {
            const BenchMethod& method = bench.methods[m];
            progress.show("bench " + method.name + ", " + std::to_string(requests) + " at once", 0);
            BASTION_ASSIGN(BatchRun run, run_batch(engine, prompts, method.apply(bench.generate), requests));
            if (run.interrupted) return point;
            BatchRun& best = point.runs[m];
            const bool unlike = repeat > 0 && (best.unlike || run.texts != best.texts);
            if (repeat == 0 || run.wall_s < best.wall_s) best = std::move(run);
            best.unlike = unlike;
        }
    }
    return point;
}

Json times_json(const CycleTimes& times) {
    return {{"cycles", times.cycles},
            {"tokens", times.tokens},
            {"prepare_ms", times.prepare_ms},
            {"verify_ms", times.verify_ms}};
}

std::string per_cycle(double sum, const CycleTimes& times) {
    return times.cycles > 0 ? format("%.2f", sum / times.cycles) : "-";
}

Result<int> finish(const BatchBench& bench, const std::vector<BatchPoint>& points, const EngineInfo& info) {
    const bool interrupted = interrupt::requested();
    if (!points.empty()) {
        BASTION_ASSIGN(const int code, print_result(batch_table(bench.methods, points)));
        if (!bench.out.empty()) {
            BASTION_CHECK(
                write_text(bench.out, batch_json(bench.methods, points, machine_json(info)) + "\n", "results"));
        }
        if (code != kExitOk) return code;
    }
    if (interrupted) return kExitInterrupted;
    const bool different = std::any_of(points.begin(), points.end(), [](const BatchPoint& point) {
        return std::any_of(point.different.begin(), point.different.end(), [](int prompts) { return prompts > 0; });
    });
    // Library kernels may round differently for different shapes; only our own promise the same bytes.
    if (different && info.kernels != "library") {
        return runtime_error(
            "texts differ from plain decoding of single requests, which must not happen with these "
            "kernels");
    }
    return kExitOk;
}

}  // namespace

double BatchRun::decode_tokens_per_s() const {
    const double ms = steady().prepare_ms + steady().verify_ms;
    return ms > 0 ? 1e3 * static_cast<double>(steady().tokens) / ms : 0.0;
}

Result<BatchRun> run_batch(Engine& engine, const Prompts& prompts, const GenerateOptions& options, int requests) {
    BatchRun run;
    run.texts.resize(prompts.size());
    Batch batch(engine, requests);
    std::size_t next = 0;
    const auto start = Clock::now();
    while (!batch.empty() || next < prompts.size()) {
        while (!batch.full() && next < prompts.size()) {
            std::string& text = run.texts[next];
            const auto on_text = [&text](std::string_view more) {
                text += more;
                return true;
            };
            const auto on_done = [&run](const Session& session) {
                add(run, session.stats());
                return Status();
            };
            BASTION_CHECK(batch.join({prompts[next++], options, on_text, on_done}));
        }
        BASTION_CHECK(timed_step(batch, requests, run));
        if (interrupt::requested()) {
            run.interrupted = true;
            break;
        }
    }
    run.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
    return run;
}

void BatchPoint::compare(const std::vector<BenchMethod>& methods, const std::vector<std::string>& expected) {
    double best = 0;
    for (const BatchRun& run : runs) best = std::max(best, run.tokens_per_s());
    const BatchRun& ar = runs[plain_index(methods)];
    const auto over = [](double value, double base) { return base > 0 ? value / base : 0.0; };
    for (const BatchRun& run : runs) {
        int count = 0;
        for (std::size_t p = 0; p < expected.size(); ++p) count += run.texts[p] != expected[p] ? 1 : 0;
        if (run.unlike) count = std::max(count, 1);
        different.push_back(count);
        of_best.push_back(over(run.tokens_per_s(), best));
        speedup.push_back(over(run.tokens_per_s(), ar.tokens_per_s()));
        decode_speedup.push_back(over(run.decode_tokens_per_s(), ar.decode_tokens_per_s()));
    }
}

std::string batch_table(const std::vector<BenchMethod>& methods, const std::vector<BatchPoint>& points) {
    std::string out;
    for (const BatchPoint& point : points) {
        out += format("%s%d at once\n%-16s", out.empty() ? "" : "\n", point.requests, "method");
        for (const char* head : {"tokens/s", "vs ar", "of best", "decoding", "vs ar", "tau", "nodes", "prepare ms",
                                 "verify ms", "different"}) {
            out += format(" %10s", head);
        }
        out += "\n";
        for (std::size_t m = 0; m < methods.size(); ++m) {
            const BatchRun& run = point.runs[m];
            const CycleTimes& times = run.steady();
            out += format("%-16s %10.1f %9.2fx %10.3f %10.1f %9.2fx %10.2f %10.1f", methods[m].name.c_str(),
                          run.tokens_per_s(), point.speedup[m], point.of_best[m], run.decode_tokens_per_s(),
                          point.decode_speedup[m], run.tau(), run.mean_nodes());
            out += format(" %10s %10s %10d\n", per_cycle(times.prepare_ms, times).c_str(),
                          per_cycle(times.verify_ms, times).c_str(), point.different[m]);
        }
    }
    return out;
}

std::string batch_json(const std::vector<BenchMethod>& methods, const std::vector<BatchPoint>& points,
                       const std::string& machine) {
    Json concurrency = Json::array();
    for (const BatchPoint& point : points) {
        Json by_method = Json::array();
        for (std::size_t m = 0; m < methods.size(); ++m) {
            const BatchRun& run = point.runs[m];
            by_method.push_back({{"name", methods[m].name},
                                 {"tokens", run.tokens},
                                 {"wall_s", run.wall_s},
                                 {"tokens_per_s", run.tokens_per_s()},
                                 {"speedup_vs_ar", point.speedup[m]},
                                 {"of_best", point.of_best[m]},
                                 {"decode_tokens_per_s", run.decode_tokens_per_s()},
                                 {"decode_speedup_vs_ar", point.decode_speedup[m]},
                                 {"tau", run.tau()},
                                 {"mean_nodes", run.mean_nodes()},
                                 {"cycles", run.cycles},
                                 {"off_cycles", run.off_cycles},
                                 {"all_cycles", times_json(run.all)},
                                 {"full_cycles", times_json(run.full)},
                                 {"mismatched_prompts", point.different[m]}});
        }
        concurrency.push_back({{"requests", point.requests}, {"methods", std::move(by_method)}});
    }
    return Json{{"concurrency", std::move(concurrency)}, {"machine", Json::parse(machine)}}.dump(1);
}

Result<int> bench_batch(BatchBench bench) {
    for (const BenchMethod& method : bench.methods) {
        if (method.reference) return bad_input("--concurrency does not go with the method llama.cpp");
    }
    const int most = bench.concurrency.back();
    if (std::cmp_greater(most, bench.prompts.size())) {
        return bad_input("--concurrency " + std::to_string(most) + " needs as many prompts, there are " +
                         std::to_string(bench.prompts.size()));
    }
    bench.engine.slots = most;
    if (bench.engine.ctx == 0) {
        bench.engine.ctx = batch_ctx(bench.engine.target.empty() ? embedded_target_path() : bench.engine.target);
    }
    ProgressLine progress;
    BASTION_ASSIGN(const auto engine, open_engine(bench.engine, progress));
    BASTION_ASSIGN(const Prompts prompts, prepare(*engine, bench));

    // Touches weights once, and measures a profile where there is none.
    for (const BenchMethod& method : bench.methods) {
        GenerateOptions brief = method.apply(bench.generate);
        brief.max_tokens = std::min(brief.max_tokens, kWarmUpTokens);
        BASTION_ASSIGN(const BatchRun run, run_batch(*engine, {prompts.front()}, brief, 1));
        if (run.interrupted) return kExitInterrupted;
    }
    std::vector<std::string> expected;
    if (bench.concurrency.front() > 1) {
        GenerateOptions plain = bench.generate;
        plain.method = Method::ar;
        progress.show("bench, plain decoding one at a time", 0);
        BASTION_ASSIGN(BatchRun single, run_batch(*engine, prompts, plain, 1));
        expected = std::move(single.texts);
    }
    std::vector<BatchPoint> points;
    for (const int requests : bench.concurrency) {
        if (interrupt::requested()) break;
        BASTION_ASSIGN(BatchPoint point, measure(*engine, bench, prompts, requests, progress));
        if (interrupt::requested()) break;
        if (expected.empty()) expected = point.runs[plain_index(bench.methods)].texts;
        point.compare(bench.methods, expected);
        points.push_back(std::move(point));
    }
    progress.clear();
    return finish(bench, points, engine->info());
}

}  // namespace bastion::cli
