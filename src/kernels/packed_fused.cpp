#include "kernels/packed_fused.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/custom_op.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_avx2.h"

namespace bastion::kernels {
namespace {

constexpr int kParts = 8;  // partial sums of squares, added in a fixed order

float inverse_rms(const float* x, std::int64_t k, float eps) {
    double sums[kParts] = {};
    std::int64_t i = 0;
    for (; i + kParts <= k; i += kParts) {
        for (int j = 0; j < kParts; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
    }
    for (; i < k; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
    const double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    return 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(k)) + eps);
}

void norm_quantize_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const auto* weight = static_cast<const float*>(dst->src[1]->data);
    const float eps = parameter(dst);
    const std::int64_t k = x->ne[0];
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> normed(k);
        for (std::int64_t r = begin; r < end; ++r) {
            const float* row = float_row(x, r);
            const float scale = inverse_rms(row, k, eps);
            for (std::int64_t i = 0; i < k; ++i) normed[i] = row[i] * scale * weight[i];
            quantize_activations(normed.data(), k, static_cast<char*>(dst->data) + r * dst->nb[1]);
        }
    });
}

void multiply_group_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& group = *static_cast<const PackedGroup*>(userdata);
    const ggml_tensor* x = dst->src[0];
    std::int64_t tiles = 0;
    for (const PackedMatrix* w : group) tiles += w->tiles();
    ThreadPool& pool = group.front()->pool();
    pool.run(tiles, PackedMatrix::tiles_at_once(pool, tiles), [&](std::int64_t begin, std::int64_t end) {
        std::int64_t first = 0;  // tile of the group that the matrix begins with
        auto* out = static_cast<float*>(dst->data);
        for (const PackedMatrix* w : group) {
            const std::int64_t from = std::max(begin, first) - first;
            const std::int64_t to = std::min(end, first + w->tiles()) - first;
            if (from < to) {
                w->multiply(from, to, static_cast<const char*>(x->data), x->nb[1], x->ne[1], out, dst->ne[0]);
            }
            first += w->tiles();
            out += w->rows();
        }
    });
}

template <bool Quantise>
void gated_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& group = *static_cast<const PackedGroup*>(userdata);
    const ggml_tensor* x = dst->src[0];
    const PackedMatrix &gate = *group[0], &up = *group[1];
    const std::int64_t m = gate.rows(), n = dst->ne[1];
    ThreadPool& pool = gate.pool();
    pool.run(gate.tiles(), PackedMatrix::tiles_at_once(pool, gate.tiles()), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kTileRows, rows = std::min(end * kTileRows, m) - first;
        const auto products = std::make_unique_for_overwrite<float[]>(2 * n * rows);
        float *gates = products.get(), *ups = gates + n * rows;
        const auto* activations = static_cast<const char*>(x->data);
        gate.multiply(begin, end, activations, x->nb[1], n, gates - first, rows);
        up.multiply(begin, end, activations, x->nb[1], n, ups - first, rows);
        for (std::int64_t c = 0; c < n; ++c) {
            char* row = static_cast<char*>(dst->data) + c * dst->nb[1];
            float* out = Quantise ? gates + c * rows : reinterpret_cast<float*>(row) + first;
            gated_avx2(gates + c * rows, ups + c * rows, rows, out);
            if constexpr (Quantise) {
                quantize_activations(out, rows, row + first / kUnitColumns * sizeof(ActivationUnit));
            }
        }
    });
}

/// Chunks whose outputs stay in the second-level cache.
constexpr std::int64_t kArgmaxTiles = 64;

void argmax_packed_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& w = *static_cast<const PackedMatrix*>(userdata);
    const ggml_tensor* x = dst->src[0];
    const std::int64_t n = x->ne[1], grain = std::min(PackedMatrix::tiles_at_once(w.pool(), w.tiles()), kArgmaxTiles);
    struct Best {
        std::int64_t index = -1;  // none
        float value = 0;
    };
    std::vector<Best> found((w.tiles() + grain - 1) / grain * n);  // of every chunk
    w.pool().run(w.tiles(), grain, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kTileRows, rows = std::min(end * kTileRows, w.rows()) - first;
        const auto products = std::make_unique_for_overwrite<float[]>(n * rows);
        w.multiply(begin, end, static_cast<const char*>(x->data), x->nb[1], n, products.get() - first, rows);
        for (std::int64_t c = 0; c < n; ++c) {
            const float* row = products.get() + c * rows;
            const std::int64_t best = index_of_largest(row, rows, true);
            found[begin / grain * n + c] = {first + best, row[best]};
        }
    });
    for (std::int64_t c = 0; c < n; ++c) {
        Best best = found[c];
        for (std::size_t i = c + n; i < found.size(); i += n) {
            if (found[i].index < 0) continue;
            if (found[i].value > best.value || std::isnan(best.value)) best = found[i];
        }
        static_cast<std::int32_t*>(dst->data)[c] = static_cast<std::int32_t>(best.index);
    }
}

}  // namespace

ggml_tensor* norm_quantize_for_packed(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* weight,
                                      float eps) {
    ggml_tensor* out = custom_op(ctx, GGML_TYPE_I8, {static_cast<std::int64_t>(activation_bytes(x->ne[0])), x->ne[1]},
                                 {x, weight}, norm_quantize_op, &pool);
    set_parameter(out, eps);
    return out;
}

ggml_tensor* multiply_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* quantized) {
    std::int64_t rows = 0;
    for (const PackedMatrix* w : group) rows += w->rows();
    return custom_op(ctx, GGML_TYPE_F32, {rows, quantized->ne[1]}, {quantized}, multiply_group_op, &group);
}

ggml_tensor* gated_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* quantized) {
    return custom_op(ctx, GGML_TYPE_F32, {group.front()->rows(), quantized->ne[1]}, {quantized}, gated_op<false>,
                     &group);
}

ggml_tensor* gated_quantized_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* rows) {
    return custom_op(ctx, GGML_TYPE_I8,
                     {static_cast<std::int64_t>(activation_bytes(group.front()->rows())), rows->ne[1]}, {rows},
                     gated_op<true>, &group);
}

ggml_tensor* argmax_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* rows) {
    return custom_op(ctx, GGML_TYPE_I32, {rows->ne[1]}, {rows}, argmax_packed_op, &w);
}

}  // namespace bastion::kernels
