/* Which instruction set a context may use. */
#include "check.h"

#include "cpu_isa.h"

static void a_limit_lowers_and_never_raises(void **state)
{
    (void)state;
    const gdn_cpu_isa best = gdn_cpu_isa_best();
    assert_int_equal(gdn_cpu_isa_within(NULL), best);
    assert_int_equal(gdn_cpu_isa_within("scalar"), GDN_CPU_ISA_SCALAR);
    assert_true(gdn_cpu_isa_within("avx512") <= best);
    assert_true(gdn_cpu_isa_within("avx2") <= GDN_CPU_ISA_AVX2);
    assert_true(gdn_cpu_isa_within("neon") <= GDN_CPU_ISA_NEON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_lowers_and_never_raises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
