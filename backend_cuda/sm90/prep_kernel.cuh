/* Hopper prefill, first kernel: what a chunk needs that does not depend on the state.
 *
 * For the value heads of one key head, on one chunk (letters of docs/algorithm.md):
 *
 *     L  = StrictLower(B (D o K K^T))     D_ij = exp(G_i - G_j)
 *     A' = (I + L)^-1 B                   P = scale D o Q K^T
 *
 * A block is one warpgroup and works off jobs (chunk, key head, up to four value heads of it). K K^T and Q K^T are computed
 * once a job and stay in registers; the tiles are free as soon as they are done, and the next job's are loaded into them.
 *
 *     job:   warps 0..3     gates of value head `warp`, two tokens a lane
 *            warpgroup      K K^T, Q K^T (and Q Q^T, for its diagonal) by wgmma; rows' norms from the diagonals
 *            --- barrier; next tiles are loaded
 *     head:  warp w         row block w of L to shared memory; X_ww = (I + L_ww)^-1, 16 x 16, by substitution in float32
 *            --- barrier
 *            warp w         X_iw = -X_ii sum_k L_ik X_kw for i > w: block column w of A'; row block w of P
 *            warps 2, 3     the decay factors
 *            --- barrier; the record leaves by one bulk copy
 *
 * The inverse sees the decay, so its entries stay small wherever the recurrence itself does. Block merges take float16
 * operands (range 65504, 11 bits) where |k_i|^2 and beta_i |k_i|^2 bound the entries by about 2, which normalised keys do,
 * and TF32 ones otherwise: a choice by the chunk's own data. Substitution inside 16 rows and merges never form powers of L.
 */
#ifndef GDN_CUDA_SM90_PREP_KERNEL_CUH
#define GDN_CUDA_SM90_PREP_KERNEL_CUH

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

/* Shared memory of a block of prep, from a multiple of 1024 bytes on. */
struct PrepMap {
    static constexpr uint32_t kTile = 16384; /* 64 rows of 128 elements: two swizzled halves of 64 columns */
    static constexpr uint32_t kK = 0;
    static constexpr uint32_t kQ = kK + kTile;
    static constexpr uint32_t kRecord = kQ + kTile; /* the record under construction */
    static constexpr uint32_t kDiagonal = kRecord + GDN_SM90_RECORD_BYTES; /* L_ii transposed, float32 */
    static constexpr uint32_t kLower = kDiagonal + 4 * 16 * 20 * 4; /* L_ij, i > j, at i (i - 1) / 2 + j */
    static constexpr uint32_t kInverse = kLower + 6 * 16 * 24 * 4; /* X_ii */
    static constexpr uint32_t kGates = kInverse + 4 * 16 * 24 * 4; /* HeadGates of each value head */
    static constexpr uint32_t kGatesBytes = 880;
    static constexpr uint32_t kKFactor = kGates + kJobHeads * kGatesBytes; /* rk_i, float[64] */
    static constexpr uint32_t kQFactor = kKFactor + 256; /* scale rq_i */
    static constexpr uint32_t kKSquare = kQFactor + 256; /* |rk_i k_i|^2 */
    static constexpr uint32_t kBarrier = kKSquare + 256; /* the tiles have arrived */
    static constexpr uint32_t kBytes = kBarrier + 16;
    static constexpr int kDiagonalStride = 20; /* floats a row: 16-byte broadcast reads */
};

static_assert(PrepMap::kRecord % 1024 == 0, "A' and P are swizzled tiles");
static_assert(PrepMap::kKFactor % 16 == 0 && PrepMap::kGates % 16 == 0, "float4 reads");
static_assert(3 * (PrepMap::kBytes + 1024 + 1024) <= 228 * 1024, "three blocks a multiprocessor");

/* One value head's gates: logarithms are to base 2, b(i) = i / 16, and "next" of block b is row 16 (b + 1), of the last
 * block row 63. Every factor is at most 1, so products underflow where the result does and never overflow. */
