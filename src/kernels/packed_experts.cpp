#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/custom_op.h"
#include "kernels/packed.h"

namespace bastion::kernels {
namespace {

/// The pairs (row, rank) of a pass in the order of their experts, so that an expert's weights are unpacked once for all
/// rows that chose it.
struct Grouping {
    std::vector<std::int32_t> order;  ///< pair numbers, row * used + rank
    std::vector<std::int32_t> begin;  ///< [experts + 1], where an expert's pairs begin in `order`
};

Grouping group(const ggml_tensor* chosen, std::int64_t experts) {
    const std::int64_t used = chosen->ne[0], pairs = ggml_nelements(chosen);
    std::vector<std::int32_t> expert_of(pairs);
    Grouping g;
    g.begin.assign(experts + 1, 0);
    for (std::int64_t p = 0; p < pairs; ++p) {
        const char* row = static_cast<const char*>(chosen->data) + p / used * chosen->nb[1];
        expert_of[p] = reinterpret_cast<const std::int32_t*>(row)[p % used];
        ++g.begin[expert_of[p] + 1];
    }
    std::partial_sum(g.begin.begin(), g.begin.end(), g.begin.begin());
    std::vector<std::int32_t> next(g.begin.begin(), g.begin.end() - 1);
    g.order.resize(pairs);
    for (std::int64_t p = 0; p < pairs; ++p) g.order[next[expert_of[p]]++] = static_cast<std::int32_t>(p);
    return g;
}

/// Tiles [first, last) of one expert for its pairs.
struct Item {
    std::int32_t expert;
    std::int64_t first, last;
};

std::vector<Item> cut(const Grouping& g, std::int64_t tiles, std::int64_t grain) {
    std::vector<Item> items;
    for (std::size_t e = 0; e + 1 < g.begin.size(); ++e) {
        if (g.begin[e] == g.begin[e + 1]) continue;
        for (std::int64_t first = 0; first < tiles; first += grain) {
            items.push_back({static_cast<std::int32_t>(e), first, std::min(first + grain, tiles)});
        }
    }
    return items;
}

void multiply_experts_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& w = *static_cast<const PackedMatrix*>(userdata);
    const ggml_tensor *x = dst->src[0], *chosen = dst->src[1];
    const std::int64_t m = dst->ne[0], used = chosen->ne[0], tiles = m / kTileRows;
    const bool shared = x->ne[1] == chosen->ne[1];  // all experts of a row read the same activations
    const Grouping g = group(chosen, w.rows() / m);

    std::vector<char> activations(g.order.size() * x->nb[1]);
    for (std::size_t i = 0; i < g.order.size(); ++i) {
        const std::int64_t row = shared ? g.order[i] / used : g.order[i];
        std::memcpy(activations.data() + i * x->nb[1], static_cast<const char*>(x->data) + row * x->nb[1], x->nb[1]);
    }
    std::vector<float> products(g.order.size() * m);
    const std::vector<Item> items = cut(g, tiles, PackedMatrix::tiles_at_once(w.pool(), tiles));
    w.pool().run(static_cast<std::int64_t>(items.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const Item& item = items[i];
            const std::int64_t pair = g.begin[item.expert], count = g.begin[item.expert + 1] - pair;
            // The matrix counts its rows over all experts, the output from the expert's first.
            const std::int64_t offset = item.expert * tiles;
            w.multiply(offset + item.first, offset + item.last, activations.data() + pair * x->nb[1], x->nb[1], count,
                       products.data() + pair * m - offset * kTileRows, m);
        }
    });
    for (std::size_t i = 0; i < g.order.size(); ++i) {
        char* out = static_cast<char*>(dst->data) + g.order[i] / used * dst->nb[2] + g.order[i] % used * dst->nb[1];
        std::memcpy(out, products.data() + i * m, m * sizeof(float));
    }
}

}  // namespace

ggml_tensor* multiply_experts_packed(ggml_context* ctx, const PackedMatrix& w, std::int64_t expert_rows,
                                     ggml_tensor* quantized, ggml_tensor* chosen) {
    return custom_op(ctx, GGML_TYPE_F32, {expert_rows, chosen->ne[0], chosen->ne[1]}, {quantized, chosen},
                     multiply_experts_op, &w);
}

}  // namespace bastion::kernels
