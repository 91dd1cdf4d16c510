/* Batched products of small matrices: C = alpha op(A) op(B) + beta C.
 *
 * A block computes a 64 x 64 tile of one entry, 16 deep at a time. Tiles of op(A) and op(B) lie in shared memory as
 * [depth][row or column], double-buffered: while one pair is multiplied the next is on its way in registers.
 *
 * Float32 products are made of three TF32 products. x = big + small, each the nearest TF32 (11 bits), and
 *     x y = big big + big small + small big     (small small is under 2^-22 of the product)
 * with float32 sums. That is float32's accuracy at about twice the rate of the float32 units. An entry's bits depend
 * on nothing but its operands.
 */
#include "matmul_tiled.h"
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kTileSize = 64;
constexpr int kDepth = 16;
constexpr int kMatmulThreads = 128;
constexpr int kStride = kTileSize + 8; /* 8 mod 32: a fragment's 4 depths x 8 rows are 32 banks */

struct Operand {
    float *data;
    int64_t ld, stride0, stride1, stride2;
    const int32_t *outer_index;
};

struct Product {
    int32_t m, n, k;
    float alpha, beta;
    int64_t batch1, batch2, blocks;
    int32_t tiles_m, tiles_n;
    Operand a, b, c;
};

__device__ __forceinline__ uint32_t tf32_of(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* A thread's share of a tile of an operand: two groups of four elements. kAlongDepth: memory is contiguous along the
 * depth (A as it is, B transposed), else along the tile's rows or columns. Outside the matrix there are zeros. */
template <bool kAlongDepth, bool kVector> struct Share {
    float4 group[2];

    static __device__ __forceinline__ void place(int g, int *at, int *depth)
    {
        if (kAlongDepth) {
            *depth = g % 2 * 4 + g / 128 * 8;
            *at = g / 2 % kTileSize;
        } else {
            *at = g % (kTileSize / 4) * 4;
            *depth = g / (kTileSize / 4);
        }
    }

    __device__ __forceinline__ void load(const float *base, int64_t ld, int at0, int at_end, int depth0, int depth_end)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at;
            int depth;
            place(static_cast<int>(threadIdx.x) + i * kMatmulThreads, &at, &depth);
            at += at0;
            depth += depth0;
            const float *const p = kAlongDepth ? base + at * ld + depth : base + depth * ld + at;
            const int left = kAlongDepth ? depth_end - depth : at_end - at;
            const bool inside = at < at_end && depth < depth_end;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (kVector) {
                if (inside) {
                    x = *reinterpret_cast<const float4 *>(p);
                }
            } else if (inside) {
                x.x = p[0];
                x.y = left > 1 ? p[1] : 0.0f;
                x.z = left > 2 ? p[2] : 0.0f;
                x.w = left > 3 ? p[3] : 0.0f;
            }
            group[i] = x;
        }
    }

    __device__ __forceinline__ void store(float *tile) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at;
            int depth;
            place(static_cast<int>(threadIdx.x) + i * kMatmulThreads, &at, &depth);
            if (kAlongDepth) {
                tile[depth * kStride + at] = group[i].x;
                tile[(depth + 1) * kStride + at] = group[i].y;
                tile[(depth + 2) * kStride + at] = group[i].z;
                tile[(depth + 3) * kStride + at] = group[i].w;
            } else {
                *reinterpret_cast<float4 *>(tile + depth * kStride + at) = group[i];
            }
        }
    }
};

/* Four warps, 32 x 32 of the tile each: 2 x 4 fragments. */
template <bool kThreeTerms>
__device__ __forceinline__ void multiply_tile(const float *A, const float *B, float (&c)[2][4][4])
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const float *const a0 = A + warp / 2 * 32 + g;
    const float *const b0 = B + warp % 2 * 32 + g;
