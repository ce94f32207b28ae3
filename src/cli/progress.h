// One line of progress on a terminal; silence everywhere else.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "bastion/engine.h"

namespace bastion::cli {

/// Shows the stage and how far it is on stderr's current line, and erases it again. Not copyable: `callback` refers
/// to this object.
class ProgressLine {
 public:
    ProgressLine();  ///< shows only if stderr is a terminal
    explicit ProgressLine(bool visible) : visible_(visible) {}
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// Redraws at most ten times a second, except for a new stage.
    void show(std::string_view stage, double fraction);
    void clear();

    Progress callback() {
        return [this](std::string_view stage, double fraction) { show(stage, fraction); };
    }

 private:
    bool visible_ = false;
    bool drawn_ = false;
    std::string stage_;
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace bastion::cli
