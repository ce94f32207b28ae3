// Devices and models by name, for planning without either at hand.
#pragma once

#include <span>
#include <string>

#include "budget/roofline.h"

namespace bastion {

/// A device as its vendor describes it.
struct KnownDevice {
    const char* name;         ///< as on the command line
    const char* description;  ///< for people
    bool gpu;
    double tflops;  ///< 10^12 FLOP/s at 16 bit, dense
    double gb_s;    ///< 10^9 bytes/s of its memory

    DevicePeak peak() const { return {tflops * 1e12, gb_s * 1e9}; }
};

/// A model as its configuration file describes it.
struct KnownModel {
    const char* name;
    int layers, hidden, heads, kv_heads, head_dim;
    int ffn;  ///< of one expert for MoE
    int vocab;
    int experts, experts_used;  ///< 0: dense
    int context;                ///< positions it was made for

    /// The cost model's view, every weight `bytes_per_weight` bytes.
    ModelShape shape(double bytes_per_weight) const;
};

/// Makes every weight of `shape` that large.
void set_weight_bytes(ModelShape& shape, double bytes_per_weight);

std::span<const KnownDevice> known_devices();
std::span<const KnownModel> known_models();

/// The entry of that name, or null.
const KnownDevice* find_device(const std::string& name);
const KnownModel* find_model(const std::string& name);

}  // namespace bastion
