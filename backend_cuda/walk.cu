/* All steps of a wave in one kernel: for each lane's chunks in order
 *
 *     V' = U - W S        rows = q S        S <- exp(G_C) S + (exp(G_C - G) k)^T V'
 *
 * with the bits of the products and decays that core composes them of otherwise (matmul_tiled.cu, decay_state.cu): the
 * same terms in the same order, rounded where those round.
 *
 * A block has 32 columns of one (lane, value head)'s state: in registers, K x 32 over eight warps, and a copy in shared
 * memory as the B operand of the first two products. It walks a stream of tiles, W over q stacked, then k:
 *
 *     step      | [W; q] 128 x 32 deep | ... K / 32 of them | k 32 deep x K | ... 64 / 32 | next step
 *     ring of 3 | two tiles ahead by cp.async, across steps: no tile depends on the state
 */
#include "matmul_terms.cuh"
#include "wave.cuh"

namespace gdn
{
namespace
{

constexpr int kChunk = 64;
constexpr int kWalkThreads = 256;
constexpr int kWarps = kWalkThreads / 32;
constexpr int kCols = 32;
constexpr int kRing = 3;

struct Walk {
    const int32_t *lane_slot;
    int32_t num_lanes, num_steps, V;
    int32_t col_blocks; /* of a (lane, head) */
    HeadMap heads;
    const float *G, *q, *k, *W;
    float *U, *rows, *S;
};

template <int K> struct WalkShape {
    static constexpr int kDepth1 = 32; /* of a tile of [W; q] */
    static constexpr int kDepth2 = K <= 128 ? 32 : 16; /* of a tile of k */
    /* Strides are 4 mod 32 along the depth and 8 mod 32 across it: fragments read 32 banks. */
    static constexpr int kStride1 = kDepth1 + 4;
    static constexpr int kStride2 = K + 8;
    static constexpr int kStrideS = kCols + 8;
    static constexpr int kTiles1 = K / kDepth1;
    static constexpr int kTiles2 = kChunk / kDepth2;
    static constexpr int kFloats1 = 2 * kChunk * kStride1;
    static constexpr int kFloats2 = kDepth2 * kStride2;
    static constexpr int kTileFloats = kFloats1 > kFloats2 ? kFloats1 : kFloats2;
    static constexpr int kFragments = (K / 16 + kWarps - 1) / kWarps; /* of 16 rows of S, a warp */
    static constexpr int kBytes = (kRing * kTileFloats + K * kStrideS + kChunk * kStrideS + kChunk) * 4;
    static_assert(2 * kChunk / 16 == kWarps, "a warp has 16 rows of [W; q]");
};

/* The tiles of one lane and head, counted over all its steps. Chunk slots of a lane follow one another. */
template <int K> struct Stream {
    using Shape = WalkShape<K>;
    const float *W, *q, *k; /* of step 0 */
    int64_t W_step, k_step; /* floats from a step to the next; q as k */
    int32_t count;

    __device__ __forceinline__ void load(float *tile, int32_t n) const
    {
        constexpr int kTiles = Shape::kTiles1 + Shape::kTiles2;
        const int32_t step = n / kTiles;
        const int32_t j = n - step * kTiles;
        if (j < Shape::kTiles1) {
            constexpr int kGroups = Shape::kDepth1 / 4;
#pragma unroll
            for (int g = threadIdx.x; g < 2 * kChunk * kGroups; g += kWalkThreads) {
                const int row = g / kGroups;
                const int depth = g % kGroups * 4;
                const float *const src =
                    row < kChunk ? W + step * W_step + row * K : q + step * k_step + (row - kChunk) * K;
                cp_async_16(smem_address(tile + row * Shape::kStride1 + depth), src + j * Shape::kDepth1 + depth, true);
            }
        } else {
            constexpr int kGroups = K / 4;
            const float *const src = k + step * k_step + (j - Shape::kTiles1) * Shape::kDepth2 * K;
#pragma unroll
            for (int g = threadIdx.x; g < Shape::kDepth2 * kGroups; g += kWalkThreads) {
                const int depth = g / kGroups;
                const int row = g % kGroups * 4;
                cp_async_16(smem_address(tile + depth * Shape::kStride2 + row), src + depth * K + row, true);
            }
        }
    }
};

template <bool kThreeTerms, int K> __global__ void __launch_bounds__(kWalkThreads, 1) walk_kernel(const Walk p)
{
    using Shape = WalkShape<K>;
    extern __shared__ __align__(16) float shared[];
    float *const ring = shared;
    float *const S_tile = ring + kRing * Shape::kTileFloats; /* [K, kCols] */
    float *const V_tile = S_tile + K * Shape::kStrideS; /* V' [C, kCols] */
    float *const to_end = V_tile + kChunk * Shape::kStrideS; /* exp(G_C - G_i) */

    const int lane_idx = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int g = lane_idx / 4;
    const int t = lane_idx % 4;

    const int32_t col_block = static_cast<int32_t>(blockIdx.x % p.col_blocks);
    const int32_t lane_head = static_cast<int32_t>(blockIdx.x / p.col_blocks);
    const int32_t lane = lane_head / p.heads.num_v_heads;
    const int v_head = lane_head - lane * p.heads.num_v_heads;
    const int32_t first = p.lane_slot[lane];
    if (first < 0) {
        return;
    }
    const int32_t steps = lane_steps(p.lane_slot, p.num_steps, p.num_lanes, lane);
    const int k_head = p.heads.k_head(v_head);
    const int64_t slot_head = static_cast<int64_t>(first) * p.heads.num_v_heads + v_head;
    const int64_t slot_k_head = static_cast<int64_t>(first) * p.heads.num_k_heads + k_head;
    const int col0 = col_block * kCols;

    Stream<K> stream;
    stream.W = p.W + slot_head * kChunk * K;
    stream.q = p.q + slot_k_head * kChunk * K;
    stream.k = p.k + slot_k_head * kChunk * K;
    stream.W_step = static_cast<int64_t>(p.heads.num_v_heads) * kChunk * K;
    stream.k_step = static_cast<int64_t>(p.heads.num_k_heads) * kChunk * K;
    stream.count = steps * (Shape::kTiles1 + Shape::kTiles2);
    for (int i = 0; i < kRing - 1; i++) {
        if (i < stream.count) {
            stream.load(ring + i * Shape::kTileFloats, i);
        }
        cp_async_commit();
    }

    /* S in the accumulators' layout: fragment f has rows 16 (warp + 8 f) + g and + 8, columns 8 j + 2 t and + 1. */
    float S[Shape::kFragments][4][4];
    float *const S_global = p.S + static_cast<int64_t>(lane_head) * K * p.V + col0;
#pragma unroll
    for (int f = 0; f < Shape::kFragments; f++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = (warp + f * kWarps) * 16 + g + e / 2 * 8;
                const int col = j * 8 + t * 2 + e % 2;
                S[f][j][e] = row < K && col0 + col < p.V ? S_global[static_cast<int64_t>(row) * p.V + col] : 0.0f;
                if (row < K) {
                    S_tile[row * Shape::kStrideS + col] = S[f][j][e];
                }
            }
        }
    }

