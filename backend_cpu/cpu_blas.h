/* The BLAS library behind the generic products: which one it is, whether it can be trusted, and its threads. */
#ifndef GDN_CPU_BLAS_H
#define GDN_CPU_BLAS_H

#include "backend.h"

/* One phrase: "OpenBLAS 0.3.21 (pthread, SkylakeX)", or "plain products (built without BLAS)". False where there is none
 * to use: not built in, or its integers are 64-bit where the build's are 32. */
bool gdn_cpu_blas_name(char *text, size_t size);

/* Whether sample products agree with the plain loops: distributions have shipped a BLAS whose kernels for one CPU family
 * were wrong. False with OUT_OF_MEMORY in *status, where the allocator has nothing. */
bool gdn_cpu_blas_computes_right(const gdn_allocator *allocator, gdn_status *status);

/* With a build of OpenBLAS whose thread count is process-global, the first holder sets it to 1 and the last one to let go
 * restores it: a product must run on the thread that asked for it. */
void gdn_cpu_blas_hold_threads(void);
void gdn_cpu_blas_release_threads(void);

#endif
