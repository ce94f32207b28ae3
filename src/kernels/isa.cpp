#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bastion::kernels {
namespace {

#if defined(__x86_64__)
Isa detect() {
    constexpr unsigned kF16c = 1u << 29;  // CPUID leaf 1, ECX
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & kF16c);
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::portable;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
    if (!wide) return Isa::avx2;
    // With AVX-512, processors of AMD have PREFETCHW, too.
    return __builtin_cpu_supports("gfni") && __builtin_cpu_is("amd") ? Isa::avx512_sums : Isa::avx512;
}
#else
Isa detect() { return Isa::portable; }
#endif

}  // namespace

Isa best_isa() {
    static const Isa best = detect();
    return best;
}

}  // namespace bastion::kernels
