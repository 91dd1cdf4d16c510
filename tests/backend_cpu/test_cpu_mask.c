/* L and P from Gram matrices, both head maps, against double. */
#include "cpu_fixture.h"

enum { H = 2, HV = 6, C = 20, K = 4, V = 4 };

static const int64_t lengths[] = {45, 7};

static void check_mask(gdn_head_map map, gdn_mask_kind kind)
{
    fixture_wave f;
    fixture_wave_open(&f, H, HV, K, V, C, COUNT_OF(lengths), lengths);
    f.problem.head_map = map;
    f.problem.scale = 0.3f;
    const int64_t m = f.wave.num_slots;
    test_random random = random_stream(7, 1);
    float *const gram = fixture_normal(&random, m * H * C * C);
    float *const G = fixture_poisoned(m * HV * 2 * C);
    float *const beta = fixture_normal(&random, m * HV * C);
    float *const dst = fixture_poisoned(m * HV * C * C);
    for (int64_t n = 0; n < m * HV; n++) {
        double sum = 0;
        for (int32_t i = 0; i < C; i++) {
            sum -= random_uniform(&random) * (i == 10 ? 104 : 1);
            G[n * 2 * C + i] = (float)sum;
            G[n * 2 * C + C + i] = (float)(sum - (double)(float)sum);
        }
    }
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(gdn_cpu_mask(device, &f.run, &f.wave, kind, gram, G, beta, dst));
    fixture_close(device);
    for (int64_t n = 0; n < m * HV; n++) {
        const int32_t hv = (int32_t)(n % HV);
        const int32_t hk = map == GDN_HEAD_MAP_TILED ? hv % H : hv / (HV / H);
        const float *const from = gram + (n / HV * H + hk) * C * C;
        const float *const high = G + n * 2 * C;
        for (int32_t i = 0; i < C; i++) {
            for (int32_t j = 0; j < C; j++) {
                const double difference = (double)high[i] - (double)high[j] + (double)high[C + i] - (double)high[C + j];
                const double decay = exp(difference);
                /* The difference itself is rounded to float32. */
                const double bound = 3e-7 + fabs(difference) * 0x1p-23;
                const double factor = kind == GDN_MASK_L ? (double)beta[n * C + i] : (double)f.problem.scale;
                const bool there = kind == GDN_MASK_L ? j < i : j <= i;
                const double expected = there ? factor * decay * (double)from[i * C + j] : 0;
                const double got = (double)dst[(n * C + i) * C + j];
                if (!(fabs(got - expected) <= bound * fabs(expected) + 1e-37) || (!there && got != 0)) {
                    fail_msg("matrix %d (%d, %d): %.9g, must be %.9g", (int)n, i, j, got, expected);
                }
            }
        }
    }
    free(gram);
    free(G);
    free(beta);
    free(dst);
    fixture_wave_close(&f);
}

static void strictly_lower_with_beta(void **unused)
{
    (void)unused;
    check_mask(GDN_HEAD_MAP_GROUPED, GDN_MASK_L);
    check_mask(GDN_HEAD_MAP_TILED, GDN_MASK_L);
}

static void lower_with_scale(void **unused)
{
    (void)unused;
    check_mask(GDN_HEAD_MAP_GROUPED, GDN_MASK_P);
    check_mask(GDN_HEAD_MAP_TILED, GDN_MASK_P);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strictly_lower_with_beta),
        cmocka_unit_test(lower_with_scale),
    };
    return cmocka_run_group_tests_name("cpu_mask", tests, NULL, NULL);
}
