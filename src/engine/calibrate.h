// Measures what the latency model needs, on the loaded models.
#pragma once

#include "bastion/engine.h"
#include "budget/calibration.h"
#include "engine/models.h"

namespace bastion {

/// The shape the roofline model sees: dimensions of the target with the real bytes of its tensors.
ModelShape model_shape(const GgufFile& file, const ModelConfig& config, ggml_type cache_type);

/// Times whole target passes (the likeliest token of every row) over a grid of tree sizes and contexts on `slot`, and
/// one draft; then fits. The slot's first `used` cells are left as they are, later ones are overwritten. REQUIRES used
/// + 80 < ctx or used == 0. `brief`: a small grid within about two seconds.
Result<Profile> measure_profile(Models& models, int slot, int used, bool brief, const Progress& progress);

/// What the profile of these models is filed under: device with kernels and threads, both files' contents, the build.
Profile profile_identity(const Models& models);

}  // namespace bastion
