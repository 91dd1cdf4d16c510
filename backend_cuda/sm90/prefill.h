/* The Hopper prefill (wgmma, tensor copies, mbarriers): two to four kernels a wave of chunks, or all in one (fused_kernel.cuh).
 *
 *   prep          one warpgroup a (chunk, key head): what does not depend on the state, one record a (chunk, value head)
 *   state_only    where sequences are cut into segments: one block a (segment, value head, tile of V) finds F, what the
 *                 segment makes of a zero state (of the real one, for a sequence's first), and E, what it multiplies a
 *                 state with
 *   join          the state that each segment starts from: S <- E S + F from segment to segment
 *   state_output  one block a (segment, value head, tile of V): walks the segment's chunks, the state in registers,
 *                 and writes o; of 128 x 128 also a piece or a share of sequences (pieces_kernel.cuh)
 *
 * Letters are those of docs/algorithm.md; docs/kernels/sm90.md draws warp roles, shared memory and pipeline. Kernels
 * are queued on a stream; they allocate nothing, and the host waits for nothing.
 */
#ifndef GDN_CUDA_SM90_PREFILL_H
#define GDN_CUDA_SM90_PREFILL_H

#include "../schedule.h"

#include <cuda.h>
#include <gdn/gdn.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

#define GDN_SM90_CHUNK 64
#define GDN_SM90_TILE 64 /* columns of K or V of one tile; a warpgroup has the state of one tile of V */

/* The record of one (chunk slot, value head). A' and P are 64 x 64 tiles of the I/O type in rows of 128 bytes, swizzled as
 * wgmma reads them (piece c of row r at piece c ^ (r & 7)), blocks above the diagonal zero; so a record is copied to and
 * from shared memory as it is. After what the state needs comes what a score warpgroup makes P of or, where a form has
 * none, P itself.
 *
 *     0    8192      8448        8704      8960       8976       9808 10064 10320
 *     | A' | decay_k | decay_end | decay_q | end, pad | gates of P | rk | rq |
 *                                                     | (unused) | P ..         |
 *                                                                9216       17408
 */
#define GDN_SM90_RECORD_A 0
#define GDN_SM90_RECORD_DECAY_K 8192 /* exp(G_i) rk_i, float[64]; rk_i normalises k_i (1 where nothing is asked) */
#define GDN_SM90_RECORD_DECAY_END 8448 /* exp(G_C - G_i) rk_i */
#define GDN_SM90_RECORD_DECAY_Q 8704 /* scale exp(G_i) rq_i */
#define GDN_SM90_RECORD_END 8960 /* exp(G_C) */
#define GDN_SM90_RECORD_STATE_BYTES 8976 /* all of that */
#define GDN_SM90_RECORD_GATES 8976 /* HeadGates from kInBlock to kStart */
#define GDN_SM90_RECORD_K_FACTOR 9808 /* rk_i, float[64]; only where rows are normalised by factors, as are the next */
#define GDN_SM90_RECORD_Q_FACTOR 10064 /* scale rq_i */
#define GDN_SM90_RECORD_USED 10320
#define GDN_SM90_RECORD_BYTES 10368
#define GDN_SM90_RECORD_P 9216
#define GDN_SM90_RECORD_BYTES_WITH_P 17408

/* The gates of one (chunk slot, value head) for the fused kernel (HeadGates). */
#define GDN_SM90_GATES_BYTES 1008

#define GDN_SM90_PASSED_BYTES (128 * 128 * 4) /* a state that one block leaves to another */

/* A chunk of normalised k and q, as swizzled tiles. */
#define GDN_SM90_PACKED_BYTES(head_k_dim) (4 * GDN_SM90_CHUNK * (head_k_dim))

/* Chunks of a segment of a sequence of `chunks`: all of them where it is not cut. Long sequences of few heads are, so that
 * there is work for every multiprocessor; by their own length and the number of heads alone, since E and F round in another
 * place than an uncut state. What is left may be cut in two in each wave: that needs no E, the bits are those of one piece. */
#define GDN_SM90_MIN_SEGMENT 32
#define GDN_SM90_MAX_SEGMENT 128
#define GDN_SM90_MIN_HALF 32
#define GDN_SM90_MOST_PIECES 4
#define GDN_SM90_MOST_SHARED 32 /* sequences of a run with pieces */
#define GDN_SM90_PIECE_BYTES 64
#define GDN_SM90_QUIET 0.575f /* what a chunk without outputs takes of the time of one with them */

