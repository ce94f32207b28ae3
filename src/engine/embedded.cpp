// Finds the model pair that comes with the program.
#include <filesystem>

#include "bastion/engine.h"

namespace bastion {
namespace {

namespace fs = std::filesystem;

/// The first existing file among `candidates` under the folders the program may have been started from: a build tree
/// two levels below the source tree, or an installation with share/bastion beside bin.
std::string find(std::initializer_list<const char*> candidates) {
    std::error_code ec;
    const fs::path program = fs::read_symlink("/proc/self/exe", ec);
    if (ec) return "";
    const fs::path folder = program.parent_path();
    for (const fs::path& root : {folder / "../..", folder / "../../..", folder / "../share/bastion"}) {
        for (const char* name : candidates) {
            const fs::path path = root / name;
            if (fs::is_regular_file(path, ec)) return fs::weakly_canonical(path, ec).string();
        }
    }
    return "";
}

}  // namespace

std::string embedded_target_path() {
    return find({"deps/models/SmolLM2-135M-Instruct.Q4_1.gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"});
}

std::string embedded_drafter_path() { return find({"models/smollm2-135m-dflash.gguf"}); }

}  // namespace bastion
