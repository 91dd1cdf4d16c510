/* Decode of states stored [V, K], K of 64, 128 or 256, in 16-byte pieces.
 *
 * One token of one column v of S, s = S[:, v] (letters of docs/algorithm.md):
 *
 *     u = beta (v - alpha k.s)        o = scale (alpha q.s + (q.k) u)        s <- alpha s + u k
 *
 * so that both products of s with k and q need its old value only: a column is read once, reduced once, written once.
 * Eight lanes share a column, 16 bytes each at a time: a warp has four columns side by side and `depth` deep.
 *
 *     lane         0..7     8..15    16..23   24..31
 *     first        v0       v0 + 1   v0 + 2   v0 + 3        K elements of one state row over eight lanes
 *     then         v0 + 4   ...
 *
 * All of a warp's columns are on their way to shared memory while its block prepares the tokens, each lane's to places
 * that only it touches. Registers hold one column at a time: what is under way costs none, and enough blocks are resident
 * to keep the memory busy. Between tokens the columns stay in shared memory, in float32.
 *
 *     shared memory: columns as they arrive [warps][depth] | the same in float32, for 16-bit states and several tokens |
 *                    tokens
 */
#include "decode_row.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

constexpr int kMaxThreads = 128;

/* Blocks that a multiprocessor is to hold: as many as registers allow without spilling. Compiled for 9.0 the narrow
 * kernels fit 80 registers, for the others they need a few more. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int K> constexpr int kResident = K == 256 ? 4 : 5;
#else
template <int K> constexpr int kResident = K == 256 ? 4 : 6;
#endif

/* How a column of K elements of type T lies over eight lanes: kPieces of 16 bytes, eight pieces apart. */
template <typename T, int K> struct ColumnMap {
    static constexpr int kPerPiece = 16 / sizeof(T);
    static constexpr int kPieces = K / (8 * kPerPiece);
    static constexpr int kPerLane = K / 8;
    static constexpr int kRawBytes = kPieces * 512; /* of four columns side by side, as they arrive */
    static constexpr int kFloatBytes = kPerLane * 128; /* the same in float32 */
    static_assert(kPieces >= 1, "a column is at least eight 16-byte pieces");

    /* Which k the lane's i-th element is. */
    static __device__ __forceinline__ int element(int i)
    {
        return (i / kPerPiece * 8 + threadIdx.x % 8) * kPerPiece + i % kPerPiece;
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
    static __device__ __forceinline__ void store(float *dst, const float *x)
    {
        *reinterpret_cast<float4 *>(dst) = make_float4(x[0], x[1], x[2], x[3]);
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
    static __device__ __forceinline__ void store(T *dst, const float *x)
    {
        *reinterpret_cast<uint4 *>(dst) =
            make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]), pack2<T>(x[6], x[7]));
    }
};

template <> struct Piece<__nv_bfloat16> : Piece16<__nv_bfloat16> {
};
template <> struct Piece<__half> : Piece16<__half> {
};

/* A lane's part of one column. `place` is its first 16 bytes in shared memory; the next are 512 on. */
template <typename T, int K> struct Column {
    using Map = ColumnMap<T, K>;
    float s[Map::kPerLane];

    __device__ __forceinline__ void load_raw(uint32_t place)
    {
#pragma unroll
        for (int i = 0; i < Map::kPieces; ++i) {
            Piece<T>::unpack(&s[i * Map::kPerPiece], load_shared_16(place + i * 512));
        }
    }

    __device__ __forceinline__ void load_float(uint32_t place)
    {
#pragma unroll
        for (int i = 0; i < Map::kPerLane; i += 4) {
            Piece<float>::unpack(&s[i], load_shared_16(place + i * 128));
        }
    }

    __device__ __forceinline__ void keep(uint32_t place) const
    {
#pragma unroll
        for (int i = 0; i < Map::kPerLane; i += 4) {
            store_shared_16(place + i * 128, make_uint4(__float_as_uint(s[i]), __float_as_uint(s[i + 1]),
                                                        __float_as_uint(s[i + 2]), __float_as_uint(s[i + 3])));
        }
    }

    /* To a state's column at `base`, the offset of its element 0. */
    __device__ __forceinline__ void store(const gdn_fused_state &state, int64_t base) const
    {
        T *const data = static_cast<T *>(state.data) + base + threadIdx.x % 8 * Map::kPerPiece;
#pragma unroll
        for (int i = 0; i < Map::kPieces; ++i) {
            Piece<T>::store(data + i * 8 * Map::kPerPiece, &s[i * Map::kPerPiece]);
        }
    }
};

