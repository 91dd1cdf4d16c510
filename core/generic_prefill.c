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
#include "generic_ops.h"

#include "generic_prefill_internal.h"
#include "generic_scratch.h"

#include <stdio.h>

typedef struct pass {
    const gdn_device *device;
    const gdn_prefill_run *run;
    const gdn_generic_ops *ops;
    gdn_wave wave;
    bool two_inverses;
} pass;

static void *piece(const pass *p, gdn_generic_piece name)
{
    return p->run->workspace + p->run->choice->param[name];
}

/* Strides of the batch (slot or lane, k head, v head of that k head): an array of one [rows, width] matrix for each
 * value head, or for each key head. */
static gdn_batch_matrix by_value_head(const pass *p, gdn_generic_piece name, int32_t rows, int32_t width)
{
    const gdn_problem *const problem = p->run->problem;
    const int64_t matrix = (int64_t)rows * width;
    const int64_t ratio = problem->num_v_heads / problem->num_k_heads;
    const bool tiled = problem->head_map == GDN_HEAD_MAP_TILED;
    return (gdn_batch_matrix){
        .data = piece(p, name),
        .ld = width,
        .stride = {matrix * problem->num_v_heads, tiled ? matrix : ratio * matrix,
                   tiled ? problem->num_k_heads * matrix : matrix},
    };
}

static gdn_batch_matrix by_key_head(const pass *p, gdn_generic_piece name, int32_t rows, int32_t width)
{
    const int64_t matrix = (int64_t)rows * width;
    return (gdn_batch_matrix){
        .data = piece(p, name),
        .ld = width,
        .stride = {matrix * p->run->problem->num_k_heads, matrix, 0},
    };
}

static gdn_batch_matrix indexed(gdn_batch_matrix matrix, const int32_t *outer_index)
{
    matrix.outer_index = outer_index;
    return matrix;
}

/* The product of one matrix a value head, for `outer` slots or lanes. */
static gdn_status multiply(const pass *p, gdn_matmul matmul, int64_t outer)
{
    const gdn_problem *const problem = p->run->problem;
    matmul.numerics = problem->numerics == GDN_NUMERICS_DEFAULT ? GDN_NUMERICS_FP32 : problem->numerics;
    matmul.batch[0] = outer;
    matmul.batch[1] = problem->num_k_heads;
    matmul.batch[2] = problem->num_v_heads / problem->num_k_heads;
    return p->ops->matmul(p->device, p->run, &matmul);
}

/* gram = rows k^T of each key head, rows being q or k. */
static gdn_status gram(const pass *p, gdn_generic_piece rows)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const gdn_matmul matmul = {
        .m = C,
        .n = C,
        .k = K,
        .transpose_b = true,
        .alpha = 1.0f,
        .numerics = problem->numerics == GDN_NUMERICS_DEFAULT ? GDN_NUMERICS_FP32 : problem->numerics,
        .batch = {p->wave.num_slots, problem->num_k_heads, 1},
        .a = by_key_head(p, rows, C, K),
        .b = by_key_head(p, GDN_GENERIC_K, C, K),
        .c = by_key_head(p, GDN_GENERIC_GRAM, C, C),
    };
    return p->ops->matmul(p->device, p->run, &matmul);
}

/* dst = square rows, rows being [C, width] of each value head. */
static gdn_status square_times_rows(const pass *p, gdn_generic_piece square, int32_t width, gdn_generic_piece dst)
{
    const int32_t C = p->wave.chunk_size;
    return multiply(p,
                    (gdn_matmul){
                        .m = C,
                        .n = width,
                        .k = C,
                        .alpha = 1.0f,
                        .a = by_value_head(p, square, C, C),
                        .b = by_value_head(p, GDN_GENERIC_ROWS, C, width),
                        .c = by_value_head(p, dst, C, width),
                    },
                    p->wave.num_slots);
}