    int32_t n = 0; /* the tile at hand */
    int slot_of_ring = 0;
    const auto next_tile = [&]() {
        cp_async_wait<kRing - 2>();
        __syncthreads();
        if (n + kRing - 1 < stream.count) {
            const int to = slot_of_ring >= 1 ? slot_of_ring - 1 : kRing - 1;
            stream.load(ring + to * Shape::kTileFloats, n + kRing - 1);
        }
        cp_async_commit();
        const float *const tile = ring + slot_of_ring * Shape::kTileFloats;
        slot_of_ring = slot_of_ring + 1 < kRing ? slot_of_ring + 1 : 0;
        n++;
        return tile;
    };

    for (int32_t step = 0; step < steps; step++) {
        const int64_t at = slot_head + static_cast<int64_t>(step) * p.heads.num_v_heads;
        const DecaySums sums(p.G, at, kChunk);
        const float decay = sums.decay(kChunk - 1);
        const float ratio = sums.ratio(kChunk - 1, threadIdx.x % kChunk);
        float *const out = (warp < kWarps / 2 ? p.U : p.rows) + at * kChunk * p.V + col0;
        const int row0 = warp % (kWarps / 2) * 16 + g;
        float U[4][4] = {};
        if (warp < kWarps / 2) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int col = j * 8 + t * 2 + e % 2;
                    if (col0 + col < p.V) {
                        U[j][e] = out[static_cast<int64_t>(row0 + e / 2 * 8) * p.V + col];
                    }
                }
            }
        }

        float sum[4][4] = {};
        float part[4][4] = {};
        for (int tile_idx = 0; tile_idx < Shape::kTiles1; tile_idx++) {
            const float *const tile = next_tile() + (warp * 16 + g) * Shape::kStride1 + t;
            const float *const B = S_tile + (tile_idx * Shape::kDepth1 + t) * Shape::kStrideS + g;
#pragma unroll
            for (int depth = 0; depth < Shape::kDepth1; depth += 8) {
                Terms<kThreeTerms, 4> a;
                Terms<kThreeTerms, 2> b[4];
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    a.set(r, tile[r % 2 * 8 * Shape::kStride1 + depth + r / 2 * 4]);
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        b[j].set(r, B[(depth + r * 4) * Shape::kStrideS + j * 8]);
                    }
                }
                multiply_terms<kThreeTerms, 1, 4>(&part, &a, b);
                if ((depth + 8) % kSumDepth == 0) {
                    add_part<1, 4>(&sum, &part);
                }
            }
        }

        if (threadIdx.x < kChunk) {
            to_end[threadIdx.x] = ratio;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = row0 + e / 2 * 8;
                const int col = j * 8 + t * 2 + e % 2;
                const float x = warp < kWarps / 2 ? U[j][e] - sum[j][e] : sum[j][e];
                if (warp < kWarps / 2) {
                    V_tile[row * Shape::kStrideS + col] = x;
                }
                if (col0 + col < p.V) {
                    out[static_cast<int64_t>(row) * p.V + col] = x;
                }
            }
        }

        float added[Shape::kFragments][4][4] = {};
        float added_part[Shape::kFragments][4][4] = {};
        for (int tile_idx = 0; tile_idx < Shape::kTiles2; tile_idx++) {
            const float *const tile = next_tile() + t * Shape::kStride2 + warp * 16 + g;
            const int depth0 = tile_idx * Shape::kDepth2 + t;
            const float *const B = V_tile + depth0 * Shape::kStrideS + g;
            if (warp * 16 >= K) {
                continue;
            }
#pragma unroll
            for (int depth = 0; depth < Shape::kDepth2; depth += 8) {
                const float factor[2] = {to_end[depth0 + depth], to_end[depth0 + depth + 4]};
                Terms<kThreeTerms, 4> a[Shape::kFragments];
                Terms<kThreeTerms, 2> b[4];
#pragma unroll
                for (int f = 0; f < Shape::kFragments; f++) {
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const float key = tile[(depth + r / 2 * 4) * Shape::kStride2 + f * kWarps * 16 + r % 2 * 8];
                        a[f].set(r, __fmul_rn(factor[r / 2], key)); /* rounded, as decay_state stores it */
                    }
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        b[j].set(r, B[(depth + r * 4) * Shape::kStrideS + j * 8]);
                    }
                }
                multiply_terms<kThreeTerms, Shape::kFragments, 4>(added_part, a, b);
                if ((depth + 8) % kSumDepth == 0) {
                    add_part<Shape::kFragments, 4>(added, added_part);
                }
            }
        }
        /* All warps are past the products that read S_tile. */
