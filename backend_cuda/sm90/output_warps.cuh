/* The output warpgroup of the half form and of pieces: O = Gamma Q S + P V' of every chunk that the state warpgroup has done.
 *
 *     P from Q K^T, give the stage back  |  wait for S  |  half of Q S  |  wait for V'  |  the rest  |  scale, Q of the next stage
 *     to registers  |  + P V', Q K^T of the next stage  |  O to shared memory  |
 *
 * P is made here, not by prep: what it takes is in the stage long before S and V' are there, and it need not go through memory. Q
 * and P are operands in registers, so that a stage is given back before the chain is done with it. Q K^T is made of whatever
 * lies in the next stage, so that no product is in flight across a branch. */
#ifndef GDN_CUDA_SM90_OUTPUT_WARPS_CUH
#define GDN_CUDA_SM90_OUTPUT_WARPS_CUH

#include "prep_head.cuh"
#include "state_chain.cuh"

namespace gdn
{
namespace sm90
{

/* P as an operand from Q K^T, scaled and masked: the products of store_P, in the same order. Every warp computes as much as the
 * last one, without branches: blocks above the diagonal become zeros. */
template <typename T>
__device__ __forceinline__ void make_P(uint32_t (&P)[kBlocks][4], const float (&qk)[32], uint32_t gates, int warp,
                                       int lane)
{
    const int g = lane / 4, t = lane % 4;
    const uint32_t row_gates = gates + HeadGates::kInBlock + 4 * (16 * warp + g);
    const float in_block[2] = {load_shared_float(row_gates), load_shared_float(row_gates + 32)};
    const float row[2] = {exp2_approx(in_block[0]), exp2_approx(in_block[1])};
    float x[2][4];
#pragma unroll
    for (int j = 0; j < kBlocks - 1; ++j) {
        lower_decay(x, gates, warp, lane, j, row);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                x[n][c] *= qk[4 * (2 * j + n) + c];
            }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            P[j][e] = j < warp ? pack2<T>(x[e / 2][2 * (e % 2)], x[e / 2][2 * (e % 2) + 1]) : 0;
        }
    }
    diagonal_decay(x, gates, warp, lane, in_block);
    uint32_t diagonal[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int at = 4 * n + c;
            const float q = warp < 2 ? (warp < 1 ? qk[at] : qk[8 + at]) : warp < 3 ? qk[16 + at] : qk[24 + at];
            x[n][c] = g + 8 * (c / 2) >= 8 * n + 2 * t + c % 2 ? x[n][c] * q : 0.0f;
        }
        diagonal[2 * n] = pack2<T>(x[n][0], x[n][1]);
        diagonal[2 * n + 1] = pack2<T>(x[n][2], x[n][3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int j = 0; j < kBlocks - 1; ++j) {
            P[j][e] = j == warp ? diagonal[e] : P[j][e];
        }
        P[kBlocks - 1][e] = warp == kBlocks - 1 ? diagonal[e] : 0;
    }
}

