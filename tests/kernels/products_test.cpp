// What every family of kernels promises: the product by definition, and a row's result that depends on nothing but
// that row.
#include "products.h"

#include <limits>

namespace bastion::kernels {
namespace {

class Products : public testing::TestWithParam<Shape> {
 protected:
    void SetUp() override { BASTION_NEED_VECTORS(); }

    /// [count][k], with a stretch of zeros now and then: a block without scale.
    static std::vector<float> activations(int count, unsigned seed) {
        const std::int64_t k = GetParam().k;
        std::vector<float> x = normal_numbers(static_cast<std::size_t>(count * k), 3.0f, seed);
        for (int c = 3; c < count; c += 5) std::fill_n(x.begin() + c * k, std::min<std::int64_t>(k, 32), 0.0f);
        return x;
    }
};

TEST_P(Products, EqualTheReferenceInDoublePrecision) {
    const Matrix matrix = Matrix::quantised(GetParam(), 1);
    Product product(matrix, 2);
    const auto x = activations(11, 2);
    // What is left beside exact integers is a few roundings of f32 for each 32 columns.
    expect_products(matrix, product, x, product(x), 2e-6, "random weights");
}

TEST_P(Products, GiveTheSameBitsAloneAndInAnyCompany) {
    constexpr int kMost = 40;
    const auto [type, k, m] = GetParam();
    const Matrix matrix = Matrix::quantised(GetParam(), 3);
    auto x = activations(kMost, 4);
    x[0] = std::numeric_limits<float>::quiet_NaN();
    x[5 * k + 1] = std::numeric_limits<float>::infinity();
    Product one(matrix, 1), two(matrix, 2), three(matrix, 3), four(matrix, 4);
    std::vector<float> alone;
    for (int c = 0; c < kMost; ++c) {
        const auto row = one(x.data() + c * k, 1);
        alone.insert(alone.end(), row.begin(), row.end());
    }
    for (int count = 1; count <= kMost; ++count) {
        for (Product* threads : {&one, &two, &three, &four}) {
            if (count % 8 > 4 && threads != &one) continue;
            const auto together = (*threads)(x.data(), count);
            ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0)
                << count << " rows";
        }
    }
    // From another place in the pass.
    const auto shifted = two(x.data() + 3 * k, 9);
    EXPECT_EQ(std::memcmp(shifted.data(), alone.data() + 3 * m, shifted.size() * sizeof(float)), 0);
}

TEST_P(Products, GiveTheSameBitsWithEveryInstructionSet) {
    const Matrix matrix = Matrix::quantised(GetParam(), 5);
    // Each level falls back to the best that this processor has.
    Product narrow(matrix, 1, Isa::avx2), wide(matrix, 2, Isa::avx512), sums(matrix, 3, Isa::avx512_sums);
    for (const int count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 65}) {
        auto x = activations(count, 6 + count);
        x[0] = std::numeric_limits<float>::quiet_NaN();
        x[x.size() - 1] = -std::numeric_limits<float>::infinity();
        const auto expected = narrow(x);
        for (Product* other : {&wide, &sums}) {
            const auto found = (*other)(x);
            ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0) << count << " rows";
        }
    }
}

std::vector<Shape> shapes() {
    std::vector<Shape> all;
    for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0}) {
        all.insert(all.end(), {{type, 32, 1}, {type, 96, 17}, {type, 576, 192}, {type, 1536, 33}});
    }
    for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
        all.insert(all.end(), {{type, 256, 1}, {type, 512, 192}, {type, 512, 29}, {type, 1536, 33}});
    }
    for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16}) {  // the last of several pieces
        all.insert(all.end(), {{type, 32, 1}, {type, 96, 19}, {type, 576, 200}, {type, 2080, 33}});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Products, testing::ValuesIn(shapes()),
                         [](const auto& shape) { return name_of(shape.param); });

}  // namespace
}  // namespace bastion::kernels
