/* The few functions of the CUDA driver that the runtime library does not stand in for: asking what is there
 * without creating a context, and the calling thread's current context. Opened with dlopen; nothing links libcuda. */
#ifndef GDN_CUDA_DRIVER_H
#define GDN_CUDA_DRIVER_H

#include <cuda.h>

typedef struct gdn_cuda_driver {
    CUresult (*init)(unsigned flags);
    CUresult (*driver_version)(int *version);
    CUresult (*device_count)(int *count);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_name)(char *name, int size, CUdevice device);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*primary_retain)(CUcontext *context, CUdevice device);
    CUresult (*primary_release)(CUdevice device);
    CUresult (*get_current)(CUcontext *context);
    CUresult (*set_current)(CUcontext context);
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute attribute, CUdeviceptr ptr);
    CUresult (*error_name)(CUresult error, const char **name);
} gdn_cuda_driver;

/* The driver, initialised; NULL with *why set where there is none or it does not start. Safe from several threads.
 * Tried anew after each failure. */
const gdn_cuda_driver *gdn_cuda_driver_get(const char **why);

#endif
