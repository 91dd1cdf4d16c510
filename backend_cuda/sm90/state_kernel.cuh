/* Hopper prefill, second kernel: the state's way through a sequence's chunks, and the output.
 *
 * One chunk (letters of docs/algorithm.md; A' = A B and P come from the first kernel):
 *
 *     R  = V - Gamma K S          V' = A' R
 *     O  = scale Gamma Q S + P V'
 *     S  = exp(G_C) S + (diag(exp(G_C - G_i)) K)^T V'
 *
 * A block works off items, each a segment of a sequence for one value head and half of V, or all of it:
 *
 *                   state_only           state_output, half         state_output, whole
 *     warp 0        finds the block's items, loads their chunks into a ring of three stages
 *     warp 1, 2                          1: stores O                each stores a half's O
 *     warps 4..7    state                state                      state and outputs of a half
 *     warps 8..11                        outputs                    the same of the other half
 *
 * docs/kernels/sm90.md has the pipeline's chart, the register budgets, and when which form is taken.
 */
#ifndef GDN_CUDA_SM90_STATE_KERNEL_CUH
#define GDN_CUDA_SM90_STATE_KERNEL_CUH

#include "item_state.cuh"
#include "state_copy.cuh"
#include "whole_chain.cuh"

namespace gdn
{
namespace sm90
{

/* Registers a thread of each warpgroup; a block starts with an even share, 168, or 128 where two blocks are on a
 * multiprocessor. */
template <Form kForm> struct StateBlock {
    static constexpr int kThreads = 384;
    static constexpr int kPerMultiprocessor = 1;
    static constexpr int kCopyRegisters = 56;
    static constexpr int kStateRegisters = 240;
    static constexpr int kOutputRegisters = 152;
};
template <> struct StateBlock<Form::kWhole> {
    static constexpr int kThreads = 384;
    static constexpr int kPerMultiprocessor = 1;
    static constexpr int kCopyRegisters = 24;
    static constexpr int kStateRegisters = 240;
    static constexpr int kOutputRegisters = 0;
};
template <> struct StateBlock<Form::kStateOnly> {
    static constexpr int kThreads = 256;
    static constexpr int kPerMultiprocessor = 2;
    static constexpr int kCopyRegisters = 48;
    static constexpr int kStateRegisters = 208;
    static constexpr int kOutputRegisters = 0;
};
static_assert(56 + 240 + 152 <= 3 * 168 && 24 + 2 * 240 <= 3 * 168 && 48 + 208 <= 2 * 128,
              "what the blocks started with");

/* A state warpgroup: the block's items, one after the other. */
template <typename Chain, Form kForm>
__device__ __forceinline__ void advance_states(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    Chain chain(base, barriers);
    StageCursor cursor;
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const uint32_t header = cursor.address<kForm>(base) + Stage<kForm>::kItem;
        const ItemCounts counts = read_counts(header);
        if (counts.chunks < 0) {
            break;
        }
        __syncwarp(); /* all lanes have read the item before */
        if (threadIdx.x % 32 == 0) {
            copy_item(chain.item(), header); /* which outlives the stage */
        }
        __syncwarp();
        load_item_state<kForm>(p, read_item(chain.item()), chain.half(), chain.S);
        if (counts.total() == 0) {
            chain.release(cursor);
            cursor.advance();
        }
        chain.open();
        /* The full chunks, up to one after which the state is wanted; then a shorter last one, whose tiles must be cleaned
         * first. */
        for (int done = 0;;) {
            const ItemCounts item = read_counts(chain.item()); /* read again: there are no registers to keep it in */
            if (done == item.total()) {
                break;
            }
            const int length = done < item.chunks ? GDN_SM90_CHUNK : item.tail;
            const int chunks = done < item.chunks ? chunks_to_stop(p, item.index + done, item.chunks - done) : 1;
            chain.start(cursor, length);
            for (int c = 1; c < chunks; ++c) {
                StageCursor following = cursor;
                following.advance();
                chain.step(cursor, following);
                cursor = following;
            }
            chain.finish(cursor, length);
            cursor.advance();
            done += chunks;
            if (kHasOutputs<kForm> && length == GDN_SM90_CHUNK) {
                store_checkpoint(p, read_item(chain.item()), chain.half(), done, chain.S);
            }
        }
        store_item_state<kForm>(p, read_item(chain.item()), chain.half(), chain.S);
    }
    chain.close();
}

/* The output warpgroup of state_output, half: O = Gamma Q S + P V' of every chunk that the state warpgroup has done. */
template <typename T>
__device__ __forceinline__ void compute_outputs(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    using Stage = sm90::Stage<Form::kHalf>;
    using StateMap = sm90::StateMap<Form::kHalf>;
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
    const int g = lane / 4;
    StageCursor cursor;
    int chunk = 0; /* done so far, in all items */
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const Item item = read_item(cursor.address<Form::kHalf>(base) + Stage::kItem);
        const ItemCounts counts = read_counts(cursor.address<Form::kHalf>(base) + Stage::kItem);
        const int total = counts.total();
        if (total <= 0) {
            if (counts.chunks < 0) {
                break;
            }
            warp_arrive(barriers.empty(cursor.stage), lane);
            cursor.advance();
        }
        for (int c = 0; c < total; ++c) {
            const int buffer = chunk & 1;
            const uint32_t stage = cursor.address<Form::kHalf>(base);
            const uint32_t values = base + StateMap::kNewV + buffer * 8192;
            const uint32_t tile = base + StateMap::kO + buffer * 8192;
            mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
            const float decay_low = load_shared_float(stage + Stage::kDecayQ + 4 * (16 * warp + g));
            const float decay_high = load_shared_float(stage + Stage::kDecayQ + 4 * (16 * warp + g + 8));
            /* Half of Q S while the chain finds V', the rest when it has: all of it at once would hold up A' R. */
            mbarrier_wait(barriers.state(), chunk & 1);
            fence_proxy_async();
            float O[32];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (half == 1) {
                    mbarrier_wait(barriers.values(), chunk & 1);
                    fence_proxy_async();
                }
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const uint32_t offset = half * 8192 + i * 32;
                    wgmma_ss<T>(O, wgmma_operand(stage + Stage::kQ) + wgmma_offset(offset),
                                wgmma_operand(base + StateMap::kS) + wgmma_offset(offset), half + i > 0);
                }
                wgmma_commit();
            }
            wgmma_wait<0>();
            warp_arrive(barriers.state_free(), lane);
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                O[4 * n] *= decay_low;
                O[4 * n + 1] *= decay_low;
                O[4 * n + 2] *= decay_high;
                O[4 * n + 3] *= decay_high;
            }
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_ss<T>(O, wgmma_operand(stage + Stage::kP) + wgmma_offset(i * 32),
                            wgmma_operand(values) + wgmma_offset(i * 32), true);
            }
            wgmma_commit();
            wgmma_wait<0>();
            warp_arrive(barriers.values_free(buffer), lane);
            warp_arrive(barriers.empty(cursor.stage), lane);
            if (chunk >= 2) {
                mbarrier_wait(barriers.output_free(buffer), ((chunk >> 1) & 1) ^ 1);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint32_t a[4];
                pack_operand<T>(a, O, i);
                stmatrix_x4(tile + swizzled(16 * warp + lane / 8 % 2 * 8 + lane % 8, 2 * i + lane / 16), a);
            }
            if (warp == 0 && lane == 0) {
                const int length = c < item.chunks ? GDN_SM90_CHUNK : item.tail;
                store_output(base + StateMap::kOutputs + 16 * buffer,
                             {2 * item.head + item.half, item.token + c * GDN_SM90_CHUNK, item.row, length});
            }
            __syncwarp();
            warp_arrive(barriers.output(buffer), lane);
            ++chunk;
            cursor.advance();
        }
    }
    const int buffer = chunk & 1;
    if (chunk >= 2) {
        mbarrier_wait(barriers.output_free(buffer), ((chunk >> 1) & 1) ^ 1);
    }
    if (warp == 0 && lane == 0) {
        store_output(base + StateMap::kOutputs + 16 * buffer, {0, 0, 0, -1});
    }
    __syncwarp();
    warp_arrive(barriers.output(buffer), lane);
}

template <typename T, Form kForm>
__global__ void __launch_bounds__(StateBlock<kForm>::kThreads, StateBlock<kForm>::kPerMultiprocessor)
    state_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    using Block = StateBlock<kForm>;
    const uint32_t base = shared_memory_base();
    const Barriers barriers = {base + StateMap<kForm>::kBarriers};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        barriers.init(kHasOutputs<kForm>);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_release<Block::kCopyRegisters>();
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        if (warp == 0) {
            load_items<kForm>(p, base, barriers);
        } else if (kHasOutputs<kForm> && warp <= kTiles<kForm>) {
            store_outputs<kForm>(p, base, barriers, warp - 1);
        }
    } else if (kForm != Form::kHalf || warpgroup == 1) {
        registers_claim<Block::kStateRegisters>();
        if constexpr (kForm == Form::kWhole) {
            advance_states<WholeChain<T>, kForm>(p, base, barriers);
        } else {
            advance_states<HalfChain<T, kForm>, kForm>(p, base, barriers);
        }
    } else if constexpr (kForm == Form::kHalf) {
        registers_release<Block::kOutputRegisters>();
        compute_outputs<T>(p, base, barriers);
    }
#endif
}

} // namespace sm90
} // namespace gdn

#endif
