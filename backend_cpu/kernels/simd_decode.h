/* One decode step on a block of the state: it is read once for both dots, and once more, by then in L1, to be
 * updated and written. */
#ifndef GDN_SIMD_DECODE_H
#define GDN_SIMD_DECODE_H

#include "kernels.h"

enum { DECODE_ROWS = 4, DECODE_VECTORS = 4 };

/* u = beta (v - alpha k s), o = scale (alpha q s + (q k) u), for the lanes at c */
static inline vf decode_finish(const gdn_decode_step *s, int c, vf ks, vf qs)
{
    const vf alpha = vf_set1(s->alpha);
    vf u = vf_mul(vf_set1(s->beta), vf_sub(vf_load(s->v + c), vf_mul(alpha, ks)));
    vf o = vf_fma(vf_set1(s->qk), u, vf_mul(alpha, qs));
    vf_store(s->o + c, vf_mul(vf_set1(s->scale), o));
    return u;
}

/* Sum of each vector's lanes, as one vector. */
static inline vf decode_sums(vf t[VF_LANES])
{
    vf_transpose(t);
    vf sum = t[0];
    GDN_UNROLL
    for (int i = 1; i < VF_LANES; i++) {
        sum = vf_add(sum, t[i]);
    }
    return sum;
}

/* [V, K]: k runs along the lanes. Four rows share each load of k and q. */
static void simd_decode_vk(const gdn_decode_step *s)
{
    const int K = s->head_k_dim;
    for (int first = 0; first < s->count; first += VF_LANES) {
        vf ks[VF_LANES], qs[VF_LANES];
        for (int r = 0; r < VF_LANES; r += DECODE_ROWS) {
            const float *src = s->src + (first + r) * s->src_stride;
            vf ka[DECODE_ROWS], qa[DECODE_ROWS];
            GDN_UNROLL
            for (int i = 0; i < DECODE_ROWS; i++) {
                ka[i] = qa[i] = vf_zero();
            }
            for (int d = 0; d < K; d += VF_LANES) {
                const vf k = vf_load(s->k + d), q = vf_load(s->q + d);
                GDN_UNROLL
                for (int i = 0; i < DECODE_ROWS; i++) {
                    const vf x = vf_load(src + i * s->src_stride + d);
                    ka[i] = vf_fma(x, k, ka[i]);
                    qa[i] = vf_fma(x, q, qa[i]);
                }
            }
            GDN_UNROLL
            for (int i = 0; i < DECODE_ROWS; i++) {
                ks[r + i] = ka[i];
                qs[r + i] = qa[i];
            }
        }
        float u[VF_LANES];
        vf_store(u, decode_finish(s, first, decode_sums(ks), decode_sums(qs)));

        const vf alpha = vf_set1(s->alpha);
        for (int r = 0; r < VF_LANES; r++) {
            const float *src = s->src + (first + r) * s->src_stride;
            float *dst = s->dst + (first + r) * s->dst_stride;
            const vf ur = vf_set1(u[r]);
            for (int d = 0; d < K; d += VF_LANES) {
                vf_store(dst + d, vf_fma(vf_load(s->k + d), ur, vf_mul(alpha, vf_load(src + d))));
            }
        }
    }
}

/* [K, V]: v runs along the lanes. */
GDN_INLINE void decode_kv_columns(const gdn_decode_step *s, int col, const int VECTORS)
{
    const int K = s->head_k_dim;
    const float *src = s->src + col;
    float *dst = s->dst + col;
    vf ks[DECODE_VECTORS], qs[DECODE_VECTORS];
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        ks[c] = qs[c] = vf_zero();
    }
    for (int d = 0; d < K; d++) {
        const vf k = vf_set1(s->k[d]), q = vf_set1(s->q[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const vf x = vf_load(src + d * s->src_stride + c * VF_LANES);
            ks[c] = vf_fma(x, k, ks[c]);
            qs[c] = vf_fma(x, q, qs[c]);
        }
    }
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        ks[c] = decode_finish(s, col + c * VF_LANES, ks[c], qs[c]);
    }
    const vf alpha = vf_set1(s->alpha);
    for (int d = 0; d < K; d++) {
        const vf k = vf_set1(s->k[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const vf x = vf_load(src + d * s->src_stride + c * VF_LANES);
            vf_store(dst + d * s->dst_stride + c * VF_LANES, vf_fma(k, ks[c], vf_mul(alpha, x)));
        }
    }
}

static void simd_decode_kv(const gdn_decode_step *s)
{
    const int step = DECODE_VECTORS * VF_LANES;
    int col = 0;
    for (; col + step <= s->count; col += step) {
        decode_kv_columns(s, col, DECODE_VECTORS);
    }
    for (; col < s->count; col += VF_LANES) {
        decode_kv_columns(s, col, 1);
    }
}

#endif /* GDN_SIMD_DECODE_H */