struct HeadGates {
    static constexpr uint32_t kBeta = 0; /* float[64] */
    static constexpr uint32_t kInBlock = 256; /* G_i - G_16b(i), float[64] */
    static constexpr uint32_t kTail = 512; /* exp(G_next - G_i), float[64] */
    static constexpr uint32_t kBetween = 768; /* exp(G_16r - G_next(c)) for c < r, float[4][4] */
    static constexpr uint32_t kStart = 832; /* exp(G_16b), float[4] */
    static constexpr uint32_t kFinish = 848; /* exp(G_63 - G_next(b)), float[4] */
    static constexpr uint32_t kEnd = 864; /* exp(G_63) */
};

struct PrepJob {
    int number; /* -1: none */
    int slot; /* of the wave */
    int k_head;
    int first_head; /* in the key head's group */
    int count;
    int token, seq, index, length; /* of the chunk */
};

/* The first job from `number` on, in steps of the grid, whose chunk has tokens. */
__device__ __forceinline__ PrepJob find_job(const gdn_sm90_prefill &p, const Wave &wave, int number)
{
    const int groups = (p.heads_per_group + p.heads_per_job - 1) / p.heads_per_job;
    const int per_slot = p.num_k_heads * groups;
    const int jobs = wave.slots * per_slot;
    PrepJob job = {-1, 0, 0, 0, 0, 0, 0, 0, 0};
    for (; number < jobs; number += gridDim.x) {
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

/* One thread: the tiles of k and q. Rows past the chunk's length are the next sequence's or zeros. */
__device__ __forceinline__ void load_tiles(const gdn_sm90_prefill &p, const PrepJob &job, uint32_t base)
{
    const uint32_t barrier = base + PrepMap::kBarrier;
    const int token = p.equal_length ? job.index * kRows : job.token;
    const int row = p.equal_length ? job.seq : 0;
    mbarrier_arrive_expect(barrier, 2 * PrepMap::kTile);
    tensor_load(base + PrepMap::kK, &p.k_map, 0, job.k_head, token, row, barrier);
    tensor_load(base + PrepMap::kK + PrepMap::kTile / 2, &p.k_map, 64, job.k_head, token, row, barrier);
    tensor_load(base + PrepMap::kQ, &p.q_map, 0, job.k_head, token, row, barrier);
    tensor_load(base + PrepMap::kQ + PrepMap::kTile / 2, &p.q_map, 64, job.k_head, token, row, barrier);
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

/* One warp: HeadGates of one value head. Tokens past the chunk's length have no decay and beta 0. Sums are in double: their
 * differences stay exact after tokens of strong decay. */
__device__ __forceinline__ void compute_gates(const gdn_sm90_prefill &p, const PrepJob &job, int h, const RawGates &raw,
                                              uint32_t gates)
{
    constexpr double kLog2E = 1.4426950408889634;
    const int lane = threadIdx.x % 32;
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
    store_shared_float2(gates + HeadGates::kBeta + 8 * lane, beta[0], beta[1]);
    store_shared_float2(gates + HeadGates::kInBlock + 8 * lane, static_cast<float>(G[0] - first),
                        static_cast<float>(G[1] - first));
    store_shared_float2(gates + HeadGates::kTail + 8 * lane, exp2_approx(static_cast<float>(next - G[0])),
                        exp2_approx(static_cast<float>(next - G[1])));
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

/* gram (+)= a b^T for two tiles of 64 rows of 128 elements. */
template <typename T> __device__ __forceinline__ void multiply_tiles(float (&gram)[32], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int step = 0; step < GDN_SM90_DIM / 16; ++step) {
        const uint32_t offset = step / 4 * (PrepMap::kTile / 2) + step % 4 * 32;
        wgmma_ss<T>(gram, wgmma_operand(a + offset), wgmma_operand(b + offset), step > 0);
    }
}

/* The diagonal entry of this warp's row block that this lane holds: of row g + 8 e, if t is g / 2. */
__device__ __forceinline__ float diagonal_entry(const float (&gram)[32], int warp, int g, int e)
{
    float x = 0.0f;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
        if (block == warp) {
            const int at = 4 * (2 * block + e) + 2 * e;
            x = g % 2 ? gram[at + 1] : gram[at];
        }
    }
    return x;
}

/* K K^T and Q K^T of normalised rows, the latter times scale, and zero in rows and columns past the chunk's length. Also
 * leaves the rows' factors and squares in shared memory. Has the block's barrier after which the tiles are free. */
template <typename T>
__device__ __forceinline__ void compute_grams(const gdn_sm90_prefill &p, int length, uint32_t base, float (&kk)[32],
                                              float (&qk)[32])
{
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int g = lane / 4, t = lane % 4;
    const bool normalise = p.qk_norm != GDN_QK_NORM_NONE;
    float q_square[2] = {0.0f, 0.0f};
    wgmma_fence();
    multiply_tiles<T>(kk, base + PrepMap::kK, base + PrepMap::kK);
    multiply_tiles<T>(qk, base + PrepMap::kQ, base + PrepMap::kK);
    wgmma_commit();
    wgmma_wait<0>();
    if (normalise) {
        float qq[32];
        wgmma_fence();
        multiply_tiles<T>(qq, base + PrepMap::kQ, base + PrepMap::kQ);
        wgmma_commit();
        wgmma_wait<0>();
        q_square[0] = diagonal_entry(qq, warp, g, 0);
        q_square[1] = diagonal_entry(qq, warp, g, 1);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const float k_square = diagonal_entry(kk, warp, g, e);
        const int i = 16 * warp + g + 8 * e;
        if (t == g / 2) {
            const bool inside = i < length;
            const float k_factor = inside ? norm_factor(k_square, p.qk_norm, p.qk_norm_eps) : 1.0f;
            const float q_factor = inside ? norm_factor(q_square[e], p.qk_norm, p.qk_norm_eps) : 1.0f;
            store_shared_float(base + PrepMap::kKFactor + 4 * i, k_factor);
            store_shared_float(base + PrepMap::kQFactor + 4 * i, p.scale * q_factor);
            store_shared_float(base + PrepMap::kKSquare + 4 * i, inside ? k_square * k_factor * k_factor : 0.0f);
        }
    }
    __syncthreads();

    float k_row[2], q_row[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        k_row[e] = load_shared_float(base + PrepMap::kKFactor + at);
        q_row[e] = load_shared_float(base + PrepMap::kQFactor + at);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float2 column = load_shared_float2(base + PrepMap::kKFactor + 4 * (8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float factor = c % 2 ? column.y : column.x;
            kk[4 * n + c] *= k_row[c / 2] * factor;
            qk[4 * n + c] *= q_row[c / 2] * factor;
        }
    }
    if (length < kRows) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const bool inside = 16 * warp + g + 8 * (c / 2) < length && 8 * n + 2 * t + c % 2 < length;
                kk[4 * n + c] = inside ? kk[4 * n + c] : 0.0f;
                qk[4 * n + c] = inside ? qk[4 * n + c] : 0.0f;
            }
        }
    }
}

