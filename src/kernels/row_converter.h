// Turns rows of floats into other types.
#pragma once

#include <ggml-cpu.h>

#include <cstring>

#include "base/ggml_ptr.h"

namespace bastion::kernels {

/// Turns f32 rows into rows of a type.
class RowConverter {
 public:
    static RowConverter to(ggml_type type) { return RowConverter(type); }
    /// Into the form that rows of `weight_type` are multiplied with.
    static RowConverter to_multiply(ggml_type weight_type) {
        return RowConverter(ggml_get_type_traits_cpu(weight_type)->vec_dot_type);
    }

    std::size_t bytes(std::int64_t width) const { return ggml_row_size(type_, width); }
    void operator()(const float* x, void* out, std::int64_t width) const {
        if (type_ == GGML_TYPE_F32) {
            std::memcpy(out, x, sizeof(float) * width);
        } else {
            from_float_(x, out, width);
        }
    }

 private:
    explicit RowConverter(ggml_type type) : type_(type), from_float_(ggml_get_type_traits_cpu(type)->from_float) {}

    ggml_type type_;
    ggml_from_float_t from_float_;
};

}  // namespace bastion::kernels
