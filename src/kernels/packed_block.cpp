#include "kernels/packed_block.h"

#include <cstring>

namespace bastion::kernels {
namespace {

// Source blocks as the GGUF format defines them. A block of 32 has value i in the low nibble of byte i and value
// i + 16 in the high one, and a fifth bit as bit i of `high`.
struct BlockQ4_0 {
    ggml_fp16_t scale;
    std::uint8_t low[16];
};
struct BlockQ4_1 {
    ggml_fp16_t scale, minimum;
    std::uint8_t low[16];
};
struct BlockQ5_0 {
    ggml_fp16_t scale;
    std::uint8_t high[4];
    std::uint8_t low[16];
};
struct BlockQ5_1 {
    ggml_fp16_t scale, minimum;
    std::uint8_t high[4];
    std::uint8_t low[16];
};
struct BlockQ8_0 {
    ggml_fp16_t scale;
    std::uint8_t values[32];
};

// Blocks of 256 = 8 units of 32. Units 2p and 2p + 1 are the low and the high nibbles of the same 32 bytes; the fifth
// bit of value i of unit u is bit u of `high[i]`.
struct BlockQ4_K {
    ggml_fp16_t scale, minimum;
    std::uint8_t levels[12];  // 8 scales and 8 minima of 6 bits
    std::uint8_t low[128];
};
struct BlockQ5_K {
    ggml_fp16_t scale, minimum;
    std::uint8_t levels[12];
    std::uint8_t high[32];
    std::uint8_t low[128];
};
// Units 4n, 4n + 1 are the low nibbles of 64 bytes, units 4n + 2, 4n + 3 the high ones; the upper two bits of value i
// of unit 4n + t are bits 2t, 2t + 1 of `high[32n + i]`.
struct BlockQ6_K {
    std::uint8_t low[128];
    std::uint8_t high[64];
    std::uint8_t levels[16];  // signed, of 16 columns each
    ggml_fp16_t scale;
};
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ4_K) == 144 &&
              sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

using Values = std::uint8_t[kUnitColumns];  ///< of one unit in column order, unsigned

void read_nibbles(const std::uint8_t* low, Values& values) {
    for (int i = 0; i < 16; ++i) {
        values[i] = low[i] & 0xF;
        values[i + 16] = low[i] >> 4;
    }
}

void add_fifth_bits(const std::uint8_t* high, Values& values) {
    for (int i = 0; i < kUnitColumns; ++i) values[i] |= ((high[i / 8] >> (i % 8)) & 1) << 4;
}

/// Unit `u` of a block of 256 whose nibbles stand in 32 bytes a pair of units.
void read_pair_nibbles(const std::uint8_t* low, int u, Values& values) {
    for (int i = 0; i < kUnitColumns; ++i) values[i] = (low[u / 2 * 32 + i] >> (u % 2 * 4)) & 0xF;
}

struct Levels {
    std::uint8_t scale, minimum;
};

/// The 6-bit scale and minimum of unit `u`: those of units 0 to 3 are the low six bits of bytes 0 to 3 and 4 to 7; of
/// units 4 to 7, bytes 8 to 11 hold the low four bits of both, and the top of the other bytes the upper two.
Levels levels_of(const std::uint8_t* levels, int u) {
    if (u < 4) {
        return {static_cast<std::uint8_t>(levels[u] & 0x3F), static_cast<std::uint8_t>(levels[u + 4] & 0x3F)};
    }
    const int low = levels[u + 4];
    return {static_cast<std::uint8_t>((low & 0xF) | ((levels[u - 4] >> 6) << 4)),
            static_cast<std::uint8_t>((low >> 4) | ((levels[u] >> 6) << 4))};
}

/// One row's unit in the order of kernels/packed_form.h, `bits` of them above the low four.
void put_values(const Values& values, int bits, int row, std::uint8_t* unit) {
    const int groups = bits == 0 ? 4 : 4 / bits;  // groups a plane serves
    for (int j = 0; j < 4; ++j) {
        std::uint8_t planes[2] = {};
        for (int g = 0; g < 4; ++g) {
            const int first = values[8 * g + j], second = values[8 * g + 4 + j];
            unit[g * 64 + row * 4 + j] = static_cast<std::uint8_t>((first & 0xF) | ((second & 0xF) << 4));
            const int shift = g % groups * bits;
            planes[g / groups] |= static_cast<std::uint8_t>(((first >> 4) << (shift + 4)) | ((second >> 4) << shift));
        }
        for (int p = 0; p < bits; ++p) unit[kTileRows * 16 + p * 64 + row * 4 + j] = planes[p];
    }
}

void put_half(std::uint8_t* halfs, int row, ggml_fp16_t value) {
    std::memcpy(halfs + row * sizeof value, &value, sizeof value);
}

template <Form F, class Block>
void pack_32(const Block& source, int row, std::uint8_t* block) {
    Values values;
    read_nibbles(source.low, values);
    if constexpr (high_bits(F) == 1) add_fifth_bits(source.high, values);
    put_values(values, high_bits(F), row, block);
    put_half(block + value_bytes(F), row, source.scale);
    if constexpr (has_minima(F)) put_half(block + value_bytes(F) + kHalfs, row, source.minimum);
}

void pack_half(const char* source, int row, std::uint8_t* unit) {
    for (int g = 0; g < 4; ++g) std::memcpy(unit + half_index(row, g) * 2, source + g * 16, 16);
}

void pack_q8_0(const BlockQ8_0& source, int row, std::uint8_t* block) {
    for (int g = 0; g < 8; ++g) std::memcpy(block + g * 64 + row * 4, source.values + g * 4, 4);
    put_half(block + value_bytes(Form::q8_0), row, source.scale);
}

template <Form F, class Block>
void pack_256(const Block& source, int row, std::uint8_t* block) {
    for (int u = 0; u < units_per_block(F); ++u) {
        std::uint8_t* unit = block + u * unit_bytes(F);
        Values values;
        read_pair_nibbles(source.low, u, values);
        if constexpr (high_bits(F) == 1) {
            for (int i = 0; i < kUnitColumns; ++i) values[i] |= ((source.high[i] >> u) & 1) << 4;
        }
        put_values(values, high_bits(F), row, unit);
        const Levels levels = levels_of(source.levels, u);
        unit[value_bytes(F) + row] = levels.scale;
        unit[value_bytes(F) + kTileRows + row] = levels.minimum;
    }
    std::uint8_t* shared = block + units_per_block(F) * unit_bytes(F);
    put_half(shared, row, source.scale);
    put_half(shared + kHalfs, row, source.minimum);
}

void pack_q6_K(const BlockQ6_K& source, int row, std::uint8_t* block) {
    constexpr Form kForm = Form::q6_K;
    for (int u = 0; u < units_per_block(kForm); ++u) {
        std::uint8_t* unit = block + u * unit_bytes(kForm);
        const int n = u / 4, t = u % 4;
        Values values;
        for (int i = 0; i < kUnitColumns; ++i) {
            const int low = (source.low[n * 64 + t % 2 * 32 + i] >> (t / 2 * 4)) & 0xF;
            values[i] = static_cast<std::uint8_t>(low | (((source.high[n * 32 + i] >> (2 * t)) & 3) << 4));
        }
        put_values(values, high_bits(kForm), row, unit);
        unit[value_bytes(kForm) + row] = source.levels[2 * u];
        unit[value_bytes(kForm) + kTileRows + row] = source.levels[2 * u + 1];
    }
    put_half(block + units_per_block(kForm) * unit_bytes(kForm), row, source.scale);
}

/// Value `column` of a unit as the source means it.
int value_at(Form form, const std::uint8_t* unit, int row, int column) {
    if (form == Form::q8_0) return static_cast<std::int8_t>(unit[column / 4 * 64 + row * 4 + column % 4]);
    const int g = column / 8, lane = row * 4 + column % 4, bits = high_bits(form);
    const bool second = column % 8 >= 4;
    const int byte = unit[g * 64 + lane];
    int value = second ? byte >> 4 : byte & 0xF;
    if (bits > 0) {
        const int groups = 4 / bits;
        const int plane = unit[kTileRows * 16 + g / groups * 64 + lane];
        value |= ((plane >> (g % groups * bits + (second ? 0 : 4))) & ((1 << bits) - 1)) << 4;
    }
    return value - value_offset(form);
}

float half_at(const std::uint8_t* halfs, int row) {
    ggml_fp16_t value;
    std::memcpy(&value, halfs + row * sizeof value, sizeof value);
    return ggml_fp16_to_fp32(value);
}

template <class Block>
const Block& as(const char* source) {
    return *reinterpret_cast<const Block*>(source);
}

}  // namespace

