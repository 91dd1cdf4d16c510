#ifndef GDN_CPU_IMPLEMENTATIONS_H
#define GDN_CPU_IMPLEMENTATIONS_H

#include "backend.h"

/* What the CPU offers beside the generic prefill path: wide instruction sets before narrow ones, NULL last. */
extern const gdn_implementation *const gdn_cpu_implementations[];

#endif
