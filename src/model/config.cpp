#include "model/config.h"

#include <ggml.h>

#include <array>
#include <set>

#include "model/config_tensors.h"

namespace bastion {
namespace {

constexpr std::array<ArchTraits, 4> kArchitectures{{
    // name, qk_norm, experts, rope, rope_freqs, drafter
    {"llama", false, false, GGML_ROPE_TYPE_NORMAL, true, false},
    {"qwen3", true, false, GGML_ROPE_TYPE_NEOX, false, false},
    {"qwen3moe", true, true, GGML_ROPE_TYPE_NEOX, false, false},
    {"dflash", true, false, GGML_ROPE_TYPE_NEOX, true, true},
}};

/// Keys under "<architecture>." that this file understands; any other one could change the model's meaning.
const std::set<std::string, std::less<>> kCommonKeys{"context_length",
                                                     "embedding_length",
                                                     "block_count",
                                                     "feed_forward_length",
                                                     "vocab_size",
                                                     "attention.head_count",
                                                     "attention.head_count_kv",
                                                     "attention.layer_norm_rms_epsilon",
                                                     "attention.key_length",
                                                     "attention.value_length",
                                                     "attention.causal",
                                                     "rope.dimension_count",
                                                     "rope.freq_base",
                                                     "rope.scaling.type",
                                                     "rope.scaling.factor",
                                                     "rope.scaling.original_context_length",
                                                     "rope.scaling.finetuned",
                                                     "rope.scale_linear",
                                                     "expert_count",
                                                     "expert_used_count"};
const std::set<std::string, std::less<>> kExpertKeys{"expert_feed_forward_length"};
const std::set<std::string, std::less<>> kDrafterKeys{"block_size", "target_layers", "hidden_act",
                                                      "attention.sliding_window", "attention.sliding_window_pattern"};

constexpr std::int64_t kMaxCount = 1 << 20;  // layers, heads, widths, experts: far above any real model

const ArchTraits* find_architecture(const std::string& name) {
    for (const ArchTraits& arch : kArchitectures) {
        if (name == arch.name) return &arch;
    }
    return nullptr;
}

std::string target_architectures() {
    std::string names;
    for (const ArchTraits& arch : kArchitectures) {
        if (!arch.drafter) names += (names.empty() ? "" : ", ") + std::string(arch.name);
    }
    return names;
}

/// Reads the keys of one architecture; every message starts with the file and names the key.
class KeyReader {
 public:
    KeyReader(const GgufFile& file, const char* arch) : file_(file), prefix_(std::string(arch) + ".") {}

    std::string full(const std::string& key) const { return prefix_ + key; }
    bool has(const std::string& key) const { return file_.has(full(key)); }

    /// An integer in [low, high].
    Result<int> count(const std::string& key, std::int64_t low, std::int64_t high) const {
        BASTION_ASSIGN(const std::int64_t value, file_.integer(full(key)));
        if (value < low || value > high) {
            return bad_input(file_.path() + ": key " + full(key) + " is " + std::to_string(value) + ", expected " +
                             std::to_string(low) + " to " + std::to_string(high));
        }
        return static_cast<int>(value);
    }

    Result<float> positive(const std::string& key) const {
        BASTION_ASSIGN(const double value, file_.number(full(key)));
        if (!(value > 0) || value > 1e12) {
            return bad_input(file_.path() + ": key " + full(key) + " is " + std::to_string(value) +
                             ", expected a positive number");
        }
        return static_cast<float>(value);
    }

    Error refuse(const std::string& key, const std::string& why) const {
        return bad_input(file_.path() + ": key " + full(key) + " " + why);
    }

