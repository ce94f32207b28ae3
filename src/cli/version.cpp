#include "cli/version.h"

#include <ggml.h>

namespace bastion::cli {

const char* program_version() { return BASTION_VERSION; }

std::string version_text() { return std::string(program_version()) + " (ggml " + ggml_version() + ")"; }

}  // namespace bastion::cli
