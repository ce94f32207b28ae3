#include "cli/inspect_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/text.h"
#include "cli/words.h"
#include "model/device.h"
#include "model/kv.h"
#include "text/stream.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultCtx = 4096;

ggml_type kv_type(KvType type) {
    switch (type) {
        case KvType::bf16:
            return GGML_TYPE_BF16;
        case KvType::q8_0:
            return GGML_TYPE_Q8_0;
        case KvType::f16:
            break;
    }
    return GGML_TYPE_F16;
}

std::string mebibytes(std::uint64_t bytes) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return buffer;
}

std::string count_text(std::uint64_t count) {
    char buffer[40];
    const double millions = static_cast<double>(count) / 1e6;
    std::snprintf(buffer, sizeof buffer, millions >= 1000 ? "%.2f billion" : "%.1f million",
                  millions >= 1000 ? millions / 1000 : millions);
    return buffer;
}

std::string join(const std::vector<std::string>& parts, const char* separator) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
    return text;
}

std::string numbers(const std::vector<int>& values) {
    std::vector<std::string> parts;
    for (const int value : values) parts.push_back(std::to_string(value));
    return join(parts, ", ");
}

/// "label      text\n", the text made safe for a terminal.
std::string row(const std::string& label, const std::string& text) {
    return "  " + label + std::string(label.size() < 12 ? 12 - label.size() : 1, ' ') + one_line(text) + "\n";
}

std::string drafter_text(const ModelConfig& config) {
    std::string out = row("block", std::to_string(config.block_size) + " positions: the anchor and " +
                                       std::to_string(config.block_size - 1) + " masks (token " +
                                       std::to_string(config.mask_token) + ")");
    out += row("taps", "inputs of target layers " + numbers(config.target_layers));
    out += row("vocabulary", config.draft_vocab > 0 ? "reduced to " + std::to_string(config.draft_vocab) + " tokens"
                                                    : "the target's");
    out += row("embeddings", config.own_embeddings ? "its own" : "the target's");
    out += row("head", config.own_head ? "its own" : config.own_embeddings ? "its own embeddings" : "the target's");
    out += row("window", config.window > 0
                             ? std::to_string(config.window) + " positions in " +
                                   std::to_string(std::count(config.windowed.begin(), config.windowed.end(), true)) +
                                   " layers"
                             : "none");
    return out;
}

std::string file_text(const InspectedFile& inspected) {
    const ModelConfig& config = inspected.config;
    std::string out = sanitize_utf8(inspected.file.path()) + "\n";
    out += row(inspected.is_drafter() ? "drafter" : "target",
               std::string(config.arch->name) + (config.name.empty() ? "" : ", " + config.name));
    out += row("size", count_text(inspected.parameters) + " parameters, " + mebibytes(inspected.file.file_bytes()));
    out += row("layers", std::to_string(config.layers) + " of width " + std::to_string(config.hidden) +
                             ", feed-forward " + std::to_string(config.ffn));
    out += row("attention", std::to_string(config.heads) + " heads, " + std::to_string(config.kv_heads) +
                                " for keys and values, of " + std::to_string(config.head_dim));
    if (config.experts > 0) {
        out += row("experts", std::to_string(config.experts_used) + " of " + std::to_string(config.experts));
    }
    if (inspected.is_drafter()) {
        out += drafter_text(config);
    } else {
        out += row("vocabulary", std::to_string(config.vocab) + " tokens");
        out += row("head", config.tied_head ? "the token embeddings" : "its own");
        out += row("template", inspected.has_template ? "yes" : "no");
    }
    if (config.train_ctx > 0) out += row("context", std::to_string(config.train_ctx) + " tokens in training");
    std::vector<std::string> types;
    for (const auto& [name, count] : inspected.types) {
        types.push_back(name + " x " + std::to_string(count.tensors) + " (" + mebibytes(count.bytes) + ")");
    }
    out += row("weights", join(types, ", "));
    out += row("cache", mebibytes(inspected.kv_bytes) + " for " + std::to_string(inspected.ctx) + " tokens");
    return out;
}

