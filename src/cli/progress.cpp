#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bastion::cli {

ProgressLine::ProgressLine() : visible_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(std::string_view stage, double fraction) {
    if (!visible_) return;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && stage == stage_ && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    stage_ = stage;
    drawn_ = true;
    const double percent = std::isfinite(fraction) ? 100 * std::clamp(fraction, 0.0, 1.0) : 0.0;
    std::fprintf(stderr, "\r\x1b[K%s %3.0f%%", stage_.c_str(), percent);
    std::fflush(stderr);
}

void ProgressLine::clear() {
    if (!drawn_) return;
    drawn_ = false;
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
}

}  // namespace bastion::cli
