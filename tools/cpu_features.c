#include "cpu_features.h"

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of cpuid that __builtin_cpu_supports does not name in every compiler. */
static int cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 && ((r[reg] >> bit) & 1u) != 0;
}

void cpu_features(char *text, size_t size)
{
    const struct {
        const char *name;
        int there;
    } features[] = {
        {"sse4.2", __builtin_cpu_supports("sse4.2")},
        {"avx", __builtin_cpu_supports("avx")},
        {"avx2", __builtin_cpu_supports("avx2")},
        {"fma", __builtin_cpu_supports("fma")},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512dq", __builtin_cpu_supports("avx512dq")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512bf16", cpuid_bit(7, 1, 0, 5)},
        {"amx-bf16", cpuid_bit(7, 0, 3, 22)},
        {"amx-tile", cpuid_bit(7, 0, 3, 24)},
    };
    size_t used = (size_t)snprintf(text, size, "x86-64:");
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]) && used < size; i++) {
        if (features[i].there) {
            used += (size_t)snprintf(text + used, size - used, " %s", features[i].name);
        }
    }
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

void cpu_features(char *text, size_t size)
{
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    snprintf(text, size, "aarch64: neon%s%s%s", (hwcap & (1ul << 20)) != 0 ? " dotprod" : "",
             (hwcap & (1ul << 22)) != 0 ? " sve" : "", (hwcap2 & (1ul << 14)) != 0 ? " bf16" : "");
}

#else

void cpu_features(char *text, size_t size)
{
    snprintf(text, size, "no list for this architecture");
}

#endif
