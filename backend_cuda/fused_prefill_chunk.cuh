/* The state kernel's compute warps: one chunk of 16 columns of V, and the checkpoints inside it. */
#ifndef GDN_CUDA_FUSED_PREFILL_CHUNK_CUH
#define GDN_CUDA_FUSED_PREFILL_CHUNK_CUH

#include "device/element.cuh"
#include "device/gates.cuh"
#include "fused_prefill_run.cuh"
#include "fused_prefill_states.cuh"

namespace gdn
{
namespace
{

/* Per-lane byte offsets into a stage; rows are multiples of 8 away, so that the XOR of a piece depends on the lane only. */
struct LaneOffsets {
    uint32_t rows_of_k; /* B operand of S^T K^T: rows (lane / 16) 8 + lane % 8, piece lane / 8 % 2 */
    uint32_t columns_of_k; /* transposed, of the update: rows (lane / 8 % 2) 8 + lane % 8, piece lane / 16 */
    uint32_t v; /* rows (lane / 16) 8 + lane % 8, piece 2 warp + lane / 8 % 2 */

    template <int K> static __device__ __forceinline__ LaneOffsets of(const NarrowTile &v_tile)
    {
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        const int r = lane % 8, low = lane / 8 % 2, high = lane / 16;
        LaneOffsets offsets;
        offsets.rows_of_k = WideTile<K>::offset(8 * high + r, low);
        offsets.columns_of_k = WideTile<K>::offset(8 * low + r, high);
        offsets.v = StageMap<K>::kV + v_tile.offset(8 * high + r, 2 * warp + low);
        return offsets;
    }
};

/* acc[n] += S^T X^T for the 64 rows x of a tile, n-th block of 8 rows. */
template <typename T, int K>
__device__ __forceinline__ void multiply_rows(float (&acc)[8][4], const uint32_t (&a)[4], uint32_t tile, int step)
{
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        uint32_t b[4];
        ldmatrix_x4(b, (tile ^ static_cast<uint32_t>(step << 5)) + j * 16 * WideTile<K>::kRowBytes);
        mma_16816<T>(acc[2 * j], a, b[0], b[1]);
        mma_16816<T>(acc[2 * j + 1], a, b[2], b[3]);
    }
}

template <typename T, int K>
__device__ __forceinline__ void state_operand(uint32_t (&a)[4], const float (&S)[K / 8][4], int step)
{
    a[0] = pack2<T>(S[2 * step][0], S[2 * step][1]);
    a[1] = pack2<T>(S[2 * step][2], S[2 * step][3]);
    a[2] = pack2<T>(S[2 * step + 1][0], S[2 * step + 1][1]);
    a[3] = pack2<T>(S[2 * step + 1][2], S[2 * step + 1][3]);
}

/* The same rounded anew: the product with `one`, 1 that the compiler does not know, keeps it from holding the first
 * rounding in 64 registers meanwhile. */
template <typename T, int K>
__device__ __forceinline__ void state_operand_anew(uint32_t (&a)[4], const float (&S)[K / 8][4], int step, float one)
{
    a[0] = pack2<T>(S[2 * step][0] * one, S[2 * step][1] * one);
    a[1] = pack2<T>(S[2 * step][2] * one, S[2 * step][3] * one);
    a[2] = pack2<T>(S[2 * step + 1][0] * one, S[2 * step + 1][1] * one);
    a[3] = pack2<T>(S[2 * step + 1][2] * one, S[2 * step + 1][3] * one);
}

/* x[.., j-th 16 rows] of a transposed 16 x 64 product, times a factor a row, as an A operand. */
template <typename T>
__device__ __forceinline__ void rows_operand(uint32_t (&a)[4], const float (&x)[8][4], int j, float2 low, float2 high)
{
    a[0] = pack2<T>(x[2 * j][0] * low.x, x[2 * j][1] * low.y);
    a[1] = pack2<T>(x[2 * j][2] * low.x, x[2 * j][3] * low.y);
    a[2] = pack2<T>(x[2 * j + 1][0] * high.x, x[2 * j + 1][1] * high.y);
    a[3] = pack2<T>(x[2 * j + 1][2] * high.x, x[2 * j + 1][3] * high.y);
}

/* R^T = V^T - Gamma S^T K^T of 16 rows, rounded: hi + lo for bfloat16, hi alone for float16. */
template <typename T>
__device__ __forceinline__ void residual(uint32_t (&hi)[4], uint32_t (&lo)[4], const float (&ks)[8][4],
                                         const uint32_t (&v)[4], int j, float2 low, float2 high)
{
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const float2 decay = e < 2 ? low : high;
        const float2 v2 = unpack2<T>(v[e]);
        const float x = fmaf(-decay.x, ks[2 * j + e / 2][2 * (e % 2)], v2.x);
        const float y = fmaf(-decay.y, ks[2 * j + e / 2][2 * (e % 2) + 1], v2.y);
        hi[e] = pack2<T>(x, y);
        const float2 rounded = unpack2<T>(hi[e]);
        lo[e] = pack2<T>(x - rounded.x, y - rounded.y);
    }
}

