// Profiles for tests.
#pragma once

#include "budget/calibration.h"

namespace bastion::test {

/// A small dense model (30 layers, like SmolLM2-135M) and a machine on which one row is bound by memory.
inline ModelShape small_shape() {
    ModelShape shape;
    shape.layers = 30;
    shape.hidden = 576;
    shape.q_width = 576;
    shape.kv_width = 192;
    shape.ffn_width = 1536;
    shape.vocab = 49152;
    return shape;
}

/// verify_ms = per_row * nodes + fixed at every context, with a fit that says the same of the roofline.
inline Profile profile_with(double draft_ms = 1.0, double aux_ms = 0.5) {
    Profile profile;
    profile.device = "test machine";
    profile.target = "target";
    profile.drafter = "drafter";
    profile.build = std::string("test build");
    profile.shape = small_shape();
    profile.peak = {1e11, 2e10};
    profile.ar_ms = 5;
    profile.draft_ms = draft_ms;
    profile.aux_ms = aux_ms;
    for (const int context : {64, 256}) {
        for (const int nodes : {1, 2, 4, 8, 16, 32, 64}) {
            profile.grid.push_back({nodes, context, 4.0 + 0.5 * nodes + 0.001 * context});
        }
    }
    profile.fit = {1.25, 0.75, 3, 0.25};
    profile.seconds = 12.5;
    return profile;
}

}  // namespace bastion::test
