// The DFlash drafter: features in, a lattice out (docs/architecture.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/device.h"
#include "model/kv.h"
#include "model/weights.h"

namespace bastion {

/// Features to inject for one sequence: FeaturePool rows and the absolute positions they belong to.
struct Injection {
    int slot = 0;
    std::span<const std::int32_t> feature_rows;
    std::span<const std::int32_t> positions;
};

/// One block to denoise: the anchor token at `position`, masks behind it. REQUIRES positions 0..position-1 injected.
struct DraftRequest {
    int slot = 0;
    Token anchor = -1;
    int position = 0;
};

class Drafter {
 public:
    /// `target_weights` lend embeddings and head where the drafter has none of its own.
    Drafter(const ModelConfig& config, const Weights& weights, const ModelConfig& target_config,
            const Weights& target_weights, const Device& device, KvPool& kv, FeaturePool& features);
    ~Drafter();

    /// fc, hidden norm, and every layer's K and V for the given positions (KV injection).
    Status inject(std::span<const Injection> injections);

    /// One non-causal pass over all blocks; a lattice of block_size - 1 rows and `topk` entries a request. Token ids
    /// are the target's (d2t applied).
    Result<std::vector<Lattice>> draft(std::span<const DraftRequest> requests, int topk);

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace bastion
