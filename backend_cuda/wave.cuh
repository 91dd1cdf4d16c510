/* What the generic operations' kernels share: addressing, decays, warp sums and launch sizes. Letters as in
 * core/generic_ops.h. */
#ifndef GDN_CUDA_WAVE_CUH
#define GDN_CUDA_WAVE_CUH

#include "cuda_backend.h"
#include "cuda_device.h"
#include "cuda_error.h"
#include "device/element.cuh"

#include <cuda_runtime.h>

namespace gdn
{

/* Threads of a block; kernels are bounded to four blocks a multiprocessor, 64 registers a thread. Left to itself ptxas
 * spills a register or two to reach the next step of occupancy. */
constexpr int kThreads = 256;

/* Kernels walk their work in strides of the grid, so that no amount of work is too much for one launch. */
inline unsigned grid_size(int64_t blocks)
{
    constexpr int64_t kMost = INT32_MAX;
    return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

inline cudaStream_t stream_of(const gdn_prefill_run *run)
{
    return static_cast<cudaStream_t>(run->stream);
}

inline bool is_equal_length(const gdn_prefill_run *run)
{
    return run->problem->cu_seqlens_dtype == GDN_DTYPE_NONE;
}

/* Tokens of each sequence of an equal-length batch. */
inline int64_t row_length(const gdn_prefill_run *run)
{
    return run->args->num_seqs > 0 ? run->args->total_tokens / run->args->num_seqs : 0;
}

/* Which key head a value head uses. */
struct HeadMap {
    int32_t num_k_heads;
    int32_t num_v_heads;
    int32_t tiled;

    __device__ __forceinline__ int k_head(int v_head) const
    {
        return tiled ? v_head % num_k_heads : v_head / (num_v_heads / num_k_heads);
    }
};

inline HeadMap head_map(const gdn_prefill_run *run)
{
    return {run->problem->num_k_heads, run->problem->num_v_heads, run->problem->head_map == GDN_HEAD_MAP_TILED};
}

inline uintptr_t float_bytes(int32_t dtype)
{
    return dtype == GDN_DTYPE_F32 ? 4 : 2;
}

/* q, k, v, o, gate or beta, as the caller laid it out. */
struct Rows {
    void *data;
    int32_t dtype;
    int32_t equal_length;
    int64_t row_stride;
    int64_t token_stride;
    int64_t head_stride;

    /* The index of element 0 of row i of a chunk's head. */
    __device__ __forceinline__ int64_t index(const gdn_chunk &chunk, int32_t chunk_size, int64_t i, int head) const
    {
        const int64_t start =
            equal_length ? chunk.seq * row_stride + static_cast<int64_t>(chunk.index) * chunk_size * token_stride
                         : chunk.token * token_stride;
        return start + i * token_stride + head * head_stride;
    }
};

/* Whether all rows of dense float32 scratch are at 16 bytes, in whole groups of four. */
inline bool is_wide(int32_t width)
{
    return width % 4 == 0;
}

/* Whether every row of the caller's starts at a multiple of four elements, in whole groups of four. */
inline bool is_wide(const Rows &rows, int32_t width)
{
    const int64_t strides = rows.row_stride | rows.token_stride | rows.head_stride | width;
    const uintptr_t bytes = 4 * float_bytes(rows.dtype);
    return strides % 4 == 0 && reinterpret_cast<uintptr_t>(rows.data) % bytes == 0;
}

inline Rows rows_of(const gdn_prefill_run *run, const gdn_layout &layout, const void *data)
{
    return {const_cast<void *>(data), layout.dtype,      is_equal_length(run), gdn_row_stride(&layout, row_length(run)),
            layout.token_stride,      layout.head_stride};
}

/* States, as the caller laid them out. */
struct States {
    void *data;
    int32_t dtype;
    int64_t slot_stride;
    int64_t head_stride;
    int64_t v_stride;
    int64_t k_stride;

    __device__ __forceinline__ int64_t index(int64_t slot, int head, int k, int v) const
    {
        return slot * slot_stride + head * head_stride + v * v_stride + k * k_stride;
    }
};

inline States states_of(const gdn_state_layout &layout, const void *data)
{
    return {const_cast<void *>(data), layout.dtype,    layout.slot_stride,
            layout.head_stride,       layout.v_stride, layout.k_stride};
}

/* One (slot, value head)'s pair of planes of G. */
struct DecaySums {
    const float *high;
    const float *low;

    __device__ __forceinline__ DecaySums(const float *G, int64_t slot_head, int32_t chunk_size)
        : high(G + slot_head * 2 * chunk_size), low(high + chunk_size)
    {
    }
    /* exp(G_i) */
    __device__ __forceinline__ float decay(int i) const
    {
        return expf(high[i] + low[i]);
    }
    /* exp(G_i - G_j), i >= j */
    __device__ __forceinline__ float ratio(int i, int j) const
    {
        return expf((high[i] - high[j]) + (low[i] - low[j]));
    }
};

/* Chunks that a lane has in a wave: its steps are 0.., so bisection finds the first that is not there. */
static __device__ __forceinline__ int32_t lane_steps(const int32_t *lane_slot, int32_t num_steps, int32_t num_lanes,
                                                     int64_t lane)
{
    int32_t low = 0; /* there */
    int32_t high = num_steps; /* not there */
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (lane_slot[static_cast<int64_t>(middle) * num_lanes + lane] >= 0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low + 1;
}

/* Entries that a sequence has at a checkpoint interval; a length that cannot be counts as a possible one. */
static __device__ __forceinline__ int64_t checkpoints_of(int64_t length, int64_t total_tokens, int32_t interval)
{
    return length <= 0 ? 0 : (length < total_tokens ? length : total_tokens) / interval;
}

/* Four neighbouring elements of a row; the address is a multiple of four elements. */
static __device__ __forceinline__ float4 load4(const float *src)
{
    return *reinterpret_cast<const float4 *>(src);
}

template <typename T> static __device__ __forceinline__ float4 load4(const T *src)
{
    const uint2 packed = *reinterpret_cast<const uint2 *>(src);
    const float2 low = unpack2<T>(packed.x);
    const float2 high = unpack2<T>(packed.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

static __device__ __forceinline__ void store4(float *dst, const float4 &x)
{
    *reinterpret_cast<float4 *>(dst) = x;
}

static __device__ __forceinline__ float4 scaled(float factor, const float4 &x)
{
    return make_float4(factor * x.x, factor * x.y, factor * x.z, factor * x.w);
}

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

} // namespace gdn

#endif