/* Whether float16 holds L and its inverse: 2.05 and 1.05 leave room for keys that were normalised, then rounded. */
__device__ __forceinline__ bool fits_half(uint32_t base, uint32_t gates)
{
    const int lane = threadIdx.x % 32;
    const float2 square = load_shared_float2(base + PrepMap::kKSquare + 8 * lane);
    const float2 beta = load_shared_float2(gates + HeadGates::kBeta + 8 * lane);
    const bool fits =
        fmaxf(square.x, square.y) <= 1.05f && fabsf(beta.x) * square.x <= 2.05f && fabsf(beta.y) * square.y <= 2.05f;
    return __all_sync(0xffffffffu, fits) != 0;
}

/* ---- Blocks of 16 x 16 as float16 or TF32 in shared memory, and products with them.
 *
 * An accumulator block d of 16 x 16 is two of m16n8: d[n][c], column 8 n + 2t + c % 2 of row g + 8 (c / 2). */

struct HalfBlocks {
    static constexpr int kStride = 48; /* bytes a row: eight rows of 16 bytes hit 32 banks */
    static constexpr int kBytes = 16 * kStride;
    struct Operand {
        uint32_t a[4];
    };

    /* Columns 2t, 2t + 1 and 8 + 2t, 8 + 2t + 1 of rows g and g + 8. */
    static __device__ __forceinline__ void store(uint32_t block, const float (&x)[2][4])
    {
        const int lane = threadIdx.x % 32;
        const uint32_t r[4] = {pack2<__half>(x[0][0], x[0][1]), pack2<__half>(x[0][2], x[0][3]),
                               pack2<__half>(x[1][0], x[1][1]), pack2<__half>(x[1][2], x[1][3])};
        stmatrix_x4(block + (lane / 8 % 2 * 8 + lane % 8) * kStride + lane / 16 * 16, r);
    }
    static __device__ __forceinline__ void store_element(uint32_t block, int row, int column, float x)
    {
        store_shared_u16(block + row * kStride + 2 * column, __half_as_ushort(__float2half_rn(x)));
    }
    /* The block's transpose as the left operand of a product, and as accumulators. */
    static __device__ __forceinline__ void load_transposed(uint32_t block, Operand &operand, float (&x)[2][4])
    {
        const int lane = threadIdx.x % 32;
        ldmatrix_x4_trans(operand.a, block + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 16);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float2 pair = unpack2<__half>(operand.a[e]);
            x[e / 2][2 * (e % 2)] = pair.x;
            x[e / 2][2 * (e % 2) + 1] = pair.y;
        }
    }
    static __device__ __forceinline__ void make_operand(Operand &operand, const float (&x)[2][4], float sign)
    {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            operand.a[e] = pack2<__half>(sign * x[e / 2][2 * (e % 2)], sign * x[e / 2][2 * (e % 2) + 1]);
        }
    }
    /* d += a block^T */
    static __device__ __forceinline__ void multiply(float (&d)[2][4], const Operand &operand, uint32_t block)
    {
        const int lane = threadIdx.x % 32;
        uint32_t b[4];
        ldmatrix_x4(b, block + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 16);
        mma_16816<__half>(d[0], operand.a, b[0], b[1]);
        mma_16816<__half>(d[1], operand.a, b[2], b[3]);
    }
};

