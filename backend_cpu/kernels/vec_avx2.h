/* The vector of the AVX2 kernels (AVX2, FMA, F16C): one wrapper an instruction. */
#ifndef GDN_VEC_AVX2_H
#define GDN_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VF_NAME "avx2"
#define VF_TABLE gdn_cpu_kernels_avx2
enum {
    VF_LANES = 8,
    VF_REGISTERS = 16,
    PRODUCT_ROWS = 6, /* 6 x 2 accumulators of 16 registers */
    SOLVE_ROWS = 4,
    DECODE_ROWS = 4, /* of a [V, K] state: with their dots, 8 registers */
    DECODE_VECTORS = 4, /* of a [K, V] state: with their dots, 12 registers */
    DECODE_COLUMNS = 64
};

typedef __m256 vf;

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
/* x in a register: compilers load what two instructions use twice, and each load takes its turn at the cache. */
static inline vf vf_keep(vf x)
{
    __asm__("" : "+x"(x));
    return x;
}
static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* NaN in x stays NaN: the instruction returns its second operand then. */
static inline vf vf_clamp(vf x, float low, float high)
{
    return _mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x));
}
static inline vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for an integral n in -126 .. 127; 0 for n = -127 */
static inline vf vf_scale2(vf x, vf n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(e));
}
/* Lanes 0 .. first - 1 become 0. */
static inline vf vf_zero_below(vf x, int first)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane);
    return _mm256_andnot_ps(_mm256_castsi256_ps(below), x);
}
static inline float vf_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* sums[i] = the sum of x[i]'s lanes */
static inline void vf_sum8(const vf x[8], float sums[8])
{
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
/* Nearest, ties to even; a NaN keeps its sign and becomes quiet. */
static inline void vf_store_bf16(uint16_t *p, vf x)
{
    __m256i w = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(w, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(w, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(w, _mm256_set1_epi32(0x400000));
    r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* r[i][j] <-> r[j][i] */
static inline void vf_transpose(vf r[VF_LANES])
{
    __m256 t[8], u[8];
#define GDN_T4(i)                                           \
    t[i + 0] = _mm256_unpacklo_ps(r[i], r[i + 1]);          \
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);          \
    t[i + 2] = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);      \
    t[i + 3] = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);      \
    u[i + 0] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);     \
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);     \
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44); \
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    GDN_T4(0)
    GDN_T4(4)
#undef GDN_T4
#define GDN_T128(c)                                      \
    r[c] = _mm256_permute2f128_ps(u[c], u[c + 4], 0x20); \
    r[c + 4] = _mm256_permute2f128_ps(u[c], u[c + 4], 0x31);
    GDN_T128(0)
    GDN_T128(1)
    GDN_T128(2)
    GDN_T128(3)
#undef GDN_T128
}

#endif /* GDN_VEC_AVX2_H */
