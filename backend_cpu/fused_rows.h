/* Where rows of the caller's tensors and states lie. */
#ifndef GDN_CPU_FUSED_ROWS_H
#define GDN_CPU_FUSED_ROWS_H

#include <gdn/gdn.h>

/* A dtype that the fused implementations convert has 4 or 2 bytes. */
static inline int64_t gdn_float_bytes(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 ? 4 : 2;
}

/* Element offset of token `t` of head `head`; `length` tokens are in a row of an equal-length batch. */
static inline int64_t gdn_row_offset(const gdn_layout *layout, int64_t row, int64_t length, int64_t t, int64_t head)
{
    const int64_t row_stride = layout->row_stride ? layout->row_stride : length * layout->token_stride;
    return row * row_stride + t * layout->token_stride + head * layout->head_stride;
}

static inline const void *gdn_at(const void *data, gdn_dtype dtype, int64_t offset)
{
    return (const char *)data + offset * gdn_float_bytes(dtype);
}

static inline void *gdn_at_mutable(void *data, gdn_dtype dtype, int64_t offset)
{
    return (char *)data + offset * gdn_float_bytes(dtype);
}

/* Value head -> key head. */
static inline int gdn_key_head(const gdn_problem *problem, int hv)
{
    return problem->head_map == GDN_HEAD_MAP_TILED ? hv % problem->num_k_heads
                                                   : hv / (problem->num_v_heads / problem->num_k_heads);
}

/* The i-th value head of key head hk. */
static inline int gdn_group_head(const gdn_problem *problem, int hk, int i)
{
    return problem->head_map == GDN_HEAD_MAP_TILED ? hk + i * problem->num_k_heads
                                                   : hk * (problem->num_v_heads / problem->num_k_heads) + i;
}

#endif
