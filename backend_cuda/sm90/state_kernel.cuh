/* Hopper prefill, second kernel: the state's way through a sequence's chunks, and the output.
 *
 * One chunk (letters of docs/algorithm.md; A' = A B and P come from the first kernel):
 *
 *     R  = V - Gamma K S          V' = A' R
 *     O  = scale Gamma Q S + P V'
 *     S  = exp(G_C) S + (diag(exp(G_C - G_i)) K)^T V'
 *
 * A block works on 64 columns of V of one (sequence, value head) at a time. The state warpgroup holds S^T (64 x 128) as
 * wgmma accumulators, and everything on its chain is transposed: rounded to 16 bits, S^T, R^T and V'^T are A operands as
 * they lie in registers, and K serves as B operand both ways round. The output warpgroup gets S and V' through shared
 * memory and never holds the chain up.
 *
 * Without outputs (state_only) the output warpgroup, warp 1 and their memory are left out.
 *
 *     warp 0        finds the block's items, loads chunks into a ring of three stages
 *     warp 1        stores O
 *     warps 4..7    state        chunk c:  V'(c) -> S += K^T V' | S K^T of c + 1 begins as soon as half of S is there
 *     warps 8..11   output       chunk c:  O = Gamma Q S + P V'
 *
 * docs/kernels/sm90.md has the chart, the register budgets, and why the order of the state warpgroup's steps is as it is:
 * no wgmma is in flight across a branch or a loop's back edge, or ptxas serialises them all.
 */
#ifndef GDN_CUDA_SM90_STATE_KERNEL_CUH
#define GDN_CUDA_SM90_STATE_KERNEL_CUH

#include "state_copy.cuh"
#include "state_memory.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kStateBarrier = 1; /* named barrier of the state warpgroup */

/* Registers a thread of each warpgroup; a block starts with an even share. Without outputs two blocks are on a
 * multiprocessor. */
template <bool kOutput> struct StateBlock {
    static constexpr int kThreads = kOutput ? 384 : 256;
    static constexpr int kPerMultiprocessor = kOutput ? 1 : 2;
    static constexpr int kCopyRegisters = kOutput ? 56 : 48;
    static constexpr int kStateRegisters = kOutput ? 240 : 208;
    static constexpr int kOutputRegisters = 152;
};
static_assert(56 + 240 + 152 <= 3 * 168 && 48 + 208 <= 2 * 128, "what the blocks started with");

/* Eight accumulators, columns 8 n.. and 8 n + 8.., as an A operand of 16 columns. */
template <typename T> __device__ __forceinline__ void pack_operand(uint32_t (&a)[4], const float (&x)[32], int i)
{
    a[0] = pack2<T>(x[8 * i], x[8 * i + 1]);
    a[1] = pack2<T>(x[8 * i + 2], x[8 * i + 3]);
    a[2] = pack2<T>(x[8 * i + 4], x[8 * i + 5]);
    a[3] = pack2<T>(x[8 * i + 6], x[8 * i + 7]);
}

