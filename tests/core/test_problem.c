/* gdn_problem: its defaults, its struct_size, what a plan keeps of it. Wrong fields are in api/test_bad_problem.c. */
#include "check.h"
#include "problem.h"

#include <math.h>
#include <string.h>

static void init_writes_the_documented_defaults(void **unused)
{
    (void)unused;
    gdn_problem p;
    memset(&p, 0xA5, sizeof(p));
    REQUIRE_OK(gdn_problem_init(&p, 2, 6, 32, 48));
    assert_int_equal(p.struct_size, sizeof(p));
    assert_int_equal(p.operation, GDN_OPERATION_PREFILL);
    assert_int_equal(p.num_k_heads, 2);
    assert_int_equal(p.num_v_heads, 6);
    assert_int_equal(p.head_k_dim, 32);
    assert_int_equal(p.head_v_dim, 48);
    assert_int_equal(p.head_map, GDN_HEAD_MAP_GROUPED);
    assert_true(fabs((double)p.scale - 1 / sqrt(32)) < 1e-8);
    assert_int_equal(p.gate_form, GDN_GATE_LOG_DECAY);
    assert_int_equal(p.beta_form, GDN_BETA_VALUE);
    assert_true(p.beta_scale == 1.0f);
    assert_int_equal(p.qk_norm, GDN_QK_NORM_NONE);
    assert_true(p.qk_norm_eps == 1e-6f);
    assert_int_equal(p.numerics, GDN_NUMERICS_DEFAULT);
    assert_int_equal(p.chunk_size, 0);
    assert_int_equal(p.num_segments, 0);
    const gdn_layout *const layouts[] = {&p.q, &p.k, &p.v, &p.o, &p.gate, &p.beta};
    const int64_t heads[] = {2, 2, 6, 6, 6, 6}, dims[] = {32, 32, 48, 48, 1, 1};
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        assert_int_equal(layouts[i]->dtype, GDN_DTYPE_F32);
        assert_int_equal(layouts[i]->alignment, 16);
        assert_int_equal(layouts[i]->row_stride, 0);
        assert_int_equal(layouts[i]->token_stride, heads[i] * dims[i]);
        assert_int_equal(layouts[i]->head_stride, dims[i]);
    }
    const gdn_state_layout *const states[] = {&p.state, &p.final_state, &p.checkpoints};
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        assert_int_equal(states[i]->dtype, GDN_DTYPE_F32);
        assert_int_equal(states[i]->alignment, 16);
        assert_int_equal(states[i]->slot_stride, 6 * 32 * 48);
        assert_int_equal(states[i]->head_stride, 32 * 48);
        assert_int_equal(states[i]->v_stride, 32);
        assert_int_equal(states[i]->k_stride, 1);
    }
    assert_int_equal(p.state_form, GDN_STATE_DENSE);
    assert_int_equal(p.slots_dtype, GDN_DTYPE_I64);
    assert_int_equal(p.cu_seqlens_dtype, GDN_DTYPE_I64);
    assert_int_equal(p.checkpoint_form, GDN_CHECKPOINT_NONE);
    assert_int_equal(p.checkpoint_index_dtype, GDN_DTYPE_I64);
    assert_int_equal(p.tokens_per_row, 1);
    assert_int_equal(p.max_seqs, 1);
    assert_int_equal(p.max_tokens, 0);
    assert_int_equal(p.max_seqlen, 0);
    assert_int_equal(p.max_workspace, 0);
    assert_int_equal(p.check, 0);
}

static void init_takes_any_numbers_and_refuses_none_of_them(void **unused)
{
    (void)unused;
    static const int32_t numbers[] = {0, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        gdn_problem p;
        REQUIRE_OK(gdn_problem_init(&p, numbers[i], numbers[i], numbers[i], numbers[i]));
        p.max_tokens = 10;
        gdn_problem resolved;
        assert_int_equal(gdn_problem_resolve(&resolved, &p), GDN_ERROR_INVALID_ARGUMENT);
    }
}

/* 1 / (0 + eps), and the product of two of them, must be finite: then zeros stay zeros. */
static void no_eps_still_leaves_zeros_alone(void **unused)
{
    (void)unused;
    gdn_problem p, resolved;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 32, 32));
    p.max_tokens = 10;
    for (p.qk_norm = GDN_QK_NORM_RSQRT; p.qk_norm <= GDN_QK_NORM_EPS_OUTSIDE; p.qk_norm++) {
        p.qk_norm_eps = 0;
        REQUIRE_OK(gdn_problem_resolve(&resolved, &p));
        const float eps = resolved.qk_norm_eps;
        const float factor = 1 / (p.qk_norm == GDN_QK_NORM_RSQRT ? sqrtf(eps) : eps);
        assert_true(isfinite(factor * factor));
        p.qk_norm_eps = 1e-12f;
        REQUIRE_OK(gdn_problem_resolve(&resolved, &p));
        assert_true(resolved.qk_norm_eps == 1e-12f);
    }
}

static void structs_of_another_size_are_a_version_mismatch(void **unused)
{
    (void)unused;
    struct {
        gdn_problem problem;
        unsigned char later_fields[64];
    } larger;
    memset(&larger, 0, sizeof(larger));
    REQUIRE_OK(gdn_problem_init(&larger.problem, 1, 1, 16, 16));
    larger.problem.max_tokens = 10;
    gdn_problem resolved;
    /* A caller of a later version that uses nothing new. */
    larger.problem.struct_size = sizeof(larger);
    REQUIRE_OK(gdn_problem_resolve(&resolved, &larger.problem));
    larger.later_fields[9] = 1;
    assert_int_equal(gdn_problem_resolve(&resolved, &larger.problem), GDN_ERROR_VERSION_MISMATCH);
    assert_non_null(strstr(gdn_last_error(), "struct_size"));
    static const size_t wrong[] = {0, 1, sizeof(gdn_problem) - 1, SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        larger.problem.struct_size = wrong[i];
        assert_int_equal(gdn_problem_resolve(&resolved, &larger.problem), GDN_ERROR_VERSION_MISMATCH);
        assert_non_null(strstr(gdn_last_error(), "struct_size"));
        assert_int_equal(gdn_problem_init_sized(&larger.problem, wrong[i], 1, 1, 16, 16), GDN_ERROR_VERSION_MISMATCH);
    }
}

static void a_resolved_problem_has_its_dependent_defaults(void **unused)
{
    (void)unused;
    gdn_problem p, resolved;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 16, 16));
    p.max_tokens = 100;
    REQUIRE_OK(gdn_problem_resolve(&resolved, &p));
    assert_int_equal(resolved.max_seqlen, 100);
    assert_int_equal(p.max_seqlen, 0);
    p.max_seqlen = 40;
    REQUIRE_OK(gdn_problem_resolve(&resolved, &p));
    assert_int_equal(resolved.max_seqlen, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_writes_the_documented_defaults),
        cmocka_unit_test(init_takes_any_numbers_and_refuses_none_of_them),
        cmocka_unit_test(structs_of_another_size_are_a_version_mismatch),
        cmocka_unit_test(no_eps_still_leaves_zeros_alone),
        cmocka_unit_test(a_resolved_problem_has_its_dependent_defaults),
    };
    return cmocka_run_group_tests_name("problem", tests, NULL, NULL);
}
