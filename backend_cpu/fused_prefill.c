/* fused_prefill.h
 *
 * An item of work is one sequence, some key heads, some value heads of each, and some panels of their states: as many as
 * advance chunk by chunk together in the second-level cache. A thread takes a few items of a sequence at once and advances
 * them span by span. Items share nothing they write, and no item's bits depend on how the others are cut, so the cut may
 * follow the thread count, and threads may take items over from one another. Where panels are fewer than threads, each item is
 * half of one, and threads without an item prepare chunks (fused_ahead.h). */
#include "fused_prefill.h"

#include <stdio.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "float_mode.h"
#include "fused_ahead.h"
#include "fused_chunk.h"
#include "fused_segments.h"
#include "fused_share.h"

enum {
    DEFAULT_CHUNK = 16, /* kernels/README.md has the measurements */
    DEFAULT_CHUNK_BF16 = 32,
    /* Tokens that one item of a bundle after another advances by. What they read of a token stands side
     * by side in memory, and its page is found again as long as few others came between: the translations of all pages of
     * 8192 tokens would fill the caches by themselves. */
    SPAN = 256,
    PARAM_OFFSET = 0,
    PARAM_LANE_BYTES,
    PARAM_LANES,
    PARAM_POOL, /* panels of state of all lanes, which lie apart there, too */
    PARAM_SEGMENTS, /* offset of what segments share */
    PARAM_AHEAD /* offset of chunks prepared ahead; -1: none are */
};

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
    if (pairs && problem->num_segments > 1) {
        snprintf(reason->text, sizeof(reason->text), "num_segments %d: segments are joined by float32 products only",
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

/* Takes lanes and panels away until they fit in `room` bytes, which hold a lane with a panel: lanes with an item each come
 * before longer bundles. */
static void fit_lanes(size_t room, size_t work_bytes, size_t panel_bytes, int64_t item, int64_t *lanes, int64_t *pool)
{
    const size_t lane_bytes = work_bytes + (size_t)gdn_smaller(item, *pool / *lanes) * panel_bytes;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a lane has a chunk's work, never nothing */
    const int64_t fit = (int64_t)(room / lane_bytes);
    *lanes = fit < 1 ? 1 : gdn_smaller(fit, *lanes);
    *pool = gdn_smaller(*pool, (int64_t)((room - (size_t)*lanes * work_bytes) / panel_bytes));
}

/* The offset of room for chunks prepared ahead, or -1: they can be done without. */
static int64_t book_ahead(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk, size_t max_workspace,
                          gdn_ledger *ledger)
{
    const size_t align = GDN_WORKSPACE_ALIGNMENT, bytes = gdn_ahead_bytes(kernels, problem, chunk);
    const bool fits = max_workspace == 0 || (max_workspace - ledger->total) / align * align >= bytes;
    return fits ? (int64_t)gdn_ledger_book(ledger, "chunks prepared ahead", bytes) : -1;
}

gdn_status gdn_fused_prefill_book(const gdn_cpu_kernels *kernels, int threads, const gdn_problem *problem,
                                  size_t max_workspace, gdn_choice *choice)
{
    const int chunk = chunk_of(kernels, problem);
    const size_t lane_bytes = gdn_chunk_work_bytes(kernels, problem, chunk) + GDN_LANE_GAP;
    const size_t work_bytes = lane_bytes + GDN_LANE_GAP; /* with the gap between the states of two lanes */
    const size_t panel_bytes = gdn_fused_panel_floats(problem) * sizeof(float);
    const bool segments = problem->num_segments > 1;
    const int64_t runs = segments ? problem->num_segments : problem->max_seqs;
    const int64_t heads = runs * problem->num_v_heads, panels = heads * gdn_fused_panels(problem, GDN_PANEL);
    const int64_t halves = heads * gdn_fused_panels(problem, GDN_HALF_PANEL);
    const bool few = !segments && panels < threads && problem->max_tokens >= GDN_LONG_SEQUENCE;
    int64_t lanes = gdn_smaller(threads, panels);
    if (few) { /* they are cut in halves, and threads that are left prepare chunks */
        lanes = gdn_smaller(threads, halves + gdn_ahead_helpers(problem, problem->max_seqs));
    }
    int64_t pool = segments ? 0 : lanes * gdn_fused_panels_of_thread(problem, panels, lanes);
    if (segments) { /* they keep their states themselves */
        const size_t floats = gdn_fused_segment_floats(problem, chunk);
        choice->param[PARAM_SEGMENTS] =
            (int64_t)gdn_ledger_book(&choice->ledger, "segments", gdn_size_mul(floats, sizeof(float)));
    }
    if (max_workspace != 0) {
        const size_t align = GDN_WORKSPACE_ALIGNMENT, least = work_bytes + (segments ? 0 : panel_bytes);
        const size_t room = max_workspace > choice->ledger.total ? max_workspace - choice->ledger.total : 0;
        if (room / align * align < least) {
            return gdn_fail(GDN_ERROR_UNSUPPORTED, "max_workspace: %zu, must be at least %zu", max_workspace,
                            choice->ledger.total + (least + align - 1) / align * align);
        }
        fit_lanes(room / align * align, work_bytes, panel_bytes, gdn_fused_widest_item(problem), &lanes, &pool);
    }
    choice->chunk_size = chunk;
    choice->wave_chunks = 0;
    choice->param[PARAM_OFFSET] = (int64_t)gdn_ledger_book(&choice->ledger, "fused prefill",
                                                           (size_t)lanes * work_bytes + (size_t)pool * panel_bytes);
    choice->param[PARAM_AHEAD] = -1;
    if (few && lanes > panels && lanes != halves) {
        choice->param[PARAM_AHEAD] = book_ahead(kernels, problem, chunk, max_workspace, &choice->ledger);
    }
    choice->param[PARAM_LANE_BYTES] = (int64_t)lane_bytes;
    choice->param[PARAM_LANES] = lanes;
    choice->param[PARAM_POOL] = pool;
    return GDN_OK;
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
        .width = GDN_PANEL,
    };
    gdn_chunk_work_place(&work, base + lane * param[PARAM_LANE_BYTES]);
    float *pool =
        (float *)(void *)(base + param[PARAM_LANES] * param[PARAM_LANE_BYTES] + (ptrdiff_t)lane * GDN_LANE_GAP);
    work.state = pool + (size_t)(lane * (param[PARAM_POOL] / team)) * gdn_fused_panel_floats(run->problem);
    return work;
}

typedef struct gdn_team {
    const gdn_cpu_kernels *kernels;
    const gdn_prefill_run *run;
    int size;
    gdn_item_cut cut;
    gdn_bundles bundles;
    gdn_share share;
    bool helped; /* threads beyond the items prepare chunks for them, */
    gdn_ahead ahead; /* here */
} gdn_team;

/* For a thread that waits: the last of these items, or half of the only one. */
static void give_away(gdn_team *team, gdn_item_run *items, int *count)
{
    gdn_item_run half;
    if (!gdn_share_is_wanted(&team->share)) {
        return;
    }
    if (*count > 1) {
        gdn_share_leave(&team->share, &items[--*count]);
    } else if (gdn_fused_split(team->run->problem, &items[0], &half)) {
        gdn_share_leave(&team->share, &half);
    } else {
        gdn_share_leave_nothing(&team->share);
    }
}

/* Items of one sequence, all at the same token, to its end: span by span in turn, a single one chunk by chunk where others may
 * take half of it. */
static void advance(gdn_chunk_work *w, gdn_team *team, gdn_item_run *items, int count)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): a bundle has an item at least */
    const int64_t length = items[0].s.seq.length;
    const bool shared = team->size > 1 && (count > 1 || gdn_fused_part_panels(&items[0].part) > 1);
    for (int64_t t = items[0].t, end; t < length; t = items[0].t) {
        const int64_t most = count > 1 ? SPAN / w->chunk * w->chunk : shared ? w->chunk : length;
        end = length - t <= most ? length : t + most;
        const bool one_left = shared && count > 1 && end == length; /* it goes on alone */
        for (int i = 0; i < count - one_left; i++) {
            const bool last = i + 1 == count;
            gdn_item_run *item = &items[i];
            item->checkpoint = gdn_fused_run_span(w, &item->s, &item->part, item->state, t, end, false,
                                                  &items[last ? 0 : i + 1].part, last ? end : t, item->checkpoint);
            item->t = end;
            if (end < length || i + 1 < count) {
                give_away(team, items, &count);
            }
        }
        if (one_left) {
            items[0] = items[count - 1];
            count = 1;
        }
    }
}

