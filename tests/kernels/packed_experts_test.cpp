#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/packed.h"
#include "products.h"

namespace bastion::kernels {
namespace {

constexpr std::int64_t kColumns = 256, kRows = 48, kExperts = 5, kUsed = 2;

/// Experts of one type, and what each of them alone makes of activations.
class Experts {
 public:
    explicit Experts(ggml_type type) : ctx_(ggml_init({std::size_t{16} << 20, nullptr, false})) {
        weights_ = ggml_new_tensor_3d(ctx_.get(), type, kColumns, kRows, kExperts);
        const std::vector<float> values = normal_numbers(ggml_nelements(weights_), 1.0f, 3);
        ggml_quantize_chunk(type, values.data(), weights_->data, 0, kRows * kExperts, kColumns, nullptr);
    }

    /// rows [activation rows][kColumns] -> [n][kUsed][kRows]
    std::vector<float> together(const std::vector<float>& rows, const std::vector<std::int32_t>& choices, int threads) {
        ThreadPool pool(threads);
        HugeMemory memory;
        const PackedMatrix packed(weights_, pool, memory);
        const auto n = static_cast<std::int64_t>(choices.size()) / kUsed;
        ggml_context_ptr ctx(ggml_init({std::size_t{16} << 20, nullptr, false}));
        ggml_tensor* x =
            ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, kColumns, static_cast<std::int64_t>(rows.size()) / kColumns);
        std::memcpy(x->data, rows.data(), ggml_nbytes(x));
        ggml_tensor* chosen = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_I32, kUsed, n);
        std::memcpy(chosen->data, choices.data(), ggml_nbytes(chosen));
        if (!packed.takes_floats()) x = quantize_for_packed(ctx.get(), pool, x);
        ggml_tensor* out = multiply_experts_packed(ctx.get(), packed, kRows, x, chosen);
        ggml_cgraph* graph = ggml_new_graph(ctx.get());
        ggml_build_forward_expand(graph, out);
        EXPECT_EQ(ggml_graph_compute_with_ctx(ctx.get(), graph, 1), GGML_STATUS_SUCCESS);
        const auto* data = static_cast<const float*>(out->data);
        return {data, data + ggml_nelements(out)};
    }

    std::vector<float> alone(const float* row, std::int32_t expert) {
        ThreadPool pool(1);
        ggml_tensor* one =
            ggml_view_2d(ctx_.get(), weights_, kColumns, kRows, weights_->nb[1], expert * weights_->nb[2]);
        HugeMemory memory;
        const PackedMatrix packed(one, pool, memory);
        std::vector<char> activations(packed.takes_floats() ? kColumns * sizeof(float) : activation_bytes(kColumns));
        if (packed.takes_floats()) {
            std::memcpy(activations.data(), row, activations.size());
        } else {
            quantize_activations(row, kColumns, activations.data());
        }
        std::vector<float> out(kRows);
        packed.multiply(0, packed.tiles(), activations.data(), activations.size(), 1, out.data(), kRows);
        return out;
    }

 private:
    ggml_context_ptr ctx_;
    ggml_tensor* weights_;
};

class PackedExperts : public testing::TestWithParam<ggml_type> {
 protected:
    void SetUp() override { BASTION_NEED_VECTORS(); }
};

TEST_P(PackedExperts, GiveEveryRowWhatItsExpertAloneGives) {
    Experts experts(GetParam());
    std::mt19937 rng(4);
    for (const std::int64_t n : {1, 3, 40}) {
        std::vector<std::int32_t> chosen;
        for (std::int64_t row = 0; row < n; ++row) {  // expert 4 is never chosen
            const auto first = static_cast<std::int32_t>(rng() % 4);
            chosen.insert(chosen.end(), {first, (first + 1) % 4});
        }
        for (const bool shared : {true, false}) {
            const std::vector<float> rows = normal_numbers((shared ? n : n * kUsed) * kColumns, 1.0f, 5);
            for (const int threads : {1, 3}) {
                const std::vector<float> out = experts.together(rows, chosen, threads);
                for (std::int64_t pair = 0; pair < n * kUsed; ++pair) {
                    const float* row = rows.data() + (shared ? pair / kUsed : pair) * kColumns;
                    const std::vector<float> wanted = experts.alone(row, chosen[pair]);
                    ASSERT_EQ(std::memcmp(out.data() + pair * kRows, wanted.data(), kRows * sizeof(float)), 0)
                        << "pair " << pair << " of " << n << " rows, shared " << shared;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedExperts,
                         testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
                                         GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

}  // namespace
}  // namespace bastion::kernels
