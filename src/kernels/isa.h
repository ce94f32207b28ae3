// The vector instructions that the kernels of our own may use.
#pragma once

namespace bastion::kernels {

/// What a processor can run, each level all that stands before it. The levels from avx2 on give the same bits.
enum class Isa {
    portable,
    avx2,    ///< AVX2, FMA and F16C
    avx512,  ///< AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4)
};

/// The highest level of this processor.
Isa best_isa();

}  // namespace bastion::kernels
