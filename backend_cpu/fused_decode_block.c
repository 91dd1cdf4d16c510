/* fused_decode_block.h */
#include "fused_decode_block.h"

#include <string.h>

#include "fused_rows.h"
#include "numeric.h"

/* A block of a state in the caller's memory, or in the tile: rows of a stride. */
typedef struct block_view {
    gdn_dtype dtype; /* GDN_DTYPE_NONE: there is none */
    void *data;
    int64_t stride;
} block_view;

static block_view view_of(const gdn_state_layout *layout, const void *data, int64_t head_offset, int first)
{
    const int64_t offset = head_offset + first * layout->v_stride;
    return (block_view){layout->dtype, gdn_at_mutable((void *)(uintptr_t)data, layout->dtype, offset),
                        layout->k_stride == 1 ? layout->v_stride : layout->k_stride};
}

/* What is asked for while a block is read: gdn_decode_block's src_ahead, asking_dots and asking_update. */
typedef struct block_ask {
    ptrdiff_t ahead;
    int dots, update;
} block_ask;

/* Where memory is read row after row, all of a row at a time, rows at a fixed distance are asked for: on Zen 4 8 to 10 KiB; twice or
 * half of that takes a fifth longer. Rows ask if the one ahead is of the same row of v's and not another thread's: to ask for that
 * would take it away from there. The update asks for rows of a [V, K] state, as it finds its own in the first-level cache. One
 * of a [K, V] state comes from the second: the dots ask, and every other line is enough. */
static block_ask ask_rows(const gdn_decode_work *w, const gdn_state_layout *layout, int64_t row, int hv, int first)
{
    enum { BYTES_AHEAD = 18 * 128 * 4, TOGETHER = 8 }; /* rows that a kernel takes side by side, at most */
    const gdn_problem *p = w->run->problem;
    const bool v_rows = layout->k_stride == 1;
    const int K = p->head_k_dim, V = p->head_v_dim, size = layout->dtype == GDN_DTYPE_F32 ? 4 : 2;
    const int head_rows = v_rows ? V : K, row_bytes = (v_rows ? K : V) * size;
    const int rows = BYTES_AHEAD / row_bytes > 1 ? BYTES_AHEAD / row_bytes : 1;
    const int64_t stride = v_rows ? layout->v_stride : layout->k_stride;
    if (layout->head_stride != head_rows * stride) {
        return (block_ask){0, 0, 0};
    }
    const int64_t columns = (int64_t)p->num_v_heads * V, own = w->end_column - row * columns;
    const int64_t end = (own < columns ? own : columns) * head_rows / V;
    const int asking = (int)(end - (int64_t)hv * head_rows - (v_rows ? first : 0) - rows);
    return (block_ask){rows * stride, v_rows ? 0 : asking, v_rows ? asking / TOGETHER * TOGETHER : 0};
}

/* Some columns of a [K, V] state: the block that will be read after the next, as one takes less time than memory does. It is in the
 * same head, or at the same distance from the start of one of those after it. None if it may be another thread's. */
static block_ask ask_block(const gdn_decode_work *w, const gdn_state_layout *layout, int64_t row, int hv, int first,
                           int count)
{
    enum { BLOCKS_AHEAD = 2 };
    const gdn_problem *p = w->run->problem;
    const int at = first + BLOCKS_AHEAD * count, blocks = (p->head_v_dim + count - 1) / count * count;
    if ((row * p->num_v_heads + hv) * p->head_v_dim + at >= w->end_column) {
        return (block_ask){0, 0, 0};
    }
    const int64_t ahead = at / blocks * layout->head_stride + (at % blocks - first) * layout->v_stride;
    return (block_ask){(ptrdiff_t)ahead, p->head_k_dim, p->head_k_dim};
}

/* What one block goes through: `count` columns of v from `first` on. */
typedef struct block_run {
    const gdn_decode_work *w;
    const gdn_problem *p;
    const gdn_token_terms *terms;
    int count, rows, cols; /* as stored */
    block_view tile;
    float *v, *o; /* [GDN_MAX_DECODE_TOKENS, GDN_DECODE_COLUMNS] */
} block_run;

/* Tokens t .. t + tokens - 1, from one place to another; `to` has the type of `from` or float32. */
static void run_tokens(block_run *r, int t, int tokens, const block_view *from, const block_view *to, block_ask ask)
{
    const gdn_problem *p = r->p;
    const int K = p->head_k_dim;
    /* Without a tile more of the first-level cache is left, where the target has its form. */
    const bool in_place = to->dtype == GDN_DTYPE_F32 && to->stride == r->tile.stride;
    const gdn_decode_block block = {
        .count = r->count,
        .head_k_dim = K,
        .tokens = tokens,
        .k = r->w->k + t * K,
        .q = r->w->q + t * K,
        .alpha = r->terms->alpha + t,
        .beta = r->terms->beta + t,
        .qk = r->terms->qk + t,
        .scale = p->scale,
        .v = r->v + t * GDN_DECODE_COLUMNS,
        .o = r->o + t * GDN_DECODE_COLUMNS,
        .src_dtype = from->dtype,
        .src = from->data,
        .src_stride = from->stride,
        .src_ahead = ask.ahead,
        .asking_dots = ask.dots,
        .asking_update = ask.update,
        .dst_dtype = to->dtype == GDN_DTYPE_NONE ? GDN_DTYPE_F32 : to->dtype,
        .dst = to->data,
        .dst_stride = to->stride,
        .tile = in_place ? to->data : r->tile.data,
    };
    if (p->state.k_stride == 1) {
        r->w->kernels->decode_vk(&block);
    } else {
        r->w->kernels->decode_kv(&block);
    }
}

