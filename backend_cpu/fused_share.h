/* What a thread that has run out of work takes over from another: items that are on their way through a sequence, or parts of
 * them. A call then ends when its work does, not with its slowest thread; who computes an item changes no bit of it. */
#ifndef GDN_CPU_FUSED_SHARE_H
#define GDN_CPU_FUSED_SHARE_H

#include <stdatomic.h>

#include "fused_sequence.h"

typedef struct gdn_item_run {
    gdn_sequence_run s;
    gdn_item_part part;
    float *state; /* of its heads, one after the other */
    int64_t t, checkpoint; /* the next token; the first checkpoint that is left */
} gdn_item_run;

/* Half of what is left of an item: of its key heads, of its one key head's value heads, or of its one head's panels. False, and
 * nothing changed, if it is one panel. */
bool gdn_fused_split(const gdn_problem *problem, gdn_item_run *item, gdn_item_run *half);

enum {
    GDN_MAX_LANES = GDN_MAX_THREADS, /* a multiple of 64 */
    /* Bytes between what two threads write: a processor fetches more than is read, and would take it away from the other. It
     * goes on to the page that follows: one page between them lies empty, wherever the scratch begins. */
    GDN_LANE_GAP = 8192
};

/* The bundles of a call. Each thread begins with the one of its own number, so that it meets again in its caches what it left
 * there in the call before; then it takes any that is left. Zeroed, but for `count` and `lanes`, before a team begins. */
typedef struct gdn_bundles {
    int64_t count;
    int lanes; /* threads, at most GDN_MAX_LANES */
    atomic_int_fast64_t next; /* of those that are no thread's own, and how many of the others have been looked at */
    atomic_uint_fast64_t begun[GDN_MAX_LANES / 64]; /* a bit for each thread's own */
} gdn_bundles;

/* The next bundle of thread `lane`, which calls it with *turn = 0 first; -1: none. */
int64_t gdn_bundles_take(gdn_bundles *bundles, int lane, int *turn);

/* One place, where a working thread leaves an item and a waiting one finds it. Zeroed before a team begins. */
typedef struct gdn_share {
    atomic_int working, waiting, place;
    gdn_item_run left;
} gdn_share;

void gdn_share_begin(gdn_share *share); /* by each thread, before its work */
/* Whether a thread waits and nothing has been left for it yet. If so, the caller leaves something, or says that it cannot. */
bool gdn_share_is_wanted(gdn_share *share);
void gdn_share_leave(gdn_share *share, const gdn_item_run *item);
void gdn_share_leave_nothing(gdn_share *share);
/* By a thread without work: waits for an item. False when no thread works any more. */
bool gdn_share_take(gdn_share *share, gdn_item_run *item);
/* A moment, in which another thread may have the processor; a longer one after many `times`. */
void gdn_share_wait(int times);

#endif
