/* How far a strided array reaches, and whether its elements are apart: the arithmetic behind every extent, overlap and
 * stride check. All in int64 with explicit limits; nothing here can overflow. */
#ifndef GDN_CORE_STRIDES_H
#define GDN_CORE_STRIDES_H

#include <stdbool.h>
#include <stdint.h>

/* No array of ours reaches past this many elements: 2^58, so that sums and byte counts stay in int64. */
#define GDN_MAX_EXTENT ((int64_t)1 << 58)

#define GDN_MAX_DIMS 5

typedef struct gdn_dims {
    int32_t rank;
    int64_t size[GDN_MAX_DIMS];
    int64_t stride[GDN_MAX_DIMS];
} gdn_dims;

static inline void gdn_dims_add(gdn_dims *dims, int64_t size, int64_t stride)
{
    dims->size[dims->rank] = size;
    dims->stride[dims->rank] = stride;
    ++dims->rank;
}

static inline bool gdn_dims_equal(const gdn_dims *a, const gdn_dims *b)
{
    for (int32_t i = 0; i < a->rank && a->rank == b->rank; ++i) {
        if (a->size[i] != b->size[i] || a->stride[i] != b->stride[i]) {
            return false;
        }
    }
    return a->rank == b->rank;
}

/* Elements from the first to one past the last; 0 for an empty array; -1 where that passes GDN_MAX_EXTENT. */
static inline int64_t gdn_dims_extent(const gdn_dims *dims)
{
    int64_t extent = 1;
    for (int32_t i = 0; i < dims->rank; ++i) {
        if (dims->size[i] <= 0) {
            return 0;
        }
    }
    for (int32_t i = 0; i < dims->rank; ++i) {
        const int64_t steps = dims->size[i] - 1;
        if (steps > 0 && dims->stride[i] > (GDN_MAX_EXTENT - extent) / steps) {
            return -1;
        }
        extent += steps * dims->stride[i];
    }
    return extent;
}

/* Whether no two elements can share a place: with the dimensions in order of stride, each steps over the whole reach
 * of the smaller ones. (Sufficient; exotic interleavings that would also do are refused.) */
static inline bool gdn_dims_are_apart(const gdn_dims *dims)
{
    int32_t order[GDN_MAX_DIMS];
    for (int32_t i = 0; i < dims->rank; ++i) {
        int32_t j = i;
        while (j > 0 && dims->stride[order[j - 1]] > dims->stride[i]) {
            order[j] = order[j - 1];
            --j;
        }
        order[j] = i;
    }
    int64_t reach = 1; /* elements covered by the dimensions so far */
    for (int32_t i = 0; i < dims->rank; ++i) {
        const int64_t steps = dims->size[order[i]] - 1;
        const int64_t stride = dims->stride[order[i]];
        if (steps <= 0) {
            continue;
        }
        if (stride < reach || stride > (GDN_MAX_EXTENT - reach) / steps) {
            return false;
        }
        reach += steps * stride;
    }
    return true;
}

#endif
