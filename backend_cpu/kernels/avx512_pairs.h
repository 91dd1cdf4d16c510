/* Rounding to pairs of bfloat16, for the AVX512-BF16 and the AMX kernels. */
#ifndef GDN_AVX512_PAIRS_H
#define GDN_AVX512_PAIRS_H

#include <immintrin.h>
#include <stddef.h>

/* The words of a row pair: even rows in the low halves. */
static inline void store_pair(float *out, __m512 even, __m512 odd)
{
    /* cvtne2ps gives 16 even values, then 16 odd ones: interleave them. */
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}
#define VF_STORE_PAIR store_pair

/* pair_rows of kernels.h. */
static void pair_rows(int rows, int cols, const float *src, ptrdiff_t lds, float *dst, ptrdiff_t ldd)
{
    for (int j = 0; j < rows; j += 2) {
        const float *even = src + j * lds, *odd = even + lds;
        for (int c = 0; c < cols; c += 16) {
            store_pair(dst + j / 2 * ldd + c, _mm512_loadu_ps(even + c),
                       j + 1 < rows ? _mm512_loadu_ps(odd + c) : _mm512_setzero_ps());
        }
    }
}

#endif /* GDN_AVX512_PAIRS_H */
