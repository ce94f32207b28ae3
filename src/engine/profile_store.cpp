#include "engine/profile_store.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace bastion {
namespace fs = std::filesystem;

std::string profile_file(const std::string& cache_dir, const Profile& identity) {
    if (cache_dir.empty()) return "";
    std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a of the identity
    for (const std::string& part : {identity.device, identity.target, identity.drafter, identity.build}) {
        for (const char c : part + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    }
    char name[40];
    std::snprintf(name, sizeof name, "%016llx.json", static_cast<unsigned long long>(hash));
    return (fs::path(cache_dir) / "profiles" / name).string();
}

Result<Profile> load_profile(const std::string& path, const Profile& identity) {
    std::ifstream in(path, std::ios::binary);
    if (!in || fs::is_directory(path)) return bad_input("cannot read profile " + path);
    std::stringstream text;
    text << in.rdbuf();
    BASTION_ASSIGN(Profile profile, profile_from_json(text.str(), path));
    const auto differs = [&](const char* field, const std::string& has, const std::string& wants) {
        return bad_input("profile " + path + " was measured for " + field + " \"" + has + "\", this is \"" + wants +
                         "\"; run `bastion calibrate`");
    };
    if (profile.device != identity.device) return differs("device", profile.device, identity.device);
    if (profile.target != identity.target) return differs("target", profile.target, identity.target);
    if (profile.drafter != identity.drafter) return differs("drafter", profile.drafter, identity.drafter);
    if (profile.build != identity.build) return differs("build", profile.build, identity.build);
    return profile;
}

Status save_profile(const std::string& path, const Profile& profile) {
    std::error_code ec;
    const fs::path parent = fs::path(path).parent_path();
    if (!parent.empty()) fs::create_directories(parent, ec);
    const std::string draft = path + "." + std::to_string(::getpid()) + ".tmp";
    {
        std::ofstream out(draft, std::ios::binary);
        out << profile_to_json(profile) << '\n';
        out.close();
        if (!out) {
            fs::remove(draft, ec);
            return runtime_error("cannot write profile " + path);
        }
    }
    fs::rename(draft, path, ec);
    if (ec) return runtime_error("cannot write profile " + path + ": " + ec.message());
    return {};
}

}  // namespace bastion
