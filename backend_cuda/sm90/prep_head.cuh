/* What a chunk of one value head needs that does not depend on the state, a step a function: K K^T and Q K^T, L, its inverse,
 * A' and P. A warpgroup works on it, warp w of it on row block or block column w; barriers are the caller's. prep_kernel.cuh
 * says how the steps go together. The lane is given, so that a caller short of registers can keep what follows from it inside
 * a loop. */
#ifndef GDN_CUDA_SM90_PREP_HEAD_CUH
#define GDN_CUDA_SM90_PREP_HEAD_CUH

#include "prep_blocks.cuh"
#include "prep_job.cuh"

namespace gdn
{
namespace sm90
{

/* gram (+)= a b^T for two chunks of rows of K elements, their tiles kPitch bytes apart; all of its steps, or some. */
template <typename T, int kHeadK = 128, uint32_t kPitch = 8192>
__device__ __forceinline__ void multiply_tiles(float (&gram)[32], uint32_t a, uint32_t b, int from = 0,
                                               int to = kHeadK / 16)
{
#pragma unroll
    for (int step = from; step < to; ++step) {
        const uint32_t offset = step / 4 * kPitch + step % 4 * 32;
        wgmma_ss<T>(gram, wgmma_operand(a) + wgmma_offset(offset), wgmma_operand(b) + wgmma_offset(offset), step > 0);
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

/* Sums of squares of a tile's rows that this lane holds, from the diagonal of the tile times its transpose. */
template <typename T, int kHeadK = 128, uint32_t kPitch = 8192>
__device__ __forceinline__ void square_rows(float (&square)[2], uint32_t tile, int warp, int lane)
{
    const int g = lane / 4;
    float gram[32];
    wgmma_fence();
    multiply_tiles<T, kHeadK, kPitch>(gram, tile, tile);
    wgmma_commit();
    wgmma_wait<0>();
    square[0] = diagonal_entry(gram, warp, g, 0);
    square[1] = diagonal_entry(gram, warp, g, 1);
}

/* A chunk's row factors and squares to shared memory, from K K^T and the squares of q's rows that this lane holds. */
__device__ __forceinline__ void store_row_factors(const gdn_sm90_prefill &p, int norm, int length, uint32_t base,
                                                  int warp, int lane, const float (&kk)[32], const float (&q_square)[2])
{
    const int g = lane / 4, t = lane % 4;
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
}

/* K K^T or Q K^T of normalised rows, whose factors are at `rows`. */
__device__ __forceinline__ void scale_gram(float (&gram)[32], uint32_t base, uint32_t rows, int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    const float row[2] = {load_shared_float(rows + 4 * (16 * warp + g)),
                          load_shared_float(rows + 4 * (16 * warp + g + 8))};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float2 column = load_shared_float2(base + PrepMap::kKFactor + 4 * (8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            gram[4 * n + c] *= row[c / 2] * (c % 2 ? column.y : column.x);
        }
    }
}

/* Zeroes rows and columns from `length` on. */
__device__ __forceinline__ void mask_gram(float (&gram)[32], int length, int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const bool inside = 16 * warp + g + 8 * (c / 2) < length && 8 * n + 2 * t + c % 2 < length;
            gram[4 * n + c] = inside ? gram[4 * n + c] : 0.0f;
        }
    }
}

/* Whether float16 holds L and its inverse: 2.05 and 1.05 leave room for keys that were normalised, then rounded. */
template <typename T> __device__ __forceinline__ bool fits_half(uint32_t base, uint32_t gates, int lane)
{
    const float2 square = load_shared_float2(base + PrepMap::kKSquare + 8 * lane);
    const float2 beta = unpack2<T>(load_shared_u32(gates + HeadGates::kBeta + 4 * lane));
    const bool fits =
        fmaxf(square.x, square.y) <= 1.05f && fabsf(beta.x) * square.x <= 2.05f && fabsf(beta.y) * square.y <= 2.05f;
    return __all_sync(0xffffffffu, fits) != 0;
}

/* exp(G_i - G_j) inside the diagonal block, for column 2t + 8 n + c % 2 and row g + 8 (c / 2); garbage above it. */
__device__ __forceinline__ void diagonal_decay(float (&decay)[2][4], uint32_t gates, int warp, int lane,
                                               const float (&in_block)[2])
{
    const int t = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 column = load_shared_float2(gates + HeadGates::kColumn + 4 * (16 * warp + 8 * n + 2 * t));
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            decay[n][c] = exp2_approx(in_block[c / 2] - (c % 2 ? column.y : column.x));
        }
    }
}

