// The inner loops of kernels/packed.h for processors with AVX2 and F16C.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bastion::kernels {

inline constexpr int kTileRows = 16;   ///< weight rows a tile
inline constexpr int kMaxColumns = 4;  ///< activation rows the inner loops take at once

/// AVX2, FMA and F16C.
bool avx2_available();

// Products of one tile with `columns` (1 to kMaxColumns) quantised activation rows: out [columns][kTileRows].
// `tile`: `blocks` packed blocks of the type. REQUIRES avx2_available().
void tile_q4_0_avx2(const std::uint8_t* tile, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out);
void tile_q4_1_avx2(const std::uint8_t* tile, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out);
void tile_q8_0_avx2(const std::uint8_t* tile, std::int64_t blocks, const char* activations, std::size_t stride,
                    int columns, float* out);

/// See quantize_activations in kernels/packed.h.
void quantize_activations_avx2(const float* x, std::int64_t k, char* out);

}  // namespace bastion::kernels
