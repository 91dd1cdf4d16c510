/* The list of implementations to allow or exclude: name prefixes separated by commas, "-" before one to exclude it. */
#ifndef GDN_CORE_IMPLEMENTATION_LIST_H
#define GDN_CORE_IMPLEMENTATION_LIST_H

#include "context.h"

/* Whether the text has the form of a list. */
gdn_status gdn_implementation_list_check(const char *text);

/* Says whether `name` passes the context's list: it must match an allowed prefix if any is listed, and no excluded
 * one. */
bool gdn_implementation_list_allows(const gdn_context *context, const char *name);

/* Items that do nothing, mistyped ones, joined by commas: prefixes of no implementation that the context's backend has, nor of
 * another backend's name. False where there are none. */
bool gdn_implementation_list_strays(const gdn_context *context, char strays[GDN_MAX_IMPLEMENTATION_LIST]);

#endif
