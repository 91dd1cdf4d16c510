/* Byte images of strided tensors: placing dense float32 values where a gdn_layout or gdn_state_layout says, reading
 * them back, and blotting out what a call was meant to write so that the rest can be checked for stray writes. */
#ifndef GDN_TOOLS_LAYOUT_IMAGE_H
#define GDN_TOOLS_LAYOUT_IMAGE_H

#include "workload.h"

/* What every byte of an output and of a gap holds before a call: as an element of any float type, a NaN. */
#define LAYOUT_POISON 0xff

typedef enum layout_access {
    LAYOUT_ENCODE, /* values -> image */
    LAYOUT_DECODE, /* image -> values */
    LAYOUT_ERASE /* image <- poison, or the bytes of `original` where given */
} layout_access;

/* Bytes a tensor of the workload spans: rows of `heads` vectors of `dim` (gate, beta: dim 1). */
size_t layout_token_bytes(const workload *load, const gdn_layout *layout, int32_t heads, int32_t dim);

/* Handles the rows of one token; `values` [heads, dim] is read or written, NULL for ERASE. */
void layout_token(const workload *load, const gdn_layout *layout, int32_t heads, int32_t dim, unsigned char *image,
                  int64_t seq, int64_t token, float *values, layout_access access);

size_t layout_state_bytes(const gdn_problem *problem, const gdn_state_layout *layout, int64_t slots);

/* Handles one slot; `values` [num_v_heads, V, K]. `original` is for ERASE and may be NULL. */
void layout_state(const gdn_problem *problem, const gdn_state_layout *layout, unsigned char *image, int64_t slot,
                  float *values, layout_access access, const unsigned char *original);

/* An index array in the dtype asked for (I32 or I64). */
void layout_indices(unsigned char *image, gdn_dtype dtype, const int64_t *values, int64_t count);

#endif
