#include "model/weights.h"

#include <cstring>
#include <new>
#include <utility>

namespace bastion {
namespace {

/// A ggml tensor of the file's name, type and shape, without memory.
ggml_tensor* declare(ggml_context* ctx, const TensorInfo& info) {
    ggml_tensor* tensor = ggml_new_tensor(ctx, info.type, GGML_MAX_DIMS, info.ne);
    ggml_set_name(tensor, info.name.c_str());
    return tensor;
}

/// Matrices that products read. Embeddings are only looked up where the file has a head of its own.
bool is_packed(const GgufFile& file, const TensorInfo& info) {
    const bool lookup_only = info.name == "token_embd.weight" && file.find("output.weight") != nullptr;
    const bool whole_tiles = info.ne[2] == 1 || info.ne[1] % kernels::kTileRows == 0;  // an expert begins with a tile
    return info.ne[1] > 1 && whole_tiles && !lookup_only && kernels::PackedMatrix::supports(info.type, info.ne[0]);
}

}  // namespace

std::size_t Weights::packed_bytes(const GgufFile& file, const Device& device) {
    std::size_t bytes = 0;
    for (const TensorInfo& info : file.tensors()) {
        if (device.packs() && is_packed(file, info)) {
            bytes += kernels::PackedMatrix::bytes_of(info.type, info.ne[0], info.ne[1] * info.ne[2]);
        }
    }
    return bytes;
}

Result<Weights> Weights::load(const GgufFile& file, const Device& device, const Progress& progress) {
    Weights weights;
    const std::size_t count = file.tensors().size();
    weights.ctx_.reset(ggml_init({ggml_tensor_overhead() * (count + 1), nullptr, true}));
    if (!weights.ctx_) return runtime_error("out of memory while reading " + file.path());
    for (const TensorInfo& info : file.tensors()) {
        weights.tensors_.emplace(info.name, declare(weights.ctx_.get(), info));
        weights.bytes_ += info.bytes;
    }

    int layers = 0;
    while (weights.find(layers, "attn_norm.weight")) ++layers;
    weights.groups_.resize(layers);

    if (device.is_cpu()) {
        // Every tensor is a view of the mapping: nothing is copied, pages come in as they are used.
        for (const TensorInfo& info : file.tensors()) {
            auto* data = const_cast<void*>(info.data);
            ggml_backend_buffer_ptr buffer(ggml_backend_cpu_buffer_from_ptr(data, info.bytes));
            if (!buffer ||
                ggml_backend_tensor_alloc(buffer.get(), weights.tensors_.at(info.name), data) != GGML_STATUS_SUCCESS) {
                return runtime_error("cannot use tensor " + info.name + " of " + file.path() + " in place");
            }
            ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            weights.buffers_.push_back(std::move(buffer));
        }
        try {
            if (device.packs()) weights.pack(file, device, progress);
        } catch (const std::bad_alloc&) {
            return runtime_error("out of memory while packing the weights of " + file.path());
        }
        return weights;
    }

    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(weights.ctx_.get(), device.backend()));
    if (!buffer) {
        return runtime_error("not enough memory on " + device.name() + " for the " +
                             std::to_string(weights.bytes_ >> 20) + " MiB of weights in " + file.path());
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    std::size_t done = 0;
    for (const TensorInfo& info : file.tensors()) {
        ggml_backend_tensor_set(weights.tensors_.at(info.name), info.data, 0, info.bytes);
        done += info.bytes;
        if (progress) progress("load", static_cast<double>(done) / static_cast<double>(weights.bytes_));
    }
    weights.buffers_.push_back(std::move(buffer));
    return weights;
}

void Weights::pack(const GgufFile& file, const Device& device, const Progress& progress) {
    std::size_t done = 0;
    for (const TensorInfo& info : file.tensors()) {
        ggml_tensor* w = tensors_.at(info.name);
        if (is_packed(file, info)) {
            packed_.emplace(w, std::make_unique<kernels::PackedMatrix>(w, device.pool(), *memory_));
            file.release(info);
        }
        done += info.bytes;
        if (progress) progress("load", static_cast<double>(done) / static_cast<double>(bytes_));
    }
    for (int i = 0; std::cmp_less(i, groups_.size()); ++i) {
        groups_[i].query_key_value = group(i, {"attn_q.weight", "attn_k.weight", "attn_v.weight"});
        groups_[i].key_value = group(i, {"attn_k.weight", "attn_v.weight"});
        groups_[i].gate_up = group(i, {"ffn_gate.weight", "ffn_up.weight"});
    }
}

kernels::PackedGroup Weights::group(int layer, std::initializer_list<const char*> suffixes) const {
    kernels::PackedGroup group;
    for (const char* suffix : suffixes) {
        const Matrix m = matrix(layer, suffix);
        if (!m.packed || (!group.empty() && m.packed->takes_floats() != group.front()->takes_floats())) return {};
        group.push_back(m.packed);
    }
    return group;
}

ggml_tensor* Weights::find(std::string_view name) const {
    const auto it = tensors_.find(std::string(name));
    return it == tensors_.end() ? nullptr : it->second;
}

ggml_tensor* Weights::find(int layer, std::string_view suffix) const {
    return find("blk." + std::to_string(layer) + "." + std::string(suffix));
}

Matrix Weights::matrix(std::string_view name) const {
    ggml_tensor* tensor = find(name);
    const auto it = packed_.find(tensor);
    return {tensor, it == packed_.end() ? nullptr : it->second.get()};
}

Matrix Weights::matrix(int layer, std::string_view suffix) const {
    return matrix("blk." + std::to_string(layer) + "." + std::string(suffix));
}

}  // namespace bastion
