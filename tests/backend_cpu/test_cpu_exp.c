/* The exponential that the masks use, over every magnitude it can be given. */
#include "check.h"
#include "random.h"

#include "cpu_exp.h"

static void accurate_where_the_result_is_normal(void **unused)
{
    (void)unused;
    double worst = 0;
    for (int i = 0; i <= 400000; i++) {
        const float x = (float)(-87.3 * i / 400000);
        const double exact = exp((double)x);
        const double error = fabs((double)gdn_cpu_exp(x) - exact) / exact;
        worst = error <= worst ? worst : error;
    }
    assert_true(worst < 1.5 * 0x1p-23);
    /* Small arguments: 1 to within a rounding. */
    for (int e = -40; e < 0; e++) {
        const double exact = exp(-ldexp(1, e));
        assert_true(fabs((double)gdn_cpu_exp((float)-ldexp(1, e)) - exact) <= 0x1p-23);
    }
}

static void exact_at_the_ends(void **unused)
{
    (void)unused;
    assert_true(gdn_cpu_exp(0.0f) == 1.0f);
    assert_true(gdn_cpu_exp(-0.0f) == 1.0f);
    assert_true(gdn_cpu_exp(-87.4f) == 0.0f);
    assert_true(gdn_cpu_exp(-104.0f) == 0.0f);
    assert_true(gdn_cpu_exp(-26624.0f) == 0.0f); /* 256 clamped resets */
    assert_true(gdn_cpu_exp(-INFINITY) == 0.0f);
    assert_true(isnan(gdn_cpu_exp(NAN)));
}

static void never_increases_with_more_decay(void **unused)
{
    (void)unused;
    float previous = 1.0f;
    for (int i = 0; i < 100000; i++) {
        const float now = gdn_cpu_exp(-(float)i * 1e-3f);
        /* Within the rounding of neighbouring polynomials. */
        assert_true(now <= previous * (1.0f + 0x1p-22f));
        assert_true(now >= 0.0f);
        previous = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accurate_where_the_result_is_normal),
        cmocka_unit_test(exact_at_the_ends),
        cmocka_unit_test(never_increases_with_more_decay),
    };
    return cmocka_run_group_tests_name("cpu_exp", tests, NULL, NULL);
}