std::optional<Form> form_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
            return Form::q4_0;
        case GGML_TYPE_Q4_1:
            return Form::q4_1;
        case GGML_TYPE_Q5_0:
            return Form::q5_0;
        case GGML_TYPE_Q5_1:
            return Form::q5_1;
        case GGML_TYPE_Q8_0:
            return Form::q8_0;
        case GGML_TYPE_Q4_K:
            return Form::q4_K;
        case GGML_TYPE_Q5_K:
            return Form::q5_K;
        case GGML_TYPE_Q6_K:
            return Form::q6_K;
        case GGML_TYPE_F16:
            return Form::f16;
        case GGML_TYPE_BF16:
            return Form::bf16;
        default:
            return std::nullopt;
    }
}

void pack_block(Form form, const char* source, int row, std::uint8_t* block) {
    switch (form) {
        case Form::q4_0:
            return pack_32<Form::q4_0>(as<BlockQ4_0>(source), row, block);
        case Form::q4_1:
            return pack_32<Form::q4_1>(as<BlockQ4_1>(source), row, block);
        case Form::q5_0:
            return pack_32<Form::q5_0>(as<BlockQ5_0>(source), row, block);
        case Form::q5_1:
            return pack_32<Form::q5_1>(as<BlockQ5_1>(source), row, block);
        case Form::q8_0:
            return pack_q8_0(as<BlockQ8_0>(source), row, block);
        case Form::q4_K:
            return pack_256<Form::q4_K>(as<BlockQ4_K>(source), row, block);
        case Form::q5_K:
            return pack_256<Form::q5_K>(as<BlockQ5_K>(source), row, block);
        case Form::q6_K:
            return pack_q6_K(as<BlockQ6_K>(source), row, block);
        case Form::f16:
        case Form::bf16:
            return pack_half(source, row, block);
    }
}

