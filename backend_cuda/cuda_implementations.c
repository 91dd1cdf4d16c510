/* The fused implementations, best first. Core's generic prefill comes after them. */
#include "cuda_backend.h"

const gdn_implementation *const gdn_cuda_implementations[] = {
    NULL,
};
