#include "kernels/packed.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "kernels/custom_op.h"
#include "kernels/packed_avx2.h"
#include "kernels/packed_avx512.h"
#include "kernels/packed_block.h"

namespace bastion::kernels {
namespace {

constexpr std::int64_t kMostTileRows = 2 * kTileRows;  ///< weight rows that are multiplied at once
constexpr int kMostColumns = std::max({kMaxColumns, kMaxColumnsAvx512, kMaxColumnsOfPair, kMaxColumnsOfSums});

constexpr std::size_t kCacheLine = 64;

/// Whole cache lines to fetch a unit, in bytes, so that `units` of them fetch at least so many.
std::size_t bytes_a_unit(std::size_t bytes, std::size_t units) {
    return (bytes + units * kCacheLine - 1) / (units * kCacheLine) * kCacheLine;
}

void quantize_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            const auto* row = reinterpret_cast<const float*>(static_cast<const char*>(x->data) + r * x->nb[1]);
            quantize_activations(row, x->ne[0], static_cast<char*>(dst->data) + r * dst->nb[1]);
        }
    });
}

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& w = *static_cast<const PackedMatrix*>(userdata);
    const ggml_tensor* x = dst->src[0];
    const float* residual = dst->src[1] ? static_cast<const float*>(dst->src[1]->data) : nullptr;
    w.pool().run(w.tiles(), PackedMatrix::tiles_at_once(w.pool(), w.tiles()),
                 [&](std::int64_t begin, std::int64_t end) {
                     w.multiply(begin, end, static_cast<const char*>(x->data), x->nb[1], x->ne[1],
                                static_cast<float*>(dst->data), dst->ne[0], residual);
                 });
}

void rows_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& w = *static_cast<const PackedMatrix*>(userdata);
    const auto* numbers = static_cast<const std::int32_t*>(dst->src[0]->data);
    w.pool().run(dst->ne[1], kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            w.read_row(numbers[i], static_cast<float*>(dst->data) + i * dst->ne[0]);
    });
}

}  // namespace

bool PackedMatrix::supports(ggml_type type, std::int64_t k) {
    const auto form = form_of(type);
    return form && k % (units_per_block(*form) * kUnitColumns) == 0;
}

std::size_t PackedMatrix::bytes_of(ggml_type type, std::int64_t k, std::int64_t m) {
    const Form form = *form_of(type);
    const auto tiles = static_cast<std::size_t>((m + kTileRows - 1) / kTileRows);
    return tiles * static_cast<std::size_t>(k / (units_per_block(form) * kUnitColumns)) * block_bytes(form);
}

PackedMatrix::PackedMatrix(const ggml_tensor* w, ThreadPool& pool, HugeMemory& memory)
    : form_(*form_of(w->type)),
      k_(w->ne[0]),
      m_(w->ne[1] * w->ne[2]),
      bytes_(bytes_of(w->type, k_, m_)),
      data_(memory.take(bytes_)),
      pool_(pool) {
    const std::int64_t columns = units_per_block(form_) * kUnitColumns, blocks = k_ / columns;
    const std::size_t source_bytes = ggml_row_size(w->type, columns);
    pool.run(tiles(), pool.grain(tiles(), 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t tile = begin; tile < end; ++tile) {
            std::uint8_t* packed = data_ + static_cast<std::size_t>(tile) * tile_bytes();
            const int valid = static_cast<int>(std::min<std::int64_t>(kTileRows, m_ - tile * kTileRows));
            if (valid < kTileRows) std::memset(packed, 0, tile_bytes());
            for (int row = 0; row < valid; ++row) {
                const char* source = static_cast<const char*>(w->data) + (tile * kTileRows + row) * w->nb[1];
                for (std::int64_t b = 0; b < blocks; ++b) {
                    pack_block(form_, source + b * source_bytes, row, packed + b * block_bytes(form_));
                }
            }
        }
    });
}

