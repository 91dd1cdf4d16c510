#include "workload_run.h"

#include "layout_image.h"

#include <stdlib.h>
#include <string.h>

#define COPY_ALIGNMENT ((size_t)4096)

#define TRY(expression)                          \
    do {                                         \
        const gdn_status status_ = (expression); \
        if (status_ != GDN_OK) {                 \
            return status_;                      \
        }                                        \
    } while (0)

static bool is_packed(const gdn_problem *problem)
{
    const int64_t row =
        2 * (int64_t)problem->num_k_heads * problem->head_k_dim + (int64_t)problem->num_v_heads * problem->head_v_dim;
    return problem->q.token_stride == row && problem->k.token_stride == row && problem->v.token_stride == row;
}

/* Sizes of one copy of every buffer; 0: the call gets NULL. */
static void size_buffers(const workload *load, bool packed, size_t *bytes)
{
    const gdn_problem *const p = &load->problem;
    const bool pool = p->state_form == GDN_STATE_POOL, decode = p->operation == GDN_OPERATION_DECODE;
    const size_t seqs = (size_t)load->num_seqs, slot = gdn_dtype_size(p->slots_dtype);
    const size_t index = gdn_dtype_size(p->checkpoint_index_dtype);
    memset(bytes, 0, RUN_NUM_BUFFERS * sizeof(*bytes));
    const gdn_layout row = {p->q.dtype, 16, 0, p->q.token_stride, 0};
    bytes[RUN_Q] = packed ? layout_token_bytes(load, &row, 1, (int32_t)p->q.token_stride)
                          : layout_token_bytes(load, &p->q, p->num_k_heads, p->head_k_dim);
    bytes[RUN_K] = packed ? 0 : layout_token_bytes(load, &p->k, p->num_k_heads, p->head_k_dim);
    bytes[RUN_V] = packed ? 0 : layout_token_bytes(load, &p->v, p->num_v_heads, p->head_v_dim);
    bytes[RUN_O] = layout_token_bytes(load, &p->o, p->num_v_heads, p->head_v_dim);
    bytes[RUN_GATE] = layout_token_bytes(load, &p->gate, p->num_v_heads, 1);
    bytes[RUN_BETA] = layout_token_bytes(load, &p->beta, p->num_v_heads, 1);
    bytes[RUN_STATE] = pool                    ? layout_state_bytes(p, &p->state, load->num_slots)
                       : load->initial != NULL ? layout_state_bytes(p, &p->state, load->num_seqs)
                                               : 0;
    bytes[RUN_FINAL] = !pool && load->wants_final ? layout_state_bytes(p, &p->final_state, load->num_seqs) : 0;
    bytes[RUN_CHECKPOINTS] = layout_state_bytes(p, &p->checkpoints, load->num_checkpoints);
    bytes[RUN_A_LOG] = load->A_log != NULL ? (size_t)p->num_v_heads * sizeof(float) : 0;
    bytes[RUN_DT_BIAS] = load->dt_bias != NULL ? (size_t)p->num_v_heads * sizeof(float) : 0;
    bytes[RUN_CU] = decode ? 0 : (seqs + 1) * gdn_dtype_size(p->cu_seqlens_dtype);
    bytes[RUN_READ_SLOTS] = pool ? seqs * slot : 0;
    bytes[RUN_WRITE_SLOTS] = pool && load->write_slots != NULL ? seqs * slot : 0;
    bytes[RUN_TOKEN_SLOTS] = load->token_slots != NULL ? seqs * (size_t)p->tokens_per_row * slot : 0;
    bytes[RUN_HAS_INITIAL] = load->has_initial != NULL ? seqs : 0;
    bytes[RUN_NUM_TOKENS] = load->num_tokens != NULL ? seqs * sizeof(int32_t) : 0;
    bytes[RUN_CHECKPOINT_POSITIONS] = load->checkpoint_positions != NULL ? (size_t)load->num_checkpoints * index : 0;
    bytes[RUN_CHECKPOINT_OFFSETS] = load->checkpoint_offsets != NULL ? (seqs + 1) * index : 0;
}

size_t workload_run_copy_bytes(const workload *load)
{
    size_t bytes[RUN_NUM_BUFFERS], sum = 0;
    size_buffers(load, is_packed(&load->problem), bytes);
    for (int i = 0; i < RUN_NUM_ROTATED; i++) {
        sum += bytes[i];
    }
    return sum;
}

