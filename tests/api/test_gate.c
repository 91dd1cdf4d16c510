/* gdn_gate: the formulas over their whole range, dtypes and strides, bad input. */
#include "formats.h"
#include "suite.h"

#include <math.h>
#include <string.h>

static void *to_backend(const void *host, size_t bytes)
{
    void *memory = NULL;
    REQUIRE_OK(gdn_memory_alloc(test_context(), &memory, bytes));
    REQUIRE_OK(gdn_memory_copy(test_context(), memory, host, bytes, GDN_COPY_TO_BACKEND, NULL));
    return memory;
}

static void from_backend(void *host, void *memory, size_t bytes)
{
    REQUIRE_OK(gdn_memory_copy(test_context(), host, memory, bytes, GDN_COPY_FROM_BACKEND, NULL));
    REQUIRE_OK(gdn_synchronize(test_context(), NULL));
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
}

static void release(void *memory)
{
    REQUIRE_OK(gdn_memory_free(test_context(), &memory));
}

/* `heads` pairs (a, A_log): one token, a head each, so that every head has its own A_log. */
static void run_heads(const float *a, const float *A_log, const float *dt_bias, int64_t heads, float *log_decay)
{
    const size_t bytes = (size_t)heads * sizeof(float);
    void *const a_memory = to_backend(a, bytes), *const A_memory = to_backend(A_log, bytes);
    void *const dt_memory = dt_bias != NULL ? to_backend(dt_bias, bytes) : NULL;
    void *const out_memory = to_backend(a, bytes);
    const int64_t size[] = {1, heads};
    const gdn_tensor a_tensor = gdn_tensor_dense(a_memory, GDN_DTYPE_F32, 2, size);
    const gdn_tensor A_tensor = gdn_tensor_dense(A_memory, GDN_DTYPE_F32, 1, &heads);
    const gdn_tensor dt_tensor = gdn_tensor_dense(dt_memory, GDN_DTYPE_F32, 1, &heads);
    const gdn_tensor out = gdn_tensor_dense(out_memory, GDN_DTYPE_F32, 2, size);
    REQUIRE_OK(gdn_gate(test_context(), &a_tensor, NULL, &A_tensor, dt_bias != NULL ? &dt_tensor : NULL, 1.0f, &out,
                        NULL, NULL));
    from_backend(log_decay, out_memory, bytes);
    release(a_memory);
    release(A_memory);
    release(dt_memory);
}

static void log_decay_where_factors_overflow_and_underflow(void **unused)
{
    (void)unused;
    static const struct {
        float A_log, x;
        double alpha;
    } table[] = {
        {100, -200, 1},      {90, -90, 0.36787944117144233},
        {8, -10, 0.873426},  {5, 20, 0},
        {0, -100, 1},        {-INFINITY, 3, 1},
        {14, -17, 0.951431}, /* g = -exp(14) log1p(exp(-17)) = -0.04979 */
        {0, 0, 0.5},         {0, 88, 0},
        {-3, 1e30f, 0},      {120, -300, 1},
        {-80, 80, 1},
    };
    float a[COUNT_OF(table)], A_log[COUNT_OF(table)], log_decay[COUNT_OF(table)];
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        a[i] = table[i].x;
        A_log[i] = table[i].A_log;
    }
    run_heads(a, A_log, NULL, COUNT_OF(table), log_decay);
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        const double alpha = exp((double)log_decay[i]);
        if (!(fabs(alpha - table[i].alpha) <= 2e-6)) {
            fail_msg("A_log %g, x %g: alpha %.9g, should be %.9g", (double)table[i].A_log, (double)table[i].x, alpha,
                     table[i].alpha);
        }
    }
}