/* As HalfBlocks; the product's inner index runs in the order 2t, 2t + 1 of the accumulators on both sides. */
struct Tf32Blocks {
    static constexpr int kStride = 96;
    static constexpr int kBytes = 16 * kStride;
    struct Operand {
        uint32_t a[2][4];
    };

    static __device__ __forceinline__ void store(uint32_t block, const float (&x)[2][4])
    {
        const int lane = threadIdx.x % 32;
        const uint32_t at = block + lane / 4 * kStride + lane % 4 * 8;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                store_shared_float2(at + 32 * n + 8 * e * kStride, __uint_as_float(round_tf32(x[n][2 * e])),
                                    __uint_as_float(round_tf32(x[n][2 * e + 1])));
            }
        }
    }
    static __device__ __forceinline__ void store_element(uint32_t block, int row, int column, float x)
    {
        store_shared_float(block + row * kStride + 4 * column, __uint_as_float(round_tf32(x)));
    }
    static __device__ __forceinline__ void load_transposed(uint32_t block, Operand &operand, float (&x)[2][4])
    {
        const int lane = threadIdx.x % 32;
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                x[n][c] = load_shared_float(block + (8 * n + 2 * t + c % 2) * kStride + 4 * (g + 8 * (c / 2)));
            }
        }
        make_operand(operand, x, 1.0f);
    }
    static __device__ __forceinline__ void make_operand(Operand &operand, const float (&x)[2][4], float sign)
    {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            operand.a[s][0] = round_tf32(sign * x[s][0]);
            operand.a[s][1] = round_tf32(sign * x[s][2]);
            operand.a[s][2] = round_tf32(sign * x[s][1]);
            operand.a[s][3] = round_tf32(sign * x[s][3]);
        }
    }
    static __device__ __forceinline__ void multiply(float (&d)[2][4], const Operand &operand, uint32_t block)
    {
        const int lane = threadIdx.x % 32;
        const uint32_t at = block + lane / 4 * kStride + lane % 4 * 8;
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float2 b = load_shared_float2(at + 8 * n * kStride + 32 * s);
                mma_1688_tf32(d[n], operand.a[s], __float_as_uint(b.x), __float_as_uint(b.y));
            }
        }
    }
};

