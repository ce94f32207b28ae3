// Softmax attention for processors with AVX2, FMA and F16C: keys and values are converted once for all rows and heads
// that share them.
#pragma once

#include <cstdint>

#include "base/ggml_ptr.h"
#include "kernels/attention.h"

namespace bastion::kernels {

/// Whether `attend_avx2` serves caches of this type and head size on this processor.
bool attention_avx2_available(ggml_type type, int head_dim);

/// Rows [first_row, last_row) that begin at the same cell, and query heads [first_head, last_head) of one key/value
/// head.
struct AttentionTask {
    int first_row = 0, last_row = 0;
    int first_head = 0, last_head = 0;
};

/// Computes one task into `dst` (see `attend` in kernels/attention.h for the shapes). Each row and head goes through
/// its cells in blocks of 8, counted from the row's first position, by operations that depend on nothing else: how rows
/// and heads are grouped into tasks does not change a bit.
void attend_avx2(const AttentionPlan& plan, const AttentionTask& task, const ggml_tensor* q, const ggml_tensor* keys,
                 const ggml_tensor* values, ggml_tensor* dst);

}  // namespace bastion::kernels
