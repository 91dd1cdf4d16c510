/* fused_chunk.h */
#include "fused_chunk.h"

#include <string.h>

#include "fused_rows.h"
#include "fused_state.h"
#include "numeric.h"

enum { B = GDN_TOKEN_BLOCK };

size_t gdn_chunk_pack_place(gdn_chunk_work *w, unsigned char *base)
{
    const size_t C = (size_t)w->operands.C;
    size_t used = 0;
    w->gram = gdn_scratch_take(base, &used, C / B * C * GDN_PAIR);
    gdn_operands_place_pack(&w->operands, base, &used);
    return used;
}

static size_t place(gdn_chunk_work *w, const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk,
                    unsigned char *base)
{
    const size_t C = (size_t)gdn_round_up(chunk, B), K = (size_t)problem->head_k_dim, blocks = C / B;
    w->operands = (gdn_operands){.kernels = kernels, .K = (int)K, .C = (int)C};
    w->own_pack = base;
    w->pack_bytes = gdn_chunk_pack_place(w, base);
    size_t used = w->pack_bytes;
    w->stage = gdn_scratch_take(base, &used, B * K);
    w->mask = gdn_scratch_take(base, &used, blocks * C * GDN_PAIR);
    const size_t strip = (size_t)kernels->strip;
    w->v = gdn_scratch_take(base, &used, strip * C * GDN_PANEL);
    w->rest_v = gdn_scratch_take(base, &used, strip * C * GDN_PANEL);
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
    gdn_operands_place(&w->operands, w->mask, base, &used);
    return used;
}

size_t gdn_chunk_work_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk)
{
    gdn_chunk_work unused;
    return place(&unused, kernels, problem, chunk, NULL);
}

size_t gdn_chunk_pack_bytes(const gdn_cpu_kernels *kernels, const gdn_problem *problem, int chunk)
{
    gdn_chunk_work unused;
    place(&unused, kernels, problem, chunk, NULL);
    return unused.pack_bytes;
}

void gdn_chunk_work_place(gdn_chunk_work *work, unsigned char *base)
{
    place(work, work->kernels, work->problem, work->chunk, base);
}

/* R = beta v - beta gamma (k S), of whatever S and columns; where v is to be added is the caller's to say. */
static gdn_product residual_of(const gdn_chunk_work *w, int n)
{
    const gdn_operands *o = &w->operands;
    return (gdn_product){
        .rows = gdn_round_up(n, 8),
        .depth = gdn_operands_words(o, o->K),
        .a = o->k.words,
        .lda = o->k.ld,
        .a_block = o->k.block,
        .scale = w->minus_beta_gamma,
        .add_dtype = w->problem->v.dtype,
        .add_rows = n,
        .ldadd = w->problem->v.token_stride,
        .add_scale = w->beta,
        .add_scale_step = 1,
        .out_dtype = GDN_DTYPE_F32,
        .out_rows = gdn_round_up(n, 8),
        .out = w->v,
        .ldo = GDN_PANEL,
    };
}

/* O = gamma (q S) + P V', of whatever S, V' and columns. Tiles have gamma in q. */
static gdn_product output_of(const gdn_chunk_work *w, int n)
{
    const gdn_operands *o = &w->operands;
    const gdn_layout *layout = &w->problem->o;
    return (gdn_product){
        .rows = gdn_round_up(n, 8),
        .depth = gdn_operands_words(o, o->K),
        .a = o->q.words,
        .lda = o->q.ld,
        .a_block = o->q.block,
        .scale = o->kernels->left_row_major ? NULL : w->gamma,
        .lower_depth = n,
        .lower = o->lower.words,
        .lower_ld = o->lower.ld,
        .lower_block = o->lower.block,
        .out_dtype = layout->dtype,
        .out_rows = n,
        .ldo = layout->token_stride,
    };
}

/* out = scale P + K^T diag(rest) V' over `depth` tokens, of whatever P, V' and columns; v will hold the scaled rows. */
static gdn_product update_of(const gdn_chunk_work *w, int depth, const float *scale)
{
    const gdn_operands *o = &w->operands;
    return (gdn_product){
        .rows = o->K,
        .depth = gdn_operands_words(o, depth),
        .a = o->keys.words,
        .lda = o->keys.ld,
        .a_block = o->keys.block,
        .a_packed_keys = o->kernels->pair_rows == NULL,
        .add_dtype = GDN_DTYPE_F32,
        .add_rows = o->K,
        .ldadd = GDN_PANEL,
        .add_scale = scale,
        .add_scale_step = 0,
        .out_dtype = GDN_DTYPE_F32,
        .out_rows = o->K,
        .ldo = GDN_PANEL,
    };
}

/* The state after `tokens` tokens of the chunk, from what the whole chunk would use: V' up to there does not depend
 * on later tokens, so that the entry has the bits of a run that ends there. */
