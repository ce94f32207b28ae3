// How fast matrix products are by weight type and number of activation rows, on one thread: best of several runs, after
// checking that every row's result is what it is alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kernels/packed.h"

namespace {

using namespace bastion::kernels;

constexpr std::int64_t kColumns = 768, kRows = 1536;  // a feed-forward matrix of a small model: stays in cache
constexpr int kMostActivations = 32, kRuns = 15, kRepeats = 20;
constexpr ggml_type kTypes[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
                                GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_F16,  GGML_TYPE_BF16};

/// A random matrix, and activations in the form that its kernels read.
class Product {
 public:
    Product(ggml_type type, const std::vector<float>& weights, const std::vector<float>& x)
        : ctx_(ggml_init({1u << 24, nullptr, false})), pool_(1) {
        ggml_tensor* w = ggml_new_tensor_2d(ctx_.get(), type, kColumns, kRows);
        ggml_quantize_chunk(type, weights.data(), w->data, 0, kRows, kColumns, nullptr);
        packed_.emplace(w, pool_, memory_);
        row_bytes_ = packed_->takes_floats() ? kColumns * sizeof(float) : activation_bytes(kColumns);
        activations_.resize(row_bytes_ * kMostActivations);
        for (int c = 0; c < kMostActivations; ++c) {
            char* row = activations_.data() + c * row_bytes_;
            if (packed_->takes_floats()) {
                std::memcpy(row, x.data() + c * kColumns, row_bytes_);
            } else {
                quantize_activations(x.data() + c * kColumns, kColumns, row);
            }
        }
    }

    /// Products with `count` activation rows from `first` on, to out [count][kRows].
    void multiply(int first, int count, float* out) const {
        packed_->multiply(0, packed_->tiles(), activations_.data() + first * row_bytes_, row_bytes_, count, out, kRows);
    }

    bool rows_are_independent() const {
        std::vector<float> together(kMostActivations * kRows), alone(kRows);
        multiply(0, kMostActivations, together.data());
        for (int c = 0; c < kMostActivations; ++c) {
            multiply(c, 1, alone.data());
            if (std::memcmp(alone.data(), together.data() + c * kRows, kRows * sizeof(float)) != 0) return false;
        }
        return true;
    }

 private:
    ggml_context_ptr ctx_;
    ThreadPool pool_;
    HugeMemory memory_;
    std::optional<PackedMatrix> packed_;
    std::size_t row_bytes_ = 0;
    std::vector<char> activations_;
};

double best_seconds(const Product& product, int count, std::vector<float>& out) {
    double best = 1e9;
    for (int run = 0; run < kRuns; ++run) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kRepeats; ++i) product.multiply(0, count, out.data());
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best / kRepeats;
}

}  // namespace

int main() {
    if (best_isa() == Isa::portable) {
        std::puts("this processor has no kernels of our own (AVX2, FMA and F16C)");
        return 0;
    }
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> weights(kColumns * kRows), x(kColumns * kMostActivations), out(kMostActivations * kRows);
    for (float& v : weights) v = normal(random);
    for (float& v : x) v = normal(random);
    std::puts("type   rows  us/pass  multiply-adds/ns  time of n rows / 1 row");
    for (const ggml_type type : kTypes) {
        const Product product(type, weights, x);
        if (!product.rows_are_independent()) {
            std::printf("%s: a row's result depends on the other rows\n", ggml_type_name(type));
            return 1;
        }
        double one = 0;
        for (const int count : {1, 2, 4, 8, 16}) {
            const double seconds = best_seconds(product, count, out);
            if (count == 1) one = seconds;
            std::printf("%-6s %4d %8.1f %17.1f %10.2f\n", ggml_type_name(type), count, seconds * 1e6,
                        static_cast<double>(kColumns * kRows * count) / seconds * 1e-9, seconds / one);
        }
    }
    return 0;
}
