/* In-chunk decay sums and beta, from every form, against double. */
#include "cpu_fixture.h"

#include "numeric.h"

typedef struct gates {
    fixture_wave f;
    float *gate, *b, *G, *beta;
    float A_log[4], dt_bias[4];
} gates;

static const int64_t lengths[] = {70, 0, 1, 64, 33};
enum { H = 2, HV = 4, C = 32 };

static void open_gates(gates *g)
{
    fixture_wave_open(&g->f, H, HV, 8, 8, C, COUNT_OF(lengths), lengths);
    test_random random = random_stream(6, 1);
    g->gate = fixture_normal(&random, g->f.args.total_tokens * HV);
    g->b = fixture_normal(&random, g->f.args.total_tokens * HV);
    for (int64_t i = 0; i < g->f.args.total_tokens * HV; i++) {
        g->gate[i] = -fabsf(g->gate[i]);
    }
    g->G = fixture_poisoned((int64_t)g->f.wave.num_slots * HV * 2 * C);
    g->beta = fixture_poisoned((int64_t)g->f.wave.num_slots * HV * C);
    g->f.args.gate = g->gate;
    g->f.args.beta = g->b;
    for (int h = 0; h < HV; h++) {
        g->A_log[h] = (float)random_between(&random, 0, 2.77);
        g->dt_bias[h] = (float)random_normal(&random);
    }
}

static void close_gates(gates *g)
{
    fixture_wave_close(&g->f);
    free(g->gate);
    free(g->b);
    free(g->G);
    free(g->beta);
}

static void run_gates(gates *g)
{
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_gates(device, &g->f.run, &g->f.wave, g->G, g->beta));
    fixture_close(device);
}

static double sum_at(const gates *g, int32_t slot, int32_t hv, int32_t i)
{
    const float *const high = g->G + ((int64_t)slot * HV + hv) * 2 * C;
    return (double)high[i] + (double)high[C + i];
}

typedef double (*log_decay_fn)(const gates *g, int64_t token, int32_t hv);
typedef double (*beta_fn)(const gates *g, int64_t token, int32_t hv);

/* Every sum to 1e-7 of itself plus the terms' own rounding; padded rows repeat the last sum and have no beta. */
static void check_gates(const gates *g, log_decay_fn log_decay, beta_fn beta)
{
    for (int32_t slot = 0; slot < g->f.wave.num_slots; slot++) {
        const gdn_chunk *const chunk = &g->f.wave.chunks[slot];
        for (int32_t hv = 0; hv < HV; hv++) {
            double sum = 0;
            for (int32_t i = 0; i < C; i++) {
                const bool there = i < chunk->length;
                if (there) {
                    sum += fmax(log_decay(g, chunk->token + i, hv), -104);
                }
                const double expected_beta = there ? beta(g, chunk->token + i, hv) : 0;
                if (!(fabs(sum_at(g, slot, hv, i) - sum) <= 3e-7 * fabs(sum) + 1e-12)) {
                    fail_msg("slot %d head %d row %d: G %.9g, must be %.9g", slot, hv, i, sum_at(g, slot, hv, i), sum);
                }
                assert_true(fabs((double)g->beta[((int64_t)slot * HV + hv) * C + i] - expected_beta) <= 2e-7);
            }
        }
    }
}

static double plain_decay(const gates *g, int64_t token, int32_t hv)
{
    return (double)g->gate[token * HV + hv];
}

static double log_of_decay(const gates *g, int64_t token, int32_t hv)
{
    return log((double)g->gate[token * HV + hv]);
}

static double raw_decay(const gates *g, int64_t token, int32_t hv)
{
    const double x = (double)g->gate[token * HV + hv] + (g->f.args.dt_bias ? (double)g->dt_bias[hv] : 0);
    return -exp((double)g->A_log[hv]) * log1p(exp(x));
}

static double plain_beta(const gates *g, int64_t token, int32_t hv)
{
    return (double)g->b[token * HV + hv];
}

static double doubled_sigmoid(const gates *g, int64_t token, int32_t hv)
{
    return 2 / (1 + exp(-(double)g->b[token * HV + hv]));
}

