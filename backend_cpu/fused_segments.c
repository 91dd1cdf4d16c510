/* fused_segments.h
 *
 * Segments are runs of whole chunks. The first runs from the sequence's own state; each of the others but the last is
 * passed twice, from zero with its v (F) and from the identity with v = 0 (E), without outputs. Then the states between
 * segments are known, S' = E S + F one after another, and all segments but the first run from theirs.
 *
 *     pass 1   segment 0: run -> S1    1: E1, F1    2: E2, F2    3: -            all at once
 *     join                             S2 = E1 S1 + F1, S3 = E2 S2 + F2          heads and panels at once
 *     pass 2   0: -                    1: run       2: run       3: run          all at once
 *
 * An item of a pass is one segment of one value head. Segments are cut by the length and num_segments alone. */
#include "fused_segments.h"

#include <string.h>

#include "fused_sequence.h"

/* ------------------------------------------------------------------------------------------- Scratch */

/* Panels of E: K columns. */
static int map_panels(const gdn_problem *p)
{
    return (p->head_k_dim + GDN_PANEL - 1) / GDN_PANEL;
}

static size_t map_floats(const gdn_problem *p)
{
    return (size_t)map_panels(p) * (size_t)p->head_k_dim * GDN_PANEL;
}

static int64_t segment_tokens(const gdn_problem *p, int chunk, int64_t length)
{
    const int64_t chunks = (length + chunk - 1) / chunk;
    return (chunks + p->num_segments - 1) / p->num_segments * chunk;
}

size_t gdn_fused_segment_floats(const gdn_problem *p, int chunk)
{
    const int64_t chunks = (p->max_seqlen + chunk - 1) / chunk;
    const int64_t segments = p->num_segments < chunks ? p->num_segments : chunks;
    const size_t head = gdn_fused_state_floats(p) + map_floats(p);
    return gdn_size_mul((size_t)segments, gdn_size_mul((size_t)p->num_v_heads, head));
}

/* One sequence in its segments. */
typedef struct segmented {
    const gdn_segments *shared;
    gdn_sequence_run s;
    int64_t tokens; /* of a segment; the last may have fewer */
    int count;
} segmented;

/* The state before segment i of a head, as panels; where it has not been joined yet, F of the segment before. */
static float *state_before(const segmented *g, int i, int hv)
{
    const gdn_problem *p = g->s.run->problem;
    return g->shared->scratch + ((size_t)i * (size_t)p->num_v_heads + (size_t)hv) * gdn_fused_state_floats(p);
}

/* E of segment i. */
static float *map_of(const segmented *g, int i, int hv)
{
    const gdn_problem *p = g->s.run->problem;
    float *const maps = g->shared->scratch + (size_t)g->count * (size_t)p->num_v_heads * gdn_fused_state_floats(p);
    return maps + ((size_t)i * (size_t)p->num_v_heads + (size_t)hv) * map_floats(p);
}

/* -------------------------------------------------------------------------------------------- Passes */

static gdn_item_part part_of_head(const gdn_problem *p, int hv)
{
    const int group = p->num_v_heads / p->num_k_heads;
    const bool tiled = p->head_map == GDN_HEAD_MAP_TILED;
    return (gdn_item_part){
        .first_key = tiled ? hv % p->num_k_heads : hv / group,
        .keys = 1,
        .first_head = tiled ? hv / p->num_k_heads : hv % group,
        .heads = 1,
        .first_panel = 0,
        .end_panel = gdn_fused_panels(p, GDN_PANEL),
    };
}

/* Segment i from the state before it, with outputs. */
static void run_segment(gdn_chunk_work *w, const segmented *g, int i, int hv, float *state)
{
    const int64_t first = i * g->tokens, length = g->s.seq.length;
    const int64_t end = length - first < g->tokens ? length : first + g->tokens;
    const gdn_item_part part = part_of_head(w->problem, hv);
    for (int panel = 0; panel < gdn_fused_panels(w->problem, GDN_PANEL); panel++) {
        *gdn_fused_panel_scale(w->problem, state + (size_t)panel * gdn_fused_panel_floats(w->problem)) = 1.0f;
    }
    gdn_fused_run_span(w, &g->s, &part, state, first, end, true, &part, length,
                       gdn_fused_checkpoints_from(&g->s, first));
}

