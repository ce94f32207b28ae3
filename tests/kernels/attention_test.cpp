// Tree attention against a reference in double precision, and the promise that grouping rows and heads changes no bit.
#include "kernels/attention.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "products.h"

namespace bastion::kernels {
namespace {

constexpr int kHeads = 6, kCells = 640;  // more than two segments of the vectorised path

/// A cache and queries of random values, and a pass over some rows of it.
class Attention {
 public:
    explicit Attention(ggml_type type, int kv_heads = 2)
        : type_(type),
          kv_heads_(kv_heads),
          head_dim_(type == GGML_TYPE_F16 ? 48 : 64),
          ctx_(ggml_init({1u << 24, nullptr, false})) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        keys_ = ggml_new_tensor_2d(ctx_.get(), type, head_dim_ * kv_heads_, kCells);
        values_ = ggml_new_tensor_2d(ctx_.get(), type, head_dim_ * kv_heads_, kCells);
        for (ggml_tensor* t : {keys_, values_}) {
            std::vector<float> numbers(ggml_nelements(t));
            for (float& n : numbers) n = normal(random);
            ggml_quantize_chunk(type, numbers.data(), t->data, 0, kCells, t->ne[0], nullptr);
        }
        query_.resize(static_cast<std::size_t>(head_dim_) * kHeads);
        for (float& n : query_) n = 2.0f * normal(random);
    }

    /// Every row asks the same query. One output row a plan row.
    std::vector<std::vector<float>> run(const std::vector<std::vector<std::int64_t>>& contexts, int shared, int threads,
                                        Isa isa) const {
        ThreadPool pool(threads, isa);
        AttentionPlan plan;
        plan.pool = &pool;
        plan.head_dim = head_dim_;
        plan.heads = kHeads;
        plan.kv_heads = kv_heads_;
        plan.scale = 0.3f;
        for (const auto& context : contexts) {
            const auto begin = static_cast<std::int32_t>(plan.extra.size());
            plan.extra.insert(plan.extra.end(), context.begin() + shared, context.end());
            plan.rows.push_back({context.front(), shared, begin, static_cast<std::int32_t>(plan.extra.size())});
        }
        ggml_context_ptr ctx(ggml_init({1u << 24, nullptr, false}));
        const auto rows = static_cast<std::int64_t>(contexts.size());
        ggml_tensor* q = ggml_new_tensor_3d(ctx.get(), GGML_TYPE_F32, head_dim_, kHeads, rows);
        for (std::int64_t r = 0; r < rows; ++r) {
            std::memcpy(static_cast<char*>(q->data) + r * q->nb[2], query_.data(), query_.size() * sizeof(float));
        }
        ggml_tensor* out = attend(ctx.get(), q, keys_, values_, &plan);
        ggml_cgraph* graph = ggml_new_graph(ctx.get());
        ggml_build_forward_expand(graph, out);
        EXPECT_EQ(ggml_graph_compute_with_ctx(ctx.get(), graph, 1), GGML_STATUS_SUCCESS);
        std::vector<std::vector<float>> result;
        for (std::int64_t r = 0; r < rows; ++r) {
            const auto* row = reinterpret_cast<const float*>(static_cast<const char*>(out->data) + r * out->nb[1]);
            result.emplace_back(row, row + out->ne[0]);
        }
        return result;
    }

    /// The same by definition: softmax over the cells, in double precision.
    std::vector<double> expected(const std::vector<std::int64_t>& context) const {
        std::vector<double> out(query_.size(), 0.0);
        for (int head = 0; head < kHeads; ++head) {
            const int kv = head / (kHeads / kv_heads_);
            std::vector<double> weights;
            double sum = 0;
            for (std::int64_t cell : context) {
                double dot = 0;
                for (int j = 0; j < head_dim_; ++j) dot += query_[head * head_dim_ + j] * number(keys_, cell, kv, j);
                weights.push_back(std::exp(0.3 * dot));
                sum += weights.back();
            }
            for (std::size_t i = 0; i < context.size(); ++i) {
                for (int j = 0; j < head_dim_; ++j) {
                    out[head * head_dim_ + j] += weights[i] / sum * number(values_, context[i], kv, j);
                }
            }
        }
        return out;
    }

 private:
    double number(const ggml_tensor* t, std::int64_t cell, int kv_head, int j) const {
        std::vector<float> row(t->ne[0]);
        ggml_get_type_traits(type_)->to_float(static_cast<const char*>(t->data) + cell * t->nb[1], row.data(),
                                              t->ne[0]);
        return row[kv_head * head_dim_ + j];
    }

