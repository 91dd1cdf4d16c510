/* What the products of a chunk need of its tokens: packed q and k and their Gram matrices, gates, masks (fused_chunk.h). */
#include <string.h>

#include "fused_chunk.h"
#include "fused_rows.h"
#include "numeric.h"

enum { B = GDN_TOKEN_BLOCK };

/* States keep their distance from float32's largest number, and terms that are added to them from its smallest. */
static const float LEAST_SCALE = 0x1p-32f;

/* Rows t .. t + rows - 1 of q or k and their factors: the caller's own where they are float32 and a whole block, else
 * copies, filled up with zeros. */
static gdn_token_rows rows_of(gdn_chunk_work *w, const gdn_fused_sequence *seq, const gdn_layout *layout,
                              const void *data, int hk, int64_t t, int rows, float scale, float factor[B])
{
    const gdn_problem *p = w->problem;
    const int K = p->head_k_dim;
    const int64_t offset = gdn_row_offset(layout, seq->row, seq->length, seq->first + t, hk);
    gdn_token_rows got = {gdn_at(data, layout->dtype, offset), layout->token_stride, factor};
    if (layout->dtype != GDN_DTYPE_F32 || rows < B) {
        w->kernels->load_rows(layout->dtype, rows, K, got.x, got.ld, w->stage, K);
        memset(w->stage + rows * K, 0, (size_t)(B - rows) * (size_t)K * sizeof(float));
        got.x = w->stage;
        got.ld = K;
    }
    w->kernels->norm_factors(p->qk_norm, p->qk_norm_eps, scale, rows, K, got.x, got.ld, factor);
    return got;
}

void gdn_chunk_pack(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hk, int64_t t, int n)
{
    const gdn_problem *p = w->problem;
    const gdn_cpu_kernels *kernels = w->kernels;
    const int C = gdn_round_up(w->chunk, B);
    gdn_operands *o = &w->operands;
    const int words = gdn_operands_words(o, p->head_k_dim);
    gdn_product gram[GDN_MAX_CHUNK / B];
    for (int first = 0; first < n; first += B) {
        const int rows = n - first < B ? n - first : B;
        float factor[B] = {0};
        const gdn_token_rows k = rows_of(w, seq, &p->k, w->args->k, hk, t + first, rows, 1.0f, factor);
        gdn_operands_k(o, first, &k);
        const gdn_token_rows q = rows_of(w, seq, &p->q, w->args->q, hk, t + first, rows, p->scale, factor);
        gdn_operands_q(o, first, &q);

        /* k_j k_i | k_j q_i for i in this block and every j up to its end */
        gram[first / B] = (gdn_product){
            .rows = first + B,
            .cols = GDN_PAIR,
            .depth = words,
            .a = o->k.words,
            .lda = o->k.ld,
            .a_block = o->k.block,
            .b = o->packed + first / B * words * GDN_PAIR,
            .out_dtype = GDN_DTYPE_F32,
            .out_rows = first + B,
            .out = w->gram + first / B * C * GDN_PAIR,
            .ldo = GDN_PAIR,
        };
    }
    kernels->product(gram, (n + B - 1) / B);
    gdn_operands_keys(o, n);
}

void gdn_chunk_decay_after(gdn_chunk_work *w, int at, float *rest)
{
    const int padded = gdn_round_up(at + 1, B);
    for (int i = 0; i < padded; i++) {
        const int j = i < at ? i : at;
        rest[i] = (w->G_high[at] - w->G_high[j]) + (w->G_low[at] - w->G_low[j]);
    }
    w->kernels->exp(padded, rest, rest);
}

/* Whether, and how, the update multiplies the state. */
static void choose_scale(gdn_chunk_work *w, int n, bool settle)
{
    const float g = w->gamma[n - 1];
    w->state_scale = NULL;
    w->next_scale = g;
    if (settle || !(g >= LEAST_SCALE)) {
        w->state_scale = &w->gamma[n - 1];
        w->next_scale = 1.0f;
        return;
    }
    const float inverse = 1.0f / g;
    for (int i = 0; i < gdn_round_up(n, B); i++) {
        w->rest[i] *= inverse;
    }
}

void gdn_chunk_gates(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hv, int64_t t, int n, float scale,
                     bool settle)
{
    const gdn_problem *p = w->problem;
    const int C = gdn_round_up(w->chunk, B), padded = gdn_round_up(n, B);
    const int64_t gate = gdn_row_offset(&p->gate, seq->row, seq->length, seq->first + t, hv);
    const int64_t beta = gdn_row_offset(&p->beta, seq->row, seq->length, seq->first + t, hv);
    for (int i = 0; i < n; i++) {
        w->gate[i] = (double)gdn_load_element(w->args->gate, p->gate.dtype, gate + i * p->gate.token_stride);
        w->beta_raw[i] = (double)gdn_load_element(w->args->beta, p->beta.dtype, beta + i * p->beta.token_stride);
    }
    const gdn_gate_terms terms = {
        .gate_form = p->gate_form,
        .beta_form = p->beta_form,
        .A_log = w->args->A_log ? (double)w->args->A_log[hv] : 0.0,
        .dt_bias = w->args->dt_bias ? (double)w->args->dt_bias[hv] : 0.0,
        .beta_scale = (double)p->beta_scale,
    };
    w->kernels->gates(&terms, n, w->gate, w->beta_raw, w->gate, w->beta_raw);

    /* Rows past the end repeat G, so that they do not decay, and have beta = 0, so that they do not write. */
    double G = 0.0;
    for (int i = 0; i < padded; i++) {
        G += i < n ? w->gate[i] : 0.0;
        w->G_high[i] = (float)G;
        w->G_low[i] = (float)(G - (double)w->G_high[i]);
        w->beta[i] = i < n ? (float)w->beta_raw[i] : 0.0f;
    }
    w->kernels->exp(padded, w->G_high, w->gamma);
    for (int i = 0; i < padded; i++) {
        /* exp(high + low) = exp(high) (1 + low) to float32's precision: |low| <= 2^-24 |high|, high > -104 where it counts */
        w->gamma[i] = scale * (w->gamma[i] + w->gamma[i] * w->G_low[i]);
        w->minus_beta_gamma[i] = -w->beta[i] * w->gamma[i];
    }
    gdn_chunk_decay_after(w, n - 1, w->rest);
    choose_scale(w, n, settle);
    for (int first = 0; first < n; first += B) {
        const int at = first / B * C * GDN_PAIR;
        w->kernels->decay_mask(first + B, first, w->G_high, w->G_low, w->beta, w->gram + at, w->mask + at);
    }
    gdn_operands_lower(&w->operands, n, w->mask);
    gdn_operands_head_q(&w->operands, n, w->gamma);
}
