// The tensors of a model file on a device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "bastion/engine.h"
#include "bastion/status.h"
#include "kernels/packed_fused.h"
#include "model/device.h"
#include "model/gguf.h"

namespace bastion {

/// A weight matrix as the kernels want it.
struct Matrix {
    ggml_tensor* tensor = nullptr;                  ///< [k, m] or [k, m, experts]
    const kernels::PackedMatrix* packed = nullptr;  ///< null where the type or the device has none
};

/// The packed matrices of a layer that read the same rows. A group is empty where they are not all packed alike.
struct LayerGroups {
    kernels::PackedGroup query_key_value, key_value, gate_up;
};

/// Immutable after loading. On the CPU the tensors are the mapped file itself; matrices with a packed form are read
/// from that form, and their pages of the file are given back to the system.
class Weights {
 public:
    /// `file` must outlive the weights (its mapping is used in place on the CPU).
    static Result<Weights> load(const GgufFile& file, const Device& device, const Progress& progress = {});

    /// Memory that `load` takes beyond the mapped file, for packed matrices.
    static std::size_t packed_bytes(const GgufFile& file, const Device& device);

    /// The tensor, or nullptr if the file has none of that name.
    ggml_tensor* find(std::string_view name) const;
    ggml_tensor* find(int layer, std::string_view suffix) const;  ///< "blk.<layer>.<suffix>"
    /// A weight matrix with its packed form; `tensor` is null if the file has none of that name.
    Matrix matrix(std::string_view name) const;
    Matrix matrix(int layer, std::string_view suffix) const;
    /// REQUIRES that the file has layer `layer`.
    const LayerGroups& groups(int layer) const { return groups_[layer]; }
    std::size_t bytes() const { return bytes_; }

 private:
    void pack(const GgufFile& file, const Device& device, const Progress& progress);
    kernels::PackedGroup group(int layer, std::initializer_list<const char*> suffixes) const;

    ggml_context_ptr ctx_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::unordered_map<std::string, ggml_tensor*> tensors_;
    std::unique_ptr<kernels::HugeMemory> memory_ = std::make_unique<kernels::HugeMemory>();  ///< of the packed matrices
    std::unordered_map<const ggml_tensor*, std::unique_ptr<kernels::PackedMatrix>> packed_;
    std::vector<LayerGroups> groups_;
    std::size_t bytes_ = 0;
};

}  // namespace bastion
