/* Fused prefill, first kernel: what a chunk needs that does not depend on the state.
 *
 * For each value head of one key head, on one chunk (letters of docs/algorithm.md):
 *
 *     L  = StrictLower(B (D o K K^T))     D_ij = exp(G_i - G_j)
 *     A' = (I + L)^-1 B                   P = scale D o Q K^T
 *
 * K K^T and Q K^T are computed once for all value heads of the key head. Normalisation of q and k multiplies rows
 * and columns of these products, so it costs no pass of its own. Warp w owns rows 16 w..16 w + 15 of the
 * products and, in the inverse, block column w.
 *
 *     warp 0..3: K K^T, Q K^T of row block w, kept in shared memory over the tiles, which are done with
 *     for each value head:
 *         warp w: L row block w to shared memory, P row block w to the record
 *         warp w: X_ww = (I + L_ww)^-1, 16 x 16, by substitution in float32, a lane a column
 *         barrier
 *         warp w < 3: X_iw = -X_ii sum_k L_ik X_kw for i > w, in TF32 with float32 sums; A' to the record
 *         warp 3: the decay factors to the record
 * The warp that has most blocks of L and P has least of the inverse, and the other way round.
 *
 * The inverse sees the decay (N form), so its entries stay small wherever the recurrence itself does; TF32
 * keeps float32's range for keys that are not normalised. Substitution inside 16 rows and block merges
 * never form powers of L.
 */
#include "device/element.cuh"
#include "device/gates.cuh"
#include "device/tile.cuh"
#include "fused_prefill.h"

#include <cuda_runtime.h>