#pragma unroll
    for (int depth = 0; depth < kDepth; depth += 8) {
        uint32_t a_big[2][4];
        uint32_t a_small[2][4];
        uint32_t b_big[4][2];
        uint32_t b_small[4][2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const float x = a0[(depth + t + r / 2 * 4) * kStride + i * 16 + r % 2 * 8];
                a_big[i][r] = tf32_of(x);
                a_small[i][r] = kThreeTerms ? tf32_of(x - __uint_as_float(a_big[i][r])) : 0;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float x = b0[(depth + t + r * 4) * kStride + j * 8];
                b_big[j][r] = tf32_of(x);
                b_small[j][r] = kThreeTerms ? tf32_of(x - __uint_as_float(b_big[j][r])) : 0;
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (kThreeTerms) {
                    mma_tf32(c[i][j], a_small[i], b_big[j]);
                    mma_tf32(c[i][j], a_big[i], b_small[j]);
                }
                mma_tf32(c[i][j], a_big[i], b_big[j]);
            }
        }
    }
}

__device__ __forceinline__ int64_t entry_offset(const Operand &x, int64_t b0, int64_t b1, int64_t b2)
{
    const int64_t outer = x.outer_index != nullptr ? x.outer_index[b0] : b0;
    return outer < 0 ? -1 : outer * x.stride0 + b1 * x.stride1 + b2 * x.stride2;
}

template <bool kThreeTerms, bool kTransposeA, bool kTransposeB, bool kVector>
__global__ void __launch_bounds__(kMatmulThreads) matmul_kernel(const Product p)
{
    __shared__ __align__(16) float A[2][kDepth * kStride];
    __shared__ __align__(16) float B[2][kDepth * kStride];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;

    for (int64_t block = blockIdx.x; block < p.blocks; block += gridDim.x) {
        const int32_t tiles = p.tiles_m * p.tiles_n;
        const int64_t entry = block / tiles;
        const int32_t tile = static_cast<int32_t>(block - entry * tiles);
        const int32_t m0 = tile / p.tiles_n * kTileSize;
        const int32_t n0 = tile % p.tiles_n * kTileSize;
        const int64_t b2 = entry % p.batch2;
        const int64_t b1 = entry / p.batch2 % p.batch1;
        const int64_t b0 = entry / (p.batch2 * p.batch1);
        const int64_t a_offset = entry_offset(p.a, b0, b1, b2);
        const int64_t b_offset = entry_offset(p.b, b0, b1, b2);
        const int64_t c_offset = entry_offset(p.c, b0, b1, b2);
        if (a_offset < 0 || b_offset < 0 || c_offset < 0) {
            continue;
        }
        const float *const a = p.a.data + a_offset;
        const float *const b = p.b.data + b_offset;

        float c[2][4][4] = {};
        Share<!kTransposeA, kVector> a_share;
        Share<kTransposeB, kVector> b_share;
        a_share.load(a, p.a.ld, m0, p.m, 0, p.k);
        b_share.load(b, p.b.ld, n0, p.n, 0, p.k);
        a_share.store(A[0]);
        b_share.store(B[0]);
        __syncthreads();
        int stage = 0;
        for (int32_t depth = 0; depth < p.k; depth += kDepth) {
            const bool more = depth + kDepth < p.k;
            if (more) {
                a_share.load(a, p.a.ld, m0, p.m, depth + kDepth, p.k);
                b_share.load(b, p.b.ld, n0, p.n, depth + kDepth, p.k);
            }
            multiply_tile<kThreeTerms>(A[stage], B[stage], c);
            if (more) {
                a_share.store(A[stage ^ 1]);
                b_share.store(B[stage ^ 1]);
            }
            stage ^= 1;
            __syncthreads();
        }

        const int32_t row0 = m0 + warp / 2 * 32 + lane / 4;
        const int32_t col0 = n0 + warp % 2 * 32 + lane % 4 * 2;
        float *const out = p.c.data + c_offset;
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int32_t row = row0 + i * 16 + half * 8;
                    const int32_t col = col0 + j * 8;
                    if (row >= p.m || col >= p.n) {
                        continue;
                    }
                    float *const at = out + row * p.c.ld + col;
                    float2 x = make_float2(p.alpha * c[i][j][half * 2], p.alpha * c[i][j][half * 2 + 1]);
                    if (kVector) {
                        if (p.beta != 0.0f) {
                            const float2 old = *reinterpret_cast<const float2 *>(at);
                            x = make_float2(x.x + p.beta * old.x, x.y + p.beta * old.y);
                        }
                        *reinterpret_cast<float2 *>(at) = x;
                    } else {
                        at[0] = p.beta != 0.0f ? x.x + p.beta * at[0] : x.x;
                        if (col + 1 < p.n) {
                            at[1] = p.beta != 0.0f ? x.y + p.beta * at[1] : x.y;
                        }
                    }
                }
            }
        }
        __syncthreads();
    }
}

