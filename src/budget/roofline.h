// The roofline latency model of paper appendix G, with the real bytes of quantised weights.
#pragma once

#include <cstdint>
#include <vector>

namespace bastion {

/// What the cost of one target pass depends on. Byte sizes come from the file's tensor types.
struct ModelShape {
    int layers = 0;
    int hidden = 0;                  ///< h
    int q_width = 0;                 ///< h_q = query heads x head size
    int kv_width = 0;                ///< h_kv = key/value heads x head size
    int ffn_width = 0;               ///< h_f; of one expert for MoE
    int vocab = 0;                   ///< V
    int experts = 0;                 ///< E; 0: dense
    int experts_used = 0;            ///< K active experts a token
    double attn_weight_bytes = 2;    ///< bytes per element of the attention projections (mean)
    double ffn_weight_bytes = 2;     ///< of the feed-forward matrices
    double router_weight_bytes = 4;  ///< of the MoE router
    double head_weight_bytes = 2;    ///< of the LM head
    double embed_weight_bytes = 2;   ///< of the token embeddings
    double kv_bytes = 2;             ///< of the KV cache
    double activation_bytes = 4;     ///< of activations
};

struct DevicePeak {
    double flops_per_s = 0;
    double bytes_per_s = 0;
};

/// The rows of a target pass: those of one request, or of several that share the weights and attend each to its own
/// cache.
struct PassLoad {
    double rows = 0;      ///< sum of s over the requests
    double cached = 0;    ///< sum of c, their committed positions
    double attended = 0;  ///< sum of s c: pairs of a row and a committed position
    double own = 0;       ///< sum of s^2: pairs of two rows of one request

    PassLoad() = default;
    /// One request.
    PassLoad(int s, int c) { add(s, c); }
    /// One more request.
    void add(int s, int c);
    /// One more row for a request that has `before` of them.
    void add_row(int before, int context);
};

/// One row of the cost table: a group of kernels with its work.
struct CostTerm {
    const char* name;  ///< "qo", "kv", "attention", "ffn", "head", "embed"
    double flops = 0;  ///< whole model, not per layer
    double bytes = 0;
};

/// The terms of a pass over `rows` rows whose committed context is `context` tokens (tables 12 and 13).
std::vector<CostTerm> cost_terms(const ModelShape& shape, int rows, int context);

/// R in milliseconds: sum over terms of max(flops / peak, bytes / bandwidth).
double roofline_ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load);
double roofline_ms(const ModelShape& shape, const DevicePeak& peak, int rows, int context);

/// What the parts of a pass take by themselves, in milliseconds.
struct RooflineParts {
    double matrices_ms = 0;    ///< of all matrices, each the larger of arithmetic and memory
    double arithmetic_ms = 0;  ///< of the same, arithmetic at the peak alone
    double experts_ms = 0;     ///< bytes of the experts touched; 0 for a dense model, whose bytes do not depend on rows
    double attention_ms = 0;   ///< its arithmetic
    double cache_ms = 0;       ///< bytes of keys and values
};

RooflineParts roofline_parts(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load);

/// Experts touched by `rows` rows of which each picks `experts_used` of `experts`: min(E, K * rows).
double experts_touched(const ModelShape& shape, double rows);

}  // namespace bastion