static void log_decay_and_beta(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    run_gates(&g);
    check_gates(&g, plain_decay, plain_beta);
    close_gates(&g);
}

static void linear_decay_with_true_zeros(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    g.f.problem.gate_form = GDN_GATE_DECAY;
    for (int64_t i = 0; i < g.f.args.total_tokens * HV; i++) {
        g.gate[i] = i % 7 == 0 ? 0.0f : expf(g.gate[i]);
    }
    run_gates(&g);
    check_gates(&g, log_of_decay, plain_beta);
    close_gates(&g);
}

static void raw_gates_and_logits(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    g.f.problem.gate_form = GDN_GATE_RAW;
    g.f.problem.beta_form = GDN_BETA_LOGIT;
    g.f.problem.beta_scale = 2;
    g.f.args.A_log = g.A_log;
    g.f.args.dt_bias = g.dt_bias;
    run_gates(&g);
    check_gates(&g, raw_decay, doubled_sigmoid);
    g.f.args.dt_bias = NULL;
    run_gates(&g);
    check_gates(&g, raw_decay, doubled_sigmoid);
    close_gates(&g);
}

/* After many resets in a chunk one float32 sum is too coarse for the ratio of two neighbours; the pair is not. */
static void neighbours_keep_their_ratio_after_resets(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    for (int64_t i = 0; i < g.f.args.total_tokens * HV; i++) {
        g.gate[i] = i / HV % 2 == 0 ? -1e4f : -0.0137f;
    }
    run_gates(&g);
    for (int32_t i = 1; i < C; i += 2) {
        assert_true(fabs(sum_at(&g, 0, 0, i) - sum_at(&g, 0, 0, i - 1) + (double)0.0137f) < 1e-9);
    }
    const float *const high = g.G;
    float worst = 0;
    for (int32_t i = 1; i < C; i += 2) {
        worst = fmaxf(worst, fabsf(high[i] - high[i - 1] + 0.0137f));
    }
    assert_true(worst > 1e-5f); /* the case is one that needs the pair */
    close_gates(&g);
}

static void nan_stays_in_its_head_and_its_chunk(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    g.gate[5 * HV + 1] = NAN;
    run_gates(&g);
    for (int32_t hv = 0; hv < HV; hv++) {
        for (int32_t i = 0; i < C; i++) {
            assert_int_equal(isnan(sum_at(&g, 0, hv, i)), hv == 1 && i >= 5);
        }
        assert_false(isnan(sum_at(&g, 1, hv, 0)));
    }
    close_gates(&g);
}

static void sixteen_bit_gates_with_strides(void **unused)
{
    (void)unused;
    gates g;
    open_gates(&g);
    /* gate and beta alternate in one bf16 array. */
    uint16_t *const mixed = malloc((size_t)(g.f.args.total_tokens * HV * 2) * sizeof(*mixed));
    REQUIRE(mixed != NULL);
    for (int64_t i = 0; i < g.f.args.total_tokens * HV; i++) {
        mixed[2 * i] = gdn_bf16_from_float(g.gate[i]);
        mixed[2 * i + 1] = gdn_bf16_from_float(g.b[i]);
        g.gate[i] = gdn_float_from_bf16(mixed[2 * i]);
        g.b[i] = gdn_float_from_bf16(mixed[2 * i + 1]);
    }
    g.f.problem.gate = (gdn_layout){.dtype = GDN_DTYPE_BF16, .token_stride = 2 * HV, .head_stride = 2};
    g.f.problem.beta = g.f.problem.gate;
    g.f.args.gate = mixed;
    g.f.args.beta = mixed + 1;
    run_gates(&g);
    check_gates(&g, plain_decay, plain_beta);
    free(mixed);
    close_gates(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_decay_and_beta),
        cmocka_unit_test(linear_decay_with_true_zeros),
        cmocka_unit_test(raw_gates_and_logits),
        cmocka_unit_test(neighbours_keep_their_ratio_after_resets),
        cmocka_unit_test(nan_stays_in_its_head_and_its_chunk),
        cmocka_unit_test(sixteen_bit_gates_with_strides),
    };
    return cmocka_run_group_tests_name("cpu_gates", tests, NULL, NULL);
}
