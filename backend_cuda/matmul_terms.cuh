/* Float32 products on tensor cores that take TF32.
 *
 * x = big + small, big the nearest TF32 (11 bits), and
 *     x y = big big + big small + small big     (small small is under 2^-22 of the product)
 * with float32 sums. That is float32's accuracy at about twice the rate of the float32 units. */
#ifndef GDN_CUDA_MATMUL_TERMS_CUH
#define GDN_CUDA_MATMUL_TERMS_CUH

#include "device/ptx.cuh"

namespace gdn
{

/* A fragment of kCount registers. */
template <bool kThreeTerms, int kCount> struct Terms {
    uint32_t big[kCount];
    uint32_t small[kThreeTerms ? kCount : 1];

    /* Big is x with half a unit of its last place added and the rest cut off; the tensor core drops what bits of small a
     * TF32 has not. A NaN stays one: where the addition overflows, small is NaN. */
    __device__ __forceinline__ void set(int i, float x)
    {
        if (kThreeTerms) {
            big[i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
            small[i] = __float_as_uint(x - __uint_as_float(big[i]));
        } else {
            big[i] = round_tf32(x);
        }
    }
};

/* sum += a b over kRows x kCols fragments. Term by term, so that products in flight are of different sums. */
template <bool kThreeTerms, int kRows, int kCols>
static __device__ __forceinline__ void multiply_terms(float (*sum)[kCols][4], const Terms<kThreeTerms, 4> *a,
                                                      const Terms<kThreeTerms, 2> *b)
{
    if constexpr (kThreeTerms) {
#pragma unroll
        for (int i = 0; i < kRows; i++) {
#pragma unroll
            for (int j = 0; j < kCols; j++) {
                mma_1688_tf32(sum[i][j], a[i].small, b[j].big[0], b[j].big[1]);
            }
        }
#pragma unroll
        for (int i = 0; i < kRows; i++) {
#pragma unroll
            for (int j = 0; j < kCols; j++) {
                mma_1688_tf32(sum[i][j], a[i].big, b[j].small[0], b[j].small[1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kRows; i++) {
#pragma unroll
        for (int j = 0; j < kCols; j++) {
            mma_1688_tf32(sum[i][j], a[i].big, b[j].big[0], b[j].big[1]);
        }
    }
}

} // namespace gdn

#endif
