/* Decode on columns of a [K, V] state: v runs along the lanes. */
#ifndef GDN_SIMD_DECODE_KV_H
#define GDN_SIMD_DECODE_KV_H

#include "simd_decode.h"

/* Elements in a cache line: the dots ask for the even ones of a row, the update for the others. */
GDN_INLINE int kv_line(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 ? 16 : 32;
}

/* u and o of token t for the lanes at c */
GDN_INLINE vf kv_finish(const gdn_decode_block *b, int t, int c, vf ks, vf qs)
{
    const vf alpha = vf_set1(b->alpha[t]);
    const int at = t * GDN_DECODE_COLUMNS + c;
    const vf u = vf_mul(vf_set1(b->beta[t]), vf_sub(vf_load(b->v + at), vf_mul(alpha, ks)));
    vf_store(b->o + at, vf_mul(vf_set1(b->scale), vf_fma(vf_set1(b->qk[t]), u, vf_mul(alpha, qs))));
    return u;
}

GDN_INLINE void kv_dots(const gdn_decode_block *b, int col, vf u[DECODE_VECTORS], const int VECTORS,
                        const gdn_dtype SRC)
{
    const int K = b->head_k_dim;
    const float *const k = b->k, *const q = b->q;
    const ptrdiff_t stride = b->src_stride, ahead = b->src_ahead;
    const int asking = b->asking_dots;
    const void *const src = b->src;
    vf qs[DECODE_VECTORS];
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        u[c] = qs[c] = vf_zero();
    }
    for (int d = 0; d < K; d++) {
        const vf kd = vf_set1(k[d]), qd = vf_set1(q[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const ptrdiff_t at = d * stride + col + c * VF_LANES;
            const vf x = load_any(SRC, src, at);
            u[c] = vf_fma(x, kd, u[c]);
            qs[c] = vf_fma(x, qd, qs[c]);
            if (d < asking && c * VF_LANES / kv_line(SRC) % 2 == 0) {
                decode_ask(SRC, src, at + ahead, c * VF_LANES);
            }
        }
    }
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        u[c] = kv_finish(b, 0, col + c * VF_LANES, u[c], qs[c]);
    }
}

GDN_INLINE void kv_update(const gdn_decode_block *b, int t, int col, const vf u[DECODE_VECTORS], const void *src,
                          ptrdiff_t src_stride, const bool ASK, const int VECTORS, const gdn_dtype SRC,
                          const gdn_dtype DST)
{
    const int K = b->head_k_dim;
    const float *const k = b->k + t * K;
    const vf alpha = vf_set1(b->alpha[t]);
    void *const dst = b->dst;
    const ptrdiff_t dst_stride = b->dst_stride, ahead = b->src_ahead;
    const int asking = b->asking_update;
    for (int d = 0; d < K; d++) {
        const vf kd = vf_set1(k[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const ptrdiff_t at = d * src_stride + col + c * VF_LANES;
            const vf x = load_any(SRC, src, at);
            if (ASK && d < asking && c * VF_LANES / kv_line(SRC) % 2 != 0) {
                decode_ask(SRC, src, at + ahead, c * VF_LANES);
            }
            store_any(DST, dst, d * dst_stride + col + c * VF_LANES, vf_fma(kd, u[c], vf_mul(alpha, x)));
        }
    }
}

GDN_INLINE void kv_update_dots(const gdn_decode_block *b, int t, int col, vf u[DECODE_VECTORS], const void *src,
                               ptrdiff_t src_stride, const bool ASK, const int VECTORS, const gdn_dtype SRC)
{
    const int K = b->head_k_dim, tile_stride = b->count;
    const float *const k = b->k + t * K, *const next_k = k + K, *const next_q = b->q + (t + 1) * K;
    const vf alpha = vf_set1(b->alpha[t]);
    float *const tile = b->tile + col;
    const ptrdiff_t ahead = b->src_ahead;
    const int asking = b->asking_update;
    vf ks[DECODE_VECTORS], qs[DECODE_VECTORS];
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        ks[c] = qs[c] = vf_zero();
    }
    for (int d = 0; d < K; d++) {
        const vf kd = vf_set1(k[d]), next_kd = vf_set1(next_k[d]), next_qd = vf_set1(next_q[d]);
        GDN_UNROLL
        for (int c = 0; c < VECTORS; c++) {
            const ptrdiff_t at = d * src_stride + col + c * VF_LANES;
            const vf x = vf_fma(kd, u[c], vf_mul(alpha, load_any(SRC, src, at)));
            if (ASK && d < asking && c * VF_LANES / kv_line(SRC) % 2 != 0) {
                decode_ask(SRC, src, at + ahead, c * VF_LANES);
            }
            vf_store(tile + d * tile_stride + c * VF_LANES, x);
            ks[c] = vf_fma(x, next_kd, ks[c]);
            qs[c] = vf_fma(x, next_qd, qs[c]);
        }
    }
    GDN_UNROLL
    for (int c = 0; c < VECTORS; c++) {
        u[c] = kv_finish(b, t + 1, col + c * VF_LANES, ks[c], qs[c]);
    }
}

