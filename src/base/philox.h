// Philox 4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
#pragma once

#include <array>
#include <cstdint>

namespace bastion {

/// The 4 x 32 random bits of one counter under one key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
    constexpr std::uint64_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
    constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = kMul0 * counter[0];
        const std::uint64_t p1 = kMul1 * counter[2];
        counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
                   static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

/// A uniform number in [0, 1) with 53 bits for the token at absolute `position`: a pure function of its arguments, so
/// a draw is the same whether the position is reached by plain decoding or inside a verified tree.
/// `choice` tells apart several answers to one prompt.
constexpr double uniform_at(std::uint64_t seed, std::uint32_t choice, std::uint64_t position) {
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), choice, 0u},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t mantissa = (static_cast<std::uint64_t>(bits[0]) << 21) ^ (bits[1] >> 11);
    return static_cast<double>(mantissa & ((1ull << 53) - 1)) * 0x1.0p-53;
}

}  // namespace bastion
