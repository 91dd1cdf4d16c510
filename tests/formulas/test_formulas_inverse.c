/* One inverse, its entries and how it is formed: F10 to F17 of docs/algorithm.md, checked in float64 against the token
 * recurrence.
 *
 * One test a formula, named after it. Nothing of the library is used. The letters are in chunk.h. */

#include "chunk.h"

/* Gamma x Gamma^-1, with the division that the library never does. */
static struct mat conjugate(const struct chunk *c, struct mat x)
{
    for (int i = 0; i < c->C; i++)
        for (int j = 0; j < c->C; j++)
            x.x[i][j] *= decay(c, i, -1) / decay(c, j, -1);
    return x;
}

static void F10_one_inverse(void **state)
{
    (void)state;
    FOR_EACH_MILD_CHUNK(c)
    {
        struct mat M = add(eye(c.C), 1, chunk_L_of_M(&c)), N = add(eye(c.C), 1, chunk_L(&c));
        struct mat M_inv = inverse_of_unit_lower(chunk_L_of_M(&c));
        close_to(conjugate(&c, M), N, 1e-12);
        close_to(conjugate(&c, M_inv), chunk_A(&c), 1e-12);
        struct mat U = mul(conjugate(&c, M_inv), scale_rows(c.beta, c.V));
        struct mat W = gamma_rows(&c, mul(M_inv, scale_rows(c.beta, c.K)));
        close_to(add(U, -1, mul(W, c.S0)), recurrence(&c).written, 1e-12);
    }
}

static void F11_entrywise_decay(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        struct mat A = hadamard(decay_mask(&c), inverse_of_unit_lower(chunk_L_of_M(&c)));
        struct mat R = add(c.V, -1, gamma_rows(&c, mul(c.K, c.S0)));
        close_to(A, chunk_A(&c), 1e-12);
        close_to(mul(A, scale_rows(c.beta, R)), recurrence(&c).written, 1e-12);
    }
    /* Where gamma underflows, the form with a division is lost and the entrywise one is not. */
    struct chunk c = draw(NUM_SIZES - 1, -1, 1);
    for (int i = 0; i < c.C; i++)
        c.g[i] = -20;
    struct mat M_inv = inverse_of_unit_lower(chunk_L_of_M(&c));
    assert_false(distance(conjugate(&c, M_inv), chunk_A(&c)) < 1e300);
    close_to(hadamard(decay_mask(&c), M_inv), chunk_A(&c), 1e-12);
}

/* The greatest |A_ij| that the norms allow: beta_i |k_i| |k_j| D_ij prod max(1, |1 - beta_l |k_l|^2|). */
static double entry_bound(const struct chunk *c, int i, int j)
{
    double bound = c->beta[i] * norm(row(c->K, i)) * norm(row(c->K, j)) * decay(c, i, j);
    for (int l = j + 1; l < i; l++)
        bound *= fmax(1, fabs(1 - c->beta[l] * pow(norm(row(c->K, l)), 2)));
    return bound;
}

static void F12_inverse_entries(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        /* Column j of moved is (transition i-1) ... (transition j+1) k_j^T. */
        struct mat A = chunk_A(&c), want = eye(c.C), moved = zeros(c.K.cols, c.C);
        for (int i = 0; i < c.C; i++) {
            put(&want, i, 0, times(-c.beta[i] * exp(c.g[i]), mul(row(c.K, i), moved)));
            want.x[i][i] = 1;
            for (int j = 0; j < i; j++)
                assert_true(fabs(A.x[i][j]) <= entry_bound(&c, i, j) * (1 + 1e-12));
            moved = mul(transition(&c, i), moved);
            put(&moved, 0, i, transpose(row(c.K, i)));
        }
        close_to(A, want, 1e-12);
        assert_true(max_abs(inverse_of_unit_lower(chunk_L_of_M(&c))) <= 2 + 1e-12);
    }
    /* Keys that are not normalised: N sees the decay and stays small, M does not. */
    struct chunk c = draw(NUM_SIZES - 1, 0, 1);
    for (int i = 0; i < c.C; i++) {
        c.beta[i] = 1;
        c.g[i] = log(0.09);
        put(&c.K, i, 0, times(i ? 1 : sqrt(11), row(c.K, 0)));
    }
    assert_true(max_abs(chunk_A(&c)) <= 1 + 1e-12);
    assert_true(fabs(log10(max_abs(inverse_of_unit_lower(chunk_L_of_M(&c)))) - (62 + log10(11))) < 0.01);
    close_to(chunk_O(&c, add(chunk_U(&c), -1, mul(chunk_W(&c), c.S0))), recurrence(&c).O, 1e-12);
}

static void F13_two_inverses(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 1)
    {
        /* The note's letters, its states transposed: U~ by N, W by M, arrows put the decay back. */
        struct mat U = mul(inverse_of_unit_lower(chunk_L(&c)), scale_rows(c.beta, c.V));
        struct mat W = mul(inverse_of_unit_lower(chunk_L_of_M(&c)), scale_rows(c.beta, c.K));
        struct mat S = transpose(c.S0), K_to_end = transpose(keys_to_end(&c));
        struct mat V_new = add(U, -1, mul(gamma_rows(&c, W), transpose(S)));
        S = add(times(decay(&c, c.C - 1, -1), S), 1, mul(transpose(V_new), K_to_end));
        close_to(gamma_rows(&c, W), chunk_W(&c), 1e-12);
        close_to(transpose(S), recurrence(&c).S, 1e-12);
        close_to(chunk_O(&c, V_new), recurrence(&c).O, 1e-12);
    }
}

