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

/* u and o of rows row .. row + 3 of a [V, K] state: k runs along the lanes, and the rows share each load of k and q. */
GDN_INLINE void decode_vk_dots(const gdn_decode_step *s, int row, float u[DECODE_ROWS])
{
    const int K = s->head_k_dim;
    const float *const k = s->k, *const q = s->q;
    const ptrdiff_t stride = s->src_stride, ahead = s->src_ahead;
    const float *src = s->src + row * stride;
    vf acc[2 * DECODE_ROWS]; /* k s of each row, then q s */
    GDN_UNROLL
    for (int i = 0; i < 2 * DECODE_ROWS; i++) {
        acc[i] = vf_zero();
    }
    for (int d = 0; d < K; d += VF_LANES) {
        const vf kd = vf_load(k + d), qd = vf_load(q + d);
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            const float *at = src + i * stride + d;
            const vf x = vf_load(at);
            acc[i] = vf_fma(x, kd, acc[i]);
            acc[i + DECODE_ROWS] = vf_fma(x, qd, acc[i + DECODE_ROWS]);
            if (ahead && i < DECODE_ROWS / 2) { /* the others in the update: a burst would be dropped */
                __builtin_prefetch(at + ahead, 1, 3);
            }
        }
    }
    float sums[2 * DECODE_ROWS];
    vf_sum8(acc, sums);
    for (int i = 0; i < DECODE_ROWS; i++) {
        u[i] = s->beta * (s->v[row + i] - s->alpha * sums[i]);
        s->o[row + i] = s->scale * (s->alpha * sums[i + DECODE_ROWS] + s->qk * u[i]);
    }
}

GDN_INLINE void decode_vk_update(const gdn_decode_step *s, int row, const float u[DECODE_ROWS])
{
    /* Copies: a store could change *s, as far as the compiler knows. */
    const int K = s->head_k_dim;
    const float *const k = s->k, *const src = s->src + row * s->src_stride;
    float *const dst = s->dst + row * s->dst_stride;
    const ptrdiff_t src_stride = s->src_stride, dst_stride = s->dst_stride, ahead = s->src_ahead;
    const vf alpha = vf_set1(s->alpha);
    vf ui[DECODE_ROWS];
    GDN_UNROLL
    for (int i = 0; i < DECODE_ROWS; i++) {
        ui[i] = vf_set1(u[i]);
    }
    for (int d = 0; d < K; d += VF_LANES) {
        const vf kd = vf_load(k + d);
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            const float *at = src + i * src_stride + d;
            vf_store(dst + i * dst_stride + d, vf_fma(kd, ui[i], vf_mul(alpha, vf_load(at))));
            if (ahead && i >= DECODE_ROWS / 2) {
                __builtin_prefetch(at + ahead, 1, 3);
            }
        }
    }
}

/* The dots of four rows come before the update of the four before them, so that neither waits for its own sums. */
static void simd_decode_vk(const gdn_decode_step *s)
{
    float u[2][DECODE_ROWS];
    decode_vk_dots(s, 0, u[0]);
    for (int row = 0; row < s->count; row += DECODE_ROWS) {
        const int at = row / DECODE_ROWS % 2;
        if (row + DECODE_ROWS < s->count) {
            decode_vk_dots(s, row + DECODE_ROWS, u[1 - at]);
        }
        decode_vk_update(s, row, u[at]);
    }
}

/* [K, V]: v runs along the lanes. */
GDN_INLINE void decode_kv_columns(const gdn_decode_step *s, int col, const int VECTORS)
{
    const int K = s->head_k_dim;
    const float *const k = s->k, *const q = s->q;
    const ptrdiff_t src_stride = s->src_stride, dst_stride = s->dst_stride, ahead = s->src_ahead;
    const float *src = s->src + col;
    float *dst = s->dst + col;
    vf ks[DECODE_VECTORS], qs[DECODE_VECTORS];
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        ks[c] = qs[c] = vf_zero();
    }
    for (int d = 0; d < K; d++) {
        const vf kd = vf_set1(k[d]), qd = vf_set1(q[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const vf x = vf_load(src + d * src_stride + c * VF_LANES);
            ks[c] = vf_fma(x, kd, ks[c]);
            qs[c] = vf_fma(x, qd, qs[c]);
            if (ahead && c % 2 == 0) {
                __builtin_prefetch(src + d * src_stride + c * VF_LANES + ahead, 1, 3);
            }
        }
    }
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        ks[c] = decode_finish(s, col + c * VF_LANES, ks[c], qs[c]);
    }
    const vf alpha = vf_set1(s->alpha);
    for (int d = 0; d < K; d++) {
        const vf kd = vf_set1(k[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const vf x = vf_load(src + d * src_stride + c * VF_LANES);
            if (ahead && c % 2 != 0) {
                __builtin_prefetch(src + d * src_stride + c * VF_LANES + ahead, 1, 3);
            }
            vf_store(dst + d * dst_stride + c * VF_LANES, vf_fma(kd, ks[c], vf_mul(alpha, x)));
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
