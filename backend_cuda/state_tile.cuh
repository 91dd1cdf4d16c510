/* Moving a state between the caller's layout and the dense float32 S[K, V] of the generic path, by 32 x 32 tiles, so
 * that both sides are read and written along their contiguous dimension. A block is 32 x 8 threads. */
#ifndef GDN_CUDA_STATE_TILE_CUH
#define GDN_CUDA_STATE_TILE_CUH

#include "wave.cuh"

namespace gdn
{

constexpr int kTile = 32;
constexpr int kTileRows = 8;

using TileBuffer = float[kTile][kTile + 1];

/* Which tile of which (lane, head) a block works on: blocks count over tiles, then heads, then lanes. */
struct TileGrid {
    int32_t num_v_heads, K, V;
    int64_t count;

    __host__ __device__ int32_t tiles_v() const
    {
        return (V + kTile - 1) / kTile;
    }
    __host__ __device__ int32_t tiles() const
    {
        return (K + kTile - 1) / kTile * tiles_v();
    }
};

inline TileGrid tile_grid(const gdn_prefill_run *run, int64_t lanes)
{
    TileGrid grid = {run->problem->num_v_heads, run->problem->head_k_dim, run->problem->head_v_dim, 0};
    grid.count = lanes * grid.num_v_heads * grid.tiles();
    return grid;
}

struct TilePlace {
    int64_t lane;
    int head, k0, v0;

    __device__ __forceinline__ TilePlace(const TileGrid &grid, int64_t block)
    {
        const uint32_t tiles = static_cast<uint32_t>(grid.tiles());
        const uint32_t lane_head = static_cast<uint32_t>(block) / tiles;
        const int tile = static_cast<int>(static_cast<uint32_t>(block) - lane_head * tiles);
        lane = lane_head / static_cast<uint32_t>(grid.num_v_heads);
        head = static_cast<int>(lane_head - lane * grid.num_v_heads);
        k0 = tile / grid.tiles_v() * kTile;
        v0 = tile % grid.tiles_v() * kTile;
    }
    /* Element 0 of the (lane, head)'s matrix in dense [lanes, heads, K, V]. */
    __device__ int64_t dense(const TileGrid &grid) const
    {
        return (lane * grid.num_v_heads + head) * static_cast<int64_t>(grid.K) * grid.V;
    }
};

/* S tile <- states[slot]. */
static __device__ __forceinline__ void load_tile(const TileGrid &grid, const TilePlace &at, const States &src,
                                                 int64_t slot, float *S, TileBuffer &buffer)
{
    const int x = threadIdx.x;
    const bool along_k = src.k_stride == 1;
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int k = at.k0 + (along_k ? x : y);
        const int v = at.v0 + (along_k ? y : x);
        if (k < grid.K && v < grid.V) {
            const float value = load_element(src.data, src.dtype, src.index(slot, at.head, k, v));
            buffer[k - at.k0][v - at.v0] = value;
        }
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int k = at.k0 + y;
        const int v = at.v0 + x;
        if (k < grid.K && v < grid.V) {
            S[static_cast<int64_t>(k) * grid.V + v] = buffer[y][x];
        }
    }
}

/* states[slot] <- S tile. */
static __device__ __forceinline__ void store_tile(const TileGrid &grid, const TilePlace &at, const float *S,
                                                  const States &dst, int64_t slot, TileBuffer &buffer)
{
    const int x = threadIdx.x;
    const bool along_k = dst.k_stride == 1;
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int k = at.k0 + y;
        const int v = at.v0 + x;
        if (k < grid.K && v < grid.V) {
            buffer[y][x] = S[static_cast<int64_t>(k) * grid.V + v];
        }
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int k = at.k0 + (along_k ? x : y);
        const int v = at.v0 + (along_k ? y : x);
        if (k < grid.K && v < grid.V) {
            store_element(dst.data, dst.dtype, dst.index(slot, at.head, k, v), buffer[k - at.k0][v - at.v0]);
        }
    }
}

} // namespace gdn

#endif