/* exp(G_i - G_j) of block (warp, j) below the diagonal, times a factor a row. */
__device__ __forceinline__ void lower_decay(float (&decay)[2][4], uint32_t gates, int warp, int lane, int j,
                                            const float (&row)[2])
{
    const int t = lane % 4;
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

/* One warp: row block `warp` of -L to shared memory, the diagonal block transposed. */
template <typename T, typename Blocks>
__device__ __forceinline__ void store_lower(const float (&kk)[32], uint32_t base, uint32_t gates, int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    float minus_beta[2], in_block[2], row[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const uint32_t at = 4 * (16 * warp + g + 8 * e);
        minus_beta[e] = -HeadGates::beta<T>(gates, 16 * warp + g + 8 * e);
        in_block[e] = load_shared_float(gates + HeadGates::kInBlock + at);
        row[e] = minus_beta[e] * exp2_approx(in_block[e]);
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        if (j < warp) {
            float L[2][4];
            lower_decay(L, gates, warp, lane, j, row);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    L[n][c] *= kk[4 * (2 * j + n) + c];
                }
            }
            Blocks::store(lane, base + PrepMap::kLower + (warp * (warp - 1) / 2 + j) * Blocks::kBytes, L);
        } else if (j == warp) {
            float L[2][4];
            diagonal_decay(L, gates, warp, lane, in_block);
            const uint32_t out = base + PrepMap::kDiagonal + warp * (16 * PrepMap::kDiagonalStride * 4);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int i = g + 8 * (c / 2), column = 8 * n + 2 * t + c % 2;
                    const float x = minus_beta[c / 2] * L[n][c] * kk[4 * (2 * j + n) + c];
                    store_shared_float(out + 4 * (column * PrepMap::kDiagonalStride + i), i > column ? x : 0.0f);
                }
            }
        }
    }
}

/* One warp: X = (I + L)^-1 of its diagonal block, of two triangles of 8 x 8 and a square: X_10 = X_11 (-L_10) X_00.
 *
 * Lane 8 b + c finds column c of X_bb, x_i = [i = c] - sum_{j < i} L_ij x_j, a column of L at a time so that the sums are
 * independent; lane 16 + 8 b + c does the same, and stores the other half of it. */
template <typename Blocks> __device__ __forceinline__ void invert_diagonal(uint32_t base, int warp, int lane)
{
    const int first = lane & 8, column = lane % 8;
    const uint32_t L = base + PrepMap::kDiagonal + warp * (16 * PrepMap::kDiagonalStride * 4);
    const uint32_t triangle = L + 4 * (first * PrepMap::kDiagonalStride + first);
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        x[i] = i == column ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 7; ++j) {
#pragma unroll
        for (int i4 = (j + 1) / 4; i4 < 2; ++i4) {
            const uint4 l = load_shared_16(triangle + 4 * (j * PrepMap::kDiagonalStride + 4 * i4));
            const uint32_t words[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if (4 * i4 + e > j) {
                    x[4 * i4 + e] = fmaf(__uint_as_float(words[e]), x[j], x[4 * i4 + e]);
                }
            }
        }
    }
    const uint32_t out = base + PrepMap::kInverse + warp * Blocks::kBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        Blocks::store_element(out, first + i + lane / 16 * 4, first + column, lane < 16 ? x[i] : x[4 + i]);
    }
    Blocks::clear_upper(lane, out);
    /* -L_10, transposed: columns 0..7, rows 8..15. */
    const uint32_t square = L + 4 * (2 * (lane % 4) * PrepMap::kDiagonalStride + 8 + lane / 4);
    const float l[2] = {load_shared_float(square), load_shared_float(square + 4 * PrepMap::kDiagonalStride)};
    __syncwarp();
    Blocks::fill_lower(lane, out, l);
}

