/* Everything of a chunk that is not a product: decay masks, exponentials, conversions, transposes, norms. */
#ifndef GDN_SIMD_ELEMENTWISE_H
#define GDN_SIMD_ELEMENTWISE_H

#include <math.h>

#include "kernels.h"

/* exp(x), x <= 0, to 1 ulp or so: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 / 7! (the next term is 5e-9).
 * ln 2 in two parts, so that n * LN2_HIGH is exact. Below -87.7 the result is 0. */
static inline vf vf_exp(vf x)
{
    const float LOG2E = 1.44269504089f, LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;
    x = vf_clamp(x, -88.0f, 0.0f);
    vf n = vf_round(vf_mul(x, vf_set1(LOG2E)));
    vf r = vf_fma(n, vf_set1(-LN2_HIGH), x);
    r = vf_fma(n, vf_set1(-LN2_LOW), r);
    vf y = vf_set1(1.0f / 5040.0f);
    y = vf_fma(y, r, vf_set1(1.0f / 720.0f));
    y = vf_fma(y, r, vf_set1(1.0f / 120.0f));
    y = vf_fma(y, r, vf_set1(1.0f / 24.0f));
    y = vf_fma(y, r, vf_set1(1.0f / 6.0f));
    y = vf_fma(y, r, vf_set1(0.5f));
    y = vf_fma(y, r, vf_set1(1.0f));
    y = vf_fma(y, r, vf_set1(1.0f));
    return vf_scale2(y, n);
}

static void simd_exp(int count, const float *x, float *y)
{
    for (int i = 0; i < count; i += VF_LANES) {
        vf_store(y + i, vf_exp(vf_load(x + i)));
    }
}

static void simd_decay_mask(int rows, int first, const float *G_high, const float *G_low, const float *beta,
                            const float *kkqk, float *out)
{
    for (int lane = 0; lane < GDN_TOKEN_BLOCK; lane += VF_LANES) {
        const vf Gi_high = vf_load(G_high + first + lane), Gi_low = vf_load(G_low + first + lane);
        const vf minus_beta = vf_sub(vf_zero(), vf_load(beta + first + lane));
        const float *kk = kkqk + lane, *qk = kk + GDN_TOKEN_BLOCK;
        float *n = out + lane, *P = n + GDN_TOKEN_BLOCK;

        for (int j = 0; j < rows; j++) {
            vf x = vf_add(vf_sub(Gi_high, vf_set1(G_high[j])), vf_sub(Gi_low, vf_set1(G_low[j])));
            vf D = vf_exp(x);
            vf nij = vf_mul(vf_mul(minus_beta, D), vf_load(kk + j * GDN_PAIR));
            vf Pij = vf_mul(D, vf_load(qk + j * GDN_PAIR));
            if (j >= first) { /* the diagonal block: i > j for L, i >= j for P */
                nij = vf_zero_below(nij, j + 1 - first - lane);
                Pij = vf_zero_below(Pij, j - first - lane);
            }
            vf_store(n + j * GDN_PAIR, nij);
            vf_store(P + j * GDN_PAIR, Pij);
        }
    }
}

static void simd_load_rows(gdn_dtype dtype, int rows, int cols, const void *src, ptrdiff_t stride, float *dst,
                           ptrdiff_t ldd)
{
    for (int i = 0; i < rows; i++) {
        float *d = dst + i * ldd;
        if (dtype == GDN_DTYPE_F32) {
            const float *s = (const float *)src + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store(d + c, vf_load(s + c));
            }
        } else if (dtype == GDN_DTYPE_BF16) {
            const uint16_t *s = (const uint16_t *)src + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store(d + c, vf_load_bf16(s + c));
            }
        } else {
            const uint16_t *s = (const uint16_t *)src + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store(d + c, vf_load_f16(s + c));
            }
        }
    }
}

static void simd_store_rows(gdn_dtype dtype, int rows, int cols, const float *src, ptrdiff_t lds, void *dst,
                            ptrdiff_t stride)
{
    for (int i = 0; i < rows; i++) {
        const float *s = src + i * lds;
        if (dtype == GDN_DTYPE_F32) {
            float *d = (float *)dst + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store(d + c, vf_load(s + c));
            }
        } else if (dtype == GDN_DTYPE_BF16) {
            uint16_t *d = (uint16_t *)dst + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store_bf16(d + c, vf_load(s + c));
            }
        } else {
            uint16_t *d = (uint16_t *)dst + i * stride;
            for (int c = 0; c < cols; c += VF_LANES) {
                vf_store_f16(d + c, vf_load(s + c));
            }
        }
    }
}

/* The scale of a row is, once transposed, one lane of every vector. Not inlined: in a loop, compilers keep a pointer for each
 * row, which is more than there are registers. */
static __attribute__((noinline)) void transpose_block(const float *src, ptrdiff_t lds, const float *scale, float *dst,
                                                      ptrdiff_t ldd)
{
    vf t[VF_LANES];
    GDN_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        t[i] = vf_load(src + i * lds);
    }
    vf_transpose(t);
    if (scale) {
        const vf s = vf_load(scale);
        GDN_UNROLL
        for (int i = 0; i < VF_LANES; i++) {
            t[i] = vf_mul(s, t[i]);
        }
    }
    GDN_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        vf_store(dst + i * ldd, t[i]);
    }
}

static void simd_transpose(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                           ptrdiff_t ldd)
{
    for (int r = 0; r < rows; r += VF_LANES) {
        for (int c = 0; c < cols; c += VF_LANES) {
            transpose_block(src + r * lds + c, lds, scale ? scale + r : NULL, dst + c * ldd + r, ldd);
        }
    }
}

static float simd_dot(int count, const float *x, const float *y)
{
    vf s = vf_zero();
    for (int i = 0; i < count; i += VF_LANES) {
        s = vf_fma(vf_load(x + i), vf_load(y + i), s);
    }
    return vf_sum(s);
}

static void simd_scale_rows(int rows, int cols, const float *scale, float *x, ptrdiff_t ldx)
{
    for (int i = 0; i < rows; i++, x += ldx) {
        const vf s = vf_set1(scale[i]);
        for (int c = 0; c < cols; c += VF_LANES) {
            vf_store(x + c, vf_mul(s, vf_load(x + c)));
        }
    }
}

static void simd_norm_factors(gdn_qk_norm norm, float eps, float scale, int rows, int cols, const float *x,
                              ptrdiff_t ldx, float *factor)
{
    for (int i = 0; i < rows; i++, x += ldx) {
        factor[i] = scale;
        if (norm == GDN_QK_NORM_RSQRT) {
            factor[i] = scale / sqrtf(simd_dot(cols, x, x) + eps);
        } else if (norm == GDN_QK_NORM_EPS_OUTSIDE) {
            factor[i] = scale / (sqrtf(simd_dot(cols, x, x)) + eps);
        }
    }
}

#endif /* GDN_SIMD_ELEMENTWISE_H */
