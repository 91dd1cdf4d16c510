/* The chain that takes a state from chunk to chunk: what its forms share, and the form that has a tile of V to itself.
 *
 * A warpgroup holds S^T (64 columns of V x K) as wgmma accumulators, and everything is computed transposed: rounded to 16
 * bits, S^T, R^T and V'^T are A operands as they lie in registers, and K serves as B operand both ways round.
 *
 * The order of the steps is chosen so that no wgmma is in flight across a branch or a loop's back edge: ptxas would
 * serialise them all.
 */
#ifndef GDN_CUDA_SM90_STATE_CHAIN_CUH
#define GDN_CUDA_SM90_STATE_CHAIN_CUH

#include "state_map.cuh"

namespace gdn
{
namespace sm90
{

/* Eight accumulators, columns 8 n.. and 8 n + 8.., as an A operand of 16 columns. */
template <typename T> __device__ __forceinline__ void pack_operand(uint32_t (&a)[4], const float (&x)[32], int i)
{
    a[0] = pack2<T>(x[8 * i], x[8 * i + 1]);
    a[1] = pack2<T>(x[8 * i + 2], x[8 * i + 3]);
    a[2] = pack2<T>(x[8 * i + 4], x[8 * i + 5]);
    a[3] = pack2<T>(x[8 * i + 6], x[8 * i + 7]);
}

/* One warpgroup's share of a chunk, 64 columns of V. */
template <typename T, Form kForm, typename D = Usual> struct ChainLane {
    using Stage = sm90::Stage<kForm, D>;

    int group; /* which of the block's state warpgroups: the tile of V, where the block has two */
    int warp, lane; /* in the warpgroup */

    /* Adds K S (transposed) for tile h of K from the state's operands 4 h.. */
    __device__ __forceinline__ void multiply_K(float (&x)[32], const uint32_t (&state)[4 * D::kKTiles][4],
                                               uint32_t stage, int h) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(x, state[4 * h + i], wgmma_operand(stage + Stage::kK) + wgmma_offset(h * 8192 + i * 32),
                               h + i > 0);
        }
    }

