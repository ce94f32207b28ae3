#include "kernels/packed.h"

#include <algorithm>
#include <cstring>

#include "kernels/packed_avx2.h"

namespace bastion::kernels {
namespace {

// Source blocks of 32 values as the GGUF format defines them.
struct BlockQ4_0 {
    ggml_fp16_t scale;
    std::uint8_t quants[16];  // value i in the low nibble of byte i, value i + 16 in the high one
};
struct BlockQ4_1 {
    ggml_fp16_t scale, minimum;
    std::uint8_t quants[16];
};
struct BlockQ8_0 {
    ggml_fp16_t scale;
    std::int8_t quants[32];
};

std::size_t packed_block_bytes(ggml_type type) {
    const std::size_t scales = kTileRows * sizeof(ggml_fp16_t);
    switch (type) {
        case GGML_TYPE_Q4_0:
            return kTileRows * 16 + scales;
        case GGML_TYPE_Q4_1:
            return kTileRows * 16 + 2 * scales;
        default:
            return kTileRows * 32 + scales;  // Q8_0
    }
}

/// Value i of 32 4-bit values in the source's order.
std::uint8_t nibble(const std::uint8_t* quants, int i) { return i < 16 ? quants[i] & 0xF : quants[i - 16] >> 4; }

/// Puts one source row's 4-bit block into its lane of a packed block: byte j of group g holds columns 8g + j (low
/// nibble) and 8g + 4 + j (high nibble).
void pack_nibbles(const std::uint8_t* quants, int row, std::uint8_t* block) {
    for (int g = 0; g < 4; ++g) {
        for (int j = 0; j < 4; ++j) {
            block[g * 64 + row * 4 + j] =
                static_cast<std::uint8_t>(nibble(quants, 8 * g + j) | (nibble(quants, 8 * g + 4 + j) << 4));
        }
    }
}

void pack_bytes(const std::int8_t* quants, int row, std::uint8_t* block) {
    for (int g = 0; g < 8; ++g) std::memcpy(block + g * 64 + row * 4, quants + g * 4, 4);
}

void store_half(std::uint8_t* block, std::size_t offset, int row, ggml_fp16_t value) {
    std::memcpy(block + offset + row * sizeof value, &value, sizeof value);
}

void pack_block(ggml_type type, const char* source, std::int64_t index, int row, std::uint8_t* block) {
    constexpr std::size_t kHalves = kTileRows * sizeof(ggml_fp16_t);
    if (type == GGML_TYPE_Q4_0) {
        const auto& b = reinterpret_cast<const BlockQ4_0*>(source)[index];
        pack_nibbles(b.quants, row, block);
        store_half(block, kTileRows * 16, row, b.scale);
    } else if (type == GGML_TYPE_Q4_1) {
        const auto& b = reinterpret_cast<const BlockQ4_1*>(source)[index];
        pack_nibbles(b.quants, row, block);
        store_half(block, kTileRows * 16, row, b.scale);
        store_half(block, kTileRows * 16 + kHalves, row, b.minimum);
    } else {
        const auto& b = reinterpret_cast<const BlockQ8_0*>(source)[index];
        pack_bytes(b.quants, row, block);
        store_half(block, kTileRows * 32, row, b.scale);
    }
}

void quantize_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], 4, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            const auto* row = reinterpret_cast<const float*>(static_cast<const char*>(x->data) + r * x->nb[1]);
            quantize_activations(row, x->ne[0], static_cast<char*>(dst->data) + r * dst->nb[1]);
        }
    });
}

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& w = *static_cast<const PackedMatrix*>(userdata);
    const ggml_tensor* x = dst->src[0];
    w.pool().run(w.tiles(), w.pool().grain(w.tiles(), 1), [&](std::int64_t begin, std::int64_t end) {
        w.multiply(begin, end, static_cast<const char*>(x->data), x->nb[1], x->ne[1], static_cast<float*>(dst->data),
                   dst->ne[0]);
    });
}

}  // namespace

bool packed_kernels_available() { return avx2_available(); }

bool PackedMatrix::supports(ggml_type type) {
    return type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q8_0;
}

PackedMatrix::PackedMatrix(const ggml_tensor* w, ThreadPool& pool)
    : type_(w->type), k_(w->ne[0]), m_(w->ne[1]), block_bytes_(packed_block_bytes(w->type)), pool_(pool) {
    const std::int64_t blocks = k_ / 32;
    const std::size_t tile_bytes = static_cast<std::size_t>(blocks) * block_bytes_;
    data_.resize(static_cast<std::size_t>(tiles()) * tile_bytes);
    pool.run(tiles(), pool.grain(tiles(), 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin * kTileRows; row < std::min(end * kTileRows, m_); ++row) {
            const char* source = static_cast<const char*>(w->data) + row * w->nb[1];
            std::uint8_t* tile = data_.data() + static_cast<std::size_t>(row / kTileRows) * tile_bytes;
            for (std::int64_t b = 0; b < blocks; ++b) {
                pack_block(type_, source, b, static_cast<int>(row % kTileRows), tile + b * block_bytes_);
            }
        }
    });
}

void PackedMatrix::multiply(std::int64_t begin_tile, std::int64_t end_tile, const char* activations,
                            std::size_t activation_row_bytes, std::int64_t count, float* out,
                            std::int64_t stride) const {
    const std::int64_t blocks = k_ / 32;
    float products[kMaxColumns * kTileRows];
    for (std::int64_t tile = begin_tile; tile < end_tile; ++tile) {
        const std::uint8_t* weights = data_.data() + static_cast<std::size_t>(tile * blocks) * block_bytes_;
        const std::int64_t valid = std::min<std::int64_t>(kTileRows, m_ - tile * kTileRows);
        for (std::int64_t first = 0; first < count; first += kMaxColumns) {
            const int columns = static_cast<int>(std::min<std::int64_t>(kMaxColumns, count - first));
            const char* acts = activations + first * activation_row_bytes;
            switch (type_) {
                case GGML_TYPE_Q4_0:
                    tile_q4_0_avx2(weights, blocks, acts, activation_row_bytes, columns, products);
                    break;
                case GGML_TYPE_Q4_1:
                    tile_q4_1_avx2(weights, blocks, acts, activation_row_bytes, columns, products);
                    break;
                default:
                    tile_q8_0_avx2(weights, blocks, acts, activation_row_bytes, columns, products);
                    break;
            }
            for (int c = 0; c < columns; ++c) {
                std::copy_n(products + c * kTileRows, valid, out + (first + c) * stride + tile * kTileRows);
            }
        }
    }
}

std::size_t activation_bytes(std::int64_t k) { return static_cast<std::size_t>(k + k / 32 * 2 * sizeof(float)); }

void quantize_activations(const float* x, std::int64_t k, char* out) { quantize_activations_avx2(x, k, out); }

ggml_tensor* quantize_for_packed(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x) {
    ggml_tensor* sources[] = {x};
    return ggml_custom_4d(ctx, GGML_TYPE_I8, static_cast<std::int64_t>(activation_bytes(x->ne[0])), x->ne[1], 1, 1,
                          sources, 1, quantize_op, 1, &pool);
}

ggml_tensor* multiply_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* quantized) {
    ggml_tensor* sources[] = {quantized};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, w.rows(), quantized->ne[1], 1, 1, sources, 1, multiply_op, 1,
                          const_cast<PackedMatrix*>(&w));
}

}  // namespace bastion::kernels
