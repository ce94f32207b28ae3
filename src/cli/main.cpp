// The program: finds the command, maps its result to an exit code and prints its error.
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/version.h"
#include "text/tokenizer.h"

namespace bastion::cli {

namespace {

struct Command {
    const char* name;
    const char* summary;
    Result<int> (*run)(const Args&);
};

constexpr std::array<Command, 8> kCommands{{
    {"generate", "answer one prompt", generate_command},
    {"chat", "a conversation on the terminal", chat_command},
    {"inspect", "what is in a model file, whether target and drafter fit", inspect_command},
    {"calibrate", "measure the latency profile of this machine", calibrate_command},
    {"tree", "the tree policy alone, on a lattice from a file", tree_command},
    {"plan", "what tree drafting would bring on a device, without weights", plan_command},
    {"bench", "compare methods on a file of prompts", bench_command},
    {"answers", "answer a file of prompts, many at once", answers_command},
}};

std::string usage() {
    std::string text = "bastion " + version_text() +
                       ": lossless tree-speculative decoding\n\nusage: bastion COMMAND [options]\n\ncommands:\n";
    for (const Command& command : kCommands) {
        text += "  " + std::string(command.name) + std::string(12 - std::string(command.name).size(), ' ') +
                command.summary + "\n";
    }
    return text + "\n`bastion COMMAND --help` lists the options of a command, `bastion --version` says what this is.\n";
}

const Command* find_command(const std::string& name) {
    for (const Command& command : kCommands) {
        if (name == command.name) return &command;
    }
    return nullptr;
}

Error unknown_command(const std::string& name) {
    std::string list;
    for (std::size_t i = 0; i < kCommands.size(); ++i) {
        if (i > 0) list += i + 1 == kCommands.size() ? " or " : ", ";
        list += kCommands[i].name;
    }
    return bad_input("unknown command '" + name + "', expected " + list);
}

Result<int> dispatch(Args args) {
    if (args.empty()) {
        std::fputs(usage().c_str(), stderr);
        return kExitUsage;
    }
    std::string name = args.front();
    args.erase(args.begin());
    if (name == "--version") return print_result("bastion " + version_text() + "\n");
    if (name == "--help" || name == "-h" || name == "help") {
        if (args.empty()) return print_result(usage());
        name = args.front();
        args = {"--help"};
    }
    const Command* command = find_command(name);
    if (!command) return unknown_command(name);
    return command->run(args);
}

int report(const Error& error) {
    // One line whatever a file name or flag contains: control characters would break it or write to the terminal.
    std::fprintf(stderr, "bastion: error: %s\n", one_line(error.message).c_str());
    return error.kind == ErrorKind::bad_input ? kExitUsage : kExitRuntime;
}

}  // namespace

}  // namespace bastion::cli

int main(int argc, char** argv) {
    using namespace bastion;
    cli::interrupt::install();
    silence_libraries();
    try {
        const Result<int> result = cli::dispatch(cli::Args(argv + (argc > 0 ? 1 : 0), argv + argc));
        if (result.ok()) return *result;
        // Waiting for input ends with an error of the read, but it is the user who ended it.
        return cli::interrupt::requested() ? cli::kExitInterrupted : cli::report(result.error());
    } catch (const std::bad_alloc&) {
        return cli::report(runtime_error("out of memory"));
    } catch (const std::exception& exception) {
        return cli::report(runtime_error(std::string("internal failure: ") + exception.what()));
    }
}
