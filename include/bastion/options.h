// Every option once: its default, its meaning and its place in the struct. The command line, its help and the JSON
// forms are derived from the `visit` functions below.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bastion {

enum class Method { ar, chain, tree, beam };
enum class ControllerKind { fixed_fit, ema, ema_fixed_fit, curve };  // "static", "ema", "ema+static", "curve"
enum class KvType { f16, bf16, q8_0 };
enum class Kernels { automatic, packed, packed_avx2, packed_avx512, generic, library };

/// What is loaded and where it runs; fixed for the life of an engine.
struct EngineOptions {
    std::string target;   ///< GGUF of the target model; empty: the embedded one
    std::string drafter;  ///< GGUF of the DFlash drafter; empty: the embedded one if the target is, else none
    std::string device = "cpu";
    int threads = 0;  ///< CPU threads; 0: one per physical core
    int ctx = 0;      ///< positions a session can hold; 0: min(4096, the model's training context)
    int slots = 1;    ///< sessions that can be open at once
    KvType kv_type = KvType::f16;
    Kernels kernels = Kernels::automatic;
    std::string profile;        ///< latency profile; empty: the stored one of this device and pair
    bool keep_profiles = true;  ///< store what is measured
    std::string cache_dir;      ///< where measured profiles are kept; empty: nowhere
};

/// How a token is drawn from the target's logits. Temperature 0 is argmax.
struct SamplingOptions {
    double temperature = 0.0;
    int top_k = 0;                   ///< 0: off
    double top_p = 1.0;              ///< 1: off
    double min_p = 0.0;              ///< 0: off
    double repeat_penalty = 1.0;     ///< divides positive and multiplies negative logits of seen tokens; 1: off
    double frequency_penalty = 0.0;  ///< subtracted once per occurrence
    double presence_penalty = 0.0;   ///< subtracted once if seen
    int penalty_window = 64;         ///< how many latest tokens count as seen; -1: all
    std::uint64_t seed = 0;
    std::uint32_t choice = 0;  ///< which of several answers to one prompt; enters the random draw
    std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< token id, added to its logit; -inf bans it
};

/// How one answer is produced.
struct GenerateOptions {
    Method method = Method::tree;
    int budget = 0;  ///< nodes a tree, root included; 0: decided in every cycle by the controller
    ControllerKind controller = ControllerKind::curve;
    int beam_width = 4;      ///< method beam: hypotheses kept a depth
    int beam_depth = 15;     ///< method beam: depths; cut to block size - 1
    int topk = 8;            ///< K, lattice entries a position
    bool no_lookup = false;  ///< method tree: from the drafter alone, not also from earlier occurrences in the text
    bool raw_confidence =
        false;  ///< budget auto: the drafter's probabilities as they are, without what was learned of it
    int max_tokens = 512;
    bool ignore_eos = false;        ///< go on past end-of-generation tokens
    std::vector<std::string> stop;  ///< texts that end the answer; not part of it
    SamplingOptions sampling;
};

/// Calls `visit(name, field, placeholder, help)` for every option that has a flag of its own.
template <class Visitor>
void visit(EngineOptions& o, Visitor&& visit) {
    visit("target", o.target, "FILE", "target model, GGUF (default: the embedded SmolLM2-135M-Instruct)");
    visit("drafter", o.drafter, "FILE", "DFlash drafter, GGUF (default: the embedded one with the embedded target)");
    visit("device", o.device, "NAME", "cpu, cuda0, ...");
    visit("threads", o.threads, "N", "CPU threads, 0: one per physical core");
    visit("ctx", o.ctx, "N", "context length in tokens, 0: min(4096, the model's own)");
    visit("kv-type", o.kv_type, "TYPE", "f16, bf16 or q8_0");
    visit("kernels", o.kernels, "PATH", "auto, packed, packed-avx2, packed-avx512, generic or library");
    visit("profile", o.profile, "FILE", "latency profile (default: the stored one of this device and pair)");
}

template <class Visitor>
void visit(SamplingOptions& o, Visitor&& visit) {
    visit("temperature", o.temperature, "T", "0: the most likely token; above: sampling");
    visit("top-k", o.top_k, "K", "sample among the K most likely, 0: off");
    visit("top-p", o.top_p, "P", "sample among the most likely that together have P, 1: off");
    visit("min-p", o.min_p, "P", "drop tokens less likely than P times the most likely, 0: off");
    visit("repeat-penalty", o.repeat_penalty, "X", "penalty on repeated tokens, 1: off");
    visit("frequency-penalty", o.frequency_penalty, "X", "penalty per earlier occurrence, 0: off");
    visit("presence-penalty", o.presence_penalty, "X", "penalty for having occurred, 0: off");
    visit("penalty-window", o.penalty_window, "N", "latest tokens that count as seen, -1: all");
    visit("seed", o.seed, "N", "key of the random draws");
}

template <class Visitor>
void visit(GenerateOptions& o, Visitor&& visit) {
    visit("method", o.method, "M", "ar, chain, tree or beam");
    visit("controller", o.controller, "C", "static, ema, ema+static or curve");
    visit("topk", o.topk, "K", "lattice entries a position");
    visit("no-lookup", o.no_lookup, "", "trees from the drafter alone, not also from repetitions in the text");
    visit("raw-confidence", o.raw_confidence, "", "--budget auto believes the drafter as it is, without correction");
    visit("max-tokens", o.max_tokens, "N", "length limit of the answer");
    visit("ignore-eos", o.ignore_eos, "", "go on past the end-of-text token");
    visit("stop", o.stop, "TEXT", "end the answer before this text (repeatable)");
}

}  // namespace bastion
