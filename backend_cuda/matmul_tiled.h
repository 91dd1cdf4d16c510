/* The products of the generic path: own kernels, and which of them computes what. */
#ifndef GDN_CUDA_MATMUL_TILED_H
#define GDN_CUDA_MATMUL_TILED_H

#include "cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on run->stream with the tiled kernel, which takes every product. The device is current. */
gdn_status gdn_cuda_matmul_tiled(const gdn_prefill_run *run, const gdn_matmul *matmul);

#ifdef __cplusplus
}
#endif

#endif
