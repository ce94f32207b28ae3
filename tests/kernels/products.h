// What the tests of matrix products share: matrices of any type with their values, and products of them as models
// compute them.
#pragma once

#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/packed.h"

namespace bastion::kernels {

/// Ends the test on processors without AVX2.
#define BASTION_NEED_VECTORS() \
    if (best_isa() == Isa::portable) GTEST_SKIP() << "this processor has no vectorised kernels"

struct Shape {
    ggml_type type;
    std::int64_t k, m;
};

inline void PrintTo(const Shape& s, std::ostream* out) { *out << ggml_type_name(s.type) << " " << s.k << " x " << s.m; }

inline std::string name_of(const Shape& s) {
    return std::string(ggml_type_name(s.type)) + "_" + std::to_string(s.k) + "x" + std::to_string(s.m);
}

inline std::vector<float> normal_numbers(std::size_t count, float deviation, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> numbers(count);
    for (float& n : numbers) n = normal(random);
    return numbers;
}

/// A matrix in ggml's own format, and its values.
class Matrix {
 public:
    /// Normally distributed numbers, quantised by ggml.
    static Matrix quantised(const Shape& shape, unsigned seed) {
        Matrix matrix(shape);
        const auto numbers = normal_numbers(static_cast<std::size_t>(shape.k * shape.m), 1.0f, seed);
        ggml_quantize_chunk(shape.type, numbers.data(), matrix.tensor_->data, 0, shape.m, shape.k, nullptr);
        matrix.read_values();
        return matrix;
    }

    /// Blocks of any bytes, `byte(position in the block)`, with one f16 scale, and one minimum where the type has it.
    static Matrix of_bytes(const Shape& shape, const std::function<int(std::size_t)>& byte, float scale,
                           float minimum) {
        Matrix matrix(shape);
        auto* bytes = static_cast<std::uint8_t*>(matrix.tensor_->data);
        const std::size_t block = ggml_type_size(shape.type);
        const bool has_minimum = shape.type == GGML_TYPE_Q4_1 || shape.type == GGML_TYPE_Q5_1 ||
                                 shape.type == GGML_TYPE_Q4_K || shape.type == GGML_TYPE_Q5_K;
        const ggml_fp16_t halfs[] = {ggml_fp32_to_fp16(scale), ggml_fp32_to_fp16(minimum)};
        for (std::size_t at = 0; at < ggml_nbytes(matrix.tensor_); at += block) {
            for (std::size_t i = 0; i < block; ++i) bytes[at + i] = static_cast<std::uint8_t>(byte(i));
            const std::size_t place = shape.type == GGML_TYPE_Q6_K ? block - sizeof(ggml_fp16_t) : 0;
            std::memcpy(bytes + at + place, halfs, has_minimum ? sizeof halfs : sizeof halfs[0]);
        }
        matrix.read_values();
        return matrix;
    }

    ggml_tensor* tensor() const { return tensor_; }
    double value(std::int64_t row, std::int64_t column) const { return values_[row * shape_.k + column]; }

 private:
    explicit Matrix(const Shape& shape) : shape_(shape), ctx_(ggml_init({1u << 24, nullptr, false})) {
        tensor_ = ggml_new_tensor_2d(ctx_.get(), shape.type, shape.k, shape.m);
    }
    void read_values() {
        values_.resize(static_cast<std::size_t>(shape_.k * shape_.m));
        ggml_get_type_traits(shape_.type)->to_float(tensor_->data, values_.data(), shape_.k * shape_.m);
    }

    Shape shape_;
    ggml_context_ptr ctx_;
    ggml_tensor* tensor_;
    std::vector<float> values_;
};

inline std::vector<ActivationUnit> quantised(const float* x, std::int64_t k) {
    std::vector<ActivationUnit> units(k / kUnitColumns);
    quantize_activations(x, k, reinterpret_cast<char*>(units.data()));
    return units;
}

/// Products with one matrix by the kernels for its type, as operations of a graph.
class Product {
 public:
    explicit Product(const Matrix& w, int threads = 1, Isa isa = best_isa())
        : pool_(threads, isa), w_(w.tensor()), packed_(w_, pool_, memory_) {}

    /// x [count][k] -> [count][m]
    std::vector<float> operator()(const float* x, std::int64_t count) {
        ggml_context_ptr ctx(ggml_init({1u << 24, nullptr, false}));
        ggml_tensor* in = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, w_->ne[0], count);
        std::memcpy(in->data, x, ggml_nbytes(in));
        if (!packed_.takes_floats()) in = quantize_for_packed(ctx.get(), pool_, in);
        ggml_tensor* out = multiply_packed(ctx.get(), packed_, in);
        std::fill_n(static_cast<float*>(out->data), ggml_nelements(out), NAN);
        ggml_cgraph* graph = ggml_new_graph(ctx.get());
        ggml_build_forward_expand(graph, out);
        EXPECT_EQ(ggml_graph_compute_with_ctx(ctx.get(), graph, 1), GGML_STATUS_SUCCESS);
        const auto* values = static_cast<const float*>(out->data);
        return {values, values + ggml_nelements(out)};
    }
    std::vector<float> operator()(const std::vector<float>& x) {
        return (*this)(x.data(), static_cast<std::int64_t>(x.size()) / w_->ne[0]);
    }

    /// What the kernels take the row x [k] for: itself, or its quantised form.
    std::vector<double> seen(const float* x) const {
        const std::int64_t k = w_->ne[0];
        if (packed_.takes_floats()) return {x, x + k};
        std::vector<double> values(k);
        const std::vector<ActivationUnit> units = quantised(x, k);
        for (std::int64_t i = 0; i < k; ++i) {
            const ActivationUnit& unit = units[i / kUnitColumns];
            values[i] = static_cast<double>(unit.scale) * unit.values[i % kUnitColumns];
        }
        return values;
    }

    const PackedMatrix& packed() const { return packed_; }

 private:
    ThreadPool pool_;
    HugeMemory memory_;
    ggml_tensor* w_;
    PackedMatrix packed_;
};

/// Checks products [count][m] against sums in double precision, to `relative` of the sum of the terms' magnitudes.
inline void expect_products(const Matrix& w, const Product& product, const std::vector<float>& x,
                            const std::vector<float>& out, double relative, const std::string& what) {
    const std::int64_t k = w.tensor()->ne[0], m = w.tensor()->ne[1];
    ASSERT_EQ(out.size() / m, x.size() / k) << what;
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(x.size()) / k; ++c) {
        const std::vector<double> seen = product.seen(x.data() + c * k);
        for (std::int64_t r = 0; r < m; ++r) {
            double expected = 0, magnitude = 0;
            for (std::int64_t i = 0; i < k; ++i) {
                const double term = w.value(r, i) * seen[i];
                expected += term;
                magnitude += std::abs(term);
            }
            ASSERT_NEAR(out[c * m + r], expected, relative * magnitude) << what << ", row " << c << ", output " << r;
        }
    }
}

}  // namespace bastion::kernels
