/* The lanes' states: from the caller's storage, across a chunk, back to it. */
#include "cpu_decay.h"
#include "cpu_exp.h"
#include "cpu_ops.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"
#include "cpu_state_io.h"

typedef struct state_task {
    const gdn_problem *problem;
    const gdn_prefill_args *args;
    const gdn_wave *wave;
    const float *S;
    const float *carry;
    float *S_out;
    float *carry_out;
} state_task;

static int64_t state_size(const gdn_problem *problem)
{
    return (int64_t)problem->head_k_dim * problem->head_v_dim;
}

/* The initial state of a sequence: its slot and where its elements are, NULL for zeros. */
static const void *initial_state(const gdn_problem *problem, const gdn_prefill_args *args, int32_t seq, int64_t *slot)
{
    *slot = problem->state_form == GDN_STATE_POOL ? gdn_cpu_slot(problem, args->read_slots, seq) : seq;
    return !args->has_initial_state || args->has_initial_state[seq] ? args->state : NULL;
}

static void load_range(const void *data, int64_t begin, int64_t end)
{
    const state_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const gdn_wave *const wave = task->wave;
    const int64_t size = state_size(problem);
    for (int64_t i = begin; i < end; i++) {
        const int32_t hv = (int32_t)(i % problem->num_v_heads);
        const gdn_chunk *const chunk = &wave->chunks[wave->lane_slot[i / problem->num_v_heads]];
        float *const S = task->S_out + i * size;
        int64_t slot;
        const void *const state = initial_state(problem, task->args, chunk->seq, &slot);
        if (chunk->index > 0) {
            memcpy(S, task->carry + hv * size, (size_t)size * sizeof(float));
        } else if (!state) {
            memset(S, 0, (size_t)size * sizeof(float));
        } else {
            gdn_cpu_state_load(state, &problem->state, gdn_cpu_state_offset(&problem->state, slot, hv),
                               problem->head_k_dim, problem->head_v_dim, S);
        }
    }
}

gdn_status gdn_cpu_load_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *S,
                               const float *carry)
{
    const state_task task = {.problem = run->problem, .args = run->args, .wave = wave, .S_out = S, .carry = carry};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_lanes * run->problem->num_v_heads, state_size(run->problem),
                         load_range, &task);
    return GDN_OK;
}

static const gdn_chunk *last_chunk(const gdn_wave *wave, int64_t lane)
{
    int32_t step = wave->num_steps - 1;
    while (wave->lane_slot[(int64_t)step * wave->num_lanes + lane] < 0) {
        step--;
    }
    return &wave->chunks[wave->lane_slot[(int64_t)step * wave->num_lanes + lane]];
}

static void store_range(const void *data, int64_t begin, int64_t end)
{
    const state_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const gdn_prefill_args *const args = task->args;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    const int64_t size = state_size(problem);
    const gdn_state_layout *const layout = pool ? &problem->state : &problem->final_state;
    void *const dst = pool ? (args->write_slots ? args->state : NULL) : args->final_state;
    for (int64_t i = begin; i < end; i++) {
        const int32_t hv = (int32_t)(i % problem->num_v_heads);
        const gdn_chunk *const chunk = last_chunk(task->wave, i / problem->num_v_heads);
        const float *const S = task->S + i * size;
        if (!chunk->last) {
            memcpy(task->carry_out + hv * size, S, (size_t)size * sizeof(float));
            continue;
        }
        if (!dst) {
            continue;
        }
        const int64_t write_slot = pool ? gdn_cpu_slot(problem, args->write_slots, chunk->seq) : chunk->seq;
        const int64_t at = gdn_cpu_state_offset(layout, write_slot, hv);
        if (chunk->length > 0) {
            gdn_cpu_state_store(dst, layout, at, K, V, S);
            continue;
        }
        /* No tokens: the state passes through untouched by arithmetic. */
        int64_t read_slot;
        const void *const state = initial_state(problem, args, chunk->seq, &read_slot);
        gdn_cpu_state_copy(dst, layout, at, state, &problem->state,
                           gdn_cpu_state_offset(&problem->state, read_slot, hv), K, V);
    }
}