/* W = A (beta exp(G) k). */
static gdn_status form_W(const pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t K = problem->head_k_dim;
    GDN_TRY(p->ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA_DECAY, piece(p, GDN_GENERIC_G),
                               piece(p, GDN_GENERIC_BETA), piece(p, GDN_GENERIC_K), problem->num_k_heads, K,
                               piece(p, GDN_GENERIC_ROWS)));
    return square_times_rows(p, GDN_GENERIC_SQUARE, K, GDN_GENERIC_W);
}

/* W = exp(G) (I + StrictLower(beta k k^T))^-1 (beta k): the same W through an inverse that does not see the decay. */
static gdn_status form_W_by_second_inverse(const pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int64_t matrices = (int64_t)p->wave.num_slots * problem->num_v_heads;
    float *const no_decay = piece(p, GDN_GENERIC_UNGATED_G);
    float *const beta = piece(p, GDN_GENERIC_BETA);
    float *const M = piece(p, GDN_GENERIC_UNGATED_SQUARE);
    float *const W = piece(p, GDN_GENERIC_W);

    /* The backend's fill takes the device it was opened as; nothing of it changes. */
    GDN_TRY(p->device->backend->fill((gdn_device *)p->device, no_decay, 0, (size_t)matrices * 2 * C * sizeof(float),
                                     p->run->stream));
    GDN_TRY(ops->mask(p->device, p->run, &p->wave, GDN_MASK_L, piece(p, GDN_GENERIC_GRAM), no_decay, beta, M));
    GDN_TRY(ops->inverse(p->device, p->run, M, matrices, C));
    GDN_TRY(ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA, no_decay, beta, piece(p, GDN_GENERIC_K),
                            problem->num_k_heads, K, piece(p, GDN_GENERIC_ROWS)));
    GDN_TRY(square_times_rows(p, GDN_GENERIC_UNGATED_SQUARE, K, GDN_GENERIC_W));
    /* exp(G) alone: the output's factor with a scale of 1. */
    gdn_problem unscaled = *problem;
    unscaled.scale = 1.0f;
    gdn_prefill_run run = *p->run;
    run.problem = &unscaled;
    return ops->scale_rows(p->device, &run, &p->wave, GDN_ROW_SCALE_DECAY, piece(p, GDN_GENERIC_G), beta, W,
                           problem->num_v_heads, K, W);
}

/* Everything of the wave's chunks that needs no state: q, U, W and P. */
static gdn_status intra(const pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    const int32_t V = problem->head_v_dim;
    float *const G = piece(p, GDN_GENERIC_G);
    float *const beta = piece(p, GDN_GENERIC_BETA);
    float *const rows = piece(p, GDN_GENERIC_ROWS);
    float *const square = piece(p, GDN_GENERIC_SQUARE);

    GDN_TRY(ops->gates(p->device, p->run, &p->wave, G, beta));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_Q, piece(p, GDN_GENERIC_Q)));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_K, piece(p, GDN_GENERIC_K)));
    GDN_TRY(ops->pack(p->device, p->run, &p->wave, GDN_PACK_V, rows));

    GDN_TRY(gram(p, GDN_GENERIC_K));
    GDN_TRY(ops->mask(p->device, p->run, &p->wave, GDN_MASK_L, piece(p, GDN_GENERIC_GRAM), G, beta, square));
    GDN_TRY(ops->inverse(p->device, p->run, square, (int64_t)p->wave.num_slots * problem->num_v_heads, C));

    GDN_TRY(ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_BETA, G, beta, rows, problem->num_v_heads, V, rows));
    GDN_TRY(square_times_rows(p, GDN_GENERIC_SQUARE, V, GDN_GENERIC_U));
    GDN_TRY(p->two_inverses ? form_W_by_second_inverse(p) : form_W(p));

    GDN_TRY(gram(p, GDN_GENERIC_Q));
    return ops->mask(p->device, p->run, &p->wave, GDN_MASK_P, piece(p, GDN_GENERIC_GRAM), G, beta, square);
}

