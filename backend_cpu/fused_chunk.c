/* fused_chunk.h */
#include "fused_chunk.h"

#include <string.h>

#include "fused_rows.h"
#include "fused_state.h"
#include "numeric.h"

enum { B = GDN_TOKEN_BLOCK };

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static size_t place(gdn_chunk_work *w, const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk, int heads,
                    unsigned char *base)
{
    const size_t C = (size_t)round_up(chunk, B), K = (size_t)problem->head_k_dim, blocks = C / B;
    size_t used = 0;
    w->k = gdn_scratch_take(base, &used, C * K);
    w->stage = gdn_scratch_take(base, &used, B * K);
    w->gram = gdn_scratch_take(base, &used, blocks * C * GDN_PAIR);
    w->mask = gdn_scratch_take(base, &used, blocks * C * GDN_PAIR);
    w->v = gdn_scratch_take(base, &used, C * GDN_PANEL);
    w->ckpt_v = gdn_scratch_take(base, &used, C * GDN_PANEL);
    w->ckpt_state = gdn_scratch_take(base, &used, K * GDN_PANEL);
    w->ckpt_rest = gdn_scratch_take(base, &used, C);
    w->gate = (double *)(void *)gdn_scratch_take(base, &used, 2 * C);
    w->beta_raw = (double *)(void *)gdn_scratch_take(base, &used, 2 * C);
    w->G_high = gdn_scratch_take(base, &used, C);
    w->G_low = gdn_scratch_take(base, &used, C);
    w->beta = gdn_scratch_take(base, &used, C);
    w->minus_beta_gamma = gdn_scratch_take(base, &used, C);
    w->gamma = gdn_scratch_take(base, &used, C);
    w->rest = gdn_scratch_take(base, &used, C);
    gdn_operands_place(&w->operands, kernels, (int)K, (int)C, w->k, w->mask, base, &used);
    w->state = gdn_scratch_take(base, &used, (size_t)heads * gdn_fused_state_floats(problem));
    return used;
}

size_t gdn_chunk_work_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk, int heads)
{
    gdn_chunk_work unused;
    return place(&unused, kernels, problem, chunk, heads, NULL);
}

void gdn_chunk_work_place(gdn_chunk_work *work, int heads, unsigned char *base)
{
    place(work, work->kernels, work->problem, work->chunk, heads, base);
}

/* Rows t .. t + rows - 1 of q or k as float32, normalised and scaled; zeros up to a block. */
static void load_block(gdn_chunk_work *w, const gdn_fused_sequence *seq, const gdn_layout *layout, const void *data,
                       int hk, int64_t t, int rows, float scale, float *dst)
{
    const gdn_problem *p = w->problem;
    const int K = p->head_k_dim;
    const int64_t offset = gdn_row_offset(layout, seq->row, seq->length, seq->first + t, hk);
    w->kernels->load_rows(layout->dtype, rows, K, gdn_at(data, layout->dtype, offset), layout->token_stride, dst, K);
    w->kernels->normalize_rows(p->qk_norm, p->qk_norm_eps, scale, rows, K, dst, K);
    memset(dst + rows * K, 0, (size_t)(B - rows) * (size_t)K * sizeof(float));
}

void gdn_chunk_pack(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hk, int64_t t, int n)
{
    const gdn_problem *p = w->problem;
    const gdn_cpu_kernels *kernels = w->kernels;
    const int K = p->head_k_dim, C = round_up(w->chunk, B);
    gdn_operands *o = &w->operands;
    const int words = gdn_operands_words(o, K);
    for (int first = 0; first < n; first += B) {
        const int rows = n - first < B ? n - first : B;
        float *k = w->k + first * K;
        load_block(w, seq, &p->k, w->args->k, hk, t + first, rows, 1.0f, k);
        load_block(w, seq, &p->q, w->args->q, hk, t + first, rows, p->scale, w->stage);
        gdn_operands_tokens(o, first, k, w->stage);

        /* k_j k_i | k_j q_i for i in this block and every j up to its end */
        kernels->product(&(gdn_product){
            .rows = first + B,
            .cols = GDN_PAIR,
            .depth = words,
            .a = o->k.words,
            .lda = o->k.ld,
            .a_block = o->k.block,
            .b = o->packed + first / B * words * GDN_PAIR,
            .ldb = GDN_PAIR,
            .out_dtype = GDN_DTYPE_F32,
            .out_rows = first + B,
            .out = w->gram + first / B * C * GDN_PAIR,
            .ldo = GDN_PAIR,
        });
    }
    gdn_operands_keys(o, n, w->k);
}

