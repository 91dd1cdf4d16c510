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

#include "prep_blocks.cuh"
#include "prep_job.cuh"

namespace gdn
{
namespace sm90
{

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

/* The rows' sums of squares, from the diagonals of K K^T and Q Q^T. */
template <typename T>
__device__ __forceinline__ void square_rows(uint32_t base, int warp, float (&k_square)[2], float (&q_square)[2])
{
    const int g = threadIdx.x % 32 / 4;
    float kk[32], qq[32];
    wgmma_fence();
    multiply_tiles<T>(kk, base + PrepMap::kK, base + PrepMap::kK);
    multiply_tiles<T>(qq, base + PrepMap::kQ, base + PrepMap::kQ);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        k_square[e] = diagonal_entry(kk, warp, g, e);
        q_square[e] = diagonal_entry(qq, warp, g, e);
    }
}

/* Normalises both tiles where they lie, rounded, rows past the chunk's length becoming zeros, and writes them as they are
 * to packed_qk: float16 has not the range to leave this to the factors of later sums. */
template <typename T>
__device__ __forceinline__ void pack_tiles(const gdn_sm90_prefill &p, const PrepJob &job, uint32_t base)
{
    const int lane = threadIdx.x % 32;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int g = lane / 4, t = lane % 4;
    float k_square[2], q_square[2];
    square_rows<T>(base, warp, k_square, q_square);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        if (t == g / 2) {
            store_shared_float(base + PrepMap::kKFactor + at, norm_factor(k_square[e], p.qk_norm, p.qk_norm_eps));
            store_shared_float(base + PrepMap::kQFactor + at, norm_factor(q_square[e], p.qk_norm, p.qk_norm_eps));
        }
    }
    __syncthreads();
    constexpr int kTilePieces = PrepMap::kTile / 16;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * kTilePieces; i += kPrepThreads) {
        const bool is_q = i >= kTilePieces;
        const int row = i / 8 % kRows; /* eight pieces a row, two halves of columns */
        const float factor = load_shared_float(base + (is_q ? PrepMap::kQFactor : PrepMap::kKFactor) + 4 * row);
        const uint4 v = load_shared_16(base + PrepMap::kK + 16 * i);
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float2 x = unpack2<T>(words[e]);
            words[e] = row < job.length ? pack2<T>(x.x * factor, x.y * factor) : 0;
        }
        store_shared_16(base + PrepMap::kK + 16 * i, make_uint4(words[0], words[1], words[2], words[3]));
    }
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0 && job.first_head == 0) {
        unsigned char *const packed = p.packed_qk + (static_cast<int64_t>(job.slot) * p.num_k_heads + job.k_head) *
                                                        static_cast<int64_t>(GDN_SM90_PACKED_BYTES);
        bulk_store(packed, base + PrepMap::kK, GDN_SM90_PACKED_BYTES);
        bulk_commit();
    }
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
    const int norm = p.packed_qk ? GDN_QK_NORM_NONE : p.qk_norm; /* packed tiles are normalised ones */
    float q_square[2] = {0.0f, 0.0f};
    wgmma_fence();
    multiply_tiles<T>(kk, base + PrepMap::kK, base + PrepMap::kK);
    multiply_tiles<T>(qk, base + PrepMap::kQ, base + PrepMap::kK);
    wgmma_commit();
    wgmma_wait<0>();
    if (norm != GDN_QK_NORM_NONE) {
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
            const float k_factor = inside ? norm_factor(k_square, norm, p.qk_norm_eps) : 1.0f;
            const float q_factor = inside ? norm_factor(q_square[e], norm, p.qk_norm_eps) : 1.0f;
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
#ifdef GDN_SM90_HAS_CODE
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
        if (warp < job.count) {
            compute_gates(p, job, warp, raw, base + PrepMap::kGates + warp * PrepMap::kGatesBytes);
        }
        float kk[32], qk[32];
        mbarrier_wait(base + PrepMap::kBarrier, parity);
        parity ^= 1;
        if (std::is_same<T, __half>::value && p.packed_qk) {
            pack_tiles<T>(p, job, base);
        }
        const PrepJob next = find_job(p, wave, job.number + gridDim.x);
        compute_grams<T>(p, job.length, base, kk, qk);
        if (threadIdx.x == 0 && next.number >= 0) {
            if (p.packed_qk) {
                bulk_wait_read(); /* the tiles have left */
            }
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
#endif
}

} // namespace sm90
} // namespace gdn

#endif
