/* Decode of any state layout and any dims, a tile of the state in shared memory: the arithmetic of decode.cu.
 *
 * A block has `columns` columns v of one head of one row. Its threads are columns x parts; part i takes k = i, i + parts,
 * ... of each product, and the parts' sums are added in order.
 *
 *     tile [K][columns + 1] | q, k and gates of `group` tokens | partial sums [2][parts][columns]
 */
#include "decode_row.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

constexpr int kThreads = 128;
constexpr int kMostShared =
    65536; /* bytes: more than any launch asks for (see impl_decode.c), less than any device has */

/* Neighbouring threads move neighbouring elements of memory, whichever way the state is stored. */
struct TileWalk {
    int k_first, k_step, v_first, v_step;

    __device__ __forceinline__ TileWalk(const gdn_fused_state &state, int columns)
    {
        if (state.k_stride == 1) {
            k_first = threadIdx.x % 32;
            k_step = 32;
            v_first = threadIdx.x / 32;
            v_step = kThreads / 32;
        } else {
            v_first = threadIdx.x % columns;
            v_step = columns;
            k_first = threadIdx.x / columns;
            k_step = kThreads / columns;
        }
    }
};

constexpr int kAtOnce = 8; /* elements of the state that a thread has under way */

__device__ __forceinline__ void store_tile(const gdn_decode_params &p, const gdn_fused_state &state, int64_t slot,
                                           const Place &place, const float *tile)
{
    const int64_t base = slot * state.slot_stride + place.head * state.head_stride + place.v0 * state.v_stride;
    const TileWalk walk(state, p.columns);
    const int columns = min(p.columns, p.head_v_dim - place.v0);
    for (int c = walk.v_first; c < columns; c += walk.v_step) {
#pragma unroll 4
        for (int k = walk.k_first; k < p.head_k_dim; k += walk.k_step) {
            store_element(state.data, state.dtype, base + c * state.v_stride + k * state.k_stride,
                          tile[k * (p.columns + 1) + c]);
        }
    }
}

template <bool k16Bit>
__device__ __forceinline__ void load_tile(const gdn_decode_params &p, const gdn_fused_state &state, int64_t slot,
                                          const Place &place, float *tile)
{
    const int64_t base = slot * state.slot_stride + place.head * state.head_stride + place.v0 * state.v_stride;
    const TileWalk walk(state, p.columns);
    const int columns = min(p.columns, p.head_v_dim - place.v0);
    /* The thread's elements in one sequence, columns outside, so that loads run on from one column to the next. */
    const int per_column = (p.head_k_dim - walk.k_first + walk.k_step - 1) / walk.k_step;
    const int count = walk.v_first < columns && per_column > 0
                          ? per_column * ((columns - walk.v_first + walk.v_step - 1) / walk.v_step)
                          : 0;
    int c = walk.v_first, k = walk.k_first;
    for (int i = 0; i < count; i += kAtOnce) {
        uint32_t bits[kAtOnce];
        int at[kAtOnce];
#pragma unroll
        for (int e = 0; e < kAtOnce; ++e) {
            at[e] = -1;
            if (i + e < count) {
                bits[e] = load_bits<k16Bit>(state.data, base + c * state.v_stride + k * state.k_stride);
                at[e] = k * (p.columns + 1) + c;
                k += walk.k_step;
                if (k >= p.head_k_dim) {
                    k = walk.k_first;
                    c += walk.v_step;
                }
            }
        }
#pragma unroll
        for (int e = 0; e < kAtOnce; ++e) {
            if (at[e] >= 0) {
                tile[at[e]] = float_of_bits<k16Bit>(bits[e], state.dtype);
            }
        }
    }
}

/* The state of a row of no tokens: bits as they are, which a conversion to float and back would not keep of a NaN. */
__device__ __forceinline__ void pass_bits(const gdn_decode_params &p, const Row &row, const Place &place)
{
    const int columns = min(p.columns, p.head_v_dim - place.v0);
    const int64_t src = row.read * p.initial_state.slot_stride + place.head * p.initial_state.head_stride +
                        place.v0 * p.initial_state.v_stride;
    const int64_t dst = row.write * p.final_state.slot_stride + place.head * p.final_state.head_stride +
                        place.v0 * p.final_state.v_stride;
    for (int i = threadIdx.x; i < columns * p.head_k_dim; i += kThreads) {
        const int k = i % p.head_k_dim;
        const int c = i / p.head_k_dim;
        static_cast<uint16_t *>(p.final_state.data)[dst + c * p.final_state.v_stride + k * p.final_state.k_stride] =
            static_cast<const uint16_t *>(
                p.initial_state.data)[src + c * p.initial_state.v_stride + k * p.initial_state.k_stride];
    }
}

