#ifndef GDN_CPU_PLAIN_DECODE_H
#define GDN_CPU_PLAIN_DECODE_H

#include "backend.h"

/* Takes every valid decode problem: the last of its operation in the table. */
extern const gdn_implementation gdn_cpu_plain_decode;

#endif
