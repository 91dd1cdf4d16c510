#ifndef GDN_CUDA_SM90_SM90_PREFILL_H
#define GDN_CUDA_SM90_SM90_PREFILL_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda.sm90", for compute capability 9.0 and 16-bit inputs with head dims of 128; sm90_prefill.c. */
extern const gdn_implementation gdn_cuda_sm90_prefill;

/* sm90_supports.c */
bool gdn_sm90_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason);

#ifdef __cplusplus
}
#endif

#endif
