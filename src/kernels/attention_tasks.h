// Vectorised softmax attention, cut into tasks: keys and values are converted once for all rows and heads that share
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/attention.h"

namespace bastion::kernels {

/// Places of a row (counted from its first position) whose softmax is worked out by itself. Segments are merged in
/// order, whoever computed them, so that a long context can be cut for threads without changing a bit.
inline constexpr int kSegmentPlaces = 256;

/// Whether `attend_task` serves caches of this type and head size, on processors with AVX2 or more.
bool attention_tasks_support(ggml_type type, int head_dim);

/// Rows [first_row, last_row) that begin at the same cell, all query heads of the key/value heads [first_head,
/// last_head), and of every row the segments [first_segment, last_segment).
struct AttentionTask {
    int first_row = 0, last_row = 0;
    int first_head = 0, last_head = 0;
    int first_segment = 0, last_segment = 0;
};

/// Results of single segments, for rows whose segments are in different tasks.
class SegmentResults {
 public:
    SegmentResults(const AttentionPlan& plan, int segments);

    /// Maximum, sum, then the unnormalised output [head_dim].
    float* at(int row, int head, int segment) {
        return data_.data() + ((static_cast<std::size_t>(row) * heads_ + head) * segments_ + segment) * stride_;
    }

 private:
    std::size_t heads_, segments_, stride_;
    std::vector<float> data_;
};

/// Number of segments of a row.
int segments_of(const AttentionRow& row);

/// Computes one task (see `attend` in kernels/attention.h for the shapes): into `dst` if `results` is null (the task
/// must then have all segments), else into `results`. Each row and head goes through its places in blocks of 32,
/// counted from the row's first position, by operations that depend on nothing else: how rows, heads and segments are
/// grouped into tasks does not change a bit.
void attend_task(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
                 const ggml_tensor* values, SegmentResults* results, ggml_tensor* dst);

/// Merges the segments of all heads of a row into `dst`.
void merge_segments(const AttentionPlan& plan, int row, SegmentResults& results, ggml_tensor* dst);

}  // namespace bastion::kernels
