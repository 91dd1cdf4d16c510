/* Decode with the state in registers: states stored [V, K], K of 64, 128 or 256.
 *
 * One token of one column v of S, s = S[:, v] (letters of docs/algorithm.md):
 *
 *     u = beta (v - alpha k.s)        o = scale (alpha q.s + (q.k) u)        s <- alpha s + u k
 *
 * so that both products of s with k and q need its old value only: a column is read once, reduced once, written once.
 * Eight lanes share a column, 16 bytes each at a time: a warp has four columns side by side and `kColumns` deep. All
 * loads of the state are under way before anything waits; the tokens' q, k and gates are prepared meanwhile.
 *
 *     lane         0..7     8..15    16..23   24..31
 *     first        v0       v0 + 1   v0 + 2   v0 + 3        K elements of one state row over eight lanes
 *     then         v0 + 4   ...
 */
#include "decode_row.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

/* How a column of K elements of type T lies over eight lanes: kPieces of 16 bytes, eight pieces apart. */
template <typename T, int K> struct ColumnMap {
    static constexpr int kPerPiece = 16 / sizeof(T);
    static constexpr int kPieces = K / (8 * kPerPiece);
    static constexpr int kPerLane = K / 8;
    static constexpr int kColumns = 64 / kPerLane; /* columns a lane: 64 registers of state */
    static constexpr int kWarpColumns = 4 * kColumns;
    static_assert(kPieces >= 1, "a column is at least eight 16-byte pieces");

    /* Which k the lane's i-th element is. */
    static __device__ __forceinline__ int element(int i)
    {
        return (i / kPerPiece * 8 + threadIdx.x % 8) * kPerPiece + i % kPerPiece;
    }
};

template <typename T> struct Piece;

template <> struct Piece<float> {
    static __device__ __forceinline__ void load(float *x, const float *src)
    {
        const float4 v = *reinterpret_cast<const float4 *>(src);
        x[0] = v.x;
        x[1] = v.y;
        x[2] = v.z;
        x[3] = v.w;
    }
    static __device__ __forceinline__ void store(float *dst, const float *x)
    {
        *reinterpret_cast<float4 *>(dst) = make_float4(x[0], x[1], x[2], x[3]);
    }
};

template <typename T> struct Piece16 {
    static __device__ __forceinline__ void load(float *x, const T *src)
    {
        const uint4 v = *reinterpret_cast<const uint4 *>(src);
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

template <typename T, int K> struct Columns {
    using Map = ColumnMap<T, K>;
    float s[Map::kColumns][Map::kPerLane];

    /* Columns v, v + 4, ... of a state at `base`; those past `end` are left out. */
    __device__ __forceinline__ void load(const gdn_fused_state &state, int64_t base, int v, int end)
    {
        const T *const data = static_cast<const T *>(state.data) + base + threadIdx.x % 8 * Map::kPerPiece;
#pragma unroll
        for (int c = 0; c < Map::kColumns; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                if (v + 4 * c < end) {
                    Piece<T>::load(&s[c][i * Map::kPerPiece],
                                   data + (v + 4 * c) * state.v_stride + i * 8 * Map::kPerPiece);
                }
            }
        }
    }

    __device__ __forceinline__ void store(const gdn_fused_state &state, int64_t base, int v, int end) const
    {
        T *const data = static_cast<T *>(state.data) + base + threadIdx.x % 8 * Map::kPerPiece;
#pragma unroll
        for (int c = 0; c < Map::kColumns; ++c) {
#pragma unroll
            for (int i = 0; i < Map::kPieces; ++i) {
                if (v + 4 * c < end) {
                    Piece<T>::store(data + (v + 4 * c) * state.v_stride + i * 8 * Map::kPerPiece,
                                    &s[c][i * Map::kPerPiece]);
                }
            }
        }
    }
};

/* Sum over the eight lanes of a column. */
__device__ __forceinline__ float lane_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x += __shfl_xor_sync(0xffffffffu, x, 2);
    x += __shfl_xor_sync(0xffffffffu, x, 4);
    return x;
}