 private:
    const GgufFile& file_;
    std::string prefix_;
};

/// Refuses keys of the architecture that are not on the allow-list, and those whose value we do not implement.
Status check_keys(const GgufFile& file, const ArchTraits& arch) {
    const KeyReader keys(file, arch.name);
    const std::string prefix = std::string(arch.name) + ".";
    for (const std::string& key : file.keys()) {
        if (!key.starts_with(prefix)) continue;
        const std::string_view rest = std::string_view(key).substr(prefix.size());
        const bool known = kCommonKeys.contains(rest) || (arch.experts && kExpertKeys.contains(rest)) ||
                           (arch.drafter && kDrafterKeys.contains(rest));
        if (!known) {
            return bad_input(file.path() + ": key " + key + " is not supported (value " + file.describe(key) + ")");
        }
    }
    if (keys.has("attention.causal")) {
        BASTION_ASSIGN(const bool causal, file.boolean(keys.full("attention.causal")));
        if (causal == arch.drafter) {
            return keys.refuse("attention.causal", std::string("is ") + (causal ? "true" : "false") +
                                                       ", which is not supported for this architecture");
        }
    }
    if (keys.has("hidden_act")) {
        BASTION_ASSIGN(const std::string activation, file.text(keys.full("hidden_act")));
        if (activation != "silu") return keys.refuse("hidden_act", "is " + activation + ", only silu is supported");
    }
    if (!arch.experts) {
        for (const char* key : {"expert_count", "expert_used_count"}) {
            if (!keys.has(key)) continue;
            BASTION_ASSIGN(const std::int64_t value, file.integer(keys.full(key)));
            if (value != 0) {
                return keys.refuse(key,
                                   "is " + std::to_string(value) + ", but experts are not supported for " + arch.name);
            }
        }
    }
    return {};
}

Status read_rope(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
    config.rope_base = 10000.0f;  // what the format says when the key is absent; drafters must state it
    if (config.arch->drafter || keys.has("rope.freq_base")) {
        BASTION_ASSIGN(config.rope_base, keys.positive("rope.freq_base"));
    }
    config.rope_dims = config.head_dim;
    if (keys.has("rope.dimension_count")) {
        BASTION_ASSIGN(config.rope_dims, keys.count("rope.dimension_count", 2, kMaxCount));
    }
    if (config.rope_dims != config.head_dim) {
        return keys.refuse("rope.dimension_count", "is " + std::to_string(config.rope_dims) +
                                                       ", it must equal the head size " +
                                                       std::to_string(config.head_dim));
    }
    std::string scaling = "linear";  // what the format says when only a factor is given
    if (keys.has("rope.scaling.type")) {
        BASTION_ASSIGN(scaling, file.text(keys.full("rope.scaling.type")));
        if (scaling != "none" && scaling != "linear") {
            return keys.refuse("rope.scaling.type", "is " + scaling + ", only none and linear are supported");
        }
    }
    for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
        if (scaling == "none" || !keys.has(key)) continue;
        BASTION_ASSIGN(const float factor, keys.positive(key));
        config.rope_scale = 1.0f / factor;
        break;
    }
    return {};
}

Status read_heads(const KeyReader& keys, ModelConfig& config) {
    BASTION_ASSIGN(config.heads, keys.count("attention.head_count", 1, kMaxCount));
    config.kv_heads = config.heads;
    if (config.arch->drafter || keys.has("attention.head_count_kv")) {
        BASTION_ASSIGN(config.kv_heads, keys.count("attention.head_count_kv", 1, kMaxCount));
    }
    if (config.heads % config.kv_heads != 0) {
        return keys.refuse("attention.head_count_kv", "is " + std::to_string(config.kv_heads) +
                                                          ", it must divide attention.head_count " +
                                                          std::to_string(config.heads));
    }
    if (config.arch->drafter || keys.has("attention.key_length")) {
        BASTION_ASSIGN(config.head_dim, keys.count("attention.key_length", 2, 1 << 12));
    } else {
        config.head_dim = config.hidden / config.heads;
        if (config.head_dim * config.heads != config.hidden) {
            return keys.refuse("attention.head_count",
                               "is " + std::to_string(config.heads) + ", it does not divide embedding_length " +
                                   std::to_string(config.hidden) + " and there is no attention.key_length");
        }
    }
    if (static_cast<std::int64_t>(config.heads) * config.head_dim > kMaxCount) {
        return keys.refuse("attention.head_count", "times the head size " + std::to_string(config.head_dim) +
                                                       " is more than " + std::to_string(kMaxCount));
    }
    if (config.head_dim % 2 != 0) return keys.refuse("attention.key_length", "is odd, rope needs an even head size");
    if (keys.has("attention.value_length")) {
        BASTION_ASSIGN(const int value_length, keys.count("attention.value_length", 1, 1 << 12));
        if (value_length != config.head_dim) {
            return keys.refuse("attention.value_length", "is " + std::to_string(value_length) +
                                                             ", it must equal the key length " +
                                                             std::to_string(config.head_dim));
        }
    }
    return {};
}

Status read_experts(const KeyReader& keys, ModelConfig& config) {
    BASTION_ASSIGN(config.experts, keys.count("expert_count", 1, 1 << 14));
    BASTION_ASSIGN(config.experts_used, keys.count("expert_used_count", 1, config.experts));
    BASTION_ASSIGN(config.ffn, keys.count("expert_feed_forward_length", 1, kMaxCount));
    return {};
}

/// What targets and drafters have in common.
Result<ModelConfig> read_common(const GgufFile& file, const ArchTraits& arch) {
    ModelConfig config;
    config.arch = &arch;
    config.path = file.path();
    if (file.has("general.name")) {
        BASTION_ASSIGN(config.name, file.text("general.name"));
    }
    BASTION_CHECK(check_keys(file, arch));
    const KeyReader keys(file, arch.name);
    BASTION_ASSIGN(config.layers, keys.count("block_count", 1, 1 << 12));
    BASTION_ASSIGN(config.hidden, keys.count("embedding_length", 1, kMaxCount));
    BASTION_ASSIGN(config.train_ctx, keys.count("context_length", 1, 1 << 30));
    BASTION_ASSIGN(config.norm_eps, keys.positive("attention.layer_norm_rms_epsilon"));
    BASTION_CHECK(read_heads(keys, config));
    if (arch.experts) {
        BASTION_CHECK(read_experts(keys, config));
    } else {
        BASTION_ASSIGN(config.ffn, keys.count("feed_forward_length", 1, kMaxCount));
    }
    BASTION_CHECK(read_rope(file, keys, config));

    BASTION_ASSIGN(const std::size_t tokens, file.text_count("tokenizer.ggml.tokens"));
    if (tokens == 0 || tokens > (1u << 24)) {
        return bad_input(file.path() + ": key tokenizer.ggml.tokens has " + std::to_string(tokens) + " entries");
    }
    config.vocab = static_cast<int>(tokens);
    if (keys.has("vocab_size")) {
        BASTION_CHECK(keys.count("vocab_size", config.vocab, config.vocab).ok()
                          ? Status()
                          : keys.refuse("vocab_size", "is " + file.describe(keys.full("vocab_size")) +
                                                          ", but there are " + std::to_string(config.vocab) +
                                                          " tokens"));
    }
    return config;
}

Status read_window(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
    config.windowed.assign(config.layers, false);
    if (!keys.has("attention.sliding_window")) {
        if (keys.has("attention.sliding_window_pattern")) {
            return keys.refuse("attention.sliding_window_pattern", "is given without attention.sliding_window");
        }
        return {};
    }
    BASTION_ASSIGN(config.window, keys.count("attention.sliding_window", 0, 1 << 30));
    if (config.window == 0) return {};
    BASTION_ASSIGN(config.windowed, file.booleans(keys.full("attention.sliding_window_pattern")));
    if (static_cast<int>(config.windowed.size()) != config.layers) {
        return keys.refuse("attention.sliding_window_pattern", "has " + std::to_string(config.windowed.size()) +
                                                                   " entries for " + std::to_string(config.layers) +
                                                                   " layers");
    }
    return {};
}

}  // namespace

