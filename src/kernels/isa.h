// The vector instructions that the kernels of our own may use.
#pragma once

namespace bastion::kernels {

/// What a processor can run, each level all that stands before it. The levels from avx2 on give the same bits.
enum class Isa {
    portable,
    avx2,    ///< AVX2, FMA and F16C
    avx512,  ///< AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4)
    /// And GFNI, on a processor that adds vectors beside multiplying them (Zen 4). Where additions take the time of
    /// multiplications (Intel), products of sums would be slower.
    avx512_sums,
};

/// The highest level of this processor.
Isa best_isa();

}  // namespace bastion::kernels