#define GDN_SM90_MOST_PLANNED 256 /* sequences of a run without a chunk table */

#ifdef __CUDACC__
#define GDN_SM90_BOTH static inline __host__ __device__
#else
#define GDN_SM90_BOTH static inline
#endif

GDN_SM90_BOTH int32_t gdn_sm90_segment_chunks(int32_t chunks, int32_t num_v_heads, int32_t head_k_dim)
{
    /* With more heads, or fewer chunks, the work that E adds is not worth it, the less so where there are pieces instead. */
    const bool pieces = head_k_dim == 128;
    const int32_t uncut = num_v_heads <= 8 ? (pieces ? 112 : 64) : pieces ? 448 : 128;
    if (num_v_heads <= 16 && chunks > uncut) {
        const int32_t target = 64 / num_v_heads;
        const int32_t least = num_v_heads <= 8 ? GDN_SM90_MIN_SEGMENT : 2 * GDN_SM90_MIN_SEGMENT;
        int32_t length = (chunks + target - 1) / target;
        length = length < least ? least : length > GDN_SM90_MAX_SEGMENT ? GDN_SM90_MAX_SEGMENT : length;
        if (chunks > 2 * length) {
            return length;
        }
    }
    return chunks;
}

/* At least as many segments as any sequence of up to `chunks` has, if it is cut so. */
GDN_SM90_BOTH int32_t gdn_sm90_most_segments(int32_t chunks, int32_t num_v_heads, int32_t head_k_dim)
{
    if (gdn_sm90_segment_chunks(chunks, num_v_heads, head_k_dim) == chunks) {
        return 1;
    }
    const int32_t target = 64 / num_v_heads;
    const int32_t longest = (chunks + GDN_SM90_MAX_SEGMENT - 1) / GDN_SM90_MAX_SEGMENT;
    return target > longest ? target : longest;
}

/* Bytes of a record: at K = 256 it has P. */
GDN_SM90_BOTH uint32_t gdn_sm90_record_bytes(int32_t head_k_dim)
{
    return head_k_dim > 128 ? GDN_SM90_RECORD_BYTES_WITH_P : GDN_SM90_RECORD_BYTES;
}

/* Bytes of a record without P that are written and read: all, or those before the factors of rows. */
GDN_SM90_BOTH uint32_t gdn_sm90_record_used(int32_t qk_norm, const void *packed_qk)
{
    return qk_norm == GDN_QK_NORM_NONE || packed_qk ? GDN_SM90_RECORD_K_FACTOR : GDN_SM90_RECORD_USED;
}

/* Where a sequence's chunks lie in a wave: slots [first, end). Written by prep for every sequence that has any; others'
 * entries are garbage, which the reader finds by looking at the chunks they point to. */
typedef struct gdn_sm90_run {
    int32_t first;
    int32_t end;
} gdn_sm90_run;

