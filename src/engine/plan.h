// Expected acceptance without a drafter: a lattice from two numbers, and the tree builder on it.
#pragma once

#include <vector>

#include "bastion/status.h"

namespace bastion {

/// How well a drafter guesses, the same at every position: given that everything before is right, the candidate of rank
/// 1 is right with probability `top1`, and those of ranks 2..K together with `further_mass`, halving from rank to rank:
/// p_1 = top1, p_k = further_mass 2^-(k-1) / (1 - 2^-(K-1)).
struct AcceptanceModel {
    double top1 = 0.8;
    double further_mass = 0.1;
    int topk = 8;    ///< K
    int depth = 15;  ///< positions after the anchor
};

/// What each node of the best-first tree after the root adds to the expected tokens of a cycle, up to `max_nodes` nodes
/// in all: its rho. Under the model above that is no surrogate: a node is reached if all ranks on its path are right,
/// which has probability rho, and a cycle emits a token for each node reached, so E[tokens] = sum of rho = A-hat.
/// Bad input: probabilities outside [0, 1] or summing to more, rank 2 likelier than rank 1, mass without further ranks.
Result<std::vector<double>> expected_gains(const AcceptanceModel& model, int max_nodes);

}  // namespace bastion
