/* Batched products of small matrices: C = alpha op(A) op(B) + beta C.
 *
 * A block computes a tile of one entry, 64 columns by 64 or 32 rows, 16 deep at a time. Tiles of op(A) and op(B) come
 * into a ring of kStages pairs in shared memory by cp.async, as they lie: [row][depth] or [depth][row].
 *
 *     stage s + 3 on its way | stage s + 2, s + 1 there or on their way | stage s: four warps multiply
 *
 * Float32 products are three products of TF32 terms (matmul_terms.cuh). An entry's bits depend on nothing but its
 * operands: every element's sum runs in the same order in a tile of either size.
 */
#include "matmul_tiled.h"

#include "matmul_terms.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kTileCols = 64;
constexpr int kDepth = 16;
constexpr int kStages = 4;
static_assert(kDepth == kSumDepth, "a tile's depth is what one tensor-core sum runs over");
constexpr int kMatmulThreads = 128;

/* Blocks that a multiprocessor is to hold: as many as registers allow without spilling. Compiled for 9.0 four fit. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int kTileRows> constexpr int kResident = kTileRows == 64 ? 3 : 4;
#else
template <int kTileRows> constexpr int kResident = 4;
#endif

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

/* A tile of an operand in shared memory. kAlongDepth: memory is contiguous along the depth (A as it is, B transposed),
 * else along the tile's rows (of B: columns). Rows are padded so that a fragment's 8 rows x 4 depths are 32 banks. */
template <bool kAlongDepth, int kRows> struct Tile {
    static constexpr int kStride = kAlongDepth ? kDepth + 4 : kRows + 8;
    static constexpr int kFloats = kAlongDepth ? kRows * kStride : kDepth * kStride;

    static __device__ __forceinline__ int at(int row, int depth)
    {
        return kAlongDepth ? row * kStride + depth : depth * kStride + row;
    }

    /* Queues the tile's copies; outside the matrix there are zeros. kVector: groups of four lie wholly in or out. */
    template <bool kVector>
    static __device__ __forceinline__ void load(float *tile, const float *base, int64_t ld, int row0, int row_end,
                                                int depth0, int depth_end)
    {
        constexpr int kGroup = kVector ? 4 : 1;
        constexpr int kInner = (kAlongDepth ? kDepth : kRows) / kGroup;
#pragma unroll
        for (int g = threadIdx.x; g < kRows * kDepth / kGroup; g += kMatmulThreads) {
            const int inner = g % kInner * kGroup;
            const int outer = g / kInner;
            const int row = kAlongDepth ? outer : inner;
            const int depth = kAlongDepth ? inner : outer;
            const bool inside = row0 + row < row_end && depth0 + depth < depth_end;
            const float *const src =
                kAlongDepth ? base + (row0 + row) * ld + depth0 + depth : base + (depth0 + depth) * ld + row0 + row;
            const uint32_t dst = smem_address(tile + at(row, depth));
            if (kVector) {
                cp_async_16(dst, inside ? src : base, inside);
            } else {
                cp_async_4(dst, inside ? src : base, inside);
            }
        }
    }
};

template <bool kThreeTerms, bool kTransposeA, bool kTransposeB, bool kVector, int kTileRows>
__global__ void __launch_bounds__(kMatmulThreads, kResident<kTileRows>) matmul_kernel(const Product p)
{
    using TileA = Tile<!kTransposeA, kTileRows>;
    using TileB = Tile<kTransposeB, kTileCols>;
    constexpr int kFragments = kTileRows / 32; /* of 16 rows, a warp */
    __shared__ __align__(16) float A[kStages][TileA::kFloats];
    __shared__ __align__(16) float B[kStages][TileB::kFloats];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int warp_row = warp / 2 * (kTileRows / 2);
    const int warp_col = warp % 2 * 32;

    for (int64_t block = blockIdx.x; block < p.blocks; block += gridDim.x) {
        const int32_t tiles = p.tiles_m * p.tiles_n;
        const int64_t entry = block / tiles;
        const int32_t tile = static_cast<int32_t>(block - entry * tiles);
        const int32_t m0 = tile / p.tiles_n * kTileRows;
        const int32_t n0 = tile % p.tiles_n * kTileCols;
        const int64_t b2 = entry % p.batch2;
        const int64_t b1 = entry / p.batch2 % p.batch1;
        const int64_t b0 = entry / (p.batch2 * p.batch1);
        const int64_t a_outer = p.a.outer_index != nullptr ? p.a.outer_index[b0] : b0;
        const int64_t b_outer = p.b.outer_index != nullptr ? p.b.outer_index[b0] : b0;
        const int64_t c_outer = p.c.outer_index != nullptr ? p.c.outer_index[b0] : b0;
        if (a_outer < 0 || b_outer < 0 || c_outer < 0) {
            continue;
        }
        const float *const a = p.a.data + a_outer * p.a.stride0 + b1 * p.a.stride1 + b2 * p.a.stride2;
        const float *const b = p.b.data + b_outer * p.b.stride0 + b1 * p.b.stride1 + b2 * p.b.stride2;
        float *const c = p.c.data + c_outer * p.c.stride0 + b1 * p.c.stride1 + b2 * p.c.stride2;

        float sum[kFragments][4][4] = {};
        float part[kFragments][4][4] = {};
#pragma unroll
        for (int s = 0; s < kStages - 1; s++) {
            if (s * kDepth < p.k) {
                TileA::template load<kVector>(A[s], a, p.a.ld, m0, p.m, s * kDepth, p.k);
                TileB::template load<kVector>(B[s], b, p.b.ld, n0, p.n, s * kDepth, p.k);
            }
            cp_async_commit();
        }
        int stage = 0;
        for (int32_t depth0 = 0; depth0 < p.k; depth0 += kDepth) {
            cp_async_wait<kStages - 2>();
            __syncthreads();
            const int32_t ahead = depth0 + (kStages - 1) * kDepth;
            if (ahead < p.k) {
                const int to = (stage + kStages - 1) % kStages;
                TileA::template load<kVector>(A[to], a, p.a.ld, m0, p.m, ahead, p.k);
                TileB::template load<kVector>(B[to], b, p.b.ld, n0, p.n, ahead, p.k);
            }
            cp_async_commit();
#pragma unroll
            for (int depth = 0; depth < kDepth; depth += 8) {
                Terms<kThreeTerms, 4> a_terms[kFragments];
                Terms<kThreeTerms, 2> b_terms[4];
#pragma unroll
                for (int i = 0; i < kFragments; i++) {
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        a_terms[i].set(r,
                                       A[stage][TileA::at(warp_row + i * 16 + g + r % 2 * 8, depth + t + r / 2 * 4)]);
                    }
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        b_terms[j].set(r, B[stage][TileB::at(warp_col + j * 8 + g, depth + t + r * 4)]);
                    }
                }
                multiply_terms<kThreeTerms, kFragments, 4>(part, a_terms, b_terms);
            }
            add_part<kFragments, 4>(sum, part);
            stage = (stage + 1) % kStages;
        }