void unpack_block(Form form, const std::uint8_t* block, int row, float* out) {
    if (is_half(form)) {
        for (int i = 0; i < kUnitColumns; ++i) {
            std::uint16_t bits;
            std::memcpy(&bits, block + (half_index(row, i / 8) + i % 8) * sizeof bits, sizeof bits);
            out[i] = form == Form::f16 ? ggml_fp16_to_fp32(bits) : ggml_bf16_to_fp32({bits});
        }
        return;
    }
    const std::uint8_t* shared = block + units_per_block(form) * unit_bytes(form);
    for (int u = 0; u < units_per_block(form); ++u) {
        const std::uint8_t* unit = block + u * unit_bytes(form);
        const std::uint8_t* own = unit + value_bytes(form);
        for (int i = 0; i < kUnitColumns; ++i) {
            const auto value = static_cast<float>(value_at(form, unit, row, i));
            float& to = out[u * kUnitColumns + i];
            if (form == Form::q6_K) {
                const auto level = static_cast<std::int8_t>(own[i / 16 * kTileRows + row]);
                to = half_at(shared, row) * static_cast<float>(level) * value;
            } else if (two_level(form)) {
                to = half_at(shared, row) * static_cast<float>(own[row]) * value -
                     half_at(shared + kHalfs, row) * static_cast<float>(own[kTileRows + row]);
            } else {
                to = half_at(own, row) * value + (has_minima(form) ? half_at(own + kHalfs, row) : 0.0f);
            }
        }
    }
}

}  // namespace bastion::kernels
