/* Decode of states stored [V, K], K of 64, 128 or 256, in 16-byte pieces.
 *
 * One token of one column v of S, s = S[:, v] (letters of docs/algorithm.md):
 *
 *     u = beta (v - alpha k.s)        o = scale (alpha q.s + (q.k) u)        s <- alpha s + u k
 *
 * so that both products of s with k and q need its old value only: a column is read once, reduced once, written once.
 *
 * A block is one warp. `kLanes` lanes share a column, 16 bytes each at a time; as many columns are deep as make 32 elements a
 * lane. K = 128 in float32, kLanes = 16:
 *
 *     lane         0 .. 15    16 .. 31
 *     first        v0         v0 + 1        128 elements of one state row over 16 lanes
 *     then         v0 + 2     v0 + 3
 *     ...                     v0 + 7
 *
 * The columns stay in registers from the first token to the last. A block asks for all of them and for its token, and waits
 * for nobody else. A multiprocessor holds 20 such blocks, which between them have 80 KiB on their way (40 KiB of 16-bit
 * states). Larger blocks were slower, though they had more under way: all of them loads, then all of them stores. So
 * was more than one column a lane of 8, for want of registers.
 */
#include "decode_row.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

/* Blocks that a multiprocessor is to hold, as far as registers go; those of 8.6 and 8.7 hold no more than 16 of any kind. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870)
template <int K> constexpr int kResident = 16;
#else
template <int K> constexpr int kResident = K == 256 ? 16 : 20;
#endif

/* How columns of K elements of type T lie over a warp. */
template <typename T, int K> struct ColumnMap {
    static constexpr int kPerPiece = 16 / sizeof(T);
    static constexpr int kRowPieces = K / kPerPiece;
    static constexpr int kLanes = kRowPieces < 16 ? kRowPieces : 16; /* of a column */
    static constexpr int kPieces = kRowPieces / kLanes; /* of a lane, kLanes pieces apart */
    static constexpr int kPerLane = kPieces * kPerPiece;
    static constexpr int kDepth = 32 / kPerLane; /* columns a lane works on */
    static constexpr int kSide = 32 / kLanes; /* columns side by side */
    static constexpr int kColumns = kSide * kDepth;
    static_assert(kColumns >= GDN_DECODE_LEAST_COLUMNS && kDepth <= kLanes, "");

    /* Which k the lane's i-th element is. */
    static __device__ __forceinline__ int element(int i)
    {
        return (i / kPerPiece * kLanes + threadIdx.x % kLanes) * kPerPiece + i % kPerPiece;
    }
};

template <typename T> struct Piece;

template <> struct Piece<float> {
    static __device__ __forceinline__ void unpack(float *x, uint4 v)
    {
        x[0] = __uint_as_float(v.x);
        x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z);
        x[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float *x)
    {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
    }
};

template <typename T> struct Piece16 {
    static __device__ __forceinline__ void unpack(float *x, uint4 v)
    {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 pair = unpack2<T>(words[i]);
            x[2 * i] = pair.x;
            x[2 * i + 1] = pair.y;
        }
    }
    static __device__ __forceinline__ uint4 pack(const float *x)
    {
        return make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]), pack2<T>(x[6], x[7]));
    }
};

template <> struct Piece<__nv_bfloat16> : Piece16<__nv_bfloat16> {
};
template <> struct Piece<__half> : Piece16<__half> {
};

/* A lane's part of the block's columns, as they are in memory. `base` is the offset of the lane's first column, of which
 * `columns` are there: every kSide-th of them is the lane's. */
template <typename T, int K> struct RawColumns {
    using Map = ColumnMap<T, K>;
    uint4 pieces[Map::kDepth][Map::kPieces];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                pieces[c][i] = make_uint4(0, 0, 0, 0);
            }
        }
    }

    __device__ __forceinline__ void load(const gdn_fused_state &state, int64_t base, int columns)
    {
        const T *at = static_cast<const T *>(state.data) + base + threadIdx.x % Map::kLanes * Map::kPerPiece;
        const int64_t step = Map::kSide * state.v_stride;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kSide * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    pieces[c][i] = load_global_16(at + i * Map::kLanes * Map::kPerPiece);
                }
            }
            at += step;
        }
    }

    __device__ __forceinline__ void store(const gdn_fused_state &state, int64_t base, int columns) const
    {
        T *at = static_cast<T *>(state.data) + base + threadIdx.x % Map::kLanes * Map::kPerPiece;
        const int64_t step = Map::kSide * state.v_stride;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            if (Map::kSide * c < columns) {
#pragma unroll
                for (int i = 0; i < Map::kPieces; ++i) {
                    store_global_16(at + i * Map::kLanes * Map::kPerPiece, pieces[c][i]);
                }
            }
            at += step;
        }
    }
};

