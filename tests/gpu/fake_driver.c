/* A libcuda.so.1 that does what GDN_FAKE_DRIVER says, for test_cuda_driver: the driver of machines one has not got.
 *
 *     old      a driver for CUDA 11.4
 *     broken   cuInit fails as it does where the kernel module and the library do not match
 *     empty    no device
 *     turing   one device of compute capability 7.5
 *     refuses  one device, whose context cannot be made for want of memory
 *
 * Built with FAKE_DRIVER_ANCIENT it lacks a function that the backend needs. */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *what)
{
    const char *const driver = getenv("GDN_FAKE_DRIVER");
    return driver != NULL && strcmp(driver, what) == 0;
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
    (void)flags;
    return is("broken") ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    *version = is("old") ? 11040 : CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    *count = is("empty") ? 0 : 1;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int size, CUdevice device)
{
    (void)device;
    (void)snprintf(name, (size_t)size, "a made-up device");
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = 0;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
        *value = is("turing") ? 7 : 9;
    } else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
        *value = is("turing") ? 5 : 0;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

#ifndef FAKE_DRIVER_ANCIENT
CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    (void)data;
    (void)attribute;
    (void)ptr;
    return CUDA_ERROR_INVALID_VALUE;
}
#endif

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
            : error == CUDA_ERROR_OUT_OF_MEMORY        ? "CUDA_ERROR_OUT_OF_MEMORY"
                                                       : NULL;
    return CUDA_SUCCESS;
}
