#ifndef GDN_CUDA_IMPL_FUSED_MMA_H
#define GDN_CUDA_IMPL_FUSED_MMA_H

#include "fused_prefill.h"

extern const gdn_implementation gdn_cuda_fused_mma;

/* A state layout with its pointer, as the fused kernels take it. */
gdn_fused_state gdn_fused_state_of(const gdn_state_layout *layout, void *data);

#endif