/* The state warpgroup's registers and the steps of its chain. */
template <typename T, bool kOutput> class StateChain
{
    using Stage = sm90::Stage<kOutput>;
    using StateMap = sm90::StateMap<kOutput>;

  public:
    float S[2][32]; /* S^T, halves of K */

    __device__ __forceinline__ StateChain(uint32_t base, const Barriers &barriers)
        : base_(base), barriers_(barriers), warp_(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
          lane_(threadIdx.x % 32)
    {
    }

    /* Chunk `stage` up to V', from S alone. `length` rows of it are the sequence's. */
    __device__ __forceinline__ void start(const StageCursor &cursor, int length)
    {
        const uint32_t stage = cursor.address<kOutput>(base_);
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        if (length < GDN_SM90_CHUNK) {
            clear_rows(stage + Stage::kK, length);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[i], S[0], i);
            pack_operand<T>(state_[4 + i], S[1], i);
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            wgmma_rs<T, false>(V_, state_[i], wgmma_operand(stage + Stage::kK + i / 4 * 8192 + i % 4 * 32), i > 0);
        }
        wgmma_commit();
        if (kOutput) {
            store_operand();
        }
        float2 decay[8];
        load_row_factors(decay, stage + Stage::kDecayK);
        uint32_t v[4][4];
        load_values(v, stage);
        const float end = load_shared_float(stage + Stage::kEnd);
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[0][i] *= end;
            S[1][i] *= end;
        }
        multiply_A(stage, v, decay, length);
    }

    /* S of chunk `cursor`, and the next chunk up to V'. */
    __device__ __forceinline__ void step(const StageCursor &cursor, const StageCursor &following)
    {
        const uint32_t stage = cursor.address<kOutput>(base_), next = following.address<kOutput>(base_);
        update_state(stage);
        if (kOutput) {
            store_values();
        }
        mbarrier_wait(barriers_.full(following.stage), following.parity);
        const float end = load_shared_float(next + Stage::kEnd);
        wgmma_wait<1>(); /* the first half of S */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[i], S[0], i);
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(V_, state_[i], wgmma_operand(next + Stage::kK + i * 32), i > 0);
        }
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[0][i] *= end;
        }
        wgmma_wait<1>(); /* the second */
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pack_operand<T>(state_[4 + i], S[1], i);
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(V_, state_[4 + i], wgmma_operand(next + Stage::kK + 8192 + i * 32), true);
        }
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            S[1][i] *= end;
        }
        float2 decay[8];
        load_row_factors(decay, next + Stage::kDecayK);
        uint32_t v[4][4];
        load_values(v, next);
        if (kOutput) {
            store_operand();
        }
        release(cursor);
        wgmma_wait<0>();
        multiply_A(next, v, decay, GDN_SM90_CHUNK);
    }

    /* S of chunk `cursor`, the last one before something else. */
    __device__ __forceinline__ void finish(const StageCursor &cursor)
    {
        update_state(cursor.address<kOutput>(base_));
        if (kOutput) {
            store_values();
        }
        wgmma_wait<0>();
        release(cursor);
    }

    __device__ __forceinline__ void release(const StageCursor &cursor) const
    {
        if (lane_ == 0) {
            mbarrier_arrive(barriers_.empty(cursor.stage));
        }
    }

  private:
    /* Queues S += (diag(exp(G_C - G_i)) K)^T V', a half of K a group. */
    __device__ __forceinline__ void update_state(uint32_t stage)
    {
        uint32_t scaled[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float2 decay = to_end_[2 * i + e / 2];
                scaled[i][e] = pack2<T>(V_[8 * i + 2 * e] * decay.x, V_[8 * i + 2 * e + 1] * decay.y);
            }
        }
        wgmma_fence();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_rs<T, true>(S[half], scaled[i], wgmma_operand(stage + Stage::kK + half * 8192 + i * 2048), true);
            }
            wgmma_commit();
        }
    }

    /* V'^T to shared memory, and word to the output warpgroup: S of the same chunk is there, too. */
    __device__ __forceinline__ void store_values()
    {
        const int buffer = chunk_ & 1;
        if (chunk_ >= 2) {
            mbarrier_wait(barriers_.values_free(buffer), ((chunk_ >> 1) & 1) ^ 1);
        }
        const uint32_t tile = base_ + StateMap::kNewV + buffer * 8192;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t a[4];
            pack_operand<T>(a, V_, i);
            stmatrix_x4(tile + swizzled(operand_row(), 2 * i + lane_ / 16), a);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane_ == 0) {
            mbarrier_arrive(barriers_.values());
        }
        ++chunk_;
    }

    /* S^T in 16 bits to shared memory; `chunk_` chunks have had theirs there. */
    __device__ __forceinline__ void store_operand()
    {
        if (chunk_ > 0) {
            mbarrier_wait(barriers_.state_free(), (chunk_ - 1) & 1);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            stmatrix_x4(base_ + StateMap::kS + i / 4 * 8192 + swizzled(operand_row(), 2 * (i % 4) + lane_ / 16),
                        state_[i]);
        }
    }

    /* V' = A' (V - Gamma K S), where V_ is K S on entry. */
    __device__ __forceinline__ void multiply_A(uint32_t stage, const uint32_t (&v)[4][4], const float2 (&decay)[8],
                                               int length)
    {
        uint32_t R[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float2 gamma = decay[2 * i + e / 2];
                const float2 value = unpack2<T>(v[i][e]);
                float x = value.x - gamma.x * V_[8 * i + 2 * e];
                float y = value.y - gamma.y * V_[8 * i + 2 * e + 1];
                if (length < GDN_SM90_CHUNK) {
                    const int row = 16 * i + 8 * (e / 2) + 2 * (lane_ % 4);
                    x = row < length ? x : 0.0f;
                    y = row + 1 < length ? y : 0.0f;
                }
                R[i][e] = pack2<T>(x, y);
            }
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(V_, R[i], wgmma_operand(stage + Stage::kA + i * 32), i > 0);
        }
        wgmma_commit();
        load_row_factors(to_end_, stage + Stage::kDecayEnd);
        wgmma_wait<0>();
    }

    /* V^T as R's operand: tokens 16 i + 2t.. and + 8, columns 16 warp + g and + 8. */
    __device__ __forceinline__ void load_values(uint32_t (&v)[4][4], uint32_t stage) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            ldmatrix_x4_trans(v[i], stage + Stage::kV +
                                        swizzled(16 * i + lane_ / 16 * 8 + lane_ % 8, 2 * warp_ + lane_ / 8 % 2));
        }
    }

    /* Factors of tokens 8 n + 2t and + 1. */
    __device__ __forceinline__ void load_row_factors(float2 (&factors)[8], uint32_t address) const
    {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            factors[n] = load_shared_float2(address + 4 * (8 * n + 2 * (lane_ % 4)));
        }
    }

    /* Zeroes a K tile's rows from `length` on, which may be anything: they meet zeros in the update. */
    __device__ __forceinline__ void clear_rows(uint32_t tile, int length) const
    {
        const int thread = 32 * warp_ + lane_;
        for (int i = 8 * length + thread; i < 8 * GDN_SM90_CHUNK; i += 128) {
            store_shared_16(tile + 16 * i, make_uint4(0, 0, 0, 0));
            store_shared_16(tile + 8192 + 16 * i, make_uint4(0, 0, 0, 0));
        }
        fence_proxy_async();
        named_barrier(kStateBarrier, 128);
    }

    __device__ __forceinline__ int operand_row() const
    {
        return 16 * warp_ + lane_ / 8 % 2 * 8 + lane_ % 8;
    }

    float V_[32]; /* (K S)^T, then V'^T */
    uint32_t state_[8][4]; /* S^T in 16 bits */
    float2 to_end_[8]; /* exp(G_C - G_i) */
    uint32_t base_;
    Barriers barriers_;
    int warp_, lane_;
    int chunk_ = 0; /* chunks done so far, in all items */
};

