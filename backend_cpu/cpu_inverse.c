/* (I + L)^-1 of strictly lower matrices, in place.
 *
 * Row i of the inverse is e_i - sum_{j < i} L_ij (row j): forward substitution, which stays bounded where keys repeat.
 * (A Neumann series does not: the powers of L grow like binomials before they cancel.) A row is made in blocks of
 * columns small enough to stay in registers while the earlier rows pass by. */
#include "cpu_ops.h"
#include "cpu_parallel.h"

#include <string.h>

#define COLUMN_BLOCK 16
/* The largest chunk there is (generic_scratch.c). */
#define MAX_ROWS 256

typedef struct inverse_task {
    float *A;
    int32_t chunk_size;
} inverse_task;

/* Columns first..first+15 of row i. Earlier rows are zero there above `first`. */
static void row_block(const float *A, const float *L_row, int32_t C, int32_t i, int32_t first, float *dst)
{
    float sum[COLUMN_BLOCK] = {0};
    for (int32_t j = first; j < i; j++) {
        const float factor = L_row[j];
        const float *const row = A + (int64_t)j * C + first;
        for (int32_t c = 0; c < COLUMN_BLOCK; c++) {
            sum[c] -= factor * row[c];
        }
    }
    memcpy(dst, sum, sizeof(sum));
}

/* The same for the last columns, fewer than a block. */
static void row_rest(const float *A, const float *L_row, int32_t C, int32_t i, int32_t first, float *dst)
{
    for (int32_t c = first; c < i; c++) {
        float sum = 0.0f;
        for (int32_t j = c; j < i; j++) {
            sum -= L_row[j] * A[(int64_t)j * C + c];
        }
        dst[c - first] = sum;
    }
}

static void invert(float *A, int32_t C)
{
    float L_row[MAX_ROWS];
    for (int32_t i = 0; i < C; i++) {
        float *const row = A + (int64_t)i * C;
        memcpy(L_row, row, (size_t)i * sizeof(float));
        int32_t first = 0;
        for (; first < i && first + COLUMN_BLOCK <= C; first += COLUMN_BLOCK) {
            row_block(A, L_row, C, i, first, row + first);
        }
        if (first < i) {
            row_rest(A, L_row, C, i, first, row + first);
        }
        row[i] = 1.0f;
        memset(row + i + 1, 0, (size_t)(C - i - 1) * sizeof(float));
    }
}

static void inverse_range(const void *data, int64_t begin, int64_t end)
{
    const inverse_task *const task = data;
    const int32_t C = task->chunk_size;
    for (int64_t i = begin; i < end; i++) {
        invert(task->A + i * C * C, C);
    }
}

gdn_status gdn_cpu_inverse(const gdn_device *device, const gdn_prefill_run *run, float *A, int64_t count,
                           int32_t chunk_size)
{
    (void)run;
    if (chunk_size > MAX_ROWS) {
        return gdn_fail(GDN_ERROR_INTERNAL, "inverse: chunk_size %d, at most %d is allowed", chunk_size, MAX_ROWS);
    }
    const inverse_task task = {A, chunk_size};
    gdn_cpu_parallel_for(device, count, (int64_t)chunk_size * chunk_size * chunk_size / 64, inverse_range, &task);
    return GDN_OK;
}
