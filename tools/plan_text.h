/* What a plan says of itself, for the lines the commands print. */
#ifndef GDN_TOOLS_PLAN_TEXT_H
#define GDN_TOOLS_PLAN_TEXT_H

#include <gdn/gdn.h>

/* The whole of gdn_plan_describe; the caller frees it. NULL: out of memory. */
char *plan_text(const gdn_plan *plan);

/* The value of one of its "name: value" lines, whole or up to its first comma; "" where there is none. */
void plan_text_line(const gdn_plan *plan, const char *name, char *value, size_t size);
void plan_text_value(const gdn_plan *plan, const char *name, char *value, size_t size);

#endif
