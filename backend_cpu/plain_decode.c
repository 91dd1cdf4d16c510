/* Decode and verification of any valid problem, in plain C: each state element is read once and written once a call.
 *
 * Columns of S are independent of one another, so a few values v at a time are taken through all tokens of the row:
 *
 *     s <- alpha s + u k,   u = beta (v - alpha k.s),   o = scale q.s        s: column v of S, K numbers
 *
 * q, k (normalised) and the gates are made float32 first, once a row, in the workspace. */
#include "plain_decode.h"

#include "cpu_l2norm.h"
#include "cpu_parallel.h"
#include "cpu_rows.h"
#include "cpu_state_io.h"
#include "plain_decode_tile.h"

#include <stdio.h>

/* Without a cap, rows are taken in waves of about so much scratch. */
#define WAVE_BYTES ((size_t)4 << 20)

/* Columns of S in one item of work: a few tiles. */
#define ITEM_COLUMNS 32

/* choice->param: offsets of the pieces, and the rows taken at once. */
enum { PARAM_Q, PARAM_K, PARAM_DECAY, PARAM_BETA, PARAM_ROWS /* of a wave */ };

typedef struct decode_wave {
    const gdn_problem *problem;
    const gdn_decode_args *args;
    int64_t first_row;
    float *q; /* [rows, T, H, K] */
    float *k;
    float *decay; /* [rows, T, HV] */
    float *beta;
} decode_wave;

static bool supports(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    (void)device;
    if (problem->numerics == GDN_NUMERICS_TF32 || problem->numerics == GDN_NUMERICS_BF16) {
        snprintf(reason->text, sizeof(reason->text), "numerics %s: float32 products only",
                 problem->numerics == GDN_NUMERICS_TF32 ? "TF32" : "BF16");
        return false;
    }
    return true;
}

static void book_rows(const gdn_problem *problem, int64_t rows, gdn_choice *choice)
{
    const size_t tokens = gdn_size_mul((size_t)rows, (size_t)problem->tokens_per_row * sizeof(float));
    const size_t vectors = gdn_size_mul(tokens, (size_t)problem->num_k_heads * (size_t)problem->head_k_dim);
    const size_t gates = gdn_size_mul(tokens, (size_t)problem->num_v_heads);
    choice->param[PARAM_Q] = (int64_t)gdn_ledger_book(&choice->ledger, "q", vectors);
    choice->param[PARAM_K] = (int64_t)gdn_ledger_book(&choice->ledger, "k", vectors);
    choice->param[PARAM_DECAY] = (int64_t)gdn_ledger_book(&choice->ledger, "decay", gates);
    choice->param[PARAM_BETA] = (int64_t)gdn_ledger_book(&choice->ledger, "beta", gates);
    choice->param[PARAM_ROWS] = rows;
}

static size_t total_with(const gdn_problem *problem, int64_t rows, const gdn_choice *choice)
{
    gdn_choice trial = *choice;
    book_rows(problem, rows, &trial);
    return trial.ledger.overflow ? SIZE_MAX : trial.ledger.total;
}

static gdn_status book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    (void)device;
    const size_t budget = max_workspace != 0 && max_workspace < WAVE_BYTES ? max_workspace : WAVE_BYTES;
    int64_t fits = 1;
    int64_t past = problem->max_seqs > INT64_MAX - 1 ? INT64_MAX : problem->max_seqs + 1;
    while (past - fits > 1) {
        const int64_t middle = fits + (past - fits) / 2;
        if (total_with(problem, middle, choice) <= budget) {
            fits = middle;
        } else {
            past = middle;
        }
    }
    const size_t total = total_with(problem, fits, choice);
    if (max_workspace != 0 && total > max_workspace) {
        return gdn_fail(GDN_ERROR_UNSUPPORTED, "max_workspace %zu: plain decode needs at least %zu bytes (one row)",
                        max_workspace, total);
    }
    book_rows(problem, fits, choice);
    return GDN_OK;
}

/* Element offset of (row, token) in a tensor of that layout. */
static int64_t token_offset(const gdn_problem *problem, const gdn_layout *layout, int64_t row, int64_t token)
{
    const int64_t row_stride =
        layout->row_stride != 0 ? layout->row_stride : problem->tokens_per_row * layout->token_stride;
    return row * row_stride + token * layout->token_stride;
}

static bool skipped(const decode_wave *wave, int64_t row)
{
    const gdn_problem *const problem = wave->problem;
    if (problem->state_form != GDN_STATE_POOL) {
        return false;
    }
    return gdn_cpu_slot(problem, wave->args->read_slots, row) < 0 ||
           (wave->args->write_slots && gdn_cpu_slot(problem, wave->args->write_slots, row) < 0);
}

static int32_t tokens_of(const decode_wave *wave, int64_t row)
{
    return wave->args->num_tokens ? wave->args->num_tokens[row] : wave->problem->tokens_per_row;
}