/* The slots of a wave. */
typedef struct gdn_sm90_wave {
    int64_t begin;
    int64_t end;
} gdn_sm90_wave;

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

    gdn_sm90_states initial_state, final_state, checkpoints;
    int32_t checkpoint_chunks; /* chunks between checkpoints; 0: none are wanted, or any_dims */
    int64_t num_checkpoints;
    const int64_t *checkpoint_bases; /* [num_seqs]: each sequence's first entry */
    const void *read_slots, *write_slots; /* NULL: a sequence's own number */
    int32_t slots_dtype;
    const uint8_t *has_initial_state;

    int32_t num_seqs;
    const void *cu_seqlens; /* NULL for an equal-length batch */
    int32_t cu_seqlens_dtype;
    int64_t row_length; /* tokens of each sequence of an equal-length batch */
    const gdn_chunk *chunks; /* the whole chunk table */
    int64_t
        wave_begin; /* the wave's slots are chunks[wave_begin .. wave_begin + wave_slots); as `waves` says, if there */
    int32_t wave_slots;
    const gdn_sm90_wave *wave; /* (optional) in device memory: waves that are not cut inside a segment */
    gdn_sm90_run *runs; /* [num_seqs] */
    /* [2]: items that blocks of state_only and of state_output took after their first; of pieces, [0], blocks that have begun, or items.
     * prep resets it. */
    uint32_t *taken;
    gdn_chunk *reads; /* (optional) zeros; index: warps that have read an initial state that will be replaced */
    int32_t pieces; /* that there is room for at once, of all heads and both halves of V; 0: there are none */
    int32_t piece_units; /* at least as many as there are */
    void *piece_items; /* [piece_units] of 64 bytes: written by prep */
    unsigned char *records; /* [wave_slots, num_v_heads] of GDN_SM90_RECORD_BYTES, or of those with P */
    unsigned char *packed_qk; /* (optional) [wave_slots, num_k_heads] of GDN_SM90_PACKED_BYTES */
    const float *carry_in; /* [num_v_heads, V, K]: state of the sequence that the wave before left unfinished */
    float *carry_out;

    int32_t whole_V; /* state_output of K = 256: a block has two tiles of V, not one; not with packed_qk or segments */
    int32_t *next_item; /* fused: items that blocks took after their first, with shares blocks that have begun; a kernel
                         * before left 0 there */
    int32_t share; /* chunks of a block, where items are shared out evenly; 0: they are not */
    int32_t share_blocks; /* that have a share */
    int32_t item_chunks; /* fused: of the longest sequence */
    gdn_sm90_states passed_states; /* data (optional): states that blocks leave for others, a slot each, of any head */
    gdn_chunk *passed; /* index: threads that have left their part of one; a kernel before left 0 there */
    gdn_schedule schedule; /* fused, planned: what the gates kernel judges */
    int32_t
        planned; /* fused: there is no chunk table; the gates kernel finds the chunks, and leaves `runs` and the fault word */
    int32_t overlap; /* fused: its kernel is launched by programmatic dependent launch, which the driver knows */
    int32_t max_segments; /* of any sequence; 1: none is cut */
    int32_t halves; /* sequences not cut otherwise are, in two, where they have 2 GDN_SM90_MIN_HALF chunks in a wave */
    int32_t halves_only; /* no sequence is cut otherwise */
    float
        *segment_F; /* [wave_slots / GDN_SM90_MIN_SEGMENT + 1, num_v_heads, V, K]: F of the segment that starts in those
                       * slots, with halves_only in the sequence; join leaves the state after it there */
    float *segment_E; /* the same, [.., K, K]: E, transposed; of a sequence's first segment the initial state */

    int32_t head_k_dim;
    int32_t v_tiles; /* head_v_dim / GDN_SM90_TILE */
    int32_t any_dims; /* the kernels for any V and any checkpoints are wanted (Dims<K>), not those for 128 x 128 */
    int32_t checkpoint_interval; /* any_dims: tokens between checkpoints; 0: they are at checkpoint_positions */
    int32_t checkpoint_index_dtype;
    const void *checkpoint_positions, *checkpoint_offsets;
    int32_t checkpoint_pass; /* the wave's slots are chunks of checkpoints, their numbers those of the states */
} gdn_sm90_prefill;

/* Queue one wave's kernel for q of `dtype` (BF16 or F16) on a device of `num_sms`. Return a cudaError_t, 0 for success. */
int gdn_sm90_prep_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream);
int gdn_sm90_state_only_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                               struct CUstream_st *stream);
int gdn_sm90_join_launch(const gdn_sm90_prefill *prefill, int32_t num_sms, struct CUstream_st *stream);
int gdn_sm90_state_output_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms,
                                 struct CUstream_st *stream);

/* Queues the two kernels that do all of a run at once: gates (into `records`, GDN_SM90_GATES_BYTES each) and everything else.
 * Neither with packed_qk nor with segments; the wave is all slots. */
int gdn_sm90_fused_launch(const gdn_sm90_prefill *prefill, int32_t dtype, int32_t num_sms, struct CUstream_st *stream);

/* Queues what makes a table of num_checkpoints chunks for those inside a chunk, from a chunk table of `slots`. A wave of it is
 * run by prep and state_only, with checkpoint_pass. */
int gdn_sm90_checkpoint_chunks_launch(const gdn_sm90_prefill *prefill, int64_t slots, gdn_chunk *table,
                                      struct CUstream_st *stream);

/* Queues the kernel that cuts `slots` slots into `count` waves of at most prefill->wave_slots, none inside a segment. */
int gdn_sm90_plan_waves_launch(const gdn_sm90_prefill *prefill, int64_t slots, gdn_sm90_wave *waves, int32_t count,
                               struct CUstream_st *stream);

/* Shared memory, in bytes, that a block asks for at most. */
size_t gdn_sm90_smem(void);

#ifdef __cplusplus
}
#endif

#endif
