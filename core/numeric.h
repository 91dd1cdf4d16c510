/* Element conversions and gate formulas shared by core and the CPU backend: header-only scalar C.
 * docs/numerics.md states the rounding; names of quantities are those of docs/algorithm.md. */
#ifndef GDN_CORE_NUMERIC_H
#define GDN_CORE_NUMERIC_H

#include <gdn/gdn.h>

#include <math.h>
#include <string.h>

/* Decay below exp(-104) is 0 in float32. Clamping each token's log decay here, before any sum, keeps
 * G_i - G_j finite and exact enough when one token decays by thousands (docs/algorithm.md, traps). */
#define GDN_MIN_LOG_DECAY (-104.0f)

static inline uint32_t gdn_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float gdn_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float gdn_float_from_bf16(uint16_t h)
{
    return gdn_float_of_bits((uint32_t)h << 16);
}

/* Round to nearest, ties to even; NaN keeps its sign and top payload bits and is made quiet. */
static inline uint16_t gdn_bf16_from_float(float x)
{
    const uint32_t bits = gdn_bits_of_float(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x0040u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float gdn_float_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) {
        return gdn_float_of_bits(sign | 0x7f800000u | (mantissa << 13));
    }
    if (exponent == 0) {
        /* Subnormal: mantissa * 2^-24, exact in float32. */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return gdn_float_of_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

static inline uint16_t gdn_f16_from_float(float x)
{
    const uint32_t bits = gdn_bits_of_float(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    }
    if (magnitude >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    }
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the result is a multiple of 2^-24. Adding 0.5 leaves float32 exactly that
         * spacing, so its own rounding (to nearest even) does the work. */
        const float shifted = gdn_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (gdn_bits_of_float(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* Element `index` of a float array of any of the three float types. The dtype has been validated. */
static inline float gdn_load_element(const void *data, gdn_dtype dtype, int64_t index)
{
    switch (dtype) {
    case GDN_DTYPE_BF16:
        return gdn_float_from_bf16(((const uint16_t *)data)[index]);
    case GDN_DTYPE_F16:
        return gdn_float_from_f16(((const uint16_t *)data)[index]);
    default:
        return ((const float *)data)[index];
    }
}

static inline void gdn_store_element(void *data, gdn_dtype dtype, int64_t index, float x)
{
    switch (dtype) {
    case GDN_DTYPE_BF16:
        ((uint16_t *)data)[index] = gdn_bf16_from_float(x);
        break;
    case GDN_DTYPE_F16:
        ((uint16_t *)data)[index] = gdn_f16_from_float(x);
        break;
    default:
        ((float *)data)[index] = x;
        break;
    }
}

/* Element `index` of an int32 or int64 array. */
static inline int64_t gdn_load_index(const void *data, gdn_dtype dtype, int64_t index)
{
    return dtype == GDN_DTYPE_I32 ? ((const int32_t *)data)[index] : ((const int64_t *)data)[index];
}

/* log softplus(x). For x > 20, softplus(x) = x to float32's precision; below -20, log1p(e^x) = e^x, so
 * its logarithm is x itself and never underflows. */
static inline float gdn_log_softplus(float x)
{
    if (x > 20.0f) {
        return logf(x);
    }
    if (x < -20.0f) {
        return x;
    }
    return logf(log1pf(expf(x)));
}

/* log_decay = -exp(A_log) * softplus(a + dt_bias), with both factors' logarithms added before the one
 * exponential: no inf * 0. A_log = -inf gives 0 (no decay). */
static inline float gdn_log_decay_raw(float a, float A_log, float dt_bias)
{
    return -expf(A_log + gdn_log_softplus(a + dt_bias));
}

static inline float gdn_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The clamp every path applies to a token's log decay before it sums; NaN passes through. */
static inline float gdn_clamp_log_decay(float log_decay)
{
    return log_decay < GDN_MIN_LOG_DECAY ? GDN_MIN_LOG_DECAY : log_decay;
}

#endif