Result<ModelConfig> read_target_config(const GgufFile& file) {
    BASTION_ASSIGN(const std::string name, file.text("general.architecture"));
    const ArchTraits* arch = find_architecture(name);
    if (!arch) {
        return bad_input(file.path() + ": architecture " + name + " is not supported as a target, expected one of " +
                         target_architectures());
    }
    if (arch->drafter) return bad_input(file.path() + " is a drafter (architecture " + name + "), not a target");
    BASTION_ASSIGN(ModelConfig config, read_common(file, *arch));
    BASTION_CHECK(check_target_tensors(file, config));
    return config;
}

Result<ModelConfig> read_drafter_config(const GgufFile& file) {
    BASTION_ASSIGN(const std::string name, file.text("general.architecture"));
    const ArchTraits* arch = find_architecture(name);
    if (!arch || !arch->drafter) {
        return bad_input(file.path() + ": architecture " + name + " is not supported as a drafter, expected dflash");
    }
    BASTION_ASSIGN(ModelConfig config, read_common(file, *arch));
    const KeyReader keys(file, arch->name);
    BASTION_ASSIGN(config.block_size, keys.count("block_size", 2, 256));
    BASTION_ASSIGN(const auto layers, file.integers(keys.full("target_layers")));
    if (layers.empty() || layers.size() > 64) {
        return keys.refuse("target_layers", "has " + std::to_string(layers.size()) + " entries, expected 1 to 64");
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i] < 0 || layers[i] > (1 << 12) || (i > 0 && layers[i] <= layers[i - 1])) {
            return keys.refuse("target_layers", "must hold increasing layer numbers, entry " + std::to_string(i) +
                                                    " is " + std::to_string(layers[i]));
        }
        config.target_layers.push_back(static_cast<int>(layers[i]));
    }
    BASTION_ASSIGN(const std::int64_t mask, file.integer("tokenizer.ggml.mask_token_id"));
    if (mask < 0 || mask >= config.vocab) {
        return bad_input(file.path() + ": key tokenizer.ggml.mask_token_id is " + std::to_string(mask) +
                         ", outside the vocabulary of " + std::to_string(config.vocab));
    }
    config.mask_token = static_cast<std::int32_t>(mask);
    BASTION_CHECK(read_window(file, keys, config));
    BASTION_CHECK(check_drafter_tensors(file, config));
    return config;
}

