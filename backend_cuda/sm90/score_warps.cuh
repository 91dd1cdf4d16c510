/* The score warpgroup of the half form and of pieces: P = scale D o Q K^T of every chunk with outputs.
 *
 *     wait for the stage and a buffer  |  Q K^T  |  scale, decay, P to shared memory, give the stage back, signal
 *
 * P of a chunk is begun when A' R of the chunk before is queued: the state warpgroup then has nothing for the tensor cores until V'
 * is there, and it is in time, since P is wanted at V' of its own chunk. */
#ifndef GDN_CUDA_SM90_SCORE_WARPS_CUH
#define GDN_CUDA_SM90_SCORE_WARPS_CUH

#include "prep_head.cuh"
#include "state_map.cuh"

namespace gdn
{
namespace sm90
{

template <typename T, Form kForm, typename D> class ScoreWarps
{
    using Stage = sm90::Stage<kForm, D>;
    using StateMap = sm90::StateMap<kForm, D>;

  public:
    __device__ __forceinline__ ScoreWarps(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
        : p_(p), base_(base), barriers_(barriers), warp_(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
          lane_(threadIdx.x % 32)
    {
    }

    /* The block's items, one after the other. */
    __device__ __forceinline__ void run()
    {
        clear();
        for (;;) {
            mbarrier_wait(barriers_.full(cursor_.stage), cursor_.parity);
            const uint32_t header = stage() + Stage::kItem;
            const Item item = read_item(header);
            const ItemCounts counts = read_counts(header);
            const int total = counts.total();
            if (total <= 0) {
                if (counts.chunks < 0) {
                    break;
                }
                give_back();
                continue;
            }
            int c = 0;
            if constexpr (kForm == Form::kPieces) {
                for (const int quiet = read_quiet(header); c < quiet; ++c) {
                    mbarrier_wait(barriers_.full(cursor_.stage), cursor_.parity);
                    give_back();
                }
            }
#pragma unroll 1
            for (; c < total; ++c) {
                const int length = c < counts.chunks ? GDN_SM90_CHUNK : counts.tail;
                chunk({D::v_tiles(p_) * item.head + item.v_tile, item.token + c * GDN_SM90_CHUNK, item.row, length},
                      length);
            }
        }
        wait_free();
        hand_over({0, 0, 0, -1});
    }

  private:
    /* What is never written again: blocks above the diagonal are zeros. */
    __device__ __forceinline__ void clear() const
    {
        for (uint32_t at = 16 * (threadIdx.x % 128); at < 2 * 8192; at += 16 * 128) {
            store_shared_16(base_ + StateMap::kP + at, make_uint4(0, 0, 0, 0));
        }
        barrier_sync(kScoreBarrier, 128);
    }

    __device__ __forceinline__ uint32_t stage() const
    {
        return cursor_.address<kForm, D>(base_);
    }

    /* Gives a stage back, and goes on to the next. */
    __device__ __forceinline__ void give_back()
    {
        __syncwarp();
        warp_arrive(barriers_.empty(cursor_.stage), lane_);
        cursor_.template advance<D>();
    }

    __device__ __forceinline__ void chunk(const Output &output, int length)
    {
        const uint32_t stage = __shfl_sync(0xffffffffu, this->stage(), 0); /* for uniform registers */
        mbarrier_wait(barriers_.full(cursor_.stage), cursor_.parity);
        wait_free();
        float qk[32];
        wgmma_fence();
        multiply_tiles<T, D::kK>(qk, stage + Stage::kQ, stage + Stage::kK);
        wgmma_commit();
        wgmma_wait<0>();
        const uint32_t record = stage + Stage::kA;
        if (p_.qk_norm != GDN_QK_NORM_NONE && !p_.packed_qk) {
            scale_gram(qk, record + GDN_SM90_RECORD_K_FACTOR - PrepMap::kKFactor, record + GDN_SM90_RECORD_Q_FACTOR,
                       warp_, lane_);
        } else {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                qk[i] *= p_.scale;
            }
        }
        if (length < GDN_SM90_CHUNK) {
            mask_gram(qk, length, warp_, lane_); /* also what the chain, clearing rows of K, made of these columns */
        }
        store(qk, base_ + StateMap::kP + (chunk_ & 1) * 8192, record + GDN_SM90_RECORD_GATES - HeadGates::kInBlock);
        give_back();
        fence_proxy_async();
        hand_over(output);
    }

    /* Waits until the next buffer of P has been read. */
    __device__ __forceinline__ void wait_free() const
    {
        if (chunk_ >= 2) {
            mbarrier_wait(barriers_.scores_free(chunk_ & 1), ((chunk_ >> 1) & 1) ^ 1);
        }
    }

    /* Word of P to the state warpgroup, and what the storing warp must know of its chunk. It has read what was in this place, of four
     * chunks before: the P of two chunks before was given back when that O had left. */
    __device__ __forceinline__ void hand_over(const Output &output)
    {
        if (warp_ == 0 && lane_ == 0) {
            store_output(base_ + StateMap::kOutputs + 16 * (chunk_ % kOutputWords), output);
        }
        __syncwarp();
        warp_arrive(barriers_.scores(chunk_ & 1), lane_);
        ++chunk_;
    }

    /* Row block `warp_` of P from Q K^T, scaled and masked: the products of store_P, in the same order. Every warp computes as
     * much as the last one, without branches, and stores what is its own. */
    __device__ __forceinline__ void store(const float (&qk)[32], uint32_t tile, uint32_t gates) const
    {
        const int g = lane_ / 4, t = lane_ % 4;
        const uint32_t row_gates = gates + HeadGates::kInBlock + 4 * (16 * warp_ + g);
        const float in_block[2] = {load_shared_float(row_gates), load_shared_float(row_gates + 32)};
        const float row[2] = {exp2_approx(in_block[0]), exp2_approx(in_block[1])};
        const int row_of_lane = 16 * warp_ + lane_ / 8 % 2 * 8 + lane_ % 8; /* whose address it gives to stmatrix */
        float x[2][4];
#pragma unroll
        for (int j = 0; j < kBlocks - 1; ++j) {
            lower_decay(x, gates, warp_, lane_, j, row);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    x[n][c] *= qk[4 * (2 * j + n) + c];
                }
            }
            if (j < warp_) {
                store_block(tile + swizzled(row_of_lane, 2 * j + lane_ / 16), x);
            }
        }
        diagonal_decay(x, gates, warp_, lane_, in_block);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int at = 4 * n + c;
                const float q = warp_ < 2 ? (warp_ < 1 ? qk[at] : qk[8 + at]) : warp_ < 3 ? qk[16 + at] : qk[24 + at];
                x[n][c] = g + 8 * (c / 2) >= 8 * n + 2 * t + c % 2 ? x[n][c] * q : 0.0f;
            }
        }
        store_block(tile + swizzled(row_of_lane, 2 * warp_ + lane_ / 16), x);
    }

    static __device__ __forceinline__ void store_block(uint32_t address, const float (&x)[2][4])
    {
        const uint32_t r[4] = {pack2<T>(x[0][0], x[0][1]), pack2<T>(x[0][2], x[0][3]), pack2<T>(x[1][0], x[1][1]),
                               pack2<T>(x[1][2], x[1][3])};
        stmatrix_x4(address, r);
    }

    static constexpr int kScoreBarrier = 2; /* a named barrier; the one before it is the state warpgroup's */

    const gdn_sm90_prefill &p_;
    uint32_t base_;
    Barriers barriers_;
    int warp_, lane_;
    StageCursor cursor_;
    int chunk_ = 0; /* done so far, in all items */
};

} // namespace sm90
} // namespace gdn

#endif
