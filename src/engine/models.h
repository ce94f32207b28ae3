// Everything an engine loads once and its sessions share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bastion/engine.h"
#include "model/config.h"
#include "model/device.h"
#include "model/drafter.h"
#include "model/gguf.h"
#include "model/kv.h"
#include "model/target.h"
#include "model/weights.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace bastion {

/// A drafter with its cache and the features it reads.
struct LoadedDrafter {
    explicit LoadedDrafter(GgufFile f) : file(std::move(f)) {}

    GgufFile file;
    ModelConfig config;
    std::unique_ptr<Weights> weights;
    std::unique_ptr<KvPool> kv;
    std::unique_ptr<FeaturePool> features;
    std::unique_ptr<Drafter> drafter;
};

/// The loaded pair on its device. Weights and configs are const after loading; the passes of `target` and `drafter`
/// and the pools are used by one thread at a time.
struct Models {
    std::unique_ptr<Device> device;
    GgufFile file;
    ModelConfig config;
    std::unique_ptr<Weights> weights;
    std::unique_ptr<KvPool> kv;
    std::unique_ptr<Target> target;
    std::unique_ptr<LoadedDrafter> draft;  ///< null without a drafter
    std::unique_ptr<Tokenizer> tokenizer;
    std::optional<ChatTemplate> chat;
    int ctx = 0;  ///< positions a session can hold
    int slots = 1;
    int max_nodes = 0;   ///< largest tree that fits the scratch cells
    int auto_nodes = 0;  ///< largest tree a controller may choose
    int chunk = 0;       ///< prompt rows a pass

    /// Loads and checks everything `options` names; refuses before allocating what does not fit into memory.
    static Result<std::unique_ptr<Models>> load(const EngineOptions& options, const Progress& progress);

    explicit Models(GgufFile f) : file(std::move(f)) {}
};

/// Features a session collects before they are injected; the cycle that exceeds it may add a whole tree's.
inline constexpr int kPendingFeatures = 64;

}  // namespace bastion