static unsigned char *buffer_at(const workload_run *run, run_buffer_id id, int64_t copy)
{
    unsigned char *const data = run->buffers[id].data;
    return data == NULL ? NULL : data + (size_t)(id < RUN_NUM_ROTATED ? copy : 0) * run->buffers[id].pitch;
}

/* A poisoned host image of a buffer, uploaded by `upload`, which frees it. */
static unsigned char *make_image(const workload_run *run, run_buffer_id id)
{
    unsigned char *const image = malloc(run->buffers[id].bytes + 1);
    if (image != NULL) {
        memset(image, LAYOUT_POISON, run->buffers[id].bytes);
    }
    return image;
}

static gdn_status upload(workload_run *run, run_buffer_id id, int64_t copy, unsigned char *image)
{
    gdn_status status = image != NULL ? GDN_OK : GDN_ERROR_OUT_OF_MEMORY;
    if (status == GDN_OK && run->buffers[id].bytes > 0) {
        status = gdn_memory_copy(run->context, buffer_at(run, id, copy), image, run->buffers[id].bytes,
                                 GDN_COPY_TO_BACKEND, NULL);
    }
    free(image);
    return status;
}

static void encode_tokens(const workload *load, const gdn_layout *layout, int32_t heads, int32_t dim, float *values,
                          unsigned char *image)
{
    for (int64_t n = 0; n < load->num_seqs; n++) {
        for (int64_t t = load->cu[n]; t < load->cu[n + 1]; t++) {
            layout_token(load, layout, heads, dim, image, n, t, values + t * heads * dim, LAYOUT_ENCODE);
        }
    }
}

gdn_status workload_run_fill_tokens(workload_run *run, int64_t copy)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    unsigned char *const q = make_image(run, RUN_Q);
    unsigned char *const k = run->packed ? q : make_image(run, RUN_K);
    unsigned char *const v = run->packed ? q : make_image(run, RUN_V);
    unsigned char *const gate = make_image(run, RUN_GATE), *const beta = make_image(run, RUN_BETA);
    gdn_status status = GDN_ERROR_OUT_OF_MEMORY;
    if (q != NULL && k != NULL && v != NULL && gate != NULL && beta != NULL) {
        encode_tokens(load, &p->q, p->num_k_heads, p->head_k_dim, load->q, q);
        encode_tokens(load, &p->k, p->num_k_heads, p->head_k_dim, load->k, k + run->k_offset);
        encode_tokens(load, &p->v, p->num_v_heads, p->head_v_dim, load->v, v + run->v_offset);
        encode_tokens(load, &p->gate, p->num_v_heads, 1, load->gate, gate);
        encode_tokens(load, &p->beta, p->num_v_heads, 1, load->beta, beta);
        status = GDN_OK;
    }
    const struct {
        run_buffer_id id;
        unsigned char *image;
    } images[] = {{RUN_Q, q},
                  {RUN_K, run->packed ? NULL : k},
                  {RUN_V, run->packed ? NULL : v},
                  {RUN_GATE, gate},
                  {RUN_BETA, beta}};
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        if (status == GDN_OK && images[i].image != NULL) {
            status = upload(run, images[i].id, copy, images[i].image);
        } else {
            free(images[i].image);
        }
    }
    if (status == GDN_OK) {
        status = upload(run, RUN_O, copy, make_image(run, RUN_O));
    }
    if (status == GDN_OK && load->num_tokens != NULL) {
        status = gdn_memory_copy(run->context, buffer_at(run, RUN_NUM_TOKENS, 0), load->num_tokens,
                                 run->buffers[RUN_NUM_TOKENS].bytes, GDN_COPY_TO_BACKEND, NULL);
    }
    return status;
}

/* The states as a call finds them: each sequence's initial state in its slot, NaN everywhere else. */
static unsigned char *state_image(const workload_run *run)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    unsigned char *const image = make_image(run, RUN_STATE);
    for (int64_t n = 0; image != NULL && load->initial != NULL && n < load->num_seqs; n++) {
        const int64_t slot = p->state_form == GDN_STATE_POOL ? load->read_slots[n] : n;
        if (slot >= 0) {
            layout_state(p, &p->state, image, slot, load->initial + n * workload_state_size(load), LAYOUT_ENCODE, NULL);
        }
    }
    return image;
}

