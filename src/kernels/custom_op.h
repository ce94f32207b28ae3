// What our ggml custom operations share.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/ggml_ptr.h"

namespace bastion::kernels {

/// An operation of our own, called once on ggml's one thread; `userdata` must outlive the graph.
inline ggml_tensor* custom_op(ggml_context* ctx, ggml_type type, std::initializer_list<std::int64_t> shape,
                              std::vector<ggml_tensor*> sources, ggml_custom_op_t fun, const void* userdata) {
    std::vector<std::int64_t> ne(shape);
    ne.resize(4, 1);
    return ggml_custom_4d(ctx, type, ne[0], ne[1], ne[2], ne[3], sources.data(), static_cast<int>(sources.size()), fun,
                          1, const_cast<void*>(userdata));
}

// One number of an operation, behind what ggml itself keeps among the operation's parameters.
inline constexpr std::size_t kParameterAt = GGML_MAX_OP_PARAMS - sizeof(float);

inline void set_parameter(ggml_tensor* op, float value) {
    std::memcpy(reinterpret_cast<char*>(op->op_params) + kParameterAt, &value, sizeof value);
}

inline float parameter(const ggml_tensor* op) {
    float value;
    std::memcpy(&value, reinterpret_cast<const char*>(op->op_params) + kParameterAt, sizeof value);
    return value;
}

/// Row `row` of a matrix of f32.
inline const float* float_row(const ggml_tensor* t, std::int64_t row) {
    return reinterpret_cast<const float*>(static_cast<const char*>(t->data) + row * t->nb[1]);
}

}  // namespace bastion::kernels
