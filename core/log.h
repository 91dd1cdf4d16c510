/* Log lines: to the context's callback, or to stderr where none is set and GDN_VERBOSE asked. */
#ifndef GDN_CORE_LOG_H
#define GDN_CORE_LOG_H

#include "context.h"

void gdn_log(const gdn_context *context, gdn_log_level level, const char *format, ...) GDN_PRINTF(3, 4);

/* The form devices are given (gdn_device_options.log); `context` is a gdn_context. */
void gdn_log_line(void *context, gdn_log_level level, const char *line);

/* Whether a line would go anywhere, so that nobody formats in vain. */
bool gdn_log_wanted(const gdn_context *context);

#endif
