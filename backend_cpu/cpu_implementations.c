#include "cpu_implementations.h"

#include "fused_implementations.h"
#include "plain_decode.h"

#include <stddef.h>

const gdn_implementation *const gdn_cpu_implementations[] = {
#if defined(__x86_64__)
    &gdn_cpu_avx512_prefill, &gdn_cpu_avx512_decode, &gdn_cpu_avx2_prefill, &gdn_cpu_avx2_decode,
#elif defined(__aarch64__)
    &gdn_cpu_neon_prefill,   &gdn_cpu_neon_decode,
#endif
    &gdn_cpu_scalar_prefill, &gdn_cpu_scalar_decode, &gdn_cpu_plain_decode, NULL,
};
