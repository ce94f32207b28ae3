// What a measurement was taken on, for the record.
#pragma once

#include <string>

#include "bastion/engine.h"

namespace bastion::cli {

/// JSON object: processor, threads, device, kernels, models, versions of this program and of ggml, the instruction
/// sets ggml was built for, compiler and build flags.
std::string machine_json(const EngineInfo& info);

}  // namespace bastion::cli
