#include "cli/machine.h"

#include <ggml.h>
#include <llama.h>
#include <sys/utsname.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/version.h"
#include "text/stream.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace bastion::cli {

namespace {

std::string processor_name() {
#ifdef __APPLE__
    char name[256] = {};
    std::size_t size = sizeof name - 1;
    if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

std::string system_name() {
    utsname name{};
    if (uname(&name) != 0) return "unknown";
    return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

std::string build_flags() {
#ifdef BASTION_BUILD_FLAGS
    return BASTION_BUILD_FLAGS;
#elif defined(__OPTIMIZE__) && defined(NDEBUG)
    return "optimised, no assertions";
#elif defined(__OPTIMIZE__)
    return "optimised, with assertions";
#else
    return "not optimised";
#endif
}

std::string compiler_name() {
#ifdef __clang__
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

}  // namespace

std::string machine_json(const EngineInfo& info) {
    nlohmann::ordered_json json;
    json["cpu"] = sanitize_utf8(processor_name());
    json["hardware_threads"] = std::thread::hardware_concurrency();
    json["system"] = system_name();
    json["device"] = sanitize_utf8(info.device);
    json["device_description"] = sanitize_utf8(info.device_description);
    json["kernels"] = info.kernels;
    json["threads"] = info.threads;
    json["ctx"] = info.ctx;
    json["target"] = sanitize_utf8(info.target_name.empty() ? info.target_path : info.target_name);
    json["drafter"] = sanitize_utf8(info.drafter_name.empty() ? info.drafter_path : info.drafter_name);
    json["block_size"] = info.block_size;
    json["bastion_version"] = program_version();
    json["ggml_version"] = ggml_version();
    json["ggml_commit"] = ggml_commit();
    json["ggml_system_info"] = sanitize_utf8(llama_print_system_info());
    json["compiler"] = compiler_name();
    json["build_flags"] = build_flags();
    return json.dump();
}

}  // namespace bastion::cli
