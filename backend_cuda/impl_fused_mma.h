#ifndef GDN_CUDA_IMPL_FUSED_MMA_H
#define GDN_CUDA_IMPL_FUSED_MMA_H

#include "fused_prefill.h"

extern const gdn_implementation gdn_cuda_fused_mma;

/* A layout with its pointer, as the fused kernels take it. Rows of a dense batch are `tokens` long. */
gdn_fused_operand gdn_fused_operand_of(const gdn_layout *layout, const void *data, int64_t tokens);
gdn_fused_state gdn_fused_state_of(const gdn_state_layout *layout, void *data);

#endif
