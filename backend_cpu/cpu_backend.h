#ifndef GDN_CPU_BACKEND_H
#define GDN_CPU_BACKEND_H

#include "backend.h"

extern const gdn_backend gdn_backend_cpu;

#endif
