/* Matrices as values, for tests that read like formulas. Sizes up to 64 x 64; float64; no allocation. */

#ifndef TESTS_FORMULAS_SMALL_MATRIX_H
#define TESTS_FORMULAS_SMALL_MATRIX_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MAX = 64 };

struct mat {
    int rows, cols;
    double x[MAX][MAX];
};

static long long flops; /* of mul() since it was last set to zero */

static inline struct mat zeros(int rows, int cols)
{
    struct mat m = {.rows = rows, .cols = cols};
    return m;
}

static inline struct mat eye(int n)
{
    struct mat m = zeros(n, n);
    for (int i = 0; i < n; i++)
        m.x[i][i] = 1;
    return m;
}

static inline struct mat mul(struct mat a, struct mat b)
{
    struct mat m = zeros(a.rows, b.cols);
    assert_int_equal(a.cols, b.rows);
    for (int i = 0; i < a.rows; i++)
        for (int l = 0; l < a.cols; l++)
            for (int j = 0; j < b.cols; j++)
                m.x[i][j] += a.x[i][l] * b.x[l][j];
    flops += 2LL * a.rows * a.cols * b.cols;
    return m;
}

static inline struct mat transpose(struct mat a)
{
    struct mat m = zeros(a.cols, a.rows);
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            m.x[j][i] = a.x[i][j];
    return m;
}

/* a + s b */
static inline struct mat add(struct mat a, double s, struct mat b)
{
    assert_true(a.rows == b.rows && a.cols == b.cols);
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            a.x[i][j] += s * b.x[i][j];
    return a;
}

static inline struct mat times(double s, struct mat a)
{
    return add(zeros(a.rows, a.cols), s, a);
}

/* The entrywise product. */
static inline struct mat hadamard(struct mat a, struct mat b)
{
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            a.x[i][j] *= b.x[i][j];
    return a;
}

/* diag(d) a */
static inline struct mat scale_rows(const double *d, struct mat a)
{
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            a.x[i][j] *= d[i];
    return a;
}

/* Entries at and below diagonal -below; the rest becomes zero. */
static inline struct mat lower(struct mat a, int below)
{
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            if (j > i - below)
                a.x[i][j] = 0;
    return a;
}

static inline struct mat block(struct mat a, int row, int col, int rows, int cols)
{
    struct mat m = zeros(rows, cols);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            m.x[i][j] = a.x[row + i][col + j];
    return m;
}

static inline struct mat row(struct mat a, int i)
{
    return block(a, i, 0, 1, a.cols);
}

static inline void put(struct mat *a, int at_row, int at_col, struct mat b)
{
    for (int i = 0; i < b.rows; i++)
        for (int j = 0; j < b.cols; j++)
            a->x[at_row + i][at_col + j] = b.x[i][j];
}

/* (I + L)^-1 row by row: row i of the inverse is e_i - sum_j L_ij (row j). */
static inline struct mat inverse_of_unit_lower(struct mat L)
{
    struct mat A = eye(L.rows);
    for (int i = 0; i < L.rows; i++)
        for (int l = 0; l < i; l++)
            for (int j = 0; j <= l; j++)
                A.x[i][j] -= L.x[i][l] * A.x[l][j];
    return A;
}

static inline double norm(struct mat a)
{
    double sum = 0;
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            sum += a.x[i][j] * a.x[i][j];
    return sqrt(sum);
}

static inline double max_abs(struct mat a)
{
    double max = 0;
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++)
            max = fmax(max, fabs(a.x[i][j]));
    return max;
}

/* The worst row error, relative to the row or, where that is smaller, to the mean row. A NaN gives infinity. */
static inline double distance(struct mat got, struct mat want)
{
    double worst = 0, mean = norm(want) / sqrt(want.rows);
    assert_true(got.rows == want.rows && got.cols == want.cols);
    for (int i = 0; i < want.rows; i++) {
        double error = norm(add(row(got, i), -1, row(want, i)));
        if (error > 0)
            worst = fmax(worst, error / fmax(norm(row(want, i)), mean));
        else if (error != 0)
            return INFINITY;
    }
    return worst;
}

static inline void close_to(struct mat got, struct mat want, double bound)
{
    double d = distance(got, want);
    if (!(d <= bound))
        fail_msg("worst row error %.3g, allowed %.3g, at %d x %d", d, bound, want.rows, want.cols);
}

#endif
