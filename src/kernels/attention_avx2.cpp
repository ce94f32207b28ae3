#include "kernels/attention_avx2.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <vector>

#include "kernels/avx2.h"

namespace bastion::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// A softmax over some of a row's places for one head: output so far (unnormalised), maximum and sum.
struct Running {
    float maximum = kLowest;
    float sum = 0.0f;
    float* out = nullptr;  // [head_dim]

    void reset(int d) {
        maximum = kLowest;
        sum = 0.0f;
        std::fill(out, out + d, 0.0f);
    }

    /// Takes what further places gave.
    void merge(float other_maximum, float other_sum, const float* other_out, int d) {
        const float together = std::max(maximum, other_maximum);
        const float mine = sum > 0.0f ? std::exp(maximum - together) : 0.0f;
        const float theirs = other_sum > 0.0f ? std::exp(other_maximum - together) : 0.0f;
        for (int j = 0; j < d; ++j) out[j] = out[j] * mine + other_out[j] * theirs;
        sum = sum * mine + other_sum * theirs;
        maximum = together;
    }

    void finish(int d) const {
        const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        for (int j = 0; j < d; ++j) out[j] *= inverse;
    }
};

std::int64_t places_of(const AttentionRow& row) {
    return static_cast<std::int64_t>(row.run) + row.extra_end - row.extra_begin;
}

float* output(const AttentionPlan& plan, ggml_tensor* dst, int row, int head) {
    return reinterpret_cast<float*>(static_cast<char*>(dst->data) + row * dst->nb[1]) +
           static_cast<std::ptrdiff_t>(head) * plan.head_dim;
}

}  // namespace

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

#if defined(__x86_64__)

namespace {

constexpr int kBlock = 32;   // places whose keys and values are converted together
constexpr int kGroup = 8;    // of them in one vector
constexpr int kQueries = 6;  // queries that share a vector of keys or values in registers
static_assert(kSegmentPlaces % kBlock == 0);

// Between two passes the weights push the cache out of the processor's, and a head's part of a cell is too short for
// the hardware's prefetching to find the stride.
constexpr std::int64_t kPrefetchCells = 64;

/// Rows become columns.
BASTION_AVX2_INLINE void transpose(__m256 (&r)[kGroup]) {
    __m256 t[kGroup];
    for (int i = 0; i < 4; ++i) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    __m256 u[kGroup];
    for (int half = 0; half < 2; ++half) {
        u[half * 4 + 0] = _mm256_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0x44);
        u[half * 4 + 1] = _mm256_shuffle_ps(t[half * 4 + 0], t[half * 4 + 2], 0xEE);
        u[half * 4 + 2] = _mm256_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0x44);
        u[half * 4 + 3] = _mm256_shuffle_ps(t[half * 4 + 1], t[half * 4 + 3], 0xEE);
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/// The keys and values of a block as f32: keys [head_dim][kBlock], so that a vector holds one dimension of eight
/// places, values [kBlock][head_dim].
struct Block {
    explicit Block(int d) : keys(static_cast<std::size_t>(d) * kBlock), values(keys.size()) {}
    std::vector<float> keys, values;
};

/// Converts the places [from, to) of a row, from a multiple of kGroup, that begin a block at place `first`. Places up
/// to the next multiple of kGroup beyond `to` repeat the last one.
template <Half H>
BASTION_AVX2 void convert(const AttentionPlan& plan, const AttentionRow& row, std::int64_t first, int from, int to,
                          const char* keys, std::size_t key_stride, const char* values, std::size_t value_stride,
                          Block& block) {
    const int d = plan.head_dim;
    for (int group = from; group < to; group += kGroup) {
        std::int64_t cells[kGroup];
        for (int c = 0; c < kGroup; ++c) {
            const std::int64_t place = first + std::min(group + c, to - 1);
            cells[c] = place < row.run ? row.first_cell + place : plan.extra[row.extra_begin + (place - row.run)];
            for (int j = 0; j < d; j += 32) {
                _mm_prefetch(keys + (cells[c] + kPrefetchCells) * key_stride + j * 2, _MM_HINT_T0);
                _mm_prefetch(values + (cells[c] + kPrefetchCells) * value_stride + j * 2, _MM_HINT_T0);
            }
        }
        for (int j = 0; j < d; j += 8) {
            __m256 k[kGroup];
            for (int c = 0; c < kGroup; ++c) k[c] = load8<H>(keys + cells[c] * key_stride + j * 2);
            transpose(k);
            for (int c = 0; c < kGroup; ++c) _mm256_storeu_ps(&block.keys[(j + c) * kBlock + group], k[c]);
        }
        for (int c = 0; c < kGroup; ++c) {
            const char* cell = values + cells[c] * value_stride;
            float* out = &block.values[static_cast<std::size_t>(group + c) * d];
            for (int j = 0; j < d; j += 8) _mm256_storeu_ps(out + j, load8<H>(cell + j * 2));
        }
    }
}

/// One row with one head: its query, the segment at hand and the segments before.
struct Query {
    const float* query;
    Running segment, all;
};

/// Dot products of C queries with the keys of a block: scores [C][kBlock]. Groups of places from `valid` on are left.
template <int C>
BASTION_AVX2_INLINE void dot(const Query* queries, const float* keys, int valid, int d, float (*scores)[kBlock]) {
    for (int place = 0; place < valid; place += 2 * kGroup) {
        __m256 sums[C][2];
        for (int c = 0; c < C; ++c) sums[c][0] = sums[c][1] = _mm256_setzero_ps();
        for (int j = 0; j < d; ++j) {
            const __m256 k0 = _mm256_loadu_ps(keys + j * kBlock + place);
            const __m256 k1 = _mm256_loadu_ps(keys + j * kBlock + place + kGroup);
            for (int c = 0; c < C; ++c) {
                const __m256 x = _mm256_broadcast_ss(queries[c].query + j);
                sums[c][0] = _mm256_fmadd_ps(x, k0, sums[c][0]);
                sums[c][1] = _mm256_fmadd_ps(x, k1, sums[c][1]);
            }
        }
        for (int c = 0; c < C; ++c) {
            _mm256_store_ps(scores[c] + place, sums[c][0]);
            _mm256_store_ps(scores[c] + place + kGroup, sums[c][1]);
        }
    }
}

/// Scores become weights relative to the running maximum; returns what the output so far is to be multiplied by.
BASTION_AVX2_INLINE float softmax(Running& r, float* scores, int valid, float scale) {
    const __m256 lanes = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 s[kBlock / kGroup];
    __m256 best = _mm256_set1_ps(kLowest);
    for (int i = 0; i < kBlock / kGroup; ++i) {
        const __m256 inside = _mm256_cmp_ps(lanes, _mm256_set1_ps(static_cast<float>(valid - i * kGroup)), _CMP_LT_OQ);
        s[i] = _mm256_mul_ps(_mm256_load_ps(scores + i * kGroup), _mm256_set1_ps(scale));
        s[i] = _mm256_blendv_ps(_mm256_set1_ps(kLowest), s[i], inside);
        best = _mm256_max_ps(best, s[i]);
    }
    const float block_maximum = largest(best);
    float shrink = 1.0f;
    if (block_maximum > r.maximum) {
        shrink = r.sum > 0.0f ? std::exp(r.maximum - block_maximum) : 0.0f;
        r.maximum = block_maximum;
    }
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < kBlock / kGroup; ++i) {
        const __m256 weights = exp8(_mm256_sub_ps(s[i], _mm256_set1_ps(r.maximum)));
        _mm256_store_ps(scores + i * kGroup, weights);
        sum = _mm256_add_ps(sum, weights);
    }
    r.sum = r.sum * shrink + total(sum);
    return shrink;
}

