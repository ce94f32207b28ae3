// How fast the packed matrix product is by weight type and number of activation rows, on one thread: best of several
// runs, after checking that every row's result is what it is alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/packed.h"

namespace {

using namespace bastion::kernels;

constexpr std::int64_t kColumns = 576, kRows = 1536;  // a feed-forward matrix of a small model: stays in cache
constexpr int kMostActivations = 16, kRuns = 15, kRepeats = 20;

double best_seconds(const PackedMatrix& w, const std::vector<char>& activations, int count, std::vector<float>& out) {
    double best = 1e9;
    for (int run = 0; run < kRuns; ++run) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kRepeats; ++i) {
            w.multiply(0, w.tiles(), activations.data(), activation_bytes(kColumns), count, out.data(), kRows);
        }
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best / kRepeats;
}

bool rows_are_independent(const PackedMatrix& w, const std::vector<char>& activations) {
    std::vector<float> together(kMostActivations * kRows), alone(kRows);
    const std::size_t bytes = activation_bytes(kColumns);
    w.multiply(0, w.tiles(), activations.data(), bytes, kMostActivations, together.data(), kRows);
    for (int c = 0; c < kMostActivations; ++c) {
        w.multiply(0, w.tiles(), activations.data() + c * bytes, bytes, 1, alone.data(), kRows);
        if (std::memcmp(alone.data(), together.data() + c * kRows, kRows * sizeof(float)) != 0) return false;
    }
    return true;
}

}  // namespace

int main() {
    if (!packed_kernels_available()) {
        std::puts("this processor has no packed kernels (AVX2, FMA and F16C)");
        return 0;
    }
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> weights(kColumns * kRows), x(kColumns);
    for (float& v : weights) v = normal(random);
    std::vector<char> activations(activation_bytes(kColumns) * kMostActivations);
    for (int c = 0; c < kMostActivations; ++c) {
        for (float& v : x) v = normal(random);
        quantize_activations(x.data(), kColumns, activations.data() + c * activation_bytes(kColumns));
    }
    ThreadPool pool(1);
    std::vector<float> out(kMostActivations * kRows);
    std::puts("type   rows  us/pass  multiply-adds/ns  time of n rows / 1 row");
    for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0}) {
        ggml_context_ptr ctx(ggml_init({1u << 24, nullptr, false}));
        ggml_tensor* w = ggml_new_tensor_2d(ctx.get(), type, kColumns, kRows);
        ggml_quantize_chunk(type, weights.data(), w->data, 0, kRows, kColumns, nullptr);
        const PackedMatrix packed(w, pool);
        if (!rows_are_independent(packed, activations)) {
            std::printf("%s: a row's result depends on the other rows\n", ggml_type_name(type));
            return 1;
        }
        double one = 0;
        for (const int count : {1, 2, 4, 8, 16}) {
            const double seconds = best_seconds(packed, activations, count, out);
            if (count == 1) one = seconds;
            std::printf("%-6s %4d %8.1f %17.1f %10.2f\n", ggml_type_name(type), count, seconds * 1e6,
                        static_cast<double>(kColumns * kRows * count) / seconds * 1e-9, seconds / one);
        }
    }
    return 0;
}
