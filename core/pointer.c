#include "pointer.h"

#include <stdatomic.h>
#include <stddef.h>

/* Backends with memory of their own that have been opened. They stay for the life of the process, as modules do, so that a
 * pointer once known needs no owner any more. More kinds than this are not asked. */
#define MAX_KNOWN 4
static _Atomic(const gdn_backend *) known[MAX_KNOWN];

void gdn_pointer_know(const gdn_backend *backend)
{
    if (backend->host_memory || backend->owns_pointer == NULL) {
        return;
    }
    for (int i = 0; i < MAX_KNOWN; ++i) {
        const gdn_backend *expected = NULL;
        if (atomic_compare_exchange_strong(&known[i], &expected, backend) || expected == backend) {
            return;
        }
    }
}

gdn_status gdn_pointer_check(const gdn_context *context, const void *ptr, const char *name)
{
    if (context->backend->check_pointer != NULL) {
        return context->backend->check_pointer(context->device, ptr, name);
    }
    for (int i = 0; context->backend->host_memory && i < MAX_KNOWN; ++i) {
        const gdn_backend *const backend = atomic_load_explicit(&known[i], memory_order_acquire);
        if (backend == NULL) {
            break;
        }
        if (backend->owns_pointer(ptr)) {
            return GDN_INVALID("%s: %p is memory of a %s device, must be host memory", name, ptr, backend->name);
        }
    }
    return GDN_OK;
}
