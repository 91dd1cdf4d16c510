/* The fused implementations, best first. Core's generic prefill comes after them. */
#include "cuda_backend.h"
#include "impl_decode.h"
#include "impl_fused_mma.h"
#include "sm90/sm90_prefill.h"

const gdn_implementation *const gdn_cuda_implementations[] = {
    &gdn_cuda_sm90_prefill,
    &gdn_cuda_fused_mma,
    &gdn_cuda_decode,
    NULL,
};
