/* gdn_gate: log decay and beta of every (token, head). */
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "numeric.h"

typedef struct gate_task {
    const gdn_tensor *a;
    const gdn_tensor *b;
    const float *A_log;
    const float *dt_bias;
    float beta_scale;
    const gdn_tensor *log_decay;
    const gdn_tensor *beta;
} gate_task;

static int64_t offset(const gdn_tensor *tensor, int64_t token, int64_t head)
{
    return token * tensor->stride[0] + head * tensor->stride[1];
}

static void gate_range(const void *data, int64_t begin, int64_t end)
{
    const gate_task *const task = data;
    for (int64_t token = begin; token < end; token++) {
        for (int64_t head = 0; task->a && head < task->a->size[1]; head++) {
            const float a = gdn_load_element(task->a->data, task->a->dtype, offset(task->a, token, head));
            ((float *)task->log_decay->data)[offset(task->log_decay, token, head)] =
                gdn_log_decay_raw(a, task->A_log[head], task->dt_bias ? task->dt_bias[head] : 0.0f);
        }
        for (int64_t head = 0; task->b && head < task->b->size[1]; head++) {
            const float b = gdn_load_element(task->b->data, task->b->dtype, offset(task->b, token, head));
            ((float *)task->beta->data)[offset(task->beta, token, head)] = task->beta_scale * gdn_sigmoid(b);
        }
    }
}

gdn_status gdn_cpu_gate(const gdn_device *device, const gdn_tensor *a, const gdn_tensor *b, const float *A_log,
                        const float *dt_bias, float beta_scale, const gdn_tensor *log_decay, const gdn_tensor *beta,
                        void *stream)
{
    (void)stream;
    const bool want_decay = a && log_decay;
    const bool want_beta = b && beta;
    const gate_task task = {
        .a = want_decay ? a : NULL,
        .b = want_beta ? b : NULL,
        .A_log = A_log,
        .dt_bias = dt_bias,
        .beta_scale = beta_scale,
        .log_decay = log_decay,
        .beta = beta,
    };
    const int64_t tokens = want_decay ? a->size[0] : want_beta ? b->size[0] : 0;
    const int64_t heads = want_decay ? a->size[1] : want_beta ? b->size[1] : 0;
    gdn_cpu_parallel_for(device, tokens, 100 * heads, gate_range, &task);
    return GDN_OK;
}
