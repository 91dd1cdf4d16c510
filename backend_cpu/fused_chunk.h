/* One chunk of one head of the fused prefill, everything but q, k, v and o in cache.
 *
 *     R  = B (V - Gamma K S)            S: state before the chunk, as [K, 32] panels
 *     V' = (I + L)^-1 R                 by forward substitution; no inverse, no W, no U is formed
 *     O  = Gamma Q S + P V'             q carries the scale
 *     S  = exp(G_n) S + K^T diag(exp(G_n - G_i)) V'
 *
 * Multiplying all of S by exp(G_n) is put off as long as it is mild: what is kept is P with S = c P, where c is the product of
 * what has been put off. R and O take c in Gamma, and P += K^T diag(exp(G_n - G_i) / (c exp(G_n))) V'. Once c exp(G_n) falls
 * below 2^-32, and at the end, P is multiplied and c is 1 again. A checkpoint is what a run would keep that ends there.
 *
 * What does not depend on the value head (packed k and q, K K^T, Q K^T) is made once a chunk by
 * gdn_chunk_pack and used for each value head of the group by gdn_chunk_head. */
#ifndef GDN_CPU_FUSED_CHUNK_H
#define GDN_CPU_FUSED_CHUNK_H

#include "backend.h"

#include "fused_operands.h"
#include "fused_state.h"
#include "kernels/kernels.h"

/* A sequence as rows of the caller's tensors. */
typedef struct gdn_fused_sequence {
    int64_t index; /* which sequence or row of the call */
    int64_t row; /* multiplies row_stride: 0 for packed sequences */
    int64_t first; /* first token, multiplies token_stride */
    int64_t length;
} gdn_fused_sequence;

/* The scratch of one thread, and what a chunk needs to know. Sizes in floats, C = chunk rounded up to 16. */
typedef struct gdn_chunk_work {
    const gdn_cpu_kernels *kernels;
    const gdn_problem *problem;
    const gdn_prefill_args *args;
    int chunk; /* C */
    int width; /* columns of a panel: GDN_PANEL or GDN_HALF_PANEL */

    /* What gdn_chunk_pack makes and the rest only reads, with a part of the operands: in this scratch, or where another thread has
     * made it (fused_ahead.h). */
    float *gram; /* [C / 16, C, 32]: k_j k_i | k_j q_i for i in block, j in its rows */
    size_t pack_bytes;
    unsigned char *own_pack; /* the place in this scratch */
    const unsigned char *next_pack; /* that of the next chunk, if it is made already, or NULL */
    struct gdn_ahead *ahead; /* NULL: no other thread makes any */

    float *stage; /* [16, K] */
    float *mask; /* [C / 16, C, 32]: -L | P, the same places */
    float *v; /* [strip, C, 32]: R, then V' of each panel of a strip */
    float *rest_v; /* [strip, C, 32]: V', each row times its `rest` */
    float *ckpt_v; /* [C, 32]: a checkpoint's scaled V' */
    float *ckpt_state; /* [K, 32] */
    double *gate, *beta_raw; /* [C] each */
    float *G_high, *G_low, *beta, *minus_beta_gamma, *gamma, *rest; /* [C] each; gamma_i = c exp(G_i), rest_i =
                                                                       exp(G_n - G_i), over gamma_n if it is put off */
    const float *state_scale; /* what the update multiplies P by, or NULL */
    float next_scale; /* c after the chunk */
    float *ckpt_rest; /* [C]: rest with a checkpoint for n */
    gdn_operands operands;
    float *state; /* [heads of an item, its panels of each, K, 32], the caller's to place */
} gdn_chunk_work;

/* Checkpoints asked for inside one chunk: entry first + i of args->checkpoints after tokens[i] tokens of it. */
typedef struct gdn_chunk_checkpoints {
    int count;
    int64_t first;
    int tokens[GDN_MAX_CHUNK];
} gdn_chunk_checkpoints;

/* Bytes of scratch without the states, and its layout at `base` (64-byte aligned). */
size_t gdn_chunk_work_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk);
void gdn_chunk_work_place(gdn_chunk_work *work, unsigned char *base);

/* Bytes of what gdn_chunk_pack makes; where it is from now on, which returns them, too. */
size_t gdn_chunk_pack_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk);
size_t gdn_chunk_pack_place(gdn_chunk_work *work, unsigned char *base);

/* Tokens t .. t + n - 1 of key head `hk`. */
void gdn_chunk_pack(gdn_chunk_work *work, const gdn_fused_sequence *seq, int hk, int64_t t, int n);

/* rest_i = exp(G_at - G_i) for the first `at` + 1 tokens: what is left of token i's write after token `at`. */
void gdn_chunk_decay_after(gdn_chunk_work *work, int at, float *rest);

static inline int gdn_round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* What surrounds a chunk: in its sequence, and a head in its item. */
typedef struct gdn_chunk_step {
    /* What comes next is asked for ahead of time: its tokens, where they start, and how much higher the heads are that this
     * thread takes to them; `part` of `parts` of its q and k rows are this head's to ask for. */
    int next_tokens;
    int64_t next_t;
    int next_key_heads;
    int part, parts;
    /* Rows of v and o of what this thread works on after this head, the item's next head or the next chunk's first: the same
     * number of tokens, or 0 where there is none, from ahead_t on, and how much higher the head is. */
    int ahead_tokens, ahead_heads;
    int64_t ahead_t;
    bool more_heads; /* it is the item's next head */
    bool first, last; /* states are read before the first chunk and written after the last, panel by panel */
    const gdn_state_place *place;
    const gdn_chunk_checkpoints *checkpoints;
} gdn_chunk_step;

/* The same tokens of value head `hv`: its gates and masks, for states with this c; if `settle`, it will be 1 after them. */
void gdn_chunk_gates(gdn_chunk_work *work, const gdn_fused_sequence *seq, int hv, int64_t t, int n, float scale,
                     bool settle);
/* then the columns of its panels first .. end - 1, which `state` holds. */
void gdn_chunk_panels(gdn_chunk_work *work, const gdn_fused_sequence *seq, int hv, int64_t t, int n, float *state,
                      int first, int end, const gdn_chunk_step *step);

/* One panel of a state through the same tokens, without outputs: R = beta v - beta gamma (k S) with the columns of v from
 * `column` on, or with v = 0 where it is negative. */
void gdn_chunk_advance(gdn_chunk_work *work, const gdn_fused_sequence *seq, int hv, int64_t t, int n, int column,
                       int cols, float *panel);

#endif
