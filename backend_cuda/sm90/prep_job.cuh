/* The jobs of the prep kernel, its shared memory, and the gates of a job's value heads. */
#ifndef GDN_CUDA_SM90_PREP_JOB_CUH
#define GDN_CUDA_SM90_PREP_JOB_CUH

#include "../device/element.cuh"
#include "../device/gates.cuh"
#include "prefill.h"
#include "ptx.cuh"
#include "wave.cuh"

namespace gdn
{
namespace sm90
{

constexpr int kRows = GDN_SM90_CHUNK;
constexpr int kBlocks = kRows / 16;
constexpr int kPrepThreads = 128;
constexpr int kJobHeads = 4; /* value heads of one job, at most: one a warp */

/* Shared memory of a block of prep, from what lies behind the record on. */
struct PrepMap {
    static constexpr uint32_t kDiagonal = 50176; /* L_ii transposed, float32 */
    static constexpr uint32_t kLower = kDiagonal + 4 * 16 * 20 * 4; /* L_ij, i > j, at i (i - 1) / 2 + j */
    static constexpr uint32_t kInverse = kLower + 6 * 16 * 24 * 4; /* X_ii */
    static constexpr uint32_t kGates = kInverse + 4 * 16 * 24 * 4; /* HeadGates of each value head */
    static constexpr uint32_t kGatesBytes = GDN_SM90_GATES_BYTES;
    static constexpr uint32_t kKFactor = kGates + kJobHeads * kGatesBytes; /* rk_i, float[64] */
    static constexpr uint32_t kQFactor = kKFactor + 256; /* scale rq_i */
    static constexpr uint32_t kKSquare = kQFactor + 256; /* |rk_i k_i|^2 */
    static constexpr uint32_t kBarrier = kKSquare + 256; /* the tiles have arrived */
    static constexpr uint32_t kQBarrier = kBarrier + 8; /* the tiles of Q, where they come by themselves */
    static constexpr uint32_t kEnd = kBarrier + 16;
    static constexpr int kDiagonalStride = 20; /* floats a row: 16-byte broadcast reads */
};

/* The record under construction and the tiles of a chunk's K and Q, in front of the rest. Where P is not made, Q is wanted for
 * its rows' norms alone, and before the blocks of L are there: it lies in their place. */
template <int kHeadK> struct PrepTiles {
    static constexpr bool kWithP = kHeadK > 128; /* there is no score warpgroup that would make it */
    static constexpr uint32_t kRecordBytes = kWithP ? GDN_SM90_RECORD_BYTES_WITH_P : GDN_SM90_RECORD_BYTES;
    static constexpr uint32_t kRecord = (PrepMap::kDiagonal - kRecordBytes) / 1024 * 1024;
    static constexpr uint32_t kRowBytes = kRows * kHeadK * 2; /* swizzled tiles of 64 columns */
    static constexpr uint32_t kQ = kWithP ? kRecord - kRowBytes : PrepMap::kDiagonal;
    static constexpr uint32_t kK = kRecord - (kWithP ? 2 : 1) * kRowBytes; /* below 0 for K = 256: addresses wrap */
    static constexpr uint32_t kBytes = PrepMap::kEnd - kK;
    static constexpr int kPerMultiprocessor = kWithP ? 2 : 4;
    static_assert(kPerMultiprocessor * (kBytes + 1024 + 1024) <= 228 * 1024, "blocks of a multiprocessor");
    static_assert(kWithP || kRowBytes <= PrepMap::kGates - PrepMap::kDiagonal, "Q in the place of L");
};

static_assert(PrepMap::kDiagonal % 1024 == 0, "tiles are swizzled by address");
static_assert(PrepMap::kKFactor % 16 == 0 && PrepMap::kGates % 16 == 0, "float4 reads");

/* One value head's gates: logarithms are to base 2, b(i) = i / 16, and "next" of block b is row 16 (b + 1), of the last
 * block row 63. Every factor is at most about 1, so products underflow where the result does and never overflow.
 *
 * beta has two factors, what the I/O type T holds of it and r, close to 1. With b r for beta, V' is r V'', V'' = b (V - ..): so
 * b stands for beta in L and A', and r_j k_j for k_j where it is written, which is in columns of L and P and in the update. The
 * diagonal of A', its largest entries, is b then, and nothing is lost when it is rounded. */
struct HeadGates {
    static constexpr uint32_t kBeta = 0; /* b_i, T[64] */
    static constexpr uint32_t kInBlock = 128; /* G_i - G_16b(i), float[64] */
    static constexpr uint32_t kColumn = 384; /* the same less log r_i: of i as a column, float[64] */
    static constexpr uint32_t kTail = 640; /* r_i exp(G_next - G_i), float[64] */
    static constexpr uint32_t kBetween = 896; /* exp(G_16r - G_next(c)) for c < r, float[4][4] */
    static constexpr uint32_t kStart = 960; /* exp(G_16b), float[4] */
    static constexpr uint32_t kFinish = 976; /* exp(G_63 - G_next(b)), float[4] */
    static constexpr uint32_t kEnd = 992; /* exp(G_63) */