/* Float32 states [slots, num_v_heads, V, K] of this library's own. */
__device__ __forceinline__ gdn_sm90_states own_states(const gdn_sm90_prefill &p, float *data)
{
    constexpr int64_t kHead = static_cast<int64_t>(GDN_SM90_DIM) * GDN_SM90_DIM;
    return {data, GDN_DTYPE_F32, 1, p.num_v_heads * kHead, kHead, GDN_SM90_DIM, 1};
}

/* This lane's part of identity^T: element (v, k) of half of it. */
__device__ __forceinline__ void set_identity(float (&S)[2][32], int half)
{
    const int lane = threadIdx.x % 32;
    const int v = half * GDN_SM90_HALF + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int k = 64 * (i / 32) + i % 32 / 4 * 8 + 2 * (lane % 4) + i % 2;
        S[i / 32][i % 32] = k == v + 8 * (i % 4 / 2) ? 1.0f : 0.0f;
    }
}

__device__ __forceinline__ void load_item_state(const gdn_sm90_prefill &p, const Item &item, float (&S)[2][32])
{
    const int v0 = item.half * GDN_SM90_HALF;
    gdn_sm90_states states = p.initial_state;
    int64_t slot = 0;
    bool there = true;
    switch (item.source) {
    case kPlaceCaller:
        there = states.data && (!p.has_initial_state || p.has_initial_state[item.seq]);
        if (there) {
            slot = p.read_slots ? load_index(p.read_slots, p.slots_dtype, item.seq) : item.seq;
        }
        break;
    case kPlaceCarry:
        states = own_states(p, const_cast<float *>(p.carry_in));
        break;
    case kPlaceF:
        states = own_states(p, p.segment_F);
        slot = item.source_entry;
        break;
    case kPlaceE:
        states = own_states(p, p.segment_E);
        slot = item.source_entry;
        break;
    case kPlaceIdentity:
        set_identity(S, item.half);
        return;
    default:
        there = false;
        break;
    }
    if (there) {
        load_state(S, states, state_base(states, slot, item.head, v0));
        return;
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        S[0][i] = 0.0f;
        S[1][i] = 0.0f;
    }
}

/* Before a cut sequence's first segment is run over: its last one may write the slot that this one read, in another block. */
__device__ __forceinline__ void keep_initial_state(const gdn_sm90_prefill &p, const Item &item, const float (&S)[2][32])
{
    const gdn_sm90_states states = own_states(p, p.segment_E);
    store_state(S, states, state_base(states, item.target_entry, item.head, item.half * GDN_SM90_HALF));
}

__device__ __forceinline__ void store_item_state(const gdn_sm90_prefill &p, const Item &item, const float (&S)[2][32])
{
    gdn_sm90_states states = p.final_state;
    int64_t slot = item.target_entry;
    switch (item.target) {
    case kPlaceCaller:
        slot = p.write_slots ? load_index(p.write_slots, p.slots_dtype, item.seq) : item.seq;
        break;
    case kPlaceCarry:
        states = own_states(p, p.carry_out);
        slot = 0;
        break;
    case kPlaceF:
        states = own_states(p, p.segment_F);
        break;
    case kPlaceE:
        states = own_states(p, p.segment_E);
        break;
    default:
        return;
    }
    if (states.data) {
        store_state(S, states, state_base(states, slot, item.head, item.half * GDN_SM90_HALF));
    }
}

