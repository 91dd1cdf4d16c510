/* The kernels in plain C: what any machine runs, and what the vector kernels are compared with. Each is the
 * formula of kernels.h and nothing else. */
#include <math.h>
#include <string.h>

#include "numeric.h"

#include "gate_math.h"
#include "kernels.h"

static void scalar_product_one(const gdn_product *p)
{
    for (int i = 0; i < p->rows && i < p->out_rows; i++) {
        const int block = i / GDN_TOKEN_BLOCK, in_block = i % GDN_TOKEN_BLOCK;
        float acc[GDN_PANEL] = {0};
        for (int j = 0; j < p->depth; j++) {
            const float aij = p->a_packed_keys
                                  ? p->a[j / GDN_TOKEN_BLOCK * p->a_block + i * GDN_PAIR + j % GDN_TOKEN_BLOCK]
                                  : p->a[j * p->lda + block * p->a_block + in_block];
            for (int c = 0; c < p->cols; c++) {
                acc[c] += aij * p->b[j * GDN_PANEL + c];
            }
        }
        for (int c = 0; c < p->cols; c++) {
            acc[c] *= p->scale ? p->scale[i] : 1.0f;
        }
        for (int j = 0; p->lower && j <= i && j < p->lower_depth; j++) {
            const float lij = p->lower[j * p->lower_ld + block * p->lower_block + in_block];
            for (int c = 0; c < p->cols; c++) {
                acc[c] += lij * p->lower_b[j * GDN_PANEL + c];
            }
        }
        for (int c = 0; c < p->cols; c++) {
            if (p->add && i < p->add_rows) {
                const float s = p->add_scale ? p->add_scale[i * p->add_scale_step] : 1.0f;
                acc[c] += s * gdn_load_element(p->add, p->add_dtype, i * p->ldadd + c);
            }
            gdn_store_element(p->out, p->out_dtype, i * p->ldo + c, acc[c]);
        }
    }
}

static void scalar_product(const gdn_product *p, int count)
{
    for (int i = 0; i < count; i++) {
        scalar_product_one(&p[i]);
    }
}

static void scalar_solve(int rows, int cols, const float *n, ptrdiff_t n_block, float *x, const float *scale, float *y)
{
    for (int i = 0; i < rows; i++) {
        const float *ni = n + (i / GDN_TOKEN_BLOCK) * n_block + i % GDN_TOKEN_BLOCK;
        float *xi = x + i * GDN_PANEL, *yi = y + i * GDN_PANEL;
        for (int j = 0; j < i; j++) {
            for (int c = 0; c < cols; c++) {
                xi[c] += ni[j * GDN_PAIR] * x[j * GDN_PANEL + c];
            }
        }
        for (int c = 0; c < cols; c++) {
            yi[c] = scale[i] * xi[c];
        }
    }
}

static void scalar_decay_mask(int rows, int first, const float *G_high, const float *G_low, const float *beta,
                              const float *kkqk, float *out)
{
    for (int j = 0; j < rows; j++) {
        for (int c = 0; c < GDN_TOKEN_BLOCK; c++) {
            const int i = first + c, at = j * GDN_PAIR + c;
            const float D = i >= j ? expf((G_high[i] - G_high[j]) + (G_low[i] - G_low[j])) : 0.0f;
            out[at] = i > j ? -beta[i] * D * kkqk[at] : 0.0f;
            out[at + GDN_TOKEN_BLOCK] = i >= j ? D * kkqk[at + GDN_TOKEN_BLOCK] : 0.0f;
        }
    }
}

static void scalar_exp(int count, const float *x, float *y)
{
    for (int i = 0; i < count; i++) {
        y[i] = expf(x[i]);
    }
}

static void scalar_load_rows(gdn_dtype dtype, int rows, int cols, const void *src, ptrdiff_t stride, float *dst,
                             ptrdiff_t ldd)
{
    for (int i = 0; i < rows; i++) {
        for (int c = 0; c < cols; c++) {
            dst[i * ldd + c] = gdn_load_element(src, dtype, i * stride + c);
        }
    }
}

