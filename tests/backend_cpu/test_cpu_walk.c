/* The walk over a wave's steps against the single operations it stands for: the same bits. */
#include "cpu_fixture.h"

enum { H = 2, HV = 4, K = 72, V = 100, C = 16 };

static const int64_t lengths[] = {40, 16, 0, 5, 70};

typedef struct operands {
    float *G, *q, *k, *W, *U, *rows, *S;
} operands;

static operands random_operands(const fixture_wave *f)
{
    const int64_t m = f->wave.num_slots;
    test_random random = random_stream(16, 1);
    operands x = {
        .G = fixture_poisoned(m * HV * 2 * C),
        .q = fixture_normal(&random, m * H * C * K),
        .k = fixture_normal(&random, m * H * C * K),
        .W = fixture_normal(&random, m * HV * C * K),
        .U = fixture_normal(&random, m * HV * C * V),
        .rows = fixture_poisoned(m * HV * C * V),
        .S = fixture_normal(&random, (int64_t)f->wave.num_lanes * HV * K * V),
    };
    for (int64_t i = 0; i < m * HV; i++) {
        double sum = 0;
        for (int c = 0; c < C; c++) {
            sum -= random_uniform(&random);
            x.G[i * 2 * C + c] = (float)sum;
            x.G[i * 2 * C + C + c] = (float)(sum - (double)(float)sum);
        }
    }
    for (int64_t i = 0; i < m * HV * C * K; i++) {
        x.W[i] *= 0.02f;
    }
    return x;
}

static void free_operands(operands *x)
{
    float *const all[] = {x->G, x->q, x->k, x->W, x->U, x->rows, x->S};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        free(all[i]);
    }
}

/* What core does where there is no walk: grouped heads, so value head hv is (hv / 2, hv % 2). */
static void step_by_step(const gdn_device *device, const fixture_wave *f, const operands *x)
{
    const gdn_wave *const wave = &f->wave;
    const int64_t r = HV / H;
    float *const tail = fixture_poisoned((int64_t)wave->num_lanes * HV * C * K);
    for (int32_t step = 0; step < wave->num_steps; step++) {
        const int32_t *const slots = wave->lane_slot + (int64_t)step * wave->num_lanes;
        const gdn_batch_matrix S = {x->S, V, {HV * K * V, r * K * V, K * V}, NULL};
        const gdn_batch_matrix U = {x->U, V, {HV * C * V, r * C * V, C * V}, slots};
        gdn_matmul matmul = {
            .m = C,
            .n = V,
            .k = K,
            .alpha = -1.0f,
            .beta = 1.0f,
            .batch = {wave->num_lanes, H, r},
            .a = {x->W, K, {HV * C * K, r * C * K, C * K}, slots},
            .b = S,
            .c = U,
        };
        REQUIRE_OK(gdn_cpu_matmul(device, &f->run, &matmul));
        matmul.alpha = 1.0f;
        matmul.beta = 0.0f;
        matmul.a = (gdn_batch_matrix){x->q, K, {H * C * K, C * K, 0}, slots};
        matmul.c = (gdn_batch_matrix){x->rows, V, {HV * C * V, r * C * V, C * V}, slots};
        REQUIRE_OK(gdn_cpu_matmul(device, &f->run, &matmul));
        REQUIRE_OK(gdn_cpu_decay_state(device, &f->run, wave, step, NULL, x->G, x->k, x->S, tail, x->S));
        matmul = (gdn_matmul){
            .m = K,
            .n = V,
            .k = C,
            .transpose_a = true,
            .alpha = 1.0f,
            .beta = 1.0f,
            .batch = {wave->num_lanes, H, r},
            .a = {tail, K, {HV * C * K, r * C * K, C * K}, NULL},
            .b = U,
            .c = S,
        };
        REQUIRE_OK(gdn_cpu_matmul(device, &f->run, &matmul));
    }
    free(tail);
}

static void the_walk_has_the_bits_of_the_steps(void **state)
{
    fixture_wave f;
    fixture_wave_open(&f, H, HV, K, V, C, COUNT_OF(lengths), lengths);
    const int64_t m = f.wave.num_slots;
    operands expected = random_operands(&f);
    gdn_device *device = fixture_open(1, *(const gdn_blas *)*state);
    step_by_step(device, &f, &expected);
    fixture_close(device);
    for (size_t i = 0; i < COUNT_OF(fixture_threads); i++) {
        operands x = random_operands(&f);
        device = fixture_open(fixture_threads[i], *(const gdn_blas *)*state);
        bool taken = false;
        REQUIRE_OK(gdn_cpu_walk(device, &f.run, &f.wave, x.G, x.q, x.k, x.W, x.U, x.rows, x.S, &taken));
        fixture_close(device);
        assert_true(taken);
        assert_memory_equal(x.U, expected.U, (size_t)(m * HV * C * V) * sizeof(float));
        assert_memory_equal(x.rows, expected.rows, (size_t)(m * HV * C * V) * sizeof(float));
        assert_memory_equal(x.S, expected.S, (size_t)f.wave.num_lanes * HV * K * V * sizeof(float));
        free_operands(&x);
    }
    free_operands(&expected);
    fixture_wave_close(&f);
}

/* Fewer heads than threads: left to the single operations, and nothing touched. */
static void few_heads_are_left_alone(void **unused)
{
    (void)unused;
    const int64_t one = 10;
    fixture_wave f;
    fixture_wave_open(&f, H, HV, K, V, C, 1, &one);
    gdn_device *const device = fixture_open(HV + 1, GDN_BLAS_OFF);
    operands x = random_operands(&f), before = random_operands(&f);
    bool taken = true;
    REQUIRE_OK(gdn_cpu_walk(device, &f.run, &f.wave, x.G, x.q, x.k, x.W, x.U, x.rows, x.S, &taken));
    if (gdn_cpu_device_of(device)->num_threads > 1) {
        assert_false(taken);
        assert_memory_equal(x.S, before.S, HV * K * V * sizeof(float));
        assert_memory_equal(x.U, before.U, HV * C * V * sizeof(float));
    }
    free_operands(&x);
    free_operands(&before);
    fixture_close(device);
    fixture_wave_close(&f);
}

int main(void)
{
    static gdn_blas blas = GDN_BLAS_AUTO, plain = GDN_BLAS_OFF;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_walk_has_the_bits_of_the_steps, &blas),
        cmocka_unit_test_prestate(the_walk_has_the_bits_of_the_steps, &plain),
        cmocka_unit_test(few_heads_are_left_alone),
    };
    return cmocka_run_group_tests_name("cpu_walk", tests, NULL, NULL);
}