/* The same in float32. */
template <typename T, int K> struct Columns {
    using Map = ColumnMap<T, K>;
    float s[Map::kDepth][Map::kPerLane];

    __device__ __forceinline__ void take(const RawColumns<T, K> &raw)
    {
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                Piece<T>::unpack(&s[c][i * Map::kPerPiece], raw.pieces[c][i]);
            }
        }
    }

    __device__ __forceinline__ void store(const gdn_fused_state &state, int64_t base, int columns) const
    {
        RawColumns<T, K> raw;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                raw.pieces[c][i] = Piece<T>::pack(&s[c][i * Map::kPerPiece]);
            }
        }
        raw.store(state, base, columns);
    }
};

/* Sums over the lanes of a column, all on their way together. */
template <int kLanes, int kCount> __device__ __forceinline__ void lane_sums(float *x)
{
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
        }
    }
}

/* A lane's part of q or k: its elements of a column, as they are in memory. */
template <typename T, int K, bool k16Bit> struct RawVector {
    using Map = ColumnMap<T, K>;
    static constexpr int kPerWord = k16Bit ? 2 : 1;
    static constexpr int kWords = Map::kPerLane / kPerWord;
    static constexpr int kPieceWords = Map::kPerPiece / kPerWord; /* that lie side by side: 2, 4 or 8 */
    uint32_t words[kWords];

    __device__ __forceinline__ void load(const void *data, int64_t at)
    {
        const uint32_t *const first = static_cast<const uint32_t *>(data) + (at + Map::element(0)) / kPerWord;
#pragma unroll
        for (int i = 0; i < Map::kPieces; ++i) {
            load_piece(&words[i * kPieceWords], first + i * Map::kLanes * kPieceWords);
        }
    }

    static __device__ __forceinline__ void load_piece(uint32_t *to, const uint32_t *from)
    {
        if constexpr (kPieceWords == 2) {
            const uint2 v = *reinterpret_cast<const uint2 *>(from);
            to[0] = v.x;
            to[1] = v.y;
        } else {
#pragma unroll
            for (int i = 0; i < kPieceWords; i += 4) {
                const uint4 v = *reinterpret_cast<const uint4 *>(from + i);
                to[i] = v.x;
                to[i + 1] = v.y;
                to[i + 2] = v.z;
                to[i + 3] = v.w;
            }
        }
    }

    __device__ __forceinline__ void unpack(float *x, bool bf16) const
    {
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
            if (!k16Bit) {
                x[i] = __uint_as_float(words[i]);
            } else {
                const float2 pair = bf16 ? unpack2<__nv_bfloat16>(words[i]) : unpack2<__half>(words[i]);
                x[2 * i] = pair.x;
                x[2 * i + 1] = pair.y;
            }
        }
    }
};

/* One token's q, k and v on their way to a lane: v of the column that the lane loads v and stores o of, which is its
 * (lane % kLanes)-th. */
template <typename T, int K, bool k16Bit> struct RawToken {
    using Map = ColumnMap<T, K>;
    RawVector<T, K, k16Bit> k, q;
    uint32_t v;

    /* Offsets are the row's, of its token 0. */
    __device__ __forceinline__ void load(const gdn_decode_params &p, int64_t k_at, int64_t q_at, int64_t v_at,
                                         bool has_v)
    {
        k.load(p.k.data, k_at);
        q.load(p.q.data, q_at);
        v = 0;
        if (has_v) {
            v = load_bits<k16Bit>(p.v.data, v_at);
        }
    }
};

/* Decay and write strength of the row's tokens, token t in lane t; those of lanes past the last token are of no use. */
struct RawGates {
    uint32_t gate, beta; /* bits */
    float A_log, dt_bias;

    __device__ __forceinline__ void load(const gdn_decode_params &p, const Place &place)
    {
        const int t = min(static_cast<int>(threadIdx.x), p.tokens_per_row - 1);
        gate = load_halves(p.gate.data, p.gate.dtype == GDN_DTYPE_F32 ? 2 : 1,
                           place.row * p.gate.row_stride + t * p.gate.token_stride + place.head * p.gate.head_stride);
        beta = load_halves(p.beta.data, p.beta.dtype == GDN_DTYPE_F32 ? 2 : 1,
                           place.row * p.beta.row_stride + t * p.beta.token_stride + place.head * p.beta.head_stride);
        A_log = p.A_log ? p.A_log[place.head] : 0.0f;
        dt_bias = p.dt_bias ? p.dt_bias[place.head] : 0.0f;
    }
};

