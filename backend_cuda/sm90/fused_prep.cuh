/* The prep warpgroup of the fused kernel: the record of every chunk of the block's items, a chunk or two ahead of the
 * states, in shared memory. The steps, and so the bits, are prep_kernel.cuh's; a chunk is a job of one value head.
 *
 *     warpgroup             rows' factors
 *     --- barrier; wait for the record before the last to be free
 *     warp w                row block w of L, block column w of P; decay factors
 *     warp w                the inverse of L's diagonal block w
 *     --- barrier
 *     warp w                block column w of A'; word to the states
 *
 * Between those steps a quarter each of K K^T and K Q^T of the next chunk, one product, is queued: all at once, they would hold
 * the warps up until the tensor cores, which the states keep busy, have taken the last of them. Q K^T is made transposed, so
 * that K is read once for both, and a warp's blocks of P are those below its diagonal one, where its blocks of L are left of it.
 *
 * Gates are fused_gates.cuh's. Row factors have two buffers, so that two barriers a chunk are enough.
 */
#ifndef GDN_CUDA_SM90_FUSED_PREP_CUH
#define GDN_CUDA_SM90_FUSED_PREP_CUH

#include "fused_map.cuh"
#include "prep_head.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kPrepBarrier = 3; /* a named barrier; those before it are the state warpgroups' */

constexpr int kGramSteps = Usual::kK / 16;

/* One warp: row block `warp` of -L and block column `warp` of P to shared memory, diagonal blocks of -L transposed. Gram are
 * K K^T and K Q^T, rows of K's block `warp`: so a warp has as many blocks of both together as any other. */
template <typename T, typename Blocks>
__device__ __forceinline__ void store_L_and_P(const float (&kk)[32], const float (&kq)[32], uint32_t base,
                                              uint32_t record, uint32_t gates, int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    const uint32_t row_gates = gates + 4 * (16 * warp + g), column_gates = gates + 8 * t;
    /* P is stored transposed: this lane's row of block column `warp`. */
    const uint32_t out_P = record + GDN_SM90_RECORD_P + swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
    float row_L[2], tail_P[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        row_L[e] = -HeadGates::beta<T>(gates, 16 * warp + g + 8 * e) *
                   exp2_approx(load_shared_float(row_gates + HeadGates::kInBlock + 32 * e));
        tail_P[e] = load_shared_float(row_gates + HeadGates::kTail + 32 * e);
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
        if (b < kBlocks - 1 && b < warp) { /* L_(warp, b) */
            const float between = load_shared_float(gates + HeadGates::kBetween + 16 * warp + 4 * b);
            float x[2][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float2 tail = load_shared_float2(column_gates + HeadGates::kTail + 64 * b + 32 * n);
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    x[n][c] = row_L[c / 2] * between * (c % 2 ? tail.y : tail.x) * kk[4 * (2 * b + n) + c];
                }
            }
            Blocks::store(lane, base + PrepMap::kLower + (warp * (warp - 1) / 2 + b) * Blocks::kBytes, x);
        }
        if (b > 0 && b > warp) { /* P_(b, warp)^T */
            const float between = load_shared_float(gates + HeadGates::kBetween + 16 * b + 4 * warp);
            uint32_t r[4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float2 in_block = load_shared_float2(column_gates + HeadGates::kInBlock + 64 * b + 32 * n);
                const float decay[2] = {exp2_approx(in_block.x) * between, exp2_approx(in_block.y) * between};
                float x[4];
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    x[c] = decay[c % 2] * tail_P[c / 2] * kq[4 * (2 * b + n) + c];
                }
                r[2 * n] = pack2<T>(x[0], x[1]);
                r[2 * n + 1] = pack2<T>(x[2], x[3]);
            }
            stmatrix_x4_trans(out_P + 2048 * b, r);
        }
    }
    /* The diagonal blocks, both transposed: row j, column i. Of 8 x 8 quarters the lower left is zero, which is not read of -L;
     * nor is the rest of -L where i <= j, which may be anything. */
    const int mine =
        threadIdx.x / 32 % 4; /* `warp`, but not known to be uniform: predicates made of that are made for each use */
    float k[8], q[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        k[e] = mine < 2 ? (mine < 1 ? kk[e] : kk[8 + e]) : mine < 3 ? kk[16 + e] : kk[24 + e];
        q[e] = mine < 2 ? (mine < 1 ? kq[e] : kq[8 + e]) : mine < 3 ? kq[16 + e] : kq[24 + e];
    }
    const uint32_t out_L = base + PrepMap::kDiagonal + warp * (16 * PrepMap::kDiagonalStride * 4) +
                           4 * (g * PrepMap::kDiagonalStride + 2 * t);
    const float column[2] = {load_shared_float(row_gates + HeadGates::kColumn),
                             load_shared_float(row_gates + HeadGates::kColumn + 32)};
    uint32_t r[4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 in_block = load_shared_float2(column_gates + HeadGates::kInBlock + 64 * warp + 32 * n);
        const float2 minus_beta =
            unpack2<T>(0x80008000u ^ load_shared_u32(gates + HeadGates::kBeta + 32 * warp + 16 * n + 4 * t));
#pragma unroll
        for (int m = 0; m <= n; ++m) {
            float L[2], P[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const float D = exp2_approx((c ? in_block.y : in_block.x) - column[m]);
                L[c] = (c ? minus_beta.y : minus_beta.x) * D * k[4 * n + 2 * m + c];
                P[c] = m < n || 2 * t + c >= g ? D * q[4 * n + 2 * m + c] : 0.0f;
            }
            store_shared_float2(out_L + 4 * 8 * PrepMap::kDiagonalStride * m + 32 * n, L[0], L[1]);
            r[2 * n + m] = pack2<T>(P[0], P[1]);
        }
    }
    stmatrix_x4_trans(out_P + 2048 * warp, r);
}

