#include "engine/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "model/probe.h"
#include "tree/build.h"

namespace bastion {
namespace {

/// The median of at least one time: what a run usually takes. The fastest would be what a cycle hardly ever takes.
double usual(std::vector<double> times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

Result<double> time_ms(const std::function<Status()>& run) {
    const auto start = std::chrono::steady_clock::now();
    BASTION_CHECK(run());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Milliseconds of `run`; before each of five, untimed, `before`.
Result<double> usual_ms(
    const std::function<Status()>& run, const std::function<Status()>& before = [] { return Status(); }) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) {
        BASTION_CHECK(before());
        BASTION_ASSIGN(const double ms, time_ms(run));
        times.push_back(ms);
    }
    return usual(std::move(times));
}

/// FNV-1a over the length of a file, its tensors' names and the first bytes of each: cheap, and different for different
/// models.
std::string fingerprint(const GgufFile& file) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    const auto mix = [&hash](const void* data, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) {
            hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ull;
        }
    };
    const std::uint64_t bytes = file.file_bytes();
    mix(&bytes, sizeof bytes);
    for (const TensorInfo& t : file.tensors()) {
        mix(t.name.data(), t.name.size());
        mix(t.data, std::min<std::size_t>(t.bytes, 256));
    }
    char text[32];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
}

double bytes_per_element(const GgufFile& file, const std::function<bool(const std::string&)>& wanted) {
    double bytes = 0, elements = 0;
    for (const TensorInfo& t : file.tensors()) {
        if (!wanted(t.name)) continue;
        bytes += static_cast<double>(t.bytes);
        elements += static_cast<double>(t.ne[0]) * t.ne[1] * t.ne[2];
    }
    return elements > 0 ? bytes / elements : 2.0;
}

/// Rows of the feature pool, if there is a drafter, given back at the end.
class BorrowedFeatures {
 public:
    BorrowedFeatures(Models& models, int count) : models_(models) {
        if (models.draft) rows_ = models.draft->features->take(count);
    }
    ~BorrowedFeatures() {
        if (models_.draft) models_.draft->features->give_back(rows_);
    }
    BorrowedFeatures(const BorrowedFeatures&) = delete;
    BorrowedFeatures& operator=(const BorrowedFeatures&) = delete;

    const std::vector<std::int32_t>& rows() const { return rows_; }

 private:
    Models& models_;
    std::vector<std::int32_t> rows_;
};

/// A pass over `nodes` rows shaped like a tree (two children a node) at `context` committed tokens.
class TimedPass {
 public:
    TimedPass(Models& models, int slot, int nodes, int context) : models_(models), features_(models, nodes) {
        std::vector<int> depth(nodes, 0);
        for (int i = 0; i < nodes; ++i) {
            parents_.push_back(i == 0 ? -1 : (i - 1) / 2);
            if (i > 0) depth[i] = depth[parents_[i]] + 1;
            positions_.push_back(context + depth[i]);
            tokens_.push_back(static_cast<Token>((i * 7919L + 17) % models.config.vocab));
        }
        rows_ = {slot, context, tokens_, positions_, parents_, features_.rows()};
    }

    Status run() { return models_.target->pass({&rows_, 1}, Outputs::argmax); }

 private:
    Models& models_;
    BorrowedFeatures features_;
    std::vector<Token> tokens_;
    std::vector<std::int32_t> positions_, parents_;
    SequenceRows rows_;
};

/// Times an injection and a draft, of one block and of several, and what surrounds a verification: building, and
/// moving rows. Drafts are timed as they come in a cycle: after a pass whose weights have displaced the drafter's from
/// the caches.
Status measure_draft(Models& m, int slot, int used, Profile& profile) {
    if (!m.draft) return {};
    const int position = std::max(std::clamp(m.ctx / 2, 2, 64), used + 2);
    const int block = m.draft->config.block_size;
    const int topk = std::min(8, m.draft->config.head_rows());
    const BorrowedFeatures features(m, 2);
    TimedPass pass(m, slot, 1, position);
    std::vector<Lattice> lattices;
    // The blocks stand in for those of as many requests: one behind the other in the same slot.
    const auto draft_ms = [&](int blocks) -> Result<double> {
        std::vector<std::vector<std::int32_t>> positions;
        std::vector<DraftRequest> requests;
        for (int i = 0; i < blocks; ++i) {
            const int at = position + i * block;
            positions.push_back({at - 2, at - 1});
            requests.push_back({slot, 0, at});
        }
        std::vector<Injection> injections;
        for (const auto& two : positions) injections.push_back({slot, features.rows(), two});
        const auto draft = [&]() -> Status {
            BASTION_CHECK(m.draft->drafter->inject(injections));
            BASTION_ASSIGN(lattices, m.draft->drafter->draft(requests, topk));
            return {};
        };
        return usual_ms(draft, [&] { return pass.run(); });
    };
    BASTION_ASSIGN(profile.draft_ms, draft_ms(1));
    profile.draft_more_ms = profile.draft_ms;
    if (const int several = std::min(4, (m.draft->kv->cells() - position) / block); several > 1) {
        BASTION_ASSIGN(const double several_ms, draft_ms(several));
        profile.draft_more_ms = std::max(0.0, (several_ms - profile.draft_ms) / (several - 1));
    }
    const auto surround = [&]() -> Status {
        const Tree tree = build_best_first(lattices.front(), 0, 32);
        const std::vector<std::int32_t> kept{0, 2, 3};
        return m.kv->keep_rows(*m.device, slot, position, kept);
    };
    BASTION_ASSIGN(profile.aux_ms, usual_ms(surround));
    return {};
}