#pragma unroll
        for (int f = 0; f < Shape::kFragments; f++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int row = (warp + f * kWarps) * 16 + g + e / 2 * 8;
                    const int col = j * 8 + t * 2 + e % 2;
                    S[f][j][e] = __fadd_rn(__fmul_rn(decay, S[f][j][e]), added[f][j][e]);
                    if (row < K) {
                        S_tile[row * Shape::kStrideS + col] = S[f][j][e];
                    }
                }
            }
        }
    }

#pragma unroll
    for (int f = 0; f < Shape::kFragments; f++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = (warp + f * kWarps) * 16 + g + e / 2 * 8;
                const int col = j * 8 + t * 2 + e % 2;
                if (row < K && col0 + col < p.V) {
                    S_global[static_cast<int64_t>(row) * p.V + col] = S[f][j][e];
                }
            }
        }
    }
}

template <bool kThreeTerms, int K>
gdn_status launch(const gdn_cuda_device *device, const Walk &p, int64_t blocks, cudaStream_t stream, bool *taken)
{
    constexpr int kBytes = WalkShape<K>::kBytes;
    *taken = kBytes <= device->shared_bytes_per_block;
    if (!*taken) {
        return GDN_OK;
    }
    GDN_CUDA_TRY(
        cudaFuncSetAttribute(walk_kernel<kThreeTerms, K>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    walk_kernel<kThreeTerms, K><<<grid_size(blocks), kWalkThreads, kBytes, stream>>>(p);
    return gdn_cuda_launched("walk");
}

template <int K>
gdn_status launch(const gdn_cuda_device *device, const Walk &p, bool tf32, int64_t blocks, cudaStream_t stream,
                  bool *taken)
{
    return tf32 ? launch<false, K>(device, p, blocks, stream, taken)
                : launch<true, K>(device, p, blocks, stream, taken);
}

} // namespace
} // namespace gdn

using namespace gdn;

gdn_status gdn_cuda_walk(const gdn_device *device, const gdn_prefill_run *run, const gdn_wave *wave, const float *G,
                         const float *q, const float *k, float *W, float *U, float *rows, float *S, bool *taken)
{
    const DeviceGuard guard(device);
    GDN_TRY(guard.status());
    const gdn_problem *const problem = run->problem;
    *taken = false;
    if (wave->chunk_size != kChunk) {
        return GDN_OK;
    }
    Walk p = {};
    p.lane_slot = wave->lane_slot;
    p.num_lanes = wave->num_lanes;
    p.num_steps = wave->num_steps;
    p.V = problem->head_v_dim;
    p.col_blocks = (p.V + kCols - 1) / kCols;
    p.heads = head_map(run);
    p.G = G;
    p.q = q;
    p.k = k;
    p.W = W;
    p.U = U;
    p.rows = rows;
    p.S = S;
    const int64_t blocks = static_cast<int64_t>(p.num_lanes) * p.heads.num_v_heads * p.col_blocks;
    if (blocks > INT32_MAX) {
        return GDN_OK;
    }
    const bool tf32 = problem->numerics == GDN_NUMERICS_TF32;
    switch (problem->head_k_dim) {
    case 64:
        return launch<64>(gdn_cuda_device_of(device), p, tf32, blocks, stream_of(run), taken);
    case 128:
        return launch<128>(gdn_cuda_device_of(device), p, tf32, blocks, stream_of(run), taken);
    case 256:
        return launch<256>(gdn_cuda_device_of(device), p, tf32, blocks, stream_of(run), taken);
    default:
        return GDN_OK;
    }
}
