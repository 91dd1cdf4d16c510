/* fused_operands.h */
#include "fused_operands.h"

#include <string.h>

enum { B = GDN_TOKEN_BLOCK };

float *gdn_scratch_take(unsigned char *base, size_t *used, size_t floats)
{
    float *piece = base ? (float *)(void *)(base + *used) : NULL;
    *used += (floats * sizeof(float) + 63) / 64 * 64;
    return piece;
}

void gdn_operands_place_pack(gdn_operands *o, unsigned char *base, size_t *used)
{
    const bool pairs = o->kernels->pair_rows != NULL, row_major = o->kernels->left_row_major;
    const size_t K = (size_t)o->K, C = (size_t)o->C, words = pairs ? K / 2 : K, depth = C / 2;
    o->packed = gdn_scratch_take(base, used, C / B * words * GDN_PAIR);
    if (!row_major) {
        o->k = (gdn_left){o->packed, GDN_PAIR, (ptrdiff_t)words * GDN_PAIR};
        o->q = (gdn_left){base ? o->packed + B : NULL, GDN_PAIR, (ptrdiff_t)words * GDN_PAIR};
    } else {
        o->k = (gdn_left){gdn_scratch_take(base, used, C * words), (ptrdiff_t)words, (ptrdiff_t)(B * words)};
        o->q_rows = gdn_scratch_take(base, used, C * K);
    }
    o->keys = o->k;
    if (pairs) {
        float *const keys = gdn_scratch_take(base, used, K * depth);
        o->keys = row_major ? (gdn_left){keys, (ptrdiff_t)depth, (ptrdiff_t)(B * depth)} : (gdn_left){keys, o->K, B};
    }
}

void gdn_operands_place(gdn_operands *o, float *mask, unsigned char *base, size_t *used)
{
    const bool row_major = o->kernels->left_row_major;
    const size_t K = (size_t)o->K, C = (size_t)o->C, words = K / 2, strip = (size_t)o->kernels->strip;
    if (!o->kernels->pair_rows) {
        o->lower = (gdn_left){base ? mask + B : NULL, GDN_PAIR, (ptrdiff_t)C * GDN_PAIR};
        return;
    }
    const size_t depth = C / 2; /* words along the tokens */
    o->k_rows = gdn_scratch_take(base, used, C * K);
    o->state = gdn_scratch_take(base, used, strip * words * GDN_PANEL);
    o->v = gdn_scratch_take(base, used, 2 * strip * depth * GDN_PANEL);
    o->stage = gdn_scratch_take(base, used, K * depth > B * words ? K * depth : B * words);
    float *const lower = gdn_scratch_take(base, used, C * depth);
    if (row_major) {
        o->q = (gdn_left){gdn_scratch_take(base, used, C * words), (ptrdiff_t)words, (ptrdiff_t)(B * words)};
        o->lower = (gdn_left){lower, (ptrdiff_t)depth, (ptrdiff_t)(B * depth)};
    } else {
        o->q_rows = gdn_scratch_take(base, used, B * K);
        o->lower = (gdn_left){lower, B, (ptrdiff_t)(B * depth)};
    }
}

/* One half of a block's packed array, k or q; in bfloat16 by way of the scaled rows in `rows` and their words in `words`. */
static void pack_tokens(const gdn_operands *o, const gdn_token_rows *from, float *rows, float *words, float *packed)
{
    const gdn_cpu_kernels *kernels = o->kernels;
    const int K = o->K;
    if (!kernels->pair_rows) {
        kernels->transpose(B, K, from->x, from->ld, from->scale, packed, GDN_PAIR);
        return;
    }
    if (kernels->left_row_major) {
        kernels->round_rows(B, K, from->x, from->ld, from->scale, words, K / 2);
    } else {
        kernels->load_rows(GDN_DTYPE_F32, B, K, from->x, from->ld, rows, K);
        kernels->scale_rows(B, K, from->scale, rows, K);
        kernels->store_rows(GDN_DTYPE_BF16, B, K, rows, K, words, K);
    }
    kernels->transpose(B, K / 2, words, K / 2, NULL, packed, GDN_PAIR);
}

static float *packed_block(const gdn_operands *o, int first)
{
    return o->packed + first / B * gdn_operands_words(o, o->K) * GDN_PAIR;
}

void gdn_operands_k(gdn_operands *o, int first, const gdn_token_rows *k)
{
    float *words = o->kernels->left_row_major ? o->k.words + first / B * o->k.block : o->stage;
    pack_tokens(o, k, o->k_rows ? o->k_rows + first * o->K : NULL, words, packed_block(o, first));
}

void gdn_operands_q(gdn_operands *o, int first, const gdn_token_rows *q)
{
    pack_tokens(o, q, o->q_rows, o->stage, packed_block(o, first) + B);
    if (o->kernels->left_row_major) { /* kept for gdn_operands_head_q */
        float *rows = o->q_rows + first * o->K;
        o->kernels->load_rows(GDN_DTYPE_F32, B, o->K, q->x, q->ld, rows, o->K);
        o->kernels->scale_rows(B, o->K, q->scale, rows, o->K);
    }
}

