/* syscall. */
#define _DEFAULT_SOURCE

#include "cpu_isa.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

bool gdn_cpu_has_avx512_bf16(const char **reason)
{
    unsigned a, b, c, d;
    *reason = "the CPU has no AVX512-BF16";
    return gdn_cpu_isa_best() == GDN_CPU_ISA_AVX512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* Linux keeps the tiles' 8 KiB of state only for processes that ask for it, and refuses where a signal stack is too small
 * to hold it. */
static bool tiles_permitted(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

bool gdn_cpu_has_amx_bf16(const char **reason)
{
    enum {
        TILE_CONFIG_AND_DATA = 0x60000 /* XCR0 */
    };
    unsigned a, b, c, d;
    if (!gdn_cpu_has_avx512_bf16(reason)) {
        return false;
    }
    *reason = "the CPU has no AMX-BF16";
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1) || !(d >> 22 & 1)) {
        return false;
    }
    *reason = "the operating system does not keep AMX tiles";
    return (saved_states() & TILE_CONFIG_AND_DATA) == TILE_CONFIG_AND_DATA && tiles_permitted();
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

#if !defined(__x86_64__)
bool gdn_cpu_has_avx512_bf16(const char **reason)
{
    *reason = "another architecture";
    return false;
}

bool gdn_cpu_has_amx_bf16(const char **reason)
{
    return gdn_cpu_has_avx512_bf16(reason);
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