static void store_checkpoint(gdn_chunk_work *w, int hv, gdn_columns columns, int tokens, int64_t entry, const float *v,
                             const float *S)
{
    const gdn_problem *p = w->problem;
    const gdn_state_layout *layout = &p->checkpoints;
    gdn_chunk_decay_after(w, tokens - 1, w->ckpt_rest);
    memcpy(w->ckpt_v, v, (size_t)tokens * GDN_PANEL * sizeof(float));
    w->kernels->scale_rows(tokens, columns.count, w->ckpt_rest, w->ckpt_v, GDN_PANEL);
    gdn_product update = update_of(w, tokens, &w->gamma[tokens - 1]);
    update.cols = columns.count;
    update.b = gdn_operands_right(&w->operands, tokens, w->operands.C, columns.count, w->ckpt_v, w->operands.state);
    update.add = S;
    update.out = w->ckpt_state;
    w->kernels->product(&update, 1);
    gdn_fused_store_panel(w->kernels, p, layout, w->args->checkpoints,
                          entry * layout->slot_stride + hv * layout->head_stride, columns, w->ckpt_state, w->stage);
}

/* Bytes from a row of v or o to the one that will be wanted next, or 0. */
static ptrdiff_t ahead(const gdn_layout *layout, int64_t t, int n, const gdn_chunk_step *step)
{
    const int64_t elements = (step->ahead_t - t) * layout->token_stride + step->ahead_heads * layout->head_stride;
    return step->ahead_tokens == n ? (ptrdiff_t)(elements * gdn_float_bytes(layout->dtype)) : 0;
}

/* `count` rows of q or k from token t on. */
static gdn_ask rows_ahead(const gdn_layout *layout, const void *data, const gdn_fused_sequence *seq, int hk, int64_t t,
                          int K, int count)
{
    const int bytes = (int)gdn_float_bytes(layout->dtype);
    return (gdn_ask){
        .rows = gdn_at(data, layout->dtype, gdn_row_offset(layout, seq->row, seq->length, seq->first + t, hk)),
        .count = count,
        .bytes = K * bytes,
        .step = layout->token_stride * bytes,
    };
}

/* Part `part` of them, `share` rows a part. */
static gdn_ask part_of_rows(const gdn_ask *all, int part, int share)
{
    const int first = part * share, left = all->count - first;
    gdn_ask ask = *all;
    ask.rows = (const char *)all->rows + first * all->step;
    ask.count = left < share ? (left > 0 ? left : 0) : share;
    return ask;
}

/* The panel that this thread works on after this one: of the same head, or the first of the item's next one. None after the
 * last, whose neighbour in memory may be another thread's. */
static gdn_ask next_panel(const gdn_chunk_work *w, const gdn_state_layout *layout, const void *data, int64_t offset,
                          int hv, int panel, int first, int end, const gdn_chunk_step *step)
{
    panel++;
    if (panel == end) {
        panel = first;
        hv += step->ahead_heads;
    }
    if (!data || (panel == first && !step->more_heads)) {
        return (gdn_ask){0};
    }
    return gdn_fused_ask_panel(w->problem, layout, data, offset + hv * layout->head_stride,
                               gdn_fused_columns(w->problem, w->width, panel));
}

/* Reads a panel of the state before the first chunk, and returns it as a right operand, panel `at` of its strip. */
static const float *take_panel(const gdn_chunk_work *w, const gdn_chunk_step *step, int hv, gdn_columns columns, int at,
                               float *S)
{
    const gdn_operands *o = &w->operands;
    const gdn_state_place *place = step->place;
    if (step->first && place->source) {
        gdn_fused_load_panel(w->kernels, w->problem, place->source_layout, place->source,
                             place->source_offset + hv * place->source_layout->head_stride, columns, S, w->stage);
    } else if (step->first) {
        memset(S, 0, gdn_fused_panel_floats(w->problem) * sizeof(float));
    }
    float *pairs = o->state ? o->state + at * gdn_operands_words(o, o->K) * GDN_PANEL : NULL;
    return gdn_operands_right(o, o->K, o->K, columns.count, S, pairs);
}

