/* Finding, opening and closing devices, and the guard of every call. */
#include "cuda_device.h"

#include "cublas_loader.h"
#include "cuda_backend.h"
#include "cuda_driver.h"
#include "cuda_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set by the build: the architectures compiled in, as CMAKE_CUDA_ARCHITECTURES spells them, ' ' between. */
#ifndef GDN_CUDA_ARCHITECTURES
#error "GDN_CUDA_ARCHITECTURES must be defined"
#endif

/* Kernels use bf16 arithmetic, cp.async and mma.sync as sm_80 has them. */
#define LEAST_CAPABILITY 80

bool gdn_cuda_has_code(const char *list, int capability)
{
    for (const char *word = list; *word != '\0';) {
        char *end = NULL;
        const int arch = (int)strtol(word, &end, 10);
        const bool exact = *end == 'a';
        const bool family = *end == 'f';
        end += exact || family;
        const bool real = strncmp(end, "-virtual", 8) != 0;
        const bool ptx = strncmp(end, "-real", 5) != 0;
        if (arch == capability || (real && !exact && arch / 10 == capability / 10 && arch < capability) ||
            (ptx && !exact && !family && arch < capability)) {
            return true;
        }
        const char *const space = strchr(end, ' ');
        word = space != NULL ? space + 1 : end + strlen(end);
    }
    return false;
}

static int capability_of(const gdn_cuda_driver *driver, CUdevice device)
{
    int major = 0;
    int minor = 0;
    (void)driver->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    (void)driver->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return major * 10 + minor;
}

/* Whether the device can be used; else `reason` says why. */
static bool is_usable(int capability, const char *name, char *reason, size_t size)
{
    if (capability < LEAST_CAPABILITY) {
        (void)snprintf(reason, size, "%s has compute capability %d.%d; 8.0 is the least", name, capability / 10,
                       capability % 10);
        return false;
    }
    if (!gdn_cuda_has_code(GDN_CUDA_ARCHITECTURES, capability)) {
        (void)snprintf(reason, size, "%s has compute capability %d.%d; this build has code for: %s", name,
                       capability / 10, capability % 10, GDN_CUDA_ARCHITECTURES);
        return false;
    }
    return true;
}

/* Whether the driver can run what this runtime library was built for: any driver of the same major version can. */
static bool is_new_enough(const gdn_cuda_driver *driver, char *reason, size_t size)
{
    int version = 0;
    (void)driver->driver_version(&version);
    if (version / 1000 >= CUDART_VERSION / 1000) {
        return true;
    }
    (void)snprintf(reason, size, "the driver supports CUDA %d.%d; this build needs %d.0 or later", version / 1000,
                   version % 1000 / 10, CUDART_VERSION / 1000);
    return false;
}

void gdn_cuda_probe(gdn_backend_report *report)
{
    const char *why = NULL;
    const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
    report->usable = 0;
    report->num_devices = 0;
    report->description[0] = '\0';
    (void)snprintf(report->reason, sizeof(report->reason), "%s", why != NULL ? why : "");
    if (driver == NULL || !is_new_enough(driver, report->reason, sizeof(report->reason))) {
        return;
    }
    int count = 0;
    const CUresult result = driver->device_count(&count);
    if (result != CUDA_SUCCESS || count == 0) {
        (void)snprintf(report->reason, sizeof(report->reason), "the CUDA driver sees no device");
        return;
    }
    int usable = 0;
    for (int i = 0; i < count; i++) {
        CUdevice device;
        char name[96] = "";
        if (driver->device_get(&device, i) != CUDA_SUCCESS) {
            continue;
        }
        (void)driver->device_name(name, (int)sizeof(name), device);
        const int capability = capability_of(driver, device);
        char reason[sizeof(report->reason)];
        if (is_usable(capability, name, reason, sizeof(reason))) {
            if (usable == 0) {
                int driver_version = 0;
                (void)driver->driver_version(&driver_version);
                (void)snprintf(report->description, sizeof(report->description),
                               "%s, compute capability %d.%d, driver for CUDA %d.%d", name, capability / 10,
                               capability % 10, driver_version / 1000, driver_version % 1000 / 10);
            }
            usable++;
        } else if (report->reason[0] == '\0') {
            memcpy(report->reason, reason, sizeof(reason));
        }
    }
    if (usable > 0) {
        report->usable = 1;
        report->num_devices = count;
        report->reason[0] = '\0';
    }
}

static gdn_status driver_fail(const gdn_cuda_driver *driver, CUresult result, const char *call)
{
    const char *name = NULL;
    (void)driver->error_name(result, &name);
    return gdn_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? GDN_ERROR_OUT_OF_MEMORY : GDN_ERROR_DEVICE, "%s: %s", call,
                    name != NULL ? name : "unknown error");
}

