/* The in-chunk sums of the log decay, and beta, from whatever form the caller gives them in. */
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"

typedef struct gates_task {
    const gdn_problem *problem;
    const gdn_prefill_args *args;
    const gdn_wave *wave;
    float *G;
    float *beta;
} gates_task;

static float log_decay(const gdn_problem *problem, const gdn_prefill_args *args, int32_t hv, float gate)
{
    switch (problem->gate_form) {
    case GDN_GATE_DECAY:
        return logf(gate);
    case GDN_GATE_RAW:
        return gdn_log_decay_raw(gate, args->A_log[hv], args->dt_bias ? args->dt_bias[hv] : 0.0f);
    case GDN_GATE_LOG_DECAY:
        break;
    }
    return gate;
}

static void gates_range(const void *data, int64_t begin, int64_t end)
{
    const gates_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->wave->chunk_size;
    for (int64_t i = begin; i < end; i++) {
        const gdn_chunk *const chunk = &task->wave->chunks[i / problem->num_v_heads];
        const int32_t hv = (int32_t)(i % problem->num_v_heads);
        const int64_t gate_at =
            gdn_cpu_chunk_offset(problem, &problem->gate, C, chunk) + hv * problem->gate.head_stride;
        const int64_t beta_at =
            gdn_cpu_chunk_offset(problem, &problem->beta, C, chunk) + hv * problem->beta.head_stride;
        float *const high = task->G + i * 2 * C;
        float *const low = high + C;
        float *const beta = task->beta + i * C;
        /* The sum is double: its float32 rounding alone would show in exp(G_i - G_j) after a few resets. */
        double sum = 0.0;
        for (int32_t t = 0; t < chunk->length; t++) {
            const float gate =
                gdn_load_element(task->args->gate, problem->gate.dtype, gate_at + t * problem->gate.token_stride);
            const float b =
                gdn_load_element(task->args->beta, problem->beta.dtype, beta_at + t * problem->beta.token_stride);
            sum += (double)gdn_clamp_log_decay(log_decay(problem, task->args, hv, gate));
            high[t] = (float)sum;
            low[t] = (float)(sum - (double)high[t]);
            beta[t] = problem->beta_form == GDN_BETA_LOGIT ? problem->beta_scale * gdn_sigmoid(b) : b;
        }
        for (int32_t t = chunk->length; t < C; t++) {
            high[t] = (float)sum;
            low[t] = (float)(sum - (double)high[t]);
            beta[t] = 0.0f;
        }
    }
}

gdn_status gdn_cpu_gates(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *G,
                         float *beta)
{
    const gates_task task = {run->problem, run->args, wave, G, beta};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_slots * run->problem->num_v_heads, 50 * wave->chunk_size,
                         gates_range, &task);
    return GDN_OK;
}
