/* fused_prefill.h
 *
 * An item of work is one sequence, some key heads, some value heads of each, and some panels of their states: as many as
 * advance chunk by chunk together in the second-level cache. A thread takes a few items of a sequence at once and advances
 * them span by span. Items share nothing they write, and no item's bits depend on how the others are cut, so the cut may
 * follow the thread count. */
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
    STATE_BYTES = 256 << 10, /* of one item: a quarter of a usual second-level cache */
    /* Tokens that one item after another advances by, and the most items of a bundle. What they read of a token stands side
     * by side in memory, and its page is found again as long as few others came between: the translations of all pages of
     * 8192 tokens would fill the caches by themselves. */
    SPAN = 256,
    MAX_BUNDLE = 8,
    PARAM_OFFSET = 0,
    PARAM_LANE_BYTES,
    PARAM_LANES,
    PARAM_STATES, /* of one item */
    PARAM_POOL /* states of all lanes */
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
    const size_t state_bytes = gdn_fused_state_floats(problem) * sizeof(float);
    int states = (int)(STATE_BYTES / state_bytes);
    states = states < 1 ? 1 : (states < problem->num_v_heads ? states : problem->num_v_heads);

    /* No more lanes than there can be items. */
    int64_t lanes = MAX_LANES;
    const int64_t smallest_items = (int64_t)problem->num_v_heads * gdn_fused_panels(problem);
    if (problem->max_seqs < MAX_LANES && problem->max_seqs * smallest_items < lanes) {
        lanes = problem->max_seqs * smallest_items;
    }
    const size_t work_bytes = gdn_chunk_work_bytes(kernels, problem, chunk);
    size_t lane_bytes = work_bytes + (size_t)states * state_bytes;
    if (max_workspace != 0) {
        const size_t room = max_workspace > choice->ledger.total ? max_workspace - choice->ledger.total : 0;
        if (room < lane_bytes) {
            states = 1;
            lane_bytes = work_bytes + state_bytes;
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
    choice->param[PARAM_LANE_BYTES] = (int64_t)work_bytes;
    choice->param[PARAM_LANES] = lanes;
    choice->param[PARAM_STATES] = states;
    choice->param[PARAM_POOL] = lanes * states;
    return GDN_OK;
}

/* ----------------------------------------------------------------------------------- How work is cut */

typedef struct item_cut {
    int keys; /* key heads of an item */
    int key_parts;
    int heads; /* value heads of each of its key heads */
    int head_parts;
    int panels; /* panels of each of their states */
    int panel_parts;
    int64_t items;
    int bundle; /* items of one sequence that a thread takes at once */
    int64_t bundles;
} item_cut;

static item_cut cut_of(const gdn_prefill_run *run, int keys, int heads, int panels)
{
    const gdn_problem *p = run->problem;
    const int group = p->num_v_heads / p->num_k_heads;
    item_cut cut = {.keys = keys, .heads = heads, .panels = panels};
    cut.key_parts = (p->num_k_heads + keys - 1) / keys;
    cut.head_parts = (group + heads - 1) / heads;
    cut.panel_parts = (gdn_fused_panels(p) + panels - 1) / panels;
    cut.items = run->args->num_seqs * cut.key_parts * cut.head_parts * cut.panel_parts;
    return cut;
}

/* The cut with the shortest estimated time: rounds of items on the team, times what an item costs. Of equals the widest:
 * heads side by side in memory share its pages, and each token's row is in another page. */
static item_cut choose_cut(const gdn_prefill_run *run, int team)
{
    const gdn_problem *p = run->problem;
    const int all = gdn_fused_panels(p), group = p->num_v_heads / p->num_k_heads;
    const int states = (int)run->choice->param[PARAM_STATES];
    const int most_heads = states < group ? states : group;
    const int most_keys = states / most_heads < p->num_k_heads ? states / most_heads : p->num_k_heads;
    item_cut best = {0};
    double best_cost = -1.0;
    for (int keys = most_keys; keys >= 1; keys /= 2) {
        for (int heads = most_heads; heads >= 1; heads /= 2) {
            for (int panels = all; panels >= 1; panels /= 2) {
                const item_cut cut = cut_of(run, keys, heads, panels);
                const double rounds = (double)((cut.items + team - 1) / team);
                const double cost = rounds * keys * ((double)heads * panels / all + SHARED_COST);
                if (best_cost < 0.0 || cost < 0.99 * best_cost) {
                    best = cut;
                    best_cost = cost;
                }
            }
        }
    }
    return best;
}

static int64_t items_of_sequence(const item_cut *cut)
{
    return (int64_t)cut->key_parts * cut->head_parts * cut->panel_parts;
}

static int64_t round_up_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The largest bundle that has scratch and takes no longer than single items. */
static void choose_bundle(const gdn_prefill_run *run, int team, item_cut *cut)
{
    const int64_t of_sequence = items_of_sequence(cut), sequences = run->args->num_seqs;
    const int64_t room = run->choice->param[PARAM_POOL] / team / run->choice->param[PARAM_STATES];
    const int64_t alone = round_up_div(cut->items, team);
    cut->bundle = 1;
    cut->bundles = cut->items;
    for (int bundle = 2; bundle <= MAX_BUNDLE && bundle <= room && bundle <= of_sequence; bundle++) {
        const int64_t bundles = sequences * round_up_div(of_sequence, bundle);
        if (round_up_div(bundles, team) * bundle <= alone) {
            cut->bundle = bundle;
            cut->bundles = bundles;
        }
    }
}

/* What an item is, by its number. */
typedef struct item_part {
    int64_t seq;
    int first_key, keys;
    int first_head, heads; /* within the group of a key head */
    int first_panel, end_panel;
} item_part;

/* Part `i` of `size` things each, of `count`. */
static void part_of(int i, int size, int count, int *first, int *got)
{
    *first = i * size;
    *got = *first + size < count ? size : count - *first;
}

static item_part part_of_item(const gdn_problem *p, const item_cut *cut, int64_t item)
{
    item_part part;
    int panels;
    part_of((int)(item % cut->panel_parts), cut->panels, gdn_fused_panels(p), &part.first_panel, &panels);
    part.end_panel = part.first_panel + panels;
    item /= cut->panel_parts;
    part_of((int)(item % cut->head_parts), cut->heads, p->num_v_heads / p->num_k_heads, &part.first_head, &part.heads);
    item /= cut->head_parts;
    part_of((int)(item % cut->key_parts), cut->keys, p->num_k_heads, &part.first_key, &part.keys);
    part.seq = item / cut->key_parts;
    return part;
}

/* Its value heads, numbered from 0: the heads of its first key head, then of the next. */
static int part_head(const gdn_problem *p, const item_part *part, int i)
{
    return gdn_group_head(p, part->first_key + i / part->heads, part->first_head + i % part->heads);
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
static void pass_on(const gdn_problem *p, const gdn_state_place *place, const item_part *part)
{
    if (!place->target || part->first_panel != 0) {
        return;
    }
    for (int i = 0; i < part->keys * part->heads; i++) {
        const int hv = part_head(p, part, i);
        gdn_cpu_state_copy(place->target, place->target_layout,
                           place->target_offset + hv * place->target_layout->head_stride, place->source,
                           place->source_layout, place->source_offset + hv * place->source_layout->head_stride,
                           p->head_k_dim, p->head_v_dim);
    }
}

/* What a bundle works on. */
typedef struct sequence_run {
    const gdn_prefill_run *run;
    gdn_fused_sequence seq;
    gdn_state_place place;
    int64_t first_checkpoint;
} sequence_run;

/* Tokens first .. end - 1 of one item: its heads advance chunk by chunk together; those of one key head share what
 * gdn_chunk_pack makes. Then `next` follows, from token next_t on. Returns the first checkpoint that is left, of those from
 * `checkpoint` on. */
static int64_t run_span(gdn_chunk_work *w, const sequence_run *s, const item_part *part, float *state, int64_t first,
                        int64_t end, const item_part *next, int64_t next_t, int64_t checkpoint)
{
    const gdn_problem *p = w->problem;
    const size_t state_floats = gdn_fused_state_floats(p);
    gdn_chunk_checkpoints checkpoints = {0};
    for (int64_t t = first; t < end; t += w->chunk) {
        const int tokens = end - t < w->chunk ? (int)(end - t) : w->chunk;
        const bool within = t + tokens < end;
        const int64_t then = within ? t + tokens : next_t, left = (within ? end : s->seq.length) - then;
        gdn_chunk_step step = {
            .next_tokens = left < w->chunk ? (int)left : w->chunk,
            .next_t = then,
            .next_key_heads = within ? 0 : next->first_key - part->first_key,
            .next_value_heads = within ? 0 : part_head(p, next, 0) - part_head(p, part, 0),
            .parts = part->heads,
            .first = t == 0,
            .last = t + tokens == s->seq.length,
            .place = &s->place,
            .checkpoints = &checkpoints,
        };
        find_checkpoints(s->run, &s->seq, s->first_checkpoint, &checkpoint, t, tokens, &checkpoints);
        for (int i = 0; i < part->keys * part->heads; i++) {
            const int hv = part_head(p, part, i);
            step.part = i % part->heads;
            if (step.part == 0) {
                gdn_chunk_pack(w, &s->seq, part->first_key + i / part->heads, t, tokens);
            }
            gdn_chunk_gates(w, &s->seq, hv, t, tokens);
            gdn_chunk_panels(w, &s->seq, hv, t, tokens, state + (size_t)i * state_floats, part->first_panel,
                             part->end_panel, &step);
        }
    }
    return checkpoint;
}

static void run_bundle(gdn_chunk_work *w, const gdn_prefill_run *run, const item_cut *cut, int64_t bundle)
{
    const gdn_problem *p = run->problem;
    const int64_t of_sequence = items_of_sequence(cut), bundles = round_up_div(of_sequence, cut->bundle);
    const int64_t n = bundle / bundles, first = bundle % bundles * cut->bundle;
    const int count = of_sequence - first < cut->bundle ? (int)(of_sequence - first) : cut->bundle;
    const gdn_state_args states = state_args(run);
    if (gdn_fused_is_skipped(p, &states, n)) {
        return;
    }
    sequence_run s = {run, sequence_of(run, n), gdn_fused_state_place(p, &states, n), 0};
    if (p->checkpoint_form != GDN_CHECKPOINT_NONE) {
        s.first_checkpoint = checkpoints_before(run, n);
    }
    item_part parts[MAX_BUNDLE];
    for (int i = 0; i < count; i++) {
        parts[i] = part_of_item(p, cut, n * of_sequence + first + i);
        if (s.seq.length == 0) {
            pass_on(p, &s.place, &parts[i]);
        }
    }
    const int64_t span = count > 1 ? SPAN / w->chunk * w->chunk : s.seq.length;
    const size_t item_floats = (size_t)run->choice->param[PARAM_STATES] * gdn_fused_state_floats(p);
    int64_t checkpoint = s.first_checkpoint, next_checkpoint = checkpoint;
    for (int64_t t = 0; t < s.seq.length; t += span, checkpoint = next_checkpoint) {
        const int64_t end = s.seq.length - t < span ? s.seq.length : t + span;
        for (int i = 0; i < count; i++) {
            const bool last = i + 1 == count;
            next_checkpoint = run_span(w, &s, &parts[i], w->state + (size_t)i * item_floats, t, end,
                                       &parts[last ? 0 : i + 1], last ? end : t, checkpoint);
        }
    }
}

/* --------------------------------------------------------------------------------------------- Run */

/* Scratch of thread `lane` of a team. */
static gdn_chunk_work work_of(const gdn_cpu_kernels *kernels, const gdn_prefill_run *run, int lane, int team)
{
    const int64_t *param = run->choice->param;
    unsigned char *base = run->workspace + param[PARAM_OFFSET];
    gdn_chunk_work work = {
        .kernels = kernels,
        .problem = run->problem,
        .args = run->args,
        .chunk = run->choice->chunk_size,
    };
    gdn_chunk_work_place(&work, base + lane * param[PARAM_LANE_BYTES]);
    float *pool = (float *)(void *)(base + param[PARAM_LANES] * param[PARAM_LANE_BYTES]);
    work.state = pool + (size_t)(lane * (param[PARAM_POOL] / team)) * gdn_fused_state_floats(run->problem);
    return work;
}

gdn_status gdn_fused_prefill_run(const gdn_cpu_kernels *kernels, int threads, const gdn_prefill_run *run)
{
    const int64_t lanes = run->choice->param[PARAM_LANES];
    int team = threads < lanes ? threads : (int)lanes;
    item_cut cut = choose_cut(run, team);
    team = cut.items < team ? (int)cut.items : team;
    choose_bundle(run, team, &cut);
#ifdef _OPENMP
    if (team > 1) {
#pragma omp parallel num_threads(team)
        {
            const uint64_t mode = gdn_float_mode_flush();
            gdn_chunk_work work = work_of(kernels, run, omp_get_thread_num(), team);
            if (kernels->thread_begin) {
                kernels->thread_begin();
            }
#pragma omp for schedule(dynamic, 1)
            for (int64_t bundle = 0; bundle < cut.bundles; bundle++) {
                run_bundle(&work, run, &cut, bundle);
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
    gdn_chunk_work work = work_of(kernels, run, 0, 1);
    if (kernels->thread_begin) {
        kernels->thread_begin();
    }
    for (int64_t bundle = 0; bundle < cut.bundles; bundle++) {
        run_bundle(&work, run, &cut, bundle);
    }
    if (kernels->thread_end) {
        kernels->thread_end();
    }
    gdn_float_mode_restore(mode);
    return GDN_OK;
}
