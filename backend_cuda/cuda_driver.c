#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static gdn_cuda_driver driver;
static bool driver_ready;
static char driver_why[160];

static bool load_symbols(void *library)
{
    /* The names with a suffix are the current versions; cuda.h maps the plain names to them. */
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"cuInit", &driver.init},
        {"cuDriverGetVersion", &driver.driver_version},
        {"cuDeviceGetCount", &driver.device_count},
        {"cuDeviceGet", &driver.device_get},
        {"cuDeviceGetName", &driver.device_name},
        {"cuDeviceGetAttribute", &driver.device_attribute},
        {"cuDevicePrimaryCtxRetain", &driver.primary_retain},
        {"cuDevicePrimaryCtxRelease_v2", &driver.primary_release},
        {"cuCtxGetCurrent", &driver.get_current},
        {"cuCtxSetCurrent", &driver.set_current},
        {"cuPointerGetAttribute", &driver.pointer_attribute},
        {"cuGetErrorName", &driver.error_name},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *const symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            (void)snprintf(driver_why, sizeof(driver_why), "the CUDA driver has no %s: too old", symbols[i].name);
            return false;
        }
        /* ISO C has no conversion from an object pointer to a function pointer; POSIX guarantees this one. */
        memcpy(symbols[i].slot, &symbol, sizeof(symbol));
    }
    return true;
}

static bool start(void)
{
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(driver_why, sizeof(driver_why), "no CUDA driver (libcuda.so.1 does not load)");
        return false;
    }
    if (!load_symbols(library)) {
        (void)dlclose(library);
        return false;
    }
    const CUresult result = driver.init(0);
    if (result != CUDA_SUCCESS) {
        const char *name = NULL;
        (void)driver.error_name(result, &name);
        (void)snprintf(driver_why, sizeof(driver_why), "the CUDA driver does not start: cuInit: %s",
                       name != NULL ? name : "unknown error");
        (void)dlclose(library);
        return false;
    }
    return true; /* the library stays open */
}

const gdn_cuda_driver *gdn_cuda_driver_get(const char **why)
{
    (void)pthread_mutex_lock(&driver_lock);
    if (!driver_ready) {
        driver_ready = start();
    }
    const bool ready = driver_ready;
    (void)pthread_mutex_unlock(&driver_lock);
    *why = ready ? NULL : driver_why;
    return ready ? &driver : NULL;
}
