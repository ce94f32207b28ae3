#include "kernels/rows.h"

#include <ggml-cpu.h>

#include <algorithm>

#include "kernels/custom_op.h"
#include "kernels/row_converter.h"

namespace bastion::kernels {
namespace {

void quantize_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const RowConverter convert = RowConverter::to_multiply(dst->src[1]->type);
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            convert(float_row(x, r), static_cast<char*>(dst->data) + r * dst->nb[1], x->ne[0]);
        }
    });
}

constexpr std::int64_t kTile = 16;  // weight rows that stay in L1 while all activations pass by

void multiply_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* w = dst->src[0];
    const ggml_tensor* x = dst->src[1];
    const auto vec_dot = ggml_get_type_traits_cpu(w->type)->vec_dot;
    const int k = static_cast<int>(w->ne[0]);
    auto& pool = *static_cast<ThreadPool*>(userdata);
    pool.run(w->ne[1], pool.grain(w->ne[1], kTile), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t tile = begin; tile < end; tile += kTile) {
            const std::int64_t tile_end = std::min(tile + kTile, end);
            for (std::int64_t c = 0; c < x->ne[1]; ++c) {
                const char* activation = static_cast<const char*>(x->data) + c * x->nb[1];
                auto* out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + c * dst->nb[1]);
                for (std::int64_t r = tile; r < tile_end; ++r) {
                    vec_dot(k, out + r, 0, static_cast<const char*>(w->data) + r * w->nb[1], 0, activation, 0, 1);
                }
            }
        }
    });
}

void multiply_experts_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* w = dst->src[0];
    const ggml_tensor* x = dst->src[1];
    const ggml_tensor* chosen = dst->src[2];
    const auto vec_dot = ggml_get_type_traits_cpu(w->type)->vec_dot;
    const int k = static_cast<int>(w->ne[0]);
    const std::int64_t used = chosen->ne[0], rows = chosen->ne[1];
    const bool shared = x->ne[1] == rows;  // all experts of a row read the same activations
    auto& pool = *static_cast<ThreadPool*>(userdata);
    pool.run(w->ne[1], pool.grain(w->ne[1], kTile), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t pair = 0; pair < rows * used; ++pair) {
            const std::int64_t row = pair / used, rank = pair % used;
            const std::int32_t expert = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(chosen->data) +
                                                                              row * chosen->nb[1])[rank];
            const char* activation = static_cast<const char*>(x->data) + (shared ? row : pair) * x->nb[1];
            const char* weights = static_cast<const char*>(w->data) + expert * w->nb[2];
            auto* out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[2] + rank * dst->nb[1]);
            for (std::int64_t r = begin; r < end; ++r)
                vec_dot(k, out + r, 0, weights + r * w->nb[1], 0, activation, 0, 1);
        }
    });
}

}  // namespace

ggml_tensor* quantize_rows(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* weights) {
    const auto bytes = static_cast<std::int64_t>(RowConverter::to_multiply(weights->type).bytes(x->ne[0]));
    return custom_op(ctx, GGML_TYPE_I8, {bytes, x->ne[1]}, {x, weights}, quantize_op, &pool);
}

ggml_tensor* multiply(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized) {
    return custom_op(ctx, GGML_TYPE_F32, {w->ne[1], quantized->ne[1]}, {w, quantized}, multiply_op, &pool);
}

ggml_tensor* multiply_experts(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized,
                              ggml_tensor* chosen) {
    return custom_op(ctx, GGML_TYPE_F32, {w->ne[1], chosen->ne[0], chosen->ne[1]}, {w, quantized, chosen},
                     multiply_experts_op, &pool);
}

}  // namespace bastion::kernels
