/* The chain where a block has all of V, 128 columns, and K is 128: two state warpgroups, each with its half's state and outputs.
 * O, too, is computed transposed: S^T and V'^T are operands in registers for it as well, and nothing but O itself goes through
 * shared memory.
 *
 *     body of chunk c    A' R (c)  |  P V' (c - 1)  ->  S += K^T V' (c)  |  O (c - 1) is done  ->  Q S (c)
 *     turn to c + 1      K S (c + 1) as halves of S come in  |  O (c - 1) to shared memory  |  scale Q S (c)
 *
 * The same sums in the same order as HalfChain and its output warpgroup. */
#ifndef GDN_CUDA_SM90_WHOLE_CHAIN_CUH
#define GDN_CUDA_SM90_WHOLE_CHAIN_CUH

#include "state_chain.cuh"

namespace gdn
{
namespace sm90
{

template <typename T> class WholeChain
{
    static constexpr Form kForm = Form::kWhole;
    using Stage = sm90::Stage<kForm>;
    using StateMap = sm90::StateMap<kForm>;

  public:
    float S[2][32]; /* S^T, halves of K */

    __device__ __forceinline__ WholeChain(uint32_t base, const Barriers &barriers)
        : my_(chain_lane<T, kForm>()), base_(base), barriers_(barriers)
    {
    }

    /* Where this warp keeps its item. */
    __device__ __forceinline__ uint32_t item() const
    {
        return base_ + StateMap::kItems + (4 * my_.group + my_.warp) * StateMap::kItemBytes;
    }

    __device__ __forceinline__ int v_tile() const
    {
        return my_.group;
    }

    /* At an item's beginning. */
    __device__ __forceinline__ void open()
    {
        token_ = read_item(item()).token;
    }

    /* An item's first chunk, or one with fewer tokens, up to K S. */
    template <bool> __device__ __forceinline__ void start(const StageCursor &cursor, int length)
    {
        const uint32_t stage = cursor.address<kForm>(base_);
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        if (length < GDN_SM90_CHUNK) {
            my_.clear_rows(stage, length);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[i], S[0], i);
            pack_operand<T>(state_[4 + i], S[1], i);
        }
        wgmma_fence();
        my_.multiply_K(V_, state_, stage, 0);
        my_.multiply_K(V_, state_, stage, 1);
        wgmma_commit();
        my_.load_values(v_, stage);
        const float end = load_shared_float(stage + Stage::kEnd);
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[0][i] *= end;
            S[1][i] *= end;
        }
        /* There is no chunk before this one: its product is made of zeros and goes nowhere. */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                new_V_[i][e] = 0;
            }
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            O_[i] = 0.0f;
        }
        pending_ = false;
    }

    /* The rest of chunk `cursor`, and the next chunk up to K S. */
    template <bool> __device__ __forceinline__ void step(const StageCursor &cursor, const StageCursor &following)
    {
        const uint32_t stage = cursor.address<kForm>(base_), next = following.address<kForm>(base_);
        uint32_t done[4][4]; /* O of the chunk before */
        body(cursor, GDN_SM90_CHUNK, done);
        mbarrier_wait(barriers_.full(following.stage), following.parity);
        const float end = load_shared_float(next + Stage::kEnd);
        wgmma_wait<1>(); /* S, and half of Q S */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[i], S[0], i);
        }
        wgmma_fence();
        my_.multiply_K(V_, state_, next, 0);
        wgmma_commit();
        if (pending_) {
            store_O(done, GDN_SM90_CHUNK);
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[0][i] *= end;
        }
        wgmma_wait<1>(); /* the rest of Q S */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[4 + i], S[1], i);
        }
        wgmma_fence();
        my_.multiply_K(V_, state_, next, 1);
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[1][i] *= end;
        }
        scale_O(stage);
        my_.load_values(v_, next);
        wgmma_wait<0>();
        pending_ = true;
    }

    /* The rest of chunk `cursor`, the last one before something else, with its O. */
    template <bool> __device__ __forceinline__ void finish(const StageCursor &cursor, int length)
    {
        const uint32_t stage = cursor.address<kForm>(base_);
        uint32_t done[4][4];
        body(cursor, length, done);
        wgmma_wait<0>();
        if (pending_) {
            store_O(done, GDN_SM90_CHUNK);
        }
        scale_O(stage);
        wgmma_fence();
        my_.multiply_matrix(O_, new_V_, stage + Stage::kP, true);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(done[i], O_, i);
        }
        store_O(done, length);
        release(cursor);
    }

    __device__ __forceinline__ void release(const StageCursor &cursor) const
    {
        warp_arrive(barriers_.empty(cursor.stage), my_.lane);
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
    /* V' of a chunk, whose K S is there; queues its update of S, then, as two groups, its Q S. `done` gets O of the chunk
     * before, whose stage is given back. */
    __device__ __forceinline__ void body(const StageCursor &cursor, int length, uint32_t (&done)[4][4])
    {
        const uint32_t stage = cursor.address<kForm>(base_);
        const StageCursor before = pending_ ? cursor.before() : cursor;
        float2 decay[8];
        my_.load_factors(decay, stage + Stage::kDecayK);
        uint32_t R[4][4];
        my_.residual(R, V_, v_, decay, length);
        wgmma_fence();
        my_.multiply_matrix(V_, R, stage + Stage::kA, false);
        wgmma_commit();
        my_.multiply_matrix(O_, new_V_, before.address<kForm>(base_) + Stage::kP, true);
        wgmma_commit();
        float2 to_end[8];
        my_.load_factors(to_end, stage + Stage::kDecayEnd);
        wgmma_wait<1>(); /* V' */
        uint32_t scaled[4][4];
        my_.scale_values(scaled, V_, to_end);
        wgmma_fence();
        my_.update(S[0], scaled, stage, 0);
        my_.update(S[1], scaled, stage, 1);
        wgmma_commit();
        wgmma_wait<1>(); /* O of the chunk before */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(done[i], O_, i);
            pack_operand<T>(new_V_[i], V_, i);
        }
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_rs<T, false>(O_, state_[4 * h + i],
                                   wgmma_operand(stage + Stage::kQ) + wgmma_offset(h * 8192 + i * 32), h + i > 0);
            }
            wgmma_commit();
        }
        if (pending_) {
            release(before);
        }
    }

    /* Q S times scale exp(G_i), by tokens. */
    __device__ __forceinline__ void scale_O(uint32_t stage)
    {
        const uint32_t mine = stage + Stage::kDecayQ + 8 * (my_.lane % 4);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float2 decay = load_shared_float2(mine + 32 * n);
            O_[4 * n] *= decay.x;
            O_[4 * n + 1] *= decay.y;
            O_[4 * n + 2] *= decay.x;
            O_[4 * n + 3] *= decay.y;
        }
    }

    /* Waits until the O tile before has left. */
    __device__ __forceinline__ void wait_O()
    {
        if (tiles_ > 0) {
            mbarrier_wait(barriers_.output_free(my_.group), (tiles_ - 1) & 1);
        }
        ++tiles_;
    }

    /* O^T of the chunk at token_ to shared memory, and word to the storing warp. */
    __device__ __forceinline__ void store_O(const uint32_t (&O)[4][4], int length)
    {
        wait_O();
        const uint32_t tile = base_ + StateMap::kO + 8192 * my_.group;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            stmatrix_x4_trans(
                tile + swizzled(16 * i + my_.lane / 16 * 8 + my_.lane % 8, 2 * my_.warp + my_.lane / 8 % 2), O[i]);
        }
        if (my_.warp == 0 && my_.lane == 0) {
            const Item mine = read_item(item());
            store_output(base_ + StateMap::kOutputs + 16 * my_.group,
                         {2 * mine.head + my_.group, token_, mine.row, length});
        }
        token_ += GDN_SM90_CHUNK;
        __syncwarp();
        warp_arrive(barriers_.output(my_.group), my_.lane);
    }

    float V_[32]; /* (K S)^T, then V'^T */
    float O_[32]; /* (Q S)^T, then O^T */
    uint32_t state_[8][4]; /* S^T in 16 bits */
    uint32_t new_V_[4][4]; /* V'^T in 16 bits */
    uint32_t v_[4][4];
    ChainLane<T, kForm> my_;
    uint32_t base_;
    Barriers barriers_;
    bool pending_ = false; /* O of the chunk before is not out yet */
    int token_ = 0; /* of the next O tile */
    int tiles_ = 0; /* O tiles so far, in all items */
};

} // namespace sm90
} // namespace gdn

#endif