namespace gdn
{
namespace
{

constexpr int kIntraThreads = 128;
constexpr int kBlocks = kChunk / 16;
constexpr int kBlockStride = 24; /* floats a row of a 16 x 16 block: 8-byte reads of 8 rows x 4 pairs hit 32 banks */
constexpr int kBlockFloats = 16 * kBlockStride;
constexpr int kDiagonalStride = 20; /* of L_ii transposed: a multiple of four floats, for 16-byte broadcast reads */

constexpr int kGramBytes = 2 * 10 * 2 * 512; /* both products' lower blocks, as the accumulators of their lanes */

/* One value head's blocks of the inverse; two of them, so that one barrier a head suffices. */
struct InverseBlocks {
    float lower[6 * kBlockFloats]; /* L_ij, i > j, rounded to TF32, at i (i - 1) / 2 + j */
    float diagonal[kBlocks * kBlockFloats]; /* L_ii transposed, then X_ii rounded to TF32 */
};

/* Shared memory: the tiles of k and q; once these are done with, the products and the blocks of two heads. Behind
 * them the norms and every head's gates. */
constexpr size_t kWorkBytes = kGramBytes + 2 * sizeof(InverseBlocks);

__host__ __device__ constexpr size_t front_bytes(int head_k_dim)
{
    const size_t tiles = size_t{2} * kChunk * head_k_dim * 2;
    return tiles > kWorkBytes ? tiles : kWorkBytes;
}

struct Norms {
    float k[kChunk], q[kChunk];
};

/* One value head's gates. G is kept to double precision as a sum of two floats: differences of G stay exact
 * after a token of strong decay. */
struct HeadGates {
    float G[kChunk], G_low[kChunk], beta[kChunk];
};

static_assert(kChunk == GDN_FUSED_CHUNK, "the record's layout is that of 64-row chunks");
static_assert(sizeof(InverseBlocks) % 16 == 0 && sizeof(Norms) % 16 == 0 && sizeof(HeadGates) % 16 == 0,
              "each part starts at 16 bytes");

__device__ __forceinline__ int64_t chunk_base(const gdn_fused_prefill &p, const gdn_fused_operand &x,
                                              const gdn_chunk &chunk)
{
    return p.equal_length ? chunk.seq * x.row_stride + static_cast<int64_t>(chunk.index) * kChunk * x.token_stride
                          : chunk.token * x.token_stride;
}

/* Queues rows 0..63 of one head's q or k; rows from `length` on become zeros and are not read. */
template <int K>
__device__ __forceinline__ void load_tile(uint32_t tile, const gdn_fused_prefill &p, const gdn_fused_operand &x,
                                          const gdn_chunk &chunk, int head)
{
    constexpr int kPieces = WideTile<K>::kPieces;
    constexpr int kRowsAtOnce = kIntraThreads / kPieces;
    const int piece = threadIdx.x % kPieces;
    const int first = threadIdx.x / kPieces;
    const uint16_t *source = static_cast<const uint16_t *>(x.data) + chunk_base(p, x, chunk) + head * x.head_stride +
                             first * x.token_stride + piece * 8;
#pragma unroll
    for (int pass = 0; pass < kChunk / kRowsAtOnce; ++pass) {
        const int row = first + pass * kRowsAtOnce;
        cp_async_16(tile + WideTile<K>::offset(row, piece), source, row < chunk.length);
        source += kRowsAtOnce * x.token_stride;
    }
}

/* One warp: G and beta of one value head, two neighbouring tokens a lane. Tokens past the chunk's length
 * have no decay and beta 0. */
__device__ __forceinline__ void compute_gates(const gdn_fused_prefill &p, const gdn_chunk &chunk, int head,
                                              HeadGates &gates)
{
    const int lane = threadIdx.x % 32;
    const int64_t gate_base = chunk_base(p, p.gate, chunk) + head * p.gate.head_stride;
    const int64_t beta_base = chunk_base(p, p.beta, chunk) + head * p.beta.head_stride;
    const bool raw = p.gate_form == GDN_GATE_RAW;
    const float A_log = raw ? p.A_log[head] : 0.0f;
    const float dt_bias = raw && p.dt_bias ? p.dt_bias[head] : 0.0f;
    float g[2], beta[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = 2 * lane + e;
        g[e] = 0.0f;
        beta[e] = 0.0f;
        if (i < chunk.length) {
            g[e] = log_decay_of(load_element(p.gate.data, p.gate.dtype, gate_base + i * p.gate.token_stride),
                                p.gate_form, A_log, dt_bias);
            beta[e] = beta_of(load_element(p.beta.data, p.beta.dtype, beta_base + i * p.beta.token_stride), p.beta_form,
                              p.beta_scale);
        }
    }
    const double pair = static_cast<double>(g[0]) + static_cast<double>(g[1]);
    double sum = pair;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double left = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? left : 0.0;
    }
    const double G[2] = {sum - static_cast<double>(g[1]), sum};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const float high = static_cast<float>(G[e]);
        gates.G[2 * lane + e] = high;
        gates.G_low[2 * lane + e] = static_cast<float>(G[e] - static_cast<double>(high));
        gates.beta[2 * lane + e] = beta[e];
    }
}

/* Normalisation factors of the rows in both tiles, two threads a row; 1 past the chunk's length. */
template <typename T, int K>
__device__ __forceinline__ void compute_norms(const gdn_fused_prefill &p, const gdn_chunk &chunk,
                                              const unsigned char *k_tile, const unsigned char *q_tile, Norms &norms)
{
    const int row = threadIdx.x / 2;
    const int half = threadIdx.x % 2;
    float k_sum = 0.0f, q_sum = 0.0f;
    if (p.qk_norm != GDN_QK_NORM_NONE) {
        for (int piece = half; piece < WideTile<K>::kPieces; piece += 2) {
            const uint32_t offset = WideTile<K>::offset(row, piece);
            const uint4 k4 = *reinterpret_cast<const uint4 *>(k_tile + offset);
            const uint4 q4 = *reinterpret_cast<const uint4 *>(q_tile + offset);
            const uint32_t k_words[4] = {k4.x, k4.y, k4.z, k4.w};
            const uint32_t q_words[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float2 k2 = unpack2<T>(k_words[e]);
                const float2 q2 = unpack2<T>(q_words[e]);
                k_sum = fmaf(k2.x, k2.x, fmaf(k2.y, k2.y, k_sum));
                q_sum = fmaf(q2.x, q2.x, fmaf(q2.y, q2.y, q_sum));
            }
        }
        k_sum += __shfl_xor_sync(0xffffffffu, k_sum, 1);
        q_sum += __shfl_xor_sync(0xffffffffu, q_sum, 1);
    }
    if (half == 0) {
        const bool inside = row < chunk.length;
        norms.k[row] = inside ? norm_factor(k_sum, p.qk_norm, p.qk_norm_eps) : 1.0f;
        norms.q[row] = inside ? norm_factor(q_sum, p.qk_norm, p.qk_norm_eps) : 1.0f;
    }
}

