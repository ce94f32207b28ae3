// Linear calibration of the roofline model against measured verification passes (paper sections 3.4 and 5.2), the
// measured curve itself, and the profile that keeps both.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bastion/status.h"
#include "budget/parts_fit.h"
#include "budget/roofline.h"

namespace bastion {

/// verify_ms ~ a * R + b.
struct LinearFit {
    double a = 1;
    double b = 0;               ///< ms
    double rmse_before_ms = 0;  ///< of the bare roofline
    double rmse_after_ms = 0;   ///< of the fit
};

/// Least squares over the grid; `roofline_ms[i]` belongs to `grid[i]`. A grid whose rooflines are all equal gets a = 0
/// and b = mean. Requires a non-empty grid of equal length.
LinearFit fit_linear(std::span<const GridPoint> grid, std::span<const double> roofline_ms);

/// A measured point above the line between two others of its context.
struct Bump {
    GridPoint point;
    int from = 0, to = 0;  ///< rows of the two others
    double excess = 0;     ///< of the line's value
};

/// The largest bump of the grid, if it exceeds `tolerance`. A cost that is convex in the rows has none; where there is
/// one, a search that stops at the first decrease may end below the best size (Proposition 3.4 asks for convexity).
std::optional<Bump> largest_bump(std::span<const GridPoint> grid, double tolerance);

/// The measured grid as a function: piecewise linear in rows and in context, never decreasing in rows (running
/// maximum), continued past both ends with the outermost slope, which is never taken as negative. Several
/// measurements of one point are averaged. Immutable.
class MeasuredCurve {
 public:
    explicit MeasuredCurve(std::span<const GridPoint> grid);

    bool empty() const { return contexts_.empty(); }

    /// Milliseconds of a pass over `rows` rows at `context`. May be <= 0 far below the measured range. Requires a
    /// curve that is not empty.
    double at(double rows, double context) const;

 private:
    std::vector<double> rows_;                 // all measured row counts, ascending
    std::vector<double> contexts_;             // ascending
    std::vector<std::vector<double>> values_;  // [context][rows], ms, never decreasing along rows
};

/// Everything a controller knows about a (device, target, drafter, build): measured once, kept in a file.
struct Profile {
    std::string device;   ///< what the device calls itself, with kernels and threads
    std::string target;   ///< identity of the target file
    std::string drafter;  ///< identity of the drafter file, empty without one
    std::string build;    ///< version of this program and of ggml
    ModelShape shape;
    DevicePeak peak;
    double ar_ms = 0;          ///< one plain decoding step (1 row, no draft) at the smallest measured context
    double draft_ms = 0;       ///< injection and draft pass of one block
    double draft_more_ms = 0;  ///< of each further block in the same pass
    double aux_ms = 0;         ///< build, accept and commit of one cycle
    std::vector<GridPoint> grid;
    LinearFit fit;       ///< the paper's
    PartsFit parts;      ///< not valid where the grid is too small
    double seconds = 0;  ///< how long the measurement took

    /// A pass by `parts`, or by `fit` where they are not valid; may be <= 0 where the fit is poor.
    double fitted_ms(const PassLoad& load) const;
};

/// JSON text of a profile: the object `bastion calibrate --json` prints, in one line.
std::string profile_to_json(const Profile& profile);

/// The profile in `text`; `file_name` is for messages. Checks every field and says which one is missing or wrong:
/// numbers must be finite, `ar_ms` and `verify_ms` positive, the other times not negative. Unknown keys are skipped.
Result<Profile> profile_from_json(const std::string& text, const std::string& file_name);

}  // namespace bastion
