/* Which form a run takes, and how its sequences are cut or shared out. Bits do not depend on it, but for segments with E,
 * which follow a sequence's length and the heads alone. docs/kernels/sm90.md has what the constants were measured by. */
#include "sm90_form.h"

#include "sm90_workspace.h"

bool gdn_sm90_in_place(const gdn_prefill_run *run)
{
    return run->problem->state_form == GDN_STATE_POOL ||
           (run->args->state != NULL && run->args->state == run->args->final_state);
}

/* Whether, and into how many segments, this run's sequences may be cut. Halves are taken where they are all the work there
 * is: their bits are the uncut ones. */
static void set_segments(gdn_sm90_prefill *p, const gdn_prefill_run *run, bool one_wave, int32_t num_sms)
{
    const gdn_choice *const choice = run->choice;
    const int64_t blocks = 2 * p->v_tiles * run->args->num_seqs * run->problem->num_v_heads;
    p->halves_only = choice->param[PARAM_MAX_SEGMENTS] == 1;
    p->halves = choice->param[PARAM_HALVES] != 0 && (one_wave || p->halves_only) && blocks <= num_sms;
    p->max_segments = (int32_t)choice->param[PARAM_MAX_SEGMENTS];
    if (p->halves && p->max_segments < 2) {
        p->max_segments = 2;
    }
    p->segment_F = (float *)(run->workspace + choice->param[PARAM_SEGMENT_F]);
    p->segment_E = (float *)(run->workspace + choice->param[PARAM_SEGMENT_E]);
}

/* Tokens that the longest sequence may have. */
static int64_t longest_sequence(const gdn_prefill_run *run)
{
    const gdn_problem *const problem = run->problem;
    const int64_t total = run->args->total_tokens;
    if (problem->cu_seqlens_dtype == GDN_DTYPE_NONE) {
        return total / run->args->num_seqs;
    }
    return problem->max_seqlen > 0 && problem->max_seqlen < total ? problem->max_seqlen : total;
}

static int64_t longest_chunks(const gdn_prefill_run *run)
{
    return (longest_sequence(run) + GDN_SM90_CHUNK - 1) / GDN_SM90_CHUNK;
}

/* Whether pieces of the longest sequence that take the places of `others` shorter ones, when those are done, spare a tenth of its
 * time. The others are taken to be alike. `passed`: they start from a state that the first piece passes on. */
static bool pieces_pay(int64_t longest, int64_t others, int64_t total, bool passed)
{
    const double begin = others > 0 ? (double)(total - longest) / (double)others : 0.0;
    const double faster = 1.0 - (double)GDN_SM90_QUIET;
    double reach = 1.0, late = 0.0; /* n pieces come to chunk reach T - late begin in a time T */
    bool pays = false;
    for (int64_t n = 1; n < GDN_SM90_MOST_PIECES && n <= others; n++) {
        reach = 1.0 + faster * reach;
        late = (passed ? faster : 1.0) + faster * late;
        pays = pays || (double)longest + late * begin < 0.9 * reach * (double)longest;
    }
    return pays;
}

/* Where blocks of a run of one wave leave states for each other, in the place of those carried between waves. NULL: there is no room. */
static void *passed_states(const gdn_prefill_run *run, bool one_wave)
{
    return one_wave && run->choice->param[PARAM_PASSES] != 0 ? run->workspace + run->choice->param[PARAM_CARRY] : NULL;
}

static void set_passed(gdn_sm90_prefill *p, void *states)
{
    const gdn_sm90_states passed = {states, GDN_DTYPE_F32, 1, 128 * 128, 0, 128, 1};
    p->passed_states = passed;
}

/* Pieces, where sequences' outputs may be shared out so: of sequences that are not cut, long enough, and where there is room
 * for more pieces than sequences, or will be. What pieces count is cleared once a run. */
