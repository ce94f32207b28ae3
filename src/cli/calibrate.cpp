// bastion calibrate: measures the latency profile that `--budget auto` decides from.
#include <cstdio>
#include <map>

#include "budget/calibration.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"

namespace bastion::cli {

namespace {

/// Rows of the pass down, context across, milliseconds in the cells.
void print_table(const Profile& profile) {
    std::map<int, std::map<int, double>> rows;  // nodes -> context -> ms
    std::map<int, bool> contexts;
    for (const GridPoint& point : profile.grid) {
        rows[point.nodes][point.context] = point.verify_ms;
        contexts[point.context] = true;
    }
    std::fprintf(stderr, "verify, ms   ");
    for (const auto& [context, unused] : contexts) std::fprintf(stderr, " context %-6d", context);
    std::fputc('\n', stderr);
    for (const auto& [nodes, cells] : rows) {
        std::fprintf(stderr, "%6d nodes ", nodes);
        for (const auto& [context, unused] : contexts) {
            const auto cell = cells.find(context);
            if (cell == cells.end()) {
                std::fprintf(stderr, "%15s", "-");
            } else {
                std::fprintf(stderr, "%15.2f", cell->second);
            }
        }
        std::fputc('\n', stderr);
    }
    std::fprintf(stderr, "plain step %.2f ms, draft %.2f ms, rest of a cycle %.2f ms\n", profile.ar_ms,
                 profile.draft_ms, profile.aux_ms);
    std::fprintf(stderr, "roofline's error %.2f ms, of the linear fit (a %.3f, b %.3f ms) %.2f ms",
                 profile.fit.rmse_before_ms, profile.fit.a, profile.fit.b, profile.fit.rmse_after_ms);
    if (profile.parts.valid()) std::fprintf(stderr, ", fitted by parts %.2f ms", profile.parts.rmse_ms);
    std::fprintf(stderr, "; measured in %.1f s on %s\n", profile.seconds, profile.device.c_str());
    constexpr double kNoise = 0.05;
    if (const auto bump = largest_bump(profile.grid, kNoise)) {
        std::fprintf(stderr,
                     "note: at context %d a pass over %d nodes takes %.0f %% more than the line between %d and %d: the "
                     "cost is not convex, so only controller curve is sure to find the best size\n",
                     bump->point.context, bump->point.nodes, 100 * bump->excess, bump->from, bump->to);
    }
}

}  // namespace

Result<int> calibrate_command(const Args& args) {
    EngineOptions options;
    std::string out;
    bool json = false;
    Flags flags("calibrate", "[--out FILE] [--json] [options]",
                "Measures how long verification takes by tree size and context, and stores the profile.");
    flags.section("output");
    flags("out", out, "FILE", "where to store the profile (default: the place where the other commands look)");
    flags("json", json, "", "print the profile as one JSON object on stdout instead of a table on stderr");
    declare_engine(flags, options);
    flags.remove("profile");
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    if (flags.given("out")) BASTION_CHECK(check_writable(out, "profile"));

    interrupt::exit_on_first();
    ProgressLine progress;
    options.keep_profiles = !flags.given("out");
    BASTION_ASSIGN(const auto engine, open_engine(options, progress));
    BASTION_ASSIGN(const std::string text, engine->calibrate(false, progress.callback()));
    progress.clear();
    const std::string path = flags.given("out") ? out : engine->profile_path();
    if (flags.given("out")) BASTION_CHECK(write_text(path, text + "\n", "profile", false));
    if (json) return print_result(text + "\n");

    BASTION_ASSIGN(const Profile profile, profile_from_json(text, path.empty() ? "the new profile" : path));
    print_table(profile);
    if (path.empty()) {
        std::fputs("not stored (no home directory, or a context below 256 tokens): pass --out FILE\n", stderr);
    } else {
        std::fprintf(stderr, "stored in %s\n", path.c_str());
    }
    return kExitOk;
}

}  // namespace bastion::cli
