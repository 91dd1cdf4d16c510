/* A long sequence in segments that are computed at once and joined by (E, F) maps (docs/algorithm.md F20, F21): only where
 * a problem asks for them, since results are rounded differently. */
#ifndef GDN_CPU_FUSED_SEGMENTS_H
#define GDN_CPU_FUSED_SEGMENTS_H

#include "fused_chunk.h"

/* Floats of scratch for one sequence at a time, of at most max_seqlen tokens. */
size_t gdn_fused_segment_floats(const gdn_problem *problem, int chunk);

/* What threads of a team share. Each of them calls gdn_fused_run_segments with a work of its own. */
typedef struct gdn_segments {
    const gdn_prefill_run *run;
    int chunk;
    float *scratch;
} gdn_segments;

/* All sequences of the call, by the OpenMP team that calls it together, or by one thread. */
void gdn_fused_run_segments(gdn_chunk_work *work, const gdn_segments *segments);

#endif
