#include "kernels/attention_tasks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention_blocks.h"

namespace bastion::kernels {
namespace {

std::int64_t places_of(const AttentionRow& row) {
    return static_cast<std::int64_t>(row.run) + row.extra_end - row.extra_begin;
}

float* output(const AttentionPlan& plan, ggml_tensor* dst, int row, int head) {
    return reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[1]) +
           static_cast<std::ptrdiff_t>(head) * plan.head_dim;
}

}  // namespace

void Running::reset(int d) {
    maximum = -std::numeric_limits<float>::infinity();
    sum = 0.0f;
    std::fill(out, out + d, 0.0f);
}

void Running::merge(float other_maximum, float other_sum, const float* other_out, int d) {
    const float together = std::max(maximum, other_maximum);
    const float mine = sum > 0.0f ? std::exp(maximum - together) : 0.0f;
    const float theirs = other_sum > 0.0f ? std::exp(other_maximum - together) : 0.0f;
    for (int j = 0; j < d; ++j) out[j] = out[j] * mine + other_out[j] * theirs;
    sum = sum * mine + other_sum * theirs;
    maximum = together;
}

void Running::finish(int d) const {
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (int j = 0; j < d; ++j) out[j] *= inverse;
}

SegmentResults::SegmentResults(const AttentionPlan& plan, int segments)
    : heads_(plan.heads),
      segments_(segments),
      stride_(static_cast<std::size_t>(plan.head_dim) + 2),
      data_(plan.rows.size() * heads_ * segments_ * stride_) {}

int segments_of(const AttentionRow& row) {
    return static_cast<int>((places_of(row) + kSegmentPlaces - 1) / kSegmentPlaces);
}

void merge_segments(const AttentionPlan& plan, int row, SegmentResults& results, ggml_tensor* dst) {
    for (int head = 0; head < plan.heads; ++head) {
        Running all;
        all.out = output(plan, dst, row, head);
        all.reset(plan.head_dim);
        for (int segment = 0; segment < segments_of(plan.rows[row]); ++segment) {
            const float* part = results.at(row, head, segment);
            all.merge(part[0], part[1], part + 2, plan.head_dim);
        }
        all.finish(plan.head_dim);
    }
}

namespace {

static_assert(kSegmentPlaces % kBlockPlaces == 0);

/// One task on its way through the places.
class TaskRun {
 public:
    TaskRun(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
            const ggml_tensor* values, SegmentResults* results, ggml_tensor* dst)
        : plan_(plan),
          task_(task),
          d_(plan.head_dim),
          heads_(plan.heads / plan.kv_heads),
          loops_(plan.pool->isa() >= Isa::avx512 ? attention_loops_avx512(keys->type)
                                                 : attention_loops_avx2(keys->type)),
          results_(results),
          block_(d_) {
        const int rows = task.last_row - task.first_row, kv_heads = task.last_head - task.first_head;
        outs_.resize(static_cast<std::size_t>(kv_heads) * rows * heads_ * d_);
        for (int kv_head = task.first_head; kv_head < task.last_head; ++kv_head) {
            cells_.push_back({static_cast<const char*>(keys->data) + kv_head * ggml_row_size(keys->type, d_),
                              static_cast<const char*>(values->data) + kv_head * ggml_row_size(values->type, d_),
                              keys->nb[1], values->nb[1]});
            for (int row = task.first_row; row < task.last_row; ++row) {
                common_ = std::min<std::int64_t>(common_, plan.rows[row].run);
                for (int h = 0; h < heads_; ++h) add_query(q, dst, row, kv_head * heads_ + h);
            }
        }
    }

    void run() {
        std::int64_t places = 0;
        for (int row = task_.first_row; row < task_.last_row; ++row) {
            places = std::max(places, places_of(plan_.rows[row]));
        }
        for (int segment = task_.first_segment; segment < task_.last_segment; ++segment) {
            for (Query& query : queries_) query.segment.reset(d_);
            const std::int64_t begin = static_cast<std::int64_t>(segment) * kSegmentPlaces;
            const std::int64_t end = std::min(begin + kSegmentPlaces, places);
            // All heads of a block before the next: they lie side by side in the cells.
            for (std::int64_t first = begin; first < end; first += kBlockPlaces) {
                for (int kv_head = task_.first_head; kv_head < task_.last_head; ++kv_head) take(kv_head, first);
            }
            flush(segment);
        }
        if (results_) return;
        for (const Query& query : queries_) query.all.finish(d_);
    }

