#include "formats.h"

#include <math.h>
#include <string.h>

/* A binary format by its numbers: value = mantissa * 2^(exponent), `precision` bits of mantissa with the
 * hidden one, subnormals in steps of 2^least. */
typedef struct format_shape {
    int precision;
    int least;
    int bias;
    int max_exponent; /* of the largest finite value, as ilogb gives it */
} format_shape;

static format_shape shape_of(gdn_dtype dtype)
{
    if (dtype == GDN_DTYPE_BF16) {
        return (format_shape){8, -133, 127, 127};
    }
    return (format_shape){11, -24, 15, 15};
}

static double decode16(format_shape shape, uint16_t bits)
{
    const int stored = shape.precision - 1;
    const int mantissa = bits & ((1 << stored) - 1);
    const int exponent = (bits & 0x7fff) >> stored;
    const double sign = (bits & 0x8000) ? -1.0 : 1.0;
    if (exponent == shape.max_exponent + shape.bias + 1) {
        return mantissa != 0 ? NAN : sign * INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexp(mantissa, shape.least);
    }
    return sign * ldexp(mantissa + (1 << stored), exponent - shape.bias - stored);
}

static uint16_t encode16(format_shape shape, double x)
{
    const int stored = shape.precision - 1;
    const int all_ones = shape.max_exponent + shape.bias + 1;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) {
        return (uint16_t)(sign | all_ones << stored | 1 << (stored - 1));
    }
    const double size = fabs(x);
    int step = shape.least;
    if (size > 0 && isfinite(size) && ilogb(size) - stored > step) {
        step = ilogb(size) - stored;
    }
    /* nearbyint rounds ties to even in the default mode; the scaling by a power of two is exact. */
    const double rounded = isinf(size) ? size : ldexp(nearbyint(ldexp(size, -step)), step);
    if (rounded == 0) {
        return sign;
    }
    if (isinf(rounded) || ilogb(rounded) > shape.max_exponent) {
        return (uint16_t)(sign | all_ones << stored);
    }
    const int exponent = ilogb(rounded);
    if (exponent - stored < shape.least) {
        return (uint16_t)(sign | (int)ldexp(rounded, -shape.least));
    }
    const int mantissa = (int)ldexp(rounded, stored - exponent) - (1 << stored);
    return (uint16_t)(sign | (exponent + shape.bias) << stored | mantissa);
}

double format_decode(gdn_dtype dtype, const void *data, int64_t index)
{
    if (dtype == GDN_DTYPE_F32) {
        float x;
        memcpy(&x, (const char *)data + index * 4, sizeof(x));
        return x;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)data + index * 2, sizeof(bits));
    return decode16(shape_of(dtype), bits);
}

void format_encode(gdn_dtype dtype, void *data, int64_t index, double x)
{
    if (dtype == GDN_DTYPE_F32) {
        const float narrow = (float)x;
        memcpy((char *)data + index * 4, &narrow, sizeof(narrow));
        return;
    }
    const uint16_t bits = encode16(shape_of(dtype), x);
    memcpy((char *)data + index * 2, &bits, sizeof(bits));
}

double format_half_ulp(gdn_dtype dtype, double x)
{
    const int precision = dtype == GDN_DTYPE_F32 ? 24 : shape_of(dtype).precision;
    const int least = dtype == GDN_DTYPE_F32 ? -149 : shape_of(dtype).least;
    const double size = fabs(x);
    const int exponent = size > 0 && isfinite(size) ? ilogb(size) - (precision - 1) : least;
    return ldexp(0.5, exponent > least ? exponent : least);
}

size_t format_size(gdn_dtype dtype)
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
    default:
        return 0;
    }
}

int64_t format_load_index(gdn_dtype dtype, const void *data, int64_t index)
{
    if (dtype == GDN_DTYPE_I32) {
        int32_t value;
        memcpy(&value, (const char *)data + index * 4, sizeof(value));
        return value;
    }
    int64_t value;
    memcpy(&value, (const char *)data + index * 8, sizeof(value));
    return value;
}

void format_store_index(gdn_dtype dtype, void *data, int64_t index, int64_t value)
{
    if (dtype == GDN_DTYPE_I32) {
        const int32_t narrow = (int32_t)value;
        memcpy((char *)data + index * 4, &narrow, sizeof(narrow));
        return;
    }
    memcpy((char *)data + index * 8, &value, sizeof(value));
}
