/* What cuda_driver.c and cuda_ceilings.c share: the driver's functions under names of their own. */
#ifndef GDN_TOOLS_CUDA_DRIVER_PRIVATE_H
#define GDN_TOOLS_CUDA_DRIVER_PRIVATE_H

#include "cuda_driver.h"

/* Declared as the driver API documents them; handles are opaque pointers, device addresses 64-bit. */
typedef int cuda_result; /* 0: success */
typedef uint64_t cuda_address;

struct cuda_driver {
    void *library;
    int device;
    void *context, *stream, *start, *stop;
    cuda_result (*init)(unsigned flags);
    cuda_result (*error_string)(cuda_result result, const char **text);
    cuda_result (*device_get)(int *device, int ordinal);
    cuda_result (*device_attribute)(int *value, int attribute, int device);
    cuda_result (*context_retain)(void **context, int device);
    cuda_result (*context_release)(int device);
    cuda_result (*context_set)(void *context);
    cuda_result (*stream_create)(void **stream, unsigned flags);
    cuda_result (*stream_destroy)(void *stream);
    cuda_result (*stream_synchronize)(void *stream);
    cuda_result (*stream_begin_capture)(void *stream, int mode);
    cuda_result (*stream_end_capture)(void *stream, void **graph);
    cuda_result (*graph_instantiate)(void **executable, void *graph, unsigned long long flags);
    cuda_result (*graph_launch)(void *executable, void *stream);
    cuda_result (*graph_destroy)(void *graph);
    cuda_result (*executable_destroy)(void *executable);
    cuda_result (*event_create)(void **event, unsigned flags);
    cuda_result (*event_destroy)(void *event);
    cuda_result (*event_record)(void *event, void *stream);
    cuda_result (*event_synchronize)(void *event);
    cuda_result (*event_elapsed)(float *milliseconds, void *start, void *stop);
    cuda_result (*memory_alloc)(cuda_address *address, size_t bytes);
    cuda_result (*memory_free)(cuda_address address);
    cuda_result (*copy_to_device)(cuda_address to, const void *from, size_t bytes);
    cuda_result (*copy_on_device)(cuda_address to, cuda_address from, size_t bytes, void *stream);
};

/* Seconds between two events around `queue(user)`, waited for; negative where something failed. */
double cuda_time(cuda_driver *driver, cuda_result (*queue)(cuda_driver *driver, void *user), void *user);

#endif
