#include "layout_image.h"
#include "workload_run.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of a buffer, brought to the host; NULL where that failed (*status says why). */
static unsigned char *download(const workload_run *run, run_buffer_id id, int64_t copy, gdn_status *status)
{
    const run_buffer *const buffer = &run->buffers[id];
    unsigned char *const image = malloc(buffer->bytes + 1);
    if (image == NULL) {
        *status = GDN_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    *status = GDN_OK;
    if (buffer->bytes > 0) {
        const unsigned char *const from = (const unsigned char *)buffer->data + (size_t)copy * buffer->pitch;
        *status = gdn_memory_copy(run->context, image, from, buffer->bytes, GDN_COPY_FROM_BACKEND, NULL);
    }
    if (*status != GDN_OK) {
        free(image);
        return NULL;
    }
    return image;
}

static float *alloc_values(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(float));
}

static bool all_poison(const unsigned char *image, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (image[i] != LAYOUT_POISON) {
            return false;
        }
    }
    return true;
}

static gdn_status read_o(const workload_run *run, int64_t copy, run_outputs *outputs)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    const int32_t heads = p->num_v_heads, dim = p->head_v_dim;
    gdn_status status = GDN_OK;
    unsigned char *const image = download(run, RUN_O, copy, &status);
    outputs->o = alloc_values(load->total_tokens * heads * dim);
    if (image == NULL || outputs->o == NULL) {
        free(image);
        return status != GDN_OK ? status : GDN_ERROR_OUT_OF_MEMORY;
    }
    for (int64_t n = 0; n < load->num_seqs; n++) {
        const int64_t end = workload_skipped(load, n) ? load->cu[n] : load->cu[n] + workload_length(load, n);
        for (int64_t t = load->cu[n]; t < end; t++) {
            layout_token(load, &p->o, heads, dim, image, n, t, outputs->o + t * heads * dim, LAYOUT_DECODE);
            layout_token(load, &p->o, heads, dim, image, n, t, NULL, LAYOUT_ERASE);
        }
    }
    if (!all_poison(image, run->buffers[RUN_O].bytes)) {
        outputs->stray = "o";
    }
    free(image);
    return GDN_OK;
}

/* Final states of a DENSE problem. */
static gdn_status read_dense(const workload_run *run, int64_t copy, run_outputs *outputs)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    if (run->buffers[RUN_FINAL].data == NULL) {
        return GDN_OK;
    }
    gdn_status status = GDN_OK;
    unsigned char *const image = download(run, RUN_FINAL, copy, &status);
    outputs->final = alloc_values(load->num_seqs * workload_state_size(load));
    if (image == NULL || outputs->final == NULL) {
        free(image);
        return status != GDN_OK ? status : GDN_ERROR_OUT_OF_MEMORY;
    }
    for (int64_t n = 0; n < load->num_seqs; n++) {
        float *const values = outputs->final + n * workload_state_size(load);
        layout_state(p, &p->final_state, image, n, values, LAYOUT_DECODE, NULL);
        layout_state(p, &p->final_state, image, n, NULL, LAYOUT_ERASE, NULL);
    }
    if (!all_poison(image, run->buffers[RUN_FINAL].bytes)) {
        outputs->stray = "final_state";
    }
    free(image);
    return GDN_OK;
}

/* Final and token states of a POOL: decoded, then put back as they were before the call, so that what differs from
 * the pool before it was written by mistake. */
static void decode_pool(const workload_run *run, unsigned char *image, const unsigned char *before,
                        run_outputs *outputs)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    const int64_t size = workload_state_size(load), per_row = p->tokens_per_row;
    for (int64_t n = 0; n < load->num_seqs; n++) {
        if (workload_skipped(load, n)) {
            continue;
        }
        if (load->write_slots != NULL) {
            layout_state(p, &p->state, image, load->write_slots[n], outputs->final + n * size, LAYOUT_DECODE, NULL);
            layout_state(p, &p->state, image, load->write_slots[n], NULL, LAYOUT_ERASE, before);
        }
        for (int64_t t = 0; load->token_slots != NULL && t < workload_length(load, n); t++) {
            const int64_t slot = load->token_slots[n * per_row + t];
            if (slot >= 0) {
                float *const values = outputs->token_states + (n * per_row + t) * size;
                layout_state(p, &p->state, image, slot, values, LAYOUT_DECODE, NULL);
                layout_state(p, &p->state, image, slot, NULL, LAYOUT_ERASE, before);
            }
        }
    }
}

/* The pool as workload_run_fill left it. */
static unsigned char *pool_before(const workload_run *run)
{
    const workload *const load = run->load;
    unsigned char *const image = malloc(run->buffers[RUN_STATE].bytes + 1);
    if (image != NULL) {
        memset(image, LAYOUT_POISON, run->buffers[RUN_STATE].bytes);
    }
    for (int64_t n = 0; image != NULL && load->initial != NULL && n < load->num_seqs; n++) {
        if (load->read_slots[n] >= 0) {
            layout_state(&load->problem, &load->problem.state, image, load->read_slots[n],
                         load->initial + n * workload_state_size(load), LAYOUT_ENCODE, NULL);
        }
    }
    return image;
}

