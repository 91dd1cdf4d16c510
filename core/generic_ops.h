/* The operations core's generic WY/UT prefill path (generic_prefill.c) is written against.
 *
 * All scratch is float32 and dense. Shapes, with C = chunk_size, H = num_k_heads, HV = num_v_heads,
 * K, V the head dims, m = wave->num_slots, l = wave->num_lanes:
 *   heads h of k, hv of v; kmap(hv) is hv / (HV / H) or hv mod H, as problem->head_map says.
 * Every operation queues its work on run->stream, in order, and may use no memory but its operands.
 * Rows of a chunk past its length hold zeros in packed q, k, v and in beta, and repeat the last G.
 * G is a pair of float32 planes [m, HV, 2, C], G = G[..., 0, :] + G[..., 1, :]: the sum and what its rounding left
 * over. Several resets in one chunk take the sum to thousands, where one float32 is too coarse for exp(G_i - G_j);
 * (high_i - high_j) + (low_i - low_j) is not.
 * Host-memory backends know lengths; on a device `lane_slot` entries of -1 mark work to leave out.
 */
#ifndef GDN_CORE_GENERIC_OPS_H
#define GDN_CORE_GENERIC_OPS_H

#include "backend.h"

/* One chunk of one sequence: a slot of the chunk table, which lists the sequences' chunks in order. A
 * sequence of no tokens has one chunk of length 0, so that its state is passed on. Skipped sequences
 * have none. */
typedef struct gdn_chunk {
    int64_t token; /* its first token, counted over the packed tokens (row * length + t for an equal-length batch) */
    int32_t seq; /* -1: an unused slot at the table's end */
    int32_t index; /* which chunk of its sequence, from 0: index * C tokens precede it */
    int32_t length; /* tokens in it, 0..C */
    int32_t last; /* 1: the sequence's last */
} gdn_chunk;

/* A wave: consecutive slots of the chunk table worked on at once. A sequence with chunks in the wave has a lane,
 * numbered in order; its chunks are the steps 0, 1, ... of that lane. */
typedef struct gdn_wave {
    int32_t chunk_size;
    int32_t num_slots; /* m */
    int32_t num_lanes; /* l: the most lanes the wave can have */
    int32_t num_steps; /* the most chunks a lane can have in it */
    const gdn_chunk *chunks; /* [m], backend memory */
    int32_t *lane_slot; /* [num_steps, l], backend memory: the slot in the wave (0..m-1), or -1 */
} gdn_wave;

/* One operand of a batched product: element (i, j) of entry (b0, b1, b2) is at
 *   data + outer(b0) * stride[0] + b1 * stride[1] + b2 * stride[2] + i * ld + j,
 * outer(b0) = outer_index ? outer_index[b0] : b0. Where any operand's outer_index is negative the whole
 * entry is left out. */
typedef struct gdn_batch_matrix {
    float *data;
    int64_t ld;
    int64_t stride[3];
    const int32_t *outer_index; /* backend memory, [batch[0]] */
} gdn_batch_matrix;

/* C = alpha op(A) op(B) + beta C over a batch of batch[0] x batch[1] x batch[2] entries, row-major;
 * op(A) is m x k, op(B) is k x n. beta = 0 does not read C. Numerics: FP32 (DEFAULT means it) or TF32. */
typedef struct gdn_matmul {
    int32_t m, n, k;
    bool transpose_a, transpose_b;
    float alpha, beta;
    gdn_numerics numerics;
    int64_t batch[3];
    gdn_batch_matrix a, b, c;
} gdn_matmul;

typedef enum gdn_pack_source { GDN_PACK_Q, GDN_PACK_K, GDN_PACK_V } gdn_pack_source;

typedef enum gdn_mask_kind {
    GDN_MASK_L, /* L_ij = beta_i exp(G_i - G_j) gram_ij for i > j, else 0 */
    GDN_MASK_P /* P_ij = scale exp(G_i - G_j) gram_ij for i >= j, else 0 */
} gdn_mask_kind;

typedef enum gdn_row_factor {
    GDN_ROW_BETA, /* beta_i */
    GDN_ROW_BETA_DECAY, /* beta_i exp(G_i) */
    GDN_ROW_SCALE_DECAY /* scale exp(G_i) */
} gdn_row_factor;

struct gdn_generic_ops {
    /* (optional) Called for each plan once its chunk size is fixed: makes ready what the products will need, such as a
     * BLAS library to open. */
    gdn_status (*prepare)(const gdn_device *device, const gdn_problem *problem, int32_t chunk_size);

