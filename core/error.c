#include "error.h"

#include "error_internal.h"

#include <stdio.h>
#include <string.h>

/* One buffer a thread: a message needs no context, no lock and no allocation. */
static _Thread_local char last_message[1024];

gdn_status gdn_vfail(gdn_status status, const char *format, va_list args)
{
    /* Formatted aside first, so that a message may quote the previous one. */
    char text[sizeof(last_message)];
    const int length = vsnprintf(text, sizeof(text), format, args);
    if (length >= (int)sizeof(text)) {
        memcpy(text + sizeof(text) - 4, "...", 4);
    }
    /* One line of plain text, whatever a caller's string held. */
    for (char *c = text; *c != '\0'; ++c) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    snprintf(last_message, sizeof(last_message), "%s", text);
    return status;
}

gdn_status gdn_fail(gdn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gdn_vfail(status, format, args);
    va_end(args);
    return status;
}

const char *gdn_last_error(void)
{
    return last_message;
}

const char *gdn_status_string(gdn_status status)
{
    switch (status) {
    case GDN_OK:
        return "GDN_OK";
    case GDN_ERROR_INVALID_ARGUMENT:
        return "GDN_ERROR_INVALID_ARGUMENT";
    case GDN_ERROR_UNSUPPORTED:
        return "GDN_ERROR_UNSUPPORTED";
    case GDN_ERROR_SLOT_CONFLICT:
        return "GDN_ERROR_SLOT_CONFLICT";
    case GDN_ERROR_WORKSPACE_TOO_SMALL:
        return "GDN_ERROR_WORKSPACE_TOO_SMALL";
    case GDN_ERROR_OUT_OF_MEMORY:
        return "GDN_ERROR_OUT_OF_MEMORY";
    case GDN_ERROR_BACKEND_UNAVAILABLE:
        return "GDN_ERROR_BACKEND_UNAVAILABLE";
    case GDN_ERROR_DEVICE:
        return "GDN_ERROR_DEVICE";
    case GDN_ERROR_VERSION_MISMATCH:
        return "GDN_ERROR_VERSION_MISMATCH";
    case GDN_ERROR_INTERNAL:
        return "GDN_ERROR_INTERNAL";
    }
    return "unknown gdn_status";
}
