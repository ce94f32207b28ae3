#include "budget/roofline.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace bastion {
namespace {

/// The cost table of paper appendix G (tables 12 and 13), summed over the layers. FLOPs count a multiply-add as two.
std::array<CostTerm, 6> terms_of(const ModelShape& shape, const PassLoad& load) {
    const double s = load.rows, layers = shape.layers;
    const double h = shape.hidden, hq = shape.q_width, hkv = shape.kv_width, hf = shape.ffn_width;
    const double vocab = shape.vocab, experts = shape.experts, used = shape.experts_used;
    const double act = shape.activation_bytes;

    CostTerm ffn{"ffn"};
    if (shape.experts > 0) {
        ffn.flops = layers * (2 * s * h * experts + 6 * used * s * h * hf);
        ffn.bytes = layers * (h * experts * shape.router_weight_bytes +
                              3 * h * hf * experts_touched(shape, s) * shape.ffn_weight_bytes +
                              s * (2 * h + experts + 3 * used * hf) * act);
    } else {
        ffn.flops = layers * 6 * s * h * hf;
        ffn.bytes = layers * (3 * h * hf * shape.ffn_weight_bytes + s * (2 * h + 3 * hf) * act);
    }
    return {{
        {"qo", layers * 4 * s * h * hq, layers * (2 * h * hq * shape.attn_weight_bytes + s * (2 * h + 2 * hq) * act)},
        {"kv", layers * 4 * s * h * hkv, layers * (2 * h * hkv * shape.attn_weight_bytes + s * (h + 2 * hkv) * act)},
        {"attention", layers * 4 * (load.attended + load.own) * hq,
         layers * (2 * (load.cached + s) * hkv + 2 * s * hkv) * shape.kv_bytes},
        ffn,
        {"head", 2 * s * h * vocab, h * vocab * shape.head_weight_bytes + s * (h + vocab) * act},
        {"embed", 0, s * h * shape.embed_weight_bytes + s * h * act},
    }};
}

}  // namespace

void PassLoad::add(int s, int c) {
    rows += s;
    cached += c;
    attended += static_cast<double>(s) * c;
    own += static_cast<double>(s) * s;
}

void PassLoad::add_row(int before, int context) {
    rows += 1;
    attended += context;
    own += 2.0 * before + 1;
}

std::vector<CostTerm> cost_terms(const ModelShape& shape, int rows, int context) {
    const auto terms = terms_of(shape, {rows, context});
    return {terms.begin(), terms.end()};
}

double roofline_ms(const ModelShape& shape, const DevicePeak& peak, int rows, int context) {
    return roofline_ms(shape, peak, {rows, context});
}

double roofline_ms(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) {
    double seconds = 0;
    for (const CostTerm& term : terms_of(shape, load)) {
        seconds += std::max(term.flops / peak.flops_per_s, term.bytes / peak.bytes_per_s);
    }
    return 1e3 * seconds;
}

RooflineParts roofline_parts(const ModelShape& shape, const DevicePeak& peak, const PassLoad& load) {
    RooflineParts parts;
    for (const CostTerm& term : terms_of(shape, load)) {
        const double arithmetic = 1e3 * term.flops / peak.flops_per_s, memory = 1e3 * term.bytes / peak.bytes_per_s;
        if (std::string_view(term.name) == "attention") {
            parts.attention_ms = arithmetic;
            parts.cache_ms = memory;
        } else {
            parts.matrices_ms += std::max(arithmetic, memory);
            parts.arithmetic_ms += arithmetic;
        }
    }
    const double expert_bytes = 3.0 * shape.layers * shape.hidden * shape.ffn_width * shape.ffn_weight_bytes;
    parts.experts_ms = 1e3 * expert_bytes * experts_touched(shape, load.rows) / peak.bytes_per_s;
    return parts;
}

double experts_touched(const ModelShape& shape, double rows) {
    return std::min<double>(shape.experts, static_cast<double>(shape.experts_used) * rows);
}

}  // namespace bastion
