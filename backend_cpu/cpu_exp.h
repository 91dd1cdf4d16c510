/* exp of a number that is not positive, in arithmetic that compilers vectorise at any baseline. */
#ifndef GDN_CPU_EXP_H
#define GDN_CPU_EXP_H

#include "numeric.h"

/* Within 1.5 ulp for -87.3 <= x <= 0; 0 below (the true value is subnormal or nearly so); NaN for NaN. */
static inline float gdn_cpu_exp(float x)
{
    /* x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n in the low bits of the sum. */
    const float shifted = x * 0x1.715476p+0f + 0x1.8p+23f;
    const float n = shifted - 0x1.8p+23f;
    const float r = (x - n * 0x1.63p-1f) + n * 0x1.bd0106p-13f;
    float y = 0x1.6d117cp-10f;
    y = y * r + 0x1.120be2p-7f;
    y = y * r + 0x1.555518p-5f;
    y = y * r + 0x1.5554dcp-3f;
    y = y * r + 0.5f;
    y = y * r * r + r + 1.0f;
    const float power = gdn_float_of_bits((gdn_bits_of_float(shifted) << 23) + 0x3f800000u);
    return x < -87.3f ? 0.0f : y * power;
}

#endif