/* Rounds normalised rows back into both tiles and writes them to packed_qk. */
template <typename T, int K>
__device__ __forceinline__ void pack_tiles(const gdn_fused_prefill &p, int slot, int head, bool write,
                                           unsigned char *k_tile, unsigned char *q_tile, Norms &norms)
{
    constexpr int kPieces = WideTile<K>::kPieces;
    uint4 *const k_out =
        static_cast<uint4 *>(p.packed_qk) + (static_cast<int64_t>(slot) * p.num_k_heads + head) * 2 * kChunk * kPieces;
    uint4 *const q_out = k_out + kChunk * kPieces;
    for (int i = threadIdx.x; i < 2 * kChunk * kPieces; i += kIntraThreads) {
        const bool is_q = i >= kChunk * kPieces;
        const int j = is_q ? i - kChunk * kPieces : i;
        const int row = j / kPieces;
        const float factor = is_q ? norms.q[row] : norms.k[row];
        uint4 *const cell = reinterpret_cast<uint4 *>((is_q ? q_tile : k_tile) + WideTile<K>::offset(row, j % kPieces));
        const uint4 v = *cell;
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float2 x = unpack2<T>(words[e]);
            words[e] = pack2<T>(x.x * factor, x.y * factor);
        }
        *cell = make_uint4(words[0], words[1], words[2], words[3]);
        if (write) {
            (is_q ? q_out : k_out)[j] = *cell;
        }
    }
    __syncthreads();
    if (threadIdx.x < kChunk) {
        norms.k[threadIdx.x] = 1.0f;
        norms.q[threadIdx.x] = 1.0f;
    }
}

/* Where lane `lane` keeps accumulator n of block (i, j) of K K^T (which = 0) or Q K^T (1). */
__device__ __forceinline__ float4 *gram_cell(unsigned char *front, int which, int i, int j, int n)
{
    const int block = i * (i + 1) / 2 + j;
    return reinterpret_cast<float4 *>(front) + ((which * 10 + block) * 2 + n) * 32 + threadIdx.x % 32;
}

/* Row block `warp` of K K^T and Q K^T, blocks 0..warp, left over the tiles. */
template <typename T, int K>
__device__ __forceinline__ void compute_grams(unsigned char *front, uint32_t k_tile, uint32_t q_tile)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int a_row = 16 * warp + (lane / 8 % 2) * 8 + lane % 8;
    const int b_row = (lane / 16) * 8 + lane % 8;
    float gram[2][kBlocks][2][4] = {};
#pragma unroll 4
    for (int step = 0; step < K / 16; ++step) {
        uint32_t a_k[4], a_q[4];
        ldmatrix_x4(a_k, k_tile + WideTile<K>::offset(a_row, 2 * step + lane / 16));
        ldmatrix_x4(a_q, q_tile + WideTile<K>::offset(a_row, 2 * step + lane / 16));
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
            if (j <= warp) {
                uint32_t b[4];
                ldmatrix_x4(b, k_tile + WideTile<K>::offset(16 * j + b_row, 2 * step + lane / 8 % 2));
                mma_16816<T>(gram[0][j][0], a_k, b[0], b[1]);
                mma_16816<T>(gram[0][j][1], a_k, b[2], b[3]);
                mma_16816<T>(gram[1][j][0], a_q, b[0], b[1]);
                mma_16816<T>(gram[1][j][1], a_q, b[2], b[3]);
            }
        }
    }
    __syncthreads(); /* every warp is done with the tiles */
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                if (j <= warp) {
                    const float(&x)[4] = gram[which][j][n];
                    *gram_cell(front, which, warp, j, n) = make_float4(x[0], x[1], x[2], x[3]);
                }
            }
        }
    }
}