template <typename T> constexpr bool kSplitResidual = false;
template <> constexpr bool kSplitResidual<__nv_bfloat16> = true;

/* Writes the state after `end` tokens of the chunk to entry `base` of the checkpoints:
 * exp(G_{end-1}) S + sum_{i < end} exp(G_{end-1} - G_i) k_i^T v'_i, the update below cut at `end`. */
template <typename T, int K>
__device__ __forceinline__ void store_checkpoint(const gdn_fused_prefill &p, const float (&S)[K / 8][4],
                                                 const float (&v_new)[8][4], uint32_t columns_of_k,
                                                 const unsigned char *record, int end, int64_t base, int v0)
{
    const int t = threadIdx.x % 4;
    const float *const G = reinterpret_cast<const float *>(record + GDN_FUSED_G);
    const float *const G_low = reinterpret_cast<const float *>(record + GDN_FUSED_G_LOW);
    const float *const norm = reinterpret_cast<const float *>(record + GDN_FUSED_NORM);
    const float G_end = G[end - 1], G_end_low = G_low[end - 1];
    uint32_t a[kBlocks][4];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        float factor[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = 16 * j + 8 * (e / 2) + 2 * t + e % 2;
            factor[e] = i < end ? decay_between(G_end, G_end_low, G[i], G_low[i]) * norm[i] : 0.0f;
        }
        rows_operand<T>(a[j], v_new, j, make_float2(factor[0], factor[1]), make_float2(factor[2], factor[3]));
    }
    const float decay = decay_between(G_end, G_end_low, 0.0f, 0.0f);
#pragma unroll
    for (int n = 0; n < K / 16; ++n) {
        float acc[2][4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            acc[0][c] = S[2 * n][c] * decay;
            acc[1][c] = S[2 * n + 1][c] * decay;
        }
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, (columns_of_k ^ static_cast<uint32_t>(n << 5)) + j * 16 * WideTile<K>::kRowBytes);
            mma_16816<T>(acc[0], a[j], b[0], b[1]);
            mma_16816<T>(acc[1], a[j], b[2], b[3]);
        }
        store_state_blocks<2>(acc, p.checkpoints, base, v0, 2 * n);
    }
}

/* A sequence's checkpoints, in order of position. */
struct CheckpointCursor {
    int64_t entry, end; /* next entry, and one past the last that may be written */
    int64_t first; /* the sequence's first entry */

    /* Tokens consumed at the next checkpoint. */
    __device__ __forceinline__ int64_t position(const gdn_fused_prefill &p) const
    {
        return p.checkpoint_form == GDN_CHECKPOINT_AT
                   ? load_index(p.checkpoint_positions, p.checkpoint_index_dtype, entry)
                   : (entry - first + 1) * p.checkpoint_interval;
    }

    /* At the first checkpoint behind `consumed` tokens. */
    __device__ __forceinline__ void start(const gdn_fused_prefill &p, int seq, int64_t consumed)
    {
        if (p.checkpoint_form == GDN_CHECKPOINT_AT) {
            entry = first = load_index(p.checkpoint_offsets, p.checkpoint_index_dtype, seq);
            end = load_index(p.checkpoint_offsets, p.checkpoint_index_dtype, seq + 1);
        } else {
            first = p.checkpoint_bases[seq];
            entry = first + consumed / p.checkpoint_interval;
            end = p.num_checkpoints; /* every chunk stops at its own length */
        }
        end = end < p.num_checkpoints ? end : p.num_checkpoints;
        while (entry < end && position(p) <= consumed) {
            ++entry;
        }
    }
};

