// Lattices for tests: random ones, and ones full of equal probabilities.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "base/types.h"

namespace bastion::test {

/// Rows of log-probabilities with tokens 100 * row + rank, so that every path has its own tokens.
inline Lattice lattice_of(const std::vector<std::vector<float>>& rows) {
    Lattice lattice;
    lattice.depth = static_cast<int>(rows.size());
    lattice.width = rows.empty() ? 0 : static_cast<int>(rows[0].size());
    for (int row = 0; row < lattice.depth; ++row) {
        for (int rank = 0; rank < lattice.width; ++rank) {
            lattice.tokens.push_back(100 * row + rank);
            lattice.logprobs.push_back(rows[row][rank]);
        }
    }
    return lattice;
}

/// Sorted rows whose probabilities sum to less than 1, as a top-K of a larger vocabulary does.
inline Lattice random_lattice(std::mt19937& random, int depth, int width) {
    std::vector<std::vector<float>> rows;
    for (int row = 0; row < depth; ++row) {
        std::vector<float> weights;
        for (int i = 0; i < width; ++i) weights.push_back(std::exponential_distribution<float>(1)(random));
        const float rest = std::exponential_distribution<float>(1)(random);
        float total = rest;
        for (const float weight : weights) total += weight;
        for (float& weight : weights) weight = std::log(weight / total);
        std::sort(weights.begin(), weights.end(), std::greater<>());
        rows.push_back(weights);
    }
    return lattice_of(rows);
}

/// Sorted rows of log-probabilities 0, -1, -2 or -3: many paths are exactly equal.
inline Lattice tied_lattice(std::mt19937& random, int depth, int width) {
    std::vector<std::vector<float>> rows(depth);
    for (auto& row : rows) {
        for (int i = 0; i < width; ++i) row.push_back(-static_cast<float>(random() % 4));
        std::sort(row.begin(), row.end(), std::greater<>());
    }
    return lattice_of(rows);
}

}  // namespace bastion::test
