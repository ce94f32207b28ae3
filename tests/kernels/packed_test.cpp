// The packed kernels against a reference in double precision, and the promise that a row's result depends on nothing
// but that row.
#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace bastion::kernels {
namespace {

struct Shape {
    ggml_type type;
    std::int64_t k, m;
};

/// A random matrix of a type, its values as doubles, and room for a graph-free multiplication.
class Matrix {
 public:
    Matrix(const Shape& shape, unsigned seed) : shape_(shape), ctx_(ggml_init({1u << 26, nullptr, false})) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        std::vector<float> values(static_cast<std::size_t>(shape.k * shape.m));
        for (float& v : values) v = normal(random);
        tensor_ = ggml_new_tensor_2d(ctx_.get(), shape.type, shape.k, shape.m);
        ggml_quantize_chunk(shape.type, values.data(), tensor_->data, 0, shape.m, shape.k, nullptr);
        exact_.resize(values.size());
        ggml_get_type_traits(shape.type)->to_float(tensor_->data, exact_.data(), shape.k * shape.m);
    }

    const ggml_tensor* tensor() const { return tensor_; }
    double value(std::int64_t row, std::int64_t column) const { return exact_[row * shape_.k + column]; }

 private:
    Shape shape_;
    ggml_context_ptr ctx_;
    ggml_tensor* tensor_;
    std::vector<float> exact_;
};

/// `count` random activation rows, quantised.
struct Activations {
    Activations(std::int64_t k, int count, unsigned seed) : bytes(activation_bytes(k)), data(bytes * count) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0.0f, 3.0f);
        std::vector<float> row(k);
        for (int c = 0; c < count; ++c) {
            for (float& v : row) v = normal(random);
            if (c % 5 == 3) std::fill(row.begin(), row.begin() + 32, 0.0f);  // a block without scale
            quantize_activations(row.data(), k, data.data() + c * bytes);
        }
    }
    /// What the quantised row stands for.
    double value(int row, std::int64_t k, std::int64_t column) const {
        const char* r = data.data() + row * bytes;
        float scale;
        std::memcpy(&scale, r + k + column / 32 * sizeof(float), sizeof scale);
        return static_cast<double>(scale) * static_cast<signed char>(r[column]);
    }

    std::size_t bytes;
    std::vector<char> data;
};

class Packed : public testing::TestWithParam<Shape> {
 protected:
    void SetUp() override {
        if (!packed_kernels_available()) GTEST_SKIP() << "this processor has no packed kernels";
    }
};

TEST_P(Packed, EqualsTheReferenceInDoublePrecision) {
    const Shape shape = GetParam();
    constexpr int kRows = 7;
    ThreadPool pool(2);
    const Matrix matrix(shape, 1);
    const PackedMatrix packed(matrix.tensor(), pool);
    const Activations activations(shape.k, kRows, 2);
    std::vector<float> out(kRows * shape.m);
    packed.multiply(0, packed.tiles(), activations.data.data(), activations.bytes, kRows, out.data(), shape.m);
    for (int c = 0; c < kRows; ++c) {
        for (std::int64_t r = 0; r < shape.m; ++r) {
            double expected = 0, magnitude = 0;
            for (std::int64_t i = 0; i < shape.k; ++i) {
                const double product = matrix.value(r, i) * activations.value(c, shape.k, i);
                expected += product;
                magnitude += std::abs(product);
            }
            // Integer parts are exact; what is left is one rounding of f32 a block and term.
            ASSERT_NEAR(out[c * shape.m + r], expected, 1e-6 * magnitude + 1e-6) << "row " << c << ", output " << r;
        }
    }
}

TEST_P(Packed, GivesTheSameBitsAloneAndInAnyCompany) {
    const Shape shape = GetParam();
    constexpr int kRows = 40;
    ThreadPool pool(1);
    const Matrix matrix(shape, 3);
    const PackedMatrix packed(matrix.tensor(), pool);
    const Activations activations(shape.k, kRows, 4);
    std::vector<float> alone(kRows * shape.m);
    for (int c = 0; c < kRows; ++c) {
        packed.multiply(0, packed.tiles(), activations.data.data() + c * activations.bytes, activations.bytes, 1,
                        alone.data() + c * shape.m, shape.m);
    }
    for (int rows = 1; rows <= kRows; ++rows) {
        std::vector<float> together(rows * shape.m, NAN);
        for (std::int64_t tile = 0; tile < packed.tiles(); ++tile) {  // as threads would: tile by tile
            packed.multiply(tile, tile + 1, activations.data.data(), activations.bytes, rows, together.data(), shape.m);
        }
        ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0) << rows << " rows";
    }
}

TEST_P(Packed, TakesNoMoreRoomThanTheSource) {
    ThreadPool pool(1);
    const Matrix matrix(GetParam(), 5);
    const PackedMatrix packed(matrix.tensor(), pool);
    const double padded = static_cast<double>(packed.tiles() * 16) / static_cast<double>(packed.rows());
    EXPECT_LE(packed.bytes(), static_cast<double>(ggml_nbytes(matrix.tensor())) * padded);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Packed,
                         testing::Values(Shape{GGML_TYPE_Q4_0, 576, 64}, Shape{GGML_TYPE_Q4_1, 576, 192},
                                         Shape{GGML_TYPE_Q8_0, 576, 48}, Shape{GGML_TYPE_Q4_0, 32, 1},
                                         Shape{GGML_TYPE_Q4_1, 1536, 33}, Shape{GGML_TYPE_Q8_0, 96, 17}),
                         [](const auto& shape) {
                             return std::string(ggml_type_name(shape.param.type)) + "_" +
                                    std::to_string(shape.param.k) + "x" + std::to_string(shape.param.m);
                         });

// The extremes of every operand: no sum inside the integer kernels may overflow.
TEST(PackedExtremes, DoNotOverflow) {
    if (!packed_kernels_available()) GTEST_SKIP() << "this processor has no packed kernels";
    constexpr std::int64_t kColumns = 64;
    ThreadPool pool(1);
    ggml_context_ptr ctx(ggml_init({1u << 20, nullptr, false}));
    for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0}) {
        ggml_tensor* w = ggml_new_tensor_2d(ctx.get(), type, kColumns, 16);
        std::memset(w->data, type == GGML_TYPE_Q8_0 ? 0x80 : 0xFF, ggml_nbytes(w));  // -128, or 15 in every nibble
        const ggml_fp16_t one = ggml_fp32_to_fp16(1.0f), none = ggml_fp32_to_fp16(0.0f);
        const std::size_t block = ggml_type_size(type);
        for (std::size_t at = 0; at < ggml_nbytes(w); at += block) {
            std::memcpy(static_cast<char*>(w->data) + at, &one, sizeof one);
            if (type == GGML_TYPE_Q4_1) std::memcpy(static_cast<char*>(w->data) + at + 2, &none, sizeof none);
        }
        const PackedMatrix packed(w, pool);
        for (const float activation : {127.0f, -127.0f}) {
            const std::vector<float> x(kColumns, activation);
            std::vector<char> quantised(activation_bytes(kColumns));
            quantize_activations(x.data(), kColumns, quantised.data());
            std::vector<float> out(16);
            packed.multiply(0, 1, quantised.data(), quantised.size(), 1, out.data(), 16);
            const double weight = type == GGML_TYPE_Q8_0 ? -128 : type == GGML_TYPE_Q4_0 ? 15 - 8 : 15;
            for (float value : out) EXPECT_FLOAT_EQ(value, weight * activation * kColumns) << ggml_type_name(type);
        }
    }
}

}  // namespace
}  // namespace bastion::kernels
