#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/attention_tasks.h"
#include "kernels/custom_op.h"
#include "kernels/row_converter.h"

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
          convert_query_(RowConverter::to_multiply(keys->type)),
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

/// Every head of every row by itself, for any cache type and processor.
void attend_portable(const AttentionPlan& plan, const ggml_tensor* q, const ggml_tensor* keys,
                     const ggml_tensor* values, ggml_tensor* dst) {
    const std::int64_t tasks = q->ne[2] * plan.heads;
    plan.pool->run(tasks, plan.pool->grain(tasks, 1), [&](std::int64_t begin, std::int64_t end) {
        HeadAttention attention(plan, keys, values);
        for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t row = task / plan.heads;
            const int head = static_cast<int>(task % plan.heads);
            const auto* query =
                reinterpret_cast<const float*>(static_cast<const char*>(q->data) + row * q->nb[2] + head * q->nb[1]);
            auto* out = reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[1]);
            attention(plan.rows[row], head, query, out + static_cast<std::ptrdiff_t>(head) * plan.head_dim);
        }
    });
}

/// Where the sequences of a pass end: the rows up to there begin at the same cell.
std::vector<int> sequence_ends(const AttentionPlan& plan) {
    std::vector<int> ends;
    for (int row = 1; std::cmp_less(row, plan.rows.size()); ++row) {
        if (plan.rows[row].first_cell != plan.rows[row - 1].first_cell) ends.push_back(row);
    }
    if (!plan.rows.empty()) ends.push_back(static_cast<int>(plan.rows.size()));
    return ends;
}

/// Appends the task, which begins with the first segment, in so many pieces of segments, or fewer if it has fewer.
void cut_segments(const AttentionTask& task, int pieces, std::vector<AttentionTask>& out) {
    for (int piece = 0; piece < pieces; ++piece) {
        AttentionTask part = task;
        part.first_segment = task.last_segment * piece / pieces;
        part.last_segment = task.last_segment * (piece + 1) / pieces;
        if (part.first_segment < part.last_segment) out.push_back(part);
    }
}

void cut_rows(const AttentionTask& task, int pieces, std::vector<AttentionTask>& out) {
    const int rows = task.last_row - task.first_row;
    for (int piece = 0; piece < pieces; ++piece) {
        AttentionTask part = task;
        part.first_row = task.first_row + rows * piece / pieces;
        part.last_row = task.first_row + rows * (piece + 1) / pieces;
        if (part.first_row < part.last_row) out.push_back(part);
    }
}

/// Two pieces of rows convert the places that rows share twice, which costs less than keeping the results of segments;
/// more pieces are of segments where there are enough.
void cut_task(const AttentionTask& task, int pieces, std::vector<AttentionTask>& out) {
    const bool by_segments = task.last_row - task.first_row < pieces || (pieces > 2 && task.last_segment >= pieces);
    by_segments ? cut_segments(task, pieces, out) : cut_rows(task, pieces, out);
}

// Rows of a tree share what is converted, those of a prompt only what lies before the first of them.
constexpr int kMostRows = 64;

/// Cuts the pass into tasks: the rows of a sequence with one key/value head, or with all where there are many
/// sequences. Of few tasks every thread gets equally many, and the rest is cut into pieces, such that every thread gets
/// equally many of these too.
std::vector<AttentionTask> cut(const AttentionPlan& plan) {
    const int threads = plan.pool->threads();
    const int enough = 3 * threads;  // then taking each other's tasks makes up for what is uneven
    const std::vector<int> ends = sequence_ends(plan);
    const int heads_at_once = std::cmp_greater_equal(ends.size(), enough) ? plan.kv_heads : 1;
    std::vector<AttentionTask> wholes;
    int first = 0;
    for (const int last : ends) {
        AttentionTask sequence;
        sequence.first_row = first;
        sequence.last_row = last;
        std::vector<AttentionTask> parts;
        cut_rows(sequence, (last - first + kMostRows - 1) / kMostRows, parts);
        for (AttentionTask& task : parts) {
            for (int row = task.first_row; row < task.last_row; ++row) {
                task.last_segment = std::max(task.last_segment, segments_of(plan.rows[row]));
            }
            for (int head = 0; head < plan.kv_heads; head += heads_at_once) {
                task.first_head = head;
                task.last_head = head + heads_at_once;
                wholes.push_back(task);
            }
        }
        first = last;
    }
    if (std::cmp_greater_equal(wholes.size(), enough)) return wholes;
    const int rest = static_cast<int>(wholes.size()) % threads;
    std::vector<AttentionTask> pieces;
    for (auto task = wholes.end() - rest; task != wholes.end(); ++task) {
        cut_task(*task, threads / std::gcd(rest, threads), pieces);
    }
    wholes.resize(wholes.size() - rest);
    // In the order in which the pool shares them out.
    std::vector<AttentionTask> tasks;
    for (int thread = 0; thread < threads; ++thread) {
        for (const auto* all : {&wholes, &pieces}) {
            const auto count = static_cast<std::ptrdiff_t>(all->size());
            tasks.insert(tasks.end(), all->begin() + count * thread / threads,
                         all->begin() + count * (thread + 1) / threads);
        }
    }
    return tasks;
}

void attend_vectorised(const AttentionPlan& plan, const ggml_tensor* q, const ggml_tensor* keys,
                       const ggml_tensor* values, ggml_tensor* dst) {
    const std::vector<AttentionTask> tasks = cut(plan);
    int segments = 0;
    bool by_segment = false;
    for (const AttentionTask& task : tasks) {
        segments = std::max(segments, task.last_segment);
        by_segment = by_segment || task.first_segment > 0;
    }
    std::optional<SegmentResults> results;
    if (by_segment) results.emplace(plan, segments);
    plan.pool->run(static_cast<std::int64_t>(tasks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            attend_task(plan, tasks[i], q, keys, values, results ? &*results : nullptr, dst);
        }
    });
    if (!results) return;
    for (int row = 0; std::cmp_less(row, plan.rows.size()); ++row) merge_segments(plan, row, *results, dst);
}

void attend_op(ggml_tensor* dst, int, int, void* userdata) {
    const auto& plan = *static_cast<const AttentionPlan*>(userdata);
    const ggml_tensor *q = dst->src[0], *keys = dst->src[1], *values = dst->src[2];
    if (plan.pool->isa() == Isa::portable || !attention_tasks_support(keys->type, plan.head_dim)) {
        attend_portable(plan, q, keys, values, dst);
    } else {
        attend_vectorised(plan, q, keys, values, dst);
    }
}

}  // namespace

ggml_tensor* attend(ggml_context* ctx, ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values,
                    const AttentionPlan* plan) {
    return custom_op(ctx, GGML_TYPE_F32, {q->ne[0] * q->ne[1], q->ne[2]}, {q, keys, values}, attend_op, plan);
}

}  // namespace bastion::kernels