Status check_pair(const GgufFile& target_file, const ModelConfig& target, const GgufFile& drafter_file,
                  const ModelConfig& drafter) {
    const std::string pair = drafter.path + " does not fit " + target.path + ": ";
    if (drafter.hidden != target.hidden) {
        return bad_input(pair + "embedding_length is " + std::to_string(drafter.hidden) + ", the target's is " +
                         std::to_string(target.hidden));
    }
    if (drafter.target_layers.back() > target.layers) {
        return bad_input(pair + "target_layers asks for the input of layer " +
                         std::to_string(drafter.target_layers.back()) + ", the target has " +
                         std::to_string(target.layers) + " layers");
    }
    if (drafter.vocab != target.vocab) {
        return bad_input(pair + "tokenizer.ggml.tokens has " + std::to_string(drafter.vocab) +
                         " entries, the target's has " + std::to_string(target.vocab));
    }
    constexpr const char* kTokens = "tokenizer.ggml.tokens";
    for (int i = 0; i < target.vocab; ++i) {
        const std::string_view ours = drafter_file.text_at(kTokens, i);
        const std::string_view theirs = target_file.text_at(kTokens, i);
        if (ours != theirs) {
            return bad_input(pair + "token " + std::to_string(i) + " is \"" + std::string(ours) +
                             "\", the target's is \"" + std::string(theirs) + "\"");
        }
    }
    return {};
}

}  // namespace bastion
