#include "kernels/half.h"

#include <algorithm>

#include "kernels/avx2.h"
#include "kernels/custom_op.h"
#include "kernels/half_avx2.h"

namespace bastion::kernels {
namespace {

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor *w = dst->src[0], *x = dst->src[1];
    auto& pool = *static_cast<ThreadPool*>(userdata);
    const std::int64_t tiles = (w->ne[1] + kHalfTileRows - 1) / kHalfTileRows;
    pool.run(tiles, pool.grain(tiles, 1), [&](std::int64_t begin, std::int64_t end) {
        multiply_half_rows(w, begin * kHalfTileRows, std::min(end * kHalfTileRows, w->ne[1]),
                           static_cast<const float*>(x->data), static_cast<std::int64_t>(x->nb[1] / sizeof(float)),
                           x->ne[1], static_cast<float*>(dst->data), dst->ne[0]);
    });
}

}  // namespace

bool half_kernels_support(ggml_type type) {
    return avx2_available() && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
}

void multiply_half_rows(const ggml_tensor* w, std::int64_t begin, std::int64_t end, const float* x,
                        std::int64_t x_stride, std::int64_t count, float* out, std::int64_t out_stride) {
    const auto* weights = static_cast<const std::uint16_t*>(w->data);
    for (std::int64_t row = begin; row < end; row += kHalfTileRows) {
        HalfTile tile;
        tile.weights = weights + row * w->ne[0];
        tile.k = w->ne[0];
        tile.rows = static_cast<int>(std::min<std::int64_t>(kHalfTileRows, end - row));
        tile.x_stride = x_stride;
        for (std::int64_t first = 0; first < count; first += kHalfColumns) {
            tile.x = x + first * x_stride;
            tile.columns = static_cast<int>(std::min<std::int64_t>(kHalfColumns, count - first));
            float* place = out + first * out_stride + row;
            if (w->type == GGML_TYPE_F16) {
                tile_f16_avx2(tile, place, out_stride);
            } else {
                tile_bf16_avx2(tile, place, out_stride);
            }
        }
    }
}

ggml_tensor* multiply_half(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* x) {
    return custom_op(ctx, GGML_TYPE_F32, {w->ne[1], x->ne[1]}, {w, x}, multiply_op, &pool);
}

}  // namespace bastion::kernels
