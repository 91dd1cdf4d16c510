/* Batched products: the batch's entries over the threads, each entry cut into blocks of columns. */
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_product.h"

gdn_cpu_product_fn gdn_cpu_product_of(const gdn_device *device)
{
#ifdef GDN_HAVE_OPENBLAS
    if (gdn_cpu_device_of(device)->use_blas) {
        return gdn_cpu_product_blas;
    }
#endif
    (void)device;
    return gdn_cpu_product_plain;
}

typedef struct matmul_task {
    const gdn_matmul *matmul;
    gdn_cpu_product_fn product;
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
        const int64_t column = i % task->blocks * GDN_CPU_PRODUCT_COLUMNS;
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
            .n = (int32_t)(left < GDN_CPU_PRODUCT_COLUMNS ? left : GDN_CPU_PRODUCT_COLUMNS),
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
    const matmul_task task = {
        .matmul = matmul,
        .product = gdn_cpu_product_of(device),
        .blocks = (matmul->n - 1) / GDN_CPU_PRODUCT_COLUMNS + 1,
    };
    if (matmul->a.ld > INT32_MAX || matmul->b.ld > INT32_MAX || matmul->c.ld > INT32_MAX) {
        return gdn_fail(GDN_ERROR_INTERNAL, "matmul: a row stride over 2147483647 elements");
    }
    const int64_t entries = matmul->batch[0] * matmul->batch[1] * matmul->batch[2];
    gdn_cpu_parallel_for(device, entries * task.blocks, (int64_t)matmul->m * matmul->k * GDN_CPU_PRODUCT_COLUMNS / 64,
                         matmul_range, &task);
    return GDN_OK;
}
