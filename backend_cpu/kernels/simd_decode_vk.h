/* Decode on rows of a [V, K] state: k runs along the lanes. */
#ifndef GDN_SIMD_DECODE_VK_H
#define GDN_SIMD_DECODE_VK_H

#include "simd_decode.h"

/* acc[i] += k . x, acc[i + DECODE_ROWS] += q . x */
GDN_INLINE void vk_accumulate(vf acc[2 * DECODE_ROWS], int i, vf x, vf k, vf q)
{
    acc[i] = vf_fma(x, k, acc[i]);
    acc[i + DECODE_ROWS] = vf_fma(x, q, acc[i + DECODE_ROWS]);
}

/* u and o of token t, rows row .. row + 3, from the dots k s and q s of each */
GDN_INLINE void vk_finish(const gdn_decode_block *b, int t, int row, const vf acc[2 * DECODE_ROWS], float *u)
{
    typedef float rows __attribute__((vector_size(DECODE_ROWS * sizeof(float))));
    const float alpha = b->alpha[t], beta = b->beta[t], qk = b->qk[t];
    const int at = t * GDN_DECODE_COLUMNS + row;
    float sums[2 * DECODE_ROWS];
    rows ks, qs, v;
    GDN_UNROLL
    for (int i = 0; i < 2 * DECODE_ROWS; i += 8) {
        vf_sum8(acc + i, sums + i);
    }
    memcpy(&ks, sums, sizeof(ks));
    memcpy(&qs, sums + DECODE_ROWS, sizeof(qs));
    memcpy(&v, b->v + at, sizeof(v));
    const rows ui = beta * (v - alpha * ks), oi = b->scale * (alpha * qs + qk * ui);
    memcpy(u, &ui, sizeof(ui));
    memcpy(b->o + at, &oi, sizeof(oi));
}

/* The first token's dots; half of what the next block will want is asked for here, half in the update: a burst would be
 * dropped. */
GDN_INLINE void vk_dots(const gdn_decode_block *b, int row, float *u, const gdn_dtype SRC)
{
    const int K = b->head_k_dim;
    const float *const k = b->k, *const q = b->q;
    const ptrdiff_t stride = b->src_stride, ahead = b->src_ahead, at = row * stride;
    const void *const src = b->src;
    vf acc[2 * DECODE_ROWS];
    GDN_UNROLL
    for (int i = 0; i < 2 * DECODE_ROWS; i++) {
        acc[i] = vf_zero();
    }
    for (int d = 0; d < K; d += VF_LANES) {
        const vf kd = vf_load(k + d), qd = vf_load(q + d);
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            vk_accumulate(acc, i, load_any(SRC, src, at + i * stride + d), kd, qd);
            if (i < DECODE_ROWS / 2) {
                decode_ask(SRC, src, at + i * stride + d + ahead, d);
            }
        }
    }
    vk_finish(b, 0, row, acc, u);
}

/* s = alpha s + u k for token t, from src to dst */
GDN_INLINE void vk_update(const gdn_decode_block *b, int t, int row, const float *u, const void *src,
                          ptrdiff_t src_stride, void *dst, ptrdiff_t dst_stride, const bool ASK, const gdn_dtype SRC,
                          const gdn_dtype DST)
{
    const int K = b->head_k_dim;
    const float *const k = b->k + t * K;
    const vf alpha = vf_set1(b->alpha[t]);
    const ptrdiff_t from = row * src_stride, to = row * dst_stride, ahead = b->src_ahead;
    vf ui[DECODE_ROWS];
    GDN_UNROLL
    for (int i = 0; i < DECODE_ROWS; i++) {
        ui[i] = vf_set1(u[i]);
    }
    for (int d = 0; d < K; d += VF_LANES) {
        const vf kd = vf_load(k + d);
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            const vf x = load_any(SRC, src, from + i * src_stride + d);
            store_any(DST, dst, to + i * dst_stride + d, vf_fma(kd, ui[i], vf_mul(alpha, x)));
            if (ASK && i >= DECODE_ROWS / 2) {
                decode_ask(SRC, src, from + i * src_stride + d + ahead, d);
            }
        }
    }
}

/* The same into the tile, with the dots of token t + 1, whose u replaces token t's. */
GDN_INLINE void vk_update_dots(const gdn_decode_block *b, int t, int row, float *u, const void *src,
                               ptrdiff_t src_stride, const bool ASK, const gdn_dtype SRC)
{
    const int K = b->head_k_dim;
    const float *const k = b->k + t * K, *const next_k = k + K, *const next_q = b->q + (t + 1) * K;
    const vf alpha = vf_set1(b->alpha[t]);
    const ptrdiff_t from = row * src_stride, ahead = b->src_ahead;
    float *const tile = b->tile + row * K;
    vf ui[DECODE_ROWS], acc[2 * DECODE_ROWS];
    GDN_UNROLL
    for (int i = 0; i < DECODE_ROWS; i++) {
        ui[i] = vf_set1(u[i]);
        acc[i] = acc[i + DECODE_ROWS] = vf_zero();
    }
    for (int d = 0; d < K; d += VF_LANES) {
        const vf kd = vf_load(k + d), next_kd = vf_load(next_k + d), next_qd = vf_load(next_q + d);
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            const vf x = vf_fma(kd, ui[i], vf_mul(alpha, load_any(SRC, src, from + i * src_stride + d)));
            vf_store(tile + i * K + d, x);
            vk_accumulate(acc, i, x, next_kd, next_qd);
            if (ASK && i >= DECODE_ROWS / 2) {
                decode_ask(SRC, src, from + i * src_stride + d + ahead, d);
            }
        }
    }
    vk_finish(b, t + 1, row, acc, u);
}