/// out = out * shrink + weights x values, for C queries and 16 dimensions from `j` on.
template <int C>
BASTION_AVX2_INLINE void mix(Query* queries, const float* shrinks, const float (*weights)[kBlock], const float* values,
                             int valid, int d, int j) {
    __m256 acc[C][2];
    for (int c = 0; c < C; ++c) {
        const float* out = queries[c].segment.out + j;
        acc[c][0] = _mm256_mul_ps(_mm256_loadu_ps(out), _mm256_set1_ps(shrinks[c]));
        acc[c][1] = _mm256_mul_ps(_mm256_loadu_ps(out + 8), _mm256_set1_ps(shrinks[c]));
    }
    for (int place = 0; place < valid; ++place) {
        const float* value = values + static_cast<std::ptrdiff_t>(place) * d + j;
        const __m256 v0 = _mm256_loadu_ps(value), v1 = _mm256_loadu_ps(value + 8);
        for (int c = 0; c < C; ++c) {
            const __m256 w = _mm256_broadcast_ss(weights[c] + place);
            acc[c][0] = _mm256_fmadd_ps(w, v0, acc[c][0]);
            acc[c][1] = _mm256_fmadd_ps(w, v1, acc[c][1]);
        }
    }
    for (int c = 0; c < C; ++c) {
        _mm256_storeu_ps(queries[c].segment.out + j, acc[c][0]);
        _mm256_storeu_ps(queries[c].segment.out + j + 8, acc[c][1]);
    }
}

/// Takes the first `valid` places of a block into the segments of C queries.
template <int C>
BASTION_AVX2 void take_block(Query* queries, const Block& block, int valid, int d, float scale) {
    alignas(32) float scores[C][kBlock];
    float shrinks[C];
    dot<C>(queries, block.keys.data(), valid, d, scores);
    for (int c = 0; c < C; ++c) shrinks[c] = softmax(queries[c].segment, scores[c], valid, scale);
    for (int j = 0; j < d; j += 16) mix<C>(queries, shrinks, scores, block.values.data(), valid, d, j);
}