static void prepare_vector(const decode_wave *wave, const void *src, const gdn_layout *layout, int64_t row,
                           int32_t token, int32_t head, float *dst)
{
    const gdn_problem *const problem = wave->problem;
    const int32_t K = problem->head_k_dim;
    gdn_cpu_load_row(src, layout->dtype, token_offset(problem, layout, row, token) + head * layout->head_stride, K,
                     dst);
    const float factor = gdn_cpu_l2norm_factor(problem->qk_norm, problem->qk_norm_eps, dst, K);
    for (int32_t d = 0; d < K && problem->qk_norm != GDN_QK_NORM_NONE; d++) {
        dst[d] *= factor;
    }
}

static void prepare_gates(const decode_wave *wave, int64_t row, int32_t token, float *decay, float *beta)
{
    const gdn_problem *const problem = wave->problem;
    const gdn_decode_args *const args = wave->args;
    const int64_t gate_at = token_offset(problem, &problem->gate, row, token);
    const int64_t beta_at = token_offset(problem, &problem->beta, row, token);
    for (int32_t hv = 0; hv < problem->num_v_heads; hv++) {
        const float gate = gdn_load_element(args->gate, problem->gate.dtype, gate_at + hv * problem->gate.head_stride);
        const float b = gdn_load_element(args->beta, problem->beta.dtype, beta_at + hv * problem->beta.head_stride);
        switch (problem->gate_form) {
        case GDN_GATE_DECAY:
            decay[hv] = gate;
            break;
        case GDN_GATE_LOG_DECAY:
            decay[hv] = expf(gate);
            break;
        case GDN_GATE_RAW:
            decay[hv] = expf(gdn_log_decay_raw(gate, args->A_log[hv], args->dt_bias ? args->dt_bias[hv] : 0.0f));
            break;
        }
        beta[hv] = problem->beta_form == GDN_BETA_LOGIT ? problem->beta_scale * gdn_sigmoid(b) : b;
    }
}

/* One item is one (row, token) of the wave. */
static void prepare_range(const void *data, int64_t begin, int64_t end)
{
    const decode_wave *const wave = data;
    const gdn_problem *const problem = wave->problem;
    const int32_t T = problem->tokens_per_row;
    const int32_t H = problem->num_k_heads;
    const int32_t K = problem->head_k_dim;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = wave->first_row + i / T;
        const int32_t token = (int32_t)(i % T);
        if (skipped(wave, row) || token >= tokens_of(wave, row)) {
            continue;
        }
        for (int32_t head = 0; head < H; head++) {
            const int64_t at = (i * H + head) * K;
            prepare_vector(wave, wave->args->q, &problem->q, row, token, head, wave->q + at);
            prepare_vector(wave, wave->args->k, &problem->k, row, token, head, wave->k + at);
        }
        prepare_gates(wave, row, token, wave->decay + i * problem->num_v_heads, wave->beta + i * problem->num_v_heads);
    }
}

/* Where a row starts: NULL for zeros. */
static const void *initial_state(const decode_wave *wave, int64_t row)
{
    const gdn_decode_args *const args = wave->args;
    return !args->has_initial_state || args->has_initial_state[row] ? args->state : NULL;
}

static int64_t read_offset(const decode_wave *wave, int64_t row, int32_t hv)
{
    const gdn_problem *const problem = wave->problem;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    return gdn_cpu_state_offset(&problem->state, pool ? gdn_cpu_slot(problem, wave->args->read_slots, row) : row, hv);
}

/* Where it ends: its place and layout, or NULL where no state is kept. */
static void *final_state(const decode_wave *wave, int64_t row, int32_t hv, const gdn_state_layout **layout, int64_t *at)
{
    const gdn_problem *const problem = wave->problem;
    const gdn_decode_args *const args = wave->args;
    const bool pool = problem->state_form == GDN_STATE_POOL;
    if (pool && !args->write_slots) {
        return NULL;
    }
    *layout = pool ? &problem->state : &problem->final_state;
    *at = gdn_cpu_state_offset(*layout, pool ? gdn_cpu_slot(problem, args->write_slots, row) : row, hv);
    return pool ? args->state : args->final_state;
}

/* A row of no tokens: its state passes through untouched by arithmetic. */
static void pass_on(const decode_wave *wave, int64_t row, int32_t hv)
{
    const gdn_problem *const problem = wave->problem;
    const gdn_state_layout *layout;
    int64_t at;
    void *const dst = final_state(wave, row, hv, &layout, &at);
    if (dst) {
        gdn_cpu_state_copy(dst, layout, at, initial_state(wave, row), &problem->state, read_offset(wave, row, hv),
                           problem->head_k_dim, problem->head_v_dim);
    }
}

