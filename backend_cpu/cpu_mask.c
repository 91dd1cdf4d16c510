/* L and P from the Gram matrices: the decay between two tokens of a chunk, put on entrywise. */
#include "cpu_exp.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"

typedef struct mask_task {
    const gdn_problem *problem;
    int32_t chunk_size;
    gdn_mask_kind kind;
    const float *gram;
    const float *G;
    const float *beta;
    float *dst;
} mask_task;

static void mask_range(const void *data, int64_t begin, int64_t end)
{
    const mask_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->chunk_size;
    for (int64_t n = begin; n < end; n++) {
        const int64_t slot = n / problem->num_v_heads;
        const int32_t hk = gdn_cpu_key_head(problem, (int32_t)(n % problem->num_v_heads));
        const float *const gram = task->gram + (slot * problem->num_k_heads + hk) * C * C;
        const float *const high = task->G + n * 2 * C;
        const float *const low = high + C;
        float *const dst = task->dst + n * C * C;
        for (int32_t i = 0; i < C; i++) {
            const bool strict = task->kind == GDN_MASK_L;
            const float factor = strict ? task->beta[n * C + i] : problem->scale;
            const int32_t width = strict ? i : i + 1;
            const float *const from = gram + (int64_t)i * C;
            float *const row = dst + (int64_t)i * C;
            const float high_i = high[i];
            const float low_i = low[i];
            for (int32_t j = 0; j < width; j++) {
                row[j] = factor * gdn_cpu_exp((high_i - high[j]) + (low_i - low[j])) * from[j];
            }
            memset(row + width, 0, (size_t)(C - width) * sizeof(float));
        }
    }
}

gdn_status gdn_cpu_mask(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, gdn_mask_kind kind,
                        const float *gram, const float *G, const float *beta, float *dst)
{
    const mask_task task = {run->problem, wave->chunk_size, kind, gram, G, beta, dst};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_slots * run->problem->num_v_heads,
                         wave->chunk_size * wave->chunk_size / 2, mask_range, &task);
    return GDN_OK;
}
