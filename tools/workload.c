#include "workload.h"

#include <stdlib.h>
#include <string.h>

static float *alloc_floats(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(float));
}

bool workload_alloc(workload *load, const gdn_problem *problem, int64_t num_seqs, int64_t total_tokens)
{
    *load = (workload){.problem = *problem, .num_seqs = num_seqs, .total_tokens = total_tokens, .wants_final = true};
    const int64_t hk = problem->num_k_heads, hv = problem->num_v_heads;
    load->cu = calloc((size_t)num_seqs + 1, sizeof(int64_t));
    load->q = alloc_floats(total_tokens * hk * problem->head_k_dim);
    load->k = alloc_floats(total_tokens * hk * problem->head_k_dim);
    load->v = alloc_floats(total_tokens * hv * problem->head_v_dim);
    load->gate = alloc_floats(total_tokens * hv);
    load->beta = alloc_floats(total_tokens * hv);
    bool good = load->cu != NULL && load->q != NULL && load->k != NULL && load->v != NULL && load->gate != NULL &&
                load->beta != NULL;
    if (problem->gate_form == GDN_GATE_RAW) {
        load->A_log = alloc_floats(hv);
        load->dt_bias = alloc_floats(hv);
        good = good && load->A_log != NULL && load->dt_bias != NULL;
    }
    if (!good) {
        workload_free(load);
    }
    return good;
}

void workload_free(workload *load)
{
    void *const arrays[] = {load->cu,
                            load->q,
                            load->k,
                            load->v,
                            load->gate,
                            load->beta,
                            load->A_log,
                            load->dt_bias,
                            load->initial,
                            load->has_initial,
                            load->read_slots,
                            load->write_slots,
                            load->token_slots,
                            load->num_tokens,
                            load->checkpoint_positions,
                            load->checkpoint_offsets};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        free(arrays[i]);
    }
    memset(load, 0, sizeof(*load));
}

int64_t workload_length(const workload *load, int64_t seq)
{
    return load->num_tokens != NULL ? load->num_tokens[seq] : load->cu[seq + 1] - load->cu[seq];
}

bool workload_skipped(const workload *load, int64_t seq)
{
    return load->problem.state_form == GDN_STATE_POOL &&
           (load->read_slots[seq] < 0 || (load->write_slots != NULL && load->write_slots[seq] < 0));
}

bool workload_has_state(const workload *load, int64_t seq)
{
    return load->initial != NULL && (load->has_initial == NULL || load->has_initial[seq] != 0);
}

int64_t workload_first_checkpoint(const workload *load, int64_t seq)
{
    if (load->problem.checkpoint_form == GDN_CHECKPOINT_AT) {
        return load->checkpoint_offsets[seq];
    }
    int64_t first = 0;
    for (int64_t i = 0; i < seq; i++) {
        first += workload_length(load, i) / load->problem.checkpoint_interval;
    }
    return first;
}

int64_t workload_state_size(const workload *load)
{
    return (int64_t)load->problem.num_v_heads * load->problem.head_v_dim * load->problem.head_k_dim;
}

void workload_round(float *values, int64_t count, gdn_dtype dtype)
{
    enum { BLOCK = 1024 };
    uint16_t narrow[BLOCK];
    if (dtype != GDN_DTYPE_BF16 && dtype != GDN_DTYPE_F16) {
        return;
    }
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t n = count - done < BLOCK ? count - done : BLOCK;
        (void)gdn_convert(narrow, dtype, values + done, GDN_DTYPE_F32, n);
        (void)gdn_convert(values + done, GDN_DTYPE_F32, narrow, dtype, n);
    }
}
