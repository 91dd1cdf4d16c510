#include "cpu_exp.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"

typedef struct scale_task {
    const gdn_problem *problem;
    int32_t chunk_size;
    gdn_row_factor factor;
    const float *G;
    const float *beta;
    const float *src;
    int32_t src_heads;
    int32_t width;
    float *dst;
} scale_task;

static void scale_range(const void *data, int64_t begin, int64_t end)
{
    const scale_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->chunk_size;
    const int32_t width = task->width;
    for (int64_t n = begin; n < end; n++) {
        const int64_t slot = n / problem->num_v_heads;
        const int32_t hv = (int32_t)(n % problem->num_v_heads);
        const int32_t head = task->src_heads == problem->num_v_heads ? hv : gdn_cpu_key_head(problem, hv);
        const float *const src = task->src + (slot * task->src_heads + head) * C * width;
        const float *const high = task->G + n * 2 * C;
        float *const dst = task->dst + n * C * width;
        for (int32_t i = 0; i < C; i++) {
            float factor = task->factor == GDN_ROW_SCALE_DECAY ? problem->scale : task->beta[n * C + i];
            if (task->factor != GDN_ROW_BETA) {
                factor *= gdn_cpu_exp(high[i] + high[C + i]);
            }
            const float *const from = src + (int64_t)i * width;
            float *const to = dst + (int64_t)i * width;
            for (int32_t d = 0; d < width; d++) {
                to[d] = factor * from[d];
            }
        }
    }
}

gdn_status gdn_cpu_scale_rows(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                              gdn_row_factor factor, const float *G, const float *beta, const float *src,
                              int32_t src_heads, int32_t width, float *dst)
{
    const scale_task task = {run->problem, wave->chunk_size, factor, G, beta, src, src_heads, width, dst};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_slots * run->problem->num_v_heads, wave->chunk_size * width / 4,
                         scale_range, &task);
    return GDN_OK;
}
