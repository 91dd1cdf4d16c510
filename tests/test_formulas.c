/* Every numbered formula of docs/algorithm.md, checked in float64 against the token recurrence.
 *
 * One test a formula, named after it. Nothing of the library is used. The letters are in formulas/chunk.h. */

#include "formulas/chunk.h"

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
        cmocka_unit_test(F1_token_recurrence),
        cmocka_unit_test(F2_gates),
        cmocka_unit_test(F3_key_norms),
        cmocka_unit_test(F4_unrolled),
        cmocka_unit_test(F5_wy_lemma),
        cmocka_unit_test(F6_ut_transform),
        cmocka_unit_test(F7_new_values),
        cmocka_unit_test(F8_output),
        cmocka_unit_test(F9_state),
        cmocka_unit_test(F10_one_inverse),
        cmocka_unit_test(F11_entrywise_decay),
        cmocka_unit_test(F12_inverse_entries),
        cmocka_unit_test(F13_two_inverses),
        cmocka_unit_test(F14_residual),
        cmocka_unit_test(F15_pymllm_wy),
        cmocka_unit_test(F16_block_inverse),
        cmocka_unit_test(F17_repeated_keys),
        cmocka_unit_test(F18_padded_tail),
        cmocka_unit_test(F19_reset_and_clamp),
        cmocka_unit_test(F20_segment_map),
        cmocka_unit_test(F21_maps_compose),
        cmocka_unit_test(F22_map_bound),
        cmocka_unit_test(F23_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
