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

/// One row of the cost table: a group of kernels with its work.
struct CostTerm {
    const char* name;  ///< "qo", "kv", "attention", "ffn", "head", "embed"
    double flops = 0;  ///< whole model, not per layer
    double bytes = 0;
};

/// The terms of a pass over `rows` rows whose committed context is `context` tokens (tables 12 and 13).
std::vector<CostTerm> cost_terms(const ModelShape& shape, int rows, int context);

/// R(rows, context) in milliseconds: sum over terms of max(flops / peak, bytes / bandwidth).
double roofline_ms(const ModelShape& shape, const DevicePeak& peak, int rows, int context);

/// Experts touched by `rows` rows of which each picks `experts_used` of `experts`: min(E, K * rows).
double experts_touched(const ModelShape& shape, int rows);

}  // namespace bastion
