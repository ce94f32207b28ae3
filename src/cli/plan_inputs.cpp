#include "cli/plan_inputs.h"

#include <algorithm>
#include <optional>

#include "bastion/engine.h"
#include "cli/text.h"
#include "cli/words.h"
#include "engine/calibrate.h"
#include "model/config.h"
#include "model/gguf.h"

namespace bastion::cli {

namespace {

template <class Table>
std::vector<std::string> names(const Table& table) {
    std::vector<std::string> result;
    for (const auto& entry : table) result.push_back(entry.name);
    return result;
}

std::string join(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

Error unknown(const char* flag, const std::string& name, const std::vector<std::string>& known) {
    const std::string guess = nearest(name, known);
    return bad_input(std::string("--") + flag + ": unknown " + flag + " '" + name + "'" +
                     (guess.empty() ? "" : ", did you mean " + guess + "?") + " (known: " + join(known) + ")");
}

/// Bytes of a cache element; q8_0 keeps a 16-bit scale for every 32.
double cache_bytes(KvType type) { return type == KvType::q8_0 ? 34.0 / 32.0 : 2.0; }

struct TargetFile {
    GgufFile file;
    ModelConfig config;
};

Result<TargetFile> open_target(const std::string& path) {
    BASTION_ASSIGN(GgufFile file, GgufFile::open(path));
    BASTION_ASSIGN(ModelConfig config, read_target_config(file));
    return TargetFile{std::move(file), std::move(config)};
}

/// The drafter in a file; its head and embeddings are the target's where it has none of its own.
DraftShape draft_shape(const GgufFile& file, const ModelConfig& config, const ModelShape& target) {
    DraftShape draft;
    draft.pass = model_shape(file, config, GGML_TYPE_F16);
    draft.pass.vocab = config.head_rows();
    if (!config.own_embeddings) draft.pass.embed_weight_bytes = target.embed_weight_bytes;
    if (!config.own_head) {
        draft.pass.head_weight_bytes = config.own_embeddings ? draft.pass.embed_weight_bytes : target.head_weight_bytes;
    }
    draft.block = config.block_size;
    draft.taps = static_cast<int>(config.target_layers.size());
    if (const TensorInfo* fc = file.find("fc.weight")) {
        draft.fc_weight_bytes = static_cast<double>(fc->bytes) / (static_cast<double>(fc->ne[0]) * fc->ne[1]);
    }
    draft.window = config.window;
    if (config.window > 0) {
        draft.windowed_layers = static_cast<int>(std::count(config.windowed.begin(), config.windowed.end(), true));
    }
    return draft;
}

/// The named model, or the file's. `file` is set for the latter.
Status read_target(const PlanInputs& inputs, const std::string& path, PlannedModels& models,
                   std::optional<TargetFile>& file) {
    if (inputs.model.empty()) {
        BASTION_ASSIGN(file, open_target(path));
        models.target = model_shape(file->file, file->config, GGML_TYPE_F16);
        models.target_name = file->config.name.empty() ? path : file->config.name;
        models.context = file->config.train_ctx;
        if (inputs.bytes_per_weight > 0) set_weight_bytes(models.target, inputs.bytes_per_weight);
    } else {
        const KnownModel* model = find_model(inputs.model);
        models.target = model->shape(inputs.bytes_per_weight > 0 ? inputs.bytes_per_weight : 2.0);
        models.target_name = model->name;
        models.context = model->context;
    }
    models.target.kv_bytes = cache_bytes(inputs.kv_type);
    return {};
}

Status read_drafter(const std::string& path, const std::optional<TargetFile>& target, PlannedModels& models) {
    BASTION_ASSIGN(const GgufFile file, GgufFile::open(path));
    BASTION_ASSIGN(const ModelConfig config, read_drafter_config(file));
    if (target) {
        BASTION_CHECK(check_pair(target->file, target->config, file, config));
    } else if (config.hidden != models.target.hidden || config.vocab != models.target.vocab) {
        return bad_input("drafter '" + path + "' is for a hidden size of " + std::to_string(config.hidden) + " and " +
                         std::to_string(config.vocab) + " tokens, " + models.target_name + " has " +
                         std::to_string(models.target.hidden) + " and " + std::to_string(models.target.vocab));
    }
    models.draft = draft_shape(file, config, models.target);
    models.draft.pass.kv_bytes = models.target.kv_bytes;
    models.drafter_name = config.name.empty() ? path : config.name;
    return {};
}

}  // namespace

void declare_plan_inputs(Flags& flags, PlanInputs& o) {
    const auto not_shown = [&flags](const char* name, const char* placeholder, const char* help, double& field,
                                    double low, double high) {
        flags.custom(name, placeholder, help, "", [name, &field, low, high](const std::string& text) -> Status {
            if (parse_number(text, field) && field >= low && field <= high) return {};
            return bad_input(std::string("--") + name + ": expected a number " + format("from %g to %g", low, high) +
                             ", got '" + text + "'");
        });
    };
    const auto named = [&flags](const char* flag, const std::string& help, std::string& field,
                                const std::vector<std::string>& known) {
        flags.custom(flag, "NAME", help.c_str(), "", [flag, &field, known](const std::string& text) -> Status {
            if (std::find(known.begin(), known.end(), text) == known.end()) return unknown(flag, text, known);
            field = text;
            return {};
        });
    };
    const std::vector<std::string> devices = names(known_devices()), models = names(known_models());
    flags.section("device");
    named("device", join(devices), o.device, devices);
    not_shown("peak-tflops", "X", "peak of 16-bit arithmetic in 10^12 FLOP/s, instead of the table's", o.peak_tflops,
              1e-6, 1e6);
    not_shown("bandwidth-gbs", "X", "memory bandwidth in 10^9 bytes/s, instead of the table's", o.bandwidth_gbs, 1e-3,
              1e7);
    flags.section("models");
    named("model", join(models), o.model, models);
    flags("target", o.target, "FILE", "target as GGUF; only its header is read (default: the embedded pair)");
    not_shown("bytes-per-weight", "X", "of every weight (default: 2 for --model, the tensor types of a file)",
              o.bytes_per_weight, 0.05, 8);
    flags("kv-type", o.kv_type, "TYPE", "f16, bf16 or q8_0");
    flags("drafter", o.drafter, "FILE", "drafter as GGUF; only its header is read");
    flags("draft-layers", o.draft_layers, "N", "without a file: layers of a drafter as wide as the target");
    flags("block", o.block, "N", "without a file: positions of its block, anchor included");
    flags.limit("draft-layers", 1, 1000);
    flags.limit("block", 2, 1024);
}

Result<PlannedDevice> plan_device(const PlanInputs& inputs) {
    PlannedDevice device;
    if (!inputs.device.empty()) {
        const KnownDevice* known = find_device(inputs.device);
        device = {known->description, known->gpu, known->peak()};
    } else if (inputs.peak_tflops <= 0 || inputs.bandwidth_gbs <= 0) {
        return bad_input("plan needs --device NAME or both --peak-tflops and --bandwidth-gbs (known devices: " +
                         join(names(known_devices())) + ")");
    } else {
        device.name = "own values";
    }
    if (inputs.peak_tflops > 0) device.peak.flops_per_s = inputs.peak_tflops * 1e12;
    if (inputs.bandwidth_gbs > 0) device.peak.bytes_per_s = inputs.bandwidth_gbs * 1e9;
    if (!inputs.device.empty() && (inputs.peak_tflops > 0 || inputs.bandwidth_gbs > 0)) device.name += ", own values";
    return device;
}

Result<PlannedModels> plan_models(const PlanInputs& inputs) {
    std::string target = inputs.target, drafter = inputs.drafter;
    if (!inputs.model.empty() && !target.empty()) {
        return bad_input("--model and --target both name the target, expected one of them");
    }
    if (inputs.model.empty() && target.empty()) {
        target = embedded_target_path();
        if (drafter.empty()) drafter = embedded_drafter_path();
        if (target.empty()) {
            return bad_input("plan needs --target FILE or --model NAME (known models: " + join(names(known_models())) +
                             "), no embedded model was found");
        }
    }
    PlannedModels models;
    std::optional<TargetFile> file;
    BASTION_CHECK(read_target(inputs, target, models, file));
    if (drafter.empty()) {
        models.draft = draft_shape_like(models.target, inputs.draft_layers, inputs.block);
        models.drafter_name = "as wide as the target";
    } else {
        BASTION_CHECK(read_drafter(drafter, file, models));
    }
    return models;
}

}  // namespace bastion::cli
