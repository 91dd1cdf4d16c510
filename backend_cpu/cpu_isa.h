/* What instruction sets this CPU and its operating system offer. Never what the build machine had. */
#ifndef GDN_CPU_ISA_H
#define GDN_CPU_ISA_H

#include <stdbool.h>

typedef enum gdn_cpu_isa {
    GDN_CPU_ISA_SCALAR = 0, /* the architecture's baseline */
    GDN_CPU_ISA_AVX2 = 1, /* AVX2, FMA, F16C */
    GDN_CPU_ISA_NEON = 1,
    GDN_CPU_ISA_AVX512 = 2 /* AVX-512 F, BW, DQ, VL */
} gdn_cpu_isa;

/* The widest of them, with registers that the operating system keeps. */
gdn_cpu_isa gdn_cpu_isa_best(void);

/* The widest that is not above `limit`: "scalar", "neon", "avx2", "avx512", in this order, "neon" and "avx2" as equals;
 * NULL: no limit. */
gdn_cpu_isa gdn_cpu_isa_within(const char *limit);

const char *gdn_cpu_isa_name(gdn_cpu_isa isa);

/* bfloat16 products beside AVX-512. The tiles also need the operating system's leave, which is asked for here, once a
 * process; where anything lacks, *reason (static) says what. */
bool gdn_cpu_has_avx512_bf16(const char **reason);
bool gdn_cpu_has_amx_bf16(const char **reason);

#endif
