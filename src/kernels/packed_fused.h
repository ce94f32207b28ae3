// Several steps of a layer as one graph operation: fewer moments at which threads wait for each other
// (docs/kernels.md).
#pragma once

#include <vector>

#include "base/ggml_ptr.h"
#include "kernels/packed.h"

namespace bastion::kernels {

/// Packed matrices that read the same activations: of the same number of columns, all or none of floats, on the same
/// pool. Empty: none.
using PackedGroup = std::vector<const PackedMatrix*>;

/// Rows of x [k, n] f32 divided by their root mean square (of the mean of squares plus `eps`), times weight [k], and
/// quantised -> what `quantize_for_packed` gives.
ggml_tensor* norm_quantize_for_packed(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x, ggml_tensor* weight,
                                      float eps);

/// Rows as the matrices take them times all matrices of a group, one behind the other -> f32 [sum of their rows, n].
/// The bits are those of `multiply_packed`. `group` must outlive the graph.
ggml_tensor* multiply_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* rows);

/// silu(first matrix times rows) * (second matrix times rows), both of m rows -> f32 [m, n]. The bits are those of
/// `gated` after `multiply_packed`. `group` must outlive the graph.
ggml_tensor* gated_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* rows);

/// The same, quantised -> what `quantize_for_packed` gives. REQUIRES m to be a multiple of 32.
ggml_tensor* gated_quantized_packed(ggml_context* ctx, const PackedGroup& group, ggml_tensor* rows);

/// The index of the largest output for each row, as `argmax` after `multiply_packed` gives it, without a place for all
/// outputs -> i32 [n]. `w` must outlive the graph.
ggml_tensor* argmax_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* rows);

}  // namespace bastion::kernels
