// Weights repacked for verification: a pass over several rows unpacks every weight once (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/ggml_ptr.h"
#include "kernels/huge_memory.h"
#include "kernels/packed_form.h"
#include "kernels/thread_pool.h"

namespace bastion::kernels {

/// A matrix [k, m] in tiles of 16 rows (kernels/packed_form.h). Within a tile, units of 32 columns follow each other. A
/// unit of a quantised type holds the values in groups of 4 columns x 16 rows (so that one broadcast of 4 activations
/// serves 16 rows), then the 16 rows' scales and, for types that have one, minima, exactly as in the source; K-quants
/// keep their two levels of scales. A unit of 16-bit floats holds those. Rows beyond m are zero. Immutable. Takes as
/// many bytes as the source, for Q4_K and Q5_K 3 % more (up to the padding of the last tile).
class PackedMatrix {
 public:
    /// Whether matrices [k, m] of this type have a packed form: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K; F16 and
    /// BF16 where k is a multiple of 32.
    static bool supports(ggml_type type, std::int64_t k);

    /// Bytes that a matrix [k, m] takes. REQUIRES supports(type, k).
    static std::size_t bytes_of(ggml_type type, std::int64_t k, std::int64_t m);

    /// Packs `w` [k, m], or [k, m, experts] as one matrix of m x experts rows (host memory, contiguous).
    /// REQUIRES supports(w->type, k) and pool.isa() of avx2 or more; `memory` outlives the matrix.
    PackedMatrix(const ggml_tensor* w, ThreadPool& pool, HugeMemory& memory);

    std::int64_t columns() const { return k_; }  ///< k
    std::int64_t rows() const { return m_; }     ///< m
    std::size_t bytes() const { return bytes_; }
    /// Whether activations are f32 rows as they are (16-bit floats), not quantised ones.
    bool takes_floats() const { return is_half(form_); }

    /// Products of rows [begin_tile, end_tile) x 16 with `count` activation rows, f32 [k] if takes_floats(), else from
    /// `quantize_activations`: out[c * stride + row]. `residual`, where given, is as large as `out`, does not
    /// overlap it and is added to them. 16-bit floats: see tile_half_avx2. Else every product is the sum
    /// over units, in order, of (minimum x activation sum) + (integer dot product x (weight scale x activation scale)),
    /// each added by a fused multiply-add. The integer of Q6_K contains its 8-bit scales, the offset of types without
    /// minima is subtracted in integers.
    void multiply(std::int64_t begin_tile, std::int64_t end_tile, const char* activations, std::size_t activation_bytes,
                  std::int64_t count, float* out, std::int64_t stride, const float* residual = nullptr) const;
    /// A grain for `multiply` over so many tiles: even, since tiles are fastest in pairs, and where possible such that
    /// every thread has equally many chunks.
    static std::int64_t tiles_at_once(const ThreadPool& pool, std::int64_t tiles);
    /// The values of one row [k] as f32.
    void read_row(std::int64_t row, float* out) const;
    std::int64_t tiles() const { return (m_ + kTileRows - 1) / kTileRows; }
    ThreadPool& pool() const { return pool_; }

 private:
    std::size_t tile_bytes() const { return bytes_ / static_cast<std::size_t>(tiles()); }

    Form form_;
    std::int64_t k_, m_;
    std::size_t bytes_;
    std::uint8_t* data_;
    ThreadPool& pool_;
};

/// Bytes of one quantised activation row of `k` values: ActivationUnits and padding.
std::size_t activation_bytes(std::int64_t k);

/// Quantises k values (a multiple of 32) in blocks of 32: scale = largest magnitude / 120, values rounded to nearest
/// even. Blocks below 1e-37 count as zero. `out` is a row, or its units from some one on.
void quantize_activations(const float* x, std::int64_t k, char* out);

// As graph operations.

/// x [k, n] f32 -> i8 [activation_bytes(k), n], for any packed matrix of k columns that does not take floats.
ggml_tensor* quantize_for_packed(ggml_context* ctx, ThreadPool& pool, ggml_tensor* x);

/// w [k, m] times rows [k, n], f32 without gaps if takes_floats(), else from `quantize_for_packed` -> f32 [m, n], plus
/// `residual` [m, n] f32 without gaps where given. `w` must outlive the graph.
ggml_tensor* multiply_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* rows,
                             ggml_tensor* residual = nullptr);

/// Rows of w [k, m] by their numbers, i32 [n] -> f32 [k, n]: an embedding. `w` must outlive the graph.
ggml_tensor* rows_of_packed(ggml_context* ctx, const PackedMatrix& w, ggml_tensor* numbers);

/// The same product by experts: w holds experts of `expert_rows` (a multiple of kTileRows) rows each, one after the
/// other; chosen i32 [used, n]; rows as above, for n rows (every expert of a row reads the same) or for used * n (each
/// its own)
/// -> f32 [expert_rows, used, n].
ggml_tensor* multiply_experts_packed(ggml_context* ctx, const PackedMatrix& w, std::int64_t expert_rows,
                                     ggml_tensor* rows, ggml_tensor* chosen);

}  // namespace bastion::kernels