Operand operand_of(const gdn_batch_matrix &x)
{
    return {x.data, x.ld, x.stride[0], x.stride[1], x.stride[2], x.outer_index};
}

/* Whether every group of four elements is at 16 bytes and wholly inside or outside the matrix. */
bool is_vector(const gdn_batch_matrix &x, int32_t contiguous)
{
    const int64_t all = x.ld | x.stride[0] | x.stride[1] | x.stride[2] | contiguous;
    return all % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

template <bool kThreeTerms, bool kTransposeA, bool kTransposeB>
void launch(const Product &p, bool vector, cudaStream_t stream)
{
    const unsigned grid = grid_size(p.blocks);
    if (vector) {
        matmul_kernel<kThreeTerms, kTransposeA, kTransposeB, true><<<grid, kMatmulThreads, 0, stream>>>(p);
    } else {
        matmul_kernel<kThreeTerms, kTransposeA, kTransposeB, false><<<grid, kMatmulThreads, 0, stream>>>(p);
    }
}

template <bool kThreeTerms> void launch(const Product &p, const gdn_matmul *matmul, bool vector, cudaStream_t stream)
{
    if (matmul->transpose_a) {
        if (matmul->transpose_b) {
            launch<kThreeTerms, true, true>(p, vector, stream);
        } else {
            launch<kThreeTerms, true, false>(p, vector, stream);
        }
    } else {
        if (matmul->transpose_b) {
            launch<kThreeTerms, false, true>(p, vector, stream);
        } else {
            launch<kThreeTerms, false, false>(p, vector, stream);
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_matmul_tiled(const gdn_prefill_run *run, const gdn_matmul *matmul)
{
    Product p = {};
    p.m = matmul->m;
    p.n = matmul->n;
    p.k = matmul->k;
    p.alpha = matmul->alpha;
    p.beta = matmul->beta;
    p.batch1 = matmul->batch[1];
    p.batch2 = matmul->batch[2];
    p.tiles_m = (p.m + kTileSize - 1) / kTileSize;
    p.tiles_n = (p.n + kTileSize - 1) / kTileSize;
    p.blocks = matmul->batch[0] * matmul->batch[1] * matmul->batch[2] * p.tiles_m * p.tiles_n;
    p.a = operand_of(matmul->a);
    p.b = operand_of(matmul->b);
    p.c = operand_of(matmul->c);
    if (p.blocks == 0) {
        return GDN_OK;
    }
    const bool vector = is_vector(matmul->a, matmul->transpose_a ? p.m : p.k) &&
                        is_vector(matmul->b, matmul->transpose_b ? p.k : p.n) && is_vector(matmul->c, p.n);
    if (matmul->numerics == GDN_NUMERICS_TF32) {
        launch<false>(p, matmul, vector, stream_of(run));
    } else {
        launch<true>(p, matmul, vector, stream_of(run));
    }
    return gdn_cuda_launched("matmul");
}
