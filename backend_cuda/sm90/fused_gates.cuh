/* The gates of every (chunk, value head), for the fused kernel: worked out there, they would cost its prep warpgroup, which is
 * what it waits for, a third of its time. */
#ifndef GDN_CUDA_SM90_FUSED_GATES_CUH
#define GDN_CUDA_SM90_FUSED_GATES_CUH

#include "fused_map.cuh"
#include "fused_plan.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kGatesWarps = 8; /* of a block: value heads of one chunk, whose inputs lie side by side */
constexpr int kGatesBlocks = 8; /* of a multiprocessor */

/* Inputs of a chunk's gates, of kGatesWarps value heads; rows are apart so that eight heads of four tokens hit 32 banks. */
struct GatesInputs {
    float gate[kGatesWarps][kRows + 4];
    float beta[kGatesWarps][kRows + 4];
};

/* All threads: the inputs, which lie side by side in memory head by head, so a warp reads eight heads of four tokens. */
__device__ __forceinline__ void load_inputs(const gdn_sm90_prefill &p, const gdn_chunk &chunk, int first_head,
                                            GatesInputs &inputs)
{
    constexpr int kTokens = 32; /* at once */
    const int column = threadIdx.x % kGatesWarps, head = first_head + column;
    if (head >= p.num_v_heads) {
        return;
    }
    const int64_t first = p.equal_length ? static_cast<int64_t>(chunk.index) * kRows : chunk.token;
    const int64_t row = p.equal_length ? chunk.seq : 0;
    const int64_t gate_base = row * p.gate.row_stride + head * p.gate.head_stride;
    const int64_t beta_base = row * p.beta.row_stride + head * p.beta.head_stride;
    float gate[kRows / kTokens] = {}, beta[kRows / kTokens] = {};
#pragma unroll
    for (int e = 0; e < kRows / kTokens; ++e) {
        const int i = threadIdx.x / kGatesWarps + e * kTokens;
        if (i < chunk.length) {
            gate[e] = load_element(p.gate.data, p.gate.dtype, gate_base + (first + i) * p.gate.token_stride);
            beta[e] = load_element(p.beta.data, p.beta.dtype, beta_base + (first + i) * p.beta.token_stride);
        }
    }
#pragma unroll
    for (int e = 0; e < kRows / kTokens; ++e) {
        const int i = threadIdx.x / kGatesWarps + e * kTokens;
        inputs.gate[column][i] = gate[e];
        inputs.beta[column][i] = beta[e];
    }
}

/* Those of one value head, for compute_gates. */
__device__ __forceinline__ RawGates read_inputs(const GatesInputs &inputs, int column, int lane)
{
    const float2 gate = *reinterpret_cast<const float2 *>(&inputs.gate[column][2 * lane]);
    const float2 beta = *reinterpret_cast<const float2 *>(&inputs.beta[column][2 * lane]);
    return {{gate.x, gate.y}, {beta.x, beta.y}};
}

/* kPlans: there is no chunk table. */
template <typename T, bool kPlans>
__global__ void __launch_bounds__(32 * kGatesWarps, kGatesBlocks)
    gates_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    let_kernel_after_begin();
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const uint32_t gates = shared_memory_base() + warp * PrepMap::kGatesBytes;
    __shared__ GatesInputs inputs[2]; /* of chunks in turn */
    int turn = 0;
    const int groups = (p.num_v_heads + kGatesWarps - 1) / kGatesWarps;
    __shared__ Plan plan;
    if (kPlans) {
        plan_sequences(p, plan);
    }
    for (int64_t i = blockIdx.x; i < static_cast<int64_t>(p.wave_slots) * groups; i += gridDim.x) {
        const int slot = static_cast<int>(i / groups);
        const int first_head = static_cast<int>(i % groups) * kGatesWarps, head = first_head + warp;
        const gdn_chunk chunk = kPlans ? planned_chunk(plan, slot) : p.chunks[slot];
        if (chunk.seq < 0) {
            break; /* unused slots are the last ones */
        }
        if (chunk.length == 0) {
            continue;
        }
        load_inputs(p, chunk, first_head, inputs[turn]);
        __syncthreads(); /* all have read the chunk before the last, too */
        const RawGates raw = read_inputs(inputs[turn], warp, lane);
        turn ^= 1;
        if (head >= p.num_v_heads) {
            continue;
        }
        PrepJob job = {};
        job.k_head = p.tiled_heads ? head : 0; /* as if one key head had all value heads, or each its own: */
        job.first_head = p.tiled_heads ? 0 : head; /* value_head() is `head` */
        job.count = 1;
        job.token = static_cast<int>(chunk.token);
        job.seq = chunk.seq;
        job.index = chunk.index;
        job.length = chunk.length;
        if (lane == 0) {
            bulk_wait_read(); /* the gates before these have left */
        }
        __syncwarp();
        compute_gates<T>(p, job, 0, raw, gates, lane);
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            bulk_store(p.records + (static_cast<int64_t>(slot) * p.num_v_heads + head) * PrepMap::kGatesBytes, gates,
                       PrepMap::kGatesBytes);
            bulk_commit();
        }
    }
    if (lane == 0) {
        bulk_wait();
    }
#endif
}
static_assert(32 * kGatesWarps == GDN_SM90_MOST_PLANNED, "a thread a sequence");

} // namespace sm90
} // namespace gdn

#endif
