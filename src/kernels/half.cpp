#include "kernels/half.h"

#include <algorithm>

#include "kernels/custom_op.h"
#include "kernels/elementwise_avx2.h"
#include "kernels/half_tiles.h"

namespace bastion::kernels {
namespace {

using TileKernel = void (*)(const HalfTile&, float*, std::int64_t);

TileKernel kernel_for(ggml_type type, bool wide) {
    if (type == GGML_TYPE_F16) return wide ? tile_f16_avx512 : tile_f16_avx2;
    return wide ? tile_bf16_avx512 : tile_bf16_avx2;
}

std::int64_t tiles_of(const ggml_tensor* w) { return (w->ne[1] + kHalfTileRows - 1) / kHalfTileRows; }

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    auto& pool = *static_cast<ThreadPool*>(userdata);
    const ggml_tensor* x = dst->src[0];
    std::int64_t tiles = 0;
    for (int i = 1; i < GGML_MAX_SRC && dst->src[i]; ++i) tiles += tiles_of(dst->src[i]);
    pool.run(tiles, pool.grain(tiles, 1), [&](std::int64_t begin, std::int64_t end) {
        std::int64_t first = 0;  // tile of the group that the matrix begins with
        auto* out = static_cast<float*>(dst->data);
        for (int i = 1; i < GGML_MAX_SRC && dst->src[i]; ++i) {
            const ggml_tensor* w = dst->src[i];
            const std::int64_t from = (std::max(begin, first) - first) * kHalfTileRows;
            const std::int64_t to = std::min((end - first) * kHalfTileRows, w->ne[1]);
            if (from < to) multiply_half_rows(pool.isa(), w, from, to, x, out + from, dst->ne[0]);
            first += tiles_of(w);
            out += w->ne[1];
        }
    });
}

void gated_op(ggml_tensor* dst, int, int, void* userdata) {
    auto& pool = *static_cast<ThreadPool*>(userdata);
    const ggml_tensor *x = dst->src[0], *gate = dst->src[1], *up = dst->src[2];
    const std::int64_t m = dst->ne[0], n = dst->ne[1], tiles = tiles_of(gate);
    pool.run(tiles, pool.grain(tiles, 1), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kHalfTileRows, last = std::min(end * kHalfTileRows, m), rows = last - first;
        std::vector<float> products(2 * n * rows);
        float *gates = products.data(), *ups = gates + n * rows;
        multiply_half_rows(pool.isa(), gate, first, last, x, gates, rows);
        multiply_half_rows(pool.isa(), up, first, last, x, ups, rows);
        for (std::int64_t c = 0; c < n; ++c) {
            gated_avx2(gates + c * rows, ups + c * rows, rows, static_cast<float*>(dst->data) + c * m + first);
        }
    });
}

}  // namespace

bool half_kernels_support(ggml_type type) { return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

void multiply_half_rows(Isa isa, const ggml_tensor* w, std::int64_t begin, std::int64_t end, const ggml_tensor* x,
                        float* out, std::int64_t stride) {
    const auto* weights = static_cast<const std::uint16_t*>(w->data);
    const std::int64_t k = w->ne[0], count = x->ne[1];
    for (std::int64_t row = begin; row < end; row += kHalfTileRows) {
        HalfTile tile;
        tile.weights = weights + row * k;
        tile.k = k;
        tile.rows = static_cast<int>(std::min<std::int64_t>(kHalfTileRows, end - row));
        tile.x_stride = static_cast<std::int64_t>(x->nb[1] / sizeof(float));
        const bool wide = isa == Isa::avx512 && tile.rows == kHalfTileRows;
        const TileKernel kernel = kernel_for(w->type, wide);
        const int at_once = wide ? kHalfColumns : kHalfColumns / 2;
        for (std::int64_t first = 0; first < count; first += at_once) {
            tile.x = static_cast<const float*>(x->data) + first * tile.x_stride;
            tile.columns = static_cast<int>(std::min<std::int64_t>(at_once, count - first));
            kernel(tile, out + first * stride + row - begin, stride);
        }
    }
}

ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, const std::vector<ggml_tensor*>& group,
                           ggml_tensor* x) {
    std::vector<ggml_tensor*> sources{x};
    std::int64_t rows = 0;
    for (ggml_tensor* w : group) {
        sources.push_back(w);
        rows += w->ne[1];
    }
    return custom_op(ctx, GGML_TYPE_F32, {rows, x->ne[1]}, sources, multiply_op, &pool);
}

ggml_tensor* gated_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* x) {
    return custom_op(ctx, GGML_TYPE_F32, {gate->ne[1], x->ne[1]}, {x, gate, up}, gated_op, &pool);
}

}  // namespace bastion::kernels
