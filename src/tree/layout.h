// Where the nodes of a tree sit: positions and ancestors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace bastion {

/// Absolute position of every node when the root sits at `root_position`: root_position + depth (never the row's
/// index in the tree).
std::vector<std::int32_t> positions(const Tree& tree, std::int32_t root_position);

/// Parent of every node, -1 for the root.
std::vector<std::int32_t> parents(const Tree& tree);

/// The nodes on the path from the root to `node`, both included.
std::vector<std::int32_t> path_to(const Tree& tree, std::int32_t node);

/// The child of `node` that carries `token`, or -1.
std::int32_t child_with(const Tree& tree, std::int32_t node, Token token);

/// True if parents precede children, depths are parent + 1, siblings carry distinct tokens and there is one root.
bool is_well_formed(const Tree& tree);

}  // namespace bastion