static void run_bundle(gdn_chunk_work *w, gdn_team *team, int64_t bundle)
{
    const gdn_problem *p = w->problem;
    const gdn_item_cut *cut = &team->cut;
    const int64_t of_sequence = gdn_fused_items_of_sequence(cut),
                  bundles = (of_sequence + cut->bundle - 1) / cut->bundle;
    const int64_t n = bundle / bundles, first = bundle % bundles * cut->bundle;
    const int count = of_sequence - first < cut->bundle ? (int)(of_sequence - first) : cut->bundle;
    const size_t item_floats = (size_t)gdn_fused_item_panels(cut) * gdn_fused_panel_floats(p);
    gdn_sequence_run s;
    if (!gdn_fused_find_sequence(team->run, n, &s)) {
        return;
    }
    gdn_item_run items[GDN_MAX_BUNDLE];
    for (int i = 0; i < count; i++) {
        items[i] = (gdn_item_run){.s = s,
                                  .part = gdn_fused_part(p, cut, n * of_sequence + first + i),
                                  .state = w->state + (size_t)i * item_floats,
                                  .checkpoint = s.first_checkpoint};
        if (s.seq.length == 0) {
            gdn_fused_pass_on(&s, &items[i].part);
        }
    }
    advance(w, team, items, count);
}