template <typename T> class FusedPrep
{
    static constexpr Form kForm = Form::kFused;
    using Stage = sm90::Stage<kForm>;
    using Map = StateMap<kForm>;

  public:
    __device__ __forceinline__ FusedPrep(const gdn_sm90_prefill &p, uint32_t base, const FusedBarriers &barriers)
        : p_(p), base_(base), barriers_(barriers), warp_(__shfl_sync(0xffffffffu, threadIdx.x / 32, 0) % 4)
    {
    }

    __device__ __forceinline__ void run()
    {
        clear();
        barrier_sync(kPrepBarrier, kPrepThreads); /* other threads store these factors */
        compute_grams(cursor_);
        for (;;) {
            const uint32_t header = stage_item(base_, cursor_);
            const ItemCounts counts = read_counts(header);
            const int total = counts.total();
            if (total < 0) {
                break;
            }
            if (total == 0) {
                wait_free();
                hand_over();
                compute_grams(cursor_);
            }
#pragma unroll 1
            for (int left = total; left > 0; --left) {
                chunk(left > 1 || counts.tail == 0 ? kRows : counts.tail);
                hand_over();
            }
        }
    }

  private:
    /* What is never written again: blocks above the diagonal of A' and P are zeros, and so are factors if nothing is asked. */
    __device__ __forceinline__ void clear() const
    {
        const uint32_t thread = threadIdx.x % kPrepThreads;
        for (uint32_t at = 16 * thread; at < kRecordBuffers * GDN_SM90_RECORD_BYTES_WITH_P; at += 16 * kPrepThreads) {
            store_shared_16(base_ + Map::kRecords + at, make_uint4(0, 0, 0, 0));
        }
        const uint32_t factors = factors_of(thread / kRows) + 4 * (thread % kRows);
        store_shared_float(factors + PrepMap::kKFactor, 1.0f);
        store_shared_float(factors + PrepMap::kQFactor, p_.scale);
    }

    /* As if PrepMap's block lay there; of a chunk with even or odd number. */
    __device__ __forceinline__ uint32_t factors_of(int parity) const
    {
        return base_ + Map::kFactors + parity * Map::kFactorsBytes - PrepMap::kKFactor;
    }

    /* Begins K K^T and K Q^T of the chunk in a stage, once it is there; without a chunk, of what lies there. Gives the stage. */
    __device__ __forceinline__ uint32_t open_grams(const StageCursor &cursor)
    {
        const uint32_t stage = __shfl_sync(0xffffffffu, cursor.address<kForm>(base_), 0); /* for uniform registers */
        mbarrier_wait(barriers_.full(cursor.stage), cursor.parity);
        if (p_.qk_norm != GDN_QK_NORM_NONE) {
            square_rows<T, Usual::kK, Stage::kKPitch>(q_square_, stage + Stage::kQ, warp_,
                                                      threadIdx.x % 32); /* there are no registers for it later */
        }
        wgmma_fence();
        return stage;
    }

    /* Queues a quarter of them, 0..3. */
    template <int kQuarter> __device__ __forceinline__ void queue_grams(uint32_t stage)
    {
        const uint32_t tiles = wgmma_operand(stage + Stage::kK); /* of K, and of K and Q */
#pragma unroll
        for (int step = kQuarter * kGramSteps / 4; step < (kQuarter + 1) * kGramSteps / 4; ++step) {
            const uint32_t offset = wgmma_offset(step / 4 * Stage::kKPitch + step % 4 * 32);
            wgmma_ss<T>(grams_, tiles + offset, tiles + offset, step > 0);
        }
        if (kQuarter == 3) {
            wgmma_commit();
        }
    }

    /* All of them, done. */
    __device__ __forceinline__ void compute_grams(const StageCursor &cursor)
    {
        const uint32_t stage = open_grams(cursor);
        queue_grams<0>(stage);
        queue_grams<1>(stage);
        queue_grams<2>(stage);
        queue_grams<3>(stage);
        wgmma_wait<0>();
    }

    /* The record of the chunk of this stage use, and the next one's products. */
    __device__ __forceinline__ void chunk(int length)
    {
        const uint32_t gates = gates_of_stage(base_, cursor_.stage);
        const uint32_t factors = factors_of(uses_ & 1);
        const int lane = opaque(threadIdx.x % 32);
        if (p_.qk_norm != GDN_QK_NORM_NONE) {
            store_row_factors(p_, p_.qk_norm, length, factors, warp_, lane, grams_[0], q_square_);
            barrier_sync(kPrepBarrier, kPrepThreads);
            scale_gram(grams_[0], factors, factors + PrepMap::kKFactor, warp_, lane);
            scale_gram(grams_[1], factors + PrepMap::kQFactor - PrepMap::kKFactor, factors + PrepMap::kKFactor, warp_,
                       lane); /* columns are rows of q */
        } else {
            const int g = lane / 4;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = 16 * warp_ + g + 8 * e;
                const float k_square = diagonal_entry(grams_[0], warp_, g, e);
                if (lane % 4 == g / 2) {
                    store_shared_float(factors + PrepMap::kKSquare + 4 * i, i < length ? k_square : 0.0f);
                }
            }
            barrier_sync(kPrepBarrier, kPrepThreads);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                grams_[1][i] *= p_.scale;
            }
        }
        if (length < kRows) {
            mask_gram(grams_[0], length, warp_, lane);
            mask_gram(grams_[1], length, warp_, lane);
        }
        wait_free();
        /* Equal in all lanes; the shuffle lets the compiler know. */
        if (__shfl_sync(0xffffffffu, static_cast<int>(fits_half<T>(factors, gates, lane)), 0) != 0) {
            finish<HalfBlocks>(factors, gates, lane);
        } else {
            finish<Tf32Blocks>(factors, gates, lane);
        }
    }

    template <typename Blocks> __device__ __forceinline__ void finish(uint32_t factors, uint32_t gates, int lane)
    {
        constexpr bool kEarly = std::is_same<Blocks, HalfBlocks>::value; /* the others leave no registers for it */
        const uint32_t scratch = base_ + Map::kScratch - PrepMap::kDiagonal; /* as if PrepMap's block lay there */
        const uint32_t record = base_ + Map::kRecords + (uses_ & 1) * GDN_SM90_RECORD_BYTES_WITH_P;
        StageCursor following = cursor_;
        following.advance();
        store_L_and_P<T, Blocks>(grams_[0], grams_[1], scratch, record, gates, warp_, lane);
        __syncwarp();
        uint32_t stage = 0;
        if (kEarly) {
            stage = open_grams(following);
            queue_grams<0>(stage);
        }
        store_decays(factors, record, gates,
                     16 * warp_ + lane % 16); /* twice, since a branch would part the products */
        if (kEarly) {
            queue_grams<1>(stage);
        }
        invert_diagonal<Blocks>(scratch, warp_, lane);
        if (kEarly) {
            queue_grams<2>(stage);
            queue_grams<3>(stage); /* behind the barrier it would hold up the warp with most to merge */
        }
        barrier_sync(kPrepBarrier, kPrepThreads);
        merge_column<T, Blocks>(scratch, record, gates, warp_, lane);
        if (kEarly) {
            wgmma_wait<0>();
        } else {
            compute_grams(following);
        }
    }

    /* Waits until the record before the last has been used, which is when its stage has. */
    __device__ __forceinline__ void wait_free() const
    {
        if (uses_ >= kRecordBuffers) {
            const bool last =
                cursor_.stage == kStages - 1; /* use uses_ - 2 was of stage 0 then, else of the next one */
            mbarrier_wait(barriers_.empty(last ? 0 : cursor_.stage + 1), last ? cursor_.parity : cursor_.parity ^ 1);
        }
    }

    /* The record of this stage use is there, or none is needed; on to the next. */
    __device__ __forceinline__ void hand_over()
    {
        fence_proxy_async();
        __syncwarp();
        warp_arrive(barriers_.record(uses_ & 1), threadIdx.x % 32);
        ++uses_;
        cursor_.advance();
    }

    const gdn_sm90_prefill &p_;
    float grams_[2][32]; /* K K^T and K Q^T of the chunk of this stage use */
    float q_square_[2]; /* of rows of q that this lane holds, with normalisation */
    uint32_t base_;
    FusedBarriers barriers_;
    int warp_;
    StageCursor cursor_;
    uint32_t uses_ = 0; /* of stages so far */
};

} // namespace sm90
} // namespace gdn

#endif