/* rest_i = exp(G_at - G_i) for the first `at` + 1 tokens: what is left of token i's write after token `at`. */
static void decay_after(gdn_chunk_work *w, int at, float *rest)
{
    const int padded = round_up(at + 1, B);
    for (int i = 0; i < padded; i++) {
        const int j = i < at ? i : at;
        rest[i] = (w->G_high[at] - w->G_high[j]) + (w->G_low[at] - w->G_low[j]);
    }
    w->kernels->exp(padded, rest, rest);
}

void gdn_chunk_gates(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hv, int64_t t, int n)
{
    const gdn_problem *p = w->problem;
    const int C = round_up(w->chunk, B), padded = round_up(n, B);
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
        w->gamma[i] += w->gamma[i] * w->G_low[i];
        w->minus_beta_gamma[i] = -w->beta[i] * w->gamma[i];
    }
    decay_after(w, n - 1, w->rest);
    for (int first = 0; first < n; first += B) {
        const int at = first / B * C * GDN_PAIR;
        w->kernels->decay_mask(first + B, first, w->G_high, w->G_low, w->beta, w->gram + at, w->mask + at);
    }
    gdn_operands_lower(&w->operands, n, w->mask);
}

/* out = gamma_end S + K^T diag(rest) V' over the first `depth` tokens; v holds the scaled rows. */
static void update_state(const gdn_chunk_work *w, int cols, int depth, const float *v, const float *gamma_end,
                         const float *state, float *out)
{
    const gdn_operands *o = &w->operands;
    w->kernels->product(&(gdn_product){
        .rows = o->K,
        .cols = cols,
        .depth = gdn_operands_words(o, depth),
        .a = o->keys.words,
        .lda = o->keys.ld,
        .a_block = o->keys.block,
        .b = gdn_operands_right(o, depth, o->C, cols, v, o->v),
        .ldb = GDN_PANEL,
        .add_dtype = GDN_DTYPE_F32,
        .add_rows = o->K,
        .add = state,
        .ldadd = GDN_PANEL,
        .add_scale = gamma_end,
        .add_scale_step = 0,
        .out_dtype = GDN_DTYPE_F32,
        .out_rows = o->K,
        .out = out,
        .ldo = GDN_PANEL,
    });
}

/* The state after `tokens` tokens of the chunk, from what the whole chunk would use: V' up to there does not depend
 * on later tokens, so that the entry has the bits of a run that ends there. */
static void store_checkpoint(gdn_chunk_work *w, int hv, int panel, int cols, int tokens, int64_t entry, const float *S)
{
    const gdn_problem *p = w->problem;
    const gdn_state_layout *layout = &p->checkpoints;
    decay_after(w, tokens - 1, w->ckpt_rest);
    memcpy(w->ckpt_v, w->v, (size_t)tokens * GDN_PANEL * sizeof(float));
    w->kernels->scale_rows(tokens, cols, w->ckpt_rest, w->ckpt_v, GDN_PANEL);
    update_state(w, cols, tokens, w->ckpt_v, &w->gamma[tokens - 1], S, w->ckpt_state);
    gdn_fused_store_panel(w->kernels, p, layout, w->args->checkpoints,
                          entry * layout->slot_stride + hv * layout->head_stride, panel, w->ckpt_state, w->stage);
}

/* Bytes from a row of this chunk to the same row of the next, or 0 where there is none. */
static ptrdiff_t ahead(const gdn_layout *layout, int n, const gdn_next_chunk *next)
{
    return next->tokens == n ? (ptrdiff_t)(n * layout->token_stride * gdn_float_bytes(layout->dtype)) : 0;
}

