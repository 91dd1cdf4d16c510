/* The one way a failure is reported: set the calling thread's message, return the status. */
#ifndef GDN_CORE_ERROR_H
#define GDN_CORE_ERROR_H

#include <gdn/gdn.h>

#if defined(__GNUC__)
#define GDN_PRINTF(format_index, args_index) __attribute__((format(printf, format_index, args_index)))
#else
#define GDN_PRINTF(format_index, args_index)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the message that gdn_last_error() returns and hands `status` back, so that a check reads
 *     return gdn_fail(GDN_ERROR_UNSUPPORTED, "numerics: BF16, must be ...");
 * In a backend module this is a shim over gdn_core_services, since a module links nothing of core. */
gdn_status gdn_fail(gdn_status status, const char *format, ...) GDN_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

/* The usual failure: a message that names the argument, its value, and what is allowed. */
#define GDN_INVALID(...) gdn_fail(GDN_ERROR_INVALID_ARGUMENT, __VA_ARGS__)

#define GDN_TRY(expression)                       \
    do {                                          \
        const gdn_status gdn_try_ = (expression); \
        if (gdn_try_ != GDN_OK) {                 \
            return gdn_try_;                      \
        }                                         \
    } while (0)

#endif
