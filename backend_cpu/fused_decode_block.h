/* A block of one head's state through the tokens of a decode row. */
#ifndef GDN_CPU_FUSED_DECODE_BLOCK_H
#define GDN_CPU_FUSED_DECODE_BLOCK_H

#include "backend.h"

#include "fused_state.h"
#include "kernels/kernels.h"

/* Scratch of one thread, in floats. */
typedef struct gdn_decode_work {
    const gdn_cpu_kernels *kernels;
    const gdn_decode_run *run;
    int64_t row; /* whose q and k, of which key head, are in the scratch; -1: none are */
    int key_head;
    float qk[GDN_MAX_DECODE_TOKENS]; /* their products */
    float *q, *k; /* [T, K] */
    float *tile; /* [16, K] or [K, 32] */
    int64_t end_column; /* of v, counted through all heads and rows: from there on another thread may work */
} gdn_decode_work;

/* A row's tokens, as one value head sees them. */
typedef struct gdn_token_terms {
    int count;
    float alpha[GDN_MAX_DECODE_TOKENS], beta[GDN_MAX_DECODE_TOKENS], qk[GDN_MAX_DECODE_TOKENS];
} gdn_token_terms;

/* Columns first .. first + count - 1 of v through all tokens of row `row`. */
void gdn_fused_decode_block(const gdn_decode_work *w, const gdn_state_place *place, int64_t row, int hv, int first,
                            int count, const gdn_token_terms *terms);

#endif
