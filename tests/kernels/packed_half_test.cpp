// 16-bit weights lose nothing on their way, and activations are not rounded to the weights' type.
#include "kernels/packed.h"
#include "products.h"

namespace bastion::kernels {
namespace {

class Half : public testing::TestWithParam<ggml_type> {
 protected:
    void SetUp() override { BASTION_NEED_VECTORS(); }
};

TEST_P(Half, HoldsEveryFiniteWeight) {
    constexpr std::int64_t k = 64, m = 1024;  // all 65536 bit patterns, in order
    Matrix matrix = Matrix::of_bytes(
        {GetParam(), k, m}, [](std::size_t) { return 0; }, 0.0f, 0.0f);
    auto* bits = static_cast<std::uint16_t*>(matrix.tensor()->data);
    const auto to_float = ggml_get_type_traits(GetParam())->to_float;
    std::vector<float> values(k * m);
    for (std::int64_t i = 0; i < k * m; ++i) {
        bits[i] = static_cast<std::uint16_t>(i);
        to_float(bits + i, &values[i], 1);
        if (!std::isfinite(values[i])) bits[i] = 0, values[i] = 0.0f;
    }
    Product product(matrix);
    std::vector<float> row(k);
    for (std::int64_t r = 0; r < m; ++r) {
        product.packed().read_row(r, row.data());
        ASSERT_EQ(std::memcmp(row.data(), values.data() + r * k, k * sizeof(float)), 0) << "row " << r;
    }
    for (const std::int64_t column : {0, 9, 31, 63}) {
        std::vector<float> x(k, 0.0f);
        x[column] = 1.0f;
        const auto out = product(x);
        for (std::int64_t r = 0; r < m; ++r) ASSERT_EQ(out[r], values[r * k + column]) << "row " << r;
    }
}

TEST_P(Half, TakesActivationsUnrounded) {
    const Matrix matrix = Matrix::quantised({GetParam(), 64, 3}, 21);
    Product product(matrix);
    // Beyond the range of f16 and finer than either type.
    std::vector<float> x = normal_numbers(64, 1e6f, 22);
    x[7] = 1.0f + 0x1p-20f;
    expect_products(matrix, product, x, product(x), 1e-6, "wide activations");
}

TEST_P(Half, IsPackedWhereRowsAreWholeUnits) {
    EXPECT_TRUE(PackedMatrix::supports(GetParam(), 64));
    EXPECT_FALSE(PackedMatrix::supports(GetParam(), 48));
}

INSTANTIATE_TEST_SUITE_P(Types, Half, testing::Values(GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

}  // namespace
}  // namespace bastion::kernels
