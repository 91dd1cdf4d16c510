/* Prefill by the chunked WY/UT algorithm, for every valid problem on every backend.
 *
 * With S the state before a chunk and A = (I + L)^-1, L_ij = beta_i exp(G_i - G_j) k_i.k_j below the diagonal
 * (docs/algorithm.md):
 *
 *     intra   U = A (beta v)        W = A (beta exp(G) k)          one inverse, all chunks of a wave at once
 *     state   V' = U - W S          S <- exp(G_C) S + (exp(G_C - G) k)^T V'        chunk after chunk
 *     output  O = scale exp(G) (q S) + P V',  P_ij = scale exp(G_i - G_j) q_i.k_j  for i >= j
 *
 * q S is taken in the state stage, while S is that chunk's; the rest of the output waits for the end of the wave. */
#include "generic_pass.h"

#include <stdio.h>

static gdn_batch_matrix indexed(gdn_batch_matrix matrix, const int32_t *outer_index)
{
    matrix.outer_index = outer_index;
    return matrix;
}

/* W = A (beta exp(G) k). */
static gdn_status form_W_by_the_same_inverse(const gdn_pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t K = problem->head_k_dim;
    GDN_TRY(p->ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA_DECAY, gdn_pass_piece(p, GDN_GENERIC_G),
                               gdn_pass_piece(p, GDN_GENERIC_BETA), gdn_pass_piece(p, GDN_GENERIC_K),
                               problem->num_k_heads, K, gdn_pass_piece(p, GDN_GENERIC_ROWS)));
    return gdn_pass_square_times_rows(p, GDN_GENERIC_SQUARE, K, GDN_GENERIC_W);
}

/* Everything of the wave's chunks that needs no state: q, U, W and P. */
static gdn_status intra(const gdn_pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    const int32_t V = problem->head_v_dim;
    float *const G = gdn_pass_piece(p, GDN_GENERIC_G);
    float *const beta = gdn_pass_piece(p, GDN_GENERIC_BETA);
    float *const rows = gdn_pass_piece(p, GDN_GENERIC_ROWS);
    float *const square = gdn_pass_piece(p, GDN_GENERIC_SQUARE);

    GDN_TRY(ops->gates(p->device, p->run, &p->wave, G, beta));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_Q, gdn_pass_piece(p, GDN_GENERIC_Q)));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_K, gdn_pass_piece(p, GDN_GENERIC_K)));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_V, rows));

    GDN_TRY(gdn_pass_gram(p, GDN_GENERIC_K));
    GDN_TRY(ops->mask(p->device, p->run, &p->wave, GDN_MASK_L, gdn_pass_piece(p, GDN_GENERIC_GRAM), G, beta, square));
    GDN_TRY(ops->inverse(p->device, p->run, square, (int64_t)p->wave.num_slots * problem->num_v_heads, C));

    GDN_TRY(ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA, G, beta, rows, problem->num_v_heads, V, rows));
    GDN_TRY(gdn_pass_square_times_rows(p, GDN_GENERIC_SQUARE, V, GDN_GENERIC_U));
    GDN_TRY(p->form_W(p));

    GDN_TRY(gdn_pass_gram(p, GDN_GENERIC_Q));
    return ops->mask(p->device, p->run, &p->wave, GDN_MASK_P, gdn_pass_piece(p, GDN_GENERIC_GRAM), G, beta, square);
}

/* state += tail^T V' for the lanes' chunks at a step. */
static gdn_status add_chunk(const gdn_pass *p, const int32_t *slots, gdn_generic_piece state)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    return gdn_pass_multiply(p,
                             (gdn_matmul){
                                 .m = K,
                                 .n = V,
                                 .k = C,
                                 .transpose_a = true,
                                 .alpha = 1.0f,
                                 .beta = 1.0f,
                                 .a = gdn_pass_by_value_head(p, GDN_GENERIC_TAIL, C, K),
                                 .b = indexed(gdn_pass_by_value_head(p, GDN_GENERIC_U, C, V), slots),
                                 .c = gdn_pass_by_value_head(p, state, K, V),
                             },
                             p->wave.num_lanes);
}