    /* R = V - Gamma K S as an operand, where x is K S; rows from `length` on are zeros. */
    __device__ __forceinline__ void residual(uint32_t (&R)[4][4], const float (&x)[32], const uint32_t (&v)[4][4],
                                             const float2 (&decay)[8], int length) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float2 gamma = decay[2 * i + e / 2];
                const float2 value = unpack2<T>(v[i][e]);
                float a = value.x - gamma.x * x[8 * i + 2 * e];
                float b = value.y - gamma.y * x[8 * i + 2 * e + 1];
                if (length < GDN_SM90_CHUNK) {
                    const int row = 16 * i + 8 * (e / 2) + 2 * (lane % 4);
                    a = row < length ? a : 0.0f;
                    b = row + 1 < length ? b : 0.0f;
                }
                R[i][e] = pack2<T>(a, b);
            }
        }
    }

    /* The same without zeros, for chains of few registers: V and the factors are loaded here, by halves. */
    __device__ __forceinline__ void residual(uint32_t (&R)[4][4], const float (&x)[32], uint32_t values,
                                             uint32_t factors) const
    {
        const uint32_t mine = factors + 8 * (lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t v[2][4];
            ldmatrix_x4_trans(v[0], values + 4096 * half);
            ldmatrix_x4_trans(v[1], values + 4096 * half + 2048);
            float2 decay[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                decay[n] = load_shared_float2(mine + 128 * half + 32 * n);
            }
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const float2 gamma = decay[2 * (i % 2) + e / 2];
                    const float2 value = unpack2<T>(v[i % 2][e]);
                    R[i][e] = pack2<T>(value.x - gamma.x * x[8 * i + 2 * e], value.y - gamma.y * x[8 * i + 2 * e + 1]);
                }
            }
        }
    }

    /* Zeroes rows of R from `length` on. */
    __device__ __forceinline__ void mask_rows(uint32_t (&R)[4][4], int length) const
    {
        const int first = 2 * (opaque(lane) % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = 16 * i + 8 * (e / 2) + first;
                R[i][e] = row + 1 < length ? R[i][e] : row < length ? R[i][e] & 0xffffu : 0u;
            }
        }
    }

    /* Times a factor a token. */
    static __device__ __forceinline__ void scale_tokens(float (&x)[32], const float2 (&factors)[8])
    {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            x[4 * n] *= factors[n].x;
            x[4 * n + 1] *= factors[n].y;
            x[4 * n + 2] *= factors[n].x;
            x[4 * n + 3] *= factors[n].y;
        }
    }

    /* x (+)= (M R)^T for a 64 x 64 matrix M in shared memory and R^T as an operand. */
    __device__ __forceinline__ void multiply_matrix(float (&x)[32], const uint32_t (&R)[4][4], uint32_t matrix,
                                                    bool add) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(x, R[i], wgmma_operand(matrix) + wgmma_offset(i * 32), add || i > 0);
        }
    }

    /* x = (M R)^T for a lower triangular M: its rows before 32 meet half of R. */
    __device__ __forceinline__ void multiply_triangle(float (&x)[2][16], const uint32_t (&R)[4][4],
                                                      uint32_t matrix) const
    {
        const uint32_t operand = wgmma_operand(matrix);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 2 + 2 * half; ++i) {
                wgmma_rs<T>(x[half], R[i], operand + wgmma_offset(half * 32 * 128 + i * 32), i > 0);
            }
        }
    }

    /* V', scaled by exp(G_C - G_i), as an operand of the update. */
    __device__ __forceinline__ void scale_values(uint32_t (&scaled)[4][4], const float (&x)[32],
                                                 const float2 (&to_end)[8]) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float2 decay = to_end[2 * i + e / 2];
                scaled[i][e] = pack2<T>(x[8 * i + 2 * e] * decay.x, x[8 * i + 2 * e + 1] * decay.y);
            }
        }
    }

    /* S += (diag(exp(G_C - G_i)) K)^T V' of tile h of K. */
    __device__ __forceinline__ void update(float (&S)[32], const uint32_t (&scaled)[4][4], uint32_t stage, int h) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, true>(S, scaled[i],
                              wgmma_operand_transposed(stage + Stage::kK) + wgmma_offset(h * 8192 + i * 2048), true);
        }
    }

    /* Where this lane reads V^T as an operand of tokens 0..15; those of 16 tokens on are 2048 bytes further. */
    __device__ __forceinline__ uint32_t values(uint32_t stage) const
    {
        const uint32_t tile = stage + Stage::kV + (kVTiles<kForm> == 2 ? group * 8192 : 0);
        return tile + swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
    }

    /* V^T as an operand: tokens 16 i + 2t.. and + 8, columns 16 warp + g and + 8. */
    __device__ __forceinline__ void load_values(uint32_t (&v)[4][4], uint32_t stage) const
    {
        const uint32_t mine = values(stage);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            ldmatrix_x4_trans(v[i], mine + 2048 * i);
        }
    }

    /* Factors of tokens 8 n + 2t and + 1. */
    __device__ __forceinline__ void load_factors(float2 (&factors)[8], uint32_t address) const
    {
        const uint32_t mine = address + 8 * (lane % 4); /* one address, to which constants are added */
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            factors[n] = load_shared_float2(mine + 32 * n);
        }
    }

    /* Zeroes the K tile's rows from `length` on, which may be anything: they meet zeros in the update. Every state
     * warpgroup of the block writes the same zeros. */
    __device__ __forceinline__ void clear_rows(uint32_t stage, int length) const
    {
        for (int i = 8 * length + 32 * warp + lane; i < 8 * GDN_SM90_CHUNK; i += 128) {
#pragma unroll
            for (int h = 0; h < D::kKTiles; ++h) {
                store_shared_16(stage + Stage::kK + h * Stage::kKPitch + 16 * i, make_uint4(0, 0, 0, 0));
            }
        }
        fence_proxy_async();
        barrier_sync(1 + group, 128);
    }
};

template <typename T, Form kForm, typename D = Usual> __device__ __forceinline__ ChainLane<T, kForm, D> chain_lane()
{
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    return {warp / 4 - 1, warp % 4, static_cast<int>(threadIdx.x % 32)};
}

/* A tile of V. The outputs of its chunks are made from the operands that it has in registers anyway: Q S is queued behind K S and is
 * done while R is made, P V' behind the update of S. P comes from the score warpgroup. Chunks that are not loud have no outputs. */
