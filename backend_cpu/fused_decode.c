/* fused_decode.h
 *
 * Columns of a state are independent of one another. A block of them (16 rows of a [V, K] state, some columns of a [K, V]
 * one; of either up to a whole head where the row has one token) stays in cache while it goes through all tokens of the row;
 * it is read from memory with the first and written with the last. An item of work is some blocks of one value head of one
 * row. */
#include "fused_decode.h"

#include <stdio.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "cpu_state_io.h"
#include "float_mode.h"
#include "fused_decode_block.h"
#include "fused_rows.h"
#include "fused_share.h"
#include "numeric.h"

enum {
    ROWS = GDN_TOKEN_BLOCK, /* of a [V, K] state */
    COLUMNS = 32, /* of a [K, V] state whose block goes through the tile: two threads of a core find room for theirs */
    PARAM_OFFSET = 0,
    PARAM_LANE_BYTES,
    PARAM_LANES
};

/* ---------------------------------------------------------------------------------------------- Plan */

bool gdn_fused_decode_supports(const gdn_problem *problem, gdn_reason *reason)
{
    if (problem->head_k_dim % GDN_TOKEN_BLOCK != 0 || problem->head_v_dim % GDN_TOKEN_BLOCK != 0) {
        snprintf(reason->text, sizeof(reason->text), "head_k_dim %d, head_v_dim %d: not both multiples of %d",
                 (int)problem->head_k_dim, (int)problem->head_v_dim, GDN_TOKEN_BLOCK);
        return false;
    }
    if (problem->numerics == GDN_NUMERICS_TF32 || problem->numerics == GDN_NUMERICS_BF16) {
        snprintf(reason->text, sizeof(reason->text), "products are float32 only");
        return false;
    }
    const gdn_state_layout *target = problem->state_form == GDN_STATE_POOL ? &problem->state : &problem->final_state;
    if ((problem->state.k_stride == 1) != (target->k_stride == 1)) {
        snprintf(reason->text, sizeof(reason->text), "state and final_state: one is [V, K], the other [K, V]");
        return false;
    }
    return true;
}

static size_t tile_floats(const gdn_problem *problem)
{
    return (size_t)problem->head_k_dim * (problem->state.k_stride == 1 ? ROWS : COLUMNS);
}

static size_t lane_bytes(const gdn_problem *problem)
{
    const size_t vectors = (size_t)problem->tokens_per_row * (size_t)problem->head_k_dim;
    return (2 * vectors + tile_floats(problem)) * sizeof(float) + GDN_LANE_GAP;
}

gdn_status gdn_fused_decode_book(int threads, const gdn_problem *problem, size_t max_workspace, gdn_choice *choice)
{
    const size_t bytes = lane_bytes(problem), align = GDN_WORKSPACE_ALIGNMENT;
    const int64_t items = problem->max_seqs * problem->num_v_heads * (problem->head_v_dim / ROWS);
    int64_t lanes = threads < items ? threads : items;
    if (max_workspace != 0) {
        const size_t room = max_workspace > choice->ledger.total ? max_workspace - choice->ledger.total : 0;
        const size_t fit = room / align * align / bytes;
        if (fit < 1) {
            return gdn_fail(GDN_ERROR_UNSUPPORTED, "max_workspace: %zu, must be at least %zu", max_workspace,
                            choice->ledger.total + (bytes + align - 1) / align * align);
        }
        lanes = (int64_t)fit < lanes ? (int64_t)fit : lanes;
    }
    choice->chunk_size = 0;
    choice->wave_chunks = 0;
    choice->param[PARAM_OFFSET] =
        (int64_t)gdn_ledger_book(&choice->ledger, "fused decode", gdn_size_mul((size_t)lanes, bytes));
    choice->param[PARAM_LANE_BYTES] = (int64_t)bytes;
    choice->param[PARAM_LANES] = lanes;
    return GDN_OK;
}

/* --------------------------------------------------------------------------------------- One block */

/* Value heads of one key head share these. */
static void load_vectors(gdn_decode_work *w, int64_t row, int hk, int count)
{
    if (w->row == row && w->key_head == hk) {
        return;
    }
    w->row = row;
    w->key_head = hk;
    const gdn_problem *p = w->run->problem;
    const int K = p->head_k_dim, T = p->tokens_per_row;
    float factor[GDN_MAX_DECODE_TOKENS];
    const struct {
        const gdn_layout *layout;
        const void *data;
        float *dst;
    } source[2] = {{&p->q, w->run->args->q, w->q}, {&p->k, w->run->args->k, w->k}};
    for (int i = 0; i < 2; i++) {
        const gdn_layout *layout = source[i].layout;
        const int64_t offset = gdn_row_offset(layout, row, T, 0, hk);
        w->kernels->load_rows(layout->dtype, count, K, gdn_at(source[i].data, layout->dtype, offset),
                              layout->token_stride, source[i].dst, K);
        w->kernels->norm_factors(p->qk_norm, p->qk_norm_eps, 1.0f, count, K, source[i].dst, K, factor);
        w->kernels->scale_rows(count, K, factor, source[i].dst, K);
    }
    for (int t = 0; t < count; t++) {
        w->qk[t] = w->kernels->dot(K, w->q + t * K, w->k + t * K);
    }
}

