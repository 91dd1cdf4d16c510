/* Gate formulas in double, written so that a compiler turns the loops into vector code: no branch, no
 * library call, no conversion between integers and doubles. Errors are below 1e-12 relative. */
#ifndef GDN_GATE_MATH_H
#define GDN_GATE_MATH_H

#include <string.h>

#include "kernels.h"

static inline uint64_t gate_bits(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof(b));
    return b;
}

static inline double gate_from_bits(uint64_t b)
{
    double x;
    memcpy(&x, &b, sizeof(x));
    return x;
}

/* exp(x) for any x; 0 below -708, and at most exp(709). Adding 1.5 * 2^52 rounds to an integer that then sits
 * in the low bits, where a shift makes it the exponent. NaN stays NaN. */
static inline double gate_exp(double x)
{
    const double LOG2E = 1.4426950408889634, LN2_HIGH = 6.93147180369123816490e-01,
                 LN2_LOW = 1.90821492927058770002e-10;
    const double MAGIC = 6755399441055744.0;
    double y = x < -709.0 ? -709.0 : x;
    y = y > 709.0 ? 709.0 : y;
    const double shifted = y * LOG2E + MAGIC;
    const double n = shifted - MAGIC;
    const double r = (y - n * LN2_HIGH) - n * LN2_LOW;
    double p = 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const double power = gate_from_bits((gate_bits(shifted) << 52) + gate_bits(1.0));
    const double result = p * power;
    return x < -708.0 ? 0.0 : result;
}

/* log(x) for x >= 0 that is 0, normal, infinite or NaN: x = 2^e m, sqrt(1/2) <= m < sqrt(2);
 * log m = 2 atanh((m - 1) / (m + 1)). */
static inline double gate_log(double x)
{
    const double LN2 = 6.93147180559945309e-01, TWO52 = 4503599627370496.0;
    const uint64_t b = gate_bits(x) + (gate_bits(1.0) - gate_bits(0.70710678118654752));
    const double e = gate_from_bits((b >> 52) | gate_bits(TWO52)) - TWO52 - 1023.0;
    const double m = gate_from_bits((b & 0xfffffffffffffu) + gate_bits(0.70710678118654752));
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    const double y = e * LN2 + 2.0 * s * p;
    return x > 0.0 ? (x < 1.7e308 ? y : x) : (x == 0.0 ? -1e308 : x);
}

static inline double gate_clamp(double log_decay)
{
    return log_decay < -104.0 ? -104.0 : log_decay; /* NaN stays NaN */
}

/* -exp(A_log + log softplus(x)): the two logarithms are added before the one exponential, so that no infinity
 * meets a zero. softplus(x) = x above 20; its logarithm is x below -20. */
static inline double gate_log_decay_raw(double A_log, double x)
{
    const double middle = x < -20.0 ? -20.0 : (x > 20.0 ? 20.0 : x);
    const double e = gate_exp(middle), sum = 1.0 + e;
    const double inside = gate_log(sum) + (e - (sum - 1.0)) / sum; /* the second term: what 1 + e rounded away */
    const double softplus = x > 20.0 ? x : inside;
    const double log_of_it = gate_log(softplus);
    const double log_softplus = x < -20.0 ? x : log_of_it;
    return -gate_exp(A_log + log_softplus);
}

static void gate_math_gates(const gdn_gate_terms *terms, int count, const double *gate, const double *beta,
                            double *log_decay, double *beta_out)
{
    if (terms->gate_form == GDN_GATE_RAW) {
        for (int i = 0; i < count; i++) {
            log_decay[i] = gate_clamp(gate_log_decay_raw(terms->A_log, gate[i] + terms->dt_bias));
        }
    } else if (terms->gate_form == GDN_GATE_DECAY) {
        for (int i = 0; i < count; i++) {
            log_decay[i] = gate_clamp(gate_log(gate[i]));
        }
    } else {
        for (int i = 0; i < count; i++) {
            log_decay[i] = gate_clamp(gate[i]);
        }
    }
    if (terms->beta_form == GDN_BETA_LOGIT) {
        for (int i = 0; i < count; i++) {
            beta_out[i] = terms->beta_scale / (1.0 + gate_exp(-beta[i]));
        }
    } else {
        for (int i = 0; i < count; i++) {
            beta_out[i] = beta[i];
        }
    }
}

#endif /* GDN_GATE_MATH_H */