struct Gates {
    float alpha, beta;

    __device__ __forceinline__ void take(const gdn_decode_params &p, const RawGates &raw)
    {
        alpha = gate_value(raw.gate, p.gate.dtype);
        if (p.gate_form != GDN_GATE_DECAY) {
            alpha = token_decay(log_decay_of(alpha, p.gate_form, raw.A_log, raw.dt_bias));
        }
        beta = beta_of(gate_value(raw.beta, p.beta.dtype), p.beta_form, p.beta_scale);
    }
};

/* One token, ready to be used. k and q are as given: their norms are factors of the sums over them. */
template <typename T, int K, bool k16Bit> struct Token {
    using Map = ColumnMap<T, K>;
    float k[Map::kPerLane], q[Map::kPerLane];
    float v; /* of the lane's own column, as in RawToken */
    float alpha, beta, k_norm, q_norm, qk;

    __device__ __forceinline__ void take(const gdn_decode_params &p, const RawToken<T, K, k16Bit> &raw,
                                         const Gates &gates, int t)
    {
        raw.k.unpack(k, p.k.dtype == GDN_DTYPE_BF16);
        raw.q.unpack(q, p.q.dtype == GDN_DTYPE_BF16);
        v = float_of_bits<k16Bit>(raw.v, p.v.dtype);
        alpha = __shfl_sync(0xffffffffu, gates.alpha, t);
        beta = __shfl_sync(0xffffffffu, gates.beta, t);
        float sums[3] = {product(q, k), product(k, k), product(q, q)};
        k_norm = 1.0f;
        q_norm = 1.0f;
        if (p.qk_norm == GDN_QK_NORM_NONE) {
            lane_sums<Map::kLanes, 1>(sums);
        } else {
            lane_sums<Map::kLanes, 3>(sums);
            k_norm = norm_factor(sums[1], p.qk_norm, p.qk_norm_eps);
            q_norm = norm_factor(sums[2], p.qk_norm, p.qk_norm_eps);
        }
        qk = times(q_norm, times(k_norm, sums[0]));
    }

    /* A sum over a vector, times its factor. A vector longer than float32 can say has the factor 0, and any sum. */
    static __device__ __forceinline__ float times(float norm, float sum)
    {
        return norm == 0.0f ? 0.0f : norm * sum;
    }

    /* The lane's part of a sum over a column. */
    static __device__ __forceinline__ float product(const float *x, const float *y)
    {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < Map::kPerLane; ++i) {
            sum = fmaf(x[i], y[i], sum);
        }
        return sum;
    }

    /* Advances the columns by the token; returns o of the lane's own column. */
    __device__ __forceinline__ float step(Columns<T, K> &state, float scale) const
    {
        float sums[2 * Map::kDepth]; /* k.s of each column, then q.s */
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            sums[c] = product(k, state.s[c]);
            sums[Map::kDepth + c] = product(q, state.s[c]);
        }
        lane_sums<Map::kLanes, 2 * Map::kDepth>(sums);
        float mine = 0.0f;
#pragma unroll
        for (int c = 0; c < Map::kDepth; ++c) {
            float *const s = state.s[c];
            const float value = __shfl_sync(0xffffffffu, v, c, Map::kLanes);
            const float u = beta * (value - alpha * times(k_norm, sums[c]));
            const float o = scale * fmaf(qk, u, alpha * times(q_norm, sums[Map::kDepth + c]));
            mine = threadIdx.x % Map::kLanes == c ? o : mine;
            const float uk = u * k_norm;
#pragma unroll
            for (int i = 0; i < Map::kPerLane; ++i) {
                s[i] = fmaf(uk, k[i], alpha * s[i]);
            }
        }
        return mine;
    }
};

__device__ __forceinline__ int64_t column_base(const gdn_fused_state &state, int64_t slot, int head, int v)
{
    return slot * state.slot_stride + head * state.head_stride + v * state.v_stride;
}

