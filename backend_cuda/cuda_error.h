/* Every CUDA call is checked through here. */
#ifndef GDN_CUDA_ERROR_H
#define GDN_CUDA_ERROR_H

#include "core/error.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A status of the CUDA runtime as a gdn_status whose message names the call and the error. Leaves no error pending
 * in the runtime, so that the next call starts clean; an error that the process cannot recover from is said to be one. */
gdn_status gdn_cuda_fail(cudaError_t error, const char *call);

/* Called after a kernel launch: `kernel` names it in the message. */
gdn_status gdn_cuda_launched(const char *kernel);

#ifdef __cplusplus
}
#endif

#define GDN_CUDA_TRY(call)                              \
    do {                                                \
        const cudaError_t gdn_cuda_try_ = (call);       \
        if (gdn_cuda_try_ != cudaSuccess) {             \
            return gdn_cuda_fail(gdn_cuda_try_, #call); \
        }                                               \
    } while (0)

#endif