/* exp(G_i - G_j) inside the diagonal block, for column 2t + 8 n + c % 2 and row g + 8 (c / 2); garbage above it. */
__device__ __forceinline__ void diagonal_decay(float (&decay)[2][4], uint32_t gates, int warp,
                                               const float (&in_block)[2])
{
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 column = load_shared_float2(gates + HeadGates::kInBlock + 4 * (16 * warp + 8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            decay[n][c] = exp2_approx(in_block[c / 2] - (c % 2 ? column.y : column.x));
        }
    }
}

/* exp(G_i - G_j) of block (warp, j) below the diagonal, times a factor a row. */
__device__ __forceinline__ void lower_decay(float (&decay)[2][4], uint32_t gates, int warp, int j,
                                            const float (&row)[2])
{
    const int t = threadIdx.x % 4;
    const float between = load_shared_float(gates + HeadGates::kBetween + 4 * (4 * warp + j));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 tail = load_shared_float2(gates + HeadGates::kTail + 4 * (16 * j + 8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            decay[n][c] = row[c / 2] * between * (c % 2 ? tail.y : tail.x);
        }
    }
}

/* One warp: row block `warp` of L to shared memory, the diagonal block transposed. */
template <typename Blocks>
__device__ __forceinline__ void store_lower(const float (&kk)[32], uint32_t base, uint32_t gates, int warp)
{
    const int lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
    float beta[2], in_block[2], row[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        beta[e] = load_shared_float(gates + HeadGates::kBeta + at);
        in_block[e] = load_shared_float(gates + HeadGates::kInBlock + at);
        row[e] = beta[e] * exp2_approx(in_block[e]);
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        if (j < warp) {
            float L[2][4];
            lower_decay(L, gates, warp, j, row);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    L[n][c] *= kk[4 * (2 * j + n) + c];
                }
            }
            Blocks::store(base + PrepMap::kLower + (warp * (warp - 1) / 2 + j) * Blocks::kBytes, L);
        } else if (j == warp) {
            float L[2][4];
            diagonal_decay(L, gates, warp, in_block);
            const uint32_t out = base + PrepMap::kDiagonal + warp * (16 * PrepMap::kDiagonalStride * 4);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int i = g + 8 * (c / 2), column = 8 * n + 2 * t + c % 2;
                    const float x = beta[c / 2] * L[n][c] * kk[4 * (2 * j + n) + c];
                    store_shared_float(out + 4 * (column * PrepMap::kDiagonalStride + i), i > column ? x : 0.0f);
                }
            }
        }
    }
}

/* One warp: X = (I + L)^-1 of its diagonal block, lanes c and c + 16 both computing column c:
 * x_i = [i = c] - sum_{j < i} L_ij x_j, a column of L at a time so that the sums are independent. */
template <typename Blocks> __device__ __forceinline__ void invert_diagonal(uint32_t base, int warp)
{
    const int lane = threadIdx.x % 32;
    const int column = lane % 16;
    const uint32_t L = base + PrepMap::kDiagonal + warp * (16 * PrepMap::kDiagonalStride * 4);
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        x[i] = i == column ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 15; ++j) {
#pragma unroll
        for (int i4 = (j + 1) / 4; i4 < 4; ++i4) {
            const uint4 l = load_shared_16(L + 4 * (j * PrepMap::kDiagonalStride + 4 * i4));
            const uint32_t words[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if (4 * i4 + e > j) {
                    x[4 * i4 + e] = fmaf(-__uint_as_float(words[e]), x[j], x[4 * i4 + e]);
                }
            }
        }
    }
    const uint32_t out = base + PrepMap::kInverse + warp * Blocks::kBytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        /* The lower lanes store the upper eight rows, the others the rest. */
        const float value = lane < 16 ? x[i] : x[8 + i];
        Blocks::store_element(out, i + lane / 16 * 8, column, value);
    }
}

