// Fused operations give the bits of the operations they stand for.
#include "kernels/packed_fused.h"

#include <limits>

#include "kernels/elementwise.h"
#include "products.h"

namespace bastion::kernels {
namespace {

constexpr std::int64_t kColumns = 512;

std::vector<float> compute(ggml_context* ctx, ggml_tensor* out) {
    ggml_cgraph* graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    EXPECT_EQ(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
    const auto* data = static_cast<const float*>(out->data);
    return {data, data + ggml_nbytes(out) / sizeof(float)};
}

/// The quantised row `r` of `k` columns.
const ActivationUnit* units_of(const float* rows, std::int64_t k, std::int64_t r) {
    const char* row = reinterpret_cast<const char*>(rows) + r * static_cast<std::int64_t>(activation_bytes(k));
    return reinterpret_cast<const ActivationUnit*>(row);
}

/// Whether row `ra` of `a` and row `rb` of `b` are the same; what follows their units means nothing.
bool same_units(const float* a, const float* b, std::int64_t k, std::int64_t ra, std::int64_t rb) {
    return std::memcmp(units_of(a, k, ra), units_of(b, k, rb), k / kUnitColumns * sizeof(ActivationUnit)) == 0;
}

class Fused : public testing::TestWithParam<int> {  // threads
 protected:
    void SetUp() override { BASTION_NEED_VECTORS(); }

    ggml_tensor* rows(std::int64_t n, float deviation, unsigned seed) {
        ggml_tensor* x = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, kColumns, n);
        const auto numbers = normal_numbers(ggml_nelements(x), deviation, seed);
        std::memcpy(x->data, numbers.data(), ggml_nbytes(x));
        return x;
    }

    ThreadPool pool_{GetParam()};
    HugeMemory memory_;
    ggml_context_ptr ctx_{ggml_init({std::size_t{64} << 20, nullptr, false})};
};

TEST_P(Fused, GroupsGiveWhatTheirMatricesGiveAlone) {
    const Matrix a = Matrix::quantised({GGML_TYPE_Q4_1, kColumns, 192}, 1);
    const Matrix b = Matrix::quantised({GGML_TYPE_Q8_0, kColumns, 64}, 2);
    const Matrix c = Matrix::quantised({GGML_TYPE_Q6_K, kColumns, 71}, 3);
    const PackedMatrix pa(a.tensor(), pool_, memory_), pb(b.tensor(), pool_, memory_), pc(c.tensor(), pool_, memory_);
    const PackedGroup group{&pa, &pb, &pc};
    for (const std::int64_t n : {1, 5, 33}) {
        ggml_tensor* x = quantize_for_packed(ctx_.get(), pool_, rows(n, 1.0f, 4));
        const auto together = compute(ctx_.get(), multiply_packed(ctx_.get(), group, x));
        std::int64_t first = 0;
        for (const PackedMatrix* w : group) {
            const auto alone = compute(ctx_.get(), multiply_packed(ctx_.get(), *w, x));
            for (std::int64_t r = 0; r < n; ++r) {
                ASSERT_EQ(std::memcmp(together.data() + r * (192 + 64 + 71) + first, alone.data() + r * w->rows(),
                                      w->rows() * sizeof(float)),
                          0)
                    << "row " << r << " of " << n;
            }
            first += w->rows();
        }
    }
}

TEST_P(Fused, GatedProductsAreTheGatedProducts) {
    struct Case {
        std::int64_t m;
        ggml_type gate, up;
    };
    for (const auto& [m, gate, up] :
         {Case{96, GGML_TYPE_Q4_1, GGML_TYPE_Q5_K}, Case{87, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0},
          Case{87, GGML_TYPE_BF16, GGML_TYPE_F16}}) {
        const Matrix a = Matrix::quantised({gate, kColumns, m}, 5);
        const Matrix b = Matrix::quantised({up, kColumns, m}, 6);
        const PackedMatrix pa(a.tensor(), pool_, memory_), pb(b.tensor(), pool_, memory_);
        const PackedGroup group{&pa, &pb};
        for (const std::int64_t n : {1, 5, 33}) {
            ggml_context* ctx = ctx_.get();
            ggml_tensor* x = rows(n, 0.3f, 7);
            if (!pa.takes_floats()) x = quantize_for_packed(ctx, pool_, x);
            const auto fused = compute(ctx, gated_packed(ctx, group, x));
            const auto steps =
                compute(ctx, gated(ctx, pool_, multiply_packed(ctx, pa, x), multiply_packed(ctx, pb, x)));
            ASSERT_EQ(std::memcmp(fused.data(), steps.data(), steps.size() * sizeof(float)), 0) << n << " rows";
        }
    }
}

TEST_P(Fused, GatedProductsAreQuantisedAsIfAfterwards) {
    for (const std::int64_t m : {32, 96, 224}) {
        const Matrix a = Matrix::quantised({GGML_TYPE_Q4_1, kColumns, m}, 5);
        const Matrix b = Matrix::quantised({GGML_TYPE_Q5_0, kColumns, m}, 6);
        const PackedMatrix pa(a.tensor(), pool_, memory_), pb(b.tensor(), pool_, memory_);
        const PackedGroup group{&pa, &pb};
        for (const std::int64_t n : {1, 5, 33}) {
            ggml_context* ctx = ctx_.get();
            ggml_tensor* x = quantize_for_packed(ctx, pool_, rows(n, 0.3f, 7));
            const auto fused = compute(ctx, gated_quantized_packed(ctx, group, x));
            const auto steps = compute(ctx, quantize_for_packed(ctx, pool_, gated_packed(ctx, group, x)));
            ASSERT_EQ(fused.size(), steps.size());
            for (std::int64_t r = 0; r < n; ++r) {
                ASSERT_TRUE(same_units(fused.data(), steps.data(), m, r, r)) << m << " outputs, " << n << " rows";
            }
        }
    }
}

TEST_P(Fused, ResidualsAreAddedToTheProduct) {
    for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q6_K, GGML_TYPE_F16}) {
        const Matrix a = Matrix::quantised({type, kColumns, kColumns - 9}, 10);
        const PackedMatrix w(a.tensor(), pool_, memory_);
        for (const std::int64_t n : {1, 5, 33}) {
            ggml_context* ctx = ctx_.get();
            ggml_tensor* x = rows(n, 1.0f, 11);
            if (!w.takes_floats()) x = quantize_for_packed(ctx, pool_, x);
            ggml_tensor* residual =
                ggml_cont(ctx, ggml_view_2d(ctx, rows(n, 5.0f, 12), w.rows(), n, kColumns * sizeof(float), 0));
            const auto fused = compute(ctx, multiply_packed(ctx, w, x, residual));
            const auto steps = compute(ctx, ggml_add(ctx, multiply_packed(ctx, w, x), residual));
            ASSERT_EQ(std::memcmp(fused.data(), steps.data(), steps.size() * sizeof(float)), 0) << n << " rows";
        }
    }
}

