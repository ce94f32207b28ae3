// Softmax attention of one query head over one row's cells, for processors with AVX2, FMA and F16C.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ggml_ptr.h"

namespace bastion::kernels {

/// Where the keys and values of one head lie: cell c starts at keys + c * key_stride.
struct HeadCells {
    const char *keys, *values;
    std::size_t key_stride, value_stride;  ///< bytes
    std::int64_t first_cell;               ///< the first `run` cells in position order, then `extra`
    std::int32_t run;
    const std::int64_t* extra;
    std::int32_t extra_count;
};

/// Whether `attend_head_avx2` serves caches of this type and head size on this processor.
bool attention_avx2_available(ggml_type type, int head_dim);

/// query [head_dim] f32, cells of `type` (f16 or bf16), out [head_dim]. Cells are taken in blocks of 8 counted from the
/// row's first position, so the sequence of operations depends on positions alone.
void attend_head_avx2(ggml_type type, const float* query, int head_dim, float scale, const HeadCells& cells,
                      float* out);

}  // namespace bastion::kernels
