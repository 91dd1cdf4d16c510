/* A head's state between its storage ([V, K] or [K, V], float32, bfloat16 or float16) and the [K, 32] float32 panels
 * that the fused prefill works on. */
#ifndef GDN_CPU_FUSED_STATE_H
#define GDN_CPU_FUSED_STATE_H

#include <gdn/gdn.h>

#include <stdbool.h>

#include "kernels/kernels.h"

/* Panels of a head's state, floats of one and of them all. A panel P stands for the state c P: c, one float, comes after its
 * [K, 32] floats, on a cache line of its own (fused_chunk.h). Where there are fewer panels than threads, each has GDN_HALF_PANEL
 * columns, in the same rows. */
enum { GDN_HALF_PANEL = GDN_PANEL / 2 };

static inline int gdn_fused_panels(const gdn_problem *problem, int width)
{
    return (problem->head_v_dim + width - 1) / width;
}
static inline size_t gdn_fused_panel_floats(const gdn_problem *problem)
{
    return (size_t)problem->head_k_dim * GDN_PANEL + GDN_TOKEN_BLOCK;
}
static inline float *gdn_fused_panel_scale(const gdn_problem *problem, float *panel)
{
    return panel + (size_t)problem->head_k_dim * GDN_PANEL;
}
static inline size_t gdn_fused_state_floats(const gdn_problem *problem)
{
    return (size_t)gdn_fused_panels(problem, GDN_PANEL) * gdn_fused_panel_floats(problem);
}

/* Columns of V. */
typedef struct gdn_columns {
    int first, count;
} gdn_columns;

static inline gdn_columns gdn_fused_columns(const gdn_problem *problem, int width, int panel)
{
    const int first = panel * width, left = problem->head_v_dim - first;
    return (gdn_columns){first, left < width ? left : width};
}

/* The arguments that say where states are, as either operation has them. */
typedef struct gdn_state_args {
    void *state, *final_state;
    const void *read_slots, *write_slots;
    const uint8_t *has_initial_state;
} gdn_state_args;

/* Where a sequence's state comes from and goes to; NULL: zeros, or nowhere. Offsets in elements, of head 0. */
typedef struct gdn_state_place {
    const void *source;
    const gdn_state_layout *source_layout;
    int64_t source_offset;
    void *target;
    const gdn_state_layout *target_layout;
    int64_t target_offset;
} gdn_state_place;

/* A sequence or row is skipped if its read or its write slot is negative. */
bool gdn_fused_is_skipped(const gdn_problem *problem, const gdn_state_args *args, int64_t n);
gdn_state_place gdn_fused_state_place(const gdn_problem *problem, const gdn_state_args *args, int64_t n);

/* The head's first element is `offset` elements into `data`; stage: [16, K] floats. */
void gdn_fused_load_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                          const void *data, int64_t offset, gdn_columns columns, float *S, float *stage);
void gdn_fused_store_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                           void *data, int64_t offset, gdn_columns columns, const float *S, float *stage);
/* The panel's rows in that memory, to be asked for ahead of time. */
gdn_ask gdn_fused_ask_panel(const gdn_problem *problem, const gdn_state_layout *layout, const void *data,
                            int64_t offset, gdn_columns columns);

#endif
