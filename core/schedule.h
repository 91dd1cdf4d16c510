/* The chunk schedule of packed sequences, built on the host: which tokens each chunk holds, and which
 * chunks of a wave follow one another. The tables are those of generic_ops.h. */
#ifndef GDN_CORE_SCHEDULE_H
#define GDN_CORE_SCHEDULE_H

#include "generic_ops.h"

/* Most chunks that any run within the problem's maxima can have; 0 where it can have none. Saturates at INT64_MAX. */
int64_t gdn_schedule_bound(const gdn_problem *problem, int32_t chunk_size);

/* Most chunks one sequence can have, at least 1. */
int64_t gdn_schedule_max_chunks(const gdn_problem *problem, int32_t chunk_size);

/* Writes the chunk table of a run whose metadata has been checked: `bound` slots, those past *used with seq = -1.
 * Returns INTERNAL where the table is too short, which checked metadata rules out. */
gdn_status gdn_schedule_chunks(const gdn_problem *problem, const gdn_prefill_args *args, int32_t chunk_size,
                               gdn_chunk *chunks, int64_t bound, int64_t *used);

/* Lowers wave->num_lanes and wave->num_steps to those its chunks need, and fills wave->lane_slot. */
void gdn_schedule_wave(gdn_wave *wave);

/* Tokens of sequence `seq`, and its first one in the packed count. */
void gdn_schedule_sequence(const gdn_problem *problem, const gdn_prefill_args *args, int64_t seq, int64_t *token,
                           int64_t *length);

/* Whether a sequence, or a row of a decode run, is skipped: its read or its write slot is negative. */
bool gdn_schedule_skipped(const gdn_problem *problem, const void *read_slots, const void *write_slots, int64_t row);

#endif
