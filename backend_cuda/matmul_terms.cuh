/* Float32 products on tensor cores that take TF32.
 *
 * x = big + small, each rounded to the nearest TF32 (11 bits), and
 *     x y = big big + big small + small big     (small small is under 2^-24 of the product)
 * Tensor cores cut off what does not fit their sums instead of rounding, which over many terms is a bias several times
 * float32's error. So they sum over kSumDepth only, and float32 additions sum those. That is float32's accuracy at
 * about twice the rate of the float32 units. */
#ifndef GDN_CUDA_MATMUL_TERMS_CUH
#define GDN_CUDA_MATMUL_TERMS_CUH

#include "device/ptx.cuh"

namespace gdn
{

/* Products that one tensor-core sum runs over; every sum of the generic path is cut at its multiples. */
constexpr int kSumDepth = 16;

/* A fragment of kCount registers. */
template <bool kThreeTerms, int kCount> struct Terms {
    uint32_t big[kCount];
    uint32_t small[kThreeTerms ? kCount : 1];

    /* Big is x with half a unit of its last place added and the rest cut off. A NaN stays one: where the addition
     * overflows, small is NaN. */
    __device__ __forceinline__ void set(int i, float x)
    {
        if (kThreeTerms) {
            big[i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
            small[i] = round_tf32(x - __uint_as_float(big[i]));
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

/* sum += part, part = 0: after each kSumDepth. */
template <int kRows, int kCols>
static __device__ __forceinline__ void add_part(float (*sum)[kCols][4], float (*part)[kCols][4])
{
#pragma unroll
    for (int i = 0; i < kRows; i++) {
#pragma unroll
        for (int j = 0; j < kCols; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sum[i][j][e] = __fadd_rn(sum[i][j][e], part[i][j][e]);
                part[i][j][e] = 0.0f;
            }
        }
    }
}

} // namespace gdn

#endif
