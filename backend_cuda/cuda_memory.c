/* Backend memory, pointer checks, and reading what a run found wrong. */
#include "cuda_backend.h"
#include "cuda_device.h"
#include "cuda_driver.h"
#include "cuda_error.h"

static gdn_status do_alloc(void **ptr, size_t bytes)
{
    const cudaError_t error = cudaMalloc(ptr, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0;
        size_t total_bytes = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        (void)cudaGetLastError();
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "device memory: %zu bytes asked for, %zu of %zu are free", bytes,
                        free_bytes, total_bytes);
    }
    GDN_CUDA_TRY(error);
    return GDN_OK;
}

gdn_status gdn_cuda_alloc(gdn_device *device, void **ptr, size_t bytes)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    *ptr = NULL;
    if (status == GDN_OK) {
        status = do_alloc(ptr, bytes);
    }
    gdn_cuda_leave(&guard);
    return status;
}

static gdn_status do_free(void *ptr)
{
    GDN_CUDA_TRY(cudaFree(ptr));
    return GDN_OK;
}

gdn_status gdn_cuda_free(gdn_device *device, void *ptr)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_free(ptr);
    }
    gdn_cuda_leave(&guard);
    return status;
}

static gdn_status do_copy(void *dst, const void *src, size_t bytes, gdn_copy_direction direction, void *stream)
{
    const enum cudaMemcpyKind kind = direction == GDN_COPY_TO_BACKEND     ? cudaMemcpyHostToDevice
                                     : direction == GDN_COPY_FROM_BACKEND ? cudaMemcpyDeviceToHost
                                                                          : cudaMemcpyDeviceToDevice;
    /* Pageable host memory is staged or copied before this returns; pinned memory stays in stream order. */
    GDN_CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, kind, (cudaStream_t)stream));
    return GDN_OK;
}

gdn_status gdn_cuda_copy(gdn_device *device, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                         void *stream)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_copy(dst, src, bytes, direction, stream);
    }
    gdn_cuda_leave(&guard);
    return status;
}

static gdn_status do_fill(void *dst, int byte, size_t bytes, void *stream)
{
    GDN_CUDA_TRY(cudaMemsetAsync(dst, byte, bytes, (cudaStream_t)stream));
    return GDN_OK;
}

gdn_status gdn_cuda_fill(gdn_device *device, void *dst, int byte, size_t bytes, void *stream)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_fill(dst, byte, bytes, stream);
    }
    gdn_cuda_leave(&guard);
    return status;
}

static gdn_status do_synchronize(void *stream)
{
    GDN_CUDA_TRY(cudaStreamSynchronize((cudaStream_t)stream));
    return GDN_OK;
}

gdn_status gdn_cuda_synchronize(gdn_device *device, void *stream)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_synchronize(stream);
    }
    gdn_cuda_leave(&guard);
    return status;
}

static gdn_status do_check_pointer(const gdn_device *device, const void *ptr, const char *name)
{
    struct cudaPointerAttributes attributes;
    GDN_CUDA_TRY(cudaPointerGetAttributes(&attributes, ptr));
    switch (attributes.type) {
    case cudaMemoryTypeManaged:
        return GDN_OK;
    case cudaMemoryTypeDevice:
        if (attributes.device == device->index) {
            return GDN_OK;
        }
        return gdn_fail(GDN_ERROR_INVALID_ARGUMENT, "%s: %p is memory of device %d, must be of device %d", name, ptr,
                        attributes.device, (int)device->index);
    default:
        return gdn_fail(GDN_ERROR_INVALID_ARGUMENT, "%s: %p is host memory, must be memory of CUDA device %d", name,
                        ptr, (int)device->index);
    }
}

gdn_status gdn_cuda_check_pointer(const gdn_device *device, const void *ptr, const char *name)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_check_pointer(device, ptr, name);
    }
    gdn_cuda_leave(&guard);
    return status;
}

bool gdn_cuda_owns_pointer(const void *ptr)
{
    const char *why = NULL;
    const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    unsigned managed = 0;
    if (driver == NULL ||
        driver->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)ptr) !=
            CUDA_SUCCESS ||
        driver->pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, (CUdeviceptr)(uintptr_t)ptr) !=
            CUDA_SUCCESS) {
        return false; /* memory that the driver knows nothing of */
    }
    return type == CU_MEMORYTYPE_DEVICE && managed == 0;
}

static gdn_status do_read_fault(const void *workspace, void *stream, gdn_metadata_fault *fault)
{
    GDN_CUDA_TRY(cudaMemcpyAsync(fault, workspace, sizeof(*fault), cudaMemcpyDeviceToHost, (cudaStream_t)stream));
    GDN_CUDA_TRY(cudaStreamSynchronize((cudaStream_t)stream));
    return GDN_OK;
}

gdn_status gdn_cuda_read_fault(const gdn_device *device, const void *workspace, void *stream, gdn_metadata_fault *fault)
{
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(device, &guard);
    if (status == GDN_OK) {
        status = do_read_fault(workspace, stream, fault);
    }
    gdn_cuda_leave(&guard);
    return status;
}
