// The statistics and the cycles of an answer as text, as one JSON line, and as a trace file.
#pragma once

#include <string>

#include "bastion/engine.h"

namespace bastion::cli {

/// One line, without the newline. Keys and their order are part of the command line's contract.
std::string stats_json(const Stats& stats, const EngineInfo& info);

/// A few lines for people, each ended by a newline.
std::string stats_text(const Stats& stats, const EngineInfo& info);

/// One line of a trace file, without the newline. `engine` gives the texts of the nodes.
std::string trace_json(const CycleTrace& cycle, const Engine& engine);

}  // namespace bastion::cli