gdn_status gdn_cpu_store_states(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                const float *S, float *carry)
{
    const state_task task = {.problem = run->problem, .args = run->args, .wave = wave, .S = S, .carry_out = carry};
    gdn_cpu_parallel_for(device, (int64_t)wave->num_lanes * run->problem->num_v_heads, state_size(run->problem),
                         store_range, &task);
    return GDN_OK;
}

void gdn_cpu_decay_chunk(const gdn_cpu_decay *decay)
{
    const int32_t K = decay->K;
    const int32_t rows = decay->end > 0 ? decay->end : 0;
    const float *const high = decay->G;
    const float *const low = high + decay->chunk_size;
    for (int32_t t = 0; t < rows; t++) {
        const float factor = gdn_cpu_exp((high[rows - 1] - high[t]) + (low[rows - 1] - low[t]));
        const float *const from = decay->k + (int64_t)t * K;
        float *const to = decay->tail + (int64_t)t * K;
        for (int32_t d = 0; d < K; d++) {
            to[d] = factor * from[d];
        }
    }
    memset(decay->tail + (int64_t)rows * K, 0, (size_t)(decay->chunk_size - rows) * (size_t)K * sizeof(float));
    if (rows > 0) {
        const float factor = gdn_cpu_exp(high[rows - 1] + low[rows - 1]);
        for (int64_t n = 0; n < (int64_t)K * decay->V; n++) {
            decay->dst[n] = factor * decay->src[n];
        }
    }
}

typedef struct decay_task {
    const gdn_problem *problem;
    const gdn_wave *wave;
    const int32_t *slots; /* of the lanes at this step */
    const int32_t *ends; /* NULL: the chunks' lengths */
    const float *G;
    const float *k;
    const float *src;
    float *tail;
    float *dst;
} decay_task;

static void decay_range(const void *data, int64_t begin, int64_t end)
{
    const decay_task *const task = data;
    const gdn_problem *const problem = task->problem;
    const int32_t C = task->wave->chunk_size;
    const int32_t K = problem->head_k_dim;
    const int64_t size = state_size(problem);
    for (int64_t i = begin; i < end; i++) {
        const int64_t lane = i / problem->num_v_heads;
        const int32_t hv = (int32_t)(i % problem->num_v_heads);
        const int32_t slot = task->slots[lane];
        if (slot < 0) {
            continue;
        }
        const int64_t key_head = (int64_t)slot * problem->num_k_heads + gdn_cpu_key_head(problem, hv);
        gdn_cpu_decay_chunk(&(gdn_cpu_decay){
            .chunk_size = C,
            .end = task->ends ? task->ends[lane] : task->wave->chunks[slot].length,
            .K = K,
            .V = problem->head_v_dim,
            .G = task->G + ((int64_t)slot * problem->num_v_heads + hv) * 2 * C,
            .k = task->k + key_head * C * K,
            .src = task->src + i * size,
            .tail = task->tail + i * C * K,
            .dst = task->dst + i * size,
        });
    }
}

gdn_status gdn_cpu_decay_state(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, int32_t step,
                               const int32_t *ends, const float *G, const float *k, const float *src, float *tail,
                               float *dst)
{
    const decay_task task = {
        .problem = run->problem,
        .wave = wave,
        .slots = wave->lane_slot + (int64_t)step * wave->num_lanes,
        .ends = ends,
        .G = G,
        .k = k,
        .src = src,
        .tail = tail,
        .dst = dst,
    };
    gdn_cpu_parallel_for(device, (int64_t)wave->num_lanes * run->problem->num_v_heads,
                         (wave->chunk_size * run->problem->head_k_dim + state_size(run->problem)) / 4, decay_range,
                         &task);
    return GDN_OK;
}
