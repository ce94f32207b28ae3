#pragma once

#include <cstdint>

namespace bastion {

/// A token id of the target's vocabulary.
using Token = std::int32_t;

}  // namespace bastion
