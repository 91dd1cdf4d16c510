#include "dtype.h"

#include "error.h"
#include "numeric.h"

size_t gdn_dtype_size(gdn_dtype dtype)
{
    switch (dtype) {
    case GDN_DTYPE_F32:
    case GDN_DTYPE_I32:
        return 4;
    case GDN_DTYPE_BF16:
    case GDN_DTYPE_F16:
        return 2;
    case GDN_DTYPE_I64:
        return 8;
    case GDN_DTYPE_U8:
        return 1;
    case GDN_DTYPE_NONE:
        return 0;
    }
    return 0;
}

const char *gdn_dtype_name(gdn_dtype dtype)
{
    switch (dtype) {
    case GDN_DTYPE_F32:
        return "f32";
    case GDN_DTYPE_BF16:
        return "bf16";
    case GDN_DTYPE_F16:
        return "f16";
    case GDN_DTYPE_I32:
        return "i32";
    case GDN_DTYPE_I64:
        return "i64";
    case GDN_DTYPE_U8:
        return "u8";
    case GDN_DTYPE_NONE:
        return "none";
    }
    return "unknown";
}

bool gdn_dtype_is_float(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_F32 || dtype == GDN_DTYPE_BF16 || dtype == GDN_DTYPE_F16;
}

bool gdn_dtype_is_index(gdn_dtype dtype)
{
    return dtype == GDN_DTYPE_I32 || dtype == GDN_DTYPE_I64;
}

gdn_status gdn_convert(void *dst, gdn_dtype dst_dtype, const void *src, gdn_dtype src_dtype, int64_t count)
{
    if (!gdn_dtype_is_float(dst_dtype)) {
        return GDN_INVALID("dst_dtype: %s (%d), must be f32, bf16 or f16", gdn_dtype_name(dst_dtype), (int)dst_dtype);
    }
    if (!gdn_dtype_is_float(src_dtype)) {
        return GDN_INVALID("src_dtype: %s (%d), must be f32, bf16 or f16", gdn_dtype_name(src_dtype), (int)src_dtype);
    }
    if (count < 0) {
        return GDN_INVALID("count: %lld, must be at least 0", (long long)count);
    }
    if (count > 0 && (dst == NULL || src == NULL)) {
        return GDN_INVALID("%s: NULL, must point to %lld elements", dst == NULL ? "dst" : "src", (long long)count);
    }
    const size_t dst_element = gdn_dtype_size(dst_dtype);
    const size_t src_element = gdn_dtype_size(src_dtype);
    if (count > INT64_MAX / 8) {
        return GDN_INVALID("count: %lld, more elements than memory can hold", (long long)count);
    }
    if ((uintptr_t)dst % dst_element != 0 || (uintptr_t)src % src_element != 0) {
        const bool is_dst = (uintptr_t)dst % dst_element != 0;
        return GDN_INVALID("%s: %p, must be aligned to its element, %zu bytes", is_dst ? "dst" : "src",
                           is_dst ? dst : src, is_dst ? dst_element : src_element);
    }
    if ((uintptr_t)dst < (uintptr_t)src + (uintptr_t)count * src_element &&
        (uintptr_t)src < (uintptr_t)dst + (uintptr_t)count * dst_element) {
        return GDN_INVALID("dst: %p, overlaps src, must be memory of its own", dst);
    }
    for (int64_t i = 0; i < count; ++i) {
        gdn_store_element(dst, dst_dtype, i, gdn_load_element(src, src_dtype, i));
    }
    return GDN_OK;
}
