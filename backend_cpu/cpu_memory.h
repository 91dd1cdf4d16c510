/* gdn_memory_* on the CPU: the C library's, done when the call returns. */
#ifndef GDN_CPU_MEMORY_H
#define GDN_CPU_MEMORY_H

#include "backend.h"

gdn_status gdn_cpu_alloc(gdn_device *device, void **ptr, size_t bytes);
gdn_status gdn_cpu_free(gdn_device *device, void *ptr);
gdn_status gdn_cpu_copy(gdn_device *device, void *dst, const void *src, size_t bytes, gdn_copy_direction direction,
                        void *stream);
gdn_status gdn_cpu_fill(gdn_device *device, void *dst, int byte, size_t bytes, void *stream);
gdn_status gdn_cpu_synchronize(gdn_device *device, void *stream);

#endif