void gdn_operands_head_q(gdn_operands *o, int n, const float *gamma)
{
    if (o->kernels->left_row_major) {
        o->kernels->round_rows((n + B - 1) / B * B, o->K, o->q_rows, o->K, gamma, o->q.words, o->q.ld);
    }
}

void gdn_operands_keys(gdn_operands *o, int n)
{
    const gdn_cpu_kernels *kernels = o->kernels;
    if (!kernels->pair_rows) {
        return;
    }
    const int depth = o->C / 2, filled = (n + 1) / 2;
    float *pairs = kernels->left_row_major ? o->stage : o->keys.words;
    if (!kernels->left_row_major) {
        kernels->pair_rows(n, o->K, o->k_rows, o->K, pairs, o->K);
    } else {
        kernels->pair_words(n, o->K, o->k.words, o->k.ld, pairs, o->K);
        memset(pairs + filled * o->K, 0, (size_t)(depth - filled) * (size_t)o->K * sizeof(float));
        kernels->transpose(depth, o->K, pairs, o->K, NULL, o->keys.words, depth);
    }
}

void gdn_operands_lower(gdn_operands *o, int n, const float *mask)
{
    const gdn_cpu_kernels *kernels = o->kernels;
    if (!kernels->pair_rows) {
        return;
    }
    const int depth = o->C / 2;
    for (int first = 0; first < n; first += B) {
        const float *P = mask + first / B * o->C * GDN_PAIR + B;
        float *words = o->lower.words + first / B * o->lower.block;
        float *pairs = kernels->left_row_major ? o->stage : words;
        kernels->pair_rows(first + B, B, P, GDN_PAIR, pairs, B);
        if (kernels->left_row_major) {
            const int filled = (first + B) / 2;
            memset(pairs + filled * B, 0, (size_t)(depth - filled) * B * sizeof(float));
            kernels->transpose(depth, B, pairs, B, NULL, words, depth);
        }
    }
}

const float *gdn_operands_right(const gdn_operands *o, int rows, int padded, int cols, const float *x, float *pairs)
{
    if (!o->kernels->pair_rows) {
        return x;
    }
    o->kernels->pair_rows(rows, cols, x, GDN_PANEL, pairs, GDN_PANEL);
    const int filled = (rows + 1) / 2;
    if (filled < padded / 2) {
        memset(pairs + filled * GDN_PANEL, 0, (size_t)(padded / 2 - filled) * GDN_PANEL * sizeof(float));
    }
    return pairs;
}

void gdn_operands_residual(const gdn_operands *o, const gdn_product *residual, int count)
{
    if (!o->kernels->solve_sums) {
        o->kernels->product_rows(residual, count);
        return;
    }
    gdn_product sums[GDN_MAX_STRIP];
    for (int i = 0; i < count; i++) {
        sums[i] = residual[i];
        sums[i].scale = NULL;
        sums[i].add = NULL;
        sums[i].ask[0].count = sums[i].ask[1].count = 0;
    }
    o->kernels->product_rows(sums, count);
}

void gdn_operands_solve(const gdn_operands *o, const gdn_product *residual, int count, const float *mask,
                        const float *rest, float *rest_x, const float **v, const float **rest_v)
{
    const gdn_cpu_kernels *kernels = o->kernels;
    const ptrdiff_t n_block = o->C * GDN_PAIR;
    const int rows = residual[0].rows;
    if (!kernels->pair_rows) {
        for (int i = 0; i < count; i++) {
            float *const scaled = rest_x + i * o->C * GDN_PANEL;
            kernels->solve(rows, residual[i].cols, mask, n_block, residual[i].out, rest, scaled);
            v[i] = residual[i].out;
            rest_v[i] = scaled;
        }
        return;
    }
    const int floats = o->C / 2 * GDN_PANEL, filled = rows / 2 * GDN_PANEL;
    float *pairs[GDN_MAX_STRIP] = {NULL}, *rest_pairs[GDN_MAX_STRIP] = {NULL};
    for (int i = 0; i < count; i++) {
        pairs[i] = o->v + 2 * i * floats;
        rest_pairs[i] = pairs[i] + floats;
        v[i] = pairs[i];
        rest_v[i] = rest_pairs[i];
    }
    if (kernels->solve_sums) {
        kernels->solve_sums(residual, count, mask, n_block, rest, rest_pairs, pairs);
    }
    for (int i = 0; i < count; i++) {
        if (!kernels->solve_sums) {
            kernels->solve_pairs(rows, residual[i].cols, mask, n_block, residual[i].out, rest, rest_pairs[i], pairs[i]);
        }
        memset(pairs[i] + filled, 0, (size_t)(floats - filled) * sizeof(float));
        memset(rest_pairs[i] + filled, 0, (size_t)(floats - filled) * sizeof(float));
    }
}