template <typename T, Form kForm, typename D> class HalfChain
{
    using Stage = sm90::Stage<kForm, D>;
    using StateMap = sm90::StateMap<kForm, D>;
    static constexpr int kKTiles = D::kKTiles;
    static constexpr bool kOutput = kHasOutputs<kForm>;

  public:
    float S[kKTiles][32]; /* S^T, tiles of K */

    __device__ __forceinline__ HalfChain(uint32_t base, const Barriers &barriers)
        : my_(chain_lane<T, kForm, D>()), base_(base), barriers_(barriers)
    {
    }

    /* Where this warp keeps its item. */
    __device__ __forceinline__ uint32_t item() const
    {
        return base_ + StateMap::kItems + my_.warp * StateMap::kItemBytes;
    }

    __device__ __forceinline__ int v_tile() const
    {
        return read_item(item()).v_tile;
    }

    /* At an item's beginning. */
    __device__ __forceinline__ void open() const
    {
    }

    /* An item's first chunk, or one with fewer tokens, up to V', from S alone. */
    template <bool kLoud> __device__ __forceinline__ void start(const StageCursor &cursor, int length)
    {
        const uint32_t stage = cursor.address<kForm, D>(base_);
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        if (length < GDN_SM90_CHUNK) {
            my_.clear_rows(stage, length);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int h = 0; h < kKTiles; ++h) {
                pack_operand<T>(state_[4 * h + i], S[h], i);
            }
        }
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < kKTiles; ++h) {
            my_.multiply_K(V_, state_, stage, h);
        }
        wgmma_commit();
        if (kLoud) {
            multiply_Q(stage);
        }
        float2 decay[8];
        my_.load_factors(decay, stage + Stage::kDecayK);
        uint32_t v[4][4];
        my_.load_values(v, stage);
        const float end = load_shared_float(stage + Stage::kEnd);
        wgmma_wait<kLoud>();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