static void load_terms(const gdn_decode_work *w, int64_t row, int hv, gdn_token_terms *terms)
{
    const gdn_problem *p = w->run->problem;
    const gdn_decode_args *a = w->run->args;
    const int T = p->tokens_per_row;
    double gate[GDN_MAX_DECODE_TOKENS], beta[GDN_MAX_DECODE_TOKENS];
    const int64_t gate_at = gdn_row_offset(&p->gate, row, T, 0, hv), beta_at = gdn_row_offset(&p->beta, row, T, 0, hv);
    for (int t = 0; t < terms->count; t++) {
        gate[t] = (double)gdn_load_element(a->gate, p->gate.dtype, gate_at + t * p->gate.token_stride);
        beta[t] = (double)gdn_load_element(a->beta, p->beta.dtype, beta_at + t * p->beta.token_stride);
        terms->alpha[t] = (float)gate[t];
        terms->qk[t] = w->qk[t];
    }
    const gdn_gate_terms formulas = {
        .gate_form = p->gate_form,
        .beta_form = p->beta_form,
        .A_log = a->A_log ? (double)a->A_log[hv] : 0.0,
        .dt_bias = a->dt_bias ? (double)a->dt_bias[hv] : 0.0,
        .beta_scale = (double)p->beta_scale,
    };
    w->kernels->gates(&formulas, terms->count, gate, beta, gate, beta);
    float log_decay[GDN_MAX_DECODE_TOKENS] = {0};
    for (int t = 0; t < terms->count; t++) {
        log_decay[t] = (float)gate[t];
        terms->beta[t] = (float)beta[t];
    }
    if (p->gate_form != GDN_GATE_DECAY) { /* a linear decay is used as it came */
        w->kernels->exp(GDN_MAX_DECODE_TOKENS, log_decay, terms->alpha);
    }
}

/* --------------------------------------------------------------------------------------------- Run */

/* The state changes its type on the way, by way of the tile. */
static bool narrowing(const gdn_problem *p, const gdn_state_place *place)
{
    return place->target && place->target_layout->dtype != GDN_DTYPE_F32 &&
           place->target_layout->dtype != p->state.dtype;
}

static void run_item(gdn_decode_work *w, int64_t row, int hv, int first, int end)
{
    const gdn_problem *p = w->run->problem;
    const gdn_decode_args *a = w->run->args;
    const gdn_state_args states = {a->state, a->final_state, a->read_slots, a->write_slots, a->has_initial_state};
    if (gdn_fused_is_skipped(p, &states, row)) {
        return;
    }
    const gdn_state_place place = gdn_fused_state_place(p, &states, row);
    gdn_token_terms terms = {.count = a->num_tokens ? a->num_tokens[row] : p->tokens_per_row};
    if (terms.count == 0) {
        if (place.target && first == 0) {
            gdn_cpu_state_copy(place.target, place.target_layout,
                               place.target_offset + hv * place.target_layout->head_stride, place.source,
                               place.source_layout, place.source_offset + hv * place.source_layout->head_stride,
                               p->head_k_dim, p->head_v_dim);
        }
        return;
    }
    load_vectors(w, row, gdn_key_head(p, hv), terms.count);
    load_terms(w, row, hv, &terms);
    const bool in_tile = terms.count > 1 || !place.source || a->token_slots || narrowing(p, &place);
    const bool v_rows = p->state.k_stride == 1;
    const int tiled = v_rows ? ROWS : COLUMNS, whole = v_rows ? GDN_DECODE_COLUMNS : w->kernels->decode_columns;
    const int block = in_tile ? tiled : whole;
    for (int at = first; at < end; at += block) {
        gdn_fused_decode_block(w, &place, row, hv, at, end - at < block ? end - at : block, &terms);
    }
}

typedef struct decode_cut {
    int parts; /* items for one value head of one row */
    int columns; /* of an item */
    int64_t items;
    int64_t own, batch; /* items of a thread's own bundle; of each bundle after those */
} decode_cut;

