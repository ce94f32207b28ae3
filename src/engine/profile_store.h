// Latency profiles on disk, one file a (device, target, drafter, build).
#pragma once

#include <string>

#include "budget/calibration.h"

namespace bastion {

/// Path of the profile with this identity under `cache_dir`; empty if `cache_dir` is.
std::string profile_file(const std::string& cache_dir, const Profile& identity);

/// The profile in `path`. An error if it cannot be read or was measured for something else than `identity`.
Result<Profile> load_profile(const std::string& path, const Profile& identity);

/// Writes atomically, creating folders; an error names the path.
Status save_profile(const std::string& path, const Profile& profile);

}  // namespace bastion
