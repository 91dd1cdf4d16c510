/* posix_memalign. */
#define _POSIX_C_SOURCE 200809L

#include "cpu_memory.h"

#include <stdlib.h>
#include <string.h>

gdn_status gdn_cpu_alloc(gdn_device *device, void **ptr, size_t bytes)
{
    (void)device;
    if (posix_memalign(ptr, GDN_WORKSPACE_ALIGNMENT, bytes > 0 ? bytes : 1) != 0) {
        *ptr = NULL;
        return gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "bytes %zu: no memory", bytes);
    }
    return GDN_OK;
}

gdn_status gdn_cpu_free(gdn_device *device, void *ptr)
{
    (void)device;
    free(ptr);
    return GDN_OK;
}

gdn_status gdn_cpu_copy(gdn_device *device, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                        void *stream)
{
    (void)device;
    (void)direction;
    (void)stream;
    if (bytes > 0) {
        memmove(dst, src, bytes);
    }
    return GDN_OK;
}

gdn_status gdn_cpu_fill(gdn_device *device, void *dst, int byte, size_t bytes, void *stream)
{
    (void)device;
    (void)stream;
    if (bytes > 0) {
        memset(dst, byte, bytes);
    }
    return GDN_OK;
}

gdn_status gdn_cpu_synchronize(gdn_device *device, void *stream)
{
    (void)device;
    (void)stream;
    return GDN_OK;
}
