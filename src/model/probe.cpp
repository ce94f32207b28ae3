#include "model/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "model/blocks.h"

namespace bastion {
namespace {

constexpr int kRuns = 5;

/// Seconds of the fastest of several runs.
Result<double> fastest(const std::function<Status()>& run) {
    double best = 0;
    for (int i = 0; i < kRuns; ++i) {
        const auto start = std::chrono::steady_clock::now();
        BASTION_CHECK(run());
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        best = i == 0 ? seconds : std::min(best, seconds);
    }
    return best;
}

/// A matrix of the model, small enough to stay in a cache, times many rows.
Result<double> measure_flops(const ModelConfig& config, const Weights& weights, const Device& device) {
    constexpr int kRows = 64, kRepeats = 4;
    const Matrix w = weights.matrix(0, config.arch->experts ? "attn_q.weight" : "ffn_up.weight");
    BASTION_ASSIGN(Graph g, Graph::create(64));
    ggml_tensor* x = input(g.ctx.get(), GGML_TYPE_F32, w.tensor->ne[0], kRows);
    for (int i = 0; i < kRepeats; ++i) {
        ggml_build_forward_expand(g.graph, Activations(g.ctx.get(), device, x).times(w));
    }
    BASTION_CHECK(g.allocate(device));
    upload(x, std::vector<float>(static_cast<std::size_t>(ggml_nelements(x)), 0.5f));
    BASTION_ASSIGN(const double seconds, fastest([&] { return compute(device, g.graph); }));
    return 2.0 * static_cast<double>(w.tensor->ne[0] * w.tensor->ne[1]) * kRows * kRepeats / seconds;
}

/// A copy larger than caches: every byte is read once and written once.
Result<double> measure_bandwidth(const Device& device) {
    constexpr std::int64_t kBytes = std::int64_t{64} << 20;
    if (device.exact()) {
        const std::vector<char> from(kBytes, 1);
        std::vector<char> to(kBytes);
        BASTION_ASSIGN(const double seconds, fastest([&]() -> Status {
                           device.pool().run(kBytes, kBytes / 64, [&](std::int64_t begin, std::int64_t end) {
                               std::memcpy(to.data() + begin, from.data() + begin, end - begin);
                           });
                           return {};
                       }));
        return 2.0 * kBytes / seconds;
    }
    BASTION_ASSIGN(Graph g, Graph::create(8));
    ggml_tensor* x = input(g.ctx.get(), GGML_TYPE_F32, 4096, kBytes / 4096 / static_cast<std::int64_t>(sizeof(float)));
    ggml_build_forward_expand(g.graph, ggml_dup(g.ctx.get(), x));
    BASTION_CHECK(g.allocate(device));
    upload(x, std::vector<float>(kBytes / sizeof(float), 0.5f));
    BASTION_ASSIGN(const double seconds, fastest([&] { return compute(device, g.graph); }));
    return 2.0 * kBytes / seconds;
}

}  // namespace

Result<MeasuredPeak> measure_peak(const ModelConfig& config, const Weights& weights, const Device& device) {
    MeasuredPeak peak;
    BASTION_ASSIGN(peak.flops_per_s, measure_flops(config, weights, device));
    BASTION_ASSIGN(peak.bytes_per_s, measure_bandwidth(device));
    return peak;
}

}  // namespace bastion