/* Checkpoints inside the lanes' chunks at a step: the chunk's own update, cut short. */
static gdn_status write_checkpoints(const gdn_pass *p, int32_t step, const int32_t *slots)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    int32_t *const ends = gdn_pass_piece(p, GDN_GENERIC_CHECKPOINT_ENDS);
    int64_t *const entries = gdn_pass_piece(p, GDN_GENERIC_CHECKPOINT_ENTRIES);
    int32_t rounds = C;
    if (problem->checkpoint_form == GDN_CHECKPOINT_EVERY) {
        rounds = (C - 1) / problem->checkpoint_interval + 1;
    }
    if (rounds > problem->max_checkpoints) {
        rounds = (int32_t)problem->max_checkpoints;
    }
    for (int32_t round = 0; round < rounds; round++) {
        bool any = true;
        GDN_TRY(ops->find_checkpoints(p->device, p->run, &p->wave, step, round, ends, entries, &any));
        if (!any) {
            break;
        }
        GDN_TRY(ops->decay_state(p->device, p->run, &p->wave, step, ends, gdn_pass_piece(p, GDN_GENERIC_G),
                                 gdn_pass_piece(p, GDN_GENERIC_K), gdn_pass_piece(p, GDN_GENERIC_STATE),
                                 gdn_pass_piece(p, GDN_GENERIC_TAIL), gdn_pass_piece(p, GDN_GENERIC_CHECKPOINT)));
        GDN_TRY(add_chunk(p, slots, GDN_GENERIC_CHECKPOINT));
        GDN_TRY(
            ops->store_checkpoints(p->device, p->run, &p->wave, entries, gdn_pass_piece(p, GDN_GENERIC_CHECKPOINT)));
    }
    return GDN_OK;
}

/* The lanes' chunks at one step: V' = U - W S, q S, then the state after the chunk. */
static gdn_status advance(const gdn_pass *p, int32_t step)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    const int32_t *const slots = p->wave.lane_slot + (int64_t)step * p->wave.num_lanes;
    float *const state = gdn_pass_piece(p, GDN_GENERIC_STATE);

    gdn_matmul matmul = {
        .m = C,
        .n = V,
        .k = K,
        .alpha = -1.0f,
        .beta = 1.0f,
        .a = indexed(gdn_pass_by_value_head(p, GDN_GENERIC_W, C, K), slots),
        .b = gdn_pass_by_value_head(p, GDN_GENERIC_STATE, K, V),
        .c = indexed(gdn_pass_by_value_head(p, GDN_GENERIC_U, C, V), slots),
    };
    GDN_TRY(gdn_pass_multiply(p, matmul, p->wave.num_lanes));

    matmul.alpha = 1.0f;
    matmul.beta = 0.0f;
    matmul.a = indexed(gdn_pass_by_key_head(p, GDN_GENERIC_Q, C, K), slots);
    matmul.c = indexed(gdn_pass_by_value_head(p, GDN_GENERIC_ROWS, C, V), slots);
    GDN_TRY(gdn_pass_multiply(p, matmul, p->wave.num_lanes));

    if (problem->checkpoint_form != GDN_CHECKPOINT_NONE) {
        GDN_TRY(write_checkpoints(p, step, slots));
    }
    GDN_TRY(p->ops->decay_state(p->device, p->run, &p->wave, step, NULL, gdn_pass_piece(p, GDN_GENERIC_G),
                                gdn_pass_piece(p, GDN_GENERIC_K), state, gdn_pass_piece(p, GDN_GENERIC_TAIL), state));
    return add_chunk(p, slots, GDN_GENERIC_STATE);
}

/* The lanes' chunks, step by step; checkpoints are written between the steps. */
static gdn_status advance_all(const gdn_pass *p)
{
    bool taken = false;
    if (p->ops->walk != NULL && p->run->problem->checkpoint_form == GDN_CHECKPOINT_NONE) {
        GDN_TRY(p->ops->walk(p->device, p->run, &p->wave, gdn_pass_piece(p, GDN_GENERIC_G),
                             gdn_pass_piece(p, GDN_GENERIC_Q), gdn_pass_piece(p, GDN_GENERIC_K),
                             gdn_pass_piece(p, GDN_GENERIC_W), gdn_pass_piece(p, GDN_GENERIC_U),
                             gdn_pass_piece(p, GDN_GENERIC_ROWS), gdn_pass_piece(p, GDN_GENERIC_STATE), &taken));
    }
    for (int32_t step = 0; !taken && step < p->wave.num_steps; step++) {
        GDN_TRY(advance(p, step));
    }
    return GDN_OK;
}