static void log_decay_is_never_nan_and_never_above_zero(void **unused)
{
    (void)unused;
    static const float A_logs[] = {-INFINITY, -1e30f, -104, -20, -1, 0, 1, 5, 20, 60, 88, 89, 100, 120};
    static const float xs[] = {-300,   -150, -104, -88,   -87, -60,   -20.5f, -20, -19.5f, -5,    -1e-30f, 0,
                               1e-30f, 1,    5,    19.9f, 20,  20.1f, 88,     89,  1e10f,  1e30f, 3e38f};
    enum { PAIRS = COUNT_OF(A_logs) * COUNT_OF(xs) };
    float a[PAIRS], A_log[PAIRS], log_decay[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        A_log[i] = A_logs[i / COUNT_OF(xs)];
        a[i] = xs[i % COUNT_OF(xs)];
    }
    run_heads(a, A_log, NULL, PAIRS, log_decay);
    for (size_t i = 0; i < PAIRS; i++) {
        const double exact = reference_log_decay(a[i], A_log[i], 0);
        const double error = fabs(exp((double)log_decay[i]) - exp(exact));
        if (!(log_decay[i] <= 0.0f) || !(error <= 2e-5)) {
            fail_msg("A_log %g, x %g: log decay %.9g, should be %.9g", (double)A_log[i], (double)a[i],
                     (double)log_decay[i], exact);
        }
        /* Where float32 can hold it, the logarithm itself is right, too. */
        if (exact > -1e30 && exact < -1e-30 && fabs((double)A_log[i]) < 60) {
            if (!(fabs((double)log_decay[i] - exact) <= 2e-5 * fabs(exact))) {
                fail_msg("A_log %g, x %g: log decay %.9g, should be %.9g", (double)A_log[i], (double)a[i],
                         (double)log_decay[i], exact);
            }
        }
    }
}

static void dtypes_strides_and_both_outputs(void **unused)
{
    (void)unused;
    enum { TOKENS = 67, HEADS = 5, ROW = 13 };
    static const gdn_dtype dtypes[] = {GDN_DTYPE_F32, GDN_DTYPE_BF16, GDN_DTYPE_F16};
    static const float scales[] = {1.0f, 2.0f};
    for (size_t io = 0; io < COUNT_OF(dtypes); io++) {
        for (size_t s = 0; s < COUNT_OF(scales); s++) {
            unsigned char packed[TOKENS * ROW * 4];
            float A_log[HEADS], dt_bias[HEADS], log_decay[TOKENS * ROW], beta[TOKENS * ROW];
            memset(packed, 0xFF, sizeof(packed));
            memset(log_decay, 0xA5, sizeof(log_decay));
            memset(beta, 0xA5, sizeof(beta));
            test_random random = random_stream(81, io * 2 + s);
            for (int64_t t = 0; t < TOKENS; t++) {
                for (int64_t h = 0; h < 2 * HEADS; h++) {
                    format_encode(dtypes[io], packed, t * ROW + h, 4 * random_normal(&random));
                }
            }
            for (int h = 0; h < HEADS; h++) {
                A_log[h] = (float)random_normal(&random);
                dt_bias[h] = (float)random_normal(&random);
            }
            void *const in = to_backend(packed, sizeof(packed)), *const A = to_backend(A_log, sizeof(A_log));
            void *const dt = to_backend(dt_bias, sizeof(dt_bias));
            void *const out1 = to_backend(log_decay, sizeof(log_decay)), *const out2 = to_backend(beta, sizeof(beta));
            const int64_t heads = HEADS;
            gdn_tensor a = {in, dtypes[io], 2, {TOKENS, HEADS}, {ROW, 1}};
            gdn_tensor b = a;
            b.data = (unsigned char *)in + HEADS * format_size(dtypes[io]);
            const gdn_tensor A_tensor = gdn_tensor_dense(A, GDN_DTYPE_F32, 1, &heads);
            const gdn_tensor dt_tensor = gdn_tensor_dense(dt, GDN_DTYPE_F32, 1, &heads);
            const gdn_tensor g_tensor = {out1, GDN_DTYPE_F32, 2, {TOKENS, HEADS}, {ROW, 2}};
            const gdn_tensor beta_tensor = {out2, GDN_DTYPE_F32, 2, {TOKENS, HEADS}, {ROW, 1}};
            REQUIRE_OK(
                gdn_gate(test_context(), &a, &b, &A_tensor, &dt_tensor, scales[s], &g_tensor, &beta_tensor, NULL));
            from_backend(log_decay, out1, sizeof(log_decay));
            from_backend(beta, out2, sizeof(beta));
            release(in);
            for (int64_t t = 0; t < TOKENS; t++) {
                for (int64_t h = 0; h < HEADS; h++) {
                    const double want_g = reference_log_decay(format_decode(dtypes[io], packed, t * ROW + h),
                                                              (double)A_log[h], (double)dt_bias[h]);
                    const double want_b =
                        reference_beta(format_decode(dtypes[io], packed, t * ROW + HEADS + h), (double)scales[s]);
                    const double g = (double)log_decay[t * ROW + 2 * h], got_b = (double)beta[t * ROW + h];
                    assert_true(fabs(g - want_g) <= 2e-6 * fabs(want_g) + 1e-30);
                    assert_true(fabs(got_b - want_b) <= 5e-7 * want_b);
                }
            }
            unsigned char gap[4];
            memset(gap, 0xA5, sizeof(gap));
            assert_memory_equal(&log_decay[1], gap, 4);
            assert_memory_equal(&log_decay[ROW - 1], gap, 4);
            assert_memory_equal(&beta[HEADS], gap, 4);
            release(A);
            release(dt);
        }
    }
}

