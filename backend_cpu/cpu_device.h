/* The CPU backend's device: what a context holds of it. */
#ifndef GDN_CPU_DEVICE_H
#define GDN_CPU_DEVICE_H

#include "backend.h"
#include "cpu_isa.h"

typedef struct gdn_cpu_device {
    gdn_device base;
    int32_t num_threads; /* threads a call may use, the caller's included */
    bool use_blas; /* products go to the BLAS library, whose threads this device then holds; else to the plain loops */
    gdn_cpu_isa isa; /* the widest that implementations may use */
    gdn_allocator allocator;
} gdn_cpu_device;

static inline const gdn_cpu_device *gdn_cpu_device_of(const gdn_device *device)
{
    return (const gdn_cpu_device *)device;
}

#endif
