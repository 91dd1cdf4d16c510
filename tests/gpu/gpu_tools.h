/* What tests of the CUDA backend need of CUDA itself: streams, graphs, kernels that keep a device busy or leave it dirty.
 * The program's CUDA runtime is its own; the backend's module has another. Both use the device's primary context, as
 * they do in any application. */
#ifndef GDN_TESTS_GPU_TOOLS_H
#define GDN_TESTS_GPU_TOOLS_H

#include "harness/suite.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REQUIRE_CUDA(call)                                                \
    do {                                                                  \
        const cudaError_t require_error = (call);                         \
        if (require_error != cudaSuccess) {                               \
            fail_msg("%s: %s", #call, cudaGetErrorString(require_error)); \
        }                                                                 \
    } while (0)

/* Queues a kernel that runs for about so many milliseconds. */
void gpu_spin(cudaStream_t stream, int milliseconds);

/* Queues a kernel on every multiprocessor that fills shared memory and registers with NaN. */
void gpu_dirty(cudaStream_t stream);

/* Queues a kernel that writes through a bad pointer: the device is lost to this process. */
void gpu_break(cudaStream_t stream);

/* A context of the CUDA backend; exits with TEST_SKIPPED and a reason where there is no device. */
gdn_context *gpu_context(int device);

/* Copies the case's inputs and poisoned outputs to the stage's buffers in stream order; the stream is then the run's. */
void gpu_upload(staged_case *stage, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