/* state += tail^T V' for the lanes' chunks at a step. */
static gdn_status add_chunk(const pass *p, const int32_t *slots, gdn_generic_piece state)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    return multiply(p,
                    (gdn_matmul){
                        .m = K,
                        .n = V,
                        .k = C,
                        .transpose_a = true,
                        .alpha = 1.0f,
                        .beta = 1.0f,
                        .a = by_value_head(p, GDN_GENERIC_TAIL, C, K),
                        .b = indexed(by_value_head(p, GDN_GENERIC_U, C, V), slots),
                        .c = by_value_head(p, state, K, V),
                    },
                    p->wave.num_lanes);
}

/* Checkpoints inside the lanes' chunks at a step: the chunk's own update, cut short. */
static gdn_status write_checkpoints(const pass *p, int32_t step, const int32_t *slots)
{
    const gdn_problem *const problem = p->run->problem;
    const gdn_generic_ops *const ops = p->ops;
    const int32_t C = p->wave.chunk_size;
    int32_t *const ends = piece(p, GDN_GENERIC_CHECKPOINT_ENDS);
    int64_t *const entries = piece(p, GDN_GENERIC_CHECKPOINT_ENTRIES);
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
        GDN_TRY(ops->decay_state(p->device, p->run, &p->wave, step, ends, piece(p, GDN_GENERIC_G),
                                 piece(p, GDN_GENERIC_K), piece(p, GDN_GENERIC_STATE), piece(p, GDN_GENERIC_TAIL),
                                 piece(p, GDN_GENERIC_CHECKPOINT)));
        GDN_TRY(add_chunk(p, slots, GDN_GENERIC_CHECKPOINT));
        GDN_TRY(ops->store_checkpoints(p->device, p->run, &p->wave, entries, piece(p, GDN_GENERIC_CHECKPOINT)));
    }
    return GDN_OK;
}

/* The lanes' chunks at one step: V' = U - W S, q S, then the state after the chunk. */
static gdn_status advance(const pass *p, int32_t step)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t K = problem->head_k_dim;
    const int32_t V = problem->head_v_dim;
    const int32_t *const slots = p->wave.lane_slot + (int64_t)step * p->wave.num_lanes;
    float *const state = piece(p, GDN_GENERIC_STATE);

    gdn_matmul matmul = {
        .m = C,
        .n = V,
        .k = K,
        .alpha = -1.0f,
        .beta = 1.0f,
        .a = indexed(by_value_head(p, GDN_GENERIC_W, C, K), slots),
        .b = by_value_head(p, GDN_GENERIC_STATE, K, V),
        .c = indexed(by_value_head(p, GDN_GENERIC_U, C, V), slots),
    };
    GDN_TRY(multiply(p, matmul, p->wave.num_lanes));

    matmul.alpha = 1.0f;
    matmul.beta = 0.0f;
    matmul.a = indexed(by_key_head(p, GDN_GENERIC_Q, C, K), slots);
    matmul.c = indexed(by_value_head(p, GDN_GENERIC_ROWS, C, V), slots);
    GDN_TRY(multiply(p, matmul, p->wave.num_lanes));

    if (problem->checkpoint_form != GDN_CHECKPOINT_NONE) {
        GDN_TRY(write_checkpoints(p, step, slots));
    }
    GDN_TRY(p->ops->decay_state(p->device, p->run, &p->wave, step, NULL, piece(p, GDN_GENERIC_G),
                                piece(p, GDN_GENERIC_K), state, piece(p, GDN_GENERIC_TAIL), state));
    return add_chunk(p, slots, GDN_GENERIC_STATE);
}

