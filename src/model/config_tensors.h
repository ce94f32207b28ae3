// The tensors a model file must hold, by name, shape and type.
#pragma once

#include "bastion/status.h"
#include "model/config.h"
#include "model/gguf.h"

namespace bastion {

/// Checks every tensor of a target whose keys are in `config`, refuses any other tensor, and fills in `tied_head`.
Status check_target_tensors(const GgufFile& file, ModelConfig& config);

/// The same for a drafter; fills in `draft_vocab`, `own_embeddings` and `own_head`.
Status check_drafter_tensors(const GgufFile& file, ModelConfig& config);

}  // namespace bastion