/* P's block, rounded, to the record. */
template <typename T>
__device__ __forceinline__ void store_p_block(unsigned char *record, int i, int j, const float (&P)[2][4])
{
    uint4 *const out = reinterpret_cast<uint4 *>(record + GDN_FUSED_P) + (i * (i + 1) / 2 + j) * 32 + threadIdx.x % 32;
    *out = make_uint4(pack2<T>(P[0][0], P[0][1]), pack2<T>(P[1][0], P[1][1]), pack2<T>(P[0][2], P[0][3]),
                      pack2<T>(P[1][2], P[1][3]));
}

/* One warp: L and P of its row block. L goes to shared memory (the diagonal block transposed), P to the record.
 * Left of the diagonal block D_ij = exp(G_i - G_r) exp(G_r - G_j), r the block's first row: both factors are at most 1,
 * and neither knows of a later token. */
template <typename T>
__device__ __forceinline__ void mask_row_block(const gdn_fused_prefill &p, const HeadGates &gates, const Norms &norms,
                                               unsigned char *front, InverseBlocks &blocks, unsigned char *record)
{
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float Gr = gates.G[16 * warp], Gr_low = gates.G_low[16 * warp];
    float Gi[2], Gi_low[2], l_factor[2], p_factor[2], from_r[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = 16 * warp + g + 8 * e;
        Gi[e] = gates.G[i];
        Gi_low[e] = gates.G_low[i];
        l_factor[e] = gates.beta[i] * norms.k[i];
        p_factor[e] = p.scale * norms.q[i];
        from_r[e] = decay_between(Gi[e], Gi_low[e], Gr, Gr_low);
    }
#pragma unroll 1
    for (int j = 0; j < warp; ++j) {
        float P[2][4];
        float *const out = blocks.lower + (warp * (warp - 1) / 2 + j) * kBlockFloats;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int col = 16 * j + 8 * n + 2 * t;
            const float4 kk4 = *gram_cell(front, 0, warp, j, n);
            const float4 qk4 = *gram_cell(front, 1, warp, j, n);
            const float kk[4] = {kk4.x, kk4.y, kk4.z, kk4.w};
            const float qk[4] = {qk4.x, qk4.y, qk4.z, qk4.w};
            const float2 Gj = *reinterpret_cast<const float2 *>(&gates.G[col]);
            const float2 Gj_low = *reinterpret_cast<const float2 *>(&gates.G_low[col]);
            const float2 norm = *reinterpret_cast<const float2 *>(&norms.k[col]);
            const float to_r[2] = {decay_between(Gr, Gr_low, Gj.x, Gj_low.x) * norm.x,
                                   decay_between(Gr, Gr_low, Gj.y, Gj_low.y) * norm.y};
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float l_row = l_factor[e] * from_r[e], p_row = p_factor[e] * from_r[e];
                *reinterpret_cast<uint2 *>(&out[(g + 8 * e) * kBlockStride + 8 * n + 2 * t]) =
                    make_uint2(round_tf32(l_row * to_r[0] * kk[2 * e]), round_tf32(l_row * to_r[1] * kk[2 * e + 1]));
                P[n][2 * e] = p_row * to_r[0] * qk[2 * e];
                P[n][2 * e + 1] = p_row * to_r[1] * qk[2 * e + 1];
            }
        }
        store_p_block<T>(record, warp, j, P);
    }
    float P[2][4];
    float *const out = blocks.diagonal + warp * kBlockFloats;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float4 kk4 = *gram_cell(front, 0, warp, warp, n);
        const float4 qk4 = *gram_cell(front, 1, warp, warp, n);
        const float kk[4] = {kk4.x, kk4.y, kk4.z, kk4.w};
        const float qk[4] = {qk4.x, qk4.y, qk4.z, qk4.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int e = c / 2;
            const int row = g + 8 * e, col = 8 * n + 2 * t + c % 2;
            const int j = 16 * warp + col;
            const float decay = decay_between(Gi[e], Gi_low[e], gates.G[j], gates.G_low[j]) * norms.k[j];
            out[col * kDiagonalStride + row] = row > col ? l_factor[e] * decay * kk[c] : 0.0f;
            P[n][c] = row >= col ? p_factor[e] * decay * qk[c] : 0.0f;
        }
    }
    store_p_block<T>(record, warp, warp, P);
}

