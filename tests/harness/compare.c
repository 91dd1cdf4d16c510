#include "compare.h"

#include "formats.h"

#include <math.h>

/* Subnormal values may be flushed to zero (docs/numerics.md): below this norm that alone would pass any relative bound. */
static const double least_norm = 1e-30;

static bool in_use(const compared *arrays, int64_t row)
{
    return arrays->use == NULL || arrays->use[row];
}

static double ratio(double error, double norm)
{
    return error == 0 ? 0 : error / fmax(norm, least_norm);
}

double frobenius_of(double error_sum, double ref_sum)
{
    return ratio(sqrt(error_sum), sqrt(ref_sum));
}

difference compare_rows(const compared *arrays)
{
    difference d = {.finite = true, .bad_row = -1, .bad_column = -1};
    double ref_sum = 0, error_sum = 0, largest_ref = 0, largest_error = 0;
    int64_t used = 0;
    for (int64_t row = 0; row < arrays->rows; row++) {
        for (int64_t j = 0; in_use(arrays, row) && j < arrays->width; j++) {
            const double ref = arrays->ref[row * arrays->width + j], got = arrays->got[row * arrays->width + j];
            ref_sum += ref * ref;
            error_sum += (got - ref) * (got - ref);
            largest_ref = fmax(largest_ref, fabs(ref));
            largest_error = fmax(largest_error, fabs(got - ref));
            if (!isfinite(got) && d.finite) {
                d.finite = false;
                d.bad_row = row;
                d.bad_column = j;
            }
        }
        used += in_use(arrays, row);
    }
    d.ref_sum = ref_sum;
    d.error_sum = error_sum;
    d.frobenius = frobenius_of(error_sum, ref_sum);
    d.largest = ratio(largest_error, largest_ref);
    d.rms_row_norm = used > 0 ? sqrt(ref_sum / (double)used) : 0;
    for (int64_t row = 0; row < arrays->rows; row++) {
        double row_ref = 0, row_error = 0, worst = -1;
        int64_t column = 0;
        for (int64_t j = 0; in_use(arrays, row) && j < arrays->width; j++) {
            const double ref = arrays->ref[row * arrays->width + j];
            const double error = arrays->got[row * arrays->width + j] - ref;
            row_ref += ref * ref;
            row_error += error * error;
            if (fabs(error) > worst) {
                worst = fabs(error);
                column = j;
            }
        }
        const double error = ratio(sqrt(row_error), fmax(sqrt(row_ref), d.rms_row_norm));
        if (error > d.row) {
            d.row = error;
            d.worst_row = row;
            d.worst_column = column;
        }
    }
    return d;
}

bool find_badly_rounded(const compared *arrays, gdn_dtype dtype, double slack, int64_t *row, int64_t *column)
{
    for (int64_t i = 0; i < arrays->rows; i++) {
        for (int64_t j = 0; in_use(arrays, i) && j < arrays->width; j++) {
            const double ref = arrays->ref[i * arrays->width + j], got = arrays->got[i * arrays->width + j];
            const double half_ulp = fmax(format_half_ulp(dtype, ref), format_half_ulp(dtype, got));
            if (!(fabs(got - ref) <= half_ulp + slack)) {
                *row = i;
                *column = j;
                return true;
            }
        }
    }
    return false;
}
