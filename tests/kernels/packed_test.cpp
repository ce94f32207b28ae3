// Packed matrices stand for exactly the file's values: whatever bits a block has, and at the extremes of every operand.
#include "kernels/packed.h"

#include "products.h"

namespace bastion::kernels {
namespace {

class Packed : public testing::TestWithParam<ggml_type> {
 protected:
    void SetUp() override { BASTION_NEED_VECTORS(); }
    static Shape shape(std::int64_t m) { return {GetParam(), 512, m}; }

    static std::function<int(std::size_t)> any_byte(unsigned seed) {
        return [random = std::mt19937(seed)](std::size_t) mutable { return static_cast<int>(random() & 0xFF); };
    }
    static std::function<int(std::size_t)> only(int byte) {
        return [byte](std::size_t) { return byte; };
    }
};

TEST_P(Packed, TakesHardlyMoreRoomThanTheSource) {
    const bool two_levels = ggml_blck_size(GetParam()) == 256;
    for (const std::int64_t m : {16, 33, 64}) {
        const Matrix matrix = Matrix::quantised(shape(m), 5);
        const Product product(matrix);
        const double source = static_cast<double>(ggml_row_size(GetParam(), 512) * product.packed().tiles() * 16);
        const auto bytes = product.packed().bytes();
        EXPECT_LE(static_cast<double>(bytes), source * (two_levels ? 1.03 : 1.0));
        EXPECT_EQ(bytes, PackedMatrix::bytes_of(GetParam(), 512, m));
    }
}

// With scales of 1 weights and activations are small integers, and f32 holds all sums: every bit of a block shows.
TEST_P(Packed, HoldsEveryValueOfTheSource) {
    for (const std::int64_t m : {16, 37}) {
        const Matrix matrix = Matrix::of_bytes(shape(m), any_byte(6), 1.0f, 1.0f);
        Product product(matrix, 2);
        std::mt19937 random(7);
        constexpr int kCount = 11;
        std::vector<float> x(kCount * 512);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const int small = static_cast<int>(random() % 41) - 20;
            x[i] = static_cast<float>(i % 32 == i / 32 % 32 ? kLargestActivation : small);  // makes the scale 1
        }
        const auto out = product(x);
        for (std::int64_t c = 0; c < kCount; ++c) {
            for (std::int64_t r = 0; r < m; ++r) {
                double expected = 0, bound = 0;
                for (std::int64_t i = 0; i < 512; ++i) {
                    expected += matrix.value(r, i) * x[c * 512 + i];
                    bound += (std::abs(matrix.value(r, i)) + 63) * std::abs(x[c * 512 + i]);
                }
                ASSERT_LT(bound, 1 << 24) << "the premise of the test";
                ASSERT_EQ(out[c * m + r], expected) << "row " << c << ", output " << r;
            }
        }
    }
}

TEST_P(Packed, ReadsRowsAsTheSourceMeansThem) {
    for (const std::int64_t m : {16, 37}) {
        const Matrix matrix = Matrix::of_bytes(shape(m), any_byte(14), 0.37f, -1.3f);
        const Product product(matrix);
        std::vector<float> row(512);
        for (std::int64_t r = 0; r < m; ++r) {
            product.packed().read_row(r, row.data());
            for (std::int64_t i = 0; i < 512; ++i) {
                // Sources may fuse the multiplication and the addition.
                ASSERT_NEAR(row[i], matrix.value(r, i), 1e-5 * (std::abs(matrix.value(r, i)) + 100)) << r << ", " << i;
            }
        }
    }
}

TEST_P(Packed, WithstandsTheExtremesOfEveryOperand) {
    constexpr float kLargest = 65504.0f, kSubnormal = 5.9604645e-8f;  // of f16, the second the smallest
    struct Blocks {
        const char* what;
        std::function<int(std::size_t)> byte;
        float scale, minimum;
    };
    const std::vector<Blocks> weights{{"all bits, largest scales", only(0xFF), kLargest, -kLargest},
                                      {"all bits", only(0xFF), 1.0f, 0.0f},
                                      {"no bits", only(0x00), kLargest, kLargest},
                                      {"sign bits", only(0x80), 1.0f, 0.25f},
                                      {"all but sign bits", only(0x7F), 1.0f, 0.25f},
                                      {"no scale", any_byte(8), 0.0f, 0.0f},
                                      {"minima alone", any_byte(9), 0.0f, -2.0f},
                                      {"negative", any_byte(10), -0.125f, -3.0f},
                                      {"largest scales", any_byte(11), kLargest, kLargest},
                                      {"subnormal", any_byte(12), kSubnormal, -3 * kSubnormal}};
    // Nine rows, a pair of tiles and a third: every kind of loop.
    std::vector<float> x(9 * 512);
    const auto normal = normal_numbers(512, 1.0f, 13);
    for (int i = 0; i < 512; ++i) {
        x[i] = kLargestActivation;
        x[512 + i] = -kLargestActivation;
        x[2 * 512 + i] = i % 3 == 0 ? 1e20f : -1e20f;
        x[3 * 512 + i] = normal[i] * 1e-20f;
        x[4 * 512 + i] = i < 256 ? 1e-39f : 1e-3f;  // below what can be scaled, so zero
        x[5 * 512 + i] = normal[i];
        x[6 * 512 + i] = i % 8 < 4 ? kLargestActivation : -kLargestActivation;
        x[7 * 512 + i] = -x[6 * 512 + i];
        x[8 * 512 + i] = -normal[i];
    }
    for (const Blocks& blocks : weights) {
        const Matrix matrix = Matrix::of_bytes(shape(41), blocks.byte, blocks.scale, blocks.minimum);
        Product product(matrix);
        const auto out = product(x);
        expect_products(matrix, product, x, out, 2e-6, blocks.what);
        for (const Isa isa : {Isa::avx2, Isa::avx512}) {
            const auto same = Product(matrix, 1, isa)(x);
            EXPECT_EQ(std::memcmp(out.data(), same.data(), out.size() * sizeof(float)), 0) << blocks.what;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Packed,
                         testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
                                         GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

// The largest integers there are: 32 x 128 x 32 x 120 a unit is below 2^24.
TEST(PackedQ6K, HoldsItsLargestProducts) {
    BASTION_NEED_VECTORS();
    const auto lowest = [](std::size_t i) { return i >= 192 && i < 208 ? 0x80 : 0x00; };  // scales -128, values -32
    const Matrix matrix = Matrix::of_bytes({GGML_TYPE_Q6_K, 256, 16}, lowest, 1.0f, 0.0f);
    ASSERT_EQ(matrix.value(3, 77), 4096.0);
    Product product(matrix);
    const std::vector<float> x(256, -kLargestActivation);
    for (const float value : product(x)) EXPECT_EQ(value, -4096.0 * kLargestActivation * 256);
}

TEST(Activations, AreQuantisedInUnits) {
    BASTION_NEED_VECTORS();
    for (const float size : {1e-45f, 1e-39f, 3.7e-37f, 3.8e-37f, 1e-20f, 1.0f, 3.3f, 1e38f}) {
        std::vector<float> x = normal_numbers(64, 1.0f, 14);
        for (float& v : x) v *= size;
        for (const ActivationUnit& unit : quantised(x.data(), 64)) {
            int sums[2] = {}, terms = 0;
            for (int i = 0; i < kUnitColumns; ++i) {
                EXPECT_LE(std::abs(unit.values[i]), kLargestActivation) << size;
                sums[i / 16] += unit.values[i];
            }
            for (int g = 0; g < kSummedGroups; ++g) {
                for (int j = 0; j < 4; ++j) {
                    const int a = unit.values[8 * g + j], b = unit.values[8 * g + 4 + j];
                    terms += 8 * a - (a + kLargestActivation) * b;
                }
            }
            EXPECT_EQ(unit.sums_of_16[0], sums[0]) << size;
            EXPECT_EQ(unit.sums_of_16[1], sums[1]) << size;
            EXPECT_EQ(unit.sum, unit.scale * static_cast<float>(sums[0] + sums[1])) << size;
            EXPECT_EQ(unit.cross_terms, terms) << size;
        }
    }
}

}  // namespace
}  // namespace bastion::kernels