/* One warp: block column `warp` of A' = X B. X_iw^T = (sum_k X_kw^T (-L_ik)^T) X_ii^T. */
template <typename T, typename Blocks>
__device__ __forceinline__ void merge_column(uint32_t base, uint32_t record, uint32_t gates, int warp, int lane)
{
    const int g = lane / 4;
    uint32_t lower = base + PrepMap::kLower + (warp * (warp + 1) / 2 + warp) * Blocks::kBytes; /* L_(w+1),w */
    uint32_t inverse = base + PrepMap::kInverse + warp * Blocks::kBytes;
    const uint32_t A =
        record + GDN_SM90_RECORD_A + 16 * 128 * warp + swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
    typename Blocks::Operand x[kBlocks]; /* X_(warp + below),w^T */
    float y[2][4];
    Blocks::load_transposed(lane, inverse, x[0], y);
    const float beta[2] = {HeadGates::beta<T>(gates, 16 * warp + g), HeadGates::beta<T>(gates, 16 * warp + g + 8)};
#pragma unroll
    for (int below = 0; below < kBlocks; ++below) {
        if (warp + below < kBlocks) {
            if (below > 0) {
                typename Blocks::Factor
                    factors[kBlocks]; /* L_ik, k >= w, and X_ii: all loaded before the first is used */
#pragma unroll
                for (int k = 0; k < below; ++k) {
                    Blocks::load(lane, factors[k], lower + k * Blocks::kBytes);
                }
                inverse += Blocks::kBytes;
                Blocks::load(lane, factors[below], inverse);
                lower += (warp + below) * Blocks::kBytes;
                float z[2][4] = {};
#pragma unroll
                for (int k = 0; k < below; ++k) {
                    Blocks::multiply(z, x[k], factors[k]);
                }
                typename Blocks::Operand z_operand;
                Blocks::make_operand(z_operand, z);
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    y[e / 4][e % 4] = 0.0f;
                }
                Blocks::multiply(y, z_operand, factors[below]);
                Blocks::make_operand(x[below], y);
            }
            uint32_t r[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                r[e] = pack2<T>(beta[e % 2] * y[e / 2][2 * (e % 2)], beta[e % 2] * y[e / 2][2 * (e % 2) + 1]);
            }
            stmatrix_x4_trans(A + 16 * 128 * below, r);
        }
    }
}

/* One warp: row block `warp` of P. */
template <typename T>
__device__ __forceinline__ void store_P(const float (&qk)[32], uint32_t record, uint32_t gates, int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    const float in_block[2] = {load_shared_float(gates + HeadGates::kInBlock + 4 * (16 * warp + g)),
                               load_shared_float(gates + HeadGates::kInBlock + 4 * (16 * warp + g + 8))};
    const float row[2] = {exp2_approx(in_block[0]), exp2_approx(in_block[1])};
    const uint32_t out = record + GDN_SM90_RECORD_P;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
        if (j <= warp) {
            float P[2][4];
            if (j < warp) {
                lower_decay(P, gates, warp, lane, j, row);
            } else {
                diagonal_decay(P, gates, warp, lane, in_block);
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

/* Threads 0..kPGatesPieces - 1: what P is made of, to the record. */
constexpr int kPGatesPieces = (GDN_SM90_RECORD_USED - GDN_SM90_RECORD_GATES) / 16;

__device__ __forceinline__ void store_P_gates(uint32_t base, uint32_t record, uint32_t gates, int thread)
{
    constexpr int kOfHead = (GDN_SM90_RECORD_K_FACTOR - GDN_SM90_RECORD_GATES) / 16;
    static_assert(16 * kOfHead == HeadGates::kStart - HeadGates::kInBlock &&
                      PrepMap::kQFactor == PrepMap::kKFactor + 256,
                  "pieces in a row");
    if (thread < kPGatesPieces) {
        const uint32_t from = thread < kOfHead ? gates + HeadGates::kInBlock : base + PrepMap::kKFactor - 16 * kOfHead;
        store_shared_16(record + GDN_SM90_RECORD_GATES + 16 * thread, load_shared_16(from + 16 * thread));
    }
}

/* One thread a row: the record's decay factors. */
__device__ __forceinline__ void store_decays(uint32_t base, uint32_t record, uint32_t gates, int i)
{
    const uint32_t at = 4 * i, block = 4 * (i / 16);
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

} // namespace sm90
} // namespace gdn

#endif