static void F14_residual(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        close_to(residual_form(&c), recurrence(&c).written, 1e-12);
        close_to(chunk_O(&c, residual_form(&c)), recurrence(&c).O, 1e-12);
        close_to(chunk_S(&c, residual_form(&c)), recurrence(&c).S, 1e-12);
    }
}

/* The pymllm form in its own letters: columns, S is V x K. swapped = 1 takes the line for w_i as it is printed. */
static struct result pymllm_form(const struct chunk *c, int swapped)
{
    int C = c->C, K = c->K.cols, V = c->V.cols;
    struct mat Kt = transpose(c->K), W = zeros(K, C), U = zeros(V, C), S = transpose(c->S0);
    for (int i = 0; i < C; i++) {
        struct mat K_old = block(Kt, 0, 0, K, i), W_old = block(W, 0, 0, K, i), U_old = block(U, 0, 0, V, i);
        struct mat x = times(c->beta[i], transpose(row(c->K, i)));
        struct mat into_w = swapped ? mul(K_old, mul(transpose(W_old), x)) : mul(W_old, mul(transpose(K_old), x));
        struct mat v = times(c->beta[i] / decay(c, i, -1), transpose(row(c->V, i)));
        put(&W, 0, i, add(x, -1, into_w));
        put(&U, 0, i, add(v, -1, mul(U_old, mul(transpose(K_old), x))));
    }
    struct mat causal = transpose(lower(mul(c->Q, Kt), 0)), SW = mul(S, W);
    struct mat O = add(add(mul(S, transpose(c->Q)), -1, mul(SW, causal)), 1, mul(U, causal));
    if (!swapped) {
        struct mat M_inv = inverse_of_unit_lower(chunk_L_of_M(c));
        close_to(transpose(W), mul(M_inv, scale_rows(c->beta, c->K)), 1e-12);
        close_to(gamma_rows(c, transpose(U)), chunk_U(c), 1e-12);
    }
    S = times(decay(c, C - 1, -1), add(add(S, -1, mul(SW, c->K)), 1, mul(U, c->K)));
    return (struct result){times(c->scale, gamma_rows(c, transpose(O))), transpose(S), zeros(0, 0)};
}

static void F15_pymllm_wy(void **state)
{
    (void)state;
    FOR_EACH_MILD_CHUNK(c)
    {
        struct result want = recurrence(&c), got = pymllm_form(&c, 0), printed = pymllm_form(&c, 1);
        close_to(got.O, want.O, 1e-12);
        close_to(got.S, want.S, 1e-12);
        /* The printed order of K and W agrees for two tokens and for no more. */
        if (c.C <= 2 || c.K.cols == 1)
            close_to(printed.S, want.S, 1e-12);
        else
            assert_true(distance(printed.S, want.S) > 1e-5);
    }
}

static void F16_block_inverse(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        for (int h = 1; h < c.C; h += 6) {
            int rest = c.C - h;
            struct mat L = chunk_L(&c), A = zeros(c.C, c.C);
            struct mat A11 = inverse_of_unit_lower(block(L, 0, 0, h, h));
            struct mat A22 = inverse_of_unit_lower(block(L, h, h, rest, rest));
            put(&A, 0, 0, A11);
            put(&A, h, h, A22);
            put(&A, h, 0, times(-1, mul(A22, mul(block(L, h, 0, rest, h), A11))));
            struct mat R = add(c.V, -1, gamma_rows(&c, mul(c.K, c.S0)));
            close_to(mul(A, scale_rows(c.beta, R)), recurrence(&c).written, 1e-12);
        }
    }
}

static void F17_repeated_keys(void **state)
{
    (void)state;
    struct chunk c = draw(NUM_SIZES - 1, 0, 1);
    struct mat want = eye(c.C), power = eye(c.C);
    for (int i = 0; i < c.C; i++) {
        c.beta[i] = 1;
        put(&c.K, i, 0, row(c.K, 0));
        put(&c.Q, i, 0, row(c.K, 0));
        if (i)
            want.x[i][i - 1] = -1;
    }
    close_to(chunk_A(&c), want, 1e-12);
    /* Each token replaces what its key holds: o_t = scale v_t, whatever came before. */
    close_to(recurrence(&c).O, times(c.scale, c.V), 1e-12);
    close_to(chunk_O(&c, residual_form(&c)), recurrence(&c).O, 1e-12);

    double largest = 0;
    for (int m = 1; m < c.C; m++) {
        power = mul(power, chunk_L(&c));
        largest = fmax(largest, max_abs(power));
        for (int i = 0; i < c.C; i++)
            for (int j = 0; j < i; j++) {
                double n = i - j - 1, r = m - 1;
                double binomial = n < r ? 0 : exp(lgamma(n + 1) - lgamma(r + 1) - lgamma(n - r + 1));
                assert_true(fabs(power.x[i][j] - binomial) <= 1e-10 * binomial + 1e-10);
            }
    }
    assert_true(largest > 4.6e17 && largest < 4.7e17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F10_one_inverse),     cmocka_unit_test(F11_entrywise_decay),
        cmocka_unit_test(F12_inverse_entries), cmocka_unit_test(F13_two_inverses),
        cmocka_unit_test(F14_residual),        cmocka_unit_test(F15_pymllm_wy),
        cmocka_unit_test(F16_block_inverse),   cmocka_unit_test(F17_repeated_keys),
    };
    return cmocka_run_group_tests_name("formulas_inverse", tests, NULL, NULL);
}
