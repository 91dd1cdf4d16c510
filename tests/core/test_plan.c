/* The plan: what it chooses, what the lists of allowed implementations change, what it says of itself. */
#include "check.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

static gdn_context *context_with(const char *implementations, const char *isa)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    options.ignore_environment = 1;
    options.implementations = implementations;
    options.cpu_isa = isa;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    return context;
}

static gdn_problem model_problem(void)
{
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 2, 4, 128, 128));
    p.max_tokens = 100;
    return p;
}

static const char *chosen(const char *implementations, const char *isa)
{
    gdn_context *context = context_with(implementations, isa);
    const gdn_problem p = model_problem();
    gdn_plan *plan = NULL;
    static char name[64];
    if (gdn_plan_create(&plan, context, &p) == GDN_OK) {
        snprintf(name, sizeof(name), "%s", plan->implementation->name);
        gdn_plan_destroy(&plan);
    } else {
        snprintf(name, sizeof(name), "none");
    }
    gdn_context_destroy(&context);
    return name;
}

static void lists_force_and_exclude_by_prefix(void **unused)
{
    (void)unused;
    assert_string_equal(chosen("generic", NULL), "generic");
    assert_string_equal(chosen("-cpu", NULL), "generic");
    assert_string_equal(chosen("cpu.scalar", NULL), "cpu.scalar.prefill");
    assert_string_equal(chosen("cpu,generic,-cpu.avx,-cpu.neon", NULL), "cpu.scalar.prefill");
    assert_string_equal(chosen(NULL, "scalar"), "cpu.scalar.prefill");
    assert_string_equal(chosen("no.such.thing", NULL), "none");
    assert_non_null(strstr(gdn_last_error(), "no.such.thing"));
    assert_string_equal(chosen("-cpu,-generic", NULL), "none");
    assert_string_not_equal(chosen(NULL, NULL), "generic");
    assert_string_not_equal(chosen("", NULL), "generic");
}

static void the_description_names_the_choice_the_refusals_and_the_scratch(void **unused)
{
    (void)unused;
    gdn_context *context = context_with(NULL, "scalar");
    gdn_problem p = model_problem();
    REQUIRE_OK(gdn_problem_init(&p, 2, 4, 100, 100));
    p.max_tokens = 100;
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &p));
    size_t needed = 0;
    REQUIRE_OK(gdn_plan_describe(plan, NULL, 0, &needed));
    assert_true(needed > 100 && needed < 8192);
    char text[8192], cut[8192];
    memset(cut, 'Z', sizeof(cut));
    REQUIRE_OK(gdn_plan_describe(plan, text, sizeof(text), &needed));
    assert_int_equal(strlen(text) + 1, needed);
    assert_non_null(strstr(text, "implementation: generic"));
    assert_non_null(strstr(text, "not cpu.scalar.prefill: head_k_dim 100"));
    char workspace[64];
    snprintf(workspace, sizeof(workspace), "workspace: %zu bytes", gdn_plan_workspace_size(plan));
    assert_non_null(strstr(text, workspace));
    for (size_t size = 1; size <= needed + 3; size++) {
        memset(cut, 'Z', sizeof(cut));
        REQUIRE_OK(gdn_plan_describe(plan, cut, size, NULL));
        const size_t length = size < needed ? size - 1 : needed - 1;
        assert_int_equal(strlen(cut), length);
        assert_memory_equal(cut, text, length);
        assert_int_equal(cut[size], 'Z');
    }
    assert_int_equal(gdn_plan_describe(plan, NULL, 5, NULL), GDN_ERROR_INVALID_ARGUMENT);
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
}

static void the_callers_problem_may_go(void **unused)
{
    (void)unused;
    gdn_context *context = context_with(NULL, NULL);
    gdn_problem p = model_problem();
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &p));
    memset(&p, 0xA5, sizeof(p));
    assert_int_equal(plan->problem.head_k_dim, 128);
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
}

static void the_workspace_does_not_grow_without_bound(void **unused)
{
    (void)unused;
    gdn_context *context = context_with(NULL, NULL);
    size_t sizes[2];
    for (int i = 0; i < 2; i++) {
        gdn_problem p;
        REQUIRE_OK(gdn_problem_init(&p, 16, 32, 128, 128));
        p.max_tokens = i == 0 ? 16384 : 262144;
        gdn_plan *plan = NULL;
        REQUIRE_OK(gdn_plan_create(&plan, context, &p));
        sizes[i] = gdn_plan_workspace_size(plan);
        gdn_plan_destroy(&plan);
    }
    printf("workspace at 16/32 heads: %zu bytes for 16384 tokens, %zu for 262144\n", sizes[0], sizes[1]);
    /* What may still grow with the length is the chunk table: a few bytes a token. */
    assert_true(sizes[1] - sizes[0] <= (size_t)(262144 - 16384) * 4);
    gdn_context_destroy(&context);
}

static bool takes_all(const gdn_device *device, const gdn_problem *problem, gdn_reason *reason)
{
    (void)device;
    (void)problem;
    (void)reason;
    return true;
}

static gdn_status refuses_to_book(const gdn_device *device, const gdn_problem *problem, size_t cap, gdn_choice *choice)
{
    (void)device;
    (void)cap;
    (void)choice;
    return gdn_fail(problem->head_k_dim == 16 ? GDN_ERROR_OUT_OF_MEMORY : GDN_ERROR_UNSUPPORTED, "book: not today");
}

static gdn_status books_nothing(const gdn_device *device, const gdn_problem *problem, size_t cap, gdn_choice *choice)
{
    (void)device;
    (void)problem;
    (void)cap;
    (void)choice;
    return GDN_OK;
}

/* An implementation that does not take a problem leaves it to the next; one that fails in looking ends the plan. */
static void a_failure_is_no_refusal(void **unused)
{
    (void)unused;
    static const gdn_implementation first = {.name = "first",
                                             .summary = "",
                                             .operation = GDN_OPERATION_PREFILL,
                                             .supports = takes_all,
                                             .book = refuses_to_book};
    static const gdn_implementation second = {.name = "second",
                                              .summary = "",
                                              .operation = GDN_OPERATION_PREFILL,
                                              .supports = takes_all,
                                              .book = books_nothing};
    static const gdn_implementation *const table[] = {&first, &second, NULL};
    static const gdn_backend backend = {.name = "fake", .host_memory = true, .implementations = table};
    static gdn_device device = {.backend = &backend};
    const gdn_context context = {.backend = &backend, .device = &device};
    gdn_plan plan;
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 32, 32));
    p.max_tokens = 1;
    REQUIRE_OK(gdn_plan_build(&plan, &context, &p));
    assert_string_equal(plan.implementation->name, "second");
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 16, 32));
    p.max_tokens = 1;
    assert_int_equal(gdn_plan_build(&plan, &context, &p), GDN_ERROR_OUT_OF_MEMORY);
    assert_string_equal(gdn_last_error(), "book: not today");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_force_and_exclude_by_prefix),
        cmocka_unit_test(the_description_names_the_choice_the_refusals_and_the_scratch),
        cmocka_unit_test(the_callers_problem_may_go),
        cmocka_unit_test(a_failure_is_no_refusal),
        cmocka_unit_test(the_workspace_does_not_grow_without_bound),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
