/* Metrics: how far a row-wise array is from its reference, and where it is worst. */
#ifndef GDN_TESTS_COMPARE_H
#define GDN_TESTS_COMPARE_H

#include <gdn/gdn.h>

#include <stdbool.h>

/* `rows` rows of `width` values, in double; rows with use[i] false are left out (use NULL: none is). */
typedef struct compared {
    int64_t rows;
    int64_t width;
    const double *got;
    const double *ref;
    const bool *use;
} compared;

typedef struct difference {
    double frobenius; /* ||got - ref|| / ||ref|| over all rows in use */
    double ref_sum, error_sum; /* ||ref||^2 and ||got - ref||^2 */
    double row; /* worst of ||got_i - ref_i|| / max(||ref_i||, RMS row norm) */
    double largest; /* max |got - ref| / max |ref| */
    double rms_row_norm;
    int64_t worst_row;
    int64_t worst_column; /* of the worst row: where |got - ref| is largest */
    bool finite; /* no NaN or infinity in got */
    int64_t bad_row, bad_column; /* the first that is, else -1 */
} difference;

difference compare_rows(const compared *arrays);

/* The Frobenius error of two parts together. */
double frobenius_of(double error_sum, double ref_sum);

/* The first element further from the reference than rounding to `dtype` explains: more than half an ulp plus
 * `slack`. False where there is none. */
bool find_badly_rounded(const compared *arrays, gdn_dtype dtype, double slack, int64_t *row, int64_t *column);

#endif
