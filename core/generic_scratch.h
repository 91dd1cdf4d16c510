/* The generic prefill path's scratch: what it holds, how large, where in the workspace. */
#ifndef GDN_CORE_GENERIC_SCRATCH_H
#define GDN_CORE_GENERIC_SCRATCH_H

#include "backend.h"

/* With m chunk slots and l lanes to a wave; shapes in the letters of generic_ops.h. Two pieces are used more than once,
 * in this order:
 *   rows    v as packed, then beta v, then beta exp(G) k, then O
 *   square  L, then A = (I + L)^-1, then P */
typedef enum gdn_generic_piece {
    GDN_GENERIC_CHUNKS, /* the chunk table, gdn_chunk[bound] */
    GDN_GENERIC_LANE_SLOT, /* int32 [num_steps, l] */
    GDN_GENERIC_G, /* [m, HV, 2, C] */
    GDN_GENERIC_BETA, /* [m, HV, C] */
    GDN_GENERIC_Q, /* [m, H, C, K] */
    GDN_GENERIC_K, /* [m, H, C, K] */
    GDN_GENERIC_ROWS, /* [m, HV, C, max(K, V)] */
    GDN_GENERIC_GRAM, /* [m, H, C, C]: k k^T, then q k^T */
    GDN_GENERIC_SQUARE, /* [m, HV, C, C] */
    GDN_GENERIC_U, /* [m, HV, C, V]: U, then V' = U - W S */
    GDN_GENERIC_W, /* [m, HV, C, K] */
    GDN_GENERIC_TAIL, /* [l, HV, C, K] */
    GDN_GENERIC_STATE, /* [l, HV, K, V] */
    GDN_GENERIC_CARRY, /* [HV, K, V]: the state that goes from one wave to the next */
    GDN_GENERIC_CHECKPOINT, /* [l, HV, K, V], with checkpoints only */
    GDN_GENERIC_CHECKPOINT_ENDS, /* int32 [l] */
    GDN_GENERIC_CHECKPOINT_ENTRIES, /* int64 [l] */
    GDN_GENERIC_UNGATED_G, /* [m, HV, 2, C] of zeros and */
    GDN_GENERIC_UNGATED_SQUARE, /* [m, HV, C, C]: the two-inverse variant only */
    GDN_GENERIC_NUM_PIECES
} gdn_generic_piece;

/* choice->param[piece] is the piece's offset in the workspace, and after them: */
#define GDN_GENERIC_PARAM_BOUND GDN_GENERIC_NUM_PIECES /* slots of the chunk table */
#define GDN_GENERIC_PARAM_LANES (GDN_GENERIC_NUM_PIECES + 1) /* most lanes of a wave */
#define GDN_GENERIC_PARAM_STEPS (GDN_GENERIC_NUM_PIECES + 2) /* most steps of a wave */

_Static_assert(GDN_GENERIC_PARAM_STEPS < GDN_MAX_CHOICE_PARAMS, "a choice has room for every offset and bound");
_Static_assert(GDN_GENERIC_NUM_PIECES + 2 <= GDN_MAX_SCRATCH, "and a ledger for every piece, beside core's own");

/* Chooses chunk size and wave, books every piece, and lets the backend make its products ready; as
 * gdn_implementation.book. */
gdn_status gdn_generic_book(const gdn_device *device, const gdn_problem *problem, size_t max_workspace,
                            bool two_inverses, gdn_choice *choice);

#endif
