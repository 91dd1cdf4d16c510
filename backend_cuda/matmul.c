/* The generic path's products: cuBLASLt where a plan has prepared it for them, else the tiled kernel. */
#include "cublas_loader.h"
#include "cuda_backend.h"
#include "matmul_tiled.h"

static gdn_status multiply(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul)
{
    bool taken = false;
    GDN_TRY(gdn_cublas_matmul(device, run, matmul, &taken));
    return taken ? GDN_OK : gdn_cuda_matmul_tiled(device, run, matmul);
}

gdn_status gdn_cuda_matmul(const gdn_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = multiply(gdn_cuda_device_of(device), run, matmul);
    }
    gdn_cuda_leave(&guard);
    return status;
}

gdn_status gdn_cuda_prepare(const gdn_device *device, const gdn_problem *problem, int32_t chunk_size)
{
    /* What is opened here belongs to the device and is guarded by a lock of its own. */
    return gdn_cublas_prepare((gdn_cuda_device *)device, problem, chunk_size);
}

void gdn_cuda_note(const gdn_device *device, char *buffer, size_t size)
{
    gdn_cublas_describe(gdn_cuda_device_of(device), buffer, size);
}
