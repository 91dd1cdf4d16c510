/* All steps of a wave, one head of a lane after the other: its state stays in cache from chunk to chunk, and the threads
 * meet once a wave. The products and decays are those of matmul and decay_state, block for block, so the bits are, too. */
#include "cpu_decay.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_product.h"
#include "cpu_rows.h"

typedef struct walk_task {
    const gdn_problem *problem;
    const gdn_wave *wave;
    gdn_cpu_product_fn product;
    const float *G;
    const float *q;
    const float *k;
    float *W;
    float *U;
    float *rows;
    float *S;
} walk_task;

/* Dense operands of `width` columns, in the blocks of gdn_cpu_matmul. */
static void multiply(const walk_task *task, gdn_cpu_product product)
{
    const int32_t width = product.n;
    for (int32_t column = 0; column < width; column += GDN_CPU_PRODUCT_COLUMNS) {
        const int32_t left = width - column;
        gdn_cpu_product block = product;
        block.n = left < GDN_CPU_PRODUCT_COLUMNS ? left : GDN_CPU_PRODUCT_COLUMNS;
        block.b += column;
        block.c += column;
        task->product(&block);
    }
}

static void walk_chunk(const walk_task *task, int32_t slot, int32_t hv, float *S)
{
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->wave->chunk_size;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    const int64_t head = (int64_t)slot * problem->num_v_heads + hv;
    const int64_t key_head = (int64_t)slot * problem->num_k_heads + gdn_cpu_key_head(problem, hv);
    float *const W = task->W + head * C * K;
    float *const U = task->U + head * C * V;

    /* V' = U - W S */
    gdn_cpu_product product = {
        .m = C, .n = V, .k = K, .alpha = -1.0f, .beta = 1.0f, .a = W, .b = S, .c = U, .lda = K, .ldb = V, .ldc = V};
    multiply(task, product);

    /* q S */
    product.alpha = 1.0f;
    product.beta = 0.0f;
    product.a = task->q + key_head * C * K;
    product.c = task->rows + head * C * V;
    multiply(task, product);

    /* S <- exp(G_end) S + tail^T V'. W has been read for the last time, and becomes the tail. */
    gdn_cpu_decay_chunk(&(gdn_cpu_decay){
        .chunk_size = C,
        .end = task->wave->chunks[slot].length,
        .K = K,
        .V = V,
        .G = task->G + head * 2 * C,
        .k = task->k + key_head * C * K,
        .src = S,
        .tail = W,
        .dst = S,
    });
    multiply(task, (gdn_cpu_product){
                       .m = K,
                       .n = V,
                       .k = C,
                       .transpose_a = true,
                       .alpha = 1.0f,
                       .beta = 1.0f,
                       .a = W,
                       .b = U,
                       .c = S,
                       .lda = K,
                       .ldb = V,
                       .ldc = V,
                   });
}

static void walk_range(const void *data, int64_t begin, int64_t end)
{
    const walk_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const gdn_wave *const wave = task->wave;
    for (int64_t i = begin; i < end; i++) {
        const int64_t lane = i / problem->num_v_heads;
        float *const S = task->S + i * problem->head_k_dim * problem->head_v_dim;
        for (int32_t step = 0; step < wave->num_steps; step++) {
            const int32_t slot = wave->lane_slot[(int64_t)step * wave->num_lanes + lane];
            if (slot < 0) {
                break;
            }
            walk_chunk(task, slot, (int32_t)(i % problem->num_v_heads), S);
        }
    }
}

gdn_status gdn_cpu_walk(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *G,
                        const float *q, const float *k, float *W, float *U, float *rows, float *S, bool *taken)
{
    const gdn_problem *const problem = run->problem;
    const int64_t items = (int64_t)wave->num_lanes * problem->num_v_heads;
    /* With fewer heads than threads the single products, cut by columns, feed more of them. */
    *taken = items >= gdn_cpu_num_threads(device);
    if (!*taken) {
        return GDN_OK;
    }
    const walk_task task = {problem, wave, gdn_cpu_product_of(device), G, q, k, W, U, rows, S};
    const int64_t products = (int64_t)wave->chunk_size * problem->head_k_dim * problem->head_v_dim;
    gdn_cpu_parallel_for(device, items, wave->num_steps * (products / 16), walk_range, &task);
    return GDN_OK;
}
