/* Hopper prefill, second kernel: the state's way through a sequence's chunks, and the output.
 *
 * One chunk (letters of docs/algorithm.md; A' = A B comes from the first kernel, P from a warpgroup beside the state's):
 *
 *     R  = V - Gamma K S          V' = A' R
 *     O  = scale Gamma Q S + P V'
 *     S  = exp(G_C) S + (diag(exp(G_C - G_i)) K)^T V'
 *
 * A block works off items, each a segment of a sequence for one value head and a tile of V, or two:
 *
 *                   state_only           state_output, half         state_output, whole (K = 256)
 *     warp 0        finds the block's items, loads their chunks into a ring of three stages
 *     warp 1, 2                          1: stores O                each stores a tile's O
 *     warps 4..7    state                state and outputs          state and outputs of a tile
 *     warps 8..11                        P                          the same of the other one
 *
 * docs/kernels/sm90.md has the pipeline's chart, the register budgets, and when which form is taken.
 */
#ifndef GDN_CUDA_SM90_STATE_KERNEL_CUH
#define GDN_CUDA_SM90_STATE_KERNEL_CUH

#include "item_state.cuh"
#include "plain_chain.cuh"
#include "score_warps.cuh"
#include "state_copy.cuh"

namespace gdn
{
namespace sm90
{

/* Registers a thread of each warpgroup; a block starts with an even share, 168, or 128 where two blocks are on a
 * multiprocessor. */
template <Form kForm, bool kPlain> struct StateBlock {
    static constexpr int kThreads = 384;
    static constexpr int kPerMultiprocessor = 1;
    static constexpr int kCopyRegisters = 56;
    static constexpr int kStateRegisters = 240;
    static constexpr int kScoreRegisters = 152;
};
template <bool kPlain> struct StateBlock<Form::kWhole, kPlain> {
    static constexpr int kThreads = 384;
    static constexpr int kPerMultiprocessor = 1;
    static constexpr int kCopyRegisters = 24;
    static constexpr int kStateRegisters = 240;
};
template <> struct StateBlock<Form::kStateOnly, false> {
    static constexpr int kThreads = 256;
    static constexpr int kPerMultiprocessor = 2;
    static constexpr int kCopyRegisters = 48;
    static constexpr int kStateRegisters = 208;
};
struct PlainBlock { /* one state warpgroup: there are registers for all */
    static constexpr int kThreads = 256;
    static constexpr int kPerMultiprocessor = 1;
    static constexpr int kCopyRegisters = 0;
    static constexpr int kStateRegisters = 0;
};
template <> struct StateBlock<Form::kStateOnly, true> : PlainBlock {
};
template <> struct StateBlock<Form::kHalf, true> : PlainBlock {
};
static_assert(56 + 240 + 152 <= 3 * 168 && 24 + 2 * 240 <= 3 * 168 && 48 + 208 <= 2 * 128,
              "what the blocks started with");

/* The next chunks of an item, the first of them of `length` tokens; kLoud: with their outputs. */
template <bool kLoud, typename D, typename Chain>
__device__ __forceinline__ void advance_chunks(Chain &chain, StageCursor &cursor, int chunks, int length)
{
    chain.template start<kLoud>(cursor, length);
    for (int c = 1; c < chunks; ++c) {
        StageCursor following = cursor;
        following.advance<D>();
        chain.template step<kLoud>(cursor, following);
        cursor = following;
    }
    chain.template finish<kLoud>(cursor, length);
    cursor.advance<D>();
}

/* A state warpgroup: the block's items, one after the other. */
template <typename Chain, Form kForm, typename D>
__device__ __forceinline__ void advance_states(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    Chain chain(base, barriers);
    StageCursor cursor;
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const uint32_t header = cursor.address<kForm, D>(base) + Stage<kForm, D>::kItem;
        const ItemCounts counts = read_counts(header);
        if (counts.chunks < 0) {
            break;
        }
        __syncwarp(); /* all lanes have read the item before */
        if (threadIdx.x % 32 == 0) {
            copy_item(chain.item(), header); /* which outlives the stage */
        }
        __syncwarp();
        load_item_state<kForm, D>(p, read_item(chain.item()), chain.v_tile(), chain.S);
        if (counts.total() == 0) {
            chain.release(cursor);
            cursor.advance<D>();
        }
        chain.open();
        /* The full chunks, up to one after which the state is wanted; then a shorter last one, whose tiles must be cleaned
         * first. */
        for (int done = 0;;) {
            if constexpr (D::kAny && kHasOutputs<kForm>) {
                store_checkpoints<D>(p, read_item(chain.item()), chain.v_tile(), done, chain.S);
            }
            const ItemCounts item = read_counts(chain.item()); /* read again: there are no registers to keep it in */
            if (done == item.total()) {
                break;
            }
            if constexpr (kForm == Form::kPieces) {
                const int quiet = read_quiet(chain.item());
                if (done < quiet) {
                    advance_chunks<false, D>(chain, cursor, quiet, GDN_SM90_CHUNK);
                    done = quiet;
                    continue;
                }
            }
            const int length = done < item.chunks ? GDN_SM90_CHUNK : item.tail;
            const int chunks = done < item.chunks
                                   ? chunks_to_stop<kForm, D>(p, chain.item(), item.index + done, item.chunks - done)
                                   : 1;
            if constexpr (D::kPlain) {
                if (length < GDN_SM90_CHUNK) {
                    chain.clean(cursor, length);
                }
#pragma unroll 1
                for (int c = 0; c < chunks; ++c) {
                    chain.chunk(p, cursor, done + c, length);
                    cursor.advance<D>();
                }
            } else {
                advance_chunks<kHasOutputs<kForm>, D>(chain, cursor, chunks, length);
            }
            done += chunks;
            if (!D::kAny && kHasOutputs<kForm> && length == GDN_SM90_CHUNK) {
                store_checkpoint<D>(p, read_item(chain.item()), chain.v_tile(), done, chain.S);
            }
        }
        store_item_state<kForm, D>(p, read_item(chain.item()), chain.v_tile(), chain.S);
    }
    chain.close();
}

/* A block's warps in their roles; `load` is the copy warp's. */
template <typename T, Form kForm, typename D, typename Load>
__device__ __forceinline__ void take_roles(const gdn_sm90_prefill &p, uint32_t base, const Load &load)
{
    using Block = StateBlock<kForm, D::kPlain>;
    const Barriers barriers = {base + StateMap<kForm, D>::kBarriers};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        barriers.init(kVTiles<kForm> == 2 || kApart<kForm, D> ? 8 : 4);
    }
    __syncthreads();
    if (warpgroup == 0) {
        if constexpr (Block::kCopyRegisters > 0) {
            registers_release<Block::kCopyRegisters>();
        }
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        if (warp == 0) {
            load(barriers);
        } else if (kHasOutputs<kForm> && warp <= kVTiles<kForm>) {
            store_outputs<kForm, D>(p, base, barriers, warp - 1);
        }
    } else if (!kApart<kForm, D> || warpgroup == 1) {
        if constexpr (Block::kStateRegisters > 0) {
            registers_claim<Block::kStateRegisters>();
        }
        if constexpr (D::kPlain) {
            advance_states<PlainChain<T, kForm, D>, kForm, D>(p, base, barriers);
        } else {
            advance_states<HalfChain<T, kForm, D>, kForm, D>(p, base, barriers);
        }
    } else if constexpr (kApart<kForm, D>) {
        registers_release<Block::kScoreRegisters>();
        ScoreWarps<T, kForm, D>(p, base, barriers).run();
    }
}

template <typename T, Form kForm, typename D>
__global__ void __launch_bounds__(StateBlock<kForm, D::kPlain>::kThreads,
                                  StateBlock<kForm, D::kPlain>::kPerMultiprocessor)
    state_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
#ifdef GDN_SM90_HAS_CODE
    const uint32_t base = shared_memory_base();
    take_roles<T, kForm, D>(p, base, [&p, base](const Barriers &barriers) { load_items<kForm, D>(p, base, barriers); });
#endif
}

} // namespace sm90
} // namespace gdn

#endif
