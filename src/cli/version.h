// What this build is made of.
#pragma once

#include <string>

namespace bastion::cli {

/// "0.1.0 (ggml 0.25.3)".
std::string version_text();

/// The program's own version.
const char* program_version();

}  // namespace bastion::cli
