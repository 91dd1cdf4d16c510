/* What a call's metadata are: what the schedule kernel reads, and kernels that judge rows by themselves. */
#ifndef GDN_CUDA_SCHEDULE_H
#define GDN_CUDA_SCHEDULE_H

#include "core/generic_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gdn_schedule {
    int64_t num_seqs, total_tokens, max_seqlen, row_length, num_slots, num_checkpoints, bound;
    int32_t chunk_size, equal_length, cu_dtype, slots_dtype, checkpoint_form, checkpoint_interval, checkpoint_dtype;
    int32_t checked; /* the fault word was cleared, and perhaps written, by the checks before this kernel */
    const void *cu_seqlens, *read_slots, *write_slots, *checkpoint_positions, *checkpoint_offsets;
    gdn_chunk *chunks;
    gdn_metadata_fault *fault;
} gdn_schedule;

/* Those of a run, without a table. */
void gdn_cuda_describe(const gdn_prefill_run *run, int32_t chunk_size, gdn_schedule *schedule);

#ifdef __cplusplus
}
#endif

#endif
