/* What a gdn_context holds. */
#ifndef GDN_CORE_CONTEXT_H
#define GDN_CORE_CONTEXT_H

#include "backend.h"

#define GDN_MAX_IMPLEMENTATION_LIST 256

struct gdn_context {
    gdn_allocator allocator; /* both functions set */
    gdn_log_fn log; /* may be NULL */
    void *log_user;
    bool verbose; /* GDN_VERBOSE asked: log to stderr where no callback is set */
    char implementations[GDN_MAX_IMPLEMENTATION_LIST]; /* implementation_list.h; "" allows all */
    const gdn_backend *backend;
    gdn_device *device;
};

#endif