/* Whole heads where they share out evenly or there are many; else parts of them. */
static decode_cut choose_cut(const gdn_decode_run *run, int team)
{
    const gdn_problem *p = run->problem;
    const int64_t heads = run->args->num_rows * p->num_v_heads;
    int columns = p->head_v_dim;
    int parts = 1;
    while (columns > ROWS && heads * parts < 4 * (int64_t)team && heads * parts % team != 0) {
        columns = (columns / 2 + ROWS - 1) / ROWS * ROWS;
        parts = (p->head_v_dim + columns - 1) / columns;
    }
    return (decode_cut){.parts = parts, .columns = columns, .items = heads * parts};
}

/* A thread's own bundle is its whole share, side by side in memory: a thread that comes upon memory that it has not asked for waits,
 * and asking for what another thread writes makes that one wait. Of a large share the end is cut into bundles that still are
 * long, so that no thread waits long for another. */
static gdn_bundles share_out(decode_cut *cut, int team)
{
    enum { BATCHES = 8, LONG = 8 };
    const int64_t share = team > 0 ? cut->items / team : 0;
    cut->own = share;
    cut->batch = 1;
    if (team > 1 && share >= BATCHES * LONG) {
        cut->batch = share / BATCHES;
        cut->own = share - 2 * cut->batch;
    }
    const int64_t rest = cut->items - team * cut->own;
    return (gdn_bundles){.count = team + (rest + cut->batch - 1) / cut->batch, .lanes = team};
}

/* The first of v's columns, those of all rows and heads in one row, that belongs to an item. */
static int64_t first_column(const gdn_decode_work *w, const decode_cut *cut, int64_t item)
{
    return item / cut->parts * w->run->problem->head_v_dim + item % cut->parts * cut->columns;
}

static void run_items(gdn_decode_work *w, const decode_cut *cut, int64_t item, int64_t end)
{
    const gdn_problem *p = w->run->problem;
    w->end_column = first_column(w, cut, end);
    for (; item < end; item++) {
        const int64_t head = item / cut->parts;
        const int first = (int)(item % cut->parts) * cut->columns;
        const int end_column = first + cut->columns < p->head_v_dim ? first + cut->columns : p->head_v_dim;
        run_item(w, head / p->num_v_heads, (int)(head % p->num_v_heads), first, end_column);
    }
}

static gdn_decode_work work_of(const gdn_cpu_kernels *kernels, const gdn_decode_run *run, int lane)
{
    const gdn_problem *p = run->problem;
    const size_t vectors = (size_t)p->tokens_per_row * (size_t)p->head_k_dim;
    unsigned char *base =
        run->workspace + run->choice->param[PARAM_OFFSET] + lane * run->choice->param[PARAM_LANE_BYTES];
    gdn_decode_work work = {.kernels = kernels, .run = run, .row = -1, .tile = (float *)(void *)base};
    work.q = work.tile + tile_floats(p);
    work.k = work.q + vectors;
    return work;
}

/* What thread `lane` of a team does. */
static void run_lane(const gdn_cpu_kernels *kernels, const gdn_decode_run *run, const decode_cut *cut,
                     gdn_bundles *bundles, int lane)
{
    const uint64_t mode = gdn_float_mode_enter();
    const int64_t others = bundles->lanes * cut->own;
    gdn_decode_work work = work_of(kernels, run, lane);
    int turn = 0;
    for (int64_t i; (i = gdn_bundles_take(bundles, lane, &turn)) >= 0;) {
        if (i < bundles->lanes) {
            run_items(&work, cut, i * cut->own, (i + 1) * cut->own);
        } else {
            const int64_t first = others + (i - bundles->lanes) * cut->batch, end = first + cut->batch;
            run_items(&work, cut, first, end < cut->items ? end : cut->items);
        }
    }
    gdn_float_mode_restore(mode);
}

gdn_status gdn_fused_decode_run(const gdn_cpu_kernels *kernels, int threads, const gdn_decode_run *run)
{
    const int64_t lanes = run->choice->param[PARAM_LANES];
    int team = threads < lanes ? threads : (int)lanes;
    decode_cut cut = choose_cut(run, team);
    team = cut.items < team ? (int)cut.items : team;
    gdn_bundles bundles = share_out(&cut, team);
#ifdef _OPENMP
    if (team > 1) {
#pragma omp parallel num_threads(team)
        run_lane(kernels, run, &cut, &bundles, omp_get_thread_num());
        return GDN_OK;
    }
#endif
    run_lane(kernels, run, &cut, &bundles, 0);
    return GDN_OK;
}
