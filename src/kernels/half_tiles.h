// The inner loops of kernels/half.h. All instruction sets give the same bits.
#pragma once

#include <cstdint>

namespace bastion::kernels {

inline constexpr int kHalfTileRows = 16;  ///< weight rows a tile takes at most
inline constexpr int kHalfColumns = 8;    ///< activation rows a tile takes at most

/// Some weight rows, one behind the other, and some activation rows.
struct HalfTile {
    const std::uint16_t* weights = nullptr;  ///< [rows][k] f16 or bf16
    int rows = 0;                            ///< 1 to kHalfTileRows
    const float* x = nullptr;                ///< [columns][k], rows `x_stride` values apart
    std::int64_t x_stride = 0;
    int columns = 0;  ///< 1 to kHalfColumns, with AVX2 half as many
    std::int64_t k = 0;
};

// Products of a tile: out[c * out_stride + row].
void tile_f16_avx2(const HalfTile& tile, float* out, std::int64_t out_stride);
void tile_bf16_avx2(const HalfTile& tile, float* out, std::int64_t out_stride);
// Of a tile of kHalfTileRows rows.
void tile_f16_avx512(const HalfTile& tile, float* out, std::int64_t out_stride);
void tile_bf16_avx512(const HalfTile& tile, float* out, std::int64_t out_stride);

}  // namespace bastion::kernels
