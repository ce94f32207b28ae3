// The inner loops of kernels/packed.h for processors with AVX2 and F16C.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_form.h"

namespace bastion::kernels {

inline constexpr int kMaxColumns = 4;  ///< activation rows the inner loops take at once

/// Products of one tile of a quantised form of `units` x 32 columns with `columns` (1 to kMaxColumns) quantised
/// activation rows, `stride` bytes apart. REQUIRES Isa::avx2.
void tile_avx2(Form form, const std::uint8_t* tile, std::int64_t units, const char* activations, std::size_t stride,
               int columns, const ProductsTo& out);

/// The same for 16-bit floats; the activation rows are f32, and an output is the sum of eight partial sums, partial sum
/// i a chain of fused multiply-adds over the columns i, i + 8, ..., in order.
void tile_half_avx2(Form form, const std::uint8_t* tile, std::int64_t units, const char* activations,
                    std::size_t stride, int columns, const ProductsTo& out);

/// See quantize_activations in kernels/packed.h.
void quantize_activations_avx2(const float* x, std::int64_t k, char* out);

}  // namespace bastion::kernels
