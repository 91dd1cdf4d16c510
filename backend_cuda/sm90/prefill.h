/* The Hopper prefill (wgmma, tensor copies, mbarriers; head dims 128): two kernels a wave of chunks.
 *
 *   prep          one warpgroup a (chunk, key head): what does not depend on the state, one record a (chunk, value head)
 *   state_output  one block a (sequence, value head, half of V): walks the sequence's chunks, the state in registers,
 *                 and writes o
 *
 * Letters are those of docs/algorithm.md; docs/kernels/sm90.md draws warp roles, shared memory and pipeline. Both kernels
 * are queued on a stream, allocate nothing and wait for nothing.
 */
#ifndef GDN_CUDA_SM90_PREFILL_H
#define GDN_CUDA_SM90_PREFILL_H

#include "core/generic_ops.h"

#include <cuda.h>
#include <gdn/gdn.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

#define GDN_SM90_CHUNK 64
#define GDN_SM90_DIM 128 /* head_k_dim and head_v_dim */
#define GDN_SM90_HALF 64 /* columns of V of one block */

/* The record of one (chunk slot, value head). A' and P are 64 x 64 tiles of the I/O type in rows of 128 bytes, swizzled as
 * wgmma reads them (piece c of row r at piece c ^ (r & 7)), blocks above the diagonal zero; so a record is copied to and
 * from shared memory as it is.
 *
 *     0    8192  16384     16640       16896     17152      17168     17408
 *     | A' | P   | decay_k | decay_end | decay_q | end, pad | (unused) |
 */
#define GDN_SM90_RECORD_A 0
#define GDN_SM90_RECORD_P 8192
#define GDN_SM90_RECORD_DECAY_K 16384 /* exp(G_i) rk_i, float[64]; rk_i normalises k_i (1 where nothing is asked) */
#define GDN_SM90_RECORD_DECAY_END 16640 /* exp(G_C - G_i) rk_i */
#define GDN_SM90_RECORD_DECAY_Q 16896 /* scale exp(G_i) rq_i */
#define GDN_SM90_RECORD_END 17152 /* exp(G_C) */
#define GDN_SM90_RECORD_USED 17168
#define GDN_SM90_RECORD_BYTES 17408

/* Where a sequence's chunks lie in a wave: slots [first, end). Written by prep for every sequence that has any; others'
 * entries are garbage, which the reader finds by looking at the chunks they point to. */
typedef struct gdn_sm90_run {
    int32_t first;
    int32_t end;
} gdn_sm90_run;

/* Gate or beta, o or a state, as the caller laid it out; strides in elements. */
typedef struct gdn_sm90_rows {
    void *data;
    int32_t dtype;
    int64_t row_stride;
    int64_t token_stride;
    int64_t head_stride;
} gdn_sm90_rows;

typedef struct gdn_sm90_states {
    void *data; /* NULL: none */
    int32_t dtype;
    int32_t pairs; /* float32, and two elements next to each other along k are one aligned 8-byte word */
    int64_t slot_stride;
    int64_t head_stride;
    int64_t v_stride;
    int64_t k_stride;
} gdn_sm90_states;

/* Tensor maps are four-dimensional: element, head, token, row; boxes are 64 elements of 64 tokens. For packed sequences a
 * token is counted over all of them and the row is 0, for an equal-length batch it is counted in its row. */
typedef struct gdn_sm90_prefill {
    CUtensorMap q_map, k_map, v_map, o_map;

    int32_t num_k_heads, num_v_heads;
    int32_t tiled_heads; /* value head h reads key head h mod num_k_heads, else h / heads_per_group */
    int32_t heads_per_group; /* num_v_heads / num_k_heads */
    int32_t heads_per_job; /* value heads of a key head that a block of prep works off together, 1..4 */
    float scale;
    int32_t gate_form, beta_form, qk_norm;
    float beta_scale, qk_norm_eps;
    int32_t equal_length;
    gdn_sm90_rows gate, beta, o;
    const float *A_log, *dt_bias;

    gdn_sm90_states initial_state, final_state;
    const void *read_slots, *write_slots; /* NULL: a sequence's own number */
    int32_t slots_dtype;
    const uint8_t *has_initial_state;

    int32_t num_seqs;
    const gdn_chunk *chunks; /* the whole chunk table */
    int64_t wave_begin; /* the wave's slots are chunks[wave_begin .. wave_begin + wave_slots) */
    int32_t wave_slots;
    gdn_sm90_run *runs; /* [num_seqs] */
    unsigned char *records; /* [wave_slots, num_v_heads] of GDN_SM90_RECORD_BYTES */
    const float *carry_in; /* [num_v_heads, V, K]: state of the sequence that the wave before left unfinished */
    float *carry_out;
} gdn_sm90_prefill;

/* Queue one wave's kernel for q of `dtype` (BF16 or F16) on a device of `num_sms`. Return a cudaError_t, 0 for success. */
int gdn_sm90_prep_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream);
int gdn_sm90_state_output_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                                 struct CUstream_st *stream);

/* Shared memory, in bytes, that a block asks for. */
size_t gdn_sm90_prep_smem(void);
size_t gdn_sm90_state_output_smem(void);

#ifdef __cplusplus
}
#endif

#endif
