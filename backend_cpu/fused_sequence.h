/* One sequence of a prefill call: where it lies, its states and checkpoints, and a span of its tokens for an item's heads. */
#ifndef GDN_CPU_FUSED_SEQUENCE_H
#define GDN_CPU_FUSED_SEQUENCE_H

#include "fused_chunk.h"
#include "fused_cut.h"

typedef struct gdn_sequence_run {
    const gdn_prefill_run *run;
    gdn_fused_sequence seq;
    gdn_state_place place;
    int64_t first_checkpoint;
} gdn_sequence_run;

/* Sequence `n`; false where the call skips it. */
bool gdn_fused_find_sequence(const gdn_prefill_run *run, int64_t n, gdn_sequence_run *s);

/* A sequence of no tokens: its states are copied, bit for bit where the types agree. */
void gdn_fused_pass_on(const gdn_sequence_run *s, const gdn_item_part *part);

/* The first checkpoint, of those from s->first_checkpoint on, that is after token `t`. */
int64_t gdn_fused_checkpoints_from(const gdn_sequence_run *s, int64_t t);

/* Tokens first .. end - 1 of one item: its heads advance chunk by chunk together; those of one key head share what
 * gdn_chunk_pack makes. At the end of the sequence, or of the span if `settle`, states are whole, with c = 1. Then `next`
 * follows, from token next_t on. Returns the first checkpoint that is left, of those from `checkpoint` on. */
int64_t gdn_fused_run_span(gdn_chunk_work *w, const gdn_sequence_run *s, const gdn_item_part *part, float *state,
                           int64_t first, int64_t end, bool settle, const gdn_item_part *next, int64_t next_t,
                           int64_t checkpoint);

#endif