#pragma unroll
        for (int i = 0; i < kFragments; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int32_t row = m0 + warp_row + i * 16 + g + half * 8;
                    const int32_t col = n0 + warp_col + j * 8 + t * 2;
                    if (row >= p.m || col >= p.n) {
                        continue;
                    }
                    float *const at = c + row * p.c.ld + col;
                    float2 x = make_float2(p.alpha * sum[i][j][half * 2], p.alpha * sum[i][j][half * 2 + 1]);
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

/* What a launch is a template of, beside the transposes. */
struct Kind {
    bool three_terms, vector, short_tiles;
};

template <bool kTransposeA, bool kTransposeB> void launch(const Product &p, const Kind &kind, cudaStream_t stream)
{
    const unsigned grid = grid_size(p.blocks);
    if (!kind.vector) {
        /* Odd sizes or strides have one kernel, of three terms whatever is asked: no less exact, and no hurry. */
        matmul_kernel<true, kTransposeA, kTransposeB, false, 32><<<grid, kMatmulThreads, 0, stream>>>(p);
    } else if (kind.three_terms) {
        if (kind.short_tiles) {
            matmul_kernel<true, kTransposeA, kTransposeB, true, 32><<<grid, kMatmulThreads, 0, stream>>>(p);
        } else {
            matmul_kernel<true, kTransposeA, kTransposeB, true, 64><<<grid, kMatmulThreads, 0, stream>>>(p);
        }
    } else {
        if (kind.short_tiles) {
            matmul_kernel<false, kTransposeA, kTransposeB, true, 32><<<grid, kMatmulThreads, 0, stream>>>(p);
        } else {
            matmul_kernel<false, kTransposeA, kTransposeB, true, 64><<<grid, kMatmulThreads, 0, stream>>>(p);
        }
    }
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_matmul_tiled(const gdn_cuda_device *device, const gdn_prefill_run *run, const gdn_matmul *matmul)
{
    Product p = {};
    p.m = matmul->m;
    p.n = matmul->n;
    p.k = matmul->k;
    p.alpha = matmul->alpha;
    p.beta = matmul->beta;
    p.batch1 = matmul->batch[1];
    p.batch2 = matmul->batch[2];
    p.a = operand_of(matmul->a);
    p.b = operand_of(matmul->b);
    p.c = operand_of(matmul->c);

    Kind kind = {};
    kind.three_terms = matmul->numerics != GDN_NUMERICS_TF32;
    kind.vector = is_vector(matmul->a, matmul->transpose_a ? p.m : p.k) &&
                  is_vector(matmul->b, matmul->transpose_b ? p.k : p.n) && is_vector(matmul->c, p.n);
    const int64_t entries = matmul->batch[0] * matmul->batch[1] * matmul->batch[2];
    p.tiles_n = (p.n + kTileCols - 1) / kTileCols;
    p.tiles_m = (p.m + 63) / 64;
    /* Too few blocks to give each multiprocessor three: halve the tiles. */
    kind.short_tiles = !kind.vector || p.m <= 32 || entries * p.tiles_m * p.tiles_n < 3 * device->num_sms;
    if (kind.short_tiles) {
        p.tiles_m = (p.m + 31) / 32;
    }
    p.blocks = entries * p.tiles_m * p.tiles_n;
    if (p.blocks == 0) {
        return GDN_OK;
    }
    if (matmul->transpose_a) {
        if (matmul->transpose_b) {
            launch<true, true>(p, kind, stream_of(run));
        } else {
            launch<true, false>(p, kind, stream_of(run));
        }
    } else {
        if (matmul->transpose_b) {
            launch<false, true>(p, kind, stream_of(run));
        } else {
            launch<false, false>(p, kind, stream_of(run));
        }
    }
    return gdn_cuda_launched("matmul");
}