/* kOneToken: every row has one token, and its state goes nowhere but to final_state. */
template <typename T, int K, bool k16Bit, bool kOneToken>
__global__ void __launch_bounds__(32, kResident<K>)
    decode_columns_kernel(const __grid_constant__ gdn_decode_params p, const Grid grid)
{
    using Map = ColumnMap<T, K>;
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const Place place = place_of(p, grid);
    const int v = place.v0 + threadIdx.x / Map::kLanes; /* the lane's first column */
    const int columns = p.head_v_dim - v;
    const RowWords words = load_row(p, place.row);
    const int own = threadIdx.x % Map::kLanes * Map::kSide; /* the lane's own column, from its first */
    const bool has_own = threadIdx.x % Map::kLanes < Map::kDepth && own < columns;
    int64_t k_at = place.row * p.k.row_stride + place.k_head * p.k.head_stride;
    int64_t q_at = place.row * p.q.row_stride + place.k_head * p.q.head_stride;
    int64_t v_at = place.row * p.v.row_stride + place.head * p.v.head_stride + v + own;
    int64_t o_at = place.row * p.o.row_stride + place.head * p.o.head_stride + v + own;
    RawToken<T, K, k16Bit> next;
    next.load(p, k_at, q_at, v_at, has_own);
    RawGates raw_gates;
    raw_gates.load(p, place);
    const Row row = judge_row(p, place.row, words);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }
    RawColumns<T, K> raw;
    raw.clear();
    if (row.has_initial_state) {
        raw.load(p.initial_state, column_base(p.initial_state, row.read, place.head, v), columns);
    }
    const int64_t final_base = p.final_state.data ? column_base(p.final_state, row.write, place.head, v) : 0;
    if (!kOneToken && row.tokens == 0) {
        if (p.final_state.data) {
            raw.store(p.final_state, final_base, columns);
        }
        return;
    }
    Gates gates;
    gates.take(p, raw_gates);
    Columns<T, K> state;
    state.take(raw);
    const int tokens = kOneToken ? 1 : row.tokens;
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
        Token<T, K, k16Bit> token;
        token.take(p, next, gates, t);
        if (t + 1 < tokens) {
            k_at += p.k.token_stride;
            q_at += p.q.token_stride;
            v_at += p.v.token_stride;
            next.load(p, k_at, q_at, v_at, has_own);
        }
        const float o = token.step(state, p.scale);
        if (has_own) {
            store_element(p.o.data, p.o.dtype, o_at, o);
        }
        o_at += p.o.token_stride;
        if (!kOneToken && p.token_slots) {
            const int64_t slot = load_index(p.token_slots, p.slots_dtype, place.row * p.tokens_per_row + t);
            if (slot >= 0) {
                state.store(p.token_states, column_base(p.token_states, slot, place.head, v), columns);
            }
        }
    }
    if (p.final_state.data) {
        state.store(p.final_state, final_base, columns);
    }
}

template <typename T, int K, bool k16Bit> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    constexpr int kColumns = ColumnMap<T, K>::kColumns;
    const unsigned blocks = static_cast<unsigned>(num_blocks(p, kColumns));
    if (p.tokens_per_row == 1 && !p.num_tokens && !p.token_slots) {
        decode_columns_kernel<T, K, k16Bit, true><<<blocks, 32, 0, stream>>>(p, grid_of(p, kColumns));
    } else {
        decode_columns_kernel<T, K, k16Bit, false><<<blocks, 32, 0, stream>>>(p, grid_of(p, kColumns));
    }
    return cudaPeekAtLastError();
}

template <typename T, int K> cudaError_t launch_of_width(const gdn_decode_params &p, cudaStream_t stream)
{
    return p.q.dtype == GDN_DTYPE_F32 ? launch<T, K, false>(p, stream) : launch<T, K, true>(p, stream);
}

template <typename T> cudaError_t launch_of_dim(const gdn_decode_params &p, cudaStream_t stream)
{
    switch (p.head_k_dim) {
    case 64:
        return launch_of_width<T, 64>(p, stream);
    case 128:
        return launch_of_width<T, 128>(p, stream);
    case 256:
        return launch_of_width<T, 256>(p, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace gdn

int gdn_decode_in_columns(int32_t head_k_dim, const gdn_fused_state *state, uint32_t alignment)
{
    const int64_t per_piece = state->dtype == GDN_DTYPE_F32 ? 4 : 8;
    const int64_t strides[3] = {state->slot_stride, state->head_stride, state->v_stride};
    for (int i = 0; i < 3; ++i) {
        if (strides[i] % per_piece != 0) {
            return 0;
        }
    }
    return (head_k_dim == 64 || head_k_dim == 128 || head_k_dim == 256) && state->k_stride == 1 && alignment >= 16;
}

int gdn_decode_columns_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    /* The state's types agree: plans with two take the other kernel. */
    switch (decode->initial_state.dtype) {
    case GDN_DTYPE_BF16:
        return gdn::launch_of_dim<__nv_bfloat16>(*decode, stream);
    case GDN_DTYPE_F16:
        return gdn::launch_of_dim<__half>(*decode, stream);
    default:
        return gdn::launch_of_dim<float>(*decode, stream);
    }
}