/* The lanes' chunks, step by step; checkpoints are written between the steps. */
static gdn_status advance_all(const pass *p)
{
    bool taken = false;
    if (p->ops->walk != NULL && p->run->problem->checkpoint_form == GDN_CHECKPOINT_NONE) {
        GDN_TRY(p->ops->walk(p->device, p->run, &p->wave, piece(p, GDN_GENERIC_G), piece(p, GDN_GENERIC_Q),
                             piece(p, GDN_GENERIC_K), piece(p, GDN_GENERIC_W), piece(p, GDN_GENERIC_U),
                             piece(p, GDN_GENERIC_ROWS), piece(p, GDN_GENERIC_STATE), &taken));
    }
    for (int32_t step = 0; !taken && step < p->wave.num_steps; step++) {
        GDN_TRY(advance(p, step));
    }
    return GDN_OK;
}

/* O = scale exp(G) (q S) + P V', rounded and stored. */
static gdn_status output(const pass *p)
{
    const gdn_problem *const problem = p->run->problem;
    const int32_t C = p->wave.chunk_size;
    const int32_t V = problem->head_v_dim;
    float *const O = piece(p, GDN_GENERIC_ROWS);
    GDN_TRY(p->ops->scale_rows(p->device, p->run, &p->wave, GDN_ROW_SCALE_DECAY, piece(p, GDN_GENERIC_G),
                               piece(p, GDN_GENERIC_BETA), O, problem->num_v_heads, V, O));
    GDN_TRY(multiply(p,
                     (gdn_matmul){
                         .m = C,
                         .n = V,
                         .k = C,
                         .alpha = 1.0f,
                         .beta = 1.0f,
                         .a = by_value_head(p, GDN_GENERIC_SQUARE, C, C),
                         .b = by_value_head(p, GDN_GENERIC_U, C, V),
                         .c = by_value_head(p, GDN_GENERIC_ROWS, C, V),
                     },
                     p->wave.num_slots));
    return p->ops->unpack(p->device, p->run, &p->wave, O);
}

static gdn_status run_prefill(const gdn_device *device, const gdn_prefill_run *run, bool two_inverses)
{
    const gdn_choice *const choice = run->choice;
    pass p = {.device = device, .run = run, .ops = device->backend->ops, .two_inverses = two_inverses};
    gdn_chunk *const chunks = piece(&p, GDN_GENERIC_CHUNKS);
    float *const state = piece(&p, GDN_GENERIC_STATE);
    float *const carry = piece(&p, GDN_GENERIC_CARRY);
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
            .lane_slot = piece(&p, GDN_GENERIC_LANE_SLOT),
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

static bool supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
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

static gdn_status prepare(const gdn_device *device, const gdn_problem *problem, int32_t chunk_size)
{
    const gdn_generic_ops *const ops = device->backend->ops;
    return ops->prepare != NULL ? ops->prepare(device, problem, chunk_size) : GDN_OK;
}

static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    GDN_TRY(gdn_generic_book(device, problem, max_workspace, false, choice));
    return prepare(device, problem, choice->chunk_size);
}

static gdn_status prefill(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(device, run, false);
}

static gdn_status book_two_inverses(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                                    gdn_choice *choice)
{
    GDN_TRY(gdn_generic_book(device, problem, max_workspace, true, choice));
    return prepare(device, problem, choice->chunk_size);
}

static gdn_status prefill_two_inverses(const gdn_device *device, const gdn_prefill_run *run)
{
    return run_prefill(device, run, true);
}

const gdn_implementation gdn_generic_prefill = {
    .name = "generic",
    .summary = "chunked WY/UT form, one inverse a chunk, over the backend's products",
    .operation = GDN_OPERATION_PREFILL,
    .supports = supports,
    .book = book,
    .prefill = prefill,
};

const gdn_implementation gdn_generic_prefill_two_inverses = {
    .name = "generic.two_inverses",
    .summary = "as generic, with W through an inverse of its own: a measurement's ablation",
    .operation = GDN_OPERATION_PREFILL,
    .supports = supports,
    .book = book_two_inverses,
    .prefill = prefill_two_inverses,
};
