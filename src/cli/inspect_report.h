// What `bastion inspect` finds out, and how it is shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bastion/options.h"
#include "bastion/status.h"
#include "model/config.h"
#include "model/gguf.h"

namespace bastion::cli {

/// Tensors of one storage type.
struct TypeCount {
    int tensors = 0;
    std::uint64_t bytes = 0;
};

struct InspectedFile {
    GgufFile file;
    ModelConfig config;
    std::map<std::string, TypeCount> types = {};  ///< by ggml's name of the type
    std::uint64_t parameters = 0;                 ///< elements of all tensors
    int ctx = 0;                                  ///< context that `kv_bytes` is for
    std::uint64_t kv_bytes = 0;                   ///< one session's cache
    bool has_template = false;

    bool is_drafter() const { return config.arch->drafter; }
};

struct InspectedDevice {
    std::string name, description, kernels;
    int threads = 0;
    std::uint64_t free_bytes = 0;
    std::vector<std::string> names;  ///< what --device accepts here
};

struct InspectReport {
    std::vector<InspectedFile> files;  ///< one, or target and drafter in any order
    std::string pair_problem;          ///< why two files do not fit; empty if they do or there is only one
    InspectedDevice device;
};

/// Reads and checks one file; the architecture in it decides whether as target or as drafter.
Result<InspectedFile> inspect_file(const std::string& path, const EngineOptions& options);

/// The sentence that says why two files are no pair, or nothing where they are.
Result<std::string> inspect_pair(const InspectedFile& first, const InspectedFile& second);

Result<InspectedDevice> inspect_device(const EngineOptions& options);

std::string report_text(const InspectReport& report);
/// `{"files":[..],"pair":{"fits","problem"} or null,"device":{..}}`
std::string report_json(const InspectReport& report);

}  // namespace bastion::cli
