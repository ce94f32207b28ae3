#include "kernels/rows.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention_avx2.h"

namespace bastion::kernels {
namespace {

// Compiled once per instruction set; without contraction every version gives the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BASTION_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BASTION_CLONES
#endif

BASTION_CLONES void scale_row(float* out, float factor, int width) {
    for (int i = 0; i < width; ++i) out[i] *= factor;
}

BASTION_CLONES void add_scaled_row(float* out, float factor, const float* x, int width) {
    for (int i = 0; i < width; ++i) out[i] += factor * x[i];
}

ggml_tensor* custom(ggml_context* ctx, ggml_type type, std::initializer_list<std::int64_t> shape,
                    std::initializer_list<ggml_tensor*> args, ggml_custom_op_t fun, const void* userdata) {
    std::vector<ggml_tensor*> sources(args);
    std::vector<std::int64_t> ne(shape);
    ne.resize(4, 1);
    return ggml_custom_4d(ctx, type, ne[0], ne[1], ne[2], ne[3], sources.data(), static_cast<int>(sources.size()), fun,
                          1, const_cast<void*>(userdata));
}

const float* float_row(const ggml_tensor* t, std::int64_t row) {
    return reinterpret_cast<const float*>(static_cast<const char*>(t->data) + row * t->nb[1]);
}

/// Turns f32 rows into the form that rows of `type` are multiplied with.
class RowConverter {
 public:
    explicit RowConverter(ggml_type weight_type)
        : type_(ggml_get_type_traits_cpu(weight_type)->vec_dot_type),
          from_float_(ggml_get_type_traits_cpu(type_)->from_float) {}
    std::size_t bytes(std::int64_t width) const { return ggml_row_size(type_, width); }
    void operator()(const float* x, void* out, std::int64_t width) const {
        if (type_ == GGML_TYPE_F32) {
            std::memcpy(out, x, sizeof(float) * width);
        } else {
            from_float_(x, out, width);
        }
    }

 private:
    ggml_type type_;
    ggml_from_float_t from_float_;
};

void quantize_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const RowConverter convert(dst->src[1]->type);
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

/// Running softmax over one row's cells for one query head.
class OnlineSoftmax {
 public:
    OnlineSoftmax(float* out, int width) : out_(out), width_(width) { std::fill(out, out + width, 0.0f); }

    void add(float score, const float* value) {
        if (score > maximum_) {
            const float scale = std::exp(maximum_ - score);
            scale_row(out_, scale, width_);
            sum_ *= scale;
            maximum_ = score;
        }
        const float weight = std::exp(score - maximum_);
        add_scaled_row(out_, weight, value, width_);
        sum_ += weight;
    }

    void finish() { scale_row(out_, sum_ > 0.0f ? 1.0f / sum_ : 0.0f, width_); }

 private:
    float* out_;
    int width_;
    float maximum_ = -std::numeric_limits<float>::infinity();
    float sum_ = 0.0f;
};

/// One head of one row: the scratch of a thread and the way through the cells.
class HeadAttention {
 public:
    HeadAttention(const AttentionPlan& plan, const ggml_tensor* keys, const ggml_tensor* values)
        : plan_(plan),
          keys_(keys),
          values_(values),
          convert_query_(keys->type),
          dot_(ggml_get_type_traits_cpu(keys->type)->vec_dot),
          value_to_float_(ggml_get_type_traits(values->type)->to_float),
          key_head_bytes_(ggml_row_size(keys->type, plan.head_dim)),
          value_head_bytes_(ggml_row_size(values->type, plan.head_dim)),
          query_(convert_query_.bytes(plan.head_dim)),
          value_(plan.head_dim) {}

    void operator()(const AttentionRow& row, int head, const float* query, float* out) {
        convert_query_(query, query_.data(), plan_.head_dim);
        const int kv_head = head / (plan_.heads / plan_.kv_heads);
        OnlineSoftmax softmax(out, plan_.head_dim);
        for (std::int32_t i = 0; i < row.run; ++i) visit(row.first_cell + i, kv_head, softmax);
        for (std::int32_t i = row.extra_begin; i < row.extra_end; ++i) visit(plan_.extra[i], kv_head, softmax);
        softmax.finish();
    }

 private:
    void visit(std::int64_t cell, int kv_head, OnlineSoftmax& softmax) {
        const char* key = static_cast<const char*>(keys_->data) + cell * keys_->nb[1] + kv_head * key_head_bytes_;
        const char* value =
            static_cast<const char*>(values_->data) + cell * values_->nb[1] + kv_head * value_head_bytes_;
        float score = 0.0f;
        dot_(plan_.head_dim, &score, 0, key, 0, query_.data(), 0, 1);
        value_to_float_(value, value_.data(), plan_.head_dim);
        softmax.add(score * plan_.scale, value_.data());
    }

