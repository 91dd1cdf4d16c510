#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"

typedef struct unpack_task {
    const gdn_problem *problem;
    const gdn_wave *wave;
    const float *O;
    void *o;
} unpack_task;

static void unpack_range(const void *data, int64_t begin, int64_t end)
{
    const unpack_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->wave->chunk_size;
    const int32_t V = problem->head_v_dim;
    for (int64_t i = begin; i < end; i++) {
        const gdn_chunk *const chunk = &task->wave->chunks[i / problem->num_v_heads];
        const int64_t at =
            gdn_cpu_chunk_offset(problem, &problem->o, C, chunk) + (i % problem->num_v_heads) * problem->o.head_stride;
        for (int32_t t = 0; t < chunk->length; t++) {
            gdn_cpu_store_row(task->o, problem->o.dtype, at + t * problem->o.token_stride, V,
                              task->O + (i * C + t) * V);
        }
    }
}

gdn_status gdn_cpu_unpack(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *O)
{
    const unpack_task task = {run->problem, wave, O, run->args->o};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_slots * run->problem->num_v_heads,
                         wave->chunk_size * run->problem->head_v_dim / 4, unpack_range, &task);
    return GDN_OK;
}
