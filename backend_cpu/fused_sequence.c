/* fused_sequence.h */
#include "fused_sequence.h"

#include "cpu_state_io.h"
#include "fused_ahead.h"
#include "fused_rows.h"
#include "numeric.h"

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

void gdn_fused_pass_on(const gdn_sequence_run *s, const gdn_item_part *part)
{
    const gdn_problem *p = s->run->problem;
    const gdn_state_place *place = &s->place;
    if (!place->target || part->first_panel != 0) {
        return;
    }
    for (int i = 0; i < part->keys * part->heads; i++) {
        const int hv = gdn_fused_part_head(p, part, i);
        gdn_cpu_state_copy(place->target, place->target_layout,
                           place->target_offset + hv * place->target_layout->head_stride, place->source,
                           place->source_layout, place->source_offset + hv * place->source_layout->head_stride,
                           p->head_k_dim, p->head_v_dim);
    }
}

bool gdn_fused_find_sequence(const gdn_prefill_run *run, int64_t n, gdn_sequence_run *s)
{
    const gdn_problem *p = run->problem;
    const gdn_state_args states = state_args(run);
    if (gdn_fused_is_skipped(p, &states, n)) {
        return false;
    }
    *s = (gdn_sequence_run){run, sequence_of(run, n), gdn_fused_state_place(p, &states, n), 0};
    if (p->checkpoint_form != GDN_CHECKPOINT_NONE) {
        s->first_checkpoint = checkpoints_before(run, n);
    }
    return true;
}

int64_t gdn_fused_checkpoints_from(const gdn_sequence_run *s, int64_t t)
{
    gdn_chunk_checkpoints passed;
    int64_t next = s->first_checkpoint;
    for (int64_t at = 0; at < t; at += GDN_MAX_CHUNK) {
        find_checkpoints(s->run, &s->seq, s->first_checkpoint, &next, at,
                         t - at < GDN_MAX_CHUNK ? (int)(t - at) : GDN_MAX_CHUNK, &passed);
    }
    return next;
}

int64_t gdn_fused_run_span(gdn_chunk_work *w, const gdn_sequence_run *s, const gdn_item_part *part, float *state,
                           int64_t first, int64_t end, bool settle, const gdn_item_part *next, int64_t next_t,
                           int64_t checkpoint)
{
    const gdn_problem *p = w->problem;
    const size_t head_floats = (size_t)(part->end_panel - part->first_panel) * gdn_fused_panel_floats(p);
    gdn_chunk_checkpoints checkpoints = {0};
    for (int64_t t = first; t < end; t += w->chunk) {
        const int tokens = end - t < w->chunk ? (int)(end - t) : w->chunk;
        const bool within = t + tokens < end;
        const int64_t then = within ? t + tokens : next_t, left = (within ? end : s->seq.length) - then;
        gdn_chunk_step step = {
            .next_tokens = left < w->chunk ? (int)left : w->chunk,
            .next_t = then,
            .next_key_heads = within ? 0 : next->first_key - part->first_key,
            .parts = part->heads,
            .first = t == 0,
            .last = t + tokens == s->seq.length,
            .place = &s->place,
            .checkpoints = &checkpoints,
        };
        find_checkpoints(s->run, &s->seq, s->first_checkpoint, &checkpoint, t, tokens, &checkpoints);
        const int heads = part->keys * part->heads;
        for (int i = 0; i < heads; i++) {
            const int hv = gdn_fused_part_head(p, part, i);
            const bool here = i + 1 < heads;
            step.part = i % part->heads;
            step.ahead_t = here ? t : then;
            step.more_heads = here;
            step.ahead_tokens = here ? tokens : step.next_tokens;
            step.ahead_heads = (here     ? gdn_fused_part_head(p, part, i + 1)
                                : within ? gdn_fused_part_head(p, part, 0)
                                         : gdn_fused_part_head(p, next, 0)) -
                               hv;
            if (step.part == 0) {
                gdn_ahead_pack(w, &s->seq, part, part->first_key + i / part->heads, t, tokens);
            }
            float *const S = state + (size_t)i * head_floats;
            gdn_chunk_gates(w, &s->seq, hv, t, tokens, step.first ? 1.0f : *gdn_fused_panel_scale(p, S),
                            step.last || (settle && !within));
            gdn_chunk_panels(w, &s->seq, hv, t, tokens, S, part->first_panel, part->end_panel, &step);
        }
        gdn_ahead_passed(w, part, t + tokens);
    }
    return checkpoint;
}
