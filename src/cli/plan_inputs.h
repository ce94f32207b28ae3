// What `bastion plan` plans for: a device, a target and a drafter, from tables, from files or from numbers.
#pragma once

#include <string>

#include "bastion/options.h"
#include "budget/catalog.h"
#include "budget/plan.h"
#include "cli/args.h"

namespace bastion::cli {

/// The flags that describe them; 0 and empty: not given. Names are those of the catalogue.
struct PlanInputs {
    std::string device;
    double peak_tflops = 0, bandwidth_gbs = 0;
    std::string model, target, drafter;
    double bytes_per_weight = 0;
    KvType kv_type = KvType::f16;
    int draft_layers = 5, block = 16;
};

struct PlannedDevice {
    std::string name;
    bool gpu = true;
    DevicePeak peak;
};

struct PlannedModels {
    std::string target_name, drafter_name;
    ModelShape target;
    DraftShape draft;
    int context = 0;  ///< positions the target was made for
};

/// Parsing refuses unknown names of devices and models; the message lists the known ones.
void declare_plan_inputs(Flags& flags, PlanInputs& inputs);

/// The named device with the values given in numbers put over its own. Bad input: neither a name nor both numbers.
Result<PlannedDevice> plan_device(const PlanInputs& inputs);

/// Both shapes. A file is opened and checked as for generating, but no weight is read. Without a target the embedded
/// pair is meant. Bad input: two targets, what the files' readers refuse, a drafter that does not fit.
Result<PlannedModels> plan_models(const PlanInputs& inputs);

}  // namespace bastion::cli
