/* Reading a caller's struct of possibly another version: the one place that knows the rule. */
#ifndef GDN_CORE_STRUCT_VERSION_H
#define GDN_CORE_STRUCT_VERSION_H

#include "error.h"

#include <string.h>

/* Checks that `struct_size`, as the caller set it for struct `name`, is one this library can read: at least the first
 * version's size, and past the size known here only zeros (a newer caller that uses nothing new). */
static inline gdn_status gdn_check_struct_size(const void *src, size_t struct_size, size_t known_size, const char *name)
{
    /* Version 0.1 is the first: known size and smallest size are one. */
    if (struct_size < known_size) {
        return gdn_fail(GDN_ERROR_VERSION_MISMATCH,
                        "%s.struct_size: %zu, must be at least %zu; call the struct's _init function first", name,
                        struct_size, known_size);
    }
    const unsigned char *const bytes = src;
    /* A wild struct_size must not make this read far beyond the struct. */
    if (struct_size > known_size + 4096) {
        return gdn_fail(GDN_ERROR_VERSION_MISMATCH, "%s.struct_size: %zu, must be %zu (or a later version's)", name,
                        struct_size, known_size);
    }
    for (size_t i = known_size; i < struct_size; ++i) {
        if (bytes[i] != 0) {
            return gdn_fail(GDN_ERROR_VERSION_MISMATCH,
                            "%s.struct_size: %zu, and a field past the %zu bytes this library knows is set", name,
                            struct_size, known_size);
        }
    }
    return GDN_OK;
}

/* For the _init functions: `struct_size` is the caller's sizeof. */
static inline gdn_status gdn_check_init_size(const void *dst, size_t struct_size, size_t known_size, const char *name)
{
    if (dst == NULL) {
        return GDN_INVALID("%s: NULL, must point to the struct to fill", name);
    }
    if (struct_size < known_size || struct_size > known_size + 4096) {
        return gdn_fail(GDN_ERROR_VERSION_MISMATCH, "%s: struct of %zu bytes, this library's has %zu", name,
                        struct_size, known_size);
    }
    return GDN_OK;
}

#endif
