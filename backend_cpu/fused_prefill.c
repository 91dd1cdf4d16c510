/* fused_prefill.h
 *
 * An item of work is one sequence, some value heads of one key head, and some panels of their states. Items share
 * nothing they write, and no item's bits depend on how the others are cut, so the cut may follow the thread count. */
#include "fused_prefill.h"

#include <stdio.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "cpu_state_io.h"
#include "float_mode.h"
#include "fused_chunk.h"
#include "fused_rows.h"
#include "fused_state.h"
#include "numeric.h"

enum {
    DEFAULT_CHUNK = 16, /* kernels/README.md has the measurements */
    DEFAULT_CHUNK_BF16 = 32,
    MAX_LANES = 64, /* threads that a plan books scratch for; a larger team uses so many */
    STATE_BYTES = 512 << 10, /* of one item: half of a usual second-level cache */
    PARAM_OFFSET = 0,
    PARAM_LANE_BYTES,
    PARAM_LANES,
    PARAM_HEADS
};

/* Cost of what the heads of a group share, against that of one head: where the work is cut, it is done again. */
static const double SHARED_COST = 0.12;

/* ---------------------------------------------------------------------------------------------- Plan */

bool gdn_fused_prefill_supports(const gdn_cpu_kernels *kernels, const gdn_problem *problem, gdn_reason *reason)
{
    const bool pairs = kernels->pair_rows != NULL;
    const int k_multiple = pairs ? 2 * GDN_TOKEN_BLOCK : GDN_TOKEN_BLOCK;
    if (problem->head_k_dim % k_multiple != 0) {
        snprintf(reason->text, sizeof(reason->text), "head_k_dim %d is not a multiple of %d", (int)problem->head_k_dim,
                 k_multiple);
        return false;
    }
    if (problem->head_v_dim % GDN_TOKEN_BLOCK != 0) {
        snprintf(reason->text, sizeof(reason->text), "head_v_dim %d is not a multiple of %d", (int)problem->head_v_dim,
                 GDN_TOKEN_BLOCK);
        return false;
    }
    if (pairs != (problem->numerics == GDN_NUMERICS_BF16) || problem->numerics == GDN_NUMERICS_TF32) {
        snprintf(reason->text, sizeof(reason->text), "products are %s, which numerics does not ask for",
                 pairs ? "bfloat16" : "float32");
        return false;
    }
    if (problem->num_segments > 1) {
        snprintf(reason->text, sizeof(reason->text), "num_segments %d: sequences are not cut into segments",
                 (int)problem->num_segments);
        return false;
    }
    return true;
}

static int chunk_of(const gdn_cpu_kernels *kernels, const gdn_problem *problem)
{
    const int multiple = kernels->pair_rows ? 2 * GDN_TOKEN_BLOCK : GDN_TOKEN_BLOCK;
    if (problem->chunk_size == 0) {
        return kernels->pair_rows ? DEFAULT_CHUNK_BF16 : DEFAULT_CHUNK;
    }
    const int hint = problem->chunk_size < GDN_MAX_CHUNK ? (int)problem->chunk_size : GDN_MAX_CHUNK;
    return (hint + multiple - 1) / multiple * multiple;
}

