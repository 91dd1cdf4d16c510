/* The list of implementations to allow or exclude: name prefixes separated by commas, "-" before one to exclude it. */
#ifndef GDN_CORE_IMPLEMENTATION_LIST_H
#define GDN_CORE_IMPLEMENTATION_LIST_H

#include "context.h"

/* Whether the text has the form of a list; messages name the option or variable it came from. */
gdn_status gdn_implementation_list_check(const char *text, const char *name);

/* Says whether `name` passes the context's list: it must match an allowed prefix if any is listed, and no excluded
 * one. */
bool gdn_implementation_list_allows(const gdn_context *context, const char *name);

/* Writes the items that do nothing, probably mistyped, joined by commas: prefixes of no implementation of the context's
 * backend and of no other backend's name. False if there are none. */
bool gdn_implementation_list_strays(const gdn_context *context, char strays[GDN_MAX_IMPLEMENTATION_LIST]);

#endif