    ggml_type type_;
    int kv_heads_, head_dim_;
    ggml_context_ptr ctx_;
    ggml_tensor *keys_, *values_;
    std::vector<float> query_;
};

/// Rows of a tree over `shared` committed cells: each continues by some of the cells behind them.
std::vector<std::vector<std::int64_t>> tree_contexts(int shared, int rows, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<std::int64_t>> contexts;
    for (int r = 0; r < rows; ++r) {
        std::vector<std::int64_t> context;
        for (int c = 0; c < shared; ++c) context.push_back(c);
        for (int c = shared; c < std::min(shared + 60, kCells); ++c) {
            if (random() % 4 == 0) context.push_back(c);
        }
        contexts.push_back(std::move(context));
    }
    return contexts;
}

class TreeAttention : public testing::TestWithParam<ggml_type> {};

TEST_P(TreeAttention, EqualsTheDefinition) {
    const Attention attention(GetParam());
    // Products of 16-bit caches are rounded to f32, q8_0 queries to 8 bits.
    const double tolerance = GetParam() == GGML_TYPE_Q8_0 ? 0.08 : GetParam() == GGML_TYPE_BF16 ? 0.02 : 0.005;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        for (const int shared : {1, 7, 8, 40, 250, 256, 560}) {
            const auto contexts = tree_contexts(shared, 5, shared);
            const auto rows = attention.run(contexts, shared, 2, isa);
            for (std::size_t r = 0; r < rows.size(); ++r) {
                const std::vector<double> expected = attention.expected(contexts[r]);
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    ASSERT_NEAR(rows[r][i], expected[i], tolerance) << "shared " << shared << ", row " << r;
                }
            }
        }
    }
}

class CompanyAttention : public testing::TestWithParam<std::tuple<ggml_type, int>> {
 protected:
    const Attention attention_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(CompanyAttention, GivesTheSameBits) {
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        for (const int shared : {1, 13, 40, 250, 256, 560}) {
            const auto contexts = tree_contexts(shared, 9, 100 + shared);
            std::vector<std::vector<float>> alone;
            for (const auto& context : contexts) {
                alone.push_back(attention_.run({context}, shared, 1, isa).front());
                // Where the run ends and the list begins is bookkeeping, not arithmetic.
                const auto listed = attention_.run({context}, 1, 2, isa).front();
                ASSERT_EQ(std::memcmp(alone.back().data(), listed.data(), listed.size() * sizeof(float)), 0);
            }
            // Whole heads for some threads, pieces for others, or pieces alone.
            for (const int threads : {2, 3, 4, 8}) {
                const auto together = attention_.run(contexts, shared, threads, isa);
                for (std::size_t r = 0; r < contexts.size(); ++r) {
                    const auto cut = attention_.run({contexts[r]}, shared, threads, isa).front();
                    ASSERT_EQ(std::memcmp(alone[r].data(), cut.data(), cut.size() * sizeof(float)), 0);
                    ASSERT_EQ(std::memcmp(alone[r].data(), together[r].data(), cut.size() * sizeof(float)), 0);
                }
            }
        }
    }
}

TEST_P(CompanyAttention, GivesTheSameBitsBesideOtherSequences) {
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        for (const int sequences : {2, 7}) {  // few and, for two threads, many
            const int apart = kCells / sequences, shared = apart / 2;
            std::vector<std::vector<std::int64_t>> contexts;
            for (int s = 0; s < sequences; ++s) {
                for (auto context : tree_contexts(shared, 1 + s % 3, 300 + s)) {
                    for (std::int64_t& cell : context) cell += static_cast<std::int64_t>(s) * apart;
                    std::erase_if(context, [&](std::int64_t cell) { return cell >= kCells; });
                    contexts.push_back(std::move(context));
                }
            }
            for (const int threads : {2, 5}) {
                const auto together = attention_.run(contexts, shared, threads, isa);
                for (std::size_t r = 0; r < contexts.size(); ++r) {
                    const auto alone = attention_.run({contexts[r]}, shared, 1, isa).front();
                    ASSERT_EQ(std::memcmp(alone.data(), together[r].data(), alone.size() * sizeof(float)), 0)
                        << sequences << " sequences, row " << r;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(TypesAndHeads, CompanyAttention,
                         testing::Combine(testing::Values(GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0),
                                          testing::Values(2, 3)),
                         [](const auto& company) {
                             return std::string(ggml_type_name(std::get<0>(company.param))) + "_" +
                                    std::to_string(std::get<1>(company.param));
                         });

TEST_P(TreeAttention, GivesTheSameBitsWithEveryVectorLength) {
    BASTION_NEED_VECTORS();
    const Attention attention(GetParam());
    for (const int shared : {1, 13, 40, 250, 256, 560}) {
        const auto contexts = tree_contexts(shared, 9, 200 + shared);
        const auto narrow = attention.run(contexts, shared, 2, Isa::avx2);
        const auto wide = attention.run(contexts, shared, 2, Isa::avx512);
        for (std::size_t r = 0; r < contexts.size(); ++r) {
            ASSERT_EQ(std::memcmp(narrow[r].data(), wide[r].data(), wide[r].size() * sizeof(float)), 0);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, TreeAttention, testing::Values(GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

}  // namespace
}  // namespace bastion::kernels