#pragma unroll
            for (int h = 0; h < kKTiles; ++h) {
                S[h][i] *= end;
            }
        }
        multiply_A<kLoud>(stage, v, decay, length, false);
    }

    /* S of chunk `cursor`, and the next chunk up to V'. */
    template <bool kLoud> __device__ __forceinline__ void step(const StageCursor &cursor, const StageCursor &following)
    {
        const uint32_t stage = cursor.address<kForm, D>(base_), next = following.address<kForm, D>(base_);
        update_state<kLoud>(stage);
        mbarrier_wait(barriers_.full(following.stage), following.parity);
        const float end = load_shared_float(next + Stage::kEnd);
#pragma unroll
        for (int h = 0; h < kKTiles; ++h) {
            wgmma_wait<kKTiles - 1 + kLoud>(); /* tile h of S */
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pack_operand<T>(state_[4 * h + i], S[h], i);
            }
            wgmma_fence();
            my_.multiply_K(V_, state_, next, h);
            wgmma_commit();
            if (h < kKTiles - 1) {
#pragma unroll
                for (int i = 0; i < 32; ++i) {
                    S[h][i] *= end;
                }
            }
        }
        float2 decay[8];
        my_.load_factors(decay, next + Stage::kDecayK);
        uint32_t v[4][4];
        my_.load_values(v, next);
        if (kLoud) {
            wgmma_wait<kKTiles>(); /* O */
            uint32_t o[4][4];
            pack_output(o);
            wgmma_fence();
            multiply_Q(next);
            store_output_tile(o);
        }
        release(cursor);
        wgmma_wait<kLoud>();
        multiply_A<kLoud>(next, v, decay, GDN_SM90_CHUNK, true);
    }

    /* S of chunk `cursor`, the last one before something else; `length` rows of it are the sequence's. */
    template <bool kLoud> __device__ __forceinline__ void finish(const StageCursor &cursor, int)
    {
        update_state<kLoud>(cursor.address<kForm, D>(base_));
        wgmma_wait<0>();
        if (kLoud) {
            uint32_t o[4][4];
            pack_output(o);
            store_output_tile(o);
            free_scores();
        }
        release(cursor);
    }

    __device__ __forceinline__ void release(const StageCursor &cursor) const
    {
        warp_arrive(barriers_.empty(cursor.stage), my_.lane);
    }

    /* After the last item: tells the storing warp, whose last word the score warpgroup has written. */
    __device__ __forceinline__ void close() const
    {
        if (!kOutput) {
            return;
        }
        const int buffer = chunk_ & 1;
        wait_O();
        mbarrier_wait(barriers_.scores(buffer), chunk_ >> 1 & 1);
        __syncwarp();
        warp_arrive(barriers_.output(buffer), my_.lane);
    }

  private:
    /* Queues the update of S, a tile of K a group, and then P V', whose operand is packed meanwhile. */
    template <bool kLoud> __device__ __forceinline__ void update_state(uint32_t stage)
    {
        uint32_t scaled[4][4];
        my_.scale_values(scaled, V_, to_end_);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < kKTiles; ++h) {
            my_.update(S[h], scaled, stage, h);
            wgmma_commit();
        }
        if (kLoud) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pack_operand<T>(values_[i], V_, i);
            }
            mbarrier_wait(barriers_.scores(chunk_ & 1), chunk_ >> 1 & 1);
            wgmma_fence();
            my_.multiply_matrix(O_, values_, base_ + StateMap::kP + (chunk_ & 1) * 8192, true);
            wgmma_commit();
        }
    }

    /* Queues Q S (transposed). */
    __device__ __forceinline__ void multiply_Q(uint32_t stage)
    {
#pragma unroll
        for (int i = 0; i < 4 * kKTiles; ++i) {
            wgmma_rs<T, false>(O_, state_[i],
                               wgmma_operand(stage + Stage::kQ) + wgmma_offset(i / 4 * 8192 + i % 4 * 32), i > 0);
        }
        wgmma_commit();
    }

    /* V' = A' (V - Gamma K S), where V_ is K S on entry; meanwhile Q S is scaled and, of a chunk that follows another, the last tile of
     * S, which is not yet. */
    template <bool kLoud>
    __device__ __forceinline__ void multiply_A(uint32_t stage, const uint32_t (&v)[4][4], const float2 (&decay)[8],
                                               int length, bool follows)
    {
        uint32_t R[4][4];
        my_.residual(R, V_, v, decay, length);
        wgmma_fence();
        float x[2][16];
        my_.multiply_triangle(x, R, stage + Stage::kA);
        wgmma_commit();
        if (kLoud && follows) {
            free_scores();
        }
        float2 factors[8];
        if (kLoud) {
            my_.load_factors(factors, stage + Stage::kDecayQ);
        }
        my_.load_factors(to_end_, stage + Stage::kDecayEnd);
        if (follows) {
            const float end = load_shared_float(stage + Stage::kEnd);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                S[kKTiles - 1][i] *= end;
            }
        }
        if (kLoud) {
            wgmma_wait<1>(); /* Q S */
            my_.scale_tokens(O_, factors);
        }
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            V_[i] = x[i / 16][i % 16];
        }
    }

    __device__ __forceinline__ void pack_output(uint32_t (&o)[4][4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(o[i], O_, i);
        }
    }

    /* O^T to shared memory, and word to the storing warp. */
    __device__ __forceinline__ void store_output_tile(const uint32_t (&o)[4][4])
    {
        const int buffer = chunk_ & 1;
        wait_O();
        const uint32_t tile = base_ + StateMap::kO + 8192 * buffer;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            stmatrix_x4_trans(
                tile + swizzled(16 * i + my_.lane / 16 * 8 + my_.lane % 8, 2 * my_.warp + my_.lane / 8 % 2), o[i]);
        }
        __syncwarp();
        warp_arrive(barriers_.output(buffer), my_.lane);
        ++chunk_;
    }

    /* Gives back P of the chunk whose O has been stored last, which lets the score warpgroup begin another. */
    __device__ __forceinline__ void free_scores() const
    {
        warp_arrive(barriers_.scores_free(~chunk_ & 1), my_.lane);
    }

    /* Waits until the next buffer of O has left. */
    __device__ __forceinline__ void wait_O() const
    {
        if (chunk_ >= 2) {
            mbarrier_wait(barriers_.output_free(chunk_ & 1), ((chunk_ >> 1) & 1) ^ 1);
        }
    }

    float V_[32]; /* (K S)^T, then V'^T */
    float O_[32]; /* (Q S)^T, then O^T */
    uint32_t state_[4 * kKTiles][4]; /* S^T in 16 bits */
    uint32_t values_[4][4]; /* V'^T in 16 bits */
    float2 to_end_[8]; /* exp(G_C - G_i) */
    ChainLane<T, kForm, D> my_;
    uint32_t base_;
    Barriers barriers_;
    int chunk_ = 0; /* with outputs, done so far in all items */
};

} // namespace sm90
} // namespace gdn

#endif
