/* Decode and verification in one kernel: 1 to 16 tokens a row against states in a pool or a dense batch.
 *
 * Kernels of the same arithmetic: those of decode.cu and decode_one.cu for states whose rows, and those of q and k, can be moved in
 * 16-byte pieces, and decode_shared.cu's for everything else. All are queued on a stream, allocate nothing and wait for nothing.
 */
#ifndef GDN_CUDA_DECODE_H
#define GDN_CUDA_DECODE_H

#include "fused_prefill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns of V that a block of the general kernel can take. */
#define GDN_DECODE_MAX_COLUMNS 32

typedef struct gdn_decode_params {
    int64_t num_rows;
    int32_t tokens_per_row;
    int32_t num_k_heads, num_v_heads, head_k_dim, head_v_dim;
    int32_t tiled_heads; /* value head h reads key head h mod num_k_heads, else h / heads_per_group */
    int32_t heads_per_group;
    float scale;
    int32_t gate_form, beta_form, qk_norm;
    float beta_scale, qk_norm_eps;

    gdn_fused_operand q, k, v, o, gate,
        beta; /* element d of head h of token t of a row at strides row, token, head, 1 */
    const float *A_log, *dt_bias;
    const int32_t *num_tokens; /* NULL: tokens_per_row everywhere */

    gdn_fused_state initial_state, final_state; /* data NULL: zeros; not written */
    gdn_fused_state token_states; /* where token_slots point */
    const void *read_slots, *write_slots, *token_slots; /* NULL: a row's own number; no token states */
    int32_t slots_dtype;
    int64_t num_slots; /* with read_slots: slots of the pool */
    const uint8_t *has_initial_state;

    gdn_metadata_fault *fault;
    int32_t
        checked; /* the fault word was cleared, and perhaps written, earlier in the stream: if it was, nothing is done */

    int32_t num_sms;
    int64_t l2_bytes;
    int32_t overlap; /* the column kernels: launch by programmatic dependent launch, which device and driver know */
    int32_t columns; /* the general kernel: of V a block; a power of two, 8..32 */
    int32_t group; /* the general kernel: tokens whose q and k are in shared memory at once */
} gdn_decode_params;

/* Which states the column kernels take, each of which has its lines in whole 16-byte pieces: columns v, or rows k. */
typedef enum gdn_decode_layout { GDN_DECODE_ANY, GDN_DECODE_COLUMNS, GDN_DECODE_ROWS } gdn_decode_layout;

/* GDN_DECODE_ANY: not the column kernels. Both states of a call must be of one layout and one type. */
gdn_decode_layout gdn_decode_layout_of(int32_t head_k_dim, int32_t head_v_dim, const gdn_fused_state *state,
                                       uint32_t alignment);

/* Whether they take these strides: in bytes, and a slot's in pieces of 16 bytes, they are numbers of 32 bits. */
int gdn_decode_columns_fit(const gdn_decode_params *decode);

/* The fewest columns of V that a block of either kernel takes: what a grid is bounded by. */
#define GDN_DECODE_LEAST_COLUMNS 4

/* Queue the kernel. Return a cudaError_t, 0 for success. */
int gdn_decode_columns_launch(const gdn_decode_params *decode, struct CUstream_st *stream);
int gdn_decode_one_launch(const gdn_decode_params *decode,
                          struct CUstream_st *stream); /* its part for one token a row */
int gdn_decode_shared_launch(const gdn_decode_params *decode, struct CUstream_st *stream);

/* problem->check: before the kernel, clears the fault word and reports slot conflicts and gates out of range; after it,
 * reports rows that were skipped as wrong (otherwise the kernel does that itself). */
int gdn_decode_check_launch(const gdn_decode_params *decode, struct CUstream_st *stream);
int gdn_decode_report_launch(const gdn_decode_params *decode, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