/* The dots of four rows come before the update of the four before them, so that neither waits for its own sums. */
GDN_INLINE void vk_one_token(const gdn_decode_block *b, const gdn_dtype SRC, const gdn_dtype DST)
{
    float u[2][DECODE_ROWS];
    vk_dots(b, 0, u[0], SRC);
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        const int at = row / DECODE_ROWS % 2;
        if (row + DECODE_ROWS < b->count) {
            vk_dots(b, row + DECODE_ROWS, u[1 - at], SRC);
        }
        if (b->dst) {
            vk_update(b, 0, row, u[at], b->src, b->src_stride, b->dst, b->dst_stride, true, SRC, DST);
        }
    }
}

GDN_INLINE void vk_first_tokens(const gdn_decode_block *b, float u[DECODE_BLOCK], const gdn_dtype SRC)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_dots(b, row, u + row, SRC);
    }
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_update_dots(b, 0, row, u + row, b->src, b->src_stride, true, SRC);
    }
}

DECODE_VARIANT vk_one_f32(const gdn_decode_block *b)
{
    vk_one_token(b, GDN_DTYPE_F32, GDN_DTYPE_F32);
}
DECODE_VARIANT vk_one_bf16(const gdn_decode_block *b)
{
    vk_one_token(b, GDN_DTYPE_BF16, GDN_DTYPE_BF16);
}
DECODE_VARIANT vk_one_f16(const gdn_decode_block *b)
{
    vk_one_token(b, GDN_DTYPE_F16, GDN_DTYPE_F16);
}
DECODE_VARIANT vk_one_bf16_to_f32(const gdn_decode_block *b)
{
    vk_one_token(b, GDN_DTYPE_BF16, GDN_DTYPE_F32);
}
DECODE_VARIANT vk_one_f16_to_f32(const gdn_decode_block *b)
{
    vk_one_token(b, GDN_DTYPE_F16, GDN_DTYPE_F32);
}
DECODE_VARIANT vk_first_f32(const gdn_decode_block *b, float *u)
{
    vk_first_tokens(b, u, GDN_DTYPE_F32);
}
DECODE_VARIANT vk_first_bf16(const gdn_decode_block *b, float *u)
{
    vk_first_tokens(b, u, GDN_DTYPE_BF16);
}
DECODE_VARIANT vk_first_f16(const gdn_decode_block *b, float *u)
{
    vk_first_tokens(b, u, GDN_DTYPE_F16);
}
DECODE_VARIANT vk_next(const gdn_decode_block *b, int t, float *u)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_update_dots(b, t, row, u + row, b->tile, b->head_k_dim, false, GDN_DTYPE_F32);
    }
}
DECODE_VARIANT vk_last(const gdn_decode_block *b, const float *u)
{
    const int t = b->tokens - 1, K = b->head_k_dim;
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        if (b->dst_dtype == GDN_DTYPE_F32) {
            vk_update(b, t, row, u + row, b->tile, K, b->dst, b->dst_stride, false, GDN_DTYPE_F32, GDN_DTYPE_F32);
        } else if (b->dst_dtype == GDN_DTYPE_BF16) {
            vk_update(b, t, row, u + row, b->tile, K, b->dst, b->dst_stride, false, GDN_DTYPE_F32, GDN_DTYPE_BF16);
        } else {
            vk_update(b, t, row, u + row, b->tile, K, b->dst, b->dst_stride, false, GDN_DTYPE_F32, GDN_DTYPE_F16);
        }
    }
}

static void simd_decode_vk(const gdn_decode_block *b)
{
    const bool wide = b->dst_dtype == GDN_DTYPE_F32;
    if (b->tokens == 1) {
        if (b->src_dtype == GDN_DTYPE_F32) {
            vk_one_f32(b);
        } else if (b->src_dtype == GDN_DTYPE_BF16) {
            (wide ? vk_one_bf16_to_f32 : vk_one_bf16)(b);
        } else {
            (wide ? vk_one_f16_to_f32 : vk_one_f16)(b);
        }
        return;
    }
    float u[DECODE_BLOCK];
    (b->src_dtype == GDN_DTYPE_F32    ? vk_first_f32
     : b->src_dtype == GDN_DTYPE_BF16 ? vk_first_bf16
                                      : vk_first_f16)(b, u);
    for (int t = 1; t < b->tokens - 1; t++) {
        vk_next(b, t, u);
    }
    if (b->dst) {
        vk_last(b, u);
    }
}

#endif
