/* A build without cuBLAS headers, or with GDN_CUBLAS=OFF: the tiled kernels compute every product. */
#include "cublas_loader.h"

#include <stdio.h>

gdn_status gdn_cublas_prepare(gdn_cuda_device *device, const gdn_problem *problem, int32_t chunk_size)
{
    (void)device;
    (void)problem;
    (void)chunk_size;
    return GDN_OK;
}

void gdn_cublas_close(gdn_cuda_device *device)
{
    (void)device;
}

void gdn_cublas_describe(const gdn_cuda_device *device, char *buffer, size_t size)
{
    (void)device;
    (void)snprintf(buffer, size, "generic products: tiled kernels (built without cuBLAS)");
}

gdn_status gdn_cublas_matmul(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul,
                             bool *taken)
{
    (void)device;
    (void)run;
    (void)matmul;
    *taken = false;
    return GDN_OK;
}
