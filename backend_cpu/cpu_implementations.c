#include "cpu_implementations.h"

#include "fused_implementations.h"
#include "plain_decode.h"

#include <stddef.h>

const gdn_implementation *const gdn_cpu_implementations[] = {
#if defined(GDN_CPU_HAVE_AMX_BF16)
    &gdn_cpu_amx_bf16_prefill,
#endif
#if defined(GDN_CPU_HAVE_AVX512_BF16)
    &gdn_cpu_avx512_bf16_prefill, &gdn_cpu_avx512_bf16_decode,
#endif
#if defined(__x86_64__)
    &gdn_cpu_avx512_prefill,      &gdn_cpu_avx512_decode,      &gdn_cpu_avx2_prefill, &gdn_cpu_avx2_decode,
#elif defined(__aarch64__)
    &gdn_cpu_neon_prefill,   &gdn_cpu_neon_decode,
#endif
    &gdn_cpu_scalar_prefill,      &gdn_cpu_scalar_decode,      &gdn_cpu_plain_decode, NULL,
};
