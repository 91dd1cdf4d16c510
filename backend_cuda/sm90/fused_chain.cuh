/* The chain of the fused kernel: a state warpgroup has its half of V to itself, but its chunks follow each
 * other without overlap, which takes fewer registers: what one warpgroup waits for, the other one and prep fill.
 *
 *     K S, Q S of a half of K  |  of the other half  |  R  ->  A' R  ->  decay S, scale Q S  |  P V', S += K^T V'
 *     ->  O to shared memory  |
 *
 * `|` are waits. The same sums in the same order as the other chains. */
#ifndef GDN_CUDA_SM90_FUSED_CHAIN_CUH
#define GDN_CUDA_SM90_FUSED_CHAIN_CUH

#include "fused_map.cuh"
#include "item_state.cuh"
#include "state_chain.cuh"

namespace gdn
{
namespace sm90
{

template <typename T> class FusedChain
{
    static constexpr Form kForm = Form::kFused;
    using Stage = sm90::Stage<kForm>;
    using StateMap = sm90::StateMap<kForm>;

  public:
    float S[2][32]; /* S^T, halves of K */

    __device__ __forceinline__ FusedChain(uint32_t base, const Barriers &barriers)
        : my_(chain_lane<T, kForm>()), base_(base), barriers_{barriers}
    {
    }

    /* Where this warp keeps its item. */
    __device__ __forceinline__ uint32_t item() const
    {
        return base_ + StateMap::kItems + (4 * my_.group + my_.warp) * StateMap::kItemBytes;
    }

    __device__ __forceinline__ int half() const
    {
        return my_.group;
    }

    /* Chunk `number` of the item, which is in a stage. */
    __device__ __forceinline__ void chunk(const StageCursor &cursor, int number, int length)
    {
        const uint32_t stage = cursor.address<kForm>(base_);
        const uint32_t record = wait_record();
        if (length < GDN_SM90_CHUNK) {
            ChainLane<T, kForm> mine = my_; /* so that its addresses are no loop's invariants */
            mine.lane = opaque(my_.lane);
            mine.clear_rows(stage, length);
        }
        float XO[2][32]; /* (K S)^T and (Q S)^T */
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            uint32_t state[4][4]; /* half of S^T in 16 bits: there are no registers for all of it */
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pack_operand<T>(state[i], S[h], i);
            }
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_rs<T, false>(XO, state[i],
                                   wgmma_operand(stage + Stage::kK) + wgmma_offset(h * Stage::kKPitch + i * 32),
                                   h + i > 0);
            }
            wgmma_commit();
            wgmma_wait<0>();
        }
        float(&X)[32] = XO[0]; /* then V'^T */
        float(&O)[32] = XO[1]; /* then O^T */
        uint32_t R[4][4]; /* R^T, then V'^T, as operands */
        my_.residual(R, X, my_.values(stage), record + GDN_SM90_RECORD_DECAY_K);
        if (length < GDN_SM90_CHUNK) {
            my_.mask_rows(R, length);
        }
        wgmma_fence();
        my_.multiply_matrix(X, R, record + GDN_SM90_RECORD_A, false);
        wgmma_commit();
        float2 factors[8];
        my_.load_factors(factors, record + GDN_SM90_RECORD_DECAY_Q);
        const float end = load_shared_float(record + GDN_SM90_RECORD_END);
        my_.scale_tokens(O, factors);
        my_.load_factors(factors, record + GDN_SM90_RECORD_DECAY_END);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[0][i] *= end;
            S[1][i] *= end;
        }
        wgmma_wait<0>(); /* V' */
        uint32_t scaled[4][4];
        my_.scale_values(scaled, X, factors);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(R[i], X, i);
        }
        wgmma_fence();
        my_.multiply_matrix(O, R, record + GDN_SM90_RECORD_P, true);
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, true>(S, scaled[i],
                              wgmma_operand_transposed(stage + Stage::kK, Stage::kKPitch) + wgmma_offset(i * 2048),
                              true);
        }
        wgmma_commit();
        announce_O(number, length);
        wgmma_wait<1>(); /* O */
        store_O(O);
        wgmma_wait<0>(); /* S */
        arrive_empty(cursor);
    }

    /* Gives back a stage without a chunk. */
    __device__ __forceinline__ void release(const StageCursor &cursor)
    {
        wait_record();
        arrive_empty(cursor);
    }

    /* After the last item: tells the storing warp. */
    __device__ __forceinline__ void close()
    {
        wait_O();
        if (my_.warp == 0 && my_.lane == 0) {
            store_output(base_ + StateMap::kOutputs + 16 * my_.group, {0, 0, 0, -1});
        }
        __syncwarp();
        warp_arrive(barriers_.output(my_.group), my_.lane);
    }

  private:
    /* Waits for the record, and with it the tiles, of the next stage use. */
    __device__ __forceinline__ uint32_t wait_record()
    {
        const int buffer = uses_ & 1;
        mbarrier_wait(barriers_.record(buffer), (uses_ >> 1) & 1);
        ++uses_;
        return base_ + StateMap::kRecords + buffer * GDN_SM90_RECORD_BYTES_WITH_P;
    }

    __device__ __forceinline__ void arrive_empty(const StageCursor &cursor) const
    {
        warp_arrive(barriers_.empty(cursor.stage), my_.lane);
    }

    /* Waits until the O tile before has left. */
    __device__ __forceinline__ void wait_O()
    {
        if (tiles_ > 0) {
            mbarrier_wait(barriers_.output_free(my_.group), (tiles_ - 1) & 1);
        }
        ++tiles_;
    }

    /* Once the O tile before has left, what the storing warp must know of the next: long before O is there, since the words
     * of the item are slow to come. */
    __device__ __forceinline__ void announce_O(int number, int length)
    {
        wait_O();
        if (my_.warp == 0 && my_.lane == 0) {
            const Item mine = read_item(item());
            store_output(base_ + StateMap::kOutputs + 16 * my_.group,
                         {2 * mine.head + my_.group, mine.token + number * GDN_SM90_CHUNK, mine.row, length});
        }
    }

    /* O^T to shared memory, and word to the storing warp. */
    __device__ __forceinline__ void store_O(const float (&O)[32])
    {
        const uint32_t tile = base_ + StateMap::kO + 8192 * my_.group;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t o[4];
            pack_operand<T>(o, O, i);
            stmatrix_x4_trans(
                tile + swizzled(16 * i + my_.lane / 16 * 8 + my_.lane % 8, 2 * my_.warp + my_.lane / 8 % 2), o);
        }
        __syncwarp();
        warp_arrive(barriers_.output(my_.group), my_.lane);
    }

    ChainLane<T, kForm> my_;
    uint32_t base_;
    FusedBarriers barriers_;
    int uses_ = 0; /* of stages so far */
    int tiles_ = 0; /* O tiles so far, in all items */
};

