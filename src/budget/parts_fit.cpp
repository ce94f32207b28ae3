#include "budget/parts_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace bastion {
namespace {

constexpr int kUnknowns = 5;  // matrices, experts, attention, cache, b
using Values = std::array<double, kUnknowns>;

Values values_of(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load, bool overlapped) {
    const RooflineParts parts = roofline_parts(shape, peak, load);
    return {overlapped ? parts.matrices_ms : parts.arithmetic_ms, overlapped ? 0.0 : parts.experts_ms,
            parts.attention_ms, parts.cache_ms, 1.0};
}

double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (int i = 0; i < kUnknowns; ++i) sum += a[i] * b[i];
    return sum;
}

/// Least squares over the columns that `used` names; the others are 0. Columns are scaled to length 1 and a trace of
/// the identity is added, so that columns that say the same share what they explain.
Values solve(const std::vector<Values>& rows, const std::vector<double>& wanted,
             const std::array<bool, kUnknowns>& used) {
    Values length{};
    for (const Values& row : rows) {
        for (int i = 0; i < kUnknowns; ++i) length[i] += row[i] * row[i];
    }
    for (double& l : length) l = l > 0 ? std::sqrt(l) : 1.0;
    double m[kUnknowns][kUnknowns + 1] = {};
    for (int i = 0; i < kUnknowns; ++i) {
        for (std::size_t r = 0; r < rows.size(); ++r) {
            for (int j = 0; j < kUnknowns; ++j)
                m[i][j] += used[i] && used[j] ? rows[r][i] * rows[r][j] / length[i] / length[j] : 0.0;
            m[i][kUnknowns] += used[i] ? rows[r][i] / length[i] * wanted[r] : 0.0;
        }
        m[i][i] += used[i] ? 1e-9 : 1.0;
    }
    for (int p = 0; p < kUnknowns; ++p) {  // positive definite: no pivoting
        for (int i = 0; i < kUnknowns; ++i) {
            if (i == p) continue;
            const double factor = m[i][p] / m[p][p];
            for (int j = p; j <= kUnknowns; ++j) m[i][j] -= factor * m[p][j];
        }
    }
    Values solution;
    for (int i = 0; i < kUnknowns; ++i) solution[i] = m[i][kUnknowns] / m[i][i] / length[i];
    return solution;
}

PartsFit fit_form(const ModelShape& shape, const DevicePeak& peak, std::span<const GridPoint> grid, bool overlapped) {
    std::vector<Values> plain, rows;
    for (const GridPoint& point : grid) {
        plain.push_back(values_of(shape, peak, {point.nodes, point.context}, overlapped));
        rows.push_back(plain.back());
        for (double& value : rows.back()) value /= point.verify_ms;
    }
    std::array<bool, kUnknowns> used{};
    used.back() = true;
    for (int i = 0; i + 1 < kUnknowns; ++i) {
        const auto [low, high] = std::minmax_element(plain.begin(), plain.end(),
                                                     [i](const Values& a, const Values& b) { return a[i] < b[i]; });
        used[i] = (*high)[i] > (*low)[i];
    }
    const std::vector<double> ones(grid.size(), 1.0);
    Values factors = solve(rows, ones, used);
    while (true) {
        const auto least = std::min_element(factors.begin(), factors.end());
        if (*least >= 0) break;
        used[least - factors.begin()] = false;
        factors = solve(rows, ones, used);
    }
    double squares = 0;
    for (std::size_t i = 0; i < grid.size(); ++i) squares += std::pow(dot(factors, plain[i]) - grid[i].verify_ms, 2);
    return {overlapped,
            factors[0],
            factors[1],
            factors[2],
            factors[3],
            factors[4],
            std::sqrt(squares / static_cast<double>(grid.size()))};
}

}  // namespace

double PartsFit::ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) const {
    return dot({matrices, experts, attention, cache, b}, values_of(shape, peak, load, overlapped));
}

double PartsFit::caches_ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) const {
    return cache * roofline_parts(shape, peak, load).cache_ms;
}

PartsFit fit_parts(const ModelShape& shape, const DevicePeak& peak, std::span<const GridPoint> grid) {
    constexpr std::size_t kFewestPoints = 8;
    const bool one_context =
        std::all_of(grid.begin(), grid.end(), [&](const GridPoint& p) { return p.context == grid.front().context; });
    if (grid.size() < kFewestPoints || one_context) return {};
    const PartsFit apart = fit_form(shape, peak, grid, false), overlapped = fit_form(shape, peak, grid, true);
    return overlapped.valid() && (!apart.valid() || overlapped.rmse_ms < apart.rmse_ms) ? overlapped : apart;
}

}  // namespace bastion
