/* Tiles of 64 rows of 16-bit elements in shared memory, in 16-byte pieces whose place in a row is XORed with
 * the row, so that the eight rows of an ldmatrix block lie in different banks. */
#ifndef GDN_CUDA_DEVICE_TILE_CUH
#define GDN_CUDA_DEVICE_TILE_CUH

#include "ptx.cuh"

namespace gdn
{

static constexpr int kChunk = 64;

/* A tile of kCols columns, 64 or more: piece c of row r is the row's piece c ^ (r & 7).
 * The tile must start at a multiple of 128 bytes. */
template <int kCols> struct WideTile {
    static_assert(kCols % 64 == 0, "the XOR stays inside groups of eight 16-byte pieces");
    static constexpr int kPieces = kCols / 8;
    static constexpr int kRowBytes = kCols * 2;
    static constexpr int kBytes = kChunk * kRowBytes;

    static __device__ __forceinline__ uint32_t offset(int row, int piece)
    {
        return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
    }
};

/* A tile of 16, 32, 64 or 128 columns, known at run time as log2 of its pieces a row: a 128-byte line holds several
 * narrow rows, and the XOR takes the line's number (its row's, where rows are longer). 16 rows on, the XOR is the same. */
struct NarrowTile {
    int log2_pieces; /* 1..4 */

    __device__ __forceinline__ uint32_t offset(int row, int piece) const
    {
        const int linear = (row << log2_pieces) + piece;
        const int line = linear >> (log2_pieces > 3 ? log2_pieces : 3);
        return static_cast<uint32_t>((linear ^ (line & (log2_pieces == 1 ? 3 : 7))) << 4);
    }
};

/* Stores the transposes of four 8 x 8 blocks held as (g, 2t..): lane 8 i + r gives the address of row r of block i. */
static __device__ __forceinline__ void store_blocks_trans(uint32_t address, const uint32_t (&r)[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    stmatrix_x4_trans(address, r);
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t row = __shfl_sync(0xffffffffu, address, 8 * i + lane / 4);
        store_shared_u32(row + 4 * (lane % 4), movmatrix_trans(r[i]));
    }
#endif
}

} // namespace gdn

#endif
