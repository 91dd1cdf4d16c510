/* Reading and writing rows of the caller's tensors. */
#ifndef GDN_CPU_ROWS_H
#define GDN_CPU_ROWS_H

#include "generic_ops.h"
#include "numeric.h"

/* dst[0..count) = the `count` elements of `src` from element `offset` on, as float32. */
static inline void gdn_cpu_load_row(const void *src, gdn_dtype dtype, int64_t offset, int32_t count, float *dst)
{
    if (dtype == GDN_DTYPE_BF16) {
        const uint16_t *const from = (const uint16_t *)src + offset;
        for (int32_t i = 0; i < count; i++) {
            dst[i] = gdn_float_from_bf16(from[i]);
        }
    } else if (dtype == GDN_DTYPE_F16) {
        const uint16_t *const from = (const uint16_t *)src + offset;
        for (int32_t i = 0; i < count; i++) {
            dst[i] = gdn_float_from_f16(from[i]);
        }
    } else {
        memcpy(dst, (const float *)src + offset, (size_t)count * sizeof(float));
    }
}

/* The inverse: rounds to nearest, ties to even. */
static inline void gdn_cpu_store_row(void *dst, gdn_dtype dtype, int64_t offset, int32_t count, const float *src)
{
    if (dtype == GDN_DTYPE_BF16) {
        uint16_t *const to = (uint16_t *)dst + offset;
        for (int32_t i = 0; i < count; i++) {
            to[i] = gdn_bf16_from_float(src[i]);
        }
    } else if (dtype == GDN_DTYPE_F16) {
        uint16_t *const to = (uint16_t *)dst + offset;
        for (int32_t i = 0; i < count; i++) {
            to[i] = gdn_f16_from_float(src[i]);
        }
    } else {
        memcpy((float *)dst + offset, src, (size_t)count * sizeof(float));
    }
}

/* Element offset of the chunk's first token in a tensor of that layout. */
static inline int64_t gdn_cpu_chunk_offset(const gdn_problem *problem, const gdn_layout *layout, int32_t chunk_size,
                                           const gdn_chunk *chunk)
{
    if (problem->cu_seqlens_dtype == GDN_DTYPE_NONE && layout->row_stride != 0) {
        return chunk->seq * layout->row_stride + (int64_t)chunk->index * chunk_size * layout->token_stride;
    }
    return chunk->token * layout->token_stride;
}

/* The key head of value head hv. */
static inline int32_t gdn_cpu_key_head(const gdn_problem *problem, int32_t hv)
{
    return problem->head_map == GDN_HEAD_MAP_TILED ? hv % problem->num_k_heads
                                                   : hv / (problem->num_v_heads / problem->num_k_heads);
}

/* Element `index` of read_slots or write_slots. */
static inline int64_t gdn_cpu_slot(const gdn_problem *problem, const void *slots, int64_t index)
{
    return gdn_load_index(slots, problem->slots_dtype, index);
}

#endif
