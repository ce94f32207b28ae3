#include "kernels/avx2.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bastion::kernels {

bool avx2_available() {
#if defined(__x86_64__)
    static const bool available = [] {
        constexpr unsigned kF16c = 1u << 29;  // CPUID leaf 1, ECX
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & kF16c);
        return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }();
    return available;
#else
    return false;
#endif
}

}  // namespace bastion::kernels
