#include "model/config_tensors.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

namespace bastion {
namespace {

/// Collects what the file must hold and finds what it holds beyond that.
class TensorChecker {
 public:
    explicit TensorChecker(const GgufFile& file) : file_(file) {}

    /// A weight matrix of any type that can be multiplied.
    Status matrix(const std::string& name, std::initializer_list<std::int64_t> shape) {
        BASTION_ASSIGN(const TensorInfo* info, find(name, shape));
        const auto* traits = ggml_get_type_traits_cpu(info->type);
        const bool computable = traits->vec_dot != nullptr && ggml_get_type_traits(info->type)->to_float != nullptr;
        if (!computable && info->type != GGML_TYPE_F32) {
            return bad_input(file_.path() + ": tensor " + name + " has type " + ggml_type_name(info->type) +
                             ", which cannot be multiplied");
        }
        return {};
    }

    /// A vector of norm weights or frequencies.
    Status vector(const std::string& name, std::int64_t length) {
        BASTION_ASSIGN(const TensorInfo* info, find(name, {length}));
        if (info->type != GGML_TYPE_F32) {
            return bad_input(file_.path() + ": tensor " + name + " has type " + ggml_type_name(info->type) +
                             ", expected f32");
        }
        return {};
    }

    bool has(const std::string& name) const { return file_.find(name) != nullptr; }
    void allow(const std::string& name) { known_.insert(name); }

    /// Refuses the first tensor that nobody asked for.
    Status nothing_else() const {
        for (const TensorInfo& info : file_.tensors()) {
            if (!known_.contains(info.name)) {
                return bad_input(file_.path() + ": tensor " + info.name + " is not supported for this architecture");
            }
        }
        return {};
    }

 private:
    Result<const TensorInfo*> find(const std::string& name, std::initializer_list<std::int64_t> shape) {
        known_.insert(name);
        const TensorInfo* info = file_.find(name);
        if (!info) return bad_input(file_.path() + ": tensor " + name + " is missing");
        TensorInfo expected = *info;
        std::fill(expected.ne, expected.ne + 4, 1);
        std::copy(shape.begin(), shape.end(), expected.ne);
        if (!std::equal(info->ne, info->ne + 4, expected.ne)) {
            return bad_input(file_.path() + ": tensor " + name + " has shape " + info->shape() + ", expected " +
                             expected.shape());
        }
        return info;
    }

