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

/* u and o of token t, some rows from `row` on, from the dots k s and q s of each */
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

/* Order. Memory is read as fast as a processor looks ahead, and that it does if lines are read one after the other, as a plain
 * update reads them, and nothing in between misses the first-level cache. So the dots take row after row, and rows are updated
 * before the dots take the next.
 *
 * Rows of VK_DIM, the head dim of the models so far, that lie side by side (DIM; else 0) have addresses that are known at compile
 * time: compilers run out of registers for others. k stays in registers where there are enough (VK_HOLD), else some rows side
 * by side share what is loaded of k and q. */
enum { VK_DIM = 128, VK_HELD = VK_DIM / VF_LANES, VK_HOLD = VF_REGISTERS >= 2 * DECODE_ROWS + VK_HELD + 4 };

GDN_INLINE int vk_side(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 ? 2 : DECODE_ROWS; /* rows of 16 bits are shorter, and more work */
}

/* The first token's dots. */
GDN_INLINE void vk_dots(const gdn_decode_block *b, int row, float *u, const int DIM, const gdn_dtype SRC)
{
    const int K = DIM ? DIM : b->head_k_dim, SIDE = vk_side(SRC);
    const float *const k = b->k, *const q = b->q;
    const ptrdiff_t stride = DIM ? DIM : b->src_stride;
    const void *from = decode_at(SRC, b->src, row * stride);
    vf acc[2 * DECODE_ROWS];
    GDN_UNROLL
    for (int i = 0; i < 2 * DECODE_ROWS; i++) {
        acc[i] = vf_zero();
    }
    if (DIM && VK_HOLD) {
        vf held[VK_HELD];
        GDN_UNROLL
        for (int j = 0; j < VK_HELD; j++) {
            held[j] = vf_load(k + j * VF_LANES);
        }
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i++) {
            GDN_UNROLL
            for (int j = 0; j < VK_HELD; j++) {
                const vf x = vf_keep(load_any(SRC, from, i * stride + j * VF_LANES));
                vk_accumulate(acc, i, x, held[j], vf_load(q + j * VF_LANES));
            }
        }
    } else {
        GDN_UNROLL
        for (int i = 0; i < DECODE_ROWS; i += SIDE) {
            const void *at = decode_at(SRC, from, i * stride);
            for (int d = 0; d < K; d += VF_LANES) {
                const vf kd = vf_load(k + d), qd = vf_load(q + d);
                GDN_UNROLL
                for (int j = 0; j < SIDE; j++) {
                    vk_accumulate(acc, i + j, vf_keep(load_any(SRC, at, j * stride)), kd, qd);
                }
                at = decode_at(SRC, at, VF_LANES);
            }
        }
    }
    vk_finish(b, 0, row, acc, u);
}

/* One vector of s = alpha s + u k, */
GDN_INLINE vf vk_updated(vf x, vf alpha, vf u, vf k)
{
    return vf_fma(k, u, vf_mul(alpha, x));
}

/* and some rows of it from `row` on for token t, from src to dst. Later ones are asked for (ASK). */
GDN_INLINE void vk_update(const gdn_decode_block *b, int t, int row, const float *u, const void *src,
                          ptrdiff_t src_stride, const bool ASK, const int DIM, const gdn_dtype SRC, const gdn_dtype DST)
{
    const int K = DIM ? DIM : b->head_k_dim, SIDE = vk_side(SRC);
    const float *const k = b->k + t * K;
    const vf alpha = vf_set1(b->alpha[t]);
    const ptrdiff_t step = DIM ? DIM : src_stride, dst_step = DIM ? DIM : b->dst_stride;
    const ptrdiff_t ahead = b->src_ahead;
    const void *from = decode_at(SRC, src, row * step);
    void *to = decode_at(DST, b->dst, row * dst_step);
    if (DIM && VK_HOLD) {
        vf held[VK_HELD];
        GDN_UNROLL
        for (int j = 0; j < VK_HELD; j++) {
            held[j] = vf_load(k + j * VF_LANES);
        }
        for (int i = 0; i < DECODE_ROWS; i++) {
            const vf ui = vf_set1(u[i]);
            GDN_UNROLL
            for (int j = 0; j < VK_HELD; j++) {
                const int d = j * VF_LANES;
                store_any(DST, to, d, vk_updated(load_any(SRC, from, d), alpha, ui, held[j]));
                if (ASK) {
                    decode_ask(SRC, from, d + ahead, d);
                }
            }
            from = decode_at(SRC, from, step);
            to = decode_at(DST, to, dst_step);
        }
        return;
    }
    for (int i = 0; i < DECODE_ROWS; i += SIDE) {
        vf ui[DECODE_ROWS];
        GDN_UNROLL
        for (int j = 0; j < SIDE; j++) {
            ui[j] = vf_set1(u[i + j]);
        }
        for (int d = 0; d < K; d += VF_LANES) {
            const vf kd = vf_load(k + d);
            GDN_UNROLL
            for (int j = 0; j < SIDE; j++) {
                store_any(DST, to, j * dst_step + d, vk_updated(load_any(SRC, from, j * step + d), alpha, ui[j], kd));
                if (ASK) {
                    decode_ask(SRC, from, j * step + d + ahead, d);
                }
            }
        }
        from = decode_at(SRC, from, SIDE * step);
        to = decode_at(DST, to, SIDE * dst_step);
    }
}