static void set_pieces(gdn_sm90_prefill *p, const gdn_prefill_run *run, bool one_wave, int32_t num_sms)
{
    enum { LEAST = 16 * GDN_SM90_CHUNK };
    const int64_t longest = longest_sequence(run), seqs = run->args->num_seqs;
    const int32_t chunks = (int32_t)longest_chunks(run);
    const int64_t room = num_sms / (2 * p->num_v_heads);
    const bool waves = run->choice->param[PARAM_MAX_SEGMENTS] == 1 && (seqs == 1 || !gdn_sm90_in_place(run));
    const bool may = !p->any_dims && run->problem->num_segments != 1 && (one_wave || waves) && longest >= LEAST &&
                     seqs <= GDN_SM90_MOST_SHARED && gdn_sm90_most_segments(chunks, p->num_v_heads, p->head_k_dim) == 1;
    const bool pays = seqs < room || (seqs == room && pieces_pay(longest, seqs - 1, run->args->total_tokens,
                                                                 passed_states(run, one_wave) != NULL));
    if (may && seqs <= room) {
        const int64_t units = pays ? room + seqs - 1 : seqs, most = GDN_SM90_MOST_PIECES * seqs;
        p->pieces = (int32_t)room;
        p->piece_units = (int32_t)(units < most ? units : most);
        p->piece_items = run->workspace + run->choice->param[PARAM_PIECES];
        set_passed(p, passed_states(run, one_wave));
    }
}

/* Whether blocks with two tiles of V, which those of K = 256 can have, are the faster ones. A chunk takes them 1.45 times as long as
 * one tile does (by which the measured rows were chosen right), so there must be enough sequences and heads to fill the
 * multiprocessors without single tiles, and no sequence so long that its own chunks are what takes the time. The bits are the same. */
static bool whole_pays(const gdn_sm90_prefill *p, const gdn_prefill_run *run, int32_t num_sms)
{
    if (p->head_k_dim != 256 || p->v_tiles % 2 != 0) {
        return false;
    }
    const int64_t longest = longest_sequence(run);
    const int64_t share = /* tokens of two tiles of a head a multiprocessor */
        run->args->total_tokens * run->problem->num_v_heads * (p->v_tiles / 2) / num_sms;
    const int64_t half = longest > 2 * share ? longest : 2 * share;
    const int64_t whole = longest > share ? longest : share;
    return 145 * whole < 100 * half;
}

/* Whether a fused run's gates kernel can do what the schedule kernel would. */
static bool plans_fused(const gdn_prefill_run *run)
{
    return run->problem->check == 0 && run->problem->checkpoint_form == GDN_CHECKPOINT_NONE &&
           run->args->num_seqs <= GDN_SM90_MOST_PLANNED;
}

/* Chunks of a block, where items of `line` chunks in all, none of more than `longest`, are shared out evenly. A quarter of the longest
 * is the least that a block has of an item, as each part costs a state's way through memory. */
static int64_t even_share(int64_t line, int64_t longest, int32_t num_sms)
{
    const int64_t grain = (longest + 3) / 4;
    const int64_t share = (line + num_sms * grain - 1) / (num_sms * grain) * grain;
    return share > longest ? share : longest;
}

/* What a run takes in one form. */
typedef struct form_work {
    int64_t share; /* chunks of a block where items are shared out evenly; 0: whole items are as good */
    int64_t blocks; /* that have a share */
    double chunks; /* of the fullest block, or of the longest sequence */
} form_work;

/* Of `parts` blocks that have a value head's state between them. Items lie on a line of `line` chunks, which may be shared out if
 * `shared`; else blocks take whole ones. */
static form_work work_of(const gdn_prefill_run *run, int32_t parts, int64_t line, bool shared, int32_t num_sms)
{
    const int64_t items = parts * run->args->num_seqs * run->problem->num_v_heads;
    const int64_t longest = longest_chunks(run);
    const double mean = (double)run->args->total_tokens / (double)run->args->num_seqs / GDN_SM90_CHUNK;
    const double rounds = (double)((items + num_sms - 1) / num_sms) * mean;
    form_work work = {0, 0, rounds > (double)longest ? rounds : (double)longest};
    if (shared && items > num_sms && longest > 0 && line <= INT32_MAX / 2) {
        const int64_t share = even_share(line, longest, num_sms);
        if ((double)share < 0.94 * work.chunks) {
            work.share = share;
            work.blocks = (line + share - 1) / share;
            work.chunks = (double)share;
        }
    }
    return work;
}

