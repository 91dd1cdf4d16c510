/* What a gdn_context holds. */
#ifndef GDN_CORE_CONTEXT_H
#define GDN_CORE_CONTEXT_H

#include "backend.h"

#define GDN_MAX_FILTER 256

struct gdn_context {
    gdn_allocator allocator; /* both functions set */
    gdn_log_fn log; /* may be NULL */
    void *log_user;
    bool verbose; /* GDN_VERBOSE asked, and no callback is set: log to stderr */
    char implementations[GDN_MAX_FILTER]; /* name prefixes to allow or exclude; "" allows all */
    const gdn_backend *backend;
    gdn_device *device;
};

/* Says whether `name` passes the context's filter: it must match an allowed prefix if any is listed, and no excluded
 * one. */
bool gdn_context_allows(const gdn_context *context, const char *name);

#endif
