/* The Hopper prefill's workspace: what is in it, and how many chunks a wave has room for. */
#ifndef GDN_CUDA_SM90_SM90_WORKSPACE_H
#define GDN_CUDA_SM90_SM90_WORKSPACE_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Places in gdn_choice's param. */
enum {
    PARAM_CHUNKS, /* offsets in the workspace */
    PARAM_RUNS,
    PARAM_TAKEN,
    PARAM_CARRY,
    PARAM_RECORDS,
    PARAM_SEGMENT_F,
    PARAM_SEGMENT_E,
    PARAM_WAVES,
    PARAM_PACKED, /* 0: none */
    PARAM_BASES,
    PARAM_CHECKPOINT_CHUNKS,
    PARAM_PIECES,
    PARAM_PASSES, /* there is room for a state a multiprocessor in the carried states' place */
    PARAM_MAX_SEGMENTS, /* with E */
    PARAM_HALVES /* two segments, without E, may be asked for */
};

/* Most chunks of `seqs` sequences of `tokens` together: each has at most one that is not full, or a chunk of no tokens. */
int64_t gdn_sm90_chunk_bound(int64_t tokens, int64_t seqs);

/* Slots of the chunk table, which the schedule clears: of `bound` chunks, and for counters one of the fused kernel's items, one
 * a multiprocessor of states read, and one of states passed on. */
int64_t gdn_sm90_table_slots(int64_t bound, int32_t num_sms);

/* Most chunks of one sequence. */
int32_t gdn_sm90_max_chunks(const gdn_problem *problem);

/* Whether checkpoints may lie inside chunks. */
bool gdn_sm90_splits_chunks(const gdn_problem *problem);

/* Waves that `slots` slots take at most, where a cut may move back to the start of a segment. */
int64_t gdn_sm90_wave_count(int64_t slots, int64_t wave_slots, bool segments);

gdn_status gdn_sm90_book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                         gdn_choice *choice);

#ifdef __cplusplus
}
#endif

#endif
