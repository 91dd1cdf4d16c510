/* One head's state between the caller's storage, of any layout and type, and float32 S[K, V]. */
#ifndef GDN_CPU_STATE_IO_H
#define GDN_CPU_STATE_IO_H

#include "backend.h"

/* `at` is the offset, in elements, of the head's element (0, 0): slot * slot_stride + head * head_stride. */
static inline int64_t gdn_cpu_state_offset(const gdn_state_layout *layout, int64_t slot, int64_t head)
{
    return slot * layout->slot_stride + head * layout->head_stride;
}

void gdn_cpu_state_load(const void *src, const gdn_state_layout *layout, int64_t at, int32_t K, int32_t V, float *S);
void gdn_cpu_state_store(void *dst, const gdn_state_layout *layout, int64_t at, int32_t K, int32_t V, const float *S);

/* Copies one head's state between two layouts of any types: bit for bit where the types agree. src NULL: zeros. */
void gdn_cpu_state_copy(void *dst, const gdn_state_layout *dst_layout, int64_t dst_at, const void *src,
                        const gdn_state_layout *src_layout, int64_t src_at, int32_t K, int32_t V);

#endif
