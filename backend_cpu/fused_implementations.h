/* The fused implementations, one pair for each instruction set this build has. */
#ifndef GDN_CPU_FUSED_IMPLEMENTATIONS_H
#define GDN_CPU_FUSED_IMPLEMENTATIONS_H

#include "backend.h"

#if defined(__x86_64__)
/* Where the compiler knows the instructions: prefill for numerics BF16 only, decode for bfloat16 states. */
extern const gdn_implementation gdn_cpu_amx_bf16_prefill;
extern const gdn_implementation gdn_cpu_avx512_bf16_prefill, gdn_cpu_avx512_bf16_decode;
extern const gdn_implementation gdn_cpu_avx512_prefill, gdn_cpu_avx512_decode;
extern const gdn_implementation gdn_cpu_avx2_prefill, gdn_cpu_avx2_decode;
#elif defined(__aarch64__)
extern const gdn_implementation gdn_cpu_neon_prefill, gdn_cpu_neon_decode;
#endif
extern const gdn_implementation gdn_cpu_scalar_prefill, gdn_cpu_scalar_decode;

#endif
