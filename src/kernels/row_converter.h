// Turns rows of floats into what ggml multiplies weights with.
#pragma once

#include <ggml-cpu.h>

#include <cstring>

#include "base/ggml_ptr.h"

namespace bastion::kernels {

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

}  // namespace bastion::kernels