/* The same into the tile, with the dots of token t + 1, whose u replaces token t's. What this reads is in cache: rows are taken side
 * by side. */
GDN_INLINE void vk_update_dots(const gdn_decode_block *b, int t, int row, float *u, const void *src,
                               ptrdiff_t src_stride, const bool ASK, const int DIM, const gdn_dtype SRC)
{
    const int K = DIM ? DIM : b->head_k_dim;
    const float *const k = b->k + t * K, *const next_k = k + K, *const next_q = b->q + (t + 1) * K;
    const vf alpha = vf_set1(b->alpha[t]);
    const ptrdiff_t step = DIM ? DIM : src_stride, ahead = b->src_ahead;
    const void *from = decode_at(SRC, src, row * step);
    float *tile = b->tile + row * K;
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
            const vf x = vk_updated(load_any(SRC, from, i * step), alpha, ui[i], kd);
            vf_store(tile + i * K, x);
            vk_accumulate(acc, i, x, next_kd, next_qd);
            if (ASK) {
                decode_ask(SRC, from, i * step + ahead, d);
            }
        }
        from = decode_at(SRC, from, VF_LANES);
        tile += VF_LANES;
    }
    vk_finish(b, t + 1, row, acc, u);
}

GDN_INLINE void vk_one_token(const gdn_decode_block *b, const int DIM, const gdn_dtype SRC, const gdn_dtype DST)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        float u[DECODE_ROWS];
        vk_dots(b, row, u, DIM, SRC);
        if (b->dst && row < b->asking_update) {
            vk_update(b, 0, row, u, b->src, b->src_stride, true, DIM, SRC, DST);
        } else if (b->dst) {
            vk_update(b, 0, row, u, b->src, b->src_stride, false, DIM, SRC, DST);
        }
    }
}

GDN_INLINE void vk_first_tokens(const gdn_decode_block *b, float *u, const int DIM, const gdn_dtype SRC)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_dots(b, row, u + row, DIM, SRC);
    }
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        if (row < b->asking_update) {
            vk_update_dots(b, 0, row, u + row, b->src, b->src_stride, true, DIM, SRC);
        } else {
            vk_update_dots(b, 0, row, u + row, b->src, b->src_stride, false, DIM, SRC);
        }
    }
}

GDN_INLINE void vk_next_token(const gdn_decode_block *b, int t, float *u, const int DIM)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_update_dots(b, t, row, u + row, b->tile, b->head_k_dim, false, DIM, GDN_DTYPE_F32);
    }
}

GDN_INLINE void vk_last_update(const gdn_decode_block *b, const float *u, const int DIM, const gdn_dtype DST)
{
    for (int row = 0; row < b->count; row += DECODE_ROWS) {
        vk_update(b, b->tokens - 1, row, u + row, b->tile, b->head_k_dim, false, DIM, GDN_DTYPE_F32, DST);
    }
}

#define VK_ONE(NAME, DIM, SRC, DST)                \
    DECODE_VARIANT NAME(const gdn_decode_block *b) \
    {                                              \
        vk_one_token(b, DIM, SRC, DST);            \
    }
#define VK_FIRST(NAME, DIM, SRC)                             \
    DECODE_VARIANT NAME(const gdn_decode_block *b, float *u) \
    {                                                        \
        vk_first_tokens(b, u, DIM, SRC);                     \
    }
#define VK_NEXT(NAME, DIM)                                          \
    DECODE_VARIANT NAME(const gdn_decode_block *b, int t, float *u) \
    {                                                               \
        vk_next_token(b, t, u, DIM);                                \
    }
#define VK_LAST(NAME, DIM, DST)                                    \
    DECODE_VARIANT NAME(const gdn_decode_block *b, const float *u) \
    {                                                              \
        vk_last_update(b, u, DIM, DST);                            \
    }
