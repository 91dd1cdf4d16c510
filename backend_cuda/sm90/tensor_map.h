/* Tensor maps: what the copy engine must know of a tensor of heads, encoded by the driver. */
#ifndef GDN_CUDA_SM90_TENSOR_MAP_H
#define GDN_CUDA_SM90_TENSOR_MAP_H

#include "core/backend.h"

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A map of [rows, tokens, heads, dim] 16-bit elements with boxes of 64 tokens of 64 elements, swizzled in rows of 128 bytes;
 * reads outside give zeros, writes outside nothing. `data` and all strides are multiples of 16 bytes; strides in elements. */
gdn_status gdn_sm90_tensor_map(CUtensorMap *map, const char *name, gdn_dtype dtype, const void *data, int64_t dim,
                               int64_t heads, int64_t tokens, int64_t rows, const gdn_layout *layout,
                               int64_t row_stride);

#ifdef __cplusplus
}
#endif

#endif