TEST_P(Fused, TheLargestOutputIsFoundWithoutTheOutputs) {
    for (const std::int64_t m : {7, 1500, 2100}) {
        for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_BF16}) {
            const Matrix a = Matrix::quantised({type, kColumns, m}, 13);
            // Every row of weights twice, so that every largest output has a tie.
            const auto* bytes = static_cast<const char*>(a.tensor()->data);
            std::memcpy(static_cast<char*>(a.tensor()->data) + m / 2 * a.tensor()->nb[1], bytes,
                        m / 2 * a.tensor()->nb[1]);
            const PackedMatrix w(a.tensor(), pool_, memory_);
            for (const std::int64_t n : {1, 5, 33}) {
                ggml_context* ctx = ctx_.get();
                ggml_tensor* x = rows(n, 1.0f, 14);
                static_cast<float*>(x->data)[0] = std::numeric_limits<float>::quiet_NaN();
                if (!w.takes_floats()) x = quantize_for_packed(ctx, pool_, x);
                const auto fused = compute(ctx, argmax_packed(ctx, w, x));
                const auto steps = compute(ctx, argmax(ctx, pool_, multiply_packed(ctx, w, x)));
                ASSERT_EQ(std::memcmp(fused.data(), steps.data(), n * sizeof(std::int32_t)), 0)
                    << m << " outputs, " << n << " rows";
            }
        }
    }
}

TEST_P(Fused, NormsAreThoseOfTheDefinitionInAnyCompany) {
    ggml_context* ctx = ctx_.get();
    ggml_tensor* weight = rows(1, 1.0f, 8);
    ggml_tensor* x = rows(9, 40.0f, 9);
    std::fill_n(static_cast<float*>(x->data) + 3 * kColumns, kColumns, 0.0f);
    const auto bytes_of = [&](ggml_tensor* in) {
        return compute(ctx, norm_quantize_for_packed(ctx, pool_, in, ggml_reshape_1d(ctx, weight, kColumns), 1e-5f));
    };
    const auto together = bytes_of(x);
    for (std::int64_t r = 0; r < 9; ++r) {
        const auto* row = static_cast<const float*>(x->data) + r * kColumns;
        double squares = 0;
        for (int i = 0; i < kColumns; ++i) squares += static_cast<double>(row[i]) * row[i];
        const ActivationUnit* units = units_of(together.data(), kColumns, r);
        for (int i = 0; i < kColumns; ++i) {
            const ActivationUnit& unit = units[i / kUnitColumns];
            const double expected =
                row[i] / std::sqrt(squares / kColumns + 1e-5) * static_cast<const float*>(weight->data)[i];
            ASSERT_NEAR(unit.scale * unit.values[i % kUnitColumns], expected, 0.51 * unit.scale + 1e-30) << r;
        }
        const auto alone = bytes_of(ggml_view_2d(ctx, x, kColumns, 1, x->nb[1], r * x->nb[1]));
        ASSERT_TRUE(same_units(alone.data(), together.data(), kColumns, 0, r)) << r;
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, Fused, testing::Values(1, 3));

}  // namespace
}  // namespace bastion::kernels