/* Whether the fused kernel is the faster one, by microseconds a chunk of a block's and, before the half form, of prep of a chunk and
 * head and of one launch more (measured). The bits are the same. */
static bool fused_pays(const gdn_prefill_run *run, double fused_chunks, double half_chunks, int32_t num_sms)
{
    const bool full = 2 * run->args->num_seqs * run->problem->num_v_heads > num_sms; /* memory bounds it */
    const double fused = 2.75, half = full ? 1.25 : 1.12, prep = 0.0085, launch = 5.0;
    const double chunks = (double)run->args->total_tokens / GDN_SM90_CHUNK;
    return fused * fused_chunks < half * half_chunks + prep * chunks * run->problem->num_v_heads + launch;
}

/* Where a fused run's blocks leave states for each other: behind the gates, which are where the records of waves would be. NULL: there
 * is no room. */
static void *behind_gates(const gdn_prefill_run *run, int64_t slots, int32_t num_sms)
{
    const int64_t heads = run->problem->num_v_heads;
    const int64_t gates = (slots * heads * GDN_SM90_GATES_BYTES + GDN_WORKSPACE_ALIGNMENT - 1) /
                          GDN_WORKSPACE_ALIGNMENT * GDN_WORKSPACE_ALIGNMENT;
    const int64_t room = run->choice->wave_chunks * heads * GDN_SM90_RECORD_BYTES;
    return gates + num_sms * (int64_t)GDN_SM90_PASSED_BYTES <= room
               ? run->workspace + run->choice->param[PARAM_RECORDS] + gates
               : NULL;
}

/* Whether everything can be done at once by the fused kernel. */
static bool can_fuse(const gdn_sm90_prefill *p, const gdn_prefill_run *run, int64_t slots)
{
    const int64_t room = run->choice->wave_chunks * GDN_SM90_RECORD_BYTES / GDN_SM90_GATES_BYTES;
    return p->packed_qk == NULL && slots <= room && run->args->num_seqs <= INT32_MAX / (2 * run->problem->num_v_heads);
}

/* The form of a run with neither pieces nor segments, and how its blocks share it; whether it is the fused one. */
static bool set_form(gdn_sm90_prefill *p, const gdn_prefill_run *run, int64_t slots, bool one_wave, int32_t num_sms)
{
    if (p->any_dims || p->max_segments > 1 || p->pieces > 0) {
        return false;
    }
    const int64_t heads = run->problem->num_v_heads, line = run->args->num_seqs * heads * longest_chunks(run);
    void *const behind = plans_fused(run) ? behind_gates(run, slots, num_sms) : NULL;
    void *const carried = passed_states(run, one_wave);
    const form_work fused = work_of(run, 1, line, behind != NULL, num_sms);
    const form_work half = work_of(run, 2, 2 * heads * slots, carried != NULL, num_sms);
    const bool is_fused = can_fuse(p, run, slots) && fused_pays(run, fused.chunks, half.chunks, num_sms);
    const form_work *const work = is_fused ? &fused : &half;
    p->share = (int32_t)work->share;
    p->share_blocks = (int32_t)work->blocks;
    p->item_chunks = (int32_t)longest_chunks(run);
    set_passed(p, is_fused ? behind : carried);
    return is_fused;
}

bool gdn_sm90_choose_form(gdn_sm90_prefill *p, const gdn_prefill_run *run, int64_t slots, int32_t num_sms)
{
    const bool one_wave = slots <= run->choice->wave_chunks;
    p->max_segments = 1;
    set_pieces(p, run, one_wave, num_sms);
    if (p->pieces == 0) {
        set_segments(p, run, one_wave, num_sms);
    }
    p->whole_V = p->max_segments == 1 && p->pieces == 0 && p->packed_qk == NULL && whole_pays(p, run, num_sms);
    const bool fused = set_form(p, run, slots, one_wave, num_sms);
    p->planned = fused && plans_fused(run);
    return fused;
}