template <typename T, bool kOutput>
__device__ __forceinline__ void advance_states(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    StateChain<T, kOutput> chain(base, barriers);
    StageCursor cursor;
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const Item item = load_item(cursor.address<kOutput>(base) + Stage<kOutput>::kItem);
        if (item.chunks < 0) {
            return;
        }
        load_item_state(p, item, chain.S);
        if (!kOutput && item.source == kPlaceCaller) {
            keep_initial_state(p, item, chain.S);
        }
        if (item.total() == 0) {
            chain.release(cursor);
            cursor.advance();
        }
        /* The full chunks, then a shorter last one, whose tiles must be cleaned first. */
        for (int part = 0; part < 2; ++part) {
            const int chunks = part == 0 ? item.chunks : (item.tail > 0);
            if (chunks > 0) {
                chain.start(cursor, part == 0 ? GDN_SM90_CHUNK : item.tail);
                for (int c = 1; c < chunks; ++c) {
                    StageCursor following = cursor;
                    following.advance();
                    chain.step(cursor, following);
                    cursor = following;
                }
                chain.finish(cursor);
                cursor.advance();
            }
        }
        store_item_state(p, item, chain.S);
    }
}

template <typename T>
__device__ __forceinline__ void compute_outputs(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
{
    using Stage = sm90::Stage<true>;
    using StateMap = sm90::StateMap<true>;
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
    const int g = lane / 4;
    StageCursor cursor;
    int chunk = 0; /* done so far, in all items */
    for (;;) {
        mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
        const Item item = load_item(cursor.address<true>(base) + Stage::kItem);
        const int total = item.total();
        if (total <= 0) {
            if (item.chunks < 0) {
                break;
            }
            if (lane == 0) {
                mbarrier_arrive(barriers.empty(cursor.stage));
            }
            cursor.advance();
        }
        for (int c = 0; c < total; ++c) {
            const int buffer = chunk & 1;
            const uint32_t stage = cursor.address<true>(base);
            const uint32_t values = base + StateMap::kNewV + buffer * 8192;
            const uint32_t tile = base + StateMap::kO + buffer * 8192;
            mbarrier_wait(barriers.full(cursor.stage), cursor.parity);
            const float decay_low = load_shared_float(stage + Stage::kDecayQ + 4 * (16 * warp + g));
            const float decay_high = load_shared_float(stage + Stage::kDecayQ + 4 * (16 * warp + g + 8));
            mbarrier_wait(barriers.values(), chunk & 1);
            float from_state[32], O[32];
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const uint32_t offset = i / 4 * 8192 + i % 4 * 32;
                wgmma_ss<T>(from_state, wgmma_operand(stage + Stage::kQ + offset),
                            wgmma_operand(base + StateMap::kS + offset), i > 0);
            }
            wgmma_commit();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                wgmma_ss<T>(O, wgmma_operand(stage + Stage::kP + i * 32), wgmma_operand(values + i * 32), i > 0);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (lane == 0) {
                mbarrier_arrive(barriers.state_free());
            }
            if (chunk >= 2) {
                mbarrier_wait(barriers.output_free(buffer), ((chunk >> 1) & 1) ^ 1);
            }
            wgmma_wait<0>();
            if (lane == 0) {
                mbarrier_arrive(barriers.values_free(buffer));
                mbarrier_arrive(barriers.empty(cursor.stage));
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                O[4 * n] += from_state[4 * n] * decay_low;
                O[4 * n + 1] += from_state[4 * n + 1] * decay_low;
                O[4 * n + 2] += from_state[4 * n + 2] * decay_high;
                O[4 * n + 3] += from_state[4 * n + 3] * decay_high;
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
            fence_proxy_async();
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(barriers.output(buffer));
            }
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
    if (lane == 0) {
        mbarrier_arrive(barriers.output(buffer));
    }
}

/* With kOutput the state_output kernel, else state_only. */
template <typename T, bool kOutput>
__global__ void __launch_bounds__(StateBlock<kOutput>::kThreads, StateBlock<kOutput>::kPerMultiprocessor)
    state_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
    using Block = StateBlock<kOutput>;
    const uint32_t base = shared_memory_base();
    const Barriers barriers = {base + StateMap<kOutput>::kBarriers};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        barriers.init(kOutput);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_release<Block::kCopyRegisters>();
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        if (warp == 0) {
            load_items<kOutput>(p, base, barriers);
        } else if (kOutput && warp == 1) {
            store_outputs(p, base, barriers);
        }
    } else if (warpgroup == 1) {
        registers_claim<Block::kStateRegisters>();
        advance_states<T, kOutput>(p, base, barriers);
    } else if constexpr (kOutput) {
        registers_release<Block::kOutputRegisters>();
        compute_outputs<T>(p, base, barriers);
    }
}

} // namespace sm90
} // namespace gdn

#endif
