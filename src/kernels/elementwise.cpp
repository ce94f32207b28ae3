#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/custom_op.h"
#include "kernels/elementwise_avx2.h"
#include "kernels/row_converter.h"

namespace bastion::kernels {
namespace {

ThreadPool& pool_of(void* userdata) { return *static_cast<ThreadPool*>(userdata); }

bool vectorises(void* userdata) { return pool_of(userdata).isa() != Isa::portable; }

template <RopePairs P>
void rotate_head(const float* x, const float* cosine, const float* sine, std::int64_t pairs, float* out) {
    for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t first = P == RopePairs::halves ? i : 2 * i;
        const std::int64_t second = P == RopePairs::halves ? i + pairs : 2 * i + 1;
        const float a = x[first], b = x[second];
        out[first] = a * cosine[i] - b * sine[i];
        out[second] = a * sine[i] + b * cosine[i];
    }
}

/// All heads of row `row` of x [head_dim, heads, n] -> out [heads][head_dim].
template <RopePairs P>
void rotate_row(const ggml_tensor* x, const ggml_tensor* table, std::int64_t row, float* out) {
    const std::int64_t pairs = x->ne[0] / 2;
    const float* cosine = float_row(table, row);
    for (std::int64_t head = 0; head < x->ne[1]; ++head) {
        const char* in = static_cast<const char*>(x->data) + row * x->nb[2] + head * x->nb[1];
        rotate_head<P>(reinterpret_cast<const float*>(in), cosine, cosine + pairs, pairs, out + head * x->ne[0]);
    }
}

float* row_of(ggml_tensor* dst, std::int64_t row) {
    return reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[2]);
}

template <RopePairs P>
void rotate_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor *x = dst->src[0], *table = dst->src[1];
    pool_of(userdata).run(x->ne[2], kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) rotate_row<P>(x, table, row, row_of(dst, row));
    });
}

template <RopePairs P>
void rotate_and_store_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *table = dst->src[3];
    const ggml_tensor *keys = dst->src[4], *values = dst->src[5];
    const auto* cells = static_cast<const std::int64_t*>(dst->src[6]->data);
    const auto write = [](const float* row, const ggml_tensor* cache, std::int64_t cell) {
        RowConverter::to(cache->type)(row, static_cast<char*>(cache->data) + cell * cache->nb[1], cache->ne[0]);
    };
    pool_of(userdata).run(q->ne[2], kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> rotated(k->ne[0] * k->ne[1]);
        for (std::int64_t row = begin; row < end; ++row) {
            rotate_row<P>(q, table, row, row_of(dst, row));
            rotate_row<P>(k, table, row, rotated.data());
            write(rotated.data(), keys, cells[row]);
            write(float_row(v, row), values, cells[row]);
        }
    });
}

void gated_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto* gate = static_cast<const float*>(dst->src[0]->data);
    const auto* up = static_cast<const float*>(dst->src[1]->data);
    auto* out = static_cast<float*>(dst->data);
    const bool vectorised = vectorises(userdata);
    constexpr std::int64_t kChunk = 1024;  // about a microsecond
    pool_of(userdata).run((ggml_nelements(dst) + kChunk - 1) / kChunk, 2, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kChunk, last = std::min(end * kChunk, ggml_nelements(dst));
        if (vectorised) {
            gated_avx2(gate + first, up + first, last - first, out + first);
        } else {
            for (std::int64_t i = first; i < last; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
        }
    });
}

void argmax_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const bool vectorised = vectorises(userdata);
    pool_of(userdata).run(x->ne[1], 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            static_cast<std::int32_t*>(dst->data)[r] =
                static_cast<std::int32_t>(index_of_largest(float_row(x, r), x->ne[0], vectorised));
        }
    });
}

double sum_of_exp(const float* row, std::int64_t m, float maximum, bool vectorised) {
    if (vectorised) return sum_of_exp_avx2(row, m, maximum);
    double sum = 0.0;
    for (std::int64_t i = 0; i < m; ++i) sum += std::exp(row[i] - maximum);
    return sum;
}