/* Fills what plans want to know of the device. Its context is current. */
static gdn_status describe(gdn_cuda_device *device)
{
    struct cudaDeviceProp properties;
    GDN_CUDA_TRY(cudaGetDeviceProperties(&properties, device->base.index));
    device->compute_capability = properties.major * 10 + properties.minor;
    GDN_CUDA_TRY(cudaDriverGetVersion(&device->driver_version));
    device->num_sms = properties.multiProcessorCount;
    device->shared_bytes_per_block = (int64_t)properties.sharedMemPerBlockOptin;
    device->l2_bytes = properties.l2CacheSize;
    (void)snprintf(device->base.description, sizeof(device->base.description),
                   "%.96s, device %d, compute capability %d.%d, %d multiprocessors, %.1f GiB", properties.name,
                   (int)device->base.index, properties.major, properties.minor, properties.multiProcessorCount,
                   (double)properties.totalGlobalMem / (1024.0 * 1024.0 * 1024.0));
    return GDN_OK;
}

/* Creates or joins the device's primary context and describes it, leaving the thread's own context current. */
static gdn_status attach(gdn_cuda_device *device, const gdn_cuda_driver *driver, CUdevice handle)
{
    CUcontext context = NULL;
    CUresult result = driver->primary_retain(&context, handle);
    if (result != CUDA_SUCCESS) {
        return driver_fail(driver, result, "cuDevicePrimaryCtxRetain");
    }
    device->context = context;
    gdn_cuda_guard guard;
    gdn_status status = gdn_cuda_enter(&device->base, &guard);
    if (status == GDN_OK) {
        status = describe(device);
    }
    gdn_cuda_leave(&guard);
    if (status != GDN_OK) {
        (void)driver->primary_release(handle);
    }
    return status;
}

gdn_status gdn_cuda_open(gdn_device **out, const gdn_device_options *options)
{
    *out = NULL;
    const char *why = NULL;
    const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
    if (driver == NULL) {
        return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "backend cuda: %s", why);
    }
    char reason[256];
    if (!is_new_enough(driver, reason, sizeof(reason))) {
        return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "backend cuda: %s", reason);
    }
    int count = 0;
    (void)driver->device_count(&count);
    if (options->index < 0 || options->index >= count) {
        return gdn_fail(GDN_ERROR_INVALID_ARGUMENT, "device: %d, must be in 0..%d", (int)options->index, count - 1);
    }
    CUdevice handle;
    char name[96] = "";
    CUresult result = driver->device_get(&handle, options->index);
    if (result != CUDA_SUCCESS) {
        return driver_fail(driver, result, "cuDeviceGet");
    }
    (void)driver->device_name(name, (int)sizeof(name), handle);
    if (!is_usable(capability_of(driver, handle), name, reason, sizeof(reason))) {
        return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "device: %d, %s", (int)options->index, reason);
    }

    gdn_cuda_device *const device =
        options->allocator.alloc(options->allocator.user, sizeof(gdn_cuda_device), _Alignof(gdn_cuda_device));
    if (device == NULL) {
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "device: no host memory for %zu bytes", sizeof(gdn_cuda_device));
    }
    memset(device, 0, sizeof(*device));
    device->base.backend = &gdn_backend_cuda;
    device->base.index = options->index;
    device->allocator = options->allocator;
    device->blas = options->blas;
    device->log = options->log;
    device->log_target = options->log_target;
    const gdn_status status = attach(device, driver, handle);
    if (status != GDN_OK) {
        options->allocator.free(options->allocator.user, device);
        return status;
    }
    *out = &device->base;
    return GDN_OK;
}

void gdn_cuda_close(gdn_device *base)
{
    gdn_cuda_device *const device = (gdn_cuda_device *)base;
    const char *why = NULL;
    const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
    CUdevice handle;
    gdn_cublas_close(device);
    if (driver != NULL && driver->device_get(&handle, device->base.index) == CUDA_SUCCESS) {
        (void)driver->primary_release(handle);
    }
    const gdn_allocator allocator = device->allocator;
    allocator.free(allocator.user, device);
}

gdn_status gdn_cuda_enter(const gdn_device *device, gdn_cuda_guard *guard)
{
    const char *why = NULL;
    const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
    CUcontext previous = NULL;
    guard->previous = NULL;
    guard->changed = false;
    if (driver == NULL) {
        return gdn_fail(GDN_ERROR_BACKEND_UNAVAILABLE, "backend cuda: %s", why);
    }
    CUresult result = driver->get_current(&previous);
    if (result == CUDA_SUCCESS && previous != (CUcontext)gdn_cuda_device_of(device)->context) {
        result = driver->set_current((CUcontext)gdn_cuda_device_of(device)->context);
        guard->previous = previous;
        guard->changed = result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        return driver_fail(driver, result, "cuCtxSetCurrent");
    }
    const cudaError_t pending = cudaGetLastError();
    if (pending != cudaSuccess) {
        gdn_cuda_leave(guard);
        guard->changed = false;
        return gdn_fail(GDN_ERROR_DEVICE, "a CUDA error was pending before this call: %s (%s)",
                        cudaGetErrorName(pending), cudaGetErrorString(pending));
    }
    return GDN_OK;
}

void gdn_cuda_leave(const gdn_cuda_guard *guard)
{
    if (guard->changed) {
        const char *why = NULL;
        const gdn_cuda_driver *const driver = gdn_cuda_driver_get(&why);
        if (driver != NULL) {
            (void)driver->set_current((CUcontext)guard->previous);
        }
    }
}
