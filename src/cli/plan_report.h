// What `bastion plan` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bastion/options.h"
#include "budget/trace.h"
#include "cli/plan_inputs.h"
#include "engine/plan.h"

namespace bastion::cli {

/// A whole plan: what it is for, what it assumes, and its points, concurrency by concurrency.
struct PlanReport {
    PlannedDevice device;
    PlannedModels models;
    AcceptanceModel acceptance;                  ///< where there is no trace
    std::string trace;                           ///< its file, empty: none
    std::optional<RecordedAcceptance> recorded;  ///< of the trace
    int max_nodes = 0;                           ///< as asked for
    std::vector<double> gains;
    std::vector<PlanPoint> points;
    std::vector<Replay> replays;  ///< with a trace, one a point

    /// Sentences that the reader of the numbers must know.
    std::vector<std::string> notes() const;
};

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

std::string check_text(const TraceCheck& check, ControllerKind kind);
std::string check_json(const TraceCheck& check, ControllerKind kind);

}  // namespace bastion::cli
