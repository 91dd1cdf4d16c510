/* Batched products: the batch's entries over the threads, each entry cut into blocks of columns. */
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_product.h"

/* Every product is cut so, whatever the thread count, so that its bits do not depend on it. Few heads then still feed
 * several threads, and a BLAS library's kernels for small matrices apply. */
#define COLUMNS 64

typedef struct matmul_task {
    const gdn_matmul *matmul;
    void (*product)(const gdn_cpu_product *product);
    int64_t blocks; /* of columns */
} matmul_task;

/* The outer index of an operand at outer batch b0; negative: the entry is left out. */
static int64_t outer(const gdn_batch_matrix *matrix, int64_t b0)
{
    return matrix->outer_index ? matrix->outer_index[b0] : b0;
}

static float *entry(const gdn_batch_matrix *matrix, int64_t b0, int64_t b1, int64_t b2)
{
    return matrix->data + outer(matrix, b0) * matrix->stride[0] + b1 * matrix->stride[1] + b2 * matrix->stride[2];
}

static void matmul_range(const void *data, int64_t begin, int64_t end)
{
    const matmul_task *const task = data;
    const gdn_matmul *const matmul = task->matmul;
    for (int64_t i = begin; i < end; i++) {
        const int64_t column = i % task->blocks * COLUMNS;
        const int64_t batch = i / task->blocks;
        const int64_t b2 = batch % matmul->batch[2];
        const int64_t b1 = batch / matmul->batch[2] % matmul->batch[1];
        const int64_t b0 = batch / matmul->batch[2] / matmul->batch[1];
        if (outer(&matmul->a, b0) < 0 || outer(&matmul->b, b0) < 0 || outer(&matmul->c, b0) < 0) {
            continue;
        }
        const int64_t left = matmul->n - column;
        const gdn_cpu_product product = {
            .m = matmul->m,
            .n = (int32_t)(left < COLUMNS ? left : COLUMNS),
            .k = matmul->k,
            .transpose_a = matmul->transpose_a,
            .transpose_b = matmul->transpose_b,
            .alpha = matmul->alpha,
            .beta = matmul->beta,
            .a = entry(&matmul->a, b0, b1, b2),
            .b = entry(&matmul->b, b0, b1, b2) + (matmul->transpose_b ? column * matmul->b.ld : column),
            .c = entry(&matmul->c, b0, b1, b2) + column,
            .lda = matmul->a.ld,
            .ldb = matmul->b.ld,
            .ldc = matmul->c.ld,
        };
        task->product(&product);
    }
}

gdn_status gdn_cpu_matmul(const gdn_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul)
{
    (void)run;
    matmul_task task = {
        .matmul = matmul,
        .product = gdn_cpu_product_plain,
        .blocks = (matmul->n - 1) / COLUMNS + 1,
    };
#ifdef GDN_HAVE_OPENBLAS
    if (gdn_cpu_device_of(device)->use_blas) {
        task.product = gdn_cpu_product_blas;
    }
#endif
    if (matmul->a.ld > INT32_MAX || matmul->b.ld > INT32_MAX || matmul->c.ld > INT32_MAX) {
        return gdn_fail(GDN_ERROR_INTERNAL, "matmul: a row stride over 2147483647 elements");
    }
    const int64_t entries = matmul->batch[0] * matmul->batch[1] * matmul->batch[2];
    gdn_cpu_parallel_for(device, entries * task.blocks, (int64_t)matmul->m * matmul->k * COLUMNS / 64, matmul_range,
                         &task);
    return GDN_OK;
}