gdn_status workload_run_fill(workload_run *run, int64_t copy)
{
    TRY(workload_run_fill_tokens(run, copy));
    if (run->buffers[RUN_STATE].data != NULL) {
        TRY(upload(run, RUN_STATE, copy, state_image(run)));
    }
    if (run->buffers[RUN_FINAL].data != NULL) {
        TRY(upload(run, RUN_FINAL, copy, make_image(run, RUN_FINAL)));
    }
    if (run->buffers[RUN_CHECKPOINTS].data != NULL) {
        TRY(upload(run, RUN_CHECKPOINTS, copy, make_image(run, RUN_CHECKPOINTS)));
    }
    return GDN_OK;
}

static gdn_status upload_indices(workload_run *run, run_buffer_id id, gdn_dtype dtype, const int64_t *values)
{
    if (values == NULL || run->buffers[id].data == NULL) {
        return GDN_OK;
    }
    unsigned char *const image = make_image(run, id);
    if (image != NULL) {
        layout_indices(image, dtype, values, (int64_t)(run->buffers[id].bytes / gdn_dtype_size(dtype)));
    }
    return upload(run, id, 0, image);
}

static gdn_status upload_bytes(workload_run *run, run_buffer_id id, const void *values)
{
    if (values == NULL || run->buffers[id].data == NULL) {
        return GDN_OK;
    }
    return gdn_memory_copy(run->context, run->buffers[id].data, values, run->buffers[id].bytes, GDN_COPY_TO_BACKEND,
                           NULL);
}

static gdn_status allocate(workload_run *run)
{
    size_t bytes[RUN_NUM_BUFFERS];
    size_buffers(run->load, run->packed, bytes);
    bytes[RUN_WORKSPACE] = gdn_plan_workspace_size(run->plan);
    for (int i = 0; i < RUN_NUM_BUFFERS; i++) {
        /* A tensor of no elements still needs a pointer. */
        const bool wanted = bytes[i] > 0 || (i <= RUN_BETA && !(run->packed && (i == RUN_K || i == RUN_V)));
        const size_t copies = i < RUN_NUM_ROTATED ? (size_t)run->copies : 1;
        run->buffers[i].bytes = bytes[i];
        run->buffers[i].pitch = (bytes[i] / COPY_ALIGNMENT + 1) * COPY_ALIGNMENT;
        if (wanted) {
            TRY(gdn_memory_alloc(run->context, &run->buffers[i].data, run->buffers[i].pitch * copies));
        }
    }
    return GDN_OK;
}

static gdn_status fill_all(workload_run *run)
{
    const workload *const load = run->load;
    const gdn_problem *const p = &load->problem;
    for (int64_t copy = 0; copy < run->copies; copy++) {
        TRY(workload_run_fill(run, copy));
    }
    TRY(upload_bytes(run, RUN_A_LOG, load->A_log));
    TRY(upload_bytes(run, RUN_DT_BIAS, load->dt_bias));
    TRY(upload_bytes(run, RUN_HAS_INITIAL, load->has_initial));
    TRY(upload_indices(run, RUN_CU, p->cu_seqlens_dtype, load->cu));
    TRY(upload_indices(run, RUN_READ_SLOTS, p->slots_dtype, load->read_slots));
    TRY(upload_indices(run, RUN_WRITE_SLOTS, p->slots_dtype, load->write_slots));
    TRY(upload_indices(run, RUN_TOKEN_SLOTS, p->slots_dtype, load->token_slots));
    TRY(upload_indices(run, RUN_CHECKPOINT_POSITIONS, p->checkpoint_index_dtype, load->checkpoint_positions));
    TRY(upload_indices(run, RUN_CHECKPOINT_OFFSETS, p->checkpoint_index_dtype, load->checkpoint_offsets));
    return gdn_synchronize(run->context, NULL);
}

gdn_status workload_run_create(workload_run *run, gdn_context *context, const workload *load, int64_t copies)
{
    const gdn_problem *const p = &load->problem;
    *run = (workload_run){.context = context, .load = load, .copies = copies, .packed = is_packed(p)};
    if (run->packed) {
        const size_t head = (size_t)p->num_k_heads * (size_t)p->head_k_dim * gdn_dtype_size(p->q.dtype);
        run->k_offset = head;
        run->v_offset = 2 * head;
    }
    gdn_status status = gdn_plan_create(&run->plan, context, p);
    if (status == GDN_OK) {
        status = allocate(run);
    }
    if (status == GDN_OK) {
        status = fill_all(run);
    }
    if (status != GDN_OK) {
        workload_run_destroy(run);
    }
    return status;
}

