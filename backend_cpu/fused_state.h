/* A head's state between its storage ([V, K] or [K, V], float32, bfloat16 or float16) and the [K, 32] float32 panels
 * that the fused prefill works on. */
#ifndef GDN_CPU_FUSED_STATE_H
#define GDN_CPU_FUSED_STATE_H

#include <gdn/gdn.h>

#include "kernels/kernels.h"

/* The head's first element is `offset` elements into `data`; stage: [16, K] floats. */
void gdn_fused_load_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                          const void *data, int64_t offset, int panel, float *S, float *stage);
void gdn_fused_store_panel(const gdn_cpu_kernels *kernels, const gdn_problem *problem, const gdn_state_layout *layout,
                           void *data, int64_t offset, int panel, const float *S, float *stage);

#endif
