/* The factor of an l2 norm: 1 / sqrt(sum(x^2) + eps) or 1 / (sqrt(sum(x^2)) + eps). */
#ifndef GDN_CPU_L2NORM_H
#define GDN_CPU_L2NORM_H

#include "numeric.h"

static inline float gdn_cpu_l2norm_factor(gdn_qk_norm norm, float eps, const float *x, int32_t count)
{
    if (norm == GDN_QK_NORM_NONE) {
        return 1.0f;
    }
    /* Eight sums, so that a compiler may keep them in one register. */
    float part[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int32_t j = 0; j < 8; j++) {
            part[j] += x[i + j] * x[i + j];
        }
    }
    for (int32_t j = 0; i < count; i++, j++) {
        part[j] += x[i] * x[i];
    }
    const float sum = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    return 1.0f / (norm == GDN_QK_NORM_RSQRT ? sqrtf(sum + eps) : sqrtf(sum) + eps);
}

#endif