static void refused_calls_name_the_argument(void **unused)
{
    (void)unused;
    enum { TOKENS = 3, HEADS = 2 };
    const int64_t size[] = {TOKENS, HEADS}, heads = HEADS;
    float host[TOKENS * HEADS] = {0};
    void *const in = to_backend(host, sizeof(host)), *const out = to_backend(host, sizeof(host));
    void *const parameters = to_backend(host, sizeof(host));
    const gdn_tensor a = gdn_tensor_dense(in, GDN_DTYPE_F32, 2, size);
    const gdn_tensor A_log = gdn_tensor_dense(parameters, GDN_DTYPE_F32, 1, &heads);
    const gdn_tensor g = gdn_tensor_dense(out, GDN_DTYPE_F32, 2, size);
    gdn_tensor bad;

#define REFUSED(call, name)                                 \
    do {                                                    \
        assert_int_equal(call, GDN_ERROR_INVALID_ARGUMENT); \
        assert_non_null(strstr(gdn_last_error(), name));    \
    } while (0)
    REFUSED(gdn_gate(NULL, &a, NULL, &A_log, NULL, 1, &g, NULL, NULL), "context");
    REFUSED(gdn_gate(test_context(), NULL, NULL, &A_log, NULL, 1, &g, NULL, NULL), "a");
    REFUSED(gdn_gate(test_context(), &a, NULL, NULL, NULL, 1, &g, NULL, NULL), "A_log");
    REFUSED(gdn_gate(test_context(), NULL, NULL, NULL, NULL, 1, NULL, &g, NULL), "b");
    REFUSED(gdn_gate(test_context(), NULL, &a, NULL, NULL, NAN, NULL, &g, NULL), "beta_scale");
    bad = a;
    bad.dtype = GDN_DTYPE_I32;
    REFUSED(gdn_gate(test_context(), &bad, NULL, &A_log, NULL, 1, &g, NULL, NULL), "a");
    bad = a;
    bad.rank = 3;
    REFUSED(gdn_gate(test_context(), &bad, NULL, &A_log, NULL, 1, &g, NULL, NULL), "rank");
    bad = a;
    bad.size[1] = HEADS + 1;
    REFUSED(gdn_gate(test_context(), &bad, NULL, &A_log, NULL, 1, &g, NULL, NULL), "size");
    bad = a;
    bad.data = NULL;
    REFUSED(gdn_gate(test_context(), &bad, NULL, &A_log, NULL, 1, &g, NULL, NULL), "a");
    bad = g;
    bad.dtype = GDN_DTYPE_BF16;
    REFUSED(gdn_gate(test_context(), &a, NULL, &A_log, NULL, 1, &bad, NULL, NULL), "log_decay");
    bad = g;
    bad.stride[0] = 0;
    REFUSED(gdn_gate(test_context(), &a, NULL, &A_log, NULL, 1, &bad, NULL, NULL), "log_decay");
    REFUSED(gdn_gate(test_context(), &a, NULL, &A_log, NULL, 1, &a, NULL, NULL), "log_decay");
    bad = A_log;
    bad.size[0] = 1;
    REFUSED(gdn_gate(test_context(), &a, NULL, &bad, NULL, 1, &g, NULL, NULL), "A_log");
    bad = a;
    bad.data = (unsigned char *)in + 1;
    bad.size[0] = 1;
    REFUSED(gdn_gate(test_context(), &bad, NULL, &A_log, NULL, 1, &g, NULL, NULL), "a");
#undef REFUSED
    release(in);
    release(out);
    release(parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_decay_where_factors_overflow_and_underflow),
        cmocka_unit_test(log_decay_is_never_nan_and_never_above_zero),
        cmocka_unit_test(dtypes_strides_and_both_outputs),
        cmocka_unit_test(refused_calls_name_the_argument),
    };
    return RUN_SUITE("gate", tests);
}
