#include "engine/models.h"

#include <algorithm>

namespace bastion {
namespace {

ggml_type cache_type(KvType type) {
    switch (type) {
        case KvType::bf16:
            return GGML_TYPE_BF16;
        case KvType::q8_0:
            return GGML_TYPE_Q8_0;
        default:
            return GGML_TYPE_F16;
    }
}

std::string mebibytes(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

/// Row widths of each head must be whole blocks of the cache type, or heads would share scales.
Status check_cache_type(const ModelConfig& config, ggml_type type) {
    if (config.head_dim % ggml_blck_size(type) == 0) return {};
    return bad_input(std::string("kv-type ") + ggml_type_name(type) + " needs heads of a multiple of " +
                     std::to_string(ggml_blck_size(type)) + " values, " + config.path + " has heads of " +
                     std::to_string(config.head_dim));
}

Status choose_sizes(const EngineOptions& options, Models& m) {
    if (options.ctx < 0) return bad_input("ctx is " + std::to_string(options.ctx) + ", expected 0 or more");
    if (options.slots < 1 || options.slots > 1024) {
        return bad_input("slots is " + std::to_string(options.slots) + ", expected 1 to 1024");
    }
    m.ctx = options.ctx > 0 ? options.ctx : std::min(4096, m.config.train_ctx);
    if (m.ctx > m.config.train_ctx) {
        return bad_input("ctx is " + std::to_string(m.ctx) + ", but " + m.config.path + " was trained for " +
                         std::to_string(m.config.train_ctx) + " positions");
    }
    if (m.ctx < 2) return bad_input("ctx is " + std::to_string(m.ctx) + ", at least 2 positions are needed");
    m.slots = options.slots;
    m.auto_nodes = m.device->is_cpu() ? 64 : 1024;
    m.max_nodes = options.slots == 1 ? 1024 : m.auto_nodes;
    m.chunk = m.device->is_cpu() ? 128 : 512;
    return {};
}

/// Cells of a slot: the context, the rows of a tree behind it, rounded up for attention kernels.
int slot_cells(int ctx, int scratch) { return (ctx + scratch + 255) / 256 * 256; }

Status allocate(const EngineOptions& options, Models& m, const Progress& progress) {
    const ggml_type type = cache_type(options.kv_type);
    BASTION_CHECK(check_cache_type(m.config, type));
    const int block = m.draft ? m.draft->config.block_size : 0;
    const int cells = slot_cells(m.ctx, std::max({m.max_nodes, m.chunk, block}));
    std::size_t need = KvPool::bytes_needed(m.config.layers, m.config.kv_width(), m.slots, cells, type);
    int draft_cells = 0, feature_width = 0, feature_rows = 0;
    if (m.draft) {
        const ModelConfig& d = m.draft->config;
        BASTION_CHECK(check_cache_type(d, type));
        draft_cells = slot_cells(m.ctx, d.block_size);
        feature_width = static_cast<int>(d.target_layers.size()) * d.hidden;
        feature_rows = m.slots * (kPendingFeatures + std::max(m.max_nodes, block)) + m.chunk;
        need += KvPool::bytes_needed(d.layers, d.kv_width(), m.slots, draft_cells, type) +
                static_cast<std::size_t>(feature_width) * feature_rows * sizeof(float);
    }
    // The largest pass that needs no asking: a full automatic tree with its logits.
    need += static_cast<std::size_t>(m.auto_nodes) * (m.config.vocab + 16 * m.config.hidden) * sizeof(float);
    if (progress) progress("load", 1.0);
    if (need > m.device->free_bytes()) {
        return runtime_error("the caches and the largest pass for " + std::to_string(m.slots) + " x " +
                             std::to_string(m.ctx) + " tokens need " + mebibytes(need) + ", " + m.device->name() +
                             " has " + mebibytes(m.device->free_bytes()) + " free; lower --ctx");
    }
    BASTION_ASSIGN(KvPool kv, KvPool::create(*m.device, m.config.layers, m.config.kv_width(), m.slots, cells, type));
    m.kv = std::make_unique<KvPool>(std::move(kv));
    if (!m.draft) {
        m.target = std::make_unique<Target>(m.config, *m.weights, *m.device, *m.kv, std::vector<int>{}, nullptr);
        return {};
    }
    LoadedDrafter& d = *m.draft;
    BASTION_ASSIGN(KvPool draft_kv,
                   KvPool::create(*m.device, d.config.layers, d.config.kv_width(), m.slots, draft_cells, type));
    d.kv = std::make_unique<KvPool>(std::move(draft_kv));
    BASTION_ASSIGN(FeaturePool features, FeaturePool::create(*m.device, feature_width, feature_rows));
    d.features = std::make_unique<FeaturePool>(std::move(features));
    m.target =
        std::make_unique<Target>(m.config, *m.weights, *m.device, *m.kv, d.config.target_layers, d.features.get());
    d.drafter = std::make_unique<Drafter>(d.config, *d.weights, m.config, *m.weights, *m.device, *d.kv, *d.features);
    return {};
}

Status check_packed_room(const GgufFile& file, const Device& device) {
    const std::size_t packed = Weights::packed_bytes(file, device);
    if (packed <= device.free_bytes()) return {};
    return runtime_error("the weights of " + file.path() + " need " + mebibytes(packed) + ", " + device.name() +
                         " has " + mebibytes(device.free_bytes()) + " free; --kernels generic uses the file in place");
}

Result<std::unique_ptr<LoadedDrafter>> load_drafter(const std::string& path, const Models& m) {
    BASTION_ASSIGN(GgufFile file, GgufFile::open(path));
    auto draft = std::make_unique<LoadedDrafter>(std::move(file));
    BASTION_ASSIGN(draft->config, read_drafter_config(draft->file));
    BASTION_CHECK(check_pair(m.file, m.config, draft->file, draft->config));
    BASTION_CHECK(check_packed_room(draft->file, *m.device));
    BASTION_ASSIGN(Weights weights, Weights::load(draft->file, *m.device));
    draft->weights = std::make_unique<Weights>(std::move(weights));
    return draft;
}

}  // namespace

Result<std::unique_ptr<Models>> Models::load(const EngineOptions& options, const Progress& progress) {
    silence_libraries();
    std::string target = options.target, drafter = options.drafter;
    if (target.empty()) {
        target = embedded_target_path();
        if (target.empty()) {
            return bad_input("the embedded model is not there; run `make setup` or give --target FILE");
        }
        if (drafter.empty()) drafter = embedded_drafter_path();
    }
    if (progress) progress("load", 0.0);
    BASTION_ASSIGN(GgufFile file, GgufFile::open(target));
    auto m = std::make_unique<Models>(std::move(file));
    BASTION_ASSIGN(m->config, read_target_config(m->file));
    BASTION_ASSIGN(m->device, Device::open(options.device, options.threads, options.kernels));
    BASTION_CHECK(choose_sizes(options, *m));
    BASTION_ASSIGN(Tokenizer tokenizer, Tokenizer::load(target));
    m->tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
    if (m->file.has("tokenizer.chat_template")) {
        BASTION_ASSIGN(const std::string source, m->file.text("tokenizer.chat_template"));
        auto chat = ChatTemplate::compile(source, m->tokenizer->bos_text(), m->tokenizer->eos_text());
        if (!chat) return bad_input(target + ": key tokenizer.chat_template: " + chat.error().message);
        m->chat = std::move(chat).value();
    }
    BASTION_CHECK(check_packed_room(m->file, *m->device));
    BASTION_ASSIGN(Weights weights, Weights::load(m->file, *m->device, progress));
    m->weights = std::make_unique<Weights>(std::move(weights));
    if (!drafter.empty()) {
        BASTION_ASSIGN(m->draft, load_drafter(drafter, *m));
    }
    BASTION_CHECK(allocate(options, *m, progress));
    return m;
}

}  // namespace bastion
