/* Fused prefill, second kernel: the state's way through a sequence's chunks, and the output.
 *
 * One chunk (letters of docs/algorithm.md; A' = A B and P come from the first kernel):
 *
 *     R  = V - Gamma K S          V' = A' R
 *     O  = scale Gamma Q S + P V'
 *     S  = exp(G_C) S + (diag(exp(G_C - G_i)) K)^T V'
 *
 * Everything is computed transposed, 16 columns of V a warp. The state S^T (16 x K) is the float32 accumulator of one
 * warp and never leaves its registers: rounded to 16 bits it is, as it lies, the A operand of S^T K^T and S^T Q^T; the
 * accumulators of R^T and V'^T are in the same way the A operands of what follows. So a warp needs nothing of another
 * one, and the sequential chain has no shared-memory round trip. B operands are ldmatrix reads of k and q as they lie
 * (transposed for the state update) and 16-byte reads of A' and P.
 *
 *     block = `warps` compute warps, 16 columns of V each, and four copy warps
 *
 *     compute warps   wait for the loads of c | R V' O S of c, O over V | tell that c is used
 *     copy warps      wait for loads, tell c has landed | wait for c - 1 to be used | load c - 1 + stages there, O(c - 1) out
 *
 * O is left where V was: a warp reads and writes its own columns only. R is split into two 16-bit parts for bfloat16,
 * which removes its rounding for 20 products of 232.
 */
#include "fused_prefill_chunk.cuh"
#include "fused_prefill_copy.cuh"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

/* The carry of a wave as a state: [num_v_heads, V, K] in float32. */
template <int K> __device__ __forceinline__ gdn_fused_state carried_state(const gdn_fused_prefill &p, float *data)
{
    const int64_t head_stride = static_cast<int64_t>(p.head_v_dim) * K;
    return {data, GDN_DTYPE_F32, 0, head_stride, K, 1, 1};
}

/* The state a run starts from: zeros, the sequence's initial state, or what the wave before left. */
template <int K>
__device__ __forceinline__ void load_initial_state(const gdn_fused_prefill &p, const Run &run, float (&S)[K / 8][4])
{
    const int v0 = run.v0 + threadIdx.x / 32 * 16;
    if (run.index > 0) {
        const gdn_fused_state carry = carried_state<K>(p, const_cast<float *>(p.carry_in));
        load_state_blocks<K / 8>(S, carry, state_offset(carry, 0, run.head), v0);
        return;
    }
    if (p.initial_state.data && (!p.has_initial_state || p.has_initial_state[run.seq])) {
        const int64_t slot = p.read_slots ? load_index(p.read_slots, p.slots_dtype, run.seq) : run.seq;
        load_state_blocks<K / 8>(S, p.initial_state, state_offset(p.initial_state, slot, run.head), v0);
        return;
    }
#pragma unroll
    for (int n = 0; n < K / 8; ++n) {
        S[n][0] = S[n][1] = S[n][2] = S[n][3] = 0.0f;
    }
}

template <int K>
__device__ __forceinline__ void store_final_state(const gdn_fused_prefill &p, const Run &run,
                                                  const float (&S)[K / 8][4])
{
    const int v0 = run.v0 + threadIdx.x / 32 * 16;
    if (!run.last) {
        const gdn_fused_state carry = carried_state<K>(p, p.carry_out);
        store_state_blocks<K / 8>(S, carry, state_offset(carry, 0, run.head), v0, 0);
    } else if (p.final_state.data) {
        const int64_t slot = p.write_slots ? load_index(p.write_slots, p.slots_dtype, run.seq) : run.seq;
        store_state_blocks<K / 8>(S, p.final_state, state_offset(p.final_state, slot, run.head), v0, 0);
    }
}