static void scalar_store_rows(gdn_dtype dtype, int rows, int cols, const float *src, ptrdiff_t lds, void *dst,
                              ptrdiff_t stride)
{
    for (int i = 0; i < rows; i++) {
        for (int c = 0; c < cols; c++) {
            gdn_store_element(dst, dtype, i * stride + c, src[i * lds + c]);
        }
    }
}

static void scalar_transpose(int rows, int cols, const float *src, ptrdiff_t lds, const float *scale, float *dst,
                             ptrdiff_t ldd)
{
    for (int r = 0; r < rows; r++) {
        const float factor = scale ? scale[r] : 1.0f;
        for (int c = 0; c < cols; c++) {
            dst[c * ldd + r] = factor * src[r * lds + c];
        }
    }
}

static void scalar_scale_rows(int rows, int cols, const float *scale, float *x, ptrdiff_t ldx)
{
    for (int i = 0; i < rows; i++) {
        for (int c = 0; c < cols; c++) {
            x[i * ldx + c] *= scale[i];
        }
    }
}

static float scalar_dot(int count, const float *x, const float *y)
{
    float s = 0.0f;
    for (int i = 0; i < count; i++) {
        s += x[i] * y[i];
    }
    return s;
}

static void scalar_norm_factors(gdn_qk_norm norm, float eps, float scale, int rows, int cols, const float *x,
                                ptrdiff_t ldx, float *factor)
{
    for (int i = 0; i < rows; i++, x += ldx) {
        factor[i] = scale;
        if (norm == GDN_QK_NORM_RSQRT) {
            factor[i] = scale / sqrtf(scalar_dot(cols, x, x) + eps);
        } else if (norm == GDN_QK_NORM_EPS_OUTSIDE) {
            factor[i] = scale / (sqrtf(scalar_dot(cols, x, x)) + eps);
        }
    }
}

/* One column of V: its element d is `d * step` elements after `at`. */
static void scalar_decode_column(const gdn_decode_block *b, int c, ptrdiff_t src_at, ptrdiff_t src_step,
                                 ptrdiff_t dst_at, ptrdiff_t dst_step)
{
    enum { MAX_K = 1024 }; /* gdn.h allows no more */
    float s[MAX_K];
    const int K = b->head_k_dim;
    for (int d = 0; d < K; d++) {
        s[d] = gdn_load_element(b->src, b->src_dtype, src_at + d * src_step);
    }
    for (int t = 0; t < b->tokens; t++) {
        const float *k = b->k + t * K, *q = b->q + t * K;
        const int at = t * GDN_DECODE_COLUMNS + c;
        float ks = 0.0f, qs = 0.0f;
        for (int d = 0; d < K; d++) {
            ks += s[d] * k[d];
            qs += s[d] * q[d];
        }
        const float u = b->beta[t] * (b->v[at] - b->alpha[t] * ks);
        b->o[at] = b->scale * (b->alpha[t] * qs + b->qk[t] * u);
        for (int d = 0; d < K; d++) {
            s[d] = b->alpha[t] * s[d] + k[d] * u;
        }
    }
    for (int d = 0; b->dst && d < K; d++) {
        gdn_store_element(b->dst, b->dst_dtype, dst_at + d * dst_step, s[d]);
    }
}

static void scalar_decode_vk(const gdn_decode_block *b)
{
    for (int r = 0; r < b->count; r++) {
        scalar_decode_column(b, r, r * b->src_stride, 1, r * b->dst_stride, 1);
    }
}

static void scalar_decode_kv(const gdn_decode_block *b)
{
    for (int c = 0; c < b->count; c++) {
        scalar_decode_column(b, c, c, b->src_stride, c, b->dst_stride);
    }
}

const gdn_cpu_kernels gdn_cpu_kernels_scalar = {
    .name = "scalar",
    .strip = 1,
    .product_rows = scalar_product,
    .product = scalar_product,
    .solve = scalar_solve,
    .decay_mask = scalar_decay_mask,
    .gates = gate_math_gates,
    .exp = scalar_exp,
    .load_rows = scalar_load_rows,
    .store_rows = scalar_store_rows,
    .transpose = scalar_transpose,
    .scale_rows = scalar_scale_rows,
    .norm_factors = scalar_norm_factors,
    .dot = scalar_dot,
    .decode_columns = 64,
    .decode_vk = scalar_decode_vk,
    .decode_kv = scalar_decode_kv,
};
