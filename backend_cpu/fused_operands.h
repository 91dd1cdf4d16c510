/* The operands of a chunk's products in the form that the kernels want.
 *
 * A product has a left operand, whose words are broadcast or loaded as tile rows, and a right one, whose rows are vectors
 * of columns. In float32 a word is a number, and most operands are simply where they were made. In bfloat16 a word is a
 * pair of neighbours along the depth, and each operand is rounded and paired once. */
#ifndef GDN_CPU_FUSED_OPERANDS_H
#define GDN_CPU_FUSED_OPERANDS_H

#include <gdn/gdn.h>

#include "kernels/kernels.h"

typedef struct gdn_left {
    float *words; /* word j of row i: see gdn_product */
    ptrdiff_t ld, block;
} gdn_left;

typedef struct gdn_operands {
    const gdn_cpu_kernels *kernels;
    int K, C;
    gdn_left k, q; /* rows: tokens; depth: K */
    gdn_left keys; /* rows: K; depth: tokens. In float32 k itself, read across */
    gdn_left lower; /* P. rows: tokens; depth: tokens */
    float *packed; /* right, [C / 16, K words, 32]: k of 16 tokens, then q of the same */
    float *state, *v; /* right, bfloat16 only: the panels of S of a strip, and V' and scaled V' of each */
    float *k_rows, *q_rows, *stage; /* bfloat16 only: float32 [C, K] and [16, K]; words on their way */
} gdn_operands;

/* Both lay out their part of them, of which kernels, K and C are set, at `base` + *used and move *used on; base NULL only counts.
 * First what gdn_operands_k, _q and _keys make and the rest only reads, */
void gdn_operands_place_pack(gdn_operands *o, unsigned char *base, size_t *used);
/* then the rest. `mask` is the float32 array of gdn_chunk_work that float32 kernels use as it is. */
void gdn_operands_place(gdn_operands *o, float *mask, unsigned char *base, size_t *used);

/* A piece of scratch on a cache line. */
float *gdn_scratch_take(unsigned char *base, size_t *used, size_t floats);

/* 16 tokens from `first` on: float32 rows of k or q and what each is multiplied by. */
typedef struct gdn_token_rows {
    const float *x;
    ptrdiff_t ld;
    const float *scale;
} gdn_token_rows;
void gdn_operands_k(gdn_operands *o, int first, const gdn_token_rows *k);
void gdn_operands_q(gdn_operands *o, int first, const gdn_token_rows *q);
/* Tiles only: the left operand q of one value head, its rows times gamma. */
void gdn_operands_head_q(gdn_operands *o, int n, const float *gamma);
/* After the k rows of the chunk's `n` tokens, the last block's filled with zeros. */
void gdn_operands_keys(gdn_operands *o, int n);
/* P of n tokens from the mask. */
void gdn_operands_lower(gdn_operands *o, int n, const float *mask);

/* The solves of R, in place, of a strip's `count` panels: v = V' and rest_v = rest V' as right operands. rest_x: [count, C, 32] */
void gdn_operands_solve(const gdn_operands *o, const gdn_product *residual, int count, const float *mask,
                        const float *rest, float *rest_x, const float **v, const float **rest_v);

/* The products of R; with tiles only their sums, which the solve finishes. */
void gdn_operands_residual(const gdn_operands *o, const gdn_product *residual, int count);

/* A right operand from float32 rows of GDN_PANEL: themselves, or their pairs in `pairs`, zero up to `padded` rows. */
const float *gdn_operands_right(const gdn_operands *o, int rows, int padded, int cols, const float *x, float *pairs);

/* Numbers along a depth -> words. */
static inline int gdn_operands_words(const gdn_operands *o, int depth)
{
    return o->kernels->pair_rows ? (depth + 1) / 2 : depth;
}

#endif
