// From a file to a checked description of the model in it. Everything the file says is either understood or refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bastion/status.h"
#include "model/gguf.h"

namespace bastion {

/// What distinguishes one architecture from another; one row of a table (config.cpp).
struct ArchTraits {
    const char* name;  ///< general.architecture
    bool qk_norm;      ///< RMS norm over each query and key head before rope
    bool experts;      ///< mixture-of-experts feed-forward
    int rope_mode;     ///< GGML_ROPE_TYPE_NORMAL (interleaved pairs) or GGML_ROPE_TYPE_NEOX (halves)
    bool rope_freqs;   ///< per-frequency factors (rope_freqs.weight) may be given
    bool drafter;      ///< reads target features, no tokens of its own
};

/// Hyper-parameters common to targets and drafters. Sizes in elements, counts in units.
struct ModelConfig {
    const ArchTraits* arch = nullptr;
    std::string path, name;
    int layers = 0;
    int hidden = 0;
    int heads = 0, kv_heads = 0, head_dim = 0;
    int ffn = 0;  ///< of one expert for MoE
    int experts = 0, experts_used = 0;
    int vocab = 0;
    int train_ctx = 0;
    float norm_eps = 0;
    float rope_base = 0, rope_scale = 1;  ///< rope_scale = 1 / linear scaling factor
    int rope_dims = 0;
    bool tied_head = false;  ///< no output.weight: the token embeddings serve

    // DFlash only
    int block_size = 0;  ///< anchor + masks
    std::int32_t mask_token = -1;
    std::vector<int> target_layers;  ///< i = input of target layer i
    int window = 0;                  ///< sliding window in positions, 0: none
    std::vector<bool> windowed;      ///< [layers], which layers use it
    int draft_vocab = 0;             ///< rows of the drafter's head (d2t), 0: the target's vocabulary
    bool own_embeddings = false, own_head = false;

    int q_width() const { return heads * head_dim; }
    int kv_width() const { return kv_heads * head_dim; }
    int head_rows() const { return draft_vocab > 0 ? draft_vocab : vocab; }  ///< of the LM head this model uses
};

/// Checks keys (allow-list), tensors (names, shapes, types) and values. Nothing in the file is ignored silently.
Result<ModelConfig> read_target_config(const GgufFile& file);
Result<ModelConfig> read_drafter_config(const GgufFile& file);

/// Whether the drafter was made for this target: hidden size, tap layers, vocabulary (token by token).
/// The error names the field and both values.
Status check_pair(const GgufFile& target_file, const ModelConfig& target, const GgufFile& drafter_file,
                  const ModelConfig& drafter);

}  // namespace bastion
