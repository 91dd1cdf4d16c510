/* The portable tensor-core prefill (mma.sync, sm_80 and later): two kernels a wave of chunks.
 *
 *   intra         one block a (chunk, key head): A' = A B and P of every value head of it, and the decay factors,
 *                 as one record a (chunk, value head) in scratch
 *   state_output  one block a (sequence, value head, columns of V): walks the sequence's chunks, the state
 *                 in registers, and writes o
 *
 * Both are queued on a stream, allocate nothing and wait for nothing. Letters are those of docs/algorithm.md.
 */
#ifndef GDN_CUDA_FUSED_PREFILL_H
#define GDN_CUDA_FUSED_PREFILL_H

#include "core/generic_ops.h"

#include <gdn/gdn.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

#define GDN_FUSED_CHUNK 64
#define GDN_FUSED_MAX_HEADS_PER_BLOCK 8
#define GDN_FUSED_MAX_STAGES 4

/* The record of one (chunk slot, value head). A' and P are lower triangles of 16 x 16 blocks, block (i, j) at
 * i (i + 1) / 2 + j, each the 512 bytes that 32 lanes hold of it as the B operand of mma m16n8k16:
 * lane g * 4 + t has, as 16-bit pairs, (g, 2t..) (g, 8 + 2t..) (g + 8, 2t..) (g + 8, 8 + 2t..).
 *
 *     0              5120          10240     10496     10752       11008  11024  11280  11536  11792
 *     | A' 10 blocks | P 10 blocks | decay_k | decay_q | decay_end | end  | G    | G low | norm | pad
 *                                                        read for every chunk | for checkpoints only
 */
#define GDN_FUSED_A 0
#define GDN_FUSED_P 5120
#define GDN_FUSED_DECAY_K 10240 /* exp(G_i) rk_i, float[64]; rk_i normalises k_i (1 where nothing is asked) */
#define GDN_FUSED_DECAY_Q 10496 /* scale exp(G_i) rq_i */
#define GDN_FUSED_DECAY_END 10752 /* exp(G_C - G_i) rk_i */
#define GDN_FUSED_END 11008 /* exp(G_C), then three unused floats */
#define GDN_FUSED_STAGED 11024 /* bytes up to here are what state_output loads ahead */
#define GDN_FUSED_G 11024 /* G_i, and the part of it below float32's precision */
#define GDN_FUSED_G_LOW 11280
#define GDN_FUSED_NORM 11536 /* rk_i */
#define GDN_FUSED_RECORD 11904

/* A q, k, v, o, gate or beta: element d of head h of a chunk's row i is at
 *   chunk_base + i * token_stride + h * head_stride + d;
 * chunk_base is token * token_stride, or for an equal-length batch seq * row_stride + index * 64 * token_stride. */
typedef struct gdn_fused_operand {
    void *data;
    int32_t dtype;
    int64_t row_stride;
    int64_t token_stride;
    int64_t head_stride;
} gdn_fused_operand;

typedef struct gdn_fused_state {
    void *data; /* NULL: none */
    int32_t dtype;
    int64_t slot_stride;
    int64_t head_stride;
    int64_t v_stride;
    int64_t k_stride;
    int32_t pairs; /* two elements next to each other along k can be moved at once: k_stride is 1, the rest is even, and
                      the pointer is aligned to two elements */
} gdn_fused_state;

typedef struct gdn_fused_prefill {
    int32_t num_k_heads, num_v_heads, head_k_dim, head_v_dim;
    int32_t tiled_heads; /* value head h reads key head h mod num_k_heads, else h / heads_per_group */
    int32_t heads_per_group;
    float scale;
    int32_t gate_form, beta_form, qk_norm;
    float beta_scale, qk_norm_eps;

    int32_t equal_length; /* operands are addressed by row_stride */
    gdn_fused_operand q, k, v, o, gate, beta;
    const float *A_log, *dt_bias;

    gdn_fused_state initial_state, final_state, checkpoints;
    const void *read_slots, *write_slots; /* NULL: a sequence's own number */
    int32_t slots_dtype;
    const uint8_t *has_initial_state;

    int32_t checkpoint_form, checkpoint_interval, checkpoint_index_dtype;
    int64_t num_checkpoints;
    const void *checkpoint_positions, *checkpoint_offsets;
    int64_t *checkpoint_bases; /* EVERY: [sequences], each sequence's first entry (gdn_fused_bases) */

    const gdn_chunk *chunks; /* the whole chunk table */
    int64_t wave_begin; /* the wave's slots are chunks[wave_begin .. wave_begin + wave_slots) */
    int32_t wave_slots;
    unsigned char *records; /* [wave_slots, num_v_heads] of GDN_FUSED_RECORD bytes */
    const float *carry_in; /* [num_v_heads, V, K]: state of the sequence that the wave before left unfinished */
    float *carry_out;
    /* (optional) [wave_slots, num_k_heads, 2, 64, K] in the I/O type: k and q after normalisation. Where NULL,
     * normalisation is folded into the decay factors; float16 has not the range for that. */
    void *packed_qk;

    int32_t heads_per_block; /* intra: value heads of a key head that one block works off */
    int32_t warps; /* state_output: 16 columns of V each; 1, 2 or 4 */
    int32_t stages; /* state_output: chunks in shared memory, 1..4 */
    float one; /* 1 */
    int32_t lanes; /* state_output: sequences that are worked on at once, at most */
    int32_t shared_bytes; /* shared memory that a block of the device may have */
} gdn_fused_prefill;

/* Checkpoints every `interval` tokens: fills bases[num_seqs]. */
typedef struct gdn_fused_bases {
    const void *cu_seqlens; /* NULL: an equal-length batch of row_length tokens each */
    int32_t cu_seqlens_dtype;
    int32_t interval;
    int64_t row_length, num_seqs, total_tokens;
    int64_t *bases;
} gdn_fused_bases;

int gdn_fused_bases_launch(const gdn_fused_bases *bases, struct CUstream_st *stream);

/* Shared memory, in bytes, that a block asks for. */
size_t gdn_fused_intra_smem(int32_t head_k_dim, int32_t heads_per_block);
size_t gdn_fused_state_output_smem(int32_t head_k_dim, int32_t warps, int32_t stages);

/* Queue one wave's kernel. The dtype is q's (BF16 or F16), head_k_dim 64, 128 or 256, head_v_dim a multiple of
 * 16 * warps. Return a cudaError_t, 0 for success. */
int gdn_fused_intra_launch(const gdn_fused_prefill *prefill, struct CUstream_st *stream);
int gdn_fused_state_output_launch(const gdn_fused_prefill *prefill, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