/* One warp: block column `warp` of A' = X B. X_iw^T = -(sum_k X_kw^T L_ik^T) X_ii^T. */
template <typename T, typename Blocks>
__device__ __forceinline__ void merge_column(uint32_t base, uint32_t gates, int warp)
{
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const float beta[2] = {load_shared_float(gates + HeadGates::kBeta + 4 * (16 * warp + g)),
                           load_shared_float(gates + HeadGates::kBeta + 4 * (16 * warp + g + 8))};
    const uint32_t inverse = base + PrepMap::kInverse, lower = base + PrepMap::kLower;
    const uint32_t A = base + PrepMap::kRecord + GDN_SM90_RECORD_A;
    typename Blocks::Operand x[kBlocks]; /* X_(warp + below),w^T */
#pragma unroll
    for (int below = 0; below < kBlocks; ++below) {
        const int i = warp + below;
        if (i < kBlocks) {
            float y[2][4] = {};
            if (below == 0) {
                Blocks::load_transposed(inverse + warp * Blocks::kBytes, x[0], y);
            } else {
                float z[2][4] = {};
#pragma unroll
                for (int k = 0; k < below; ++k) {
                    Blocks::multiply(z, x[k], lower + (i * (i - 1) / 2 + warp + k) * Blocks::kBytes);
                }
                typename Blocks::Operand z_operand;
                Blocks::make_operand(z_operand, z, -1.0f);
                Blocks::multiply(y, z_operand, inverse + i * Blocks::kBytes);
                Blocks::make_operand(x[below], y, 1.0f);
            }
            uint32_t r[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                r[e] = pack2<T>(beta[e % 2] * y[e / 2][2 * (e % 2)], beta[e % 2] * y[e / 2][2 * (e % 2) + 1]);
            }
            stmatrix_x4_transposed(A + swizzled(16 * i + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2), r);
        }
    }
}

/* One warp: row block `warp` of P. */
template <typename T>
__device__ __forceinline__ void store_P(const float (&qk)[32], uint32_t base, uint32_t gates, int warp)
{
    const int lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
    const float in_block[2] = {load_shared_float(gates + HeadGates::kInBlock + 4 * (16 * warp + g)),
                               load_shared_float(gates + HeadGates::kInBlock + 4 * (16 * warp + g + 8))};
    const float row[2] = {exp2_approx(in_block[0]), exp2_approx(in_block[1])};
    const uint32_t out = base + PrepMap::kRecord + GDN_SM90_RECORD_P;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        if (j <= warp) {
            float P[2][4];
            if (j < warp) {
                lower_decay(P, gates, warp, j, row);
            } else {
                diagonal_decay(P, gates, warp, in_block);
            }
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float x = P[n][c] * qk[4 * (2 * j + n) + c];
                    P[n][c] = j < warp || g + 8 * (c / 2) >= 8 * n + 2 * t + c % 2 ? x : 0.0f;
                }
            }
            const uint32_t r[4] = {pack2<T>(P[0][0], P[0][1]), pack2<T>(P[0][2], P[0][3]), pack2<T>(P[1][0], P[1][1]),
                                   pack2<T>(P[1][2], P[1][3])};
            stmatrix_x4(out + swizzled(16 * warp + lane / 8 % 2 * 8 + lane % 8, 2 * j + lane / 16), r);
        }
    }
}

/* One thread a row: the record's decay factors. */
__device__ __forceinline__ void store_decays(uint32_t base, uint32_t gates, int i)
{
    const uint32_t at = 4 * i, block = 4 * (i / 16);
    const uint32_t record = base + PrepMap::kRecord;
    const float decay = exp2_approx(load_shared_float(gates + HeadGates::kInBlock + at)) *
                        load_shared_float(gates + HeadGates::kStart + block);
    const float to_end =
        load_shared_float(gates + HeadGates::kTail + at) * load_shared_float(gates + HeadGates::kFinish + block);
    const float k_factor = load_shared_float(base + PrepMap::kKFactor + at);
    store_shared_float(record + GDN_SM90_RECORD_DECAY_K + at, decay * k_factor);
    store_shared_float(record + GDN_SM90_RECORD_DECAY_END + at, to_end * k_factor);
    store_shared_float(record + GDN_SM90_RECORD_DECAY_Q + at, decay * load_shared_float(base + PrepMap::kQFactor + at));
    if (i == 0) {
        store_shared_float(record + GDN_SM90_RECORD_END, load_shared_float(gates + HeadGates::kEnd));
    }
}

