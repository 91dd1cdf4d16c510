#include "log.h"

#include <stdio.h>

bool gdn_log_wanted(const gdn_context *context)
{
    return context->log != NULL || context->verbose;
}

void gdn_log_line(void *context, gdn_log_level level, const char *line)
{
    const gdn_context *const target = context;
    if (target->log != NULL) {
        target->log(target->log_user, level, line);
    } else if (target->verbose) {
        /* One call a line, so that lines of several threads do not mix. */
        fprintf(stderr, "gdn: %s\n", line);
    }
}

void gdn_log(const gdn_context *context, gdn_log_level level, const char *format, ...)
{
    if (!gdn_log_wanted(context)) {
        return;
    }
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    gdn_log_line((void *)context, level, line);
}