/* A state warpgroup: the block's items, one after the other. */
template <typename T>
__device__ __forceinline__ void advance_fused(const gdn_sm90_prefill &p, uint32_t base, const FusedBarriers &barriers)
{
    FusedChain<T> chain(base, barriers);
    StageCursor cursor;
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const uint32_t header = stage_item(base, cursor);
        const ItemCounts counts = read_counts(header);
        if (counts.chunks < 0) {
            break;
        }
        __syncwarp(); /* all lanes have read the item before */
        if (threadIdx.x % 32 == 0) {
            copy_item(chain.item(), header); /* which outlives the stage */
        }
        __syncwarp();
        load_item_state<Form::kFused>(p, read_item(chain.item()), chain.half(), chain.S);
        if (counts.total() == 0) {
            chain.release(cursor);
            cursor.advance();
        }
#pragma unroll 1
        for (int done = 0; done < counts.total(); ++done) {
            chain.chunk(cursor, done, done < counts.chunks ? GDN_SM90_CHUNK : counts.tail);
            cursor.advance();
            if (p.checkpoint_chunks > 0 && done < counts.chunks) {
                store_checkpoint(p, read_item(chain.item()), chain.half(), done + 1, chain.S);
            }
        }
        store_item_state<Form::kFused>(p, read_item(chain.item()), chain.half(), chain.S);
    }
    chain.close();
}

} // namespace sm90
} // namespace gdn

#endif
