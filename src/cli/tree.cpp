// bastion tree: the tree policy alone, for people who put it into another engine.
#include <optional>

#include "budget/calibration.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "engine/tree_policy.h"

namespace bastion::cli {

Result<int> tree_command(const Args& args) {
    std::string lattice, profile_path;
    int budget = 0, context = 0;
    Flags flags("tree", "--lattice FILE --budget N",
                "Builds the draft tree of a lattice without any model and prints it as one JSON object on stdout.");
    flags("lattice", lattice, "FILE",
          "{\"tokens\":[[..]],\"logprobs\":[[..]]}: a row for each position, in any order; - for stdin");
    flags.custom("budget", "auto|N", "nodes, root included; auto needs --profile", "auto",
                 [&budget](const std::string& text) { return parse_budget("--budget", text, budget); });
    flags("profile", profile_path, "FILE", "latency profile of bastion calibrate, for --budget auto");
    flags("context", context, "N", "committed tokens before the root, for --budget auto");
    flags.limit("context", 0, 1e9);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    if (!flags.given("lattice")) return bad_input("tree needs --lattice FILE");
    if (budget == 0 && !flags.given("profile")) {
        return bad_input("--budget auto needs a latency profile, pass --profile FILE or a number of nodes");
    }
    interrupt::exit_on_first();
    std::optional<Profile> profile;
    if (flags.given("profile")) {
        BASTION_ASSIGN(const std::string text, read_text(profile_path, "profile"));
        BASTION_ASSIGN(profile, profile_from_json(text, profile_path));
    }
    BASTION_ASSIGN(const std::string text, read_text(lattice, "lattice"));
    BASTION_ASSIGN(const std::string tree,
                   tree_from_lattice_json(text, lattice, budget, profile ? &*profile : nullptr, context));
    return print_result(tree + "\n");
}

}  // namespace bastion::cli