using TakeBlock = void (*)(Query*, const Block&, int, int, float);
constexpr TakeBlock kByQueries[kQueries] = {take_block<1>, take_block<2>, take_block<3>,
                                            take_block<4>, take_block<5>, take_block<6>};

void take_block(std::span<Query> queries, const Block& block, int valid, int d, float scale) {
    for (std::size_t first = 0; first < queries.size(); first += kQueries) {
        const std::size_t count = std::min<std::size_t>(kQueries, queries.size() - first);
        kByQueries[count - 1](queries.data() + first, block, valid, d, scale);
    }
}

/// One task on its way through the places.
template <Half H>
class TaskRun {
 public:
    TaskRun(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
            const ggml_tensor* values, SegmentResults* results, ggml_tensor* dst)
        : plan_(plan),
          task_(task),
          d_(plan.head_dim),
          heads_(plan.heads / plan.kv_heads),
          keys_(static_cast<const char*>(keys->data) + task.kv_head * ggml_row_size(keys->type, d_)),
          values_(static_cast<const char*>(values->data) + task.kv_head * ggml_row_size(values->type, d_)),
          key_stride_(keys->nb[1]),
          value_stride_(values->nb[1]),
          results_(results),
          block_(d_) {
        const int rows = task.last_row - task.first_row;
        outs_.resize(static_cast<std::size_t>(rows) * heads_ * d_);
        for (int row = task.first_row; row < task.last_row; ++row) {
            common_ = std::min<std::int64_t>(common_, plan.rows[row].run);
            for (int h = 0; h < heads_; ++h) {
                const int head = task.kv_head * heads_ + h;
                Query query;
                query.query = reinterpret_cast<const float*>(static_cast<const char*>(q->data) + row * q->nb[2] +
                                                             head * q->nb[1]);
                query.segment.out = outs_.data() + queries_.size() * d_;
                if (!results_) {
                    query.all.out = output(plan, dst, row, head);
                    query.all.reset(d_);
                }
                queries_.push_back(query);
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
            for (std::int64_t first = begin; first < end; first += kBlock) take(first);
            flush(segment);
        }
        if (results_) return;
        for (const Query& query : queries_) query.all.finish(d_);
    }

 private:
    std::span<Query> queries_of(int row) {
        return {queries_.data() + static_cast<std::ptrdiff_t>(row - task_.first_row) * heads_,
                static_cast<std::size_t>(heads_)};
    }

    void convert_places(const AttentionRow& row, std::int64_t first, int from, int to) {
        convert<H>(plan_, row, first, from, to, keys_, key_stride_, values_, value_stride_, block_);
    }

    /// The block at place `first`: what all rows see of it is converted once, a row's own rest for that row.
    void take(std::int64_t first) {
        const int shared = static_cast<int>(std::clamp<std::int64_t>(common_ - first, 0, kBlock)) / kGroup * kGroup;
        convert_places(plan_.rows[task_.first_row], first, 0, shared);
        if (shared == kBlock) {
            kernels::take_block(queries_, block_, kBlock, d_, plan_.scale);
            return;
        }
        for (int row = task_.first_row; row < task_.last_row; ++row) {
            const std::int64_t left = places_of(plan_.rows[row]) - first;
            if (left <= 0) continue;
            const int valid = static_cast<int>(std::min<std::int64_t>(left, kBlock));
            convert_places(plan_.rows[row], first, shared, valid);
            kernels::take_block(queries_of(row), block_, valid, d_, plan_.scale);
        }
    }

    void flush(int segment) {
        for (int row = task_.first_row; row < task_.last_row; ++row) {
            if (segment >= segments_of(plan_.rows[row])) continue;
            int head = task_.kv_head * heads_;
            for (Query& query : queries_of(row)) {
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
    }

    const AttentionPlan& plan_;
    const AttentionTask& task_;
    int d_, heads_;
    const char *keys_, *values_;
    std::size_t key_stride_, value_stride_;
    SegmentResults* results_;
    Block block_;
    std::int64_t common_ = std::numeric_limits<std::int64_t>::max();  ///< places that are the same for all rows
    std::vector<Query> queries_;                                      ///< [rows][heads]
    std::vector<float> outs_;
};

}  // namespace

bool attention_avx2_available(ggml_type type, int head_dim) {
    return avx2_available() && head_dim % 16 == 0 && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
}

void attend_avx2(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
                 const ggml_tensor* values, SegmentResults* results, ggml_tensor* dst) {
    if (keys->type == GGML_TYPE_F16) {
        TaskRun<Half::f16>(plan, task, q, keys, values, results, dst).run();
    } else {
        TaskRun<Half::bf16>(plan, task, q, keys, values, results, dst).run();
    }
}

#else  // other processors: never called, attention_avx2_available() says no

bool attention_avx2_available(ggml_type, int) { return false; }
void attend_avx2(const AttentionPlan&, const AttentionTask&, const ggml_tensor*, const ggml_tensor*, const ggml_tensor*,
                 SegmentResults*, ggml_tensor*) {
    std::abort();
}

#endif

}  // namespace bastion::kernels
