/* The va_list form of gdn_fail, which core hands to modules as a service. */
#ifndef GDN_CORE_ERROR_INTERNAL_H
#define GDN_CORE_ERROR_INTERNAL_H

#include <gdn/gdn.h>

#include <stdarg.h>

gdn_status gdn_vfail(gdn_status status, const char *format, va_list args);

#endif