/* One warp: X = (I + L)^-1 of its diagonal block by substitution, lane c and lane c + 16 both computing column c:
 * x_i = [i = c] - sum_{j < i} L_ij x_j, taken column by column of L so that the sums are independent. */
__device__ __forceinline__ void invert_diagonal(InverseBlocks &blocks)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int col = lane % 16;
    float *const L = blocks.diagonal + warp * kBlockFloats;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        x[i] = i == col ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 15; ++j) {
#pragma unroll
        for (int i4 = (j + 1) / 4; i4 < 4; ++i4) {
            const float4 l = *reinterpret_cast<const float4 *>(&L[j * kDiagonalStride + 4 * i4]);
            const float l_words[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if (4 * i4 + e > j) {
                    x[4 * i4 + e] = fmaf(-l_words[e], x[j], x[4 * i4 + e]);
                }
            }
        }
    }
    __syncwarp(); /* X takes L's place */
    if (lane < 16) {
        uint32_t *const out = reinterpret_cast<uint32_t *>(L);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            out[i * kBlockStride + col] = round_tf32(x[i]);
        }
    }
}

/* d += a b^T for one 16 x 16 block b in shared memory; a's columns are taken in the order 2t, 2t + 1 of an
 * accumulator, which lets accumulators serve as a without moving data (b is read in the same order). */
__device__ __forceinline__ void multiply_block(float (&d)[2][4], const uint32_t (&a)[2][4], const float *b)
{
    const int lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const uint2 b2 = *reinterpret_cast<const uint2 *>(&b[(8 * n + g) * kBlockStride + 8 * s + 2 * t]);
            mma_1688_tf32(d[n], a[s], b2.x, b2.y);
        }
    }
}

/* The two A operands, TF32, of a transposed block held as accumulators. */
__device__ __forceinline__ void to_operand(uint32_t (&a)[2][4], const float (&x)[2][4], float sign)
{
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        a[s][0] = round_tf32(sign * x[s][0]);
        a[s][1] = round_tf32(sign * x[s][2]);
        a[s][2] = round_tf32(sign * x[s][1]);
        a[s][3] = round_tf32(sign * x[s][3]);
    }
}

/* One warp: block column `warp` of A' = X B. X_iw^T = -(sum_k X_kw^T L_ik^T) X_ii^T. */
template <typename T>
__device__ __forceinline__ void merge_block_column(const HeadGates &gates, const InverseBlocks &blocks,
                                                   unsigned char *record)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int g = lane / 4, t = lane % 4;
    uint4 *const out = reinterpret_cast<uint4 *>(record + GDN_FUSED_A) + lane;
    const float *const X = blocks.diagonal + warp * kBlockFloats;
    {
        /* Diagonal block: columns 2t, 2t + 1 and 8 + 2t, 8 + 2t + 1 of rows g and g + 8. */
        float2 low[2], high[2];
        const float2 beta_low = *reinterpret_cast<const float2 *>(&gates.beta[16 * warp + 2 * t]);
        const float2 beta_high = *reinterpret_cast<const float2 *>(&gates.beta[16 * warp + 8 + 2 * t]);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            low[e] = *reinterpret_cast<const float2 *>(&X[(g + 8 * e) * kBlockStride + 2 * t]);
            high[e] = *reinterpret_cast<const float2 *>(&X[(g + 8 * e) * kBlockStride + 8 + 2 * t]);
        }
        out[(warp * (warp + 1) / 2 + warp) * 32] =
            make_uint4(pack2<T>(low[0].x * beta_low.x, low[0].y * beta_low.y),
                       pack2<T>(high[0].x * beta_high.x, high[0].y * beta_high.y),
                       pack2<T>(low[1].x * beta_low.x, low[1].y * beta_low.y),
                       pack2<T>(high[1].x * beta_high.x, high[1].y * beta_high.y));
    }
    const float beta[2] = {gates.beta[16 * warp + g], gates.beta[16 * warp + 8 + g]};
    uint32_t x[kBlocks][2][4]; /* X_kw^T as operands, k = warp + index */
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            x[0][s][c] = __float_as_uint(X[(8 * s + 2 * t + c / 2) * kBlockStride + g + 8 * (c % 2)]);
        }
    }