void gdn_chunk_panels(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hv, int64_t t, int n, float *state,
                      int first, int end, const gdn_chunk_step *step)
{
    const gdn_problem *p = w->problem;
    const gdn_cpu_kernels *kernels = w->kernels;
    const gdn_state_place *place = step->place;
    const gdn_operands *operands = &w->operands;
    const int K = p->head_k_dim, C = operands->C;
    const int64_t v = gdn_row_offset(&p->v, seq->row, seq->length, seq->first + t, hv);
    const int64_t o = gdn_row_offset(&p->o, seq->row, seq->length, seq->first + t, hv);
    const int hk = gdn_key_head(p, hv) + step->next_key_heads, parts = step->parts * (end - first);
    const int share = (step->next_tokens + parts - 1) / parts;
    gdn_ask next_k = rows_ahead(&p->k, w->args->k, seq, hk, step->next_t, K, step->next_tokens);
    gdn_ask next_q = rows_ahead(&p->q, w->args->q, seq, hk, step->next_t, K, step->next_tokens);
    if (w->next_pack) { /* in their stead, what another thread has made of them */
        const int bytes = (int)(w->pack_bytes / 2) / step->next_tokens;
        next_k = (gdn_ask){w->next_pack, step->next_tokens, bytes, bytes};
        next_q = (gdn_ask){w->next_pack + w->pack_bytes / 2, step->next_tokens, bytes, bytes};
    }

    /* The products of a strip; panels differ in what is set in the loop. */
    gdn_product residual[GDN_MAX_STRIP], output[GDN_MAX_STRIP], update[GDN_MAX_STRIP];
    for (int i = 0; i < kernels->strip && i < end - first; i++) {
        residual[i] = residual_of(w, n);
        residual[i].add_ahead = ahead(&p->v, t, n, step);
        output[i] = output_of(w, n);
        output[i].out_ahead = ahead(&p->o, t, n, step);
        update[i] = update_of(w, n, w->state_scale);
    }
    for (int at = first, count; at < end; at += count) {
        count = end - at < kernels->strip ? end - at : kernels->strip;
        for (int i = 0; i < count; i++) {
            const int panel = at + i;
            const gdn_columns columns = gdn_fused_columns(p, w->width, panel);
            const int part = step->part * (end - first) + panel - first;
            float *S = state + (size_t)(panel - first) * gdn_fused_panel_floats(p);
            residual[i].cols = output[i].cols = update[i].cols = columns.count;
            residual[i].b = output[i].b = take_panel(w, step, hv, columns, i, S);
            residual[i].add = gdn_at(w->args->v, p->v.dtype, v + columns.first);
            residual[i].out = w->v + i * C * GDN_PANEL;
            residual[i].ask[0] = part_of_rows(&next_k, part, share);
            output[i].out = gdn_at_mutable(w->args->o, p->o.dtype, o + columns.first);
            output[i].ask[0] = part_of_rows(&next_q, part, share);
            update[i].add = update[i].out = S;
            if (step->first) {
                update[i].ask[0] = next_panel(w, place->source_layout, place->source, place->source_offset, hv, panel,
                                              first, end, step);
            }
            if (step->last) {
                update[i].ask[1] = next_panel(w, place->target_layout, place->target, place->target_offset, hv, panel,
                                              first, end, step);
            }
        }
        const float *right_v[GDN_MAX_STRIP], *right_rest[GDN_MAX_STRIP];
        gdn_operands_residual(operands, residual, count);
        gdn_operands_solve(operands, residual, count, w->mask, w->rest, w->rest_v, right_v, right_rest);
        for (int i = 0; i < count; i++) {
            output[i].lower_b = right_v[i];
            update[i].b = right_rest[i];
        }
        kernels->product_rows(output, count);
        for (int i = 0; i < count; i++) {
            for (int c = 0; c < step->checkpoints->count; c++) {
                store_checkpoint(w, hv, gdn_fused_columns(p, w->width, at + i), step->checkpoints->tokens[c],
                                 step->checkpoints->first + c, residual[i].out, update[i].out);
            }
        }
        kernels->product(update, count);
        for (int i = 0; i < count; i++) {
            *gdn_fused_panel_scale(p, update[i].out) = w->next_scale;
        }
        for (int i = 0; step->last && place->target && i < count; i++) {
            gdn_fused_store_panel(kernels, p, place->target_layout, place->target,
                                  place->target_offset + hv * place->target_layout->head_stride,
                                  gdn_fused_columns(p, w->width, at + i), update[i].out, w->stage);
        }
    }
}

void gdn_chunk_advance(gdn_chunk_work *w, const gdn_fused_sequence *seq, int hv, int64_t t, int n, int column, int cols,
                       float *panel)
{
    const gdn_problem *p = w->problem;
    const gdn_operands *o = &w->operands;
    gdn_product residual = residual_of(w, n);
    residual.cols = cols;
    residual.b = gdn_operands_right(o, o->K, o->K, cols, panel, o->state);
    if (column >= 0) {
        const int64_t v = gdn_row_offset(&p->v, seq->row, seq->length, seq->first + t, hv) + column;
        residual.add = gdn_at(w->args->v, p->v.dtype, v);
    }
    const float *right_v, *right_rest;
    gdn_operands_residual(o, &residual, 1);
    gdn_operands_solve(o, &residual, 1, w->mask, w->rest, w->rest_v, &right_v, &right_rest);
    gdn_product update = update_of(w, n, w->state_scale);
    update.cols = cols;
    update.b = right_rest;
    update.add = update.out = panel;
    w->kernels->product(&update, 1);
}