void workload_run_destroy(workload_run *run)
{
    for (int i = 0; i < RUN_NUM_BUFFERS; i++) {
        (void)gdn_memory_free(run->context, &run->buffers[i].data);
    }
    gdn_plan_destroy(&run->plan);
}

static gdn_status call_prefill(const workload_run *run, int64_t copy, void *stream)
{
    const workload *const load = run->load;
    gdn_prefill_args args;
    TRY(gdn_prefill_args_init(&args));
    unsigned char *const q = buffer_at(run, RUN_Q, copy);
    args.num_seqs = load->num_seqs;
    args.total_tokens = load->total_tokens;
    args.q = q;
    args.k = run->packed ? q + run->k_offset : buffer_at(run, RUN_K, copy);
    args.v = run->packed ? q + run->v_offset : buffer_at(run, RUN_V, copy);
    args.o = buffer_at(run, RUN_O, copy);
    args.gate = buffer_at(run, RUN_GATE, copy);
    args.beta = buffer_at(run, RUN_BETA, copy);
    args.A_log = run->buffers[RUN_A_LOG].data;
    args.dt_bias = run->buffers[RUN_DT_BIAS].data;
    args.cu_seqlens = run->buffers[RUN_CU].data;
    args.state = buffer_at(run, RUN_STATE, copy);
    args.final_state = buffer_at(run, RUN_FINAL, copy);
    args.num_slots = load->num_slots;
    args.read_slots = run->buffers[RUN_READ_SLOTS].data;
    args.write_slots = run->buffers[RUN_WRITE_SLOTS].data;
    args.has_initial_state = run->buffers[RUN_HAS_INITIAL].data;
    args.checkpoints = buffer_at(run, RUN_CHECKPOINTS, copy);
    args.num_checkpoints = load->num_checkpoints;
    args.checkpoint_positions = run->buffers[RUN_CHECKPOINT_POSITIONS].data;
    args.checkpoint_offsets = run->buffers[RUN_CHECKPOINT_OFFSETS].data;
    args.workspace = run->buffers[RUN_WORKSPACE].data;
    args.workspace_size = run->buffers[RUN_WORKSPACE].bytes;
    args.stream = stream;
    return gdn_prefill(run->plan, &args);
}

static gdn_status call_decode(const workload_run *run, int64_t copy, void *stream)
{
    const workload *const load = run->load;
    gdn_decode_args args;
    TRY(gdn_decode_args_init(&args));
    unsigned char *const q = buffer_at(run, RUN_Q, copy);
    args.num_rows = load->num_seqs;
    args.q = q;
    args.k = run->packed ? q + run->k_offset : buffer_at(run, RUN_K, copy);
    args.v = run->packed ? q + run->v_offset : buffer_at(run, RUN_V, copy);
    args.o = buffer_at(run, RUN_O, copy);
    args.gate = buffer_at(run, RUN_GATE, copy);
    args.beta = buffer_at(run, RUN_BETA, copy);
    args.A_log = run->buffers[RUN_A_LOG].data;
    args.dt_bias = run->buffers[RUN_DT_BIAS].data;
    args.num_tokens = run->buffers[RUN_NUM_TOKENS].data;
    args.state = buffer_at(run, RUN_STATE, copy);
    args.final_state = buffer_at(run, RUN_FINAL, copy);
    args.num_slots = load->num_slots;
    args.read_slots = run->buffers[RUN_READ_SLOTS].data;
    args.write_slots = run->buffers[RUN_WRITE_SLOTS].data;
    args.token_slots = run->buffers[RUN_TOKEN_SLOTS].data;
    args.has_initial_state = run->buffers[RUN_HAS_INITIAL].data;
    args.workspace = run->buffers[RUN_WORKSPACE].data;
    args.workspace_size = run->buffers[RUN_WORKSPACE].bytes;
    args.stream = stream;
    return gdn_decode(run->plan, &args);
}

gdn_status workload_run_call(const workload_run *run, int64_t copy, void *stream)
{
    return run->load->problem.operation == GDN_OPERATION_DECODE ? call_decode(run, copy, stream)
                                                                : call_prefill(run, copy, stream);
}
