/* The one symbol a loaded module exports, and the failure function that it borrows from core. */
#include "cuda_backend.h"

#include <stddef.h>

static gdn_status (*core_vfail)(gdn_status status, const char *format, va_list args);

__attribute__((visibility("default"))) const gdn_backend *gdn_backend_entry(const gdn_core_services *core);

const gdn_backend *gdn_backend_entry(const gdn_core_services *core)
{
    if (core == NULL || core->abi != GDN_BACKEND_ABI || core->version != GDN_VERSION_NUMBER) {
        return NULL;
    }
    /* Where a process holds two copies of core, messages go to the one that loaded this file last. */
    core_vfail = core->vfail;
    return &gdn_backend_cuda;
}

gdn_status gdn_fail(gdn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const gdn_status result = core_vfail(status, format, args);
    va_end(args);
    return result;
}