 private:
    void add_query(const ggml_tensor* q, ggml_tensor* dst, int row, int head) {
        Query query;
        query.query =
            reinterpret_cast<const float*>(static_cast<const char*>(q->data) + row * q->nb[2] + head * q->nb[1]);
        query.segment.out = outs_.data() + queries_.size() * d_;
        if (!results_) {
            query.all.out = output(plan_, dst, row, head);
            query.all.reset(d_);
        }
        queries_.push_back(query);
    }

    /// Those of the rows [first, last).
    std::span<Query> queries_of(int kv_head, int first, int last) {
        const std::ptrdiff_t rows = task_.last_row - task_.first_row;
        const std::ptrdiff_t before = (kv_head - task_.first_head) * rows + first - task_.first_row;
        return {queries_.data() + before * heads_, static_cast<std::size_t>(last - first) * heads_};
    }

    void convert_places(int kv_head, const AttentionRow& row, std::int64_t first, int from, int to) {
        loops_.convert(plan_, row, first, from, to, cells_[kv_head - task_.first_head], block_);
    }

    void take_block(std::span<Query> queries, int valid) {
        for (std::size_t first = 0; first < queries.size(); first += loops_.queries) {
            const std::size_t count = std::min(loops_.queries, queries.size() - first);
            loops_.take_block[count - 1](queries.data() + first, block_, valid, d_, plan_.scale);
        }
    }

    /// The block at place `first`: what all rows see of it is converted once, a row's own rest for that row.
    void take(int kv_head, std::int64_t first) {
        const int shared =
            static_cast<int>(std::clamp<std::int64_t>(common_ - first, 0, kBlockPlaces)) / kPlaceGroup * kPlaceGroup;
        convert_places(kv_head, plan_.rows[task_.first_row], first, 0, shared);
        if (shared == kBlockPlaces) {
            take_block(queries_of(kv_head, task_.first_row, task_.last_row), kBlockPlaces);
            return;
        }
        for (int row = task_.first_row; row < task_.last_row; ++row) {
            const std::int64_t left = places_of(plan_.rows[row]) - first;
            if (left <= 0) continue;
            const int valid = static_cast<int>(std::min<std::int64_t>(left, kBlockPlaces));
            convert_places(kv_head, plan_.rows[row], first, shared, valid);
            take_block(queries_of(kv_head, row, row + 1), valid);
        }
    }

    void flush(int segment) {
        for (int kv_head = task_.first_head; kv_head < task_.last_head; ++kv_head) {
            for (int row = task_.first_row; row < task_.last_row; ++row) {
                if (segment < segments_of(plan_.rows[row])) flush(segment, kv_head, row);
            }
        }
    }

    void flush(int segment, int kv_head, int row) {
        int head = kv_head * heads_;
        for (Query& query : queries_of(kv_head, row, row + 1)) {
            const Running& s = query.segment;
            if (results_) {
                float* out = results_->at(row, head, segment);
                out[0] = s.maximum;
                out[1] = s.sum;
                std::copy(s.out, s.out + d_, out + 2);
            } else {
                query.all.merge(s.maximum, s.sum, s.out, d_);
            }
            ++head;
        }
    }

    const AttentionPlan& plan_;
    const AttentionTask& task_;
    int d_, heads_;
    AttentionLoops loops_;
    std::vector<HeadCells> cells_;  ///< [kv heads]
    SegmentResults* results_;
    Block block_;
    std::int64_t common_ = std::numeric_limits<std::int64_t>::max();  ///< places that are the same for all rows
    std::vector<Query> queries_;                                      ///< [kv heads][rows][heads]
    std::vector<float> outs_;
};

}  // namespace

bool attention_tasks_support(ggml_type type, int head_dim) {
    return head_dim % 16 == 0 && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
}

void attend_task(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
                 const ggml_tensor* values, SegmentResults* results, ggml_tensor* dst) {
    TaskRun(plan, task, q, keys, values, results, dst).run();
}

}  // namespace bastion::kernels