gdn_status gdn_fused_prefill_book(const gdn_cpu_kernels *kernels, const gdn_problem *problem, size_t max_workspace,
                                  gdn_choice *choice)
{
    const int chunk = chunk_of(kernels, problem);
    const int group = problem->num_v_heads / problem->num_k_heads;
    const size_t state_bytes = gdn_fused_state_floats(problem) * sizeof(float);
    int heads = (int)(STATE_BYTES / state_bytes);
    heads = heads < 1 ? 1 : (heads < group ? heads : group);

    /* No more lanes than there can be items. */
    int64_t lanes = MAX_LANES;
    const int64_t smallest_items = (int64_t)problem->num_v_heads * gdn_fused_panels(problem);
    if (problem->max_seqs < MAX_LANES && problem->max_seqs * smallest_items < lanes) {
        lanes = problem->max_seqs * smallest_items;
    }
    size_t lane_bytes = gdn_chunk_work_bytes(kernels, problem, chunk, heads);
    if (max_workspace != 0) {
        const size_t room = max_workspace > choice->ledger.total ? max_workspace - choice->ledger.total : 0;
        if (room < lane_bytes) {
            heads = 1;
            lane_bytes = gdn_chunk_work_bytes(kernels, problem, chunk, heads);
        }
        const size_t align = GDN_WORKSPACE_ALIGNMENT;
        const size_t fit = room / align * align / lane_bytes;
        if (fit < 1) {
            return gdn_fail(GDN_ERROR_UNSUPPORTED, "max_workspace: %zu, must be at least %zu", max_workspace,
                            choice->ledger.total + (lane_bytes + align - 1) / align * align);
        }
        lanes = (int64_t)fit < lanes ? (int64_t)fit : lanes;
    }
    choice->chunk_size = chunk;
    choice->wave_chunks = 0;
    choice->param[PARAM_OFFSET] =
        (int64_t)gdn_ledger_book(&choice->ledger, "fused prefill", gdn_size_mul((size_t)lanes, lane_bytes));
    choice->param[PARAM_LANE_BYTES] = (int64_t)lane_bytes;
    choice->param[PARAM_LANES] = lanes;
    choice->param[PARAM_HEADS] = heads;
    return GDN_OK;
}

/* ----------------------------------------------------------------------------------- How work is cut */

typedef struct item_cut {
    int heads; /* value heads of an item */
    int head_parts; /* items for the value heads of a key head */
    int panels; /* panels of an item */
    int panel_parts;
    int64_t items;
} item_cut;

static item_cut cut_of(const gdn_prefill_run *run, int heads, int panels)
{
    const gdn_problem *p = run->problem;
    const int group = p->num_v_heads / p->num_k_heads;
    item_cut cut = {.heads = heads, .panels = panels};
    cut.head_parts = (group + heads - 1) / heads;
    cut.panel_parts = (gdn_fused_panels(p) + panels - 1) / panels;
    cut.items = run->args->num_seqs * p->num_k_heads * cut.head_parts * cut.panel_parts;
    return cut;
}

/* The cut with the shortest estimated time: rounds of items on the team, times what an item costs. */
static item_cut choose_cut(const gdn_prefill_run *run, int team)
{
    const int all = gdn_fused_panels(run->problem);
    item_cut best = cut_of(run, (int)run->choice->param[PARAM_HEADS], all);
    double best_cost = -1.0;
    for (int heads = best.heads; heads >= 1; heads /= 2) {
        for (int panels = all; panels >= 1; panels /= 2) {
            const item_cut cut = cut_of(run, heads, panels);
            const double rounds = (double)((cut.items + team - 1) / team);
            const double cost = rounds * ((double)heads * panels / all + SHARED_COST);
            if (best_cost < 0.0 || cost < 0.99 * best_cost) {
                best = cut;
                best_cost = cost;
            }
        }
    }
    return best;
}

/* ------------------------------------------------------------------------------------ One sequence */

static gdn_fused_sequence sequence_of(const gdn_prefill_run *run, int64_t n)
{
    const gdn_prefill_args *a = run->args;
    gdn_fused_sequence seq = {.index = n};
    if (a->cu_seqlens) {
        seq.first = gdn_load_index(a->cu_seqlens, run->problem->cu_seqlens_dtype, n);
        seq.length = gdn_load_index(a->cu_seqlens, run->problem->cu_seqlens_dtype, n + 1) - seq.first;
    } else {
        seq.row = n;
        seq.length = a->total_tokens / a->num_seqs;
    }
    return seq;
}

static gdn_state_args state_args(const gdn_prefill_run *run)
{
    const gdn_prefill_args *a = run->args;
    return (gdn_state_args){a->state, a->final_state, a->read_slots, a->write_slots, a->has_initial_state};
}

