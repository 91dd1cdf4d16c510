/* The chain of K = 256: as in fused_chain.cuh a state warpgroup makes the outputs of its tile of V, and chunks follow each other
 * without overlap, which takes fewer registers than the other chains.
 *
 *     K S, Q S of a tile of K  |  of the next ones  |  R  ->  A' R  ->  decay S, scale Q S  |  P V', S += K^T V'
 *     ->  O to shared memory  |
 *
 * `|` are waits. The same sums in the same order as the other chains. */
#ifndef GDN_CUDA_SM90_PLAIN_CHAIN_CUH
#define GDN_CUDA_SM90_PLAIN_CHAIN_CUH

#include "item_state.cuh"
#include "state_chain.cuh"

namespace gdn
{
namespace sm90
{

template <typename T, Form kForm, typename D> class PlainChain
{
    using Stage = sm90::Stage<kForm, D>;
    using StateMap = sm90::StateMap<kForm, D>;
    static constexpr bool kOutput = kHasOutputs<kForm>;

  public:
    float S[D::kKTiles][32]; /* S^T, tiles of K */

    __device__ __forceinline__ PlainChain(uint32_t base, const Barriers &barriers)
        : my_(chain_lane<T, kForm, D>()), base_(base), barriers_{barriers}
    {
    }

    /* Where this warp keeps its item. */
    __device__ __forceinline__ uint32_t item() const
    {
        return base_ + StateMap::kItems + (4 * my_.group + my_.warp) * StateMap::kItemBytes;
    }

    __device__ __forceinline__ int v_tile() const
    {
        return read_item(item()).v_tile + my_.group;
    }

    /* At an item's beginning. */
    __device__ __forceinline__ void open() const
    {
    }

    /* Before a chunk that is shorter: cleans its tiles. Apart from chunk(), which has no registers for a loop. */
    __device__ __forceinline__ void clean(const StageCursor &cursor, int length) const
    {
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        my_.clear_rows(cursor.address<kForm, D>(base_), length);
    }

    /* Chunk `number` of the item, which is in a stage. */
    __device__ __forceinline__ void chunk(const gdn_sm90_prefill &p, const StageCursor &cursor, int number, int length)
    {
        const uint32_t stage = cursor.address<kForm, D>(base_);
        const uint32_t record = stage + Stage::kA;
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        float X[32]; /* (K S)^T, then V'^T */
        float O[32]; /* (Q S)^T, then O^T */
#pragma unroll
        for (int h = 0; h < D::kKTiles; ++h) {
            uint32_t state[4][4]; /* a tile of S^T in 16 bits: there are no registers for all of it */
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pack_operand<T>(state[i], S[h], i);
            }
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_rs<T, false>(X, state[i], wgmma_operand(stage + Stage::kK) + wgmma_offset(h * 8192 + i * 32),
                                   h + i > 0);
            }
            if constexpr (kOutput) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    wgmma_rs<T, false>(O, state[i], wgmma_operand(stage + Stage::kQ) + wgmma_offset(h * 8192 + i * 32),
                                       h + i > 0);
                }
            }
            wgmma_commit();
            wgmma_wait<0>();
        }
        uint32_t R[4][4]; /* R^T, then V'^T, as operands */
        my_.residual(R, X, my_.values(stage), record + GDN_SM90_RECORD_DECAY_K);
        if (length < GDN_SM90_CHUNK) {
            my_.mask_rows(R, length);
        }
        wgmma_fence();
        my_.multiply_matrix(X, R, record + GDN_SM90_RECORD_A, false);
        wgmma_commit();
        float2 factors[8];
        if constexpr (kOutput) {
            my_.load_factors(factors, record + GDN_SM90_RECORD_DECAY_Q);
        }
        const float end = load_shared_float(record + GDN_SM90_RECORD_END);
        if constexpr (kOutput) {
            my_.scale_tokens(O, factors);
        }
        my_.load_factors(factors, record + GDN_SM90_RECORD_DECAY_END);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
#pragma unroll
            for (int h = 0; h < D::kKTiles; ++h) {
                S[h][i] *= end;
            }
        }
        wgmma_wait<0>(); /* V' */
        uint32_t scaled[4][4];
        my_.scale_values(scaled, X, factors);
        if constexpr (kOutput) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pack_operand<T>(R[i], X, i);
            }
        }
        wgmma_fence();
        if constexpr (kOutput) {
            my_.multiply_matrix(O, R, record + GDN_SM90_RECORD_P, true);
            wgmma_commit();
        }
#pragma unroll
        for (int h = 0; h < D::kKTiles; ++h) {
            my_.update(S[h], scaled, stage, h);
        }
        wgmma_commit();
        if constexpr (kOutput) {
            announce_O(p, number, length);
            wgmma_wait<1>(); /* O */
            store_O(O);
        }
        wgmma_wait<0>(); /* S */
        arrive_empty(cursor);
    }

    /* Gives back a stage without a chunk. */
    __device__ __forceinline__ void release(const StageCursor &cursor)
    {
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        arrive_empty(cursor);
    }

    /* After the last item: tells the storing warp. */
    __device__ __forceinline__ void close()
    {
        if (!kOutput) {
            return;
        }
        wait_O();
        if (my_.warp == 0 && my_.lane == 0) {
            store_output(base_ + StateMap::kOutputs + 16 * my_.group, {0, 0, 0, -1});
        }
        __syncwarp();
        warp_arrive(barriers_.output(my_.group), my_.lane);
    }

  private:
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
    __device__ __forceinline__ void announce_O(const gdn_sm90_prefill &p, int number, int length)
    {
        wait_O();
        if (my_.warp == 0 && my_.lane == 0) {
            const Item mine = read_item(item());
            store_output(base_ + StateMap::kOutputs + 16 * my_.group,
                         {D::v_tiles(p) * mine.head + mine.v_tile + my_.group, mine.token + number * GDN_SM90_CHUNK,
                          mine.row, length});
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

    ChainLane<T, kForm, D> my_;
    uint32_t base_;
    Barriers barriers_;
    int tiles_ = 0; /* O tiles so far, in all items */
};

} // namespace sm90
} // namespace gdn

#endif
