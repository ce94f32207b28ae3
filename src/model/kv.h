// Device memory that outlives a pass: key/value caches and the pool of target features.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bastion/status.h"
#include "model/device.h"

namespace bastion {

/// Keys and values of `slots` sequences, `cells` cells each, for every layer of one model. The cells of slot s are
/// rows [s * cells, (s+1) * cells) of each layer's tensor; cell j < committed holds position j, later cells are
/// scratch for the rows of the pass in progress, in row order.
class KvPool {
 public:
    /// `type`: every head must be a whole number of its blocks (heads share no scales); the caller checks that.
    static Result<KvPool> create(const Device& device, int layers, int kv_width, int slots, int cells, ggml_type type);

    ggml_tensor* keys(int layer) const { return keys_[layer]; }      ///< [kv_width, slots * cells]
    ggml_tensor* values(int layer) const { return values_[layer]; }  ///< [kv_width, slots * cells]
    int cells() const { return cells_; }
    int slots() const { return slots_; }
    std::size_t bytes() const { return bytes_; }
    static std::size_t bytes_needed(int layers, int kv_width, int slots, int cells, ggml_type type);

    /// Moves the cells of accepted rows behind the committed prefix: row kept[j] of the last pass to cell
    /// committed + j. kept is increasing and kept[0] == 0.
    Status keep_rows(const Device& device, int slot, int committed, std::span<const std::int32_t> kept);

 private:
    ggml_context_ptr ctx_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<ggml_tensor*> keys_, values_;
    int cells_ = 0, slots_ = 0;
    std::size_t bytes_ = 0;
};

/// Target features of recent rows, waiting to be injected into the drafter: [width, rows] f32 on the device.
class FeaturePool {
 public:
    static Result<FeaturePool> create(const Device& device, int width, int rows);

    ggml_tensor* tensor() const { return tensor_; }
    int rows() const { return rows_; }
    std::size_t bytes() const { return bytes_; }

    /// Takes `count` free rows; the pool is sized so that the engine never asks for more than there are.
    std::vector<std::int32_t> take(int count);
    void give_back(std::span<const std::int32_t> rows);
    int free_rows() const { return static_cast<int>(free_.size()); }

 private:
    ggml_context_ptr ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor* tensor_ = nullptr;
    std::vector<std::int32_t> free_;
    int rows_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace bastion