template <typename T, int K, bool kCheckpoints>
__device__ __forceinline__ void compute_run(const gdn_fused_prefill &p, const Run &run, uint32_t smem,
                                            const NarrowTile &v_tile)
{
    float S[K / 8][4];
    load_initial_state<K>(p, run, S);
    CheckpointCursor cursor = {};
    if (kCheckpoints) {
        cursor.start(p, run.seq, static_cast<int64_t>(run.index) * kChunk);
    }
    const LaneOffsets offsets = LaneOffsets::of<K>(v_tile);
    int here = 0; /* stage of chunk c */
    for (int c = 0; c < run.count; ++c) {
        barrier_sync(loads_barrier(here), block_threads(p));
        compute_chunk<T, K, kCheckpoints>(p, S, smem + here * StageMap<K>::bytes(p.warps), offsets, run, c, cursor);
        barrier_arrive(uses_barrier(here), block_threads(p));
        here = here + 1 == p.stages ? 0 : here + 1;
    }
    store_final_state<K>(p, run, S);
}

template <typename T, int K, bool kCheckpoints>
__global__ void __launch_bounds__((kMaxWarps + kCopyWarps) * 32)
    state_output_kernel(const __grid_constant__ gdn_fused_prefill p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    Run &run = *reinterpret_cast<Run *>(smem + p.stages * StageMap<K>::bytes(p.warps));
    const NarrowTile v_tile = {31 - __clz(2 * p.warps)};
    const int v_blocks = p.head_v_dim / (16 * p.warps);
    const int warp = threadIdx.x / 32;

    int seq = p.chunks[p.wave_begin].seq; /* the wave's first sequence */
    if (seq < 0) {
        return;
    }
    seq += blockIdx.x / v_blocks / p.num_v_heads;
    for (;;) {
        if (warp == 0) {
            Run found = {};
            found.v0 = static_cast<int>(blockIdx.x % v_blocks) * 16 * p.warps;
            found.head = blockIdx.x / v_blocks % p.num_v_heads;
            found.k_head = p.tiled_heads ? found.head % p.num_k_heads : found.head / p.heads_per_group;
            found.some = find_run(p, seq, found);
            if (threadIdx.x == 0) {
                run = found;
            }
        }
        __syncthreads();
        if (!run.some) {
            return;
        }
        if (warp >= p.warps) {
            copy_run<K>(p, run, smem_address(smem), v_tile);
        } else {
            compute_run<T, K, kCheckpoints>(p, run, smem_address(smem), v_tile);
        }
        seq = run.seq + p.lanes;
        __syncthreads(); /* the next run's loads come after this run's stores of O are read */
    }
}

template <typename T, int K, bool kCheckpoints> cudaError_t launch(const gdn_fused_prefill &p, cudaStream_t stream)
{
    const size_t smem = gdn_fused_state_output_smem(K, p.warps, p.stages);
    const cudaError_t error = cudaFuncSetAttribute(state_output_kernel<T, K, kCheckpoints>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    const int64_t blocks = static_cast<int64_t>(p.head_v_dim / (16 * p.warps)) * p.num_v_heads * p.lanes;
    const unsigned threads = static_cast<unsigned>(p.warps + kCopyWarps) * 32;
    state_output_kernel<T, K, kCheckpoints><<<static_cast<unsigned>(blocks), threads, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

template <typename T, int K> cudaError_t launch_of_form(const gdn_fused_prefill &p, cudaStream_t stream)
{
    return p.checkpoint_form == GDN_CHECKPOINT_NONE ? launch<T, K, false>(p, stream) : launch<T, K, true>(p, stream);
}

template <typename T> cudaError_t launch_of_dim(const gdn_fused_prefill &p, cudaStream_t stream)
{
    switch (p.head_k_dim) {
    case 64:
        return launch_of_form<T, 64>(p, stream);
    case 128:
        return launch_of_form<T, 128>(p, stream);
    case 256:
        return launch_of_form<T, 256>(p, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace gdn

size_t gdn_fused_state_output_smem(int32_t head_k_dim, int32_t warps, int32_t stages)
{
    const size_t stage =
        size_t{2} * gdn::kChunk * head_k_dim * 2 + size_t{2} * gdn::kChunk * 16 * warps + gdn::kStagedRecord;
    return stage * stages + sizeof(gdn::Run);
}

int gdn_fused_state_output_launch(const gdn_fused_prefill *prefill, struct CUstream_st *stream)
{
    return prefill->q.dtype == GDN_DTYPE_BF16 ? gdn::launch_of_dim<__nv_bfloat16>(*prefill, stream)
                                              : gdn::launch_of_dim<__half>(*prefill, stream);
}
