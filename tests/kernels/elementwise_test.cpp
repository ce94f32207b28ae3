#include "kernels/elementwise.h"

#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "products.h"

namespace bastion::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Runs one operation over inputs that `make` places into the context.
class Computation {
 public:
    Computation() : ctx_(ggml_init({std::size_t{64} << 20, nullptr, false})) {}

    ggml_context* ctx() { return ctx_.get(); }

    ggml_tensor* tensor(const std::vector<float>& values, std::int64_t a, std::int64_t b, std::int64_t c = 1) {
        ggml_tensor* t = ggml_new_tensor_3d(ctx(), GGML_TYPE_F32, a, b, c);
        std::memcpy(t->data, values.data(), values.size() * sizeof(float));
        return t;
    }

    std::vector<float> run(ggml_tensor* out) {
        ggml_cgraph* graph = ggml_new_graph(ctx());
        ggml_build_forward_expand(graph, out);
        ggml_graph_compute_with_ctx(ctx(), graph, 1);
        const auto* data = static_cast<const float*>(out->data);
        return {data, data + ggml_nelements(out)};
    }

 private:
    ggml_context_ptr ctx_;
};

TEST(Rope, RotatesPairsByTheirAngleWhicheverWayTheyAreStored) {
    const std::vector<float> x = normal_numbers(8 * 3 * 4, 3.0f, 1);
    const std::vector<std::int32_t> positions{0, 1, 77, 4000};
    ThreadPool pool(2);
    for (const RopePairs pairs : {RopePairs::neighbours, RopePairs::halves}) {
        Computation c;
        const std::vector<float> table = rope_table({8, 10000.0f, 0.5f, nullptr}, positions);
        const std::vector<float> out = c.run(rotate(c.ctx(), pool, c.tensor(x, 8, 3, 4), c.tensor(table, 8, 4), pairs));
        for (int row = 0; row < 4; ++row) {
            for (int i = 0; i < 4; ++i) {
                const double angle = 0.5 * positions[row] * std::pow(10000.0, -2.0 * i / 8);
                const int first = pairs == RopePairs::halves ? i : 2 * i;
                const int second = pairs == RopePairs::halves ? i + 4 : 2 * i + 1;
                for (int head = 0; head < 3; ++head) {
                    const std::size_t at = (row * 3 + head) * 8;
                    const double a = x[at + first], b = x[at + second];
                    EXPECT_NEAR(out[at + first], a * std::cos(angle) - b * std::sin(angle), 3e-3);
                    EXPECT_NEAR(out[at + second], a * std::sin(angle) + b * std::cos(angle), 3e-3);
                }
            }
        }
    }
}

TEST(Rope, StoresWhatRotationAndSetRowsWouldStore) {
    constexpr std::int64_t kHeadDim = 32, kHeads = 6, kKvHeads = 2, kWidth = kHeadDim * kKvHeads, kCells = 40;
    ThreadPool pool(3);
    for (const RopePairs pairs : {RopePairs::neighbours, RopePairs::halves}) {
        for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_F32}) {
            Computation c;
            std::vector<std::int32_t> positions;
            std::vector<std::int64_t> cells;
            for (int i = 0; i < 17; ++i) positions.push_back(3 * i), cells.push_back((i * 7 + 3) % kCells);
            const auto n = static_cast<std::int64_t>(positions.size());
            ggml_tensor* table = c.tensor(rope_table({kHeadDim, 1e4f, 1.0f, nullptr}, positions), kHeadDim, n);
            ggml_tensor* into = ggml_new_tensor_1d(c.ctx(), GGML_TYPE_I64, n);
            std::memcpy(into->data, cells.data(), ggml_nbytes(into));
            // Queries, keys and values as one product gives them, side by side.
            const std::int64_t all = kHeadDim * kHeads + 2 * kWidth;
            ggml_tensor* x = c.tensor(normal_numbers(all * n, 2.0f, 20), all, n);
            const auto heads = [&](std::int64_t count, std::int64_t first) {
                return ggml_view_3d(c.ctx(), x, kHeadDim, count, n, kHeadDim * sizeof(float), x->nb[1],
                                    first * sizeof(float));
            };
            ggml_tensor *q = heads(kHeads, 0), *k = heads(kKvHeads, kHeadDim * kHeads);
            ggml_tensor* v =
                ggml_view_2d(c.ctx(), x, kWidth, n, x->nb[1], (kHeadDim * kHeads + kWidth) * sizeof(float));
            const auto cache = [&] {
                ggml_tensor* t = ggml_new_tensor_2d(c.ctx(), type, kWidth, kCells);
                std::memset(t->data, 0, ggml_nbytes(t));
                return t;
            };
            ggml_tensor *keys = cache(), *values = cache(), *wanted_keys = cache(), *wanted_values = cache();
            const auto rotated = c.run(rotate_and_store(c.ctx(), pool, {q, k, v}, table, keys, values, into, pairs));
            const auto wanted = c.run(rotate(c.ctx(), pool, q, table, pairs));
            EXPECT_EQ(std::memcmp(rotated.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
            ggml_tensor* rows = ggml_reshape_2d(c.ctx(), rotate(c.ctx(), pool, k, table, pairs), kWidth, n);
            ggml_cgraph* graph = ggml_new_graph(c.ctx());
            ggml_build_forward_expand(graph, ggml_set_rows(c.ctx(), wanted_keys, rows, into));
            ggml_build_forward_expand(graph, ggml_set_rows(c.ctx(), wanted_values, v, into));
            ASSERT_EQ(ggml_graph_compute_with_ctx(c.ctx(), graph, 1), GGML_STATUS_SUCCESS);
            EXPECT_EQ(std::memcmp(keys->data, wanted_keys->data, ggml_nbytes(keys)), 0) << ggml_type_name(type);
            EXPECT_EQ(std::memcmp(values->data, wanted_values->data, ggml_nbytes(values)), 0) << ggml_type_name(type);
        }
    }
}

