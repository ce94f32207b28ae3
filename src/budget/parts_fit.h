// Calibration of the latency model part by part: arithmetic of the matrices, experts touched, attention and cache each
// have an efficiency of their own (docs/latency.md).
#pragma once

#include <array>
#include <span>

#include "budget/roofline.h"

namespace bastion {

/// One measured target pass over `nodes` rows at `context` committed tokens, all logits.
struct GridPoint {
    int nodes = 0;
    int context = 0;
    double verify_ms = 0;
};

/// verify_ms ~ matrices * M + experts * E + attention * A + cache * C + b, where M is the matrices' arithmetic at the
/// peak (or their roofline, if `overlapped`), E the bytes of touched experts, A the arithmetic of attention and C the
/// bytes of the cache, all in milliseconds. A factor of 0: the part does not vary on the grid, or takes nothing.
struct PartsFit {
    bool overlapped = false;
    double matrices = 0, experts = 0, attention = 0, cache = 0;  ///< not negative
    double b = 0;                                                ///< ms; 0 or more
    double rmse_ms = 0;                                          ///< over the grid

    double ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) const;
    /// Reading the caches of all requests, of that.
    double caches_ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) const;
    /// Whether it was fitted at all.
    bool valid() const { return matrices > 0; }
};

/// Least squares of the relative errors with factors that are not negative; of the two forms (`overlapped` or not) the
/// one with the smaller rmse_ms. Not valid on grids of a single context or of fewer than 8 points, which do not tell
/// the parts apart.
PartsFit fit_parts(const ModelShape& shape, const DevicePeak& peak, std::span<const GridPoint> grid);

}  // namespace bastion