    /* b_i */
    template <typename T> static __device__ __forceinline__ float beta(uint32_t gates, int i)
    {
        return unpack2<T>(load_shared_u16(gates + kBeta + 2 * i)).x;
    }
};
static_assert(HeadGates::kEnd + 16 == GDN_SM90_GATES_BYTES, "");

struct PrepJob {
    int number; /* -1: none */
    int slot; /* of the wave */
    int k_head;
    int first_head; /* in the key head's group */
    int count;
    int token, seq, index, length; /* of the chunk */
};

/* Blocks that have jobs: where sequences are shared out in pieces, the last one plans them instead. */
__device__ __forceinline__ int job_blocks(const gdn_sm90_prefill &p)
{
    return static_cast<int>(gridDim.x) - (p.pieces > 0);
}

/* The first job from `number` on, in steps of the grid, whose chunk has tokens. */
__device__ __forceinline__ PrepJob find_job(const gdn_sm90_prefill &p, const Wave &wave, int number)
{
    const int groups = (p.heads_per_group + p.heads_per_job - 1) / p.heads_per_job;
    const int per_slot = p.num_k_heads * groups;
    const int jobs = wave.slots * per_slot;
    PrepJob job = {-1, 0, 0, 0, 0, 0, 0, 0, 0};
    for (; number < jobs; number += job_blocks(p)) {
        const int slot = number / per_slot;
        const gdn_chunk chunk = wave.chunks[slot];
        if (chunk.seq < 0) {
            break; /* unused slots are the last ones */
        }
        if (chunk.length > 0) {
            const int rest = number - slot * per_slot;
            job.number = number;
            job.slot = slot;
            job.k_head = rest / groups;
            job.first_head = rest % groups * p.heads_per_job;
            job.count = min(p.heads_per_job, p.heads_per_group - job.first_head);
            job.token = static_cast<int>(chunk.token);
            job.seq = chunk.seq;
            job.index = chunk.index;
            job.length = chunk.length;
            break;
        }
    }
    return job;
}

__device__ __forceinline__ int value_head(const gdn_sm90_prefill &p, const PrepJob &job, int h)
{
    return p.tiled_heads ? (job.first_head + h) * p.num_k_heads + job.k_head
                         : job.k_head * p.heads_per_group + job.first_head + h;
}

/* One thread: the tiles of k or q. Rows past the chunk's length are the next sequence's or zeros. */
template <int kHeadK>
__device__ __forceinline__ void load_rows(const gdn_sm90_prefill &p, const PrepJob &job, const CUtensorMap &map,
                                          uint32_t tiles, uint32_t barrier)
{
    const int token = p.equal_length ? job.index * kRows : job.token;
    const int row = p.equal_length ? job.seq : 0;
#pragma unroll
    for (int x = 0; x < kHeadK; x += GDN_SM90_TILE) {
        tensor_load(tiles + 128 * x, &map, x, job.k_head, token, row, barrier);
    }
}

/* One thread: the tiles of k, and with P those of q. */
template <int kHeadK>
__device__ __forceinline__ void load_tiles(const gdn_sm90_prefill &p, const PrepJob &job, uint32_t base)
{
    using Tiles = PrepTiles<kHeadK>;
    const uint32_t barrier = base + PrepMap::kBarrier;
    mbarrier_arrive_expect(barrier, (Tiles::kWithP ? 2 : 1) * Tiles::kRowBytes);
    load_rows<kHeadK>(p, job, p.k_map, base + Tiles::kK, barrier);
    if (Tiles::kWithP) {
        load_rows<kHeadK>(p, job, p.q_map, base + Tiles::kQ, barrier);
    }
}

/* Whether the tiles of q come by themselves: without P only their rows' norms are wanted. */
template <int kHeadK> __device__ __forceinline__ bool loads_Q(const gdn_sm90_prefill &p)
{
    return !PrepTiles<kHeadK>::kWithP && p.qk_norm != GDN_QK_NORM_NONE;
}

/* One thread: they. */
template <int kHeadK>
__device__ __forceinline__ void load_Q(const gdn_sm90_prefill &p, const PrepJob &job, uint32_t base)
{
    using Tiles = PrepTiles<kHeadK>;
    const uint32_t barrier = base + PrepMap::kQBarrier;
    if (loads_Q<kHeadK>(p)) {
        mbarrier_arrive_expect(barrier, Tiles::kRowBytes);
        load_rows<kHeadK>(p, job, p.q_map, base + Tiles::kQ, barrier);
    }
}

/* The gate inputs of tokens 2 lane and 2 lane + 1, as they are in memory. */
struct RawGates {
    float gate[2], beta[2];
};

__device__ __forceinline__ int64_t chunk_base(const gdn_sm90_prefill &p, const gdn_sm90_rows &x, const PrepJob &job)
{
    return p.equal_length ? job.seq * x.row_stride + static_cast<int64_t>(job.index) * kRows * x.token_stride
                          : job.token * x.token_stride;
}

__device__ __forceinline__ RawGates load_gates(const gdn_sm90_prefill &p, const PrepJob &job, int h)
{
    RawGates raw = {};
    if (h < job.count) {
        const int head = value_head(p, job, h);
        const int lane = threadIdx.x % 32;
        const int64_t gate_base = chunk_base(p, p.gate, job) + head * p.gate.head_stride;
        const int64_t beta_base = chunk_base(p, p.beta, job) + head * p.beta.head_stride;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int i = 2 * lane + e;
            if (i < job.length) {
                raw.gate[e] = load_element(p.gate.data, p.gate.dtype, gate_base + i * p.gate.token_stride);
                raw.beta[e] = load_element(p.beta.data, p.beta.dtype, beta_base + i * p.beta.token_stride);
            }
        }
    }
    return raw;
}

/* What rounding left of beta, as a factor; 1 where it left 0 or infinity. */
__device__ __forceinline__ float beta_ratio(float beta, float rounded)
{
    const float ratio = beta / rounded;
    return ratio >= 0.5f && ratio <= 2.0f ? ratio : 1.0f;
}

/* One warp: HeadGates of one value head. Tokens past the chunk's length have no decay and beta 0. Sums are in double: their
 * differences stay exact after tokens of strong decay. */
template <typename T>
__device__ __forceinline__ void compute_gates(const gdn_sm90_prefill &p, const PrepJob &job, int h, const RawGates &raw,
                                              uint32_t gates, int lane)
{
    constexpr double kLog2E = 1.4426950408889634;
    const bool raw_form = p.gate_form == GDN_GATE_RAW;
    const int head = value_head(p, job, h);
    const float A_log = raw_form ? p.A_log[head] : 0.0f;
    const float dt_bias = raw_form && p.dt_bias ? p.dt_bias[head] : 0.0f;
    double g[2];
    float beta[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const bool inside = 2 * lane + e < job.length;
        g[e] = inside ? kLog2E * static_cast<double>(log_decay_of(raw.gate[e], p.gate_form, A_log, dt_bias)) : 0.0;
        beta[e] = inside ? beta_of(raw.beta[e], p.beta_form, p.beta_scale) : 0.0f;
    }
    double sum = g[0] + g[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double left = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? left : 0.0;
    }
    const double G[2] = {sum - g[1], sum};
    const double G_last = __shfl_sync(0xffffffffu, G[1], 31);
    const int block = lane / 8;
    const double first = __shfl_sync(0xffffffffu, G[0], 8 * block);
    const double following = __shfl_sync(0xffffffffu, G[0], (8 * block + 8) % 32);
    const double next = block == kBlocks - 1 ? G_last : following;
    const uint32_t rounded = pack2<T>(beta[0], beta[1]);
    const float2 b = unpack2<T>(rounded);
    const float r[2] = {beta_ratio(beta[0], b.x), beta_ratio(beta[1], b.y)};
    const float in_block[2] = {static_cast<float>(G[0] - first), static_cast<float>(G[1] - first)};
    store_shared_u32(gates + HeadGates::kBeta + 4 * lane, rounded);
    store_shared_float2(gates + HeadGates::kInBlock + 8 * lane, in_block[0], in_block[1]);
    store_shared_float2(gates + HeadGates::kColumn + 8 * lane, in_block[0] - log2f(r[0]), in_block[1] - log2f(r[1]));
    store_shared_float2(gates + HeadGates::kTail + 8 * lane, r[0] * exp2_approx(static_cast<float>(next - G[0])),
                        r[1] * exp2_approx(static_cast<float>(next - G[1])));
    /* Lane 4 r + c: row block r, column block c. */
    const double row_first = __shfl_sync(0xffffffffu, G[0], 8 * (lane / 4 % 4));
    const double column_next = __shfl_sync(0xffffffffu, next, 8 * (lane % 4));
    if (lane < 16) {
        store_shared_float(gates + HeadGates::kBetween + 4 * lane,
                           exp2_approx(static_cast<float>(row_first - column_next)));
    }
    if (lane % 8 == 0) {
        store_shared_float(gates + HeadGates::kStart + 4 * block, exp2_approx(static_cast<float>(first)));
        store_shared_float(gates + HeadGates::kFinish + 4 * block, exp2_approx(static_cast<float>(G_last - next)));
    }
    if (lane == 0) {
        store_shared_float(gates + HeadGates::kEnd, exp2_approx(static_cast<float>(G_last)));
    }
}

} // namespace sm90
} // namespace gdn

#endif