Json file_json(const InspectedFile& inspected) {
    const ModelConfig& config = inspected.config;
    Json types = Json::object();
    for (const auto& [name, count] : inspected.types)
        types[name] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
    Json json = {{"path", sanitize_utf8(inspected.file.path())},
                 {"role", inspected.is_drafter() ? "drafter" : "target"},
                 {"architecture", config.arch->name},
                 {"name", sanitize_utf8(config.name)},
                 {"file_bytes", inspected.file.file_bytes()},
                 {"parameters", inspected.parameters},
                 {"layers", config.layers},
                 {"hidden", config.hidden},
                 {"heads", config.heads},
                 {"kv_heads", config.kv_heads},
                 {"head_dim", config.head_dim},
                 {"ffn", config.ffn},
                 {"experts", config.experts},
                 {"experts_used", config.experts_used},
                 {"vocab", config.vocab},
                 {"train_ctx", config.train_ctx},
                 {"types", std::move(types)},
                 {"ctx", inspected.ctx},
                 {"kv_bytes", inspected.kv_bytes}};
    if (inspected.is_drafter()) {
        json["block_size"] = config.block_size;
        json["mask_token"] = config.mask_token;
        json["target_layers"] = config.target_layers;
        json["draft_vocab"] = config.draft_vocab;
        json["own_embeddings"] = config.own_embeddings;
        json["own_head"] = config.own_head;
        json["window"] = config.window;
    } else {
        json["tied_head"] = config.tied_head;
        json["chat_template"] = inspected.has_template;
    }
    return json;
}

}  // namespace

Result<InspectedFile> inspect_file(const std::string& path, const EngineOptions& options) {
    BASTION_ASSIGN(GgufFile file, GgufFile::open(path));
    BASTION_ASSIGN(const std::string arch, file.text("general.architecture"));
    BASTION_ASSIGN(ModelConfig config, arch == "dflash" ? read_drafter_config(file) : read_target_config(file));
    InspectedFile inspected{.file = std::move(file), .config = std::move(config)};
    for (const TensorInfo& tensor : inspected.file.tensors()) {
        TypeCount& count = inspected.types[ggml_type_name(tensor.type)];
        ++count.tensors;
        count.bytes += tensor.bytes;
        inspected.parameters += static_cast<std::uint64_t>(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
    }
    const int own = inspected.config.train_ctx;
    inspected.ctx = options.ctx > 0 ? options.ctx : own > 0 ? std::min(kDefaultCtx, own) : kDefaultCtx;
    inspected.kv_bytes = KvPool::bytes_needed(inspected.config.layers, inspected.config.kv_width(), 1, inspected.ctx,
                                              kv_type(options.kv_type));
    inspected.has_template = inspected.file.has("tokenizer.chat_template");
    return inspected;
}

Result<std::string> inspect_pair(const InspectedFile& first, const InspectedFile& second) {
    const bool drafter_first = first.is_drafter();
    const InspectedFile& target = drafter_first ? second : first;
    const InspectedFile& drafter = drafter_first ? first : second;
    if (target.is_drafter() || !drafter.is_drafter()) {
        return std::string("a pair is a target and a drafter, but '" + first.file.path() + "' and '" +
                           second.file.path() + "' are both " + (drafter_first ? "drafters" : "targets"));
    }
    const Status fits = check_pair(target.file, target.config, drafter.file, drafter.config);
    if (fits.ok()) return std::string();
    if (fits.error().kind == ErrorKind::runtime) return fits.error();
    return fits.error().message;
}

Result<InspectedDevice> inspect_device(const EngineOptions& options) {
    BASTION_ASSIGN(const std::unique_ptr<Device> device,
                   Device::open(options.device, options.threads, options.kernels));
    return InspectedDevice{.name = device->name(),
                           .description = device->description(),
                           .kernels = device->kernels_name(),
                           .threads = device->threads(),
                           .free_bytes = device->free_bytes(),
                           .names = Device::names()};
}

std::string report_text(const InspectReport& report) {
    std::string out;
    for (const InspectedFile& file : report.files) out += file_text(file) + "\n";
    if (report.files.size() == 2) {
        out += "pair\n" + row("fits", report.pair_problem.empty() ? "yes" : "no: " + report.pair_problem) + "\n";
    }
    const InspectedDevice& device = report.device;
    out += "device\n" + row(device.name, device.description);
    out += row("kernels", device.kernels) + row("threads", std::to_string(device.threads));
    out += row("memory", mebibytes(device.free_bytes) + " free") + row("--device", join(device.names, ", "));
    return out;
}

std::string report_json(const InspectReport& report) {
    Json json;
    json["files"] = Json::array();
    for (const InspectedFile& file : report.files) json["files"].push_back(file_json(file));
    json["pair"] = nullptr;
    if (report.files.size() == 2) {
        json["pair"] = {{"fits", report.pair_problem.empty()}, {"problem", sanitize_utf8(report.pair_problem)}};
    }
    Json names = Json::array();
    for (const std::string& name : report.device.names) names.push_back(sanitize_utf8(name));
    json["device"] = {
        {"name", sanitize_utf8(report.device.name)}, {"description", sanitize_utf8(report.device.description)},
        {"kernels", report.device.kernels},          {"threads", report.device.threads},
        {"free_bytes", report.device.free_bytes},    {"names", std::move(names)}};
    return json.dump();
}

}  // namespace bastion::cli