__global__ void __launch_bounds__(kThreads)
    decode_shared_kernel(const __grid_constant__ gdn_decode_params p, const Grid grid)
{
    extern __shared__ __align__(16) float smem[];
    if (blockIdx.x == 0) {
        if (!p.checked) {
            report_rows(p);
        }
        return;
    }
    const Place place = place_of(grid);
    const Row row = row_of(p, place.row);
    if (row.skipped || (p.checked && p.fault->code != GDN_FAULT_NONE)) {
        return;
    }
    if (row.tokens == 0 && row.has_initial_state && p.final_state.data &&
        p.initial_state.dtype == p.final_state.dtype && p.final_state.dtype != GDN_DTYPE_F32) {
        pass_bits(p, row, place);
        return;
    }
    const int K = p.head_k_dim;
    const int stride = p.columns + 1;
    const int parts = kThreads / p.columns;
    const int c = threadIdx.x % p.columns;
    const int part = threadIdx.x / p.columns;
    const bool inside = place.v0 + c < p.head_v_dim;
    float *const tile = smem;
    float *const tokens = tile + (K * stride + 3) / 4 * 4;
    float *const sums = tokens + p.group * token_floats(K);

    for (int i = threadIdx.x; i < K * stride; i += kThreads) {
        tile[i] = 0.0f;
    }
    __syncthreads();
    if (row.has_initial_state) {
        if (p.initial_state.dtype == GDN_DTYPE_F32) {
            load_tile<false>(p, p.initial_state, row.read, place, tile);
        } else {
            load_tile<true>(p, p.initial_state, row.read, place, tile);
        }
    }
    __syncthreads();
    const int64_t o_at = place.row * p.o.row_stride + place.head * p.o.head_stride + place.v0 + c;
    for (int t = 0; t < row.tokens; ++t) {
        const int in_group = t % p.group;
        if (in_group == 0) {
            const int count = min(p.group, row.tokens - t);
            if (p.q.dtype == GDN_DTYPE_F32) {
                prepare_tokens<false>(p, place, t, count, p.columns, tokens);
            } else {
                prepare_tokens<true>(p, place, t, count, p.columns, tokens);
            }
            __syncthreads();
        }
        const float *const token = tokens + in_group * token_floats(K);
        const float alpha = token[2 * K], beta = token[2 * K + 1], qk = token[2 * K + 2];
        float ks = 0.0f, qs = 0.0f;
        for (int k = part; k < K; k += parts) {
            const float s = tile[k * stride + c];
            ks = fmaf(token[k], s, ks);
            qs = fmaf(token[K + k], s, qs);
        }
        sums[part * p.columns + c] = ks;
        sums[(parts + part) * p.columns + c] = qs;
        __syncthreads();
        ks = 0.0f;
        qs = 0.0f;
        for (int i = 0; i < parts; ++i) {
            ks += sums[i * p.columns + c];
            qs += sums[(parts + i) * p.columns + c];
        }
        const float u = beta * (token[2 * K + 4 + c] - alpha * ks);
        if (inside && part == 0) {
            store_element(p.o.data, p.o.dtype, o_at + t * p.o.token_stride, p.scale * fmaf(qk, u, alpha * qs));
        }
        for (int k = part; k < K; k += parts) {
            tile[k * stride + c] = fmaf(u, token[k], alpha * tile[k * stride + c]);
        }
        __syncthreads();
        if (p.token_slots) {
            const int64_t slot = load_index(p.token_slots, p.slots_dtype, place.row * p.tokens_per_row + t);
            if (slot >= 0) {
                store_tile(p, p.token_states, slot, place, tile);
                __syncthreads();
            }
        }
    }
    if (p.final_state.data) {
        store_tile(p, p.final_state, row.write, place, tile);
    }
}

size_t shared_bytes(const gdn_decode_params *decode)
{
    const size_t K = static_cast<size_t>(decode->head_k_dim);
    const size_t tile = (K * (static_cast<size_t>(decode->columns) + 1) + 3) / 4 * 4;
    const size_t tokens = static_cast<size_t>(decode->group) * token_floats(decode->head_k_dim);
    return (tile + tokens + 2 * kThreads) * sizeof(float);
}

} // namespace
} // namespace gdn

int gdn_decode_shared_launch(const gdn_decode_params *decode, struct CUstream_st *stream)
{
    const size_t smem = gdn::shared_bytes(decode);
    const cudaError_t error =
        cudaFuncSetAttribute(gdn::decode_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gdn::kMostShared);
    if (error != cudaSuccess) {
        return error;
    }
    const unsigned blocks = static_cast<unsigned>(gdn::num_blocks(*decode, decode->columns));
    gdn::decode_shared_kernel<<<blocks, gdn::kThreads, smem, stream>>>(*decode, gdn::grid_of(*decode, decode->columns));
    return cudaPeekAtLastError();
}
