/* The kernel tables of this machine, and what the tests of kernels share. */
#ifndef GDN_TEST_KERNEL_TABLES_H
#define GDN_TEST_KERNEL_TABLES_H

#include "check.h"
#include "random.h"

#include "cpu_isa.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { MAX_TABLES = 3, C = GDN_MAX_CHUNK, B = GDN_TOKEN_BLOCK, BIG = 64 * 1024 };

static const gdn_cpu_kernels *tables[MAX_TABLES];
static int num_tables;
static const gdn_cpu_kernels *const twin = &gdn_cpu_kernels_scalar;
static test_random source;

static int find_tables(void **state)
{
    (void)state;
    source = random_stream(20261129, 0);
    tables[num_tables++] = twin;
#if defined(__x86_64__)
    if (gdn_cpu_isa_best() >= GDN_CPU_ISA_AVX2) {
        tables[num_tables++] = &gdn_cpu_kernels_avx2;
    }
    if (gdn_cpu_isa_best() >= GDN_CPU_ISA_AVX512) {
        tables[num_tables++] = &gdn_cpu_kernels_avx512;
    }
#elif defined(__aarch64__)
    tables[num_tables++] = &gdn_cpu_kernels_neon;
#endif
    return 0;
}

static inline void fill(float *x, int count)
{
    for (int i = 0; i < count; i++) {
        x[i] = (float)random_normal(&source);
    }
}

/* |x - y| within `bound` of 1 + the largest |y|. */
static inline void require_close(const char *what, const gdn_cpu_kernels *kernels, const float *x, const float *y,
                                 int count, double bound)
{
    double largest = 1.0;
    for (int i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)y[i]));
    }
    for (int i = 0; i < count; i++) {
        if (!(fabs((double)x[i] - (double)y[i]) <= bound * largest)) {
            fail_msg("%s.%s: element %d is %.9g, must be %.9g", kernels->name, what, i, (double)x[i], (double)y[i]);
        }
    }
}

static inline void require_same(const char *what, const gdn_cpu_kernels *kernels, const void *x, const void *y,
                                size_t bytes)
{
    if (memcmp(x, y, bytes) != 0) {
        fail_msg("%s.%s: the bits differ", kernels->name, what);
    }
}

#endif