#pragma unroll
    for (int below = 1; below < kBlocks; ++below) {
        const int i = warp + below;
        if (i < kBlocks) {
            float z[2][4] = {}, y[2][4] = {};
#pragma unroll
            for (int k = 0; k < below; ++k) {
                multiply_block(z, x[k], blocks.lower + (i * (i - 1) / 2 + warp + k) * kBlockFloats);
            }
            uint32_t z_operand[2][4];
            to_operand(z_operand, z, -1.0f);
            multiply_block(y, z_operand, blocks.diagonal + i * kBlockFloats);
            to_operand(x[below], y, 1.0f);
            out[(i * (i + 1) / 2 + warp) * 32] =
                make_uint4(movmatrix_trans(pack2<T>(y[0][0] * beta[0], y[0][1] * beta[0])),
                           movmatrix_trans(pack2<T>(y[0][2] * beta[1], y[0][3] * beta[1])),
                           movmatrix_trans(pack2<T>(y[1][0] * beta[0], y[1][1] * beta[0])),
                           movmatrix_trans(pack2<T>(y[1][2] * beta[1], y[1][3] * beta[1])));
        }
    }
}

/* One warp: the record's decay factors. */
__device__ __forceinline__ void store_decays(const gdn_fused_prefill &p, const HeadGates &gates, const Norms &norms,
                                             unsigned char *record)
{
    const int lane = threadIdx.x % 32;
    const float G_end = gates.G[kChunk - 1], G_end_low = gates.G_low[kChunk - 1];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = lane + 32 * e;
        const float G = gates.G[i], G_low = gates.G_low[i];
        const float k_norm = norms.k[i];
        const float decay = decay_between(G, G_low, 0.0f, 0.0f);
        reinterpret_cast<float *>(record + GDN_FUSED_DECAY_K)[i] = decay * k_norm;
        reinterpret_cast<float *>(record + GDN_FUSED_DECAY_Q)[i] = decay * (p.scale * norms.q[i]);
        reinterpret_cast<float *>(record + GDN_FUSED_DECAY_END)[i] = decay_between(G_end, G_end_low, G, G_low) * k_norm;
        reinterpret_cast<float *>(record + GDN_FUSED_G)[i] = G;
        reinterpret_cast<float *>(record + GDN_FUSED_G_LOW)[i] = G_low;
        reinterpret_cast<float *>(record + GDN_FUSED_NORM)[i] = k_norm;
    }
    if (lane == 0) {
        *reinterpret_cast<float4 *>(record + GDN_FUSED_END) =
            make_float4(decay_between(G_end, G_end_low, 0.0f, 0.0f), 0.0f, 0.0f, 0.0f);
    }
}