    const GgufFile& file_;
    std::set<std::string> known_;
};

Status check_layer(TensorChecker& tensors, const ModelConfig& c, int layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    BASTION_CHECK(tensors.vector(blk + "attn_norm.weight", c.hidden));
    BASTION_CHECK(tensors.matrix(blk + "attn_q.weight", {c.hidden, c.q_width()}));
    BASTION_CHECK(tensors.matrix(blk + "attn_k.weight", {c.hidden, c.kv_width()}));
    BASTION_CHECK(tensors.matrix(blk + "attn_v.weight", {c.hidden, c.kv_width()}));
    BASTION_CHECK(tensors.matrix(blk + "attn_output.weight", {c.q_width(), c.hidden}));
    BASTION_CHECK(tensors.vector(blk + "ffn_norm.weight", c.hidden));
    if (c.arch->qk_norm) {
        BASTION_CHECK(tensors.vector(blk + "attn_q_norm.weight", c.head_dim));
        BASTION_CHECK(tensors.vector(blk + "attn_k_norm.weight", c.head_dim));
    }
    if (c.arch->experts) {
        BASTION_CHECK(tensors.matrix(blk + "ffn_gate_inp.weight", {c.hidden, c.experts}));
        BASTION_CHECK(tensors.matrix(blk + "ffn_gate_exps.weight", {c.hidden, c.ffn, c.experts}));
        BASTION_CHECK(tensors.matrix(blk + "ffn_up_exps.weight", {c.hidden, c.ffn, c.experts}));
        BASTION_CHECK(tensors.matrix(blk + "ffn_down_exps.weight", {c.ffn, c.hidden, c.experts}));
    } else {
        BASTION_CHECK(tensors.matrix(blk + "ffn_gate.weight", {c.hidden, c.ffn}));
        BASTION_CHECK(tensors.matrix(blk + "ffn_up.weight", {c.hidden, c.ffn}));
        BASTION_CHECK(tensors.matrix(blk + "ffn_down.weight", {c.ffn, c.hidden}));
    }
    return {};
}

/// The reduced vocabulary: distinct ids of the target's vocabulary.
Status check_d2t(const GgufFile& file, ModelConfig& config) {
    const TensorInfo* d2t = file.find("d2t");
    if (d2t->type != GGML_TYPE_I64 || d2t->ne[1] != 1 || d2t->ne[2] != 1 || d2t->ne[3] != 1 ||
        d2t->ne[0] > config.vocab) {
        return bad_input(file.path() + ": tensor d2t must be a vector of at most " + std::to_string(config.vocab) +
                         " i64 token ids, it is " + ggml_type_name(d2t->type) + " " + d2t->shape());
    }
    config.draft_vocab = static_cast<int>(d2t->ne[0]);
    std::vector<bool> seen(config.vocab, false);
    const auto* ids = static_cast<const std::int64_t*>(d2t->data);
    for (int i = 0; i < config.draft_vocab; ++i) {
        if (ids[i] < 0 || ids[i] >= config.vocab) {
            return bad_input(file.path() + ": tensor d2t entry " + std::to_string(i) + " is " + std::to_string(ids[i]) +
                             ", outside the vocabulary of " + std::to_string(config.vocab));
        }
        if (seen[ids[i]]) {
            return bad_input(file.path() + ": tensor d2t holds token " + std::to_string(ids[i]) + " twice");
        }
        seen[ids[i]] = true;
    }
    return {};
}

}  // namespace

Status check_target_tensors(const GgufFile& file, ModelConfig& config) {
    TensorChecker tensors(file);
    BASTION_CHECK(tensors.matrix("token_embd.weight", {config.hidden, config.vocab}));
    BASTION_CHECK(tensors.vector("output_norm.weight", config.hidden));
    config.tied_head = !tensors.has("output.weight");
    if (!config.tied_head) BASTION_CHECK(tensors.matrix("output.weight", {config.hidden, config.vocab}));
    if (config.arch->rope_freqs && tensors.has("rope_freqs.weight"))
        BASTION_CHECK(tensors.vector("rope_freqs.weight", config.rope_dims / 2));
    for (int layer = 0; layer < config.layers; ++layer) BASTION_CHECK(check_layer(tensors, config, layer));
    return tensors.nothing_else();
}

Status check_drafter_tensors(const GgufFile& file, ModelConfig& config) {
    TensorChecker tensors(file);
    const auto taps = static_cast<std::int64_t>(config.target_layers.size());
    BASTION_CHECK(tensors.matrix("fc.weight", {taps * config.hidden, config.hidden}));
    BASTION_CHECK(tensors.vector("enc.output_norm.weight", config.hidden));
    BASTION_CHECK(tensors.vector("output_norm.weight", config.hidden));
    if (tensors.has("d2t")) {
        BASTION_CHECK(check_d2t(file, config));
        tensors.allow("d2t");
    }
    config.own_embeddings = tensors.has("token_embd.weight");
    config.own_head = tensors.has("output.weight");
    if (config.draft_vocab > 0 && !config.own_head) {
        return bad_input(file.path() + ": tensor output.weight is missing, a reduced vocabulary (d2t) needs it");
    }
    if (config.own_embeddings) BASTION_CHECK(tensors.matrix("token_embd.weight", {config.hidden, config.vocab}));
    if (config.own_head) BASTION_CHECK(tensors.matrix("output.weight", {config.hidden, config.head_rows()}));
    if (config.arch->rope_freqs && tensors.has("rope_freqs.weight"))
        BASTION_CHECK(tensors.vector("rope_freqs.weight", config.rope_dims / 2));
    for (int layer = 0; layer < config.layers; ++layer) BASTION_CHECK(check_layer(tensors, config, layer));
    return tensors.nothing_else();
}

}  // namespace bastion
