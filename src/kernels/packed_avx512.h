// The inner loops of kernels/packed.h for processors with AVX-512 VNNI. They give the bits of those of packed_avx2.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_form.h"

namespace bastion::kernels {

inline constexpr int kMaxColumnsAvx512 = 8;  ///< activation rows the inner loops take at once
inline constexpr int kMaxColumnsOfPair = 6;  ///< with two tiles

/// See tile_avx2; `columns` is 1 to kMaxColumnsAvx512. REQUIRES Isa::avx512.
void tile_avx512(Form form, const std::uint8_t* tile, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out);

/// Memory that a pass over tiles fetches for the next one: with every unit so many bytes more (whole cache lines), from
/// `next` on. By default nothing.
struct Ahead {
    const std::uint8_t* next = nullptr;
    std::size_t bytes_a_unit = 0;
};

/// Two tiles that follow each other, as one of 32 rows: an activation is loaded once for both. `columns` is 1 to
/// kMaxColumnsOfPair.
void pair_avx512(Form form, const std::uint8_t* tiles, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out, const Ahead& ahead);
/// Whether there are such loops for the form.
bool has_pairs_avx512(Form form);

inline constexpr int kMaxColumnsOfSums = 32;  ///< where the totals stay in the first-level cache

/// The same bits for values of four bits by products of sums, with half as many multiplications for most columns
/// (docs/kernels.md). `columns` is 1 to kMaxColumnsOfSums. REQUIRES Isa::avx512_sums.
void sums_avx512(Form form, const std::uint8_t* tiles, std::int64_t units, const char* activations, std::size_t stride,
                 int columns, const ProductsTo& out, const Ahead& ahead);
bool has_sums_avx512(Form form);

/// See tile_half_avx2; `columns` as above.
void tile_half_avx512(Form form, const std::uint8_t* tile, std::int64_t units, const char* activations,
                      std::size_t stride, int columns, const ProductsTo& out);

}  // namespace bastion::kernels
