/* fused_state.h */
#include "fused_state.h"

#include "fused_rows.h"
#include "numeric.h"

enum { B = GDN_TOKEN_BLOCK };

bool gdn_fused_is_skipped(const gdn_problem *p, const gdn_state_args *args, int64_t n)
{
    if (p->state_form != GDN_STATE_POOL) {
        return false;
    }
    return gdn_load_index(args->read_slots, p->slots_dtype, n) < 0 ||
           (args->write_slots && gdn_load_index(args->write_slots, p->slots_dtype, n) < 0);
}

gdn_state_place gdn_fused_state_place(const gdn_problem *p, const gdn_state_args *args, int64_t n)
{
    const bool pool = p->state_form == GDN_STATE_POOL;
    gdn_state_place place = {.source_layout = &p->state, .target_layout = pool ? &p->state : &p->final_state};
    if (args->state && (!args->has_initial_state || args->has_initial_state[n])) {
        const int64_t slot = pool ? gdn_load_index(args->read_slots, p->slots_dtype, n) : n;
        place.source = args->state;
        place.source_offset = slot * p->state.slot_stride;
    }
    if (pool ? args->write_slots != NULL : args->final_state != NULL) {
        const int64_t slot = pool ? gdn_load_index(args->write_slots, p->slots_dtype, n) : n;
        place.target = pool ? args->state : args->final_state;
        place.target_offset = slot * place.target_layout->slot_stride;
    }
    return place;
}

void gdn_fused_load_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                          const void *data, int64_t offset, gdn_columns columns, float *S, float *stage)
{
    const int K = problem->head_k_dim, cols = columns.count;
    const int64_t at = offset + columns.first * layout->v_stride;
    if (layout->v_stride == 1) {
        kernels->load_rows(layout->dtype, K, cols, gdn_at(data, layout->dtype, at), layout->k_stride, S, GDN_PANEL);
        return;
    }
    for (int v = 0; v < cols; v += B) {
        const void *rows = gdn_at(data, layout->dtype, at + v * layout->v_stride);
        if (layout->dtype == GDN_DTYPE_F32) {
            kernels->transpose(B, K, rows, layout->v_stride, NULL, S + v, GDN_PANEL);
        } else {
            kernels->load_rows(layout->dtype, B, K, rows, layout->v_stride, stage, K);
            kernels->transpose(B, K, stage, K, NULL, S + v, GDN_PANEL);
        }
    }
}

void gdn_fused_store_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                           void *data, int64_t offset, gdn_columns columns, const float *S, float *stage)
{
    const int K = problem->head_k_dim, cols = columns.count;
    const int64_t at = offset + columns.first * layout->v_stride;
    if (layout->v_stride == 1) {
        kernels->store_rows(layout->dtype, K, cols, S, GDN_PANEL, gdn_at_mutable(data, layout->dtype, at),
                            layout->k_stride);
        return;
    }
    for (int v = 0; v < cols; v += B) {
        void *rows = gdn_at_mutable(data, layout->dtype, at + v * layout->v_stride);
        if (layout->dtype == GDN_DTYPE_F32) {
            kernels->transpose(K, B, S + v, GDN_PANEL, NULL, rows, layout->v_stride);
        } else {
            kernels->transpose(K, B, S + v, GDN_PANEL, NULL, stage, K);
            kernels->store_rows(layout->dtype, B, K, stage, K, rows, layout->v_stride);
        }
    }
}

gdn_ask gdn_fused_ask_panel(const gdn_problem *problem, const gdn_state_layout *layout, const void *data,
                            int64_t offset, gdn_columns columns)
{
    const int64_t size = gdn_float_bytes(layout->dtype), cols = columns.count;
    gdn_ask ask = {.rows = gdn_at(data, layout->dtype, offset + columns.first * layout->v_stride)};
    if (layout->v_stride == 1) {
        ask.count = problem->head_k_dim;
        ask.bytes = (int)(cols * size);
        ask.step = (ptrdiff_t)(layout->k_stride * size);
    } else {
        ask.count = (int)cols;
        ask.bytes = (int)(problem->head_k_dim * size);
        ask.step = (ptrdiff_t)(layout->v_stride * size);
    }
    return ask;
}
