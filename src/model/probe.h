// What the device can do at most, measured: the two numbers of the roofline model.
#pragma once

#include "bastion/status.h"
#include "model/config.h"
#include "model/device.h"
#include "model/weights.h"

namespace bastion {

struct MeasuredPeak {
    double flops_per_s = 0;  ///< of the matrix product that passes use
    double bytes_per_s = 0;  ///< of main memory, read plus written
};

/// Best of several runs each, on all threads. Takes about a fifth of a second on a CPU.
Result<MeasuredPeak> measure_peak(const ModelConfig& config, const Weights& weights, const Device& device);

}  // namespace bastion
