/* The vector of the NEON kernels (AArch64 baseline): one wrapper an instruction. */
#ifndef GDN_VEC_NEON_H
#define GDN_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define VF_NAME "neon"
#define VF_TABLE gdn_cpu_kernels_neon
enum {
    VF_LANES = 4,
    VF_REGISTERS = 32,
    PRODUCT_ROWS = 8, /* 8 x 2 accumulators of 32 registers */
    SOLVE_ROWS = 8,
    DECODE_ROWS = 4, /* of a [V, K] state: with their dots, 8 registers */
    DECODE_VECTORS = 8, /* of a [K, V] state: with their dots, 24 registers */
    DECODE_COLUMNS = 64
};

typedef float32x4_t vf;

static inline vf vf_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void vf_store(float *p, vf x)
{
    vst1q_f32(p, x);
}
/* What two instructions use is loaded once anyway. */
static inline vf vf_keep(vf x)
{
    return x;
}
static inline vf vf_zero(void)
{
    return vdupq_n_f32(0.0f);
}
static inline vf vf_set1(float x)
{
    return vdupq_n_f32(x);
}
static inline vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
/* NaN in x stays NaN. */
static inline vf vf_clamp(vf x, float low, float high)
{
    return vminq_f32(vdupq_n_f32(high), vmaxq_f32(vdupq_n_f32(low), x));
}
static inline vf vf_round(vf x)
{
    return vrndnq_f32(x);
}
/* x * 2^n for an integral n in -126 .. 127; 0 for n = -127 */
static inline vf vf_scale2(vf x, vf n)
{
    int32x4_t e = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(e));
}
/* Lanes 0 .. first - 1 become 0. */
static inline vf vf_zero_below(vf x, int first)
{
    const int32_t lanes[4] = {0, 1, 2, 3};
    uint32x4_t keep = vcgeq_s32(vld1q_s32(lanes), vdupq_n_s32(first));
    return vreinterpretq_f32_u32(vandq_u32(keep, vreinterpretq_u32_f32(x)));
}
static inline float vf_sum(vf x)
{
    return vaddvq_f32(x);
}

/* sums[i] = the sum of x[i]'s lanes */
static inline void vf_sum8(const vf x[8], float sums[8])
{
    vst1q_f32(sums, vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3])));
    vst1q_f32(sums + 4, vpaddq_f32(vpaddq_f32(x[4], x[5]), vpaddq_f32(x[6], x[7])));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
/* Nearest, ties to even; a NaN keeps its sign and becomes quiet. */
static inline void vf_store_bf16(uint16_t *p, vf x)
{
    uint32x4_t w = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(w, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(w, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    r = vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(w, vdupq_n_u32(0x400000)));
    vst1_u16(p, vshrn_n_u32(r, 16));
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

/* r[i][j] <-> r[j][i] */
static inline void vf_transpose(vf r[VF_LANES])
{
    float32x4x2_t a = vtrnq_f32(r[0], r[1]);
    float32x4x2_t b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#endif /* GDN_VEC_NEON_H */
