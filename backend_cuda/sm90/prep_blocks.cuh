/* Blocks of 16 x 16 as float16 or TF32 in shared memory, and products with them.
 *
 * An accumulator block d of 16 x 16 is two of m16n8: d[n][c], column 8 n + 2t + c % 2 of row g + 8 (c / 2). */
#ifndef GDN_CUDA_SM90_PREP_BLOCKS_CUH
#define GDN_CUDA_SM90_PREP_BLOCKS_CUH

#include "../device/element.cuh"
#include "ptx.cuh"

namespace gdn
{
namespace sm90
{

struct HalfBlocks {
    static constexpr int kStride = 48; /* bytes a row: eight rows of 16 bytes hit 32 banks */
    static constexpr int kBytes = 16 * kStride;
    struct Operand {
        uint32_t a[4];
    };
    struct Factor {
        uint32_t b[4];
    };

    /* Columns 2t, 2t + 1 and 8 + 2t, 8 + 2t + 1 of rows g and g + 8. */
    static __device__ __forceinline__ void store(int lane, uint32_t block, const float (&x)[2][4])
    {
        const uint32_t r[4] = {pack2<__half>(x[0][0], x[0][1]), pack2<__half>(x[0][2], x[0][3]),
                               pack2<__half>(x[1][0], x[1][1]), pack2<__half>(x[1][2], x[1][3])};
        stmatrix_x4(block + (lane / 8 % 2 * 8 + lane % 8) * kStride + lane / 16 * 16, r);
    }
    static __device__ __forceinline__ void store_element(uint32_t block, int row, int column, float x)
    {
        store_shared_u16(block + row * kStride + 2 * column, __half_as_ushort(__float2half_rn(x)));
    }
    /* The block's transpose as the left operand of a product, and as accumulators. */
    static __device__ __forceinline__ void load_transposed(int lane, uint32_t block, Operand &operand, float (&x)[2][4])
    {
        ldmatrix_x4_trans(operand.a, block + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 16);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float2 pair = unpack2<__half>(operand.a[e]);
            x[e / 2][2 * (e % 2)] = pair.x;
            x[e / 2][2 * (e % 2) + 1] = pair.y;
        }
    }
    static __device__ __forceinline__ void make_operand(Operand &operand, const float (&x)[2][4])
    {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            operand.a[e] = pack2<__half>(x[e / 2][2 * (e % 2)], x[e / 2][2 * (e % 2) + 1]);
        }
    }
    /* The block's transpose as the right factor of a product. */
    static __device__ __forceinline__ void load(int lane, Factor &factor, uint32_t block)
    {
        ldmatrix_x4(factor.b, block + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 16);
    }
    /* d += a b */
    static __device__ __forceinline__ void multiply(float (&d)[2][4], const Operand &operand, const Factor &factor)
    {
        mma_16816<__half>(d[0], operand.a, factor.b[0], factor.b[1]);
        mma_16816<__half>(d[1], operand.a, factor.b[2], factor.b[3]);
    }
    /* Zeroes the block's upper right 8 x 8. */
    static __device__ __forceinline__ void clear_upper(int lane, uint32_t block)
    {
        if (lane < 8) {
            store_shared_16(block + lane * kStride + 16, make_uint4(0, 0, 0, 0));
        }
    }
    /* Its lower left 8 x 8, X_11 (-L_10) X_00, from the other two; l are -L_10's columns 2t and 2t + 1 of row g. */
    static __device__ __forceinline__ void fill_lower(int lane, uint32_t block, const float (&l)[2])
    {
        const uint32_t upper_row = block + lane % 8 * kStride, lower_row = upper_row + 8 * kStride;
        const uint32_t a[4] = {ldmatrix_x1_trans(upper_row), 0, 0, 0}; /* X_00^T */
        const uint32_t b = ldmatrix_x1(lower_row + 16); /* X_11^T */
        float z[4] = {};
        mma_16816<__half>(z, a, pack2<__half>(l[0], l[1]), 0);
        const uint32_t z_operand[4] = {pack2<__half>(z[0], z[1]), 0, 0, 0};
        float x[4] = {};
        mma_16816<__half>(x, z_operand, b, 0);
        stmatrix_x1_trans(lower_row, pack2<__half>(x[0], x[1]));
    }
};

/* As HalfBlocks; the product's inner index runs in the order 2t, 2t + 1 of the accumulators on both sides. */
struct Tf32Blocks {
    static constexpr int kStride = 96;
    static constexpr int kBytes = 16 * kStride;
    struct Operand {
        uint32_t a[2][4];
    };
    struct Factor {
        float2 b[2][2];
    };

    static __device__ __forceinline__ void store(int lane, uint32_t block, const float (&x)[2][4])
    {
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
    static __device__ __forceinline__ void load_transposed(int lane, uint32_t block, Operand &operand, float (&x)[2][4])
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                x[n][c] = load_shared_float(block + (8 * n + 2 * t + c % 2) * kStride + 4 * (g + 8 * (c / 2)));
            }
        }
        make_operand(operand, x);
    }
    static __device__ __forceinline__ void make_operand(Operand &operand, const float (&x)[2][4])
    {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            operand.a[s][0] = round_tf32(x[s][0]);
            operand.a[s][1] = round_tf32(x[s][2]);
            operand.a[s][2] = round_tf32(x[s][1]);
            operand.a[s][3] = round_tf32(x[s][3]);
        }
    }
    static __device__ __forceinline__ void load(int lane, Factor &factor, uint32_t block)
    {
        const uint32_t at = block + lane / 4 * kStride + lane % 4 * 8;
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                factor.b[s][n] = load_shared_float2(at + 8 * n * kStride + 32 * s);
            }
        }
    }
    static __device__ __forceinline__ void multiply(float (&d)[2][4], const Operand &operand, const Factor &factor)
    {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                mma_1688_tf32(d[n], operand.a[s], __float_as_uint(factor.b[s][n].x), __float_as_uint(factor.b[s][n].y));
            }
        }
    }
    static __device__ __forceinline__ void clear_upper(int lane, uint32_t block)
    {
        if (lane < 16) {
            store_shared_16(block + lane / 2 * kStride + 32 + lane % 2 * 16, make_uint4(0, 0, 0, 0));
        }
    }
    static __device__ __forceinline__ void fill_lower(int lane, uint32_t block, const float (&l)[2])
    {
        const int g = lane / 4, t = lane % 4;
        const uint32_t upper = block + 2 * t * kStride + 4 * g; /* element (2t, g) */
        const uint32_t a[4] = {__float_as_uint(load_shared_float(upper)), 0,
                               __float_as_uint(load_shared_float(upper + kStride)), 0};
        float z[4] = {};
        mma_1688_tf32(z, a, round_tf32(l[0]), round_tf32(l[1]));
        const uint32_t z_operand[4] = {round_tf32(z[0]), 0, round_tf32(z[1]), 0};
        const float2 b = load_shared_float2(block + (8 + g) * kStride + 32 + 8 * t);
        float x[4] = {};
        mma_1688_tf32(x, z_operand, __float_as_uint(b.x), __float_as_uint(b.y));
        const uint32_t lower = upper + 8 * kStride;
        store_shared_float(lower, __uint_as_float(round_tf32(x[0])));
        store_shared_float(lower + kStride, __uint_as_float(round_tf32(x[1])));
    }
};

} // namespace sm90
} // namespace gdn

#endif
