/* Moves a tile of V of a state (64 columns, all of K) between memory of any layout and type and a warpgroup's accumulators,
 * transposed: S[h] holds S^T[v, 64 h + k], lane g * 4 + t of warp w having v = 16 w + g and + 8, k = 8 n + 2t and + 1. */
#ifndef GDN_CUDA_SM90_STATE_MEMORY_CUH
#define GDN_CUDA_SM90_STATE_MEMORY_CUH

#include "../device/element.cuh"
#include "prefill.h"

namespace gdn
{
namespace sm90
{

/* This lane's first element of one head of one slot. */
__device__ __forceinline__ int64_t state_base(const gdn_sm90_states &states, int64_t slot, int head, int v0)
{
    const int lane = threadIdx.x % 32;
    const int v = v0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    return slot * states.slot_stride + head * states.head_stride + v * states.v_stride +
           2 * (lane % 4) * states.k_stride;
}

template <int kKTiles>
__device__ __forceinline__ void load_state(float (&S)[kKTiles][32], const gdn_sm90_states &states, int64_t base)
{
    const int64_t v8 = 8 * states.v_stride;
    if (states.pairs) {
        const float *const data = static_cast<const float *>(states.data) + base;
#pragma unroll
        for (int n = 0; n < 8 * kKTiles; ++n) {
            const float2 low = *reinterpret_cast<const float2 *>(data + 8 * n);
            const float2 high = *reinterpret_cast<const float2 *>(data + 8 * n + v8);
            S[n / 8][4 * (n % 8)] = low.x;
            S[n / 8][4 * (n % 8) + 1] = low.y;
            S[n / 8][4 * (n % 8) + 2] = high.x;
            S[n / 8][4 * (n % 8) + 3] = high.y;
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < 8 * kKTiles; ++n) {
        const int64_t at = base + 8 * n * states.k_stride;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            S[n / 8][4 * (n % 8) + c] =
                load_element(states.data, states.dtype, at + c % 2 * states.k_stride + c / 2 * v8);
        }
    }
}

template <int kKTiles>
__device__ __forceinline__ void store_state(const float (&S)[kKTiles][32], const gdn_sm90_states &states, int64_t base)
{
    const int64_t v8 = 8 * states.v_stride;
    if (states.pairs) {
        float *const data = static_cast<float *>(states.data) + base;
#pragma unroll
        for (int n = 0; n < 8 * kKTiles; ++n) {
            const float *const x = &S[n / 8][4 * (n % 8)];
            *reinterpret_cast<float2 *>(data + 8 * n) = make_float2(x[0], x[1]);
            *reinterpret_cast<float2 *>(data + 8 * n + v8) = make_float2(x[2], x[3]);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < 8 * kKTiles; ++n) {
        const int64_t at = base + 8 * n * states.k_stride;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            store_element(states.data, states.dtype, at + c % 2 * states.k_stride + c / 2 * v8,
                          S[n / 8][4 * (n % 8) + c]);
        }
    }
}

} // namespace sm90
} // namespace gdn

#endif