/* A thread's share of the loop over bundles, then of what others have left of theirs, or of what is to be prepared for them. */
static void run_share(gdn_team *team, gdn_chunk_work *w, int lane)
{
    int turn = 0;
    for (int64_t bundle; lane < team->bundles.lanes && (bundle = gdn_bundles_take(&team->bundles, lane, &turn)) >= 0;) {
        run_bundle(w, team, bundle);
        if (team->helped) {
            gdn_ahead_ended(&team->ahead, bundle);
        }
    }
    if (team->helped) {
        gdn_ahead_help(&team->ahead, w, lane);
        return;
    }
    /* A thread waits here once there are no more bundles: the scratch of an item that it takes over is not used again. */
    gdn_item_run item;
    while (gdn_share_take(&team->share, &item)) {
        advance(w, team, &item, 1);
    }
}

/* What each thread of a team does: its share of the loop over bundles, then of what others have left of theirs; or its share of the
 * loops over segments. */
static void run_lane(gdn_team *team, int lane)
{
    const gdn_cpu_kernels *kernels = team->kernels;
    const uint64_t mode = gdn_float_mode_enter();
    gdn_chunk_work work = work_of(kernels, team->run, lane, team->size);
    if (kernels->thread_begin) {
        kernels->thread_begin();
    }
    if (team->run->problem->num_segments > 1) {
        float *scratch = (float *)(void *)(team->run->workspace + team->run->choice->param[PARAM_SEGMENTS]);
        gdn_fused_run_segments(&work, &(gdn_segments){team->run, work.chunk, scratch});
    } else {
        work.width = team->cut.width;
        work.ahead = team->helped ? &team->ahead : NULL;
        gdn_share_begin(&team->share);
        run_share(team, &work, lane);
    }
    if (kernels->thread_end) {
        kernels->thread_end();
    }
    gdn_float_mode_restore(mode);
}

/* Items, bundles and helpers, for at most `lanes` threads. */
static void choose_work(gdn_team *team, int lanes)
{
    const gdn_prefill_run *run = team->run;
    const int64_t pool = run->choice->param[PARAM_POOL], ahead = run->choice->param[PARAM_AHEAD];
    team->cut = gdn_fused_choose_cut(run, lanes, pool / lanes);
    team->size = (int)gdn_smaller(team->cut.items, lanes);
    gdn_fused_choose_bundle(run, team->size, pool / team->size, &team->cut);
    team->bundles.count = team->cut.bundles;
    team->bundles.lanes = team->size;
    team->helped = ahead >= 0 && team->size < lanes && gdn_fused_item_panels(&team->cut) == 1;
    team->helped = team->helped && gdn_fused_is_long(run);
    if (team->helped) {
        team->size = (int)gdn_smaller(lanes, team->size + gdn_ahead_helpers(run->problem, run->args->num_seqs));
        gdn_ahead_begin(&team->ahead, team->kernels, run, &team->cut, run->workspace + ahead);
    }
}

gdn_status gdn_fused_prefill_run(const gdn_cpu_kernels *kernels, int threads, const gdn_prefill_run *run)
{
    gdn_team team = {.kernels = kernels, .run = run};
    team.size = (int)gdn_smaller(threads, run->choice->param[PARAM_LANES]);
    if (run->problem->num_segments <= 1) {
        choose_work(&team, team.size);
    }
    /* A region of its own even for one thread: the loops inside must not bind to a region of the caller's. */
#ifdef _OPENMP
#pragma omp parallel num_threads(team.size)
    run_lane(&team, omp_get_thread_num());
#else
    run_lane(&team, 0);
#endif
    return GDN_OK;
}