/* E and F of segment i. */
static void map_segment(gdn_chunk_work *w, const segmented *g, int i, int hv)
{
    const gdn_problem *p = w->problem;
    const int K = p->head_k_dim, hk = part_of_head(p, hv).first_key;
    const size_t panel_floats = (size_t)K * GDN_PANEL; /* of E */
    float *const F = state_before(g, i + 1, hv), *const E = map_of(g, i, hv);
    memset(F, 0, gdn_fused_state_floats(p) * sizeof(float));
    memset(E, 0, map_floats(p) * sizeof(float));
    for (int d = 0; d < K; d++) {
        E[(size_t)(d / GDN_PANEL) * panel_floats + (size_t)d * GDN_PANEL + (size_t)(d % GDN_PANEL)] = 1.0f;
    }
    const int64_t end = (i + 1) * g->tokens;
    for (int64_t t = i * g->tokens; t < end; t += w->chunk) {
        gdn_chunk_pack(w, &g->s.seq, hk, t, w->chunk);
        gdn_chunk_gates(w, &g->s.seq, hv, t, w->chunk, 1.0f, true);
        for (int panel = 0; panel < gdn_fused_panels(p, GDN_PANEL); panel++) {
            gdn_chunk_advance(w, &g->s.seq, hv, t, w->chunk, panel * GDN_PANEL,
                              gdn_fused_columns(p, GDN_PANEL, panel).count,
                              F + (size_t)panel * gdn_fused_panel_floats(p));
        }
        for (int panel = 0; panel < map_panels(p); panel++) {
            const int left = K - panel * GDN_PANEL;
            gdn_chunk_advance(w, &g->s.seq, hv, t, w->chunk, -1, left < GDN_PANEL ? left : GDN_PANEL,
                              E + (size_t)panel * panel_floats);
        }
    }
}

/* S' = E S + F for one panel of a head, segment after segment. */
static void join_panel(const gdn_chunk_work *w, const segmented *g, int hv, int panel)
{
    const gdn_problem *p = w->problem;
    const int K = p->head_k_dim;
    const size_t at = (size_t)panel * gdn_fused_panel_floats(p);
    const float one = 1.0f;
    for (int i = 1; i < g->count - 1; i++) {
        const float *const E = map_of(g, i, hv), *const S = state_before(g, i, hv) + at;
        float *const out = state_before(g, i + 1, hv) + at;
        for (int d = 0; d < K; d += GDN_TOKEN_BLOCK) {
            /* 16 columns of E, which lie as packed keys do. */
            const gdn_product join = {
                .rows = K,
                .cols = gdn_fused_columns(p, GDN_PANEL, panel).count,
                .depth = GDN_TOKEN_BLOCK,
                .a = E + d / GDN_PANEL * K * GDN_PANEL + d % GDN_PANEL,
                .a_packed_keys = true,
                .b = S + d * GDN_PANEL,
                .add_dtype = GDN_DTYPE_F32,
                .add_rows = K,
                .add = out,
                .ldadd = GDN_PANEL,
                .add_scale = &one,
                .out_dtype = GDN_DTYPE_F32,
                .out_rows = K,
                .out = out,
                .ldo = GDN_PANEL,
            };
            w->kernels->product(&join, 1);
        }
    }
}

/* The loops are shared by the team, with a barrier at the end of each. */
static void run_segmented(gdn_chunk_work *w, const segmented *g)
{
    const gdn_problem *p = w->problem;
    const int heads = p->num_v_heads, panels = gdn_fused_panels(p, GDN_PANEL);
    const int first_pass = g->count > 1 ? g->count - 1 : 1;
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
    for (int item = 0; item < first_pass * heads; item++) {
        const int i = item / heads, hv = item % heads;
        if (i == 0) {
            run_segment(w, g, 0, hv, state_before(g, g->count > 1 ? 1 : 0, hv));
        } else {
            map_segment(w, g, i, hv);
        }
    }
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
    for (int item = 0; item < heads * panels; item++) {
        join_panel(w, g, item / panels, item % panels);
    }
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
    for (int item = heads; item < g->count * heads; item++) {
        run_segment(w, g, item / heads, item % heads, state_before(g, item / heads, item % heads));
    }
}

void gdn_fused_run_segments(gdn_chunk_work *work, const gdn_segments *segments)
{
    const gdn_prefill_run *run = segments->run;
    const gdn_problem *p = run->problem;
    for (int64_t n = 0; n < run->args->num_seqs; n++) {
        segmented g = {.shared = segments};
        if (!gdn_fused_find_sequence(run, n, &g.s)) {
            continue;
        }
        if (g.s.seq.length > 0) {
            g.tokens = segment_tokens(p, segments->chunk, g.s.seq.length);
            g.count = (int)((g.s.seq.length + g.tokens - 1) / g.tokens);
            run_segmented(work, &g);
            continue;
        }
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
        for (int hv = 0; hv < p->num_v_heads; hv++) {
            const gdn_item_part part = part_of_head(p, hv);
            gdn_fused_pass_on(&g.s, &part);
        }
    }
}
