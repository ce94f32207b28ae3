#include "budget/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace bastion {
namespace {

double mean(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

double rmse(std::span<const GridPoint> grid, std::span<const double> roofline_ms, double a, double b) {
    double squares = 0;
    for (std::size_t i = 0; i < grid.size(); ++i) {
        const double miss = a * roofline_ms[i] + b - grid[i].verify_ms;
        squares += miss * miss;
    }
    return std::sqrt(squares / static_cast<double>(grid.size()));
}

/// Index i of the knots [i, i+1] to interpolate between at x; the outermost pair beyond the ends. >= 2 knots.
std::size_t segment(std::span<const double> knots, double x) {
    const auto above = std::upper_bound(knots.begin(), knots.end(), x);
    return std::clamp<std::ptrdiff_t>(above - knots.begin() - 1, 0, std::ssize(knots) - 2);
}

/// The line through (x0, y0) and (x1, y1) at x. Outside of [x0, x1] a falling line counts as flat.
double on_line(double x0, double y0, double x1, double y1, double x) {
    const double slope = (y1 - y0) / (x1 - x0);
    if (x < x0) return y0 + std::max(slope, 0.0) * (x - x0);
    if (x > x1) return y1 + std::max(slope, 0.0) * (x - x1);
    return y0 + slope * (x - x0);
}

double interpolate(std::span<const double> knots, std::span<const double> values, double x) {
    if (knots.size() == 1) return values[0];
    const std::size_t i = segment(knots, x);
    return on_line(knots[i], values[i], knots[i + 1], values[i + 1], x);
}

}  // namespace

LinearFit fit_linear(std::span<const GridPoint> grid, std::span<const double> roofline_ms) {
    std::vector<double> measured;
    for (const GridPoint& point : grid) measured.push_back(point.verify_ms);
    const double mean_r = mean(roofline_ms), mean_y = mean(measured);
    double rr = 0, ry = 0;
    for (std::size_t i = 0; i < grid.size(); ++i) {
        rr += (roofline_ms[i] - mean_r) * (roofline_ms[i] - mean_r);
        ry += (roofline_ms[i] - mean_r) * (measured[i] - mean_y);
    }
    const auto [low, high] = std::minmax_element(roofline_ms.begin(), roofline_ms.end());
    LinearFit fit;
    fit.a = *low == *high || rr == 0 ? 0.0 : ry / rr;
    fit.b = mean_y - fit.a * mean_r;
    fit.rmse_before_ms = rmse(grid, roofline_ms, 1, 0);
    fit.rmse_after_ms = rmse(grid, roofline_ms, fit.a, fit.b);
    return fit;
}

double Profile::fitted_ms(const PassLoad& load) const {
    if (parts.valid()) return parts.ms(shape, peak, load);
    return fit.a * roofline_ms(shape, peak, load) + fit.b;
}

std::optional<Bump> largest_bump(std::span<const GridPoint> grid, double tolerance) {
    std::optional<Bump> largest;
    for (const GridPoint& p : grid) {
        for (const GridPoint& a : grid) {
            if (a.context != p.context || a.nodes >= p.nodes) continue;
            for (const GridPoint& b : grid) {
                if (b.context != p.context || b.nodes <= p.nodes) continue;
                const double share = static_cast<double>(p.nodes - a.nodes) / (b.nodes - a.nodes);
                const double line = a.verify_ms + share * (b.verify_ms - a.verify_ms);
                const double excess = p.verify_ms / line - 1;
                if (excess > (largest ? largest->excess : tolerance)) largest = Bump{p, a.nodes, b.nodes, excess};
            }
        }
    }
    return largest;
}

MeasuredCurve::MeasuredCurve(std::span<const GridPoint> grid) {
    std::map<int, std::map<int, std::vector<double>>> measured;  // context -> rows -> ms
    std::set<int> all_rows;
    for (const GridPoint& point : grid) {
        measured[point.context][point.nodes].push_back(point.verify_ms);
        all_rows.insert(point.nodes);
    }
    rows_.assign(all_rows.begin(), all_rows.end());
    for (const auto& [context, points] : measured) {
        std::vector<double> knots, values;
        for (const auto& [rows, times] : points) {
            const double previous = values.empty() ? 0.0 : values.back();
            knots.push_back(rows);
            values.push_back(std::max(previous, mean(times)));
        }
        // A context where some row counts were not measured is filled in, so that all contexts share the knots.
        std::vector<double> filled;
        for (const double rows : rows_) filled.push_back(interpolate(knots, values, rows));
        contexts_.push_back(context);
        values_.push_back(std::move(filled));
    }
}

double MeasuredCurve::at(double rows, double context) const {
    const std::size_t lower = contexts_.size() == 1 ? 0 : segment(contexts_, context);
    const auto knot = [&](std::size_t i) {
        if (contexts_.size() == 1) return values_[0][i];
        return on_line(contexts_[lower], values_[lower][i], contexts_[lower + 1], values_[lower + 1][i], context);
    };
    if (rows_.size() == 1) return knot(0);
    // Beyond the measured contexts the knots may cross, so the running maximum is taken again at this context.
    const std::size_t left = segment(rows_, rows);
    double y0 = knot(0);
    for (std::size_t i = 1; i <= left; ++i) y0 = std::max(y0, knot(i));
    const double y1 = std::max(y0, knot(left + 1));
    return on_line(rows_[left], y0, rows_[left + 1], y1, rows);
}

}  // namespace bastion
