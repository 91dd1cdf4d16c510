#include "cpu_product.h"

#ifdef GDN_HAVE_OPENBLAS

#include <cblas.h>
#include <pthread.h>
#include <stdbool.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* The one conversion to the library's integer; gdn_cpu_matmul has refused what does not fit 32 bits. */
static blasint to_blas(int64_t value)
{
    return (blasint)value;
}

/* A serial build shares its packing buffers between all callers and guards them with nothing. */
static pthread_mutex_t serial_mutex = PTHREAD_MUTEX_INITIALIZER;

void gdn_cpu_product_blas(const gdn_cpu_product *product)
{
    const bool alone = openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
    if (alone) {
        pthread_mutex_lock(&serial_mutex);
    }
#ifdef _OPENMP
    /* An OpenMP build of the library splits a product over as many threads as OpenMP would give the calling task. */
    const bool ask = openblas_get_parallel() == OPENBLAS_OPENMP;
    const int threads = ask ? omp_get_max_threads() : 1;
    if (threads != 1) {
        omp_set_num_threads(1);
    }
#endif
    cblas_sgemm(CblasRowMajor, product->transpose_a ? CblasTrans : CblasNoTrans,
                product->transpose_b ? CblasTrans : CblasNoTrans, to_blas(product->m), to_blas(product->n),
                to_blas(product->k), product->alpha, product->a, to_blas(product->lda), product->b,
                to_blas(product->ldb), product->beta, product->c, to_blas(product->ldc));
#ifdef _OPENMP
    if (threads != 1) {
        omp_set_num_threads(threads);
    }
#endif
    if (alone) {
        pthread_mutex_unlock(&serial_mutex);
    }
}

#else

/* A translation unit is never empty. */
typedef int gdn_cpu_no_blas;

#endif