/* A lane's part of a column from shared memory to a state at `base`, bit for bit. */
template <typename T, int K>
__device__ __forceinline__ void pass_column(uint32_t place, const gdn_fused_state &state, int64_t base)
{
    using Map = ColumnMap<T, K>;
    T *const data = static_cast<T *>(state.data) + base + threadIdx.x % 8 * Map::kPerPiece;
#pragma unroll
    for (int i = 0; i < Map::kPieces; ++i) {
        *reinterpret_cast<uint4 *>(data + i * 8 * Map::kPerPiece) = load_shared_16(place + i * 512);
    }
}

/* Sets out for the lane's columns v, v + 4, ... of a state, `base` the offset of column v; those past the last, and all of
 * them with `there` false, become zeros. */
template <typename T, int K>
__device__ __forceinline__ void request_columns(const gdn_decode_params &p, uint32_t place, int64_t base, int v,
                                                bool there)
{
    using Map = ColumnMap<T, K>;
    const T *data = static_cast<const T *>(p.initial_state.data) + base + threadIdx.x % 8 * Map::kPerPiece;
#pragma unroll 2
    for (int c = 0; c < p.depth; ++c) {
#pragma unroll
        for (int i = 0; i < Map::kPieces; ++i) {
            cp_async_16(place + i * 512, data + i * 8 * Map::kPerPiece, there && v + 4 * c < p.head_v_dim);
        }
        place += Map::kRawBytes;
        data += 4 * p.initial_state.v_stride;
    }
    cp_async_commit();
}

/* Sum over the eight lanes of a column. */
__device__ __forceinline__ float lane_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x += __shfl_xor_sync(0xffffffffu, x, 2);
    x += __shfl_xor_sync(0xffffffffu, x, 4);
    return x;
}

/* One token of one column; returns o. */
template <typename T, int K>
__device__ __forceinline__ float step_column(Column<T, K> &column, float scale, const float *token, float value)
{
    using Map = ColumnMap<T, K>;
    const float alpha = token[2 * K], beta = token[2 * K + 1], qk = token[2 * K + 2];
    float ks = 0.0f, qs = 0.0f;
#pragma unroll
    for (int i = 0; i < Map::kPerLane; i += 4) {
        const float4 k4 = *reinterpret_cast<const float4 *>(&token[Map::element(i)]);
        const float4 q4 = *reinterpret_cast<const float4 *>(&token[K + Map::element(i)]);
        const float k[4] = {k4.x, k4.y, k4.z, k4.w};
        const float q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            ks = fmaf(k[e], column.s[i + e], ks);
            qs = fmaf(q[e], column.s[i + e], qs);
        }
    }
    const float u = beta * (value - alpha * lane_sum(ks));
    const float o = scale * fmaf(qk, u, alpha * lane_sum(qs));
#pragma unroll
    for (int i = 0; i < Map::kPerLane; i += 4) {
        const float4 k4 = *reinterpret_cast<const float4 *>(&token[Map::element(i)]);
        const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            column.s[i + e] = fmaf(u, k[e], alpha * column.s[i + e]);
        }
    }
    return o;
}

__device__ __forceinline__ int64_t column_base(const gdn_fused_state &state, int64_t slot, int head, int v)
{
    return slot * state.slot_stride + head * state.head_stride + v * state.v_stride;
}

