/* The tiled kernel of the generic path's products. */
#ifndef GDN_CUDA_MATMUL_TILED_H
#define GDN_CUDA_MATMUL_TILED_H

#include "cuda_backend.h"
#include "cuda_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product on run->stream with the tiled kernel, which takes every product. The device is current. */
gdn_status gdn_cuda_matmul_tiled(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul);

#ifdef __cplusplus
}
#endif

#endif
