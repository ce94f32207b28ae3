#include "model/kv.h"

#include <cstring>
#include <numeric>
#include <string>

#include "kernels/huge_memory.h"

namespace bastion {
namespace {

/// Moves cache rows by ggml operations, for devices whose memory the host cannot touch. All rows are gathered before
/// any is written, so overlapping moves are safe.
Status move_rows_on_device(const Device& device, std::span<ggml_tensor* const> tensors,
                           const std::vector<std::int32_t>& from, const std::vector<std::int64_t>& to) {
    const std::size_t nodes = tensors.size() * 2 + 8;
    ggml_context_ptr ctx(
        ggml_init({ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
    ggml_cgraph* graph = ggml_new_graph_custom(ctx.get(), nodes, false);
    ggml_tensor* source = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, static_cast<std::int64_t>(from.size()));
    ggml_tensor* sink = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I64, static_cast<std::int64_t>(to.size()));
    ggml_set_input(source);
    ggml_set_input(sink);
    for (ggml_tensor* cache : tensors) {
        ggml_tensor* rows = ggml_get_rows(ctx.get(), cache, source);
        ggml_build_forward_expand(graph, ggml_set_rows(ctx.get(), cache, rows, sink));
    }
    ggml_gallocr_ptr allocator(ggml_gallocr_new(device.buffer_type()));
    if (!ggml_gallocr_alloc_graph(allocator.get(), graph)) return runtime_error("out of memory on " + device.name());
    ggml_backend_tensor_set(source, from.data(), 0, ggml_nbytes(source));
    ggml_backend_tensor_set(sink, to.data(), 0, ggml_nbytes(sink));
    return compute(device, graph);
}

}  // namespace

std::size_t KvPool::bytes_needed(int layers, int kv_width, int slots, int cells, ggml_type type) {
    return 2 * static_cast<std::size_t>(layers) * slots * cells * ggml_row_size(type, kv_width);
}

Result<KvPool> KvPool::create(const Device& device, int layers, int kv_width, int slots, int cells, ggml_type type) {
    if (kv_width % ggml_blck_size(type) != 0) {
        return bad_input(std::string("a KV cache of type ") + ggml_type_name(type) +
                         " needs a width that is a multiple of " + std::to_string(ggml_blck_size(type)) +
                         ", the model's is " + std::to_string(kv_width));
    }
    KvPool pool;
    pool.cells_ = cells;
    pool.slots_ = slots;
    pool.ctx_.reset(ggml_init({ggml_tensor_overhead() * (2 * static_cast<std::size_t>(layers) + 1), nullptr, true}));
    for (int layer = 0; layer < layers; ++layer) {
        const std::int64_t rows = static_cast<std::int64_t>(slots) * cells;
        pool.keys_.push_back(ggml_new_tensor_2d(pool.ctx_.get(), type, kv_width, rows));
        pool.values_.push_back(ggml_new_tensor_2d(pool.ctx_.get(), type, kv_width, rows));
    }
    pool.buffer_.reset(ggml_backend_alloc_ctx_tensors(pool.ctx_.get(), device.backend()));
    if (!pool.buffer_) {
        return runtime_error("not enough memory on " + device.name() + " for a KV cache of " +
                             std::to_string(bytes_needed(layers, kv_width, slots, cells, type) >> 20) + " MiB");
    }
    if (device.is_cpu()) {
        kernels::prefer_large_pages(ggml_backend_buffer_get_base(pool.buffer_.get()),
                                    ggml_backend_buffer_get_size(pool.buffer_.get()));
    }
    // Masked cells are multiplied by zero on some devices: they must not hold NaN.
    ggml_backend_buffer_clear(pool.buffer_.get(), 0);
    pool.bytes_ = ggml_backend_buffer_get_size(pool.buffer_.get());
    return pool;
}

Status KvPool::keep_rows(const Device& device, int slot, int committed, std::span<const std::int32_t> kept) {
    std::vector<std::int32_t> from;
    std::vector<std::int64_t> to;
    const std::int64_t base = static_cast<std::int64_t>(slot) * cells_ + committed;
    for (std::size_t j = 0; j < kept.size(); ++j) {
        if (kept[j] == static_cast<std::int32_t>(j)) continue;
        from.push_back(static_cast<std::int32_t>(base + kept[j]));
        to.push_back(base + static_cast<std::int64_t>(j));
    }
    if (from.empty()) return {};

    std::vector<ggml_tensor*> tensors = keys_;
    tensors.insert(tensors.end(), values_.begin(), values_.end());
    if (!device.is_cpu()) return move_rows_on_device(device, tensors, from, to);
    for (ggml_tensor* cache : tensors) {
        auto* data = static_cast<char*>(cache->data);
        const std::size_t row = cache->nb[1];
        // Sources increase and lie behind their sinks, so no row is overwritten before it has been moved.
        for (std::size_t j = 0; j < from.size(); ++j) std::memcpy(data + to[j] * row, data + from[j] * row, row);
    }
    return {};
}

Result<FeaturePool> FeaturePool::create(const Device& device, int width, int rows) {
    FeaturePool pool;
    pool.rows_ = rows;
    pool.ctx_.reset(ggml_init({ggml_tensor_overhead() * 2, nullptr, true}));
    pool.tensor_ = ggml_new_tensor_2d(pool.ctx_.get(), GGML_TYPE_F32, width, rows);
    pool.buffer_.reset(ggml_backend_alloc_ctx_tensors(pool.ctx_.get(), device.backend()));
    if (!pool.buffer_) return runtime_error("not enough memory on " + device.name() + " for the target's features");
    ggml_backend_buffer_clear(pool.buffer_.get(), 0);
    pool.bytes_ = ggml_backend_buffer_get_size(pool.buffer_.get());
    pool.free_.resize(rows);
    std::iota(pool.free_.rbegin(), pool.free_.rend(), 0);
    return pool;
}

std::vector<std::int32_t> FeaturePool::take(int count) {
    std::vector<std::int32_t> rows(free_.rbegin(), free_.rbegin() + count);
    free_.resize(free_.size() - count);
    return rows;
}

void FeaturePool::give_back(std::span<const std::int32_t> rows) { free_.insert(free_.end(), rows.begin(), rows.end()); }

}  // namespace bastion