/* O = scale exp(G) (q S) + P V', rounded and stored. */
static gdn_status output(const gdn_pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t V = problem->head_v_dim;
    float *const O = gdn_pass_piece(p, GDN_GENERIC_ROWS);
    GDN_TRY(p->ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_SCALE_DECAY, gdn_pass_piece(p, GDN_GENERIC_G),
                               gdn_pass_piece(p, GDN_GENERIC_BETA), O, problem->num_v_heads, V, O));
    GDN_TRY(gdn_pass_multiply(p,
                              (gdn_matmul){
                                  .m = C,
                                  .n = V,
                                  .k = C,
                                  .alpha = 1.0f,
                                  .beta = 1.0f,
                                  .a = gdn_pass_by_value_head(p, GDN_GENERIC_SQUARE, C, C),
                                  .b = gdn_pass_by_value_head(p, GDN_GENERIC_U, C, V),
                                  .c = gdn_pass_by_value_head(p, GDN_GENERIC_ROWS, C, V),
                              },
                              p->wave.num_slots));
    return p->ops->unpack(p->device, p->run, &p->wave, O);
}

gdn_status gdn_generic_run(const gdn_device *device, const gdn_prefill_run *run, gdn_form_W_fn form_W)
{
    const gdn_choice *const choice = run->choice;
    gdn_pass p = {.device = device, .run = run, .ops = device->backend->ops, .form_W = form_W};
    gdn_chunk *const chunks = gdn_pass_piece(&p, GDN_GENERIC_CHUNKS);
    float *const state = gdn_pass_piece(&p, GDN_GENERIC_STATE);
    float *const carry = gdn_pass_piece(&p, GDN_GENERIC_CARRY);
    int64_t used = 0;
    GDN_TRY(p.ops->schedule(device, run, choice->chunk_size, chunks, choice->param[GDN_GENERIC_PARAM_BOUND], &used));

    for (int64_t first = 0; first < used; first += choice->wave_chunks) {
        const int64_t left = used - first;
        const int64_t slots = left < choice->wave_chunks ? left : choice->wave_chunks;
        const int64_t lanes = choice->param[GDN_GENERIC_PARAM_LANES];
        const int64_t steps = choice->param[GDN_GENERIC_PARAM_STEPS];
        p.wave = (gdn_wave){
            .chunk_size = choice->chunk_size,
            .num_slots = (int32_t)slots,
            .num_lanes = (int32_t)(lanes < slots ? lanes : slots),
            .num_steps = (int32_t)(steps < slots ? steps : slots),
            .chunks = chunks + first,
            .lane_slot = gdn_pass_piece(&p, GDN_GENERIC_LANE_SLOT),
        };
        GDN_TRY(p.ops->begin_wave(device, run, &p.wave));
        GDN_TRY(intra(&p));
        GDN_TRY(p.ops->load_states(device, run, &p.wave, state, carry));
        GDN_TRY(advance_all(&p));
        GDN_TRY(p.ops->store_states(device, run, &p.wave, state, carry));
        GDN_TRY(output(&p));
    }
    return GDN_OK;
}

bool gdn_generic_supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    if (problem->numerics == GDN_NUMERICS_BF16) {
        snprintf(reason->text, sizeof(reason->text), "numerics BF16: the generic products are FP32 or TF32");
        return false;
    }
    if (problem->numerics == GDN_NUMERICS_TF32 && device->backend->host_memory) {
        snprintf(reason->text, sizeof(reason->text), "numerics TF32: backend %s has float32 products only",
                 device->backend->name);
        return false;
    }
    return true;
}

static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    return gdn_generic_book(device, problem, max_workspace, false, choice);
}

static gdn_status prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return gdn_generic_run(device, run, form_W_by_the_same_inverse);
}

const gdn_implementation gdn_generic_prefill = {
    .name = "generic",
    .summary = "chunked WY/UT form, one inverse a chunk, over the backend's products",
    .operation = GDN_OPERATION_PREFILL,
    .supports = gdn_generic_supports,
    .book = book,
    .prefill = prefill,
};
