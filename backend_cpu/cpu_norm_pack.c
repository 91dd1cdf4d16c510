/* Rows of q, k or v gathered as float32, q and k normalised. */
#include "cpu_l2norm.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"

typedef struct pack_task {
    const gdn_problem *problem;
    const gdn_wave *wave;
    const gdn_layout *layout;
    const void *src;
    int32_t heads;
    int32_t dim;
    gdn_qk_norm norm;
    float *dst;
} pack_task;

static void pack_range(const void *data, int64_t begin, int64_t end)
{
    const pack_task *const task = data;
    const int32_t C = task->wave->chunk_size;
    const int32_t dim = task->dim;
    for (int64_t i = begin; i < end; i++) {
        const gdn_chunk *const chunk = &task->wave->chunks[i / task->heads];
        const int64_t at =
            gdn_cpu_chunk_offset(task->problem, task->layout, C, chunk) + (i % task->heads) * task->layout->head_stride;
        float *const dst = task->dst + i * C * dim;
        for (int32_t t = 0; t < chunk->length; t++) {
            float *const row = dst + (int64_t)t * dim;
            gdn_cpu_load_row(task->src, task->layout->dtype, at + t * task->layout->token_stride, dim, row);
            if (task->norm != GDN_QK_NORM_NONE) {
                const float factor = gdn_cpu_l2norm_factor(task->norm, task->problem->qk_norm_eps, row, dim);
                for (int32_t d = 0; d < dim; d++) {
                    row[d] *= factor;
                }
            }
        }
        memset(dst + (int64_t)chunk->length * dim, 0, (size_t)(C - chunk->length) * (size_t)dim * sizeof(float));
    }
}

gdn_status gdn_cpu_pack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                        gdn_pack_source source, float *dst)
{
    const gdn_problem *const problem = run->problem;
    pack_task task = {.problem = problem, .wave = wave, .dst = dst};
    switch (source) {
    case GDN_PACK_Q:
    case GDN_PACK_K:
        task.layout = source == GDN_PACK_Q ? &problem->q : &problem->k;
        task.src = source == GDN_PACK_Q ? run->args->q : run->args->k;
        task.heads = problem->num_k_heads;
        task.dim = problem->head_k_dim;
        task.norm = problem->qk_norm;
        break;
    case GDN_PACK_V:
        task.layout = &problem->v;
        task.src = run->args->v;
        task.heads = problem->num_v_heads;
        task.dim = problem->head_v_dim;
        task.norm = GDN_QK_NORM_NONE;
        break;
    }
    gdn_cpu_parallel_for(device, (int64_t)wave->num_slots * task.heads, wave->chunk_size * task.dim / 4, pack_range,
                         &task);
    return GDN_OK;
}
