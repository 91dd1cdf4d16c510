/* Moves a state between memory of any layout and type and the accumulators of mma m16n8k16, transposed:
 * block n holds S^T[v, 8 n + k], with lane g * 4 + t having v = g and g + 8, k = 2t and 2t + 1. */
#ifndef GDN_CUDA_FUSED_PREFILL_STATES_CUH
#define GDN_CUDA_FUSED_PREFILL_STATES_CUH

#include "device/element.cuh"
#include "fused_prefill.h"

namespace gdn
{

/* Element (0, 0) of one head of one slot, as an offset into the state's data. */
static __device__ __forceinline__ int64_t state_offset(const gdn_fused_state &state, int64_t slot, int head)
{
    return slot * state.slot_stride + head * state.head_stride;
}

template <int kCount>
static __device__ __forceinline__ void load_state_blocks(float (&S)[kCount][4], const gdn_fused_state &state,
                                                         int64_t base, int v0)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    base += (v0 + g) * state.v_stride + 2 * t * state.k_stride;
    const int64_t v8 = 8 * state.v_stride;
    if (state.pairs && state.dtype == GDN_DTYPE_F32) {
        const float *const data = static_cast<const float *>(state.data) + base;
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
            const float2 low = *reinterpret_cast<const float2 *>(data + 8 * n);
            const float2 high = *reinterpret_cast<const float2 *>(data + 8 * n + v8);
            S[n][0] = low.x;
            S[n][1] = low.y;
            S[n][2] = high.x;
            S[n][3] = high.y;
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
        const int64_t at = base + 8 * n * state.k_stride;
        S[n][0] = load_element(state.data, state.dtype, at);
        S[n][1] = load_element(state.data, state.dtype, at + state.k_stride);
        S[n][2] = load_element(state.data, state.dtype, at + v8);
        S[n][3] = load_element(state.data, state.dtype, at + v8 + state.k_stride);
    }
}

/* Blocks n0 .. n0 + kCount - 1 of a state. */
template <int kCount>
static __device__ __forceinline__ void store_state_blocks(const float (&S)[kCount][4], const gdn_fused_state &state,
                                                          int64_t base, int v0, int n0)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    base += (v0 + g) * state.v_stride + (8 * n0 + 2 * t) * state.k_stride;
    const int64_t v8 = 8 * state.v_stride;
    if (state.pairs && state.dtype == GDN_DTYPE_F32) {
        float *const data = static_cast<float *>(state.data) + base;
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
            *reinterpret_cast<float2 *>(data + 8 * n) = make_float2(S[n][0], S[n][1]);
            *reinterpret_cast<float2 *>(data + 8 * n + v8) = make_float2(S[n][2], S[n][3]);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
        const int64_t at = base + 8 * n * state.k_stride;
        store_element(state.data, state.dtype, at, S[n][0]);
        store_element(state.data, state.dtype, at + state.k_stride, S[n][1]);
        store_element(state.data, state.dtype, at + v8, S[n][2]);
        store_element(state.data, state.dtype, at + v8 + state.k_stride, S[n][3]);
    }
}

} // namespace gdn

#endif
