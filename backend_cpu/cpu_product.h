/* One product of a batch: C = alpha op(A) op(B) + beta C of m x n, in the ways the CPU has. */
#ifndef GDN_CPU_PRODUCT_H
#define GDN_CPU_PRODUCT_H

#include "generic_ops.h"

typedef struct gdn_cpu_product {
    int32_t m, n, k;
    bool transpose_a, transpose_b;
    float alpha, beta; /* beta = 0 does not read c */
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} gdn_cpu_product;

typedef void (*gdn_cpu_product_fn)(const gdn_cpu_product *product);

/* Every product is cut into blocks of so many columns, whatever the thread count, so that its bits do not depend on it.
 * Few heads then still feed several threads, and a BLAS library's kernels for small matrices apply. */
#define GDN_CPU_PRODUCT_COLUMNS 64

/* How the device multiplies a block. */
gdn_cpu_product_fn gdn_cpu_product_of(const gdn_device *device);

/* Register-blocked loops in plain C. */
void gdn_cpu_product_plain(const gdn_cpu_product *product);

#ifdef GDN_HAVE_OPENBLAS
/* The BLAS library's sgemm, on the calling thread alone. */
void gdn_cpu_product_blas(const gdn_cpu_product *product);
#endif

#endif
