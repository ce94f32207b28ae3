// Plain decoding by libllama as it ships, in the same process: the yardstick of the benchmark.
#pragma once

#include <memory>

#include "bastion/engine.h"
#include "bastion/status.h"
#include "cli/bench_run.h"

namespace bastion::cli {

/// Whether libllama's greedy decoding means the same as `options`: temperature 0, no penalty and no bias.
Status check_llama_options(const GenerateOptions& options);

/// Loads the engine's target file once more, with libllama's own defaults except for what must be equal to compare:
/// device, threads and context length. `engine` gives the token texts and must outlive the answerer.
Result<std::unique_ptr<Answerer>> make_llama_answerer(const Engine& engine, GenerateOptions options);

}  // namespace bastion::cli
