// Where the tree builder and the budget search meet: the loop every cycle runs, and the policy as a command of its own
// for people who put it into another engine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bastion/status.h"
#include "budget/controller.h"
#include "tree/build.h"

namespace bastion {

/// Grows `builder` as long as `search` wants the next node, the lattice has one and the tree has fewer than `max_nodes`
/// nodes. Returns N*; `builder.take(N*)` is the tree to verify. Both start at the root alone.
int grow(TreeBuilder& builder, BudgetSearch& search, int max_nodes);

/// The same for requests that share a pass: one heap over all their lattices, so that each next node is the likeliest
/// of all; of equal ones that of the earlier builder. `builders[i]` is part i of `search`, whose further parts do not
/// grow. Returns the N* of each.
std::vector<int> grow_together(std::span<TreeBuilder> builders, BudgetSearch& search, int max_nodes);

/// What `bastion tree` prints for the lattice in `lattice_json`, `{"tokens":[[..]],"logprobs":[[..]]}` with one row a
/// depth: `{"nodes":[{"token","parent","depth","logprob"}],"surrogate","budget"}` in insertion order, the root first
/// with token -1. Rows may stand in any order (they are sorted: higher log-probability first, then smaller id) and
/// need not be normalised; sums are taken in double precision.
/// `budget` counts nodes, root included, and is cut to the lattice's size; 0 lets the `static` controller decide from
/// `profile` (then not null) at `context` committed tokens, up to the most nodes the profile has measured.
/// `lattice_name` is for messages. Bad input: anything the lattice cannot be, a budget below 0 or above 2^20 nodes.
Result<std::string> tree_from_lattice_json(const std::string& lattice_json, const std::string& lattice_name, int budget,
                                           const Profile* profile, int context);

}  // namespace bastion
