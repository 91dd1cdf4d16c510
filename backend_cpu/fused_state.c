/* fused_state.h */
#include "fused_state.h"

#include "fused_chunk.h"
#include "fused_rows.h"

enum { B = GDN_TOKEN_BLOCK };

void gdn_fused_load_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                          const void *data, int64_t offset, int panel, float *S, float *stage)
{
    const int K = problem->head_k_dim, cols = gdn_fused_panel_columns(problem, panel);
    const int64_t at = offset + (int64_t)panel * GDN_PANEL * layout->v_stride;
    if (layout->v_stride == 1) {
        kernels->load_rows(layout->dtype, K, cols, gdn_at(data, layout->dtype, at), layout->k_stride, S, GDN_PANEL);
        return;
    }
    for (int v = 0; v < cols; v += B) {
        kernels->load_rows(layout->dtype, B, K, gdn_at(data, layout->dtype, at + v * layout->v_stride),
                           layout->v_stride, stage, K);
        kernels->transpose(B, K, stage, K, S + v, GDN_PANEL);
    }
}

void gdn_fused_store_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                           void *data, int64_t offset, int panel, const float *S, float *stage)
{
    const int K = problem->head_k_dim, cols = gdn_fused_panel_columns(problem, panel);
    const int64_t at = offset + (int64_t)panel * GDN_PANEL * layout->v_stride;
    if (layout->v_stride == 1) {
        kernels->store_rows(layout->dtype, K, cols, S, GDN_PANEL, gdn_at_mutable(data, layout->dtype, at),
                            layout->k_stride);
        return;
    }
    for (int v = 0; v < cols; v += B) {
        kernels->transpose(K, B, S + v, GDN_PANEL, stage, K);
        kernels->store_rows(layout->dtype, B, K, stage, K,
                            gdn_at_mutable(data, layout->dtype, at + v * layout->v_stride), layout->v_stride);
    }
}