template <typename T, int K>
__global__ void __launch_bounds__(128) decode_register_kernel(const __grid_constant__ gdn_decode_params p)
{
    using Map = ColumnMap<T, K>;
    extern __shared__ __align__(16) float tokens[];
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const int warp = threadIdx.x / 32;
    const int lane8 = threadIdx.x % 8;
    const Place place = place_of(p, p.warps * Map::kWarpColumns);
    const int v = place.v0 + warp * Map::kWarpColumns + threadIdx.x % 32 / 8;
    const int end = p.head_v_dim;
    const Row row = row_of(p, place.row);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }

    Columns<T, K> columns = {};
    if (p.initial_state.data && (!p.has_initial_state || p.has_initial_state[place.row])) {
        columns.load(p.initial_state, row.read * p.initial_state.slot_stride + place.head * p.initial_state.head_stride,
                     v, end);
    }
    const int64_t v_base = place.row * p.v.row_stride + place.head * p.v.head_stride;
    const int64_t o_base = place.row * p.o.row_stride + place.head * p.o.head_stride;
    for (int t = 0; t < row.tokens; ++t) {
        const int in_group = t % p.group;
        if (in_group == 0) {
            if (t > 0) {
                __syncthreads(); /* the group before is done with */
            }
            prepare_tokens(p, place.row, t, min(p.group, row.tokens - t), place.head, tokens);
            __syncthreads();
        }
        const float *const token = tokens + in_group * token_floats(K);
        const float alpha = token[2 * K], beta = token[2 * K + 1], qk = token[2 * K + 2];
        float ks[Map::kColumns] = {}, qs[Map::kColumns] = {};
#pragma unroll
        for (int i = 0; i < Map::kPerLane; i += 4) {
            const float4 k4 = *reinterpret_cast<const float4 *>(&token[Map::element(i)]);
            const float4 q4 = *reinterpret_cast<const float4 *>(&token[K + Map::element(i)]);
            const float k[4] = {k4.x, k4.y, k4.z, k4.w};
            const float q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
            for (int c = 0; c < Map::kColumns; ++c) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    ks[c] = fmaf(k[e], columns.s[c][i + e], ks[c]);
                    qs[c] = fmaf(q[e], columns.s[c][i + e], qs[c]);
                }
            }
        }
        float u[Map::kColumns];
#pragma unroll
        for (int c = 0; c < Map::kColumns; ++c) {
            const bool inside = v + 4 * c < end;
            const float value =
                inside ? load_element(p.v.data, p.v.dtype, v_base + t * p.v.token_stride + v + 4 * c) : 0.0f;
            u[c] = beta * (value - alpha * lane_sum(ks[c]));
            const float o = p.scale * fmaf(qk, u[c], alpha * lane_sum(qs[c]));
            if (inside && lane8 == c % 8) {
                store_element(p.o.data, p.o.dtype, o_base + t * p.o.token_stride + v + 4 * c, o);
            }
        }
#pragma unroll
        for (int i = 0; i < Map::kPerLane; i += 4) {
            const float4 k4 = *reinterpret_cast<const float4 *>(&token[Map::element(i)]);
            const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
            for (int c = 0; c < Map::kColumns; ++c) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    columns.s[c][i + e] = fmaf(u[c], k[e], alpha * columns.s[c][i + e]);
                }
            }
        }
        if (p.token_slots) {
            const int64_t slot = load_index(p.token_slots, p.slots_dtype, place.row * p.tokens_per_row + t);
            if (slot >= 0) {
                columns.store(p.token_states,
                              slot * p.token_states.slot_stride + place.head * p.token_states.head_stride, v, end);
            }
        }
    }
    if (p.final_state.data) {
        columns.store(p.final_state, row.write * p.final_state.slot_stride + place.head * p.final_state.head_stride, v,
                      end);
    }
}

template <typename T, int K> cudaError_t launch(const gdn_decode_params &p, cudaStream_t stream)
{
    const size_t smem = gdn_decode_register_smem(&p);
    const int columns = p.warps * ColumnMap<T, K>::kWarpColumns;
    const int64_t blocks = p.num_rows * p.num_v_heads * ((p.head_v_dim + columns - 1) / columns) + 1;
    decode_register_kernel<T, K>
        <<<static_cast<unsigned>(blocks), static_cast<unsigned>(p.warps) * 32, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

template <typename T> cudaError_t launch_of_dim(const gdn_decode_params &p, cudaStream_t stream)
{
    switch (p.head_k_dim) {
    case 64:
        return launch<T, 64>(p, stream);
    case 128:
        return launch<T, 128>(p, stream);
    case 256:
        return launch<T, 256>(p, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace gdn

int gdn_decode_in_registers(int32_t head_k_dim, const gdn_fused_state *state, uint32_t alignment)
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

int32_t gdn_decode_block_columns(int32_t head_k_dim, int32_t warps)
{
    return warps * 4 * (64 / (head_k_dim / 8));
}

size_t gdn_decode_register_smem(const gdn_decode_params *decode)
{
    return static_cast<size_t>(decode->group) * (2 * static_cast<size_t>(decode->head_k_dim) + 4) * sizeof(float);
}

int gdn_decode_register_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
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