/* One chunk of one warp's columns. `stage` is the stage's address; see LaneOffsets. */
template <typename T, int K, bool kCheckpoints>
__device__ __forceinline__ void compute_chunk(const gdn_fused_prefill &p, float (&S)[K / 8][4], uint32_t stage,
                                              const LaneOffsets &lane, const Run &run, int c, CheckpointCursor &cursor)
{
    const int t = threadIdx.x % 4;
    const uint32_t staged = stage + StageMap<K>::record(p.warps);
    const uint32_t v_step = 512 * p.warps; /* 16 rows on in the v tile */
    const uint32_t blocks = staged + threadIdx.x % 32 * 16;
    const uint32_t row_floats = staged + 8 * t; /* of a row block's pair 2t, 2t + 1 */
    /* With K of 256 the registers do not suffice for O beside R and V'. */
    constexpr bool kTogether = K <= 128;

    float ks[8][4] = {}, out[8][4] = {};
#pragma unroll
    for (int step = 0; step < K / 16; ++step) {
        uint32_t a[4];
        state_operand<T, K>(a, S, step);
        multiply_rows<T, K>(ks, a, stage + lane.rows_of_k, step);
    }

    /* The products Q S fill the time that R takes to become an operand. */
    float v_new[8][4] = {};
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        uint32_t v[4], hi[4], lo[4];
        ldmatrix_x4_trans(v, stage + lane.v + j * v_step);
        residual<T>(hi, lo, ks, v, j, load_shared_float2(row_floats + GDN_FUSED_DECAY_K + 64 * j),
                    load_shared_float2(row_floats + GDN_FUSED_DECAY_K + 64 * j + 32));
        if (kTogether) {
#pragma unroll
            for (int step = j * K / 64; step < (j + 1) * K / 64; ++step) {
                uint32_t a[4];
                state_operand<T, K>(a, S, step);
                multiply_rows<T, K>(out, a, stage + StageMap<K>::kQ + lane.rows_of_k, step);
            }
        }
        uint4 b[kBlocks];
#pragma unroll
        for (int i = j; i < kBlocks; ++i) {
            b[i] = load_shared_16(blocks + GDN_FUSED_A + (i * (i + 1) / 2 + j) * 512);
            mma_16816<T>(v_new[2 * i], hi, b[i].x, b[i].y);
            mma_16816<T>(v_new[2 * i + 1], hi, b[i].z, b[i].w);
        }
        if (kSplitResidual<T>) {
#pragma unroll
            for (int i = j; i < kBlocks; ++i) {
                mma_16816<T>(v_new[2 * i], lo, b[i].x, b[i].y);
                mma_16816<T>(v_new[2 * i + 1], lo, b[i].z, b[i].w);
            }
        }
    }

    if (kCheckpoints) {
        const int64_t consumed = (static_cast<int64_t>(run.index) + c) * kChunk;
        const int length = c == run.count - 1 ? run.last_length : kChunk;
        while (cursor.entry < cursor.end) {
            const int64_t end = cursor.position(p) - consumed;
            if (end > length) {
                break;
            }
            const unsigned char *const record =
                p.records + (static_cast<int64_t>(run.first_slot + c) * p.num_v_heads + run.head) * GDN_FUSED_RECORD;
            store_checkpoint<T, K>(p, S, v_new, stage + lane.columns_of_k, record, static_cast<int>(end),
                                   state_offset(p.checkpoints, cursor.entry, run.head), run.v0 + threadIdx.x / 32 * 16);
            ++cursor.entry;
        }
    }

    if (!kTogether) {
        /* Keep the compiler from starting on O, whose registers V' still needs, and from holding addresses for it. */
        __syncwarp();
        stage = opaque(stage);
#pragma unroll
        for (int step = 0; step < K / 16; ++step) {
            uint32_t a[4];
            state_operand_anew<T, K>(a, S, step, p.one);
            multiply_rows<T, K>(out, a, stage + StageMap<K>::kQ + lane.rows_of_k, step);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float2 decay = load_shared_float2(row_floats + GDN_FUSED_DECAY_Q + 32 * n);
        out[n][0] *= decay.x;
        out[n][1] *= decay.y;
        out[n][2] *= decay.x;
        out[n][3] *= decay.y;
    }
    /* O += P V' and S = exp(G_C) S + ..., 16 rows of V' at a time: the sums of either wait for the other's. */
    const float decay = load_shared_float(staged + GDN_FUSED_END);
#pragma unroll
    for (int n = 0; n < K / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            S[n][e] *= decay;
        }
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        uint32_t a[4], a_end[4];
        rows_operand<T>(a, v_new, j, make_float2(1.0f, 1.0f), make_float2(1.0f, 1.0f));
        rows_operand<T>(a_end, v_new, j, load_shared_float2(row_floats + GDN_FUSED_DECAY_END + 64 * j),
                        load_shared_float2(row_floats + GDN_FUSED_DECAY_END + 64 * j + 32));
#pragma unroll
        for (int i = j; i < kBlocks; ++i) {
            const uint4 b = load_shared_16(blocks + GDN_FUSED_P + (i * (i + 1) / 2 + j) * 512);
            mma_16816<T>(out[2 * i], a, b.x, b.y);
            mma_16816<T>(out[2 * i + 1], a, b.z, b.w);
        }
#pragma unroll
        for (int n = 0; n < K / 16; ++n) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, ((stage + lane.columns_of_k) ^ static_cast<uint32_t>(n << 5)) +
                                     j * 16 * WideTile<K>::kRowBytes);
            mma_16816<T>(S[2 * n], a_end, b[0], b[1]);
            mma_16816<T>(S[2 * n + 1], a_end, b[2], b[3]);
        }
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        const uint32_t r[4] = {pack2<T>(out[2 * j][0], out[2 * j][1]), pack2<T>(out[2 * j][2], out[2 * j][3]),
                               pack2<T>(out[2 * j + 1][0], out[2 * j + 1][1]),
                               pack2<T>(out[2 * j + 1][2], out[2 * j + 1][3])};
        store_blocks_trans(stage + lane.v + j * v_step, r);
    }
}

} // namespace
} // namespace gdn

#endif