template <typename T, int K, bool k16Bit>
__global__ void __launch_bounds__(kMaxThreads, kResident<K>)
    decode_columns_kernel(const __grid_constant__ gdn_decode_params p)
{
    using Map = ColumnMap<T, K>;
    extern __shared__ __align__(16) unsigned char smem[];
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const int warp = threadIdx.x / 32;
    const int first = warp * GDN_DECODE_WARP_COLUMNS * p.depth + threadIdx.x % 32 / 8; /* the lane's, in the block */
    const Place place = place_of(p, p.columns);
    const int v = place.v0 + first;
    const Row row = row_of(p, place.row);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }

    const bool several = sizeof(T) == 2 && p.tokens_per_row > 1; /* float32 has places of its own */
    const uint32_t raw = smem_address(smem) + warp * p.depth * Map::kRawBytes + threadIdx.x % 32 * 16;
    const uint32_t kept = several ? smem_address(smem) + p.warps * p.depth * Map::kRawBytes +
                                        warp * p.depth * Map::kFloatBytes + threadIdx.x % 32 * 16
                                  : raw;
    float *const tokens =
        reinterpret_cast<float *>(smem + p.warps * p.depth * (Map::kRawBytes + (several ? Map::kFloatBytes : 0)));
    request_columns<T, K>(p, raw, row.has_initial_state ? column_base(p.initial_state, row.read, place.head, v) : 0, v,
                          row.has_initial_state);
    prepare_tokens<k16Bit>(p, place, 0, min(p.group, row.tokens), p.columns, tokens);
    const int64_t final_base = p.final_state.data ? column_base(p.final_state, row.write, place.head, v) : 0;
    int64_t o_at = place.row * p.o.row_stride + place.head * p.o.head_stride + v;
    cp_async_wait<0>();
    __syncthreads();
    for (int t = 0; t < row.tokens; ++t) {
        const int in_group = t % p.group;
        if (in_group == 0 && t > 0) {
            __syncthreads(); /* the group before is done with */
            prepare_tokens<k16Bit>(p, place, t, min(p.group, row.tokens - t), p.columns, tokens);
            __syncthreads();
        }
        const float *const token = tokens + in_group * token_floats(K);
        const bool last = t == row.tokens - 1;
        int64_t token_slot = -1;
        if (p.token_slots) {
            token_slot = load_index(p.token_slots, p.slots_dtype, place.row * p.tokens_per_row + t);
        }
#pragma unroll 1
        for (int c = 0; c < p.depth; ++c) {
            Column<T, K> column;
            if (t == 0) {
                column.load_raw(raw + c * Map::kRawBytes);
            } else {
                column.load_float(kept + c * Map::kFloatBytes);
            }
            const float o = step_column<T, K>(column, p.scale, token, token[2 * K + 4 + first + 4 * c]);
            if (v + 4 * c < p.head_v_dim) {
                if (threadIdx.x % 8 == 0) {
                    store_element(p.o.data, p.o.dtype, o_at + 4 * c, o);
                }
                if (token_slot >= 0) {
                    column.store(p.token_states, column_base(p.token_states, token_slot, place.head, v + 4 * c));
                }
                if (last && p.final_state.data) {
                    column.store(p.final_state, final_base + 4 * c * p.final_state.v_stride);
                }
            }
            if (!last) {
                column.keep(kept + c * Map::kFloatBytes);
            }
        }
        o_at += p.o.token_stride;
    }
    if (row.tokens == 0 && p.final_state.data) {
        for (int c = 0; c < p.depth && v + 4 * c < p.head_v_dim; ++c) {
            pass_column<T, K>(raw + c * Map::kRawBytes, p.final_state, final_base + 4 * c * p.final_state.v_stride);
        }
    }
}

template <typename T, int K, bool k16Bit> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    using Map = ColumnMap<T, K>;
    const bool several = sizeof(T) == 2 && p.tokens_per_row > 1;
    const size_t smem = static_cast<size_t>(p.warps * p.depth) * (Map::kRawBytes + (several ? Map::kFloatBytes : 0)) +
                        p.group * token_floats(K) * sizeof(float);
    const int64_t blocks = p.num_rows * p.num_v_heads * ((p.head_v_dim + p.columns - 1) / p.columns) + 1;
    const cudaError_t error = cudaFuncSetAttribute(decode_columns_kernel<T, K, k16Bit>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
    if (error != cudaSuccess) {
        return error;
    }
    decode_columns_kernel<T, K, k16Bit>
        <<<static_cast<unsigned>(blocks), static_cast<unsigned>(p.warps) * 32, smem, stream>>>(p);
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
