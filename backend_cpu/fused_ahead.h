/* Chunks prepared ahead. Where a call has fewer panels than there are threads, the threads without one prepare the chunks to come
 * (gdn_chunk_pack) for those with one, in a ring of places for each sequence and key head. Nobody waits for a chunk: a thread
 * that does not find it prepares its own, with the same bits. */
#ifndef GDN_CPU_FUSED_AHEAD_H
#define GDN_CPU_FUSED_AHEAD_H

#include "fused_chunk.h"
#include "fused_cut.h"

/* From the chunk that the first thread is at to the one that is prepared: the next would come too late. */
enum { GDN_AHEAD_LEAD = 4 };

typedef struct gdn_ahead {
    const gdn_prefill_run *run;
    int64_t rings;
    int items; /* of a ring: the panels of its value heads */
    int panels; /* of a value head */
    size_t place_bytes;
    unsigned char *base;
} gdn_ahead;

/* Threads that find enough to do where so many sequences run. */
int64_t gdn_ahead_helpers(const gdn_problem *problem, int64_t num_seqs);
size_t gdn_ahead_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk);

/* Before a team begins; each item of `cut` is one panel. */
void gdn_ahead_begin(gdn_ahead *ahead, const gdn_cpu_kernels *kernels, const gdn_prefill_run *run,
                     const gdn_item_cut *cut, unsigned char *base);

/* gdn_chunk_pack, or what another thread has made of the same tokens, for a thread that works on `part`. */
void gdn_ahead_pack(gdn_chunk_work *work, const gdn_fused_sequence *seq, const gdn_item_part *part, int hk, int64_t t,
                    int n);
/* That thread has done with the chunk before token `t`, */
void gdn_ahead_passed(const gdn_chunk_work *work, const gdn_item_part *part, int64_t t);
/* or with the item. */
void gdn_ahead_ended(const gdn_ahead *ahead, int64_t item);

/* Prepares chunks until all items have ended. */
void gdn_ahead_help(const gdn_ahead *ahead, gdn_chunk_work *work, int lane);

#endif