template <typename T, int K>
__global__ void __launch_bounds__(kIntraThreads, 4) intra_kernel(const __grid_constant__ gdn_fused_prefill p)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char *const k_tile = smem;
    unsigned char *const q_tile = smem + WideTile<K>::kBytes;
    InverseBlocks *const blocks = reinterpret_cast<InverseBlocks *>(smem + kGramBytes);
    Norms &norms = *reinterpret_cast<Norms *>(smem + front_bytes(K));
    HeadGates *const gates = reinterpret_cast<HeadGates *>(smem + front_bytes(K) + sizeof(Norms));

    const int groups = (p.heads_per_group + p.heads_per_block - 1) / p.heads_per_block;
    const int group = blockIdx.x % groups;
    const int k_head = blockIdx.x / groups % p.num_k_heads;
    const int slot = blockIdx.x / groups / p.num_k_heads;
    const gdn_chunk chunk = p.chunks[p.wave_begin + slot];
    if (chunk.seq < 0 || chunk.length == 0) {
        return;
    }
    const int first = group * p.heads_per_block;
    const int count = min(p.heads_per_block, p.heads_per_group - first);
    const int warp = threadIdx.x / 32;

    load_tile<K>(smem_address(k_tile), p, p.k, chunk, k_head);
    load_tile<K>(smem_address(q_tile), p, p.q, chunk, k_head);
    cp_async_commit();
    for (int h = warp; h < count; h += kIntraThreads / 32) {
        const int v_head =
            p.tiled_heads ? (first + h) * p.num_k_heads + k_head : k_head * p.heads_per_group + first + h;
        compute_gates(p, chunk, v_head, gates[h]);
    }
    cp_async_wait<0>();
    __syncthreads();
    compute_norms<T, K>(p, chunk, k_tile, q_tile, norms);
    if (p.packed_qk) {
        __syncthreads();
        pack_tiles<T, K>(p, slot, k_head, group == 0, k_tile, q_tile, norms);
        __syncthreads();
    }

    compute_grams<T, K>(smem, smem_address(k_tile), smem_address(q_tile));

    for (int h = 0; h < count; ++h) {
        const int v_head =
            p.tiled_heads ? (first + h) * p.num_k_heads + k_head : k_head * p.heads_per_group + first + h;
        unsigned char *const record =
            p.records + (static_cast<int64_t>(slot) * p.num_v_heads + v_head) * GDN_FUSED_RECORD;
        InverseBlocks &own = blocks[h % 2];
        mask_row_block<T>(p, gates[h], norms, smem, own, record);
        __syncwarp();
        invert_diagonal(own);
        __syncthreads(); /* this head's blocks are there; all warps are done with those of the head before */
        merge_block_column<T>(gates[h], own, record);
        if (warp == kBlocks - 1) {
            store_decays(p, gates[h], norms, record);
        }
    }
}

template <typename T, int K> cudaError_t launch(const gdn_fused_prefill &p, cudaStream_t stream)
{
    const size_t smem = gdn_fused_intra_smem(K, p.heads_per_block);
    const int64_t groups = (p.heads_per_group + p.heads_per_block - 1) / p.heads_per_block;
    const int64_t blocks = p.wave_slots * groups * p.num_k_heads;
    const size_t most = gdn_fused_intra_smem(K, GDN_FUSED_MAX_HEADS_PER_BLOCK);
    const cudaError_t error =
        cudaFuncSetAttribute(intra_kernel<T, K>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most));
    if (error != cudaSuccess) {
        return error;
    }
    intra_kernel<T, K><<<static_cast<unsigned>(blocks), kIntraThreads, smem, stream>>>(p);
    return cudaPeekAtLastError();
}

template <typename T> cudaError_t launch_of_dim(const gdn_fused_prefill &p, cudaStream_t stream)
{
    switch (p.head_k_dim) {
    case 64:
        return launch<T, 64>(p, stream);
    case 128:
        return launch<T, 128>(p, stream);
    case 256:
        return launch<T, 256>(p, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace
} // namespace gdn

size_t gdn_fused_intra_smem(int32_t head_k_dim, int32_t heads_per_block)
{
    return gdn::front_bytes(head_k_dim) + sizeof(gdn::Norms) +
           static_cast<size_t>(heads_per_block) * sizeof(gdn::HeadGates);
}

int gdn_fused_intra_launch(const gdn_fused_prefill *prefill, struct CUstream_st *stream)
{
    return prefill->q.dtype == GDN_DTYPE_BF16 ? gdn::launch_of_dim<__nv_bfloat16>(*prefill, stream)
                                              : gdn::launch_of_dim<__half>(*prefill, stream);
}