/* All tokens of the columns at `col`. */
GDN_INLINE void kv_tokens(const gdn_decode_block *b, int col, const int VECTORS, const gdn_dtype SRC,
                          const gdn_dtype DST)
{
    vf u[DECODE_VECTORS];
    kv_dots(b, col, u, VECTORS, SRC);
    if (b->tokens == 1) {
        if (b->dst) {
            kv_update(b, 0, col, u, b->src, b->src_stride, true, VECTORS, SRC, DST);
        }
        return;
    }
    kv_update_dots(b, 0, col, u, b->src, b->src_stride, true, VECTORS, SRC);
    for (int t = 1; t < b->tokens - 1; t++) {
        kv_update_dots(b, t, col, u, b->tile, b->count, false, VECTORS, GDN_DTYPE_F32);
    }
    if (b->dst) {
        kv_update(b, b->tokens - 1, col, u, b->tile, b->count, false, VECTORS, GDN_DTYPE_F32, DST);
    }
}

GDN_INLINE void kv_columns(const gdn_decode_block *b, const gdn_dtype SRC, const gdn_dtype DST)
{
    enum { WIDE = DECODE_VECTORS, HALF = WIDE / 2, QUARTER = WIDE / 4 };
    int col = 0;
    for (; col + WIDE * VF_LANES <= b->count; col += WIDE * VF_LANES) {
        kv_tokens(b, col, WIDE, SRC, DST);
    }
    for (; col + HALF * VF_LANES <= b->count; col += HALF * VF_LANES) {
        kv_tokens(b, col, HALF, SRC, DST);
    }
    for (; QUARTER > 1 && col + QUARTER * VF_LANES <= b->count; col += QUARTER * VF_LANES) {
        kv_tokens(b, col, QUARTER, SRC, DST);
    }
    for (; col < b->count; col += VF_LANES) {
        kv_tokens(b, col, 1, SRC, DST);
    }
}

DECODE_VARIANT kv_f32(const gdn_decode_block *b)
{
    kv_columns(b, GDN_DTYPE_F32, GDN_DTYPE_F32);
}
DECODE_VARIANT kv_bf16(const gdn_decode_block *b)
{
    kv_columns(b, GDN_DTYPE_BF16, GDN_DTYPE_BF16);
}
DECODE_VARIANT kv_f16(const gdn_decode_block *b)
{
    kv_columns(b, GDN_DTYPE_F16, GDN_DTYPE_F16);
}
DECODE_VARIANT kv_bf16_to_f32(const gdn_decode_block *b)
{
    kv_columns(b, GDN_DTYPE_BF16, GDN_DTYPE_F32);
}
DECODE_VARIANT kv_f16_to_f32(const gdn_decode_block *b)
{
    kv_columns(b, GDN_DTYPE_F16, GDN_DTYPE_F32);
}

static void simd_decode_kv(const gdn_decode_block *b)
{
    const bool wide = b->dst_dtype == GDN_DTYPE_F32;
    if (b->src_dtype == GDN_DTYPE_F32) {
        kv_f32(b);
    } else if (b->src_dtype == GDN_DTYPE_BF16) {
        (wide ? kv_bf16_to_f32 : kv_bf16)(b);
    } else {
        (wide ? kv_f16_to_f32 : kv_f16)(b);
    }
}

#endif
