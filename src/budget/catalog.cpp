#include "budget/catalog.h"

#include <algorithm>
#include <array>

namespace bastion {
namespace {

/// GPUs: the vendors' data-sheet dense values at 16 bit with 32-bit accumulation (half of what is printed for sparse
/// matrices), and the data sheet's memory bandwidth. Apple states no FLOP/s for its GPUs, and CPU vendors none for
/// vector units; there it is the arithmetic of published units and clocks:
/// - M4 Max: 40 cores x 128 lanes x 2 x 1.8 GHz; M2 Ultra: 76 cores x 128 lanes x 2 x 1.4 GHz;
/// - EPYC 9654 and Ryzen 9 7950X: cores x 64 (two 256-bit pipes of BF16 pairs) x base clock, 12 x DDR5-4800 and
///   2 x DDR5-5200;
/// - laptop: 2 cores x 32 (two 256-bit FMA pipes at 32 bit, AVX2 has no 16-bit arithmetic) x 3 GHz, 2 x DDR4-3200.
constexpr std::array<KnownDevice, 18> kDevices{{
    {"b200", "NVIDIA B200 SXM", true, 2250, 8000},
    {"h200", "NVIDIA H200 SXM", true, 989.4, 4800},
    {"h100-sxm", "NVIDIA H100 SXM", true, 989.4, 3350},
    {"h100-pcie", "NVIDIA H100 PCIe", true, 756, 2000},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB", true, 312, 2039},
    {"a100-40gb", "NVIDIA A100 40 GB", true, 312, 1555},
    {"l40s", "NVIDIA L40S", true, 362, 864},
    {"l4", "NVIDIA L4", true, 121, 300},
    {"rtx-a6000", "NVIDIA RTX A6000", true, 154.8, 768},
    {"rtx-5090", "NVIDIA GeForce RTX 5090", true, 209.5, 1792},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", true, 165.2, 1008},
    {"rtx-3090", "NVIDIA GeForce RTX 3090", true, 71.2, 936},
    {"mi300x", "AMD Instinct MI300X", true, 1307.4, 5300},
    {"m4-max", "Apple M4 Max, 40 GPU cores", true, 18.4, 546},
    {"m2-ultra", "Apple M2 Ultra, 76 GPU cores", true, 27.2, 800},
    {"epyc-9654", "AMD EPYC 9654, 96 cores", false, 14.7, 460.8},
    {"ryzen-7950x", "AMD Ryzen 9 7950X, 16 cores", false, 4.6, 83.2},
    {"laptop-avx2", "a laptop with 2 AVX2 cores", false, 0.192, 51.2},
}};

/// From the models' published config.json files.
constexpr std::array<KnownModel, 4> kModels{{
    {"qwen3-4b", 36, 2560, 32, 8, 128, 9728, 151936, 0, 0, 40960},
    {"qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, 0, 0, 40960},
    {"llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 0, 0, 131072},
    {"qwen3-coder-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 128, 8, 262144},
}};

template <class Entry>
const Entry* find(std::span<const Entry> table, const std::string& name) {
    const auto it = std::find_if(table.begin(), table.end(), [&](const Entry& entry) { return name == entry.name; });
    return it == table.end() ? nullptr : &*it;
}

}  // namespace

void set_weight_bytes(ModelShape& shape, double bytes_per_weight) {
    for (double* bytes : {&shape.attn_weight_bytes, &shape.ffn_weight_bytes, &shape.router_weight_bytes,
                          &shape.head_weight_bytes, &shape.embed_weight_bytes}) {
        *bytes = bytes_per_weight;
    }
}

ModelShape KnownModel::shape(double bytes_per_weight) const {
    ModelShape shape;
    shape.layers = layers;
    shape.hidden = hidden;
    shape.q_width = heads * head_dim;
    shape.kv_width = kv_heads * head_dim;
    shape.ffn_width = ffn;
    shape.vocab = vocab;
    shape.experts = experts;
    shape.experts_used = experts_used;
    set_weight_bytes(shape, bytes_per_weight);
    return shape;
}

std::span<const KnownDevice> known_devices() { return kDevices; }
std::span<const KnownModel> known_models() { return kModels; }

const KnownDevice* find_device(const std::string& name) { return find(known_devices(), name); }
const KnownModel* find_model(const std::string& name) { return find(known_models(), name); }

}  // namespace bastion
