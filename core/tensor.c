#include "tensor.h"

#include "pointer.h"
#include "strides.h"

#include <stdio.h>
#include <string.h>

gdn_tensor gdn_tensor_dense(void *data, gdn_dtype dtype, int32_t rank, const int64_t *size)
{
    gdn_tensor tensor;
    memset(&tensor, 0, sizeof(tensor));
    tensor.data = data;
    tensor.dtype = dtype;
    if (rank < 1 || rank > GDN_MAX_RANK || size == NULL) {
        return tensor;
    }
    tensor.rank = rank;
    int64_t stride = 1;
    for (int32_t i = rank - 1; i >= 0; --i) {
        tensor.size[i] = size[i];
        tensor.stride[i] = stride;
        /* A product past 63 bits cannot be a tensor: the negative size left behind is refused by every check. */
        if (size[i] < 0 || (size[i] > 0 && stride > INT64_MAX / size[i])) {
            tensor.size[i] = -1;
            stride = 1;
        } else if (size[i] > 0) {
            stride *= size[i];
        }
    }
    return tensor;
}

/* "f32, bf16 or f16" */
static void list_dtypes(uint32_t dtypes, char *text, size_t size)
{
    text[0] = '\0';
    int left = 0;
    for (int d = 0; d < 32; ++d) {
        left += (int)((dtypes >> d) & 1u);
    }
    for (int d = 0; d < 32; ++d) {
        if ((dtypes >> d) & 1u) {
            --left;
            const size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s", gdn_dtype_name((gdn_dtype)d),
                     left > 1 ? ", " : (left == 1 ? " or " : ""));
        }
    }
}

gdn_status gdn_tensor_check(const gdn_tensor *tensor, const gdn_tensor_rule *rule)
{
    if (tensor == NULL) {
        return GDN_INVALID("%s: NULL, must be a tensor", rule->name);
    }
    if (tensor->rank != rule->rank) {
        return GDN_INVALID("%s.rank: %d, must be %d", rule->name, (int)tensor->rank, (int)rule->rank);
    }
    if ((unsigned)tensor->dtype > 31u || ((rule->dtypes >> (unsigned)tensor->dtype) & 1u) == 0) {
        char allowed[64];
        list_dtypes(rule->dtypes, allowed, sizeof(allowed));
        return GDN_INVALID("%s.dtype: %s (%d), must be %s", rule->name, gdn_dtype_name(tensor->dtype),
                           (int)tensor->dtype, allowed);
    }
    bool empty = false;
    int64_t extent = 1;
    for (int32_t i = 0; i < rule->rank; ++i) {
        const int64_t size = tensor->size[i];
        const int64_t stride = tensor->stride[i];
        if (size < 0 || (rule->size[i] != GDN_ANY_SIZE && size != rule->size[i])) {
            if (rule->size[i] == GDN_ANY_SIZE) {
                return GDN_INVALID("%s.size[%d]: %lld, must be at least 0", rule->name, (int)i, (long long)size);
            }
            return GDN_INVALID("%s.size[%d]: %lld, must be %lld", rule->name, (int)i, (long long)size,
                               (long long)rule->size[i]);
        }
        if (stride < 0) {
            return GDN_INVALID("%s.stride[%d]: %lld, must be at least 0", rule->name, (int)i, (long long)stride);
        }
        if (size > 1 && stride > 0 && (size - 1) > (GDN_MAX_EXTENT - extent) / stride) {
            return GDN_INVALID("%s.stride[%d]: %lld, the tensor's extent passes 2^58 elements", rule->name, (int)i,
                               (long long)stride);
        }
        extent += size > 1 ? (size - 1) * stride : 0;
        empty = empty || size == 0;
    }
    const int32_t inner = rule->rank - 1;
    if (rule->unit_inner && tensor->size[inner] > 1 && tensor->stride[inner] != 1) {
        return GDN_INVALID("%s.stride[%d]: %lld, must be 1", rule->name, (int)inner, (long long)tensor->stride[inner]);
    }
    if (rule->needs_data && !empty) {
        if (tensor->data == NULL) {
            return GDN_INVALID("%s.data: NULL, must point to the elements", rule->name);
        }
        const size_t element = gdn_dtype_size(tensor->dtype);
        if ((uintptr_t)tensor->data % element != 0) {
            return GDN_INVALID("%s.data: %p, must be aligned to the element, %zu bytes", rule->name, tensor->data,
                               element);
        }
        if (gdn_pointer_wraps(tensor->data, (size_t)extent * element)) {
            return GDN_INVALID("%s.data: %p, its elements reach past the end of the address space", rule->name,
                               tensor->data);
        }
    }
    return GDN_OK;
}
