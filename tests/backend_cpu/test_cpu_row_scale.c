/* Rows times beta, beta exp(G) or scale exp(G), from key heads or value heads, and in place. */
#include "cpu_fixture.h"

enum { H = 2, HV = 4, C = 9, WIDTH = 13 };

static const int64_t lengths[] = {20, 3};

static void check_scale(gdn_row_factor factor, int32_t src_heads, gdn_head_map map, bool in_place)
{
    fixture_wave f;
    fixture_wave_open(&f, H, HV, WIDTH, WIDTH, C, COUNT_OF(lengths), lengths);
    f.problem.head_map = map;
    f.problem.scale = -0.7f;
    const int64_t m = f.wave.num_slots;
    test_random random = random_stream(8, 1);
    float *const src = fixture_normal(&random, m * src_heads * C * WIDTH);
    float *const beta = fixture_normal(&random, m * HV * C);
    float *const G = fixture_normal(&random, m * HV * 2 * C);
    for (int64_t i = 0; i < m * HV * 2 * C; i++) {
        G[i] = i / C % 2 == 0 ? -fabsf(G[i]) * 3 : G[i] * 1e-7f;
    }
    float *const dst = fixture_poisoned(m * HV * C * WIDTH);
    float *target = dst;
    if (in_place) {
        memcpy(dst, src, (size_t)(m * HV * C * WIDTH) * sizeof(float));
    }
    gdn_device *const device = fixture_open(2, GDN_BLAS_OFF);
    REQUIRE_OK(
        gdn_cpu_scale_rows(device, &f.run, &f.wave, factor, G, beta, in_place ? dst : src, src_heads, WIDTH, target));
    fixture_close(device);
    for (int64_t n = 0; n < m * HV; n++) {
        const int32_t hv = (int32_t)(n % HV);
        const int32_t hk = map == GDN_HEAD_MAP_TILED ? hv % H : hv / (HV / H);
        const float *const from = src + (n / HV * src_heads + (src_heads == HV ? hv : hk)) * C * WIDTH;
        for (int32_t i = 0; i < C; i++) {
            const double decay = exp((double)G[n * 2 * C + i] + (double)G[n * 2 * C + C + i]);
            const double b = (double)beta[n * C + i];
            const double expected = factor == GDN_ROW_BETA         ? b
                                    : factor == GDN_ROW_BETA_DECAY ? b * decay
                                                                   : (double)f.problem.scale * decay;
            for (int32_t d = 0; d < WIDTH; d++) {
                const double want = expected * (double)from[i * WIDTH + d];
                assert_true(fabs((double)dst[(n * C + i) * WIDTH + d] - want) <= 1e-6 * fabs(want));
            }
        }
    }
    free(src);
    free(beta);
    free(G);
    free(dst);
    fixture_wave_close(&f);
}

static void every_factor_from_every_head(void **unused)
{
    (void)unused;
    static const gdn_row_factor factors[] = {GDN_ROW_BETA, GDN_ROW_BETA_DECAY, GDN_ROW_SCALE_DECAY};
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        check_scale(factors[i], H, GDN_HEAD_MAP_GROUPED, false);
        check_scale(factors[i], H, GDN_HEAD_MAP_TILED, false);
        check_scale(factors[i], HV, GDN_HEAD_MAP_GROUPED, false);
        check_scale(factors[i], HV, GDN_HEAD_MAP_TILED, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_factor_from_every_head),
    };
    return cmocka_run_group_tests_name("cpu_row_scale", tests, NULL, NULL);
}