void PackedMatrix::multiply(std::int64_t begin_tile, std::int64_t end_tile, const char* activations,
                            std::size_t activation_row_bytes, std::int64_t count, float* out, std::int64_t stride,
                            const float* residual) const {
    const bool wide = pool_.isa() >= Isa::avx512;
    const auto one_tile =
        takes_floats() ? (wide ? tile_half_avx512 : tile_half_avx2) : (wide ? tile_avx512 : tile_avx2);
    // With few rows memory is the limit, and one stream of weights is faster than two.
    const bool pairs = wide && has_pairs_avx512(form_) && count > kMaxColumnsAvx512;
    const bool sums = pool_.isa() >= Isa::avx512_sums && has_sums_avx512(form_);
    const auto two_tiles = sums ? sums_avx512 : pair_avx512;
    const std::int64_t most_of_one = wide ? kMaxColumnsAvx512 : kMaxColumns;
    const std::int64_t most_of_two = sums ? kMaxColumnsOfSums : kMaxColumnsOfPair;
    const std::int64_t units = k_ / kUnitColumns;
    float padded[kMostColumns * kMostTileRows];  // where tiles go beyond the matrix
    for (std::int64_t tile = begin_tile; tile < end_tile;) {
        const int side = pairs && tile + 1 < end_tile ? 2 : 1;
        const std::int64_t most = side == 2 ? most_of_two : most_of_one;
        const std::int64_t parts = (count + most - 1) / most;
        const std::uint8_t* weights = data_ + static_cast<std::size_t>(tile) * tile_bytes();
        const std::int64_t row = tile * kTileRows, tile_rows = side * kTileRows, valid = std::min(tile_rows, m_ - row);
        const bool whole = valid == tile_rows;
        // The next two tiles are fetched during all parts, evenly.
        const std::uint8_t* next = weights + side * tile_bytes();
        const std::size_t next_bytes = std::min<std::int64_t>(2, tiles() - tile - side) * tile_bytes();
        Ahead ahead;
        if (side == 2 && next_bytes > 0) ahead = {next, bytes_a_unit(next_bytes, parts * units)};
        // Rows are shared out evenly: a part of few rows is as slow as one of many.
        for (std::int64_t first = 0, left = parts; left > 0; --left) {
            const auto columns = static_cast<int>((count - first + left - 1) / left);
            const char* x = activations + first * activation_row_bytes;
            float* to = out + first * stride + row;
            const ProductsTo products = whole ? ProductsTo{to, stride} : ProductsTo{padded, kMostTileRows};
            if (side == 2) {
                two_tiles(form_, weights, units, x, activation_row_bytes, columns, products, ahead);
                ahead.next += units * ahead.bytes_a_unit;
                if (ahead.next >= next + next_bytes) ahead = {};
            } else {
                one_tile(form_, weights, units, x, activation_row_bytes, columns, products);
            }
            for (int c = 0; c < columns && !whole; ++c) std::copy_n(padded + c * kMostTileRows, valid, to + c * stride);
            first += columns;
        }
        tile += side;
    }
    // Row by row: a pair of tiles has only two cache lines of each.
    if (!residual) return;
    const std::int64_t begin = begin_tile * kTileRows, end = std::min(end_tile * kTileRows, m_);
    for (std::int64_t c = 0; c < count; ++c) {
        float* row = out + c * stride;
        std::transform(row + begin, row + end, residual + c * stride + begin, row + begin, std::plus());
    }
}

std::int64_t PackedMatrix::tiles_at_once(const ThreadPool& pool, std::int64_t tiles) {
    const std::int64_t least = pool.grain(tiles, 2) + 1;
    for (std::int64_t grain = least / 2 * 2; grain < 2 * least; grain += 2) {
        if (tiles % (grain * pool.threads()) == 0) return grain;
    }
    return least / 2 * 2;
}

void PackedMatrix::read_row(std::int64_t row, float* out) const {
    const std::uint8_t* tile = data_ + static_cast<std::size_t>(row / kTileRows) * tile_bytes();
    const int columns = units_per_block(form_) * kUnitColumns;
    for (std::int64_t b = 0; b < k_ / columns; ++b) {
        unpack_block(form_, tile + b * block_bytes(form_), static_cast<int>(row % kTileRows), out + b * columns);
    }
}

std::size_t activation_bytes(std::int64_t k) {
    const std::size_t bytes = k / kUnitColumns * sizeof(ActivationUnit);
    // With an odd number of cache lines the same columns of many rows do not meet in one set of the cache.
    return ((bytes + kCacheLine - 1) / kCacheLine | 1) * kCacheLine;
}

void quantize_activations(const float* x, std::int64_t k, char* out) { quantize_activations_avx2(x, k, out); }

ggml_tensor* quantize_for_packed(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x) {
    return custom_op(ctx, GGML_TYPE_I8, {static_cast<std::int64_t>(activation_bytes(x->ne[0])), x->ne[1]}, {x},
                     quantize_op, &pool);
}

ggml_tensor* rows_of_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* numbers) {
    return custom_op(ctx, GGML_TYPE_F32, {w.columns(), numbers->ne[0]}, {numbers}, rows_op, &w);
}

ggml_tensor* multiply_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* rows, ggml_tensor* residual) {
    std::vector<ggml_tensor*> sources{rows};
    if (residual) sources.push_back(residual);
    return custom_op(ctx, GGML_TYPE_F32, {w.rows(), rows->ne[1]}, std::move(sources), multiply_op, &w);
}

}  // namespace bastion::kernels