static gdn_status read_pool(const workload_run *run, int64_t copy, run_outputs *outputs)
{
    const workload *const load = run->load;
    const int64_t states = load->num_seqs * workload_state_size(load);
    gdn_status status = GDN_OK;
    outputs->final = load->write_slots != NULL ? alloc_values(states) : NULL;
    outputs->token_states = load->token_slots != NULL ? alloc_values(states * load->problem.tokens_per_row) : NULL;
    unsigned char *const before = pool_before(run);
    unsigned char *const image = download(run, RUN_STATE, copy, &status);
    if (image == NULL || before == NULL || (load->write_slots != NULL && outputs->final == NULL) ||
        (load->token_slots != NULL && outputs->token_states == NULL)) {
        free(before);
        free(image);
        return status != GDN_OK ? status : GDN_ERROR_OUT_OF_MEMORY;
    }
    decode_pool(run, image, before, outputs);
    if (memcmp(image, before, run->buffers[RUN_STATE].bytes) != 0) {
        outputs->stray = "state";
    }
    free(before);
    free(image);
    return GDN_OK;
}

static gdn_status read_checkpoints(const workload_run *run, int64_t copy, run_outputs *outputs)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    if (run->buffers[RUN_CHECKPOINTS].data == NULL) {
        return GDN_OK;
    }
    gdn_status status = GDN_OK;
    unsigned char *const image = download(run, RUN_CHECKPOINTS, copy, &status);
    outputs->checkpoints = alloc_values(load->num_checkpoints * workload_state_size(load));
    if (image == NULL || outputs->checkpoints == NULL) {
        free(image);
        return status != GDN_OK ? status : GDN_ERROR_OUT_OF_MEMORY;
    }
    for (int64_t n = 0; n < load->num_seqs; n++) {
        if (workload_skipped(load, n)) {
            continue;
        }
        const int64_t first = workload_first_checkpoint(load, n), end = workload_first_checkpoint(load, n + 1);
        for (int64_t i = first; i < end; i++) {
            float *const values = outputs->checkpoints + i * workload_state_size(load);
            layout_state(p, &p->checkpoints, image, i, values, LAYOUT_DECODE, NULL);
            layout_state(p, &p->checkpoints, image, i, NULL, LAYOUT_ERASE, NULL);
        }
    }
    if (!all_poison(image, run->buffers[RUN_CHECKPOINTS].bytes)) {
        outputs->stray = "checkpoints";
    }
    free(image);
    return GDN_OK;
}

gdn_status workload_run_outputs(const workload_run *run, int64_t copy, run_outputs *outputs)
{
    memset(outputs, 0, sizeof(*outputs));
    gdn_status status = gdn_synchronize(run->context, NULL);
    if (status == GDN_OK) {
        status = read_o(run, copy, outputs);
    }
    if (status == GDN_OK) {
        status = run->load->problem.state_form == GDN_STATE_POOL ? read_pool(run, copy, outputs)
                                                                 : read_dense(run, copy, outputs);
    }
    if (status == GDN_OK) {
        status = read_checkpoints(run, copy, outputs);
    }
    if (status != GDN_OK) {
        run_outputs_free(outputs);
    }
    return status;
}

void run_outputs_free(run_outputs *outputs)
{
    free(outputs->o);
    free(outputs->final);
    free(outputs->checkpoints);
    free(outputs->token_states);
    memset(outputs, 0, sizeof(*outputs));
}

double workload_min_bytes(const workload *load)
{
    const gdn_problem *const p = &load->problem;
    const double io = (double)gdn_dtype_size(p->q.dtype), gate = (double)gdn_dtype_size(p->gate.dtype);
    const double state = (double)workload_state_size(load) * (double)gdn_dtype_size(p->state.dtype);
    const double token = 2.0 * p->num_k_heads * p->head_k_dim * io + 1.0 * p->num_v_heads * p->head_v_dim * io +
                         1.0 * p->num_v_heads * p->head_v_dim * (double)gdn_dtype_size(p->o.dtype) +
                         2.0 * p->num_v_heads * gate;
    double bytes = 0;
    for (int64_t n = 0; n < load->num_seqs; n++) {
        if (workload_skipped(load, n)) {
            continue;
        }
        bytes += token * (double)workload_length(load, n);
        bytes += workload_has_state(load, n) ? state : 0;
        if (p->state_form == GDN_STATE_POOL) {
            bytes += load->write_slots != NULL ? state : 0;
        } else if (load->wants_final) {
            bytes += (double)workload_state_size(load) * (double)gdn_dtype_size(p->final_state.dtype);
        }
        for (int64_t t = 0; load->token_slots != NULL && t < workload_length(load, n); t++) {
            bytes += load->token_slots[n * p->tokens_per_row + t] >= 0 ? state : 0;
        }
    }
    return bytes + (double)load->num_checkpoints * (double)workload_state_size(load) *
                       (double)gdn_dtype_size(p->checkpoints.dtype);
}
