/* Runs against each other, bit by bit or closely. */
#include "check.h"
#include "compare.h"
#include "execute.h"
#include "formats.h"
#include "judge.h"
#include "tolerances.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bit equality of two decoded values: NaN equals NaN, 0 is not -0. */
static bool same_bits(double x, double y)
{
    return memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y));
}

int same_outputs(const test_case *a, int64_t from, const test_case *b, int64_t at, int64_t count)
{
    for (int64_t t = 0; t < count; t++) {
        for (int32_t head = 0; head < a->problem.num_v_heads; head++) {
            for (int32_t d = 0; d < a->problem.head_v_dim; d++) {
                const double x = case_output(a, from + t, head, d), y = case_output(b, at + t, head, d);
                if (!same_bits(x, y)) {
                    fprintf(stderr, "%s (token %lld) and %s (token %lld): o of head %d element %d: %.9g and %.9g\n",
                            a->spec.label, (long long)(from + t), b->spec.label, (long long)(at + t), head, d, x, y);
                    return 1;
                }
            }
        }
    }
    return 0;
}

int same_state(const test_case *a, case_operand x, int64_t s, const test_case *b, case_operand y, int64_t t)
{
    for (int32_t head = 0; head < a->problem.num_v_heads; head++) {
        for (int32_t v = 0; v < a->problem.head_v_dim; v++) {
            for (int32_t k = 0; k < a->problem.head_k_dim; k++) {
                const double one = case_state_after(a, x, s, head, v, k), other = case_state_after(b, y, t, head, v, k);
                if (!same_bits(one, other)) {
                    fprintf(stderr, "%s (state %lld) and %s (state %lld): head %d v %d k %d: %.9g and %.9g\n",
                            a->spec.label, (long long)s, b->spec.label, (long long)t, head, v, k, one, other);
                    return 1;
                }
            }
        }
    }
    return 0;
}

int same_sequence(const test_case *a, int64_t n, const test_case *b, int64_t m)
{
    REQUIRE(case_length(a, n) == case_length(b, m));
    int complaints = same_outputs(a, case_first_token(a, n), b, case_first_token(b, m), case_length(a, n));
    case_operand x, y;
    int64_t s, t;
    if (case_result_state(a, n, &x, &s) && case_result_state(b, m, &y, &t)) {
        complaints += same_state(a, x, s, b, y, t);
    }
    return complaints;
}

int same_results(const test_case *a, const test_case *b)
{
    REQUIRE(a->spec.num_seqs == b->spec.num_seqs);
    int complaints = 0;
    for (int64_t n = 0; n < a->spec.num_seqs; n++) {
        complaints += same_sequence(a, n, b, n);
    }
    return complaints;
}

static bool tensor_cores(const test_case *c)
{
    return !test_backend_is_host() && c->spec.dtype != GDN_DTYPE_F32;
}

static int judge_close(const test_case *a, const test_case *b, const compared *arrays, gdn_dtype dtype, double allowed,
                       const char *what, int32_t head)
{
    const difference d = compare_rows(arrays);
    const double unit = dtype == GDN_DTYPE_F32 ? 0 : dtype == GDN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    if (d.finite && d.row <= allowed + unit) {
        return 0;
    }
    fprintf(stderr, "%s and %s: %s of head %d: row error %.3g (allowed %.3g), row %lld element %lld\n", a->spec.label,
            b->spec.label, what, head, d.row, allowed + unit, (long long)d.worst_row, (long long)d.worst_column);
    return 1;
}

int close_outputs(const test_case *a, int64_t from, const test_case *b, int64_t at, int64_t count)
{
    const int64_t V = a->problem.head_v_dim;
    double *const x = malloc((size_t)(count * V + 1) * sizeof(double));
    double *const y = malloc((size_t)(count * V + 1) * sizeof(double));
    REQUIRE(x != NULL && y != NULL);
    int complaints = 0;
    for (int32_t head = 0; head < a->problem.num_v_heads; head++) {
        for (int64_t t = 0; t < count; t++) {
            for (int32_t d = 0; d < V; d++) {
                x[t * V + d] = case_output(a, from + t, head, d);
                y[t * V + d] = case_output(b, at + t, head, d);
            }
        }
        const compared arrays = {count, V, x, y, NULL};
        complaints += judge_close(a, b, &arrays, a->problem.o.dtype,
                                  tensor_cores(a) ? TOLERANCE_TENSOR_CORE_ROW : TOLERANCE_LAW, "o", head);
    }
    free(x);
    free(y);
    return complaints;
}

int close_state(const test_case *a, case_operand x, int64_t s, const test_case *b, case_operand y, int64_t t)
{
    const int64_t V = a->problem.head_v_dim, K = a->problem.head_k_dim;
    double *const got = malloc((size_t)(V * K) * sizeof(double));
    double *const ref = malloc((size_t)(V * K) * sizeof(double));
    REQUIRE(got != NULL && ref != NULL);
    int complaints = 0;
    for (int32_t head = 0; head < a->problem.num_v_heads; head++) {
        for (int32_t v = 0; v < V; v++) {
            for (int32_t k = 0; k < K; k++) {
                got[v * K + k] = case_state_after(a, x, s, head, v, k);
                ref[v * K + k] = case_state_after(b, y, t, head, v, k);
            }
        }
        const compared arrays = {V, K, got, ref, NULL};
        complaints += judge_close(a, b, &arrays, a->problem.state.dtype,
                                  tensor_cores(a) ? TOLERANCE_TENSOR_CORE_ROW : TOLERANCE_LAW, "state", head);
    }
    free(got);
    free(ref);
    return complaints;
}