VK_ONE(vk_one_f32, 0, GDN_DTYPE_F32, GDN_DTYPE_F32)
VK_ONE(vk_one_f32_dense, VK_DIM, GDN_DTYPE_F32, GDN_DTYPE_F32)
VK_ONE(vk_one_bf16, 0, GDN_DTYPE_BF16, GDN_DTYPE_BF16)
VK_ONE(vk_one_bf16_dense, VK_DIM, GDN_DTYPE_BF16, GDN_DTYPE_BF16)
VK_ONE(vk_one_f16, 0, GDN_DTYPE_F16, GDN_DTYPE_F16)
VK_ONE(vk_one_f16_dense, VK_DIM, GDN_DTYPE_F16, GDN_DTYPE_F16)
VK_ONE(vk_one_bf16_to_f32, 0, GDN_DTYPE_BF16, GDN_DTYPE_F32)
VK_ONE(vk_one_f16_to_f32, 0, GDN_DTYPE_F16, GDN_DTYPE_F32)
VK_FIRST(vk_first_f32, 0, GDN_DTYPE_F32)
VK_FIRST(vk_first_f32_dense, VK_DIM, GDN_DTYPE_F32)
VK_FIRST(vk_first_bf16, 0, GDN_DTYPE_BF16)
VK_FIRST(vk_first_bf16_dense, VK_DIM, GDN_DTYPE_BF16)
VK_FIRST(vk_first_f16, 0, GDN_DTYPE_F16)
VK_FIRST(vk_first_f16_dense, VK_DIM, GDN_DTYPE_F16)
VK_NEXT(vk_next, 0)
VK_NEXT(vk_next_dense, VK_DIM)
VK_LAST(vk_last_f32, 0, GDN_DTYPE_F32)
VK_LAST(vk_last_f32_dense, VK_DIM, GDN_DTYPE_F32)
VK_LAST(vk_last_bf16, 0, GDN_DTYPE_BF16)
VK_LAST(vk_last_bf16_dense, VK_DIM, GDN_DTYPE_BF16)
VK_LAST(vk_last_f16, 0, GDN_DTYPE_F16)
VK_LAST(vk_last_f16_dense, VK_DIM, GDN_DTYPE_F16)

static void vk_one(const gdn_decode_block *b)
{
    const bool dense = b->head_k_dim == VK_DIM && b->src_stride == VK_DIM && b->dst_stride == VK_DIM;
    const bool wide = b->dst_dtype == GDN_DTYPE_F32;
    if (b->src_dtype == GDN_DTYPE_F32) {
        (dense ? vk_one_f32_dense : vk_one_f32)(b);
    } else if (b->src_dtype == GDN_DTYPE_BF16) {
        (wide ? vk_one_bf16_to_f32 : dense ? vk_one_bf16_dense : vk_one_bf16)(b);
    } else {
        (wide ? vk_one_f16_to_f32 : dense ? vk_one_f16_dense : vk_one_f16)(b);
    }
}

static void vk_first(const gdn_decode_block *b, float *u)
{
    const bool dense = b->head_k_dim == VK_DIM && b->src_stride == VK_DIM;
    if (b->src_dtype == GDN_DTYPE_F32) {
        (dense ? vk_first_f32_dense : vk_first_f32)(b, u);
    } else if (b->src_dtype == GDN_DTYPE_BF16) {
        (dense ? vk_first_bf16_dense : vk_first_bf16)(b, u);
    } else {
        (dense ? vk_first_f16_dense : vk_first_f16)(b, u);
    }
}

static void vk_last(const gdn_decode_block *b, const float *u)
{
    const bool dense = b->head_k_dim == VK_DIM && b->dst_stride == VK_DIM;
    if (b->dst_dtype == GDN_DTYPE_F32) {
        (dense ? vk_last_f32_dense : vk_last_f32)(b, u);
    } else if (b->dst_dtype == GDN_DTYPE_BF16) {
        (dense ? vk_last_bf16_dense : vk_last_bf16)(b, u);
    } else {
        (dense ? vk_last_f16_dense : vk_last_f16)(b, u);
    }
}

static void simd_decode_vk(const gdn_decode_block *b)
{
    if (b->tokens == 1) {
        vk_one(b);
        return;
    }
    float u[GDN_DECODE_COLUMNS];
    vk_first(b, u);
    for (int t = 1; t < b->tokens - 1; t++) {
        (b->head_k_dim == VK_DIM ? vk_next_dense : vk_next)(b, t, u);
    }
    if (b->dst) {
        vk_last(b, u);
    }
}

#endif