/* The entries of sequence `n` start at *first; returns how many there are. */
static int64_t checkpoints_before(const gdn_prefill_run *run, int64_t n)
{
    const gdn_problem *p = run->problem;
    if (p->checkpoint_form == GDN_CHECKPOINT_AT) {
        return gdn_load_index(run->args->checkpoint_offsets, p->checkpoint_index_dtype, n);
    }
    int64_t first = 0;
    for (int64_t i = 0; i < n; i++) {
        first += sequence_of(run, i).length / p->checkpoint_interval;
    }
    return first;
}

/* Checkpoints after tokens t + 1 .. t + n of the sequence. *next: the first entry not yet stored. */
static void find_checkpoints(const gdn_prefill_run *run, const gdn_fused_sequence *seq, int64_t first, int64_t *next,
                             int64_t t, int n, gdn_chunk_checkpoints *found)
{
    const gdn_problem *p = run->problem;
    found->count = 0;
    found->first = *next;
    if (p->checkpoint_form == GDN_CHECKPOINT_NONE || !run->args->checkpoints) {
        return;
    }
    const bool at = p->checkpoint_form == GDN_CHECKPOINT_AT;
    const int64_t end =
        at ? gdn_load_index(run->args->checkpoint_offsets, p->checkpoint_index_dtype, seq->index + 1) : INT64_MAX;
    for (; *next < end; ++*next) {
        const int64_t position = at ? gdn_load_index(run->args->checkpoint_positions, p->checkpoint_index_dtype, *next)
                                    : (*next - first + 1) * p->checkpoint_interval;
        if (position > t + n) {
            return;
        }
        found->tokens[found->count++] = (int)(position - t);
    }
}

/* A sequence of no tokens: its states are copied, bit for bit where the types agree. */
static void pass_on(const gdn_problem *p, const gdn_state_place *place, int hk, int first_head, int heads)
{
    for (int h = 0; place->target && h < heads; h++) {
        const int hv = gdn_group_head(p, hk, first_head + h);
        gdn_cpu_state_copy(place->target, place->target_layout,
                           place->target_offset + hv * place->target_layout->head_stride, place->source,
                           place->source_layout, place->source_offset + hv * place->source_layout->head_stride,
                           p->head_k_dim, p->head_v_dim);
    }
}

