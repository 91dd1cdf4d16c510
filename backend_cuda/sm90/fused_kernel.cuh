/* Hopper prefill in one kernel, for runs whose sequences and heads fill the card: no record goes through device memory.
 *
 * A block works off items, each a sequence for one value head and all of V:
 *
 *     warp 0         loads the items' chunks into a ring of three stages
 *     warps 1, 2     store a half's O each
 *     warp 3         finds the block's items: the longest first, or an even share of all
 *     warps 4..11    state and outputs, a half of V a warpgroup
 *     warps 12..15   prep: the record of the chunks to come (fused_prep.cuh)
 *
 * Its bits are those of the other forms.
 */
#ifndef GDN_CUDA_SM90_FUSED_KERNEL_CUH
#define GDN_CUDA_SM90_FUSED_KERNEL_CUH

#include "fused_chain.cuh"
#include "fused_copy.cuh"
#include "fused_gates.cuh"
#include "fused_prep.cuh"
#include "state_kernel.cuh"

namespace gdn
{
namespace sm90
{

/* Registers a thread of each warpgroup; a block starts with an even share, 128. */
struct FusedBlock {
    static constexpr int kThreads = 512;
    static constexpr int kCopyRegisters = 24;
    static constexpr int kStateRegisters = 176;
    static constexpr int kPrepRegisters = 136;
};
static_assert(FusedBlock::kCopyRegisters + 2 * FusedBlock::kStateRegisters + FusedBlock::kPrepRegisters <= 4 * 128,
              "what the block started with");

template <typename T>
__global__ void __launch_bounds__(FusedBlock::kThreads, 1) fused_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    const uint32_t base = shared_memory_base();
    const FusedBarriers barriers = {base + StateMap<Form::kFused>::kBarriers};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        barriers.init();
    }
    if (sorts_sequences(p)) {
        sort_sequences(p, base);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_release<FusedBlock::kCopyRegisters>();
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        if (warp == 0) {
            if (threadIdx.x == 0) {
                load_found_items(p, base, barriers);
            }
        } else if (warp <= 2) {
            store_outputs<Form::kFused>(p, base, barriers, warp - 1);
        } else {
            find_items(p, base, barriers);
        }
    } else if (warpgroup <= 2) {
        registers_claim<FusedBlock::kStateRegisters>();
        advance_fused<T>(p, base, barriers);
    } else {
        registers_claim<FusedBlock::kPrepRegisters>();
        FusedPrep<T>(p, base, barriers).run();
    }
#endif
}

} // namespace sm90
} // namespace gdn

#endif
