/* Whether a context's backend can use a pointer. */
#ifndef GDN_CORE_POINTER_H
#define GDN_CORE_POINTER_H

#include "context.h"

/* Refuses, by the argument's name, memory that the backend cannot reach: host memory given to a device, and memory of a
 * device given to a host, as far as backends opened in this process know it. */
gdn_status gdn_pointer_check(const gdn_context *context, const void *ptr, const char *name);

/* A device of `backend` has been opened: from now on its memory is known. */
void gdn_pointer_know(const gdn_backend *backend);

#endif