/* Part `part` of `parts` of the next chunk's rows of q or k. */
static void ask_next(gdn_product *product, const gdn_layout *layout, const void *data, const gdn_fused_sequence *seq,
                     int hk, int64_t t, int K, int tokens, int part, int parts)
{
    const int first = tokens * part / parts, bytes = (int)gdn_float_bytes(layout->dtype);
    product->ask_rows = tokens * (part + 1) / parts - first;
    product->ask_bytes = K * bytes;
    product->ask_step = layout->token_stride * bytes;
    product->ask =
        gdn_at(data, layout->dtype, gdn_row_offset(layout, seq->row, seq->length, seq->first + t + first, hk));
}

void gdn_chunk_panels(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hv, int64_t t, int n, float *state,
                      int first, int end, const gdn_next_chunk *next, const gdn_chunk_checkpoints *checkpoints)
{
    const gdn_problem *p = w->problem;
    const int K = p->head_k_dim, C = round_up(w->chunk, B), rows = round_up(n, 8);
    const int64_t v = gdn_row_offset(&p->v, seq->row, seq->length, seq->first + t, hv);
    const int64_t o = gdn_row_offset(&p->o, seq->row, seq->length, seq->first + t, hv);
    const gdn_operands *operands = &w->operands;
    const int hk = gdn_key_head(p, hv), parts = next->parts * (end - first);
    for (int panel = first; panel < end; panel++) {
        const int cols = gdn_fused_panel_columns(p, panel), column = panel * GDN_PANEL;
        float *S = state + (size_t)panel * (size_t)K * GDN_PANEL;

        const int part = next->part * (end - first) + panel - first;

        const float *right = gdn_operands_right(operands, K, K, cols, S, operands->state);

        /* R = beta v - beta gamma (k S) */
        gdn_product residual = {
            .rows = rows,
            .cols = cols,
            .depth = gdn_operands_words(operands, K),
            .a = operands->k.words,
            .lda = operands->k.ld,
            .a_block = operands->k.block,
            .b = right,
            .ldb = GDN_PANEL,
            .scale = w->minus_beta_gamma,
            .add_dtype = p->v.dtype,
            .add_rows = n,
            .add = gdn_at(w->args->v, p->v.dtype, v + column),
            .ldadd = p->v.token_stride,
            .add_scale = w->beta,
            .add_scale_step = 1,
            .add_ahead = ahead(&p->v, n, next),
            .out_dtype = GDN_DTYPE_F32,
            .out_rows = rows,
            .out = w->v,
            .ldo = GDN_PANEL,
        };
        ask_next(&residual, &p->k, w->args->k, seq, hk, t + n, K, next->tokens, part, parts);
        w->kernels->product_rows(&residual);
        w->kernels->solve(rows, cols, w->mask, C * GDN_PAIR, w->v, GDN_PANEL);

        /* O = gamma (q S) + P V' */
        gdn_product output = {
            .rows = rows,
            .cols = cols,
            .depth = gdn_operands_words(operands, K),
            .a = operands->q.words,
            .lda = operands->q.ld,
            .a_block = operands->q.block,
            .b = right,
            .ldb = GDN_PANEL,
            .scale = w->gamma,
            .lower_depth = n,
            .lower = operands->lower.words,
            .lower_ld = operands->lower.ld,
            .lower_block = operands->lower.block,
            .lower_b = gdn_operands_right(operands, n, C, cols, w->v, operands->v),
            .out_dtype = p->o.dtype,
            .out_rows = n,
            .out = gdn_at_mutable(w->args->o, p->o.dtype, o + column),
            .ldo = p->o.token_stride,
            .out_ahead = ahead(&p->o, n, next),
        };
        ask_next(&output, &p->q, w->args->q, seq, hk, t + n, K, next->tokens, part, parts);
        w->kernels->product_rows(&output);

        for (int i = 0; i < checkpoints->count; i++) {
            store_checkpoint(w, hv, panel, cols, checkpoints->tokens[i], checkpoints->first + i, S);
        }
        w->kernels->scale_rows(n, cols, w->rest, w->v, GDN_PANEL);
        update_state(w, cols, n, w->v, &w->gamma[n - 1], S, S);
    }
}
