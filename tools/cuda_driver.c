#include "cuda_driver.h"

#include "cuda_driver_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda_graph {
    void *executable;
};

enum {
    ATTRIBUTE_L2_CACHE_SIZE = 38, /* CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE */
    STREAM_NON_BLOCKING = 1, /* CU_STREAM_NON_BLOCKING */
    CAPTURE_THREAD_LOCAL = 1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
};

static bool fail(const cuda_driver *driver, const char *what, cuda_result result, char *error, size_t error_size)
{
    const char *text = NULL;
    if (driver->error_string != NULL) {
        (void)driver->error_string(result, &text);
    }
    snprintf(error, error_size, "%s: CUDA error %d (%s)", what, result, text != NULL ? text : "unknown");
    return false;
}

/* Function pointers by name; POSIX guarantees that dlsym's pointer can be stored so. */
static bool load(cuda_driver *driver, char *error, size_t error_size)
{
    const struct {
        void *slot;
        const char *name;
    } functions[] = {
        {&driver->init, "cuInit"},
        {&driver->error_string, "cuGetErrorString"},
        {&driver->device_get, "cuDeviceGet"},
        {&driver->device_attribute, "cuDeviceGetAttribute"},
        {&driver->context_retain, "cuDevicePrimaryCtxRetain"},
        {&driver->context_release, "cuDevicePrimaryCtxRelease_v2"},
        {&driver->context_set, "cuCtxSetCurrent"},
        {&driver->stream_create, "cuStreamCreate"},
        {&driver->stream_destroy, "cuStreamDestroy_v2"},
        {&driver->stream_synchronize, "cuStreamSynchronize"},
        {&driver->stream_begin_capture, "cuStreamBeginCapture_v2"},
        {&driver->stream_end_capture, "cuStreamEndCapture"},
        {&driver->graph_instantiate, "cuGraphInstantiateWithFlags"},
        {&driver->graph_launch, "cuGraphLaunch"},
        {&driver->graph_destroy, "cuGraphDestroy"},
        {&driver->executable_destroy, "cuGraphExecDestroy"},
        {&driver->event_create, "cuEventCreate"},
        {&driver->event_destroy, "cuEventDestroy_v2"},
        {&driver->event_record, "cuEventRecord"},
        {&driver->event_synchronize, "cuEventSynchronize"},
        {&driver->event_elapsed, "cuEventElapsedTime"},
        {&driver->memory_alloc, "cuMemAlloc_v2"},
        {&driver->memory_free, "cuMemFree_v2"},
        {&driver->copy_to_device, "cuMemcpyHtoD_v2"},
        {&driver->copy_on_device, "cuMemcpyDtoDAsync_v2"},
    };
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL) {
        snprintf(error, error_size, "no CUDA driver: %s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *const symbol = dlsym(driver->library, functions[i].name);
        if (symbol == NULL) {
            snprintf(error, error_size, "the CUDA driver is too old: it has no %s", functions[i].name);
            return false;
        }
        memcpy(functions[i].slot, &symbol, sizeof(symbol));
    }
    return true;
}

static bool set_up(cuda_driver *driver, int ordinal, char *error, size_t error_size)
{
    cuda_result result = driver->init(0);
    if (result == 0) {
        result = driver->device_get(&driver->device, ordinal);
    }
    if (result == 0) {
        result = driver->context_retain(&driver->context, driver->device);
    }
    if (result == 0) {
        result = driver->context_set(driver->context);
    }
    if (result == 0) {
        result = driver->stream_create(&driver->stream, STREAM_NON_BLOCKING);
    }
    if (result == 0) {
        result = driver->event_create(&driver->start, 0);
    }
    if (result == 0) {
        result = driver->event_create(&driver->stop, 0);
    }
    return result == 0 || fail(driver, "setting up device and stream", result, error, error_size);
}

bool cuda_driver_open(cuda_driver **driver, int device, char *error, size_t error_size)
{
    *driver = calloc(1, sizeof(**driver));
    if (*driver == NULL) {
        snprintf(error, error_size, "out of memory");
        return false;
    }
    if (!load(*driver, error, error_size) || !set_up(*driver, device, error, error_size)) {
        cuda_driver_close(driver);
        return false;
    }
    return true;
}

void cuda_driver_close(cuda_driver **driver)
{
    cuda_driver *const d = driver != NULL ? *driver : NULL;
    if (d == NULL) {
        return;
    }
    if (d->start != NULL) {
        (void)d->event_destroy(d->start);
    }
    if (d->stop != NULL) {
        (void)d->event_destroy(d->stop);
    }
    if (d->stream != NULL) {
        (void)d->stream_destroy(d->stream);
    }
    if (d->context != NULL) {
        (void)d->context_release(d->device);
    }
    if (d->library != NULL) {
        dlclose(d->library);
    }
    free(d);
    *driver = NULL;
}

void *cuda_driver_stream(const cuda_driver *driver)
{
    return driver->stream;
}

int64_t cuda_driver_l2_bytes(const cuda_driver *driver)
{
    int bytes = 0;
    (void)driver->device_attribute(&bytes, ATTRIBUTE_L2_CACHE_SIZE, driver->device);
    return bytes;
}

bool cuda_capture_begin(cuda_driver *driver, char *error, size_t error_size)
{
    const cuda_result result = driver->stream_begin_capture(driver->stream, CAPTURE_THREAD_LOCAL);
    return result == 0 || fail(driver, "beginning a capture", result, error, error_size);
}

bool cuda_capture_end(cuda_driver *driver, cuda_graph **graph, char *error, size_t error_size)
{
    void *captured = NULL;
    *graph = NULL;
    cuda_result result = driver->stream_end_capture(driver->stream, &captured);
    if (result != 0 || captured == NULL) {
        return fail(driver, "ending a capture", result, error, error_size);
    }
    cuda_graph *const made = calloc(1, sizeof(*made));
    result = made != NULL ? driver->graph_instantiate(&made->executable, captured, 0) : -1;
    (void)driver->graph_destroy(captured);
    if (result != 0) {
        free(made);
        return fail(driver, "instantiating a graph", result, error, error_size);
    }
    *graph = made;
    return true;
}

void cuda_graph_free(cuda_driver *driver, cuda_graph **graph)
{
    if (*graph != NULL) {
        (void)driver->executable_destroy((*graph)->executable);
        free(*graph);
        *graph = NULL;
    }
}

double cuda_time(cuda_driver *driver, cuda_result (*queue)(cuda_driver *driver, void *user), void *user)
{
    float milliseconds = 0;
    cuda_result result = driver->event_record(driver->start, driver->stream);
    if (result == 0) {
        result = queue(driver, user);
    }
    if (result == 0) {
        result = driver->event_record(driver->stop, driver->stream);
    }
    if (result == 0) {
        result = driver->event_synchronize(driver->stop);
    }
    if (result == 0) {
        result = driver->event_elapsed(&milliseconds, driver->start, driver->stop);
    }
    return result == 0 ? 1e-3 * (double)milliseconds : -1;
}

static cuda_result queue_graph(cuda_driver *driver, void *user)
{
    return driver->graph_launch(((cuda_graph *)user)->executable, driver->stream);
}

double cuda_graph_seconds(cuda_driver *driver, cuda_graph *graph)
{
    return cuda_time(driver, queue_graph, graph);
}
