#include "cpu_blas.h"

#include <stdio.h>

#ifndef GDN_HAVE_OPENBLAS

bool gdn_cpu_blas_name(char *text, size_t size)
{
    snprintf(text, size, "plain products (built without BLAS)");
    return false;
}

bool gdn_cpu_blas_computes_right(const gdn_allocator *allocator, gdn_status *status)
{
    (void)allocator;
    *status = GDN_OK;
    return false;
}

void gdn_cpu_blas_hold_threads(void)
{
}

void gdn_cpu_blas_release_threads(void)
{
}

#else

#include "cpu_product.h"

#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

bool gdn_cpu_blas_name(char *text, size_t size)
{
    /* "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64" */
    const char *const config = openblas_get_config();
    const bool wide = strstr(config, "USE64BITINT") != NULL;
    if (wide != (sizeof(blasint) == 8)) {
        snprintf(text, size, "plain products (the BLAS library's integers are %d-bit, this build's %d-bit)",
                 wide ? 64 : 32, (int)sizeof(blasint) * 8);
        return false;
    }
    static const char *const models[] = {"serial: one product at a time", "pthread", "openmp"};
    const int model = openblas_get_parallel();
    char version[32] = "";
    if (sscanf(config, "OpenBLAS %31s", version) != 1) {
        snprintf(version, sizeof(version), "of unknown version");
    }
    snprintf(text, size, "OpenBLAS %s (%s, %s)", version, model >= 0 && model <= 2 ? models[model] : "unknown threads",
             openblas_get_corename());
    return true;
}

/* The shapes that prefill uses at the commonest head size. */
#define SAMPLE_M 64
#define SAMPLE_N 128
#define SAMPLE_K 128

typedef struct sample {
    float a[SAMPLE_M * SAMPLE_K];
    float b[SAMPLE_K * SAMPLE_N];
    float from_blas[SAMPLE_M * SAMPLE_N];
    float from_loops[SAMPLE_M * SAMPLE_N];
} sample;

/* Numbers of no pattern in [-1, 1). */
static void fill(float *dst, int32_t count, uint32_t seed)
{
    for (int32_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        dst[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

static bool agrees(sample *data, bool transpose_a, bool transpose_b)
{
    gdn_cpu_product product = {
        .m = SAMPLE_M,
        .n = SAMPLE_N,
        .k = SAMPLE_K,
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .alpha = 1.0f,
        .a = data->a,
        .b = data->b,
        .c = data->from_blas,
        .lda = transpose_a ? SAMPLE_M : SAMPLE_K,
        .ldb = transpose_b ? SAMPLE_K : SAMPLE_N,
        .ldc = SAMPLE_N,
    };
    gdn_cpu_product_blas(&product);
    product.c = data->from_loops;
    gdn_cpu_product_plain(&product);
    for (int32_t i = 0; i < SAMPLE_M * SAMPLE_N; i++) {
        /* 128 products under 1 in two orders of summation; not <= also catches NaN. */
        if (!(fabsf(data->from_blas[i] - data->from_loops[i]) <= 1e-4f)) {
            return false;
        }
    }
    return true;
}

bool gdn_cpu_blas_computes_right(const gdn_allocator *allocator, gdn_status *status)
{
    *status = GDN_OK;
    sample *const data = allocator->alloc(allocator->user, sizeof(sample), 64);
    if (!data) {
        *status =
            gdn_fail(GDN_ERROR_OUT_OF_MEMORY, "context: no memory for the BLAS check (%zu bytes)", sizeof(sample));
        return false;
    }
    fill(data->a, SAMPLE_M * SAMPLE_K, 1);
    fill(data->b, SAMPLE_K * SAMPLE_N, 2);
    const bool right = agrees(data, false, false) && agrees(data, true, false) && agrees(data, false, true);
    allocator->free(allocator->user, data);
    return right;
}

static pthread_mutex_t threads_mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t threads_holders;
static int threads_before;

/* An OpenMP build asks OpenMP for its count at each call, so gdn_cpu_product_blas can say 1 there, for its own thread. */
static bool count_is_global(void)
{
#ifdef _OPENMP
    return openblas_get_parallel() == OPENBLAS_THREAD;
#else
    return openblas_get_parallel() != OPENBLAS_SEQUENTIAL;
#endif
}

void gdn_cpu_blas_hold_threads(void)
{
    if (!count_is_global()) {
        return;
    }
    pthread_mutex_lock(&threads_mutex);
    if (threads_holders++ == 0) {
        threads_before = openblas_get_num_threads();
        openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&threads_mutex);
}

void gdn_cpu_blas_release_threads(void)
{
    if (!count_is_global()) {
        return;
    }
    pthread_mutex_lock(&threads_mutex);
    if (--threads_holders == 0) {
        openblas_set_num_threads(threads_before);
    }
    pthread_mutex_unlock(&threads_mutex);
}

#endif