/// The indices of the `k` largest of `row` [m], sorted.
void indices_of_largest(const float* row, std::int64_t m, std::size_t k, bool vectorised,
                        std::vector<std::int32_t>& best) {
    const auto before = [row](std::int32_t a, std::int32_t b) {
        return row[a] > row[b] || (row[a] == row[b] && a < b);
    };
    best.clear();
    for (std::int64_t i = 0; i < m; ++i) {
        if (best.size() == k) {
            // Few entries reach the k-th best so far: the rest is passed over eight at a time.
            if (vectorised) i = find_at_least_avx2(row, i, m, row[best.back()]);
            if (i == m) break;
            if (!before(static_cast<std::int32_t>(i), best.back())) continue;
            best.pop_back();
        }
        const auto index = static_cast<std::int32_t>(i);
        best.insert(std::upper_bound(best.begin(), best.end(), index, before), index);
    }
}

void top_logprobs_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const auto k = static_cast<std::size_t>(dst->ne[0] / 2);
    const bool vectorised = vectorises(userdata);
    pool_of(userdata).run(x->ne[1], 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::int32_t> best;
        for (std::int64_t r = begin; r < end; ++r) {
            const float* row = float_row(x, r);
            auto* out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + r * dst->nb[1]);
            indices_of_largest(row, x->ne[0], k, vectorised, best);
            const float maximum = row[best.front()];
            const double log_sum = std::log(sum_of_exp(row, x->ne[0], maximum, vectorised));
            for (std::size_t i = 0; i < k; ++i) {
                out[i] = static_cast<float>(static_cast<double>(row[best[i]] - maximum) - log_sum);
            }
            std::memcpy(out + k, best.data(), k * sizeof(std::int32_t));
        }
    });
}

}  // namespace

std::int64_t index_of_largest(const float* row, std::int64_t m, bool vectorised) {
    if (vectorised) {
        const std::int64_t found = find_at_least_avx2(row, 0, m, largest_avx2(row, m));
        if (found < m) return found;
    }
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < m; ++i) {
        if (row[i] > row[best] || std::isnan(row[best])) best = i;
    }
    return best;
}

std::vector<float> rope_table(const RopeAngles& angles, std::span<const std::int32_t> positions) {
    const int pairs = angles.head_dim / 2;
    std::vector<float> table(positions.size() * angles.head_dim);
    // Angles are multiplied up from pair to pair in f32, as ggml does it: models are compared with it bit by bit.
    const float step = std::pow(angles.base, -2.0f / static_cast<float>(angles.head_dim));
    float* row = table.data();
    for (const std::int32_t position : positions) {
        float angle = static_cast<float>(position);
        for (int i = 0; i < pairs; ++i) {
            const float factor = angles.pair_factors ? angles.pair_factors[i] : 1.0f;
            const float scaled = angles.scale * (angle / factor);
            row[i] = std::cos(scaled);
            row[pairs + i] = std::sin(scaled);
            angle *= step;
        }
        row += angles.head_dim;
    }
    return table;
}

ggml_tensor* rotate(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* table, RopePairs pairs) {
    return custom_op(ctx, GGML_TYPE_F32, {x->ne[0], x->ne[1], x->ne[2]}, {x, table},
                     pairs == RopePairs::halves ? rotate_op<RopePairs::halves> : rotate_op<RopePairs::neighbours>,
                     &pool);
}

ggml_tensor* rotate_and_store(ggml_context* ctx, ThreadPool& pool, const LayerRows& rows, ggml_tensor* table,
                              ggml_tensor* keys, ggml_tensor* values, ggml_tensor* cells, RopePairs pairs) {
    const ggml_tensor* q = rows.q;
    return custom_op(ctx, GGML_TYPE_F32, {q->ne[0], q->ne[1], q->ne[2]},
                     {rows.q, rows.k, rows.v, table, keys, values, cells},
                     pairs == RopePairs::halves ? rotate_and_store_op<RopePairs::halves>
                                                : rotate_and_store_op<RopePairs::neighbours>,
                     &pool);
}

ggml_tensor* gated(ggml_context* ctx, ThreadPool& pool, ggml_tensor* gate, ggml_tensor* up) {
    return custom_op(ctx, GGML_TYPE_F32, {gate->ne[0], gate->ne[1], gate->ne[2]}, {gate, up}, gated_op, &pool);
}

ggml_tensor* argmax(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x) {
    return custom_op(ctx, GGML_TYPE_I32, {x->ne[1]}, {x}, argmax_op, &pool);
}

ggml_tensor* top_logprobs(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, int k) {
    return custom_op(ctx, GGML_TYPE_F32, {2 * static_cast<std::int64_t>(k), x->ne[1]}, {x}, top_logprobs_op, &pool);
}

}  // namespace bastion::kernels
