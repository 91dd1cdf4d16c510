/* Checks of borrowed gdn_tensor views, shared by the entry points that take them. */
#ifndef GDN_CORE_TENSOR_H
#define GDN_CORE_TENSOR_H

#include <gdn/gdn.h>

#include <stdbool.h>

#define GDN_ANY_SIZE ((int64_t)-1)

/* What an entry point asks of one tensor argument. */
typedef struct gdn_tensor_rule {
    const char *name;
    int32_t rank;
    int64_t size[GDN_MAX_RANK]; /* GDN_ANY_SIZE: any, else exactly this */
    uint32_t dtypes; /* bit (1 << dtype) for each allowed one */
    bool unit_inner; /* the innermost stride must be 1 (where that dimension is longer than 1) */
    bool needs_data; /* data must point somewhere if the tensor has elements */
} gdn_tensor_rule;

#define GDN_DTYPE_BIT(dtype) (1u << (unsigned)(dtype))
#define GDN_FLOAT_DTYPES (GDN_DTYPE_BIT(GDN_DTYPE_F32) | GDN_DTYPE_BIT(GDN_DTYPE_BF16) | GDN_DTYPE_BIT(GDN_DTYPE_F16))

/* NULL tensor, rank, dtype, sizes, strides >= 0, data pointer and its alignment to the element: refused by name. */
gdn_status gdn_tensor_check(const gdn_tensor *tensor, const gdn_tensor_rule *rule);

#endif