template <typename T, Form kForm, typename D> class OutputWarps
{
    using Stage = sm90::Stage<kForm, D>;
    using StateMap = sm90::StateMap<kForm, D>;
    static constexpr int kKTiles = D::kKTiles;

  public:
    __device__ __forceinline__ OutputWarps(const gdn_sm90_prefill &p, uint32_t base, const Barriers &barriers)
        : p_(p), base_(base), barriers_(barriers), warp_(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
          lane_(threadIdx.x % 32)
    {
    }

    /* The block's items, one after the other. */
    __device__ __forceinline__ void run()
    {
        bool queried = false; /* Q K^T of the stage's chunk is there */
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
                skip_chunk();
                queried = false;
                continue;
            }
            int c = 0;
            if constexpr (kForm == Form::kPieces) {
                for (const int quiet = read_quiet(header); c < quiet; ++c) {
                    mbarrier_wait(barriers_.full(cursor_.stage), cursor_.parity);
                    skip_chunk();
                    queried = false;
                }
            }
            if (!queried) {
                load_queries();
                wgmma_fence();
                multiply(qk_, stage() + Stage::kK, 0, kKTiles);
                wgmma_commit();
                wgmma_wait<0>();
            }
            for (; c < total; ++c) {
                const int length = c < counts.chunks ? GDN_SM90_CHUNK : counts.tail;
                chunk({D::v_tiles(p_) * item.head + item.v_tile, item.token + c * GDN_SM90_CHUNK, item.row, length},
                      length);
            }
            queried = true;
        }
        wait_O();
        hand_over({0, 0, 0, -1});
    }

  private:
    __device__ __forceinline__ uint32_t stage() const
    {
        return cursor_.address<kForm, D>(base_);
    }

    /* Gives a stage back, and goes on to the next. */
    __device__ __forceinline__ void skip_chunk()
    {
        __syncwarp();
        warp_arrive(barriers_.empty(cursor_.stage), lane_);
        cursor_.template advance<D>();
    }

    /* The stage's Q as an operand, when it is there: rows 16 warp + g and + 8. */
    __device__ __forceinline__ void load_queries()
    {
        mbarrier_wait(barriers_.full(cursor_.stage), cursor_.parity);
        const uint32_t tiles = stage() + Stage::kQ;
#pragma unroll
        for (int i = 0; i < 4 * kKTiles; ++i) {
            ldmatrix_x4(q_[i], tiles + i / 4 * 8192 + swizzled(16 * warp_ + lane_ % 16, 2 * (i % 4) + lane_ / 16));
        }
    }

    /* Of the stage's chunk, whose Q K^T is there, P and the factors of Q S; the stage is given back. */
    __device__ __forceinline__ void finish_P(uint32_t (&P)[kBlocks][4], float (&decay)[2], int length)
    {
        const uint32_t record = stage() + Stage::kA;
        const uint32_t row = record + 4 * (16 * warp_ + lane_ / 4);
        decay[0] = load_shared_float(row + GDN_SM90_RECORD_DECAY_Q);
        decay[1] = load_shared_float(row + GDN_SM90_RECORD_DECAY_Q + 32);
        if (p_.qk_norm != GDN_QK_NORM_NONE && !p_.packed_qk) {
            scale_gram(qk_, record + GDN_SM90_RECORD_K_FACTOR - PrepMap::kKFactor, record + GDN_SM90_RECORD_Q_FACTOR,
                       warp_, lane_);
        } else {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                qk_[i] *= p_.scale;
            }
        }
        if (length < GDN_SM90_CHUNK) {
            mask_gram(qk_, length, warp_, lane_); /* also what the chain, clearing rows of K, made of these columns */
        }
        make_P<T>(P, qk_, record + GDN_SM90_RECORD_GATES - HeadGates::kInBlock, warp_, lane_);
        skip_chunk();
    }

    /* O of the stage's chunk, and Q K^T of the next stage's, whatever lies there. */
    __device__ __forceinline__ void chunk(const Output &output, int length)
    {
        const int buffer = chunk_ & 1, parity = chunk_ >> 1 & 1;
        uint32_t P[kBlocks][4];
        float decay[2];
        finish_P(P, decay, length);

        /* Half of Q S while the chain finds V', the rest when it has: all of it at once would hold up A' R, except at K = 64. */
        const uint32_t state = base_ + StateMap::kS;
        float O[32];
        mbarrier_wait(barriers_.state(), chunk_ & 1);
        fence_proxy_async();
        wgmma_fence();
        multiply(O, state, 0, (kKTiles + 1) / 2);
        wgmma_commit();
        if (kKTiles > 1) {
            wait_values(buffer, parity);
            wgmma_fence();
            multiply(O, state, kKTiles / 2, kKTiles);
            wgmma_commit();
        }
        wgmma_wait<0>();
        warp_arrive(barriers_.state_free(), lane_);
        load_queries();
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            O[i] *= decay[i / 2 % 2];
        }
        if (kKTiles == 1) {
            wait_values(buffer, parity);
        }
        const uint32_t values = base_ + StateMap::kNewV + buffer * 8192;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wgmma_rs<T, false>(O, P[i], wgmma_operand(values) + wgmma_offset(i * 32), true);
        }
        wgmma_commit();
        multiply(qk_, stage() + Stage::kK, 0, kKTiles);
        wgmma_commit();
        wgmma_wait<1>(); /* O */
        warp_arrive(barriers_.values_free(buffer), lane_);
        wait_O();
        const uint32_t tile = base_ + StateMap::kO + buffer * 8192;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t a[4];
            pack_operand<T>(a, O, i);
            stmatrix_x4(tile + swizzled(16 * warp_ + lane_ / 8 % 2 * 8 + lane_ % 8, 2 * i + lane_ / 16), a);
        }
        hand_over(output);
        ++chunk_;
        wgmma_wait<0>();
    }

    /* x (+)= Q B^T for tiles from .. to - 1 of K, where a row of B has K elements. */
    __device__ __forceinline__ void multiply(float (&x)[32], uint32_t b, int from, int to) const
    {
#pragma unroll
        for (int i = 4 * from; i < 4 * to; ++i) {
            wgmma_rs<T, false>(x, q_[i], wgmma_operand(b) + wgmma_offset(i / 4 * 8192 + i % 4 * 32), i > 0);
        }
    }

    __device__ __forceinline__ void wait_values(int buffer, int parity) const
    {
        mbarrier_wait(barriers_.values(buffer), parity);
        fence_proxy_async();
    }

    /* Waits until the next buffer of O has left. */
    __device__ __forceinline__ void wait_O() const
    {
        if (chunk_ >= 2) {
            mbarrier_wait(barriers_.output_free(chunk_ & 1), ((chunk_ >> 1) & 1) ^ 1);
        }
    }

    /* Word of it to the storing warp. */
    __device__ __forceinline__ void hand_over(const Output &output) const
    {
        if (warp_ == 0 && lane_ == 0) {
            store_output(base_ + StateMap::kOutputs + 16 * (chunk_ & 1), output);
        }
        __syncwarp();
        warp_arrive(barriers_.output(chunk_ & 1), lane_);
    }

    const gdn_sm90_prefill &p_;
    uint32_t q_[4 * kKTiles][4]; /* Q of the stage's chunk, as an operand */
    float qk_[32]; /* its Q K^T */
    uint32_t base_;
    Barriers barriers_;
    int warp_, lane_;
    StageCursor cursor_;
    int chunk_ = 0; /* done so far, in all items */
};

} // namespace sm90
} // namespace gdn

#endif