/* The slots of each sequence in the wave. */
__device__ __forceinline__ void store_runs(const gdn_sm90_prefill &p, const Wave &wave)
{
    const gdn_chunk *const chunks = wave.chunks;
    for (int slot = blockIdx.x * kPrepThreads + threadIdx.x; slot < wave.slots; slot += gridDim.x * kPrepThreads) {
        const int seq = chunks[slot].seq;
        if (seq >= 0) {
            if (slot == 0 || chunks[slot - 1].seq != seq) {
                p.runs[seq].first = slot;
            }
            if (slot == wave.slots - 1 || chunks[slot + 1].seq != seq) {
                p.runs[seq].end = slot + 1;
            }
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(kPrepThreads, 3) prep_kernel(const __grid_constant__ gdn_sm90_prefill p)
{
    const uint32_t base = shared_memory_base();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (threadIdx.x == 0) {
        mbarrier_init(base + PrepMap::kBarrier, 1);
        fence_mbarrier_init();
    }
    /* Blocks above the diagonal of A' and P are never written again; nor is the record's padding. */
    for (uint32_t at = 16 * threadIdx.x; at < GDN_SM90_RECORD_BYTES; at += 16 * kPrepThreads) {
        store_shared_16(base + PrepMap::kRecord + at, make_uint4(0, 0, 0, 0));
    }
    __syncthreads();

    const Wave wave = wave_of(p);
    PrepJob job = find_job(p, wave, blockIdx.x);
    RawGates raw = load_gates(p, job, warp);
    if (threadIdx.x == 0 && job.number >= 0) {
        load_tiles(p, job, base);
    }
    uint32_t parity = 0;
    while (job.number >= 0) {
        const PrepJob next = find_job(p, wave, job.number + gridDim.x);
        if (warp < job.count) {
            compute_gates(p, job, warp, raw, base + PrepMap::kGates + warp * PrepMap::kGatesBytes);
        }
        float kk[32], qk[32];
        mbarrier_wait(base + PrepMap::kBarrier, parity);
        parity ^= 1;
        compute_grams<T>(p, job.length, base, kk, qk);
        if (threadIdx.x == 0 && next.number >= 0) {
            load_tiles(p, next, base);
        }
        raw = load_gates(p, next, warp);

        for (int h = 0; h < job.count; ++h) {
            const uint32_t gates = base + PrepMap::kGates + h * PrepMap::kGatesBytes;
            const bool half = fits_half(base, gates);
            if (half) {
                store_lower<HalfBlocks>(kk, base, gates, warp);
                __syncwarp();
                invert_diagonal<HalfBlocks>(base, warp);
            } else {
                store_lower<Tf32Blocks>(kk, base, gates, warp);
                __syncwarp();
                invert_diagonal<Tf32Blocks>(base, warp);
            }
            if (threadIdx.x == 0) {
                bulk_wait_read(); /* the record before this one has left */
            }
            __syncthreads();
            if (half) {
                merge_column<T, HalfBlocks>(base, gates, warp);
            } else {
                merge_column<T, Tf32Blocks>(base, gates, warp);
            }
            store_P<T>(qk, base, gates, warp);
            if (warp >= 2) {
                store_decays(base, gates, threadIdx.x - 64);
            }
            fence_proxy_async();
            __syncthreads();
            if (threadIdx.x == 0) {
                unsigned char *const record =
                    p.records + (static_cast<int64_t>(job.slot) * p.num_v_heads + value_head(p, job, h)) *
                                    static_cast<int64_t>(GDN_SM90_RECORD_BYTES);
                bulk_store(record, base + PrepMap::kRecord, GDN_SM90_RECORD_USED);
                bulk_commit();
            }
        }
        job = next;
    }
    store_runs(p, wave);
    if (threadIdx.x == 0) {
        bulk_wait();
    }
}

} // namespace sm90
} // namespace gdn

#endif
