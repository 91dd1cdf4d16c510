#include "cpu_isa.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Which register states the operating system saves: bits of XCR0. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

gdn_cpu_isa gdn_cpu_isa_best(void)
{
    enum {
        XMM_YMM = 0x6, /* XCR0 */
        MASK_ZMM = 0xe0
    };
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return GDN_CPU_ISA_SCALAR;
    }
    const bool xsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!xsave || !fma || !f16c || (saved_states() & XMM_YMM) != XMM_YMM) {
        return GDN_CPU_ISA_SCALAR;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1)) {
        return GDN_CPU_ISA_SCALAR;
    }
    const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
    return f && dq && bw && vl && (saved_states() & MASK_ZMM) == MASK_ZMM ? GDN_CPU_ISA_AVX512 : GDN_CPU_ISA_AVX2;
}

#elif defined(__aarch64__)

gdn_cpu_isa gdn_cpu_isa_best(void)
{
    return GDN_CPU_ISA_NEON; /* part of the architecture */
}

#else

gdn_cpu_isa gdn_cpu_isa_best(void)
{
    return GDN_CPU_ISA_SCALAR;
}

#endif

const char *gdn_cpu_isa_name(gdn_cpu_isa isa)
{
#if defined(__aarch64__)
    return isa == GDN_CPU_ISA_NEON ? "neon" : "scalar";
#else
    return isa == GDN_CPU_ISA_AVX512 ? "avx512" : isa == GDN_CPU_ISA_AVX2 ? "avx2" : "scalar";
#endif
}

gdn_cpu_isa gdn_cpu_isa_within(const char *limit)
{
    static const struct {
        const char *name;
        gdn_cpu_isa isa;
    } known[] = {
        {"scalar", GDN_CPU_ISA_SCALAR},
        {"neon", GDN_CPU_ISA_NEON},
        {"avx2", GDN_CPU_ISA_AVX2},
        {"avx512", GDN_CPU_ISA_AVX512},
    };
    const gdn_cpu_isa best = gdn_cpu_isa_best();
    for (size_t i = 0; limit != NULL && i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(limit, known[i].name) == 0) {
            return known[i].isa < best ? known[i].isa : best;
        }
    }
    return best;
}
