/* The va_list form of gdn_fail, which core hands to modules as a service. */
#ifndef GDN_CORE_ERROR_INTERNAL_H
#define GDN_CORE_ERROR_INTERNAL_H

#include "error.h"

#include <stdarg.h>

gdn_status gdn_vfail(gdn_status status, const char *format, va_list args) GDN_PRINTF(2, 0);

#endif