/* One item: its heads advance chunk by chunk together, so that they share what gdn_chunk_pack makes. */
static void run_item(gdn_chunk_work *w, const gdn_prefill_run *run, const item_cut *cut, int64_t item)
{
    const gdn_problem *p = run->problem;
    const int group = p->num_v_heads / p->num_k_heads, panels = gdn_fused_panels(p);
    const size_t state_floats = gdn_fused_state_floats(p);
    const int first_panel = (int)(item % cut->panel_parts) * cut->panels;
    item /= cut->panel_parts;
    const int first_head = (int)(item % cut->head_parts) * cut->heads;
    item /= cut->head_parts;
    const int hk = (int)(item % p->num_k_heads);
    const int64_t n = item / p->num_k_heads;
    const int end_panel = first_panel + cut->panels < panels ? first_panel + cut->panels : panels;
    const int heads = first_head + cut->heads < group ? cut->heads : group - first_head;

    const gdn_state_args states = state_args(run);
    if (gdn_fused_is_skipped(p, &states, n)) {
        return;
    }
    const gdn_fused_sequence seq = sequence_of(run, n);
    const gdn_state_place place = gdn_fused_state_place(p, &states, n);
    if (seq.length == 0) {
        pass_on(p, &place, hk, first_head, first_panel == 0 ? heads : 0);
        return;
    }
    for (int h = 0; h < heads; h++) {
        const int hv = gdn_group_head(p, hk, first_head + h);
        float *state = w->state + (size_t)h * state_floats;
        if (!place.source) {
            memset(state, 0, state_floats * sizeof(float));
            continue;
        }
        for (int panel = first_panel; panel < end_panel; panel++) {
            gdn_fused_load_panel(w->kernels, p, place.source_layout, place.source,
                                 place.source_offset + hv * place.source_layout->head_stride, panel,
                                 state + (size_t)panel * (size_t)p->head_k_dim * GDN_PANEL, w->stage);
        }
    }
    gdn_chunk_checkpoints checkpoints = {0};
    const int64_t first_checkpoint = p->checkpoint_form == GDN_CHECKPOINT_NONE ? 0 : checkpoints_before(run, n);
    int64_t next_checkpoint = first_checkpoint;
    for (int64_t t = 0; t < seq.length; t += w->chunk) {
        const int tokens = seq.length - t < w->chunk ? (int)(seq.length - t) : w->chunk;
        const int64_t left = seq.length - t - tokens;
        gdn_next_chunk next = {.tokens = left < w->chunk ? (int)left : w->chunk, .parts = heads};
        find_checkpoints(run, &seq, first_checkpoint, &next_checkpoint, t, tokens, &checkpoints);
        gdn_chunk_pack(w, &seq, hk, t, tokens);
        for (int h = 0; h < heads; h++) {
            const int hv = gdn_group_head(p, hk, first_head + h);
            next.part = h;
            gdn_chunk_gates(w, &seq, hv, t, tokens);
            gdn_chunk_panels(w, &seq, hv, t, tokens, w->state + (size_t)h * state_floats, first_panel, end_panel, &next,
                             &checkpoints);
        }
    }
    if (!place.target) {
        return;
    }
    for (int h = 0; h < heads; h++) {
        const int hv = gdn_group_head(p, hk, first_head + h);
        for (int panel = first_panel; panel < end_panel; panel++) {
            gdn_fused_store_panel(
                w->kernels, p, place.target_layout, place.target,
                place.target_offset + hv * place.target_layout->head_stride, panel,
                w->state + (size_t)h * state_floats + (size_t)panel * (size_t)p->head_k_dim * GDN_PANEL, w->stage);
        }
    }
}

/* --------------------------------------------------------------------------------------------- Run */

static gdn_chunk_work work_of(const gdn_cpu_kernels *kernels, const gdn_prefill_run *run, int lane)
{
    gdn_chunk_work work = {
        .kernels = kernels,
        .problem = run->problem,
        .args = run->args,
        .chunk = run->choice->chunk_size,
    };
    gdn_chunk_work_place(&work, (int)run->choice->param[PARAM_HEADS],
                         run->workspace + run->choice->param[PARAM_OFFSET] +
                             lane * run->choice->param[PARAM_LANE_BYTES]);
    return work;
}

gdn_status gdn_fused_prefill_run(const gdn_cpu_kernels *kernels, int threads, const gdn_prefill_run *run)
{
    const int64_t lanes = run->choice->param[PARAM_LANES];
    int team = threads < lanes ? threads : (int)lanes;
    const item_cut cut = choose_cut(run, team);
    team = cut.items < team ? (int)cut.items : team;
#ifdef _OPENMP
    if (team > 1) {
#pragma omp parallel num_threads(team)
        {
            const uint64_t mode = gdn_float_mode_flush();
            gdn_chunk_work work = work_of(kernels, run, omp_get_thread_num());
            if (kernels->thread_begin) {
                kernels->thread_begin();
            }
#pragma omp for schedule(dynamic, 1)
            for (int64_t item = 0; item < cut.items; item++) {
                run_item(&work, run, &cut, item);
            }
            if (kernels->thread_end) {
                kernels->thread_end();
            }
            gdn_float_mode_restore(mode);
        }
        return GDN_OK;
    }
#endif
    const uint64_t mode = gdn_float_mode_flush();
    gdn_chunk_work work = work_of(kernels, run, 0);
    if (kernels->thread_begin) {
        kernels->thread_begin();
    }
    for (int64_t item = 0; item < cut.items; item++) {
        run_item(&work, run, &cut, item);
    }
    if (kernels->thread_end) {
        kernels->thread_end();
    }
    gdn_float_mode_restore(mode);
    return GDN_OK;
}
