// bastion inspect: what is in a model file, whether a target and a drafter fit, what they would run on.
#include <cstdio>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/inspect_report.h"
#include "cli/interrupt.h"

namespace bastion::cli {

namespace {

/// The files to look at: those named, else the embedded pair.
Result<std::vector<std::string>> choose_files(const std::vector<std::string>& named, const EngineOptions& options) {
    std::vector<std::string> files = named;
    for (const std::string& path : {options.target, options.drafter}) {
        if (!path.empty()) files.push_back(path);
    }
    if (files.size() > 2)
        return bad_input("inspect takes a target and a drafter, got " + std::to_string(files.size()) + " files");
    if (!files.empty()) return files;
    for (const std::string& path : {embedded_target_path(), embedded_drafter_path()}) {
        if (!path.empty()) files.push_back(path);
    }
    if (files.empty()) return bad_input("no embedded model found, run `make setup` to fetch it or name a file");
    return files;
}

}  // namespace

Result<int> inspect_command(const Args& args) {
    EngineOptions options;
    std::vector<std::string> named;
    bool json = false;
    Flags flags("inspect", "[FILE [FILE]] [options]",
                "Shows what is in a model file; for two files also whether the drafter fits the target.");
    flags.positional(named, 2, "FILE", "a GGUF: a target, a drafter, or one of each (default: the embedded pair)");
    flags.section("output");
    flags("json", json, "", "one JSON object instead of text");
    declare_engine(flags, options);
    flags.remove("profile");
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    interrupt::exit_on_first();

    BASTION_ASSIGN(const std::vector<std::string> paths, choose_files(named, options));
    InspectReport report;
    for (const std::string& path : paths) {
        BASTION_ASSIGN(InspectedFile file, inspect_file(path, options));
        report.files.push_back(std::move(file));
    }
    if (report.files.size() == 2) {
        BASTION_ASSIGN(report.pair_problem, inspect_pair(report.files[0], report.files[1]));
    }
    BASTION_ASSIGN(report.device, inspect_device(options));
    const std::string text = json ? report_json(report) + "\n" : report_text(report);
    BASTION_ASSIGN(const int code, print_result(text));
    if (code == kExitOk && !report.pair_problem.empty()) return bad_input(report.pair_problem);
    return code;
}

}  // namespace bastion::cli