static void store_block(const block_run *r, const block_view *from, const block_view *to)
{
    r->w->kernels->store_rows(to->dtype, r->rows, r->cols, from->data, from->stride, to->data, to->stride);
}

/* Token by token, where states after some of them are wanted in slots: all of them float32, in the tile or the target. */
static void run_tokens_to_slots(block_run *r, int64_t row, int hv, int first, const block_view *from,
                                const block_view *target, block_ask ask)
{
    const gdn_problem *p = r->p;
    const gdn_decode_args *a = r->w->run->args;
    const int count = r->terms->count;
    block_view at = *from;
    for (int t = 0; t < count; t++) {
        const bool direct = t == count - 1 && target->dtype == GDN_DTYPE_F32;
        const block_view to = direct ? *target : r->tile;
        run_tokens(r, t, 1, &at, &to, t == 0 ? ask : (block_ask){0, 0, 0});
        at = to;
        const int64_t slot = gdn_load_index(a->token_slots, p->slots_dtype, row * p->tokens_per_row + t);
        if (slot >= 0) {
            const block_view stored =
                view_of(&p->state, a->state, slot * p->state.slot_stride + hv * p->state.head_stride, first);
            if (stored.data != at.data) {
                store_block(r, &at, &stored);
            }
        }
    }
    if (target->data && target->data != at.data) {
        store_block(r, &at, target);
    }
}

static bool has_token_slots(const gdn_decode_work *w, int64_t row, int count)
{
    const gdn_problem *p = w->run->problem;
    const void *slots = w->run->args->token_slots;
    bool any = false;
    for (int t = 0; slots && t < count; t++) {
        any = any || gdn_load_index(slots, p->slots_dtype, row * p->tokens_per_row + t) >= 0;
    }
    return any;
}

void gdn_fused_decode_block(const gdn_decode_work *w, const gdn_state_place *place, int64_t row, int hv, int first,
                            int count, const gdn_token_terms *terms)
{
    const gdn_problem *p = w->run->problem;
    const gdn_decode_args *a = w->run->args;
    const int K = p->head_k_dim, T = p->tokens_per_row;
    const bool v_rows = p->state.k_stride == 1;
    float block_v[GDN_MAX_DECODE_TOKENS * GDN_DECODE_COLUMNS], block_o[GDN_MAX_DECODE_TOKENS * GDN_DECODE_COLUMNS];
    block_run r = {.w = w, .p = p, .terms = terms, .count = count, .v = block_v, .o = block_o};
    r.rows = v_rows ? count : K;
    r.cols = v_rows ? K : count;
    r.tile = (block_view){GDN_DTYPE_F32, w->tile, r.cols};
    const int64_t v = gdn_row_offset(&p->v, row, T, 0, hv) + first, o = gdn_row_offset(&p->o, row, T, 0, hv) + first;
    w->kernels->load_rows(p->v.dtype, terms->count, count, gdn_at(a->v, p->v.dtype, v), p->v.token_stride, r.v,
                          GDN_DECODE_COLUMNS);

    block_view source = r.tile, target = {GDN_DTYPE_NONE, NULL, 0};
    if (place->target) {
        target = view_of(place->target_layout, place->target,
                         place->target_offset + hv * place->target_layout->head_stride, first);
    }
    block_ask ask = {0, 0, 0};
    if (place->source) {
        source = view_of(place->source_layout, place->source,
                         place->source_offset + hv * place->source_layout->head_stride, first);
        ask = v_rows || count == p->head_v_dim ? ask_rows(w, place->source_layout, row, hv, first)
                                               : ask_block(w, place->source_layout, row, hv, first, count);
    } else {
        memset(w->tile, 0, (size_t)r.rows * (size_t)r.cols * sizeof(float));
    }
    if (has_token_slots(w, row, terms->count)) {
        run_tokens_to_slots(&r, row, hv, first, &source, &target, ask);
    } else if (target.dtype == GDN_DTYPE_NONE || target.dtype == GDN_DTYPE_F32 || target.dtype == source.dtype) {
        run_tokens(&r, 0, terms->count, &source, &target, ask);
    } else {
        run_tokens(&r, 0, terms->count, &source, &r.tile, ask);
        store_block(&r, &r.tile, &target);
    }
    w->kernels->store_rows(p->o.dtype, terms->count, count, r.o, GDN_DECODE_COLUMNS,
                           gdn_at_mutable(a->o, p->o.dtype, o), p->o.token_stride);
}