std::vector<int> node_counts(const Models& m, bool brief) {
    if (brief) return {1, 2, 4, 8, 16};
    std::vector<int> counts{1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64};
    for (int n : {96, 128, 192, 256, 384, 512, 768, 1024}) {
        if (n <= m.auto_nodes) counts.push_back(n);
    }
    return counts;
}

std::vector<int> contexts(const Models& m, int used, bool brief) {
    std::vector<int> wanted = brief ? std::vector<int>{64, 512} : std::vector<int>{64, 256, 1024};
    std::erase_if(wanted, [&](int c) { return c >= m.ctx || c < used; });
    if (wanted.empty()) wanted.push_back(std::max(m.ctx / 2, used));
    return wanted;
}

}  // namespace

ModelShape model_shape(const GgufFile& file, const ModelConfig& c, ggml_type cache_type) {
    ModelShape s;
    s.layers = c.layers;
    s.hidden = c.hidden;
    s.q_width = c.q_width();
    s.kv_width = c.kv_width();
    s.ffn_width = c.ffn;
    s.vocab = c.vocab;
    s.experts = c.experts;
    s.experts_used = c.experts_used;
    const auto contains = [](const char* part) {
        return [part](const std::string& name) { return name.find(part) != std::string::npos; };
    };
    const std::string head = c.tied_head ? "token_embd.weight" : "output.weight";
    s.attn_weight_bytes = bytes_per_element(file, [](const std::string& name) {
        return name.find(".attn_") != std::string::npos && name.find("norm") == std::string::npos;
    });
    s.ffn_weight_bytes = bytes_per_element(file, [](const std::string& name) {
        return name.find(".ffn_") != std::string::npos && name.find("norm") == std::string::npos &&
               name.find("gate_inp") == std::string::npos;
    });
    if (c.experts > 0) s.router_weight_bytes = bytes_per_element(file, contains("ffn_gate_inp"));
    s.head_weight_bytes = bytes_per_element(file, [&](const std::string& name) { return name == head; });
    s.embed_weight_bytes = bytes_per_element(file, contains("token_embd"));
    s.kv_bytes = static_cast<double>(ggml_type_size(cache_type)) / static_cast<double>(ggml_blck_size(cache_type));
    return s;
}

Profile profile_identity(const Models& m) {
    Profile p;
    p.device = m.device->description() + ", " + m.device->kernels_name() + " kernels, " +
               std::to_string(m.device->threads()) + " threads, " + ggml_type_name(m.kv->keys(0)->type) + " cache";
    p.target = m.config.name + " " + fingerprint(m.file);
    if (m.draft) p.drafter = m.draft->config.name + " " + fingerprint(m.draft->file);
    p.build = std::string("bastion " BASTION_VERSION ", ggml ") + ggml_version();
    return p;
}

Result<Profile> measure_profile(Models& m, int slot, int used, bool brief, const Progress& progress) {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    constexpr double kBriefSeconds = 2.0;
    // A shape that is new or cold in the caches shows in short passes; an answer repeats its own.
    constexpr int kWarmedNodes = 16, kWarmUps = 2;
    Profile profile = profile_identity(m);
    profile.shape = model_shape(m.file, m.config, m.kv->keys(0)->type);
    BASTION_ASSIGN(const MeasuredPeak peak, measure_peak(m.config, *m.weights, *m.device));
    profile.peak = {peak.flops_per_s, peak.bytes_per_s};

    const std::vector<int> nodes = node_counts(m, brief);
    const std::vector<int> depths = contexts(m, used, brief);
    std::vector<GridPoint> points;
    for (const int context : depths) {
        for (const int n : nodes) points.push_back({n, context, 0});
    }
    // In rounds, so that a slow moment of the machine does not hit all runs of one point.
    const int rounds = brief ? 3 : 5;
    const double total = static_cast<double>(rounds) * static_cast<double>(points.size());
    std::vector<std::vector<double>> times(points.size());
    double done = 0;
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < points.size(); ++i) {
            const GridPoint& point = points[i];
            if (brief && seconds() > kBriefSeconds && (round > 0 || point.nodes > 2)) continue;
            TimedPass pass(m, slot, point.nodes, point.context);
            for (int warm = 0; warm < kWarmUps && point.nodes <= kWarmedNodes; ++warm) BASTION_CHECK(pass.run());
            BASTION_ASSIGN(const double ms, time_ms([&] { return pass.run(); }));
            times[i].push_back(ms);
            if (progress) progress("calibrate", ++done / total);
        }
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (times[i].empty()) continue;
        points[i].verify_ms = usual(std::move(times[i]));
        profile.grid.push_back(points[i]);
    }
    profile.ar_ms = profile.grid.front().verify_ms;
    BASTION_CHECK(measure_draft(m, slot, used, profile));

    std::vector<double> rooflines;
    for (const GridPoint& p : profile.grid) {
        rooflines.push_back(roofline_ms(profile.shape, profile.peak, p.nodes, p.context));
    }
    profile.fit = fit_linear(profile.grid, rooflines);
    profile.parts = fit_parts(profile.shape, profile.peak, profile.grid);
    profile.seconds = seconds();
    if (progress) progress("calibrate", 1.0);
    return profile;
}

}  // namespace bastion
