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

/* kPlans: there is no chunk table. */
template <typename T, bool kPlans>
__global__ void __launch_bounds__(32 * kGatesWarps) gates_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    let_kernel_after_begin();
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const uint32_t gates = shared_memory_base() + warp * PrepMap::kGatesBytes;
    const int groups = (p.num_v_heads + kGatesWarps - 1) / kGatesWarps;
    __shared__ Plan plan;
    if (kPlans) {
        plan_sequences(p, plan);
    }
    for (int64_t i = blockIdx.x; i < static_cast<int64_t>(p.wave_slots) * groups; i += gridDim.x) {
        const int slot = static_cast<int>(i / groups);
        const int head = static_cast<int>(i % groups) * kGatesWarps + warp;
        const gdn_chunk chunk = kPlans ? planned_chunk(plan, slot) : p.chunks[slot];
        if (chunk.seq < 0) {
            break; /* unused slots are the last ones */
        }
        if (chunk.length == 0 || head >= p.num_v_heads) {
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
        const RawGates raw = load_gates(p, job, 0);
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