    const AttentionPlan& plan_;
    const ggml_tensor *keys_, *values_;
    RowConverter convert_query_;
    ggml_vec_dot_t dot_;
    ggml_to_float_t value_to_float_;
    std::size_t key_head_bytes_, value_head_bytes_;
    std::vector<char> query_;
    std::vector<float> value_;
};

/// Calls attend(row index, head, query, out) for every head of every row, on all threads.
template <class MakeWorker>
void for_each_head(ggml_tensor* dst, const AttentionPlan& plan, const MakeWorker& make_worker) {
    const ggml_tensor* q = dst->src[0];
    const std::int64_t tasks = q->ne[2] * plan.heads;
    plan.pool->run(tasks, plan.pool->grain(tasks, 1), [&](std::int64_t begin, std::int64_t end) {
        auto attend = make_worker();
        for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t row = task / plan.heads;
            const int head = static_cast<int>(task % plan.heads);
            const auto* query =
                reinterpret_cast<const float*>(static_cast<const char*>(q->data) + row * q->nb[2] + head * q->nb[1]);
            auto* out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[1]);
            attend(plan.rows[row], head, query, out + static_cast<std::ptrdiff_t>(head) * plan.head_dim);
        }
    });
}

void attend_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& plan = *static_cast<const AttentionPlan*>(userdata);
    const ggml_tensor *keys = dst->src[1], *values = dst->src[2];
    if (!plan.vectorised || !attention_avx2_available(keys->type, plan.head_dim)) {
        for_each_head(dst, plan, [&] { return HeadAttention(plan, keys, values); });
        return;
    }
    for_each_head(dst, plan, [&] {
        return [&](const AttentionRow& row, int head, const float* query, float* out) {
            const std::size_t offset = static_cast<std::size_t>(head / (plan.heads / plan.kv_heads)) *
                                       ggml_row_size(keys->type, plan.head_dim);
            const HeadCells cells{static_cast<const char*>(keys->data) + offset,
                                  static_cast<const char*>(values->data) + offset,
                                  keys->nb[1],
                                  values->nb[1],
                                  row.first_cell,
                                  row.run,
                                  plan.extra.data() + row.extra_begin,
                                  row.extra_end - row.extra_begin};
            attend_head_avx2(keys->type, query, plan.head_dim, plan.scale, cells, out);
        };
    });
}

void argmax_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            const float* row = float_row(x, r);
            std::int64_t best = 0;
            for (std::int64_t i = 1; i < x->ne[0]; ++i) {
                if (row[i] > row[best] || std::isnan(row[best])) best = i;
            }
            static_cast<std::int32_t*>(dst->data)[r] = static_cast<std::int32_t>(best);
        }
    });
}

/// The `k` largest of `row` [m], sorted, into `best`; their log-softmax and indices into `out` [2k].
void top_row(const float* row, std::int32_t m, std::size_t k, std::vector<std::int32_t>& best, float* out) {
    const auto before = [row](std::int32_t a, std::int32_t b) {
        return row[a] > row[b] || (row[a] == row[b] && a < b);
    };
    best.clear();
    for (std::int32_t i = 0; i < m; ++i) {
        if (best.size() == k && !before(i, best.back())) continue;
        if (best.size() == k) best.pop_back();
        best.insert(std::upper_bound(best.begin(), best.end(), i, before), i);
    }
    double sum = 0.0;
    const float maximum = row[best.front()];
    for (std::int32_t i = 0; i < m; ++i) sum += std::exp(row[i] - maximum);
    const double log_sum = std::log(sum);
    for (std::size_t i = 0; i < k; ++i) {
        out[i] = static_cast<float>(static_cast<double>(row[best[i]] - maximum) - log_sum);
    }
    std::memcpy(out + k, best.data(), k * sizeof(std::int32_t));
}

void top_logprobs_op(ggml_tensor* dst, int, int, void* userdata) {
    const ggml_tensor* x = dst->src[0];
    const auto k = static_cast<std::size_t>(dst->ne[0] / 2);
    static_cast<ThreadPool*>(userdata)->run(x->ne[1], 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::int32_t> best;
        for (std::int64_t r = begin; r < end; ++r) {
            top_row(float_row(x, r), static_cast<std::int32_t>(x->ne[0]), k, best,
                    reinterpret_cast<float*>(static_cast<char*>(dst->data) + r * dst->nb[1]));
        }
    });
}

}  // namespace

ggml_tensor* quantize_rows(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* weights) {
    const auto bytes = static_cast<std::int64_t>(RowConverter(weights->type).bytes(x->ne[0]));
    return custom(ctx, GGML_TYPE_I8, {bytes, x->ne[1]}, {x, weights}, quantize_op, &pool);
}

ggml_tensor* multiply(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized) {
    return custom(ctx, GGML_TYPE_F32, {w->ne[1], quantized->ne[1]}, {w, quantized}, multiply_op, &pool);
}

ggml_tensor* multiply_experts(ggml_context* ctx, ThreadPool& pool, ggml_tensor* w, ggml_tensor* quantized,
                              ggml_tensor* chosen) {
    return custom(ctx, GGML_TYPE_F32, {w->ne[1], chosen->ne[0], chosen->ne[1]}, {w, quantized, chosen},
                  multiply_experts_op, &pool);
}

ggml_tensor* attend(ggml_context* ctx, ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values,
                    const AttentionPlan* plan) {
    return custom(ctx, GGML_TYPE_F32, {q->ne[0] * q->ne[1], q->ne[2]}, {q, keys, values}, attend_op, plan);
}

ggml_tensor* argmax(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x) {
    return custom(ctx, GGML_TYPE_I32, {x->ne[1]}, {x}, argmax_op, &pool);
}

ggml_tensor* top_logprobs(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, int k) {
    return custom(ctx, GGML_TYPE_F32, {2 * static_cast<std::int64_t>(k), x->ne[1]}, {x}, top_logprobs_op, &pool);
}

}  // namespace bastion::kernels
