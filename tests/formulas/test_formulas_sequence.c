/* Ends, resets, segments and the cost: F18 to F23 of docs/algorithm.md, checked in float64 against the token recurrence.
 *
 * One test a formula, named after it. Nothing of the library is used. The letters are in chunk.h. */

#include "chunk.h"

static void F18_padded_tail(void **state)
{
    (void)state;
    for (int size = 0; size < NUM_SIZES - 1; size++) {
        struct chunk c = draw(size, -1, 1), padded = c;
        padded.C = c.C + 9;
        padded.Q = padded.K = zeros(padded.C, c.K.cols);
        padded.V = zeros(padded.C, c.V.cols);
        put(&padded.Q, 0, 0, c.Q);
        put(&padded.K, 0, 0, c.K);
        put(&padded.V, 0, 0, c.V);
        for (int i = c.C; i < padded.C; i++)
            padded.g[i] = padded.beta[i] = 0;
        struct mat V_new = residual_form(&padded);
        close_to(block(chunk_O(&padded, V_new), 0, 0, c.C, c.V.cols), recurrence(&c).O, 1e-12);
        close_to(chunk_S(&padded, V_new), recurrence(&c).S, 1e-12);
    }
}

static void F19_reset_and_clamp(void **state)
{
    (void)state;
    assert_true((float)exp(-104.0) == 0.0f && (float)exp(-103.0) > 0.0f);
    for (int size = 0; size < NUM_SIZES; size++) {
        struct chunk c = draw(size, -1, 1), clamped, after;
        int reset = c.C / 2;
        c.g[reset] = -INFINITY;
        clamped = c;
        for (int i = 0; i < c.C; i++)
            clamped.g[i] = fmax(c.g[i], -104);
        struct mat V_new = residual_form(&clamped);
        close_to(V_new, recurrence(&c).written, 1e-12);
        close_to(chunk_O(&clamped, V_new), recurrence(&c).O, 1e-12);
        close_to(chunk_S(&clamped, V_new), recurrence(&c).S, 1e-12);
        /* From the reset on it is a sequence of its own. */
        after = rows_of(&c, reset, c.C - reset);
        after.S0 = zeros(c.K.cols, c.V.cols);
        after.g[0] = 0;
        close_to(chunk_S(&clamped, V_new), recurrence(&after).S, 1e-12);
        /* Unclamped, a difference of prefix sums is inf - inf. */
        assert_true(distance(chunk_O(&c, residual_form(&c)), recurrence(&c).O) == INFINITY);
    }
}

static void F20_segment_map(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        struct mat E, F, chunk_E, product = eye(c.K.cols);
        segment_map(&c, &E, &F);
        close_to(add(mul(E, c.S0), 1, F), recurrence(&c).S, 1e-12);
        chunk_E = add(times(decay(&c, c.C - 1, -1), eye(c.K.cols)), -1, mul(keys_to_end(&c), chunk_W(&c)));
        for (int t = 0; t < c.C; t++)
            product = mul(transition(&c, t), product);
        assert_true(norm(add(chunk_E, -1, product)) < 1e-12); /* F22: none is longer than 1 */
        assert_true(norm(add(E, -1, product)) < 1e-12);
        close_to(mul(keys_to_end(&c), chunk_U(&c)), F, 1e-12);
    }
}

static void F21_maps_compose(void **state)
{
    (void)state;
    FOR_EACH_CHUNK(c, 2)
    {
        for (int h = 1; h < c.C; h += 7) {
            struct mat E1, F1, E2, F2;
            struct chunk first = rows_of(&c, 0, h), second = rows_of(&c, h, c.C - h);
            segment_map(&first, &E1, &F1);
            segment_map(&second, &E2, &F2);
            struct mat E = mul(E2, E1), F = add(mul(E2, F1), 1, F2);
            close_to(add(mul(E, c.S0), 1, F), recurrence(&c).S, 1e-12);
        }
    }
}

static void F22_map_bound(void **state)
{
    (void)state;
    for (double length = 0.5; length < 3; length += 0.5)
        FOR_EACH_CHUNK(c, 2)
        {
            struct mat E, F, x = random_mat(c.K.cols, 1);
            double bound = 1, norm2 = 0;
            c.K = times(length, c.K);
            segment_map(&c, &E, &F);
            for (int t = 0; t < c.C; t++)
                bound *= exp(c.g[t]) * fmax(1, fabs(1 - c.beta[t] * length * length));
            for (int n = 0; n < 30 && norm(x) > 0; n++) {
                x = mul(E, times(1 / norm(x), x));
                norm2 = fmax(norm2, norm(x));
                x = mul(transpose(E), x);
            }
            assert_true(norm2 <= bound * (1 + 1e-10) + 1e-280);
            assert_true(c.C > 1 || norm2 > 0.9 * bound); /* attained by a single token */
            /* So a state that is left out moves the result by no more than this, but for rounding. */
            struct mat S = recurrence(&c).S;
            assert_true(norm(add(S, -1, F)) <= bound * norm(c.S0) * (1 + 1e-10) + 1e-12 * (norm(S) + norm(F)));
        }
}

static void F23_operations(void **state)
{
    (void)state;
    for (int size = 0; size < NUM_SIZES; size++)
        for (int r = 1; r <= 3; r++) {
            long long C = sizes[size][0], K = sizes[size][1], V = sizes[size][2];
            struct chunk head[3];
            struct result got[3];
            for (int h = 0; h < r; h++) {
                head[h] = draw(size, -1, 1);
                head[h].Q = head[0].Q;
                head[h].K = head[0].K;
            }
            /* As it is run: two products for a key head, five for each of its r value heads. */
            flops = 0;
            struct mat KK = mul(head[0].K, transpose(head[0].K)), QK = mul(head[0].Q, transpose(head[0].K));
            for (int h = 0; h < r; h++) {
                const struct chunk *c = &head[h];
                struct mat D = decay_mask(c);
                struct mat A = inverse_of_unit_lower(lower(scale_rows(c->beta, hadamard(D, KK)), 1));
                struct mat R = add(c->V, -1, gamma_rows(c, mul(c->K, c->S0)));
                got[h].written = mul(A, scale_rows(c->beta, R));
                got[h].O = add(gamma_rows(c, mul(c->Q, c->S0)), 1, mul(hadamard(D, QK), got[h].written));
                got[h].S = chunk_S(c, got[h].written);
            }
            assert_int_equal(flops, C * (r * (6 * K * V + 4 * C * V) + 4 * C * K));
            for (int h = 0; h < r; h++) {
                flops = 0;
                struct result want = recurrence(&head[h]);
                assert_int_equal(flops, C * 6 * K * V); /* and K V more where S is multiplied by alpha */
                close_to(times(head[h].scale, got[h].O), want.O, 1e-12);
                close_to(got[h].S, want.S, 1e-12);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F18_padded_tail),  cmocka_unit_test(F19_reset_and_clamp), cmocka_unit_test(F20_segment_map),
        cmocka_unit_test(F21_maps_compose), cmocka_unit_test(F22_map_bound),       cmocka_unit_test(F23_operations),
    };
    return cmocka_run_group_tests_name("formulas_sequence", tests, NULL, NULL);
}
