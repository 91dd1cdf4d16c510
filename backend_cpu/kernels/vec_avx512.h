/* The vector of the AVX-512 kernels (F, BW, DQ, VL): one wrapper an instruction. */
#ifndef GDN_VEC_AVX512_H
#define GDN_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VF_NAME "avx512"
#define VF_TABLE gdn_cpu_kernels_avx512
enum {
    VF_LANES = 16,
    VF_REGISTERS = 32,
    PRODUCT_ROWS = 8, /* 8 x 2 accumulators of 32 registers: 10 loads for 16 multiply-adds */
    SOLVE_ROWS = 8,
    DECODE_ROWS = 8, /* of a [V, K] state: with their dots, 16 registers */
    DECODE_VECTORS = 8, /* of a [K, V] state: with their dots, 24 registers, and a row of 128 columns at once */
    DECODE_COLUMNS = 128
};

typedef __m512 vf;

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
/* x in a register: compilers load what two instructions use twice, and each load takes its turn at the cache. */
static inline vf vf_keep(vf x)
{
    __asm__("" : "+v"(x));
    return x;
}
static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* NaN in x stays NaN: the instruction returns its second operand then. */
static inline vf vf_clamp(vf x, float low, float high)
{
    return _mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x));
}
static inline vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for an integral n in -126 .. 127; 0 for n = -127 */
static inline vf vf_scale2(vf x, vf n)
{
    __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(x, _mm512_castsi512_ps(e));
}
/* Lanes 0 .. first - 1 become 0. */
static inline vf vf_zero_below(vf x, int first)
{
    return _mm512_maskz_mov_ps((__mmask16)(0xffffu << (first < 0 ? 0 : first)), x);
}
static inline float vf_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}

/* sums[i] = the sum of x[i]'s lanes: halves, then quarters, then lanes. Two vectors share one from each step on, by a blend, which
 * any unit can do, and a shuffle, which takes the multiply-adds' place. */
static inline void vf_sum8(const vf x[8], float sums[8])
{
    __m512 h[4], r[2];
    for (int i = 0; i < 4; i++) {
        h[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x[2 * i], x[2 * i + 1]),
                             _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x4e));
    }
    const __m512i quarters = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    for (int i = 0; i < 2; i++) { /* 128-bit lanes: of x[4 i], x[4 i + 2], x[4 i + 1], x[4 i + 3] */
        r[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, h[2 * i], h[2 * i + 1]),
                             _mm512_permutex2var_ps(h[2 * i], quarters, h[2 * i + 1]));
    }
    __m512 s = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, r[0], r[1]), _mm512_shuffle_ps(r[0], r[1], 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const __m512i order = _mm512_setr_epi32(0, 8, 4, 12, 2, 10, 6, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm256_storeu_ps(sums, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, s)));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
/* Nearest, ties to even; a NaN keeps its sign and becomes quiet. The instruction flushes subnormal numbers, as every caller
 * has set the processor to do anyway (float_mode.h). */
static inline void vf_store_bf16(uint16_t *p, vf x)
{
#ifdef __AVX512BF16__
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x));
#else
    __m512i w = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(w, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(w, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, w, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
#endif
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* r[i][j] <-> r[j][i]: pairs, then quads inside 128-bit lanes, then lanes. */
static inline void vf_transpose(vf r[VF_LANES])
{
    __m512 t[16];
#define GDN_T4(i)                                                                                            \
    t[i + 0] = _mm512_unpacklo_ps(r[i], r[i + 1]);                                                           \
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);                                                           \
    t[i + 2] = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);                                                       \
    t[i + 3] = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);                                                       \
    r[i + 0] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));     \
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));     \
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3]))); \
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    GDN_T4(0)
    GDN_T4(4)
    GDN_T4(8)
    GDN_T4(12)
#undef GDN_T4
    /* Row 4 g + c now holds, in 128-bit lane m, the column 4 m + c of rows 4 g .. 4 g + 3. */
#define GDN_T128(c)                                         \
    t[0] = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x88);      \
    t[1] = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xdd);      \
    t[2] = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x88); \
    t[3] = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xdd); \
    r[c + 0] = _mm512_shuffle_f32x4(t[0], t[2], 0x88);      \
    r[c + 8] = _mm512_shuffle_f32x4(t[0], t[2], 0xdd);      \
    r[c + 4] = _mm512_shuffle_f32x4(t[1], t[3], 0x88);      \
    r[c + 12] = _mm512_shuffle_f32x4(t[1], t[3], 0xdd);
    GDN_T128(0)
    GDN_T128(1)
    GDN_T128(2)
    GDN_T128(3)
#undef GDN_T128
}

#endif /* GDN_VEC_AVX512_H */
