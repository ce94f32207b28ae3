// The commands of the program. Each takes the arguments after its name and gives the exit code, or the error that the
// caller prints.
#pragma once

#include "bastion/status.h"
#include "cli/args.h"

namespace bastion::cli {

Result<int> generate_command(const Args& args);
Result<int> chat_command(const Args& args);
Result<int> inspect_command(const Args& args);
Result<int> calibrate_command(const Args& args);
Result<int> tree_command(const Args& args);
Result<int> plan_command(const Args& args);
Result<int> bench_command(const Args& args);
Result<int> answers_command(const Args& args);

}  // namespace bastion::cli
