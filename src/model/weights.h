// The tensors of a model file on a device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "bastion/engine.h"
#include "bastion/status.h"
#include "model/device.h"
#include "model/gguf.h"

namespace bastion {

/// Immutable after loading. On the CPU the tensors are the mapped file itself.
class Weights {
 public:
    /// `file` must outlive the weights (its mapping is used in place on the CPU).
    static Result<Weights> load(const GgufFile& file, const Device& device, const Progress& progress = {});

    /// The tensor, or nullptr if the file has none of that name.
    ggml_tensor* find(std::string_view name) const;
    ggml_tensor* find(int layer, std::string_view suffix) const;  ///< "blk.<layer>.<suffix>"
    std::size_t bytes() const { return bytes_; }

 private:
    ggml_context_ptr ctx_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::unordered_map<std::string, ggml_tensor*> tensors_;
    std::size_t bytes_ = 0;
};

}  // namespace bastion