    /* Builds the chunk table (`bound` slots, unused ones seq = -1) from cu_seqlens and slots. *used gets the
     * slots in use where the host can know it, else `bound`. A device checks the metadata here and writes the fault. */
    gdn_status (*schedule)(const gdn_device *device, const gdn_prefill_run *run, int32_t chunk_size, gdn_chunk *chunks,
                           int64_t bound, int64_t *used);
    /* Fills wave->lane_slot from wave->chunks. Where the host can know the lanes and steps in use, num_lanes and
     * num_steps are lowered to them first (lane_slot is [num_steps, num_lanes] of the lowered counts). */
    gdn_status (*begin_wave)(const gdn_device *device, const gdn_prefill_run *run, gdn_wave *wave);

    /* G[m, HV, 2, C], inclusive sums of clamped log decays inside a chunk (summed in double or as pairs), and
     * beta[m, HV, C], from whatever gate form. */
    gdn_status (*gates)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *G,
                        float *beta);
    /* Rows of q, k or v as float32 [m, heads, C, dim], q and k normalised as asked, zeros past the chunk's length. */
    gdn_status (*pack)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                       gdn_pack_source source, float *dst);
    gdn_status (*matmul)(const gdn_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul);
    /* dst[m, HV, C, C] from gram[m, H, C, C] by kmap, as gdn_mask_kind says. */
    gdn_status (*mask)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, gdn_mask_kind kind,
                       const float *gram, const float *G, const float *beta, float *dst);
    /* A[count, C, C]: strictly lower L on entry, (I + L)^-1 on return (upper part zero), by blocked substitution. */
    gdn_status (*inverse)(const gdn_device *device, const gdn_prefill_run *run, float *A, int64_t count,
                          int32_t chunk_size);
    /* dst[m, HV, C, width] = factor_i * src[m, src_heads, C, width] rows; src_heads is HV, or H (then by kmap). dst may
     * be src where src_heads is HV. */
    gdn_status (*scale_rows)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                             gdn_row_factor factor, const float *G, const float *beta, const float *src,
                             int32_t src_heads, int32_t width, float *dst);

    /* State of each lane as float32 S[l, HV, K, V] at the wave's start: a sequence's first chunk takes the initial
     * state (or zeros), a continued one takes carry[HV, K, V]. */
    gdn_status (*load_states)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, float *S,
                              const float *carry);
    /* At the wave's end: a lane whose last chunk is in the wave stores its state (write slot or final_state; a sequence of
     * no tokens copies its initial state bit for bit where the dtypes agree), the lane that goes on fills carry. */
    gdn_status (*store_states)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                               const float *S, float *carry);
    /* For the lanes' chunks at `step`, with end = ends ? ends[lane] : the chunk's length (lanes with no chunk or
     * end <= 0 are left out, their tail zeroed and their dst untouched):
     *   tail[l, HV, C, K] row i = exp(G_{end-1} - G_i) k_i for i < end, else 0    (k from packed k[m, H, C, K] by kmap)
     *   dst[l, HV, K, V] = exp(G_{end-1}) src[l, HV, K, V]                         (dst may be src) */
    gdn_status (*decay_state)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, int32_t step,
                              const int32_t *ends, const float *G, const float *k, const float *src, float *tail,
                              float *dst);
    /* (optional) All steps of a wave at once, where a backend has one kernel for it: for each lane's chunks in order
     * V' = U - W S in place of U, rows[m, HV, C, V] = q S, and S after the chunk, with the bits that matmul and
     * decay_state give. W may be overwritten. *taken is false, and nothing queued, where it does not do this problem. */
    gdn_status (*walk)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *G,
                       const float *q, const float *k, float *W, float *U, float *rows, float *S, bool *taken);
    /* Checkpoints: round r of a step handles each lane's r-th checkpoint inside its chunk. Fills ends[l] (tokens of the
     * chunk consumed, or 0) and entries[l] (index into args->checkpoints, or -1); *any is false where the host knows that
     * no lane has one. `store_checkpoints` writes S[l, HV, K, V] to those entries. */
    gdn_status (*find_checkpoints)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                   int32_t step, int32_t round, int32_t *ends, int64_t *entries, bool *any);
    gdn_status (*store_checkpoints)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave,
                                    const int64_t *entries, const float *S);

    /* o rows of the wave's chunks from O[m, HV, C, V]: rounded to o's dtype, rows past a chunk's length not written. */
    gdn_status (*unpack)(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *O);
};

/* The generic prefill implementation, core's own: the last entry of every backend's table. */
extern const gdn_implementation gdn_generic_prefill;

#endif