/* All tokens of a row for the columns of one tile. */
static void run_tile(const decode_wave *wave, int64_t row, int32_t hv, int32_t v0, int32_t columns)
{
    const gdn_problem *const problem = wave->problem;
    const gdn_decode_args *const args = wave->args;
    const int32_t T = problem->tokens_per_row;
    const int32_t H = problem->num_k_heads;
    const int32_t K = problem->head_k_dim;
    const int32_t hk = gdn_cpu_key_head(problem, hv);
    float tile[GDN_DECODE_TILE_SIZE];

    const void *const initial = initial_state(wave, row);
    if (initial) {
        gdn_decode_load_tile(initial, &problem->state, read_offset(wave, row, hv), v0, columns, K, tile);
    } else {
        memset(tile, 0, (size_t)columns * (size_t)K * sizeof(float));
    }

    const int32_t tokens = tokens_of(wave, row);
    for (int32_t t = 0; t < tokens; t++) {
        const int64_t at = (row - wave->first_row) * T + t;
        const float *const q = wave->q + (at * H + hk) * K;
        const float *const k = wave->k + (at * H + hk) * K;
        const float alpha = wave->decay[at * problem->num_v_heads + hv];
        const float beta = wave->beta[at * problem->num_v_heads + hv];
        const int64_t v_at = token_offset(problem, &problem->v, row, t) + hv * problem->v.head_stride + v0;
        const int64_t o_at = token_offset(problem, &problem->o, row, t) + hv * problem->o.head_stride + v0;
        for (int32_t c = 0; c < columns; c++) {
            const float v = gdn_load_element(args->v, problem->v.dtype, v_at + c);
            const float u = beta * (v - alpha * gdn_decode_dot(k, tile + c * K, K));
            const float o = gdn_decode_update(tile + c * K, alpha, u, k, q, K);
            gdn_store_element(args->o, problem->o.dtype, o_at + c, problem->scale * o);
        }
        const int64_t slot = args->token_slots ? gdn_cpu_slot(problem, args->token_slots, row * T + t) : -1;
        if (slot >= 0) {
            gdn_decode_store_tile(args->state, &problem->state, gdn_cpu_state_offset(&problem->state, slot, hv), v0,
                                  columns, K, tile);
        }
    }

    const gdn_state_layout *layout;
    int64_t at;
    void *const dst = final_state(wave, row, hv, &layout, &at);
    if (dst) {
        gdn_decode_store_tile(dst, layout, at, v0, columns, K, tile);
    }
}

/* One item is ITEM_COLUMNS columns of one head of one row of the wave. */
static void update_range(const void *data, int64_t begin, int64_t end)
{
    const decode_wave *const wave = data;
    const gdn_problem *const problem = wave->problem;
    const int32_t V = problem->head_v_dim;
    const int64_t items = (V - 1) / ITEM_COLUMNS + 1;
    const int32_t width = gdn_decode_tile_columns(problem->head_k_dim);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = wave->first_row + i / items / problem->num_v_heads;
        const int32_t hv = (int32_t)(i / items % problem->num_v_heads);
        const int32_t first = (int32_t)(i % items) * ITEM_COLUMNS;
        const int32_t past = V - first < ITEM_COLUMNS ? V : first + ITEM_COLUMNS;
        if (skipped(wave, row)) {
            continue;
        }
        if (tokens_of(wave, row) == 0) {
            if (first == 0) {
                pass_on(wave, row, hv);
            }
            continue;
        }
        for (int32_t v0 = first; v0 < past; v0 += width) {
            run_tile(wave, row, hv, v0, past - v0 < width ? past - v0 : width);
        }
    }
}

static gdn_status decode(const gdn_device *device, const gdn_decode_run *run)
{
    const gdn_problem *const problem = run->problem;
    const int64_t items = (problem->head_v_dim - 1) / ITEM_COLUMNS + 1;
    const int64_t *const param = run->choice->param;
    decode_wave wave = {
        .problem = problem,
        .args = run->args,
        .q = (float *)(void *)(run->workspace + param[PARAM_Q]),
        .k = (float *)(void *)(run->workspace + param[PARAM_K]),
        .decay = (float *)(void *)(run->workspace + param[PARAM_DECAY]),
        .beta = (float *)(void *)(run->workspace + param[PARAM_BETA]),
    };
    for (int64_t first = 0; first < run->args->num_rows; first += param[PARAM_ROWS]) {
        const int64_t left = run->args->num_rows - first;
        const int64_t rows = left < param[PARAM_ROWS] ? left : param[PARAM_ROWS];
        wave.first_row = first;
        gdn_cpu_parallel_for(device, rows * problem->tokens_per_row,
                             problem->num_k_heads * problem->head_k_dim + 100 * problem->num_v_heads, prepare_range,
                             &wave);
        gdn_cpu_parallel_for(device, rows * problem->num_v_heads * items,
                             problem->tokens_per_row * problem->head_k_dim * ITEM_COLUMNS, update_range, &wave);
    }
    return GDN_OK;
}

const gdn_implementation gdn_cpu_plain_decode = {
    .name = "cpu.plain_decode",
    .summary = "token recurrence in plain C, one pass over the state",
    .operation = GDN_OPERATION_DECODE,
    .supports = supports,
    .book = book,
    .decode = decode,
};
