/* cuBLASLt, opened when a plan first chooses generic products in TF32: there it is faster than the tiled kernel (by 7% of
 * a whole prefill on an H200), while for float32 products the tiled kernel is faster than it (by 4%). Nothing links it:
 * where it cannot be opened, or the build or the context leaves it out, the tiled kernel computes every product and the
 * plan's description says so.
 *
 * A sequence's bits may not depend on the batch it is in. cuBLAS chooses kernels by problem size, so an algorithm is
 * asked for once a (m, n, k, transposes) with a batch count fixed here, without workspace and without reductions across
 * blocks, and used for every batch count from then on. */
#ifndef GDN_CUDA_CUBLAS_LOADER_H
#define GDN_CUDA_CUBLAS_LOADER_H

#include "cuda_device.h"

#include "core/generic_ops.h"

/* For a problem in TF32: opens cuBLASLt for the device if that has not been tried, and chooses algorithms for the generic
 * path's products at this chunk size. Where there is no library or no algorithm, the tiled kernel stays; that is no failure. */
gdn_status gdn_cublas_prepare(gdn_cuda_device *device, const gdn_problem *problem, int32_t chunk_size);
void gdn_cublas_close(gdn_cuda_device *device);

/* What computes the generic products, one line: "generic products: tiled kernels (blas OFF)". */
void gdn_cublas_describe(const gdn_cuda_device *device, char *buffer, size_t size);

/* Whether a chosen algorithm computes this product: its operands must follow one another at fixed strides. If so, it is
 * queued and *taken is true. */
gdn_status gdn_cublas_matmul(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul,
                             bool *taken);

#endif
