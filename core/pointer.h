/* Whether a context's backend can use a pointer. */
#ifndef GDN_CORE_POINTER_H
#define GDN_CORE_POINTER_H

#include "context.h"

#include <stdint.h>

/* Refuses, by the argument's name, memory that the backend cannot reach: host memory given to a device, and memory of a
 * device given to a host, as far as backends opened in this process know it. */
gdn_status gdn_pointer_check(const gdn_context *context, const void *ptr, const char *name);

/* Whether so many bytes from ptr on would pass the end of the address space. */
static inline bool gdn_pointer_wraps(const void *ptr, size_t bytes)
{
    return bytes > UINTPTR_MAX - (uintptr_t)ptr;
}

/* A device of `backend` has been opened: from now on its memory is known. */
void gdn_pointer_know(const gdn_backend *backend);

#endif
