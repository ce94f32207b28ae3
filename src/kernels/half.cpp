#include "kernels/half.h"

#include <algorithm>

#include "kernels/custom_op.h"
#include "kernels/half_tiles.h"

namespace bastion::kernels {
namespace {

using TileKernel = void (*)(const HalfTile&, float*, std::int64_t);

TileKernel kernel_for(ggml_type type, bool wide) {
    if (type == GGML_TYPE_F16) return wide ? tile_f16_avx512 : tile_f16_avx2;
    return wide ? tile_bf16_avx512 : tile_bf16_avx2;
}

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor *w = dst->src[0], *x = dst->src[1];
    auto& pool = *static_cast<ThreadPool*>(userdata);
    const std::int64_t tiles = (w->ne[1] + kHalfTileRows - 1) / kHalfTileRows;
    pool.run(tiles, pool.grain(tiles, 1), [&](std::int64_t begin, std::int64_t end) {
        multiply_half_rows(pool.isa(), w, begin * kHalfTileRows, std::min(end * kHalfTileRows, w->ne[1]), x, dst);
    });
}

}  // namespace

bool half_kernels_support(ggml_type type) { return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

void multiply_half_rows(Isa isa, const ggml_tensor* w, std::int64_t begin, std::int64_t end, const ggml_tensor* x,
                        ggml_tensor* dst) {
    const auto* weights = static_cast<const std::uint16_t*>(w->data);
    const std::int64_t k = w->ne[0], count = x->ne[1];
    for (std::int64_t row = begin; row < end; row += kHalfTileRows) {
        HalfTile tile;
        tile.weights = weights + row * k;
        tile.k = k;
        tile.rows = static_cast<int>(std::min<std::int64_t>(kHalfTileRows, end - row));
        tile.x_stride = static_cast<std::int64_t>(x->nb[1] / sizeof(float));
        const TileKernel kernel = kernel_for(w->type, isa == Isa::avx512 && tile.rows == kHalfTileRows);
        for (std::int64_t first = 0; first < count; first += kHalfColumns) {
            tile.x = static_cast<const float*>(x->data) + first * tile.x_stride;
            tile.columns = static_cast<int>(std::min<std::int64_t>(kHalfColumns, count - first));
            float* out = static_cast<float*>(dst->data) + first * dst->ne[0] + row;
            kernel(tile, out, dst->ne[0]);
        }
    }
}

ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* x) {
    return custom_op(ctx, GGML_TYPE_F32, {w->ne[1], x->ne[1]}, {w, x}, multiply_op, &pool);
}

}  // namespace bastion::kernels