TEST(Rope, AFrequencyFactorDividesTheAngleOfItsPair) {
    const std::vector<float> factors{1.0f, 4.0f};
    const std::vector<std::int32_t> positions{8};
    const std::vector<float> table = rope_table({4, 100.0f, 1.0f, factors.data()}, positions);
    EXPECT_NEAR(table[0], std::cos(8.0), 1e-6);
    EXPECT_NEAR(table[1], std::cos(8.0 / 10 / 4), 1e-6);
    EXPECT_NEAR(table[2], std::sin(8.0), 1e-6);
    EXPECT_NEAR(table[3], std::sin(8.0 / 10 / 4), 1e-6);
}

TEST(Gated, IsSiluOfTheGateTimesUp) {
    ThreadPool pool(2);
    for (const std::int64_t width : {1, 7, 8, 1023, 1537, 5000}) {
        std::vector<float> gate = normal_numbers(width * 3, 6.0f, 2);
        gate[0] = -200.0f;
        if (width > 1) gate[1] = 200.0f;
        const std::vector<float> up = normal_numbers(width * 3, 3.0f, 3);
        Computation c;
        const std::vector<float> out = c.run(gated(c.ctx(), pool, c.tensor(gate, width, 3), c.tensor(up, width, 3)));
        for (std::size_t i = 0; i < out.size(); ++i) {
            const double wanted =
                static_cast<double>(gate[i]) / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
            EXPECT_NEAR(out[i], wanted, 1e-6 + 1e-6 * std::abs(wanted)) << "gate " << gate[i] << " width " << width;
        }
    }
}

TEST(Gated, ARowDoesNotDependOnTheOthers) {
    ThreadPool pool(3);
    const std::int64_t width = 1001;  // rows begin at every place of a vector
    const std::vector<float> gate = normal_numbers(width * 9, 3.0f, 4), up = normal_numbers(width * 9, 3.0f, 5);
    Computation all;
    const std::vector<float> together =
        all.run(gated(all.ctx(), pool, all.tensor(gate, width, 9), all.tensor(up, width, 9)));
    for (int row = 0; row < 9; ++row) {
        Computation one;
        const auto cut = [&](const std::vector<float>& v) {
            return std::vector<float>(v.begin() + row * width, v.begin() + (row + 1) * width);
        };
        const std::vector<float> alone =
            one.run(gated(one.ctx(), pool, one.tensor(cut(gate), width, 1), one.tensor(cut(up), width, 1)));
        EXPECT_EQ(std::memcmp(alone.data(), together.data() + row * width, width * sizeof(float)), 0) << "row " << row;
    }
}

std::int32_t argmax_of(const std::vector<float>& row) {
    ThreadPool pool(1);
    Computation c;
    const float bits = c.run(argmax(c.ctx(), pool, c.tensor(row, static_cast<std::int64_t>(row.size()), 1)))[0];
    std::int32_t index;
    std::memcpy(&index, &bits, sizeof index);
    return index;
}

TEST(Argmax, IsTheFirstOfTheLargest) {
    std::vector<float> row(1003, 1.0f);
    EXPECT_EQ(argmax_of(row), 0);
    row[1002] = 2.0f;
    EXPECT_EQ(argmax_of(row), 1002);
    row[517] = row[518] = 2.0f;
    EXPECT_EQ(argmax_of(row), 517);
    row[40] = kNan;  // never chosen while there are numbers
    EXPECT_EQ(argmax_of(row), 517);
    EXPECT_EQ(argmax_of({kNan, -std::numeric_limits<float>::infinity(), -1.0f}), 2);
}

TEST(TopLogprobs, AreTheLargestSortedWithTheirLogSoftmax) {
    ThreadPool pool(2);
    for (const std::int64_t m : {8, 9, 100, 8192}) {
        std::vector<float> x = normal_numbers(m * 2, 3.0f, 6);
        x[3] = x[7] = 50.0f;  // a tie at the top of the first row
        Computation c;
        const std::vector<float> out = c.run(top_logprobs(c.ctx(), pool, c.tensor(x, m, 2), 8));
        for (int row = 0; row < 2; ++row) {
            const float* values = x.data() + row * m;
            std::vector<std::int32_t> order(m);
            for (std::int64_t i = 0; i < m; ++i) order[i] = static_cast<std::int32_t>(i);
            std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] > values[b]; });
            double sum = 0;
            for (std::int64_t i = 0; i < m; ++i) sum += std::exp(static_cast<double>(values[i]) - values[order[0]]);
            for (int i = 0; i < 8; ++i) {
                std::int32_t index;
                std::memcpy(&index, &out[row * 16 + 8 + i], sizeof index);
                EXPECT_EQ(index, order[i]) << "m " << m << " row " << row;
                EXPECT_NEAR(out[row * 16 + i], values[order[i]] - values[order[0]] - std::log(sum), 1e-5);
            }
        }
    }
}

}  // namespace
}  // namespace bastion::kernels
