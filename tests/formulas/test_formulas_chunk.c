/* The definition and the chunk form: F1 to F9 of docs/algorithm.md, checked in float64 against the token recurrence.
 *
 * One test a formula, named after it. Nothing of the library is used. The letters are in chunk.h. */

#include "chunk.h"

static void F1_token_recurrence(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        struct result want = recurrence(&c);
        struct mat S = c.S0, O = zeros(c.C, c.V.cols);
        for (int t = 0; t < c.C; t++) {
            S = add(mul(transition(&c, t), S), c.beta[t], mul(transpose(row(c.K, t)), row(c.V, t)));
            put(&O, t, 0, times(c.scale, mul(row(c.Q, t), S)));
        }
        close_to(O, want.O, 1e-13);
        close_to(S, want.S, 1e-13);
    }
}

static double log_decay(double A_log, double x)
{
    double log_softplus = x > 20 ? log(x) : x < -20 ? x : log(log1p(exp(x)));
    return -exp(A_log + log_softplus);
}

static void F2_gates(void **state)
{
    (void)state;
    for (double A_log = -12; A_log <= 6; A_log += 0.75)
        for (double x = -60; x <= 60; x += 0.37) {
            double want = -exp(A_log) * log1p(exp(x));
            assert_true(fabs(log_decay(A_log, x) - want) <= 1.1e-9 * fabs(want)); /* e^-20 / 2 where it switches */
        }
    /* The case for the sum of logs: in float32 the product is infinite or not a number. */
    assert_true(fabs(log_decay(90, -90) + 1) < 1e-12);
    assert_false(isfinite(-expf(90.0f) * log1pf(expf(-90.0f))));

    FOR_EACH_CHUNK(c, 1)
    {
        struct chunk d = c;
        for (int t = 0; t < c.C; t++) {
            double A_log = uniform(-4, 1), a = uniform(-4, 4), dt_bias = uniform(-1, 1), b = uniform(-5, 5);
            c.g[t] = -exp(A_log) * log1p(exp(a + dt_bias));
            c.beta[t] = 2 / (1 + exp(-b));
            d.g[t] = log_decay(A_log, a + dt_bias);
            d.beta[t] = 1 + tanh(b / 2);
            /* Along k the old state is multiplied by alpha (1 - beta): negative where beta passes 1. */
            struct mat k = row(c.K, t);
            assert_true(norm(add(mul(k, transition(&c, t)), -exp(c.g[t]) * (1 - c.beta[t]), k)) < 1e-14);
        }
        close_to(recurrence(&d).O, recurrence(&c).O, 1e-12);
        close_to(recurrence(&d).S, recurrence(&c).S, 1e-12);
    }
}

static struct mat normalised(struct mat x, double eps, int inside)
{
    for (int i = 0; i < x.rows; i++) {
        double n = norm(row(x, i)), d = inside ? 1 / sqrt(n * n + eps) : 1 / (n + eps);
        for (int j = 0; j < x.cols; j++)
            x.x[i][j] *= d;
    }
    return x;
}

static void F3_key_norms(void **state)
{
    (void)state;
    for (int inside = 0; inside < 2; inside++)
        FOR_EACH_CHUNK(c, 1)
        {
            double length = exp(uniform(-9, 3)), eps = 1e-6;
            struct chunk d = c;
            d.K = normalised(random_rows(c.C, c.K.cols, length), eps, inside);
            /* Neither form reaches 1, each by its own factor; both agree where eps is small beside x. */
            double want = inside ? sqrt(length * length / (length * length + eps)) : length / (length + eps);
            for (int i = 0; i < c.C; i++)
                assert_true(fabs(norm(row(d.K, i)) - want) < 1e-14 && want < 1);
            assert_true(max_abs(normalised(zeros(c.C, c.K.cols), eps, inside)) == 0);

            struct chunk e = c;
            e.K = normalised(times(3, c.K), eps, inside);
            close_to(recurrence(&e).O, recurrence(&c).O, 1e-5);
        }
}

static void F4_unrolled(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        int t = c.C - 1;
        struct mat Z_gamma_K = z_times(&c, t, gamma_rows(&c, c.K));
        struct mat from_S0 = add(times(decay(&c, t, -1), c.S0), -1, mul(Z_gamma_K, c.S0));
        close_to(add(from_S0, 1, z_times(&c, t, c.V)), recurrence(&c).S, 1e-12);
    }
}

static void F5_wy_lemma(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        struct mat X = random_mat(c.C, 3), Y = zeros(c.C, 3);
        for (int t = 0; t < c.C; t++) {
            struct mat k = row(c.K, t), sum = zeros(c.K.cols, 3);
            for (int i = 0; i < t; i++)
                sum = add(sum, decay(&c, t, i), mul(transpose(row(c.K, i)), row(Y, i)));
            put(&Y, t, 0, times(c.beta[t], add(row(X, t), -1, mul(k, sum))));
            sum = add(sum, 1, mul(transpose(k), row(Y, t)));
            if (t % 7 == 0 || t == c.C - 1)
                close_to(sum, z_times(&c, t, X), 1e-12);
        }
        /* From a zero state, with X = V, the sum is the recurrence. */
        c.S0 = zeros(c.K.cols, c.V.cols);
        close_to(z_times(&c, c.C - 1, c.V), recurrence(&c).S, 1e-12);
    }
}

static void F6_ut_transform(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        /* With S0 = 0 the rows Y of X = V are the rows that the recurrence writes. */
        c.S0 = zeros(c.K.cols, c.V.cols);
        close_to(mul(chunk_A(&c), scale_rows(c.beta, c.V)), recurrence(&c).written, 1e-12);
        close_to(mul(chunk_A(&c), add(eye(c.C), 1, chunk_L(&c))), eye(c.C), 1e-12);
    }
}

static void F7_new_values(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        close_to(add(chunk_U(&c), -1, mul(chunk_W(&c), c.S0)), recurrence(&c).written, 1e-12);
    }
}

static void F8_output(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        close_to(chunk_O(&c, add(chunk_U(&c), -1, mul(chunk_W(&c), c.S0))), recurrence(&c).O, 1e-12);
    }
}

static void F9_state(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        close_to(chunk_S(&c, add(chunk_U(&c), -1, mul(chunk_W(&c), c.S0))), recurrence(&c).S, 1e-12);
        /* Chunk after chunk, with a last one that is shorter: the same state. */
        struct chunk part = c;
        for (int from = 0, step = 5; from < c.C; from += step) {
            struct mat S0 = part.S0;
            part = rows_of(&c, from, from + step < c.C ? step : c.C - from);
            part.S0 = S0;
            part.S0 = chunk_S(&part, add(chunk_U(&part), -1, mul(chunk_W(&part), S0)));
        }
        close_to(part.S0, recurrence(&c).S, 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F1_token_recurrence), cmocka_unit_test(F2_gates),    cmocka_unit_test(F3_key_norms),
        cmocka_unit_test(F4_unrolled),         cmocka_unit_test(F5_wy_lemma), cmocka_unit_test(F6_ut_transform),
        cmocka_unit_test(F7_new_values),       cmocka_unit_test(F8_output),   cmocka_unit_test(F9_state),
    };
    return cmocka_run_group_tests_name("formulas_chunk", tests, NULL, NULL);
}
