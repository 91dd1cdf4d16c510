/* The list of implementations: what it lets pass, and items that name nothing. */
#include "check.h"
#include "implementation_list.h"

#include <stdio.h>
#include <string.h>

static gdn_context *context_with(const char *implementations)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    options.ignore_environment = 1;
    options.implementations = implementations;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    return context;
}

static void an_excluded_prefix_outweighs_an_allowed_one(void **unused)
{
    (void)unused;
    gdn_context *context = context_with("cpu,-cpu.avx,generic");
    assert_true(gdn_implementation_list_allows(context, "cpu.scalar.prefill"));
    assert_true(gdn_implementation_list_allows(context, "generic"));
    assert_false(gdn_implementation_list_allows(context, "cpu.avx2.prefill"));
    assert_false(gdn_implementation_list_allows(context, "cuda.decode"));
    gdn_context_destroy(&context);

    context = context_with("-cpu.avx");
    assert_true(gdn_implementation_list_allows(context, "generic"));
    assert_true(gdn_implementation_list_allows(context, "cp"));
    assert_false(gdn_implementation_list_allows(context, "cpu.avx2.prefill"));
    gdn_context_destroy(&context);
}

static void mistyped_items_are_named(void **unused)
{
    (void)unused;
    static const char *const lists[][2] = {
        {NULL, ""},
        {"", ""},
        {"generic", ""},
        {"-cpu.scalar,generic", ""},
        {"gen", ""},
        {"-cuda.sm90,cuda,cpu", ""}, /* another backend's: a list may serve several */
        {"-cpu.scaler", "-cpu.scaler"},
        {"generic,cpu.scalar.prefil1,-general,cpu", "cpu.scalar.prefil1,-general"},
        {"cudax", "cudax"},
        {"generic2", "generic2"},
    };
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        gdn_context *context = context_with(lists[i][0]);
        char strays[GDN_MAX_IMPLEMENTATION_LIST];
        assert_int_equal(gdn_implementation_list_strays(context, strays), lists[i][1][0] != '\0');
        assert_string_equal(strays, lists[i][1]);

        /* A plan's description says so, too. */
        gdn_problem p;
        REQUIRE_OK(gdn_problem_init(&p, 1, 1, 100, 100));
        p.max_tokens = 10;
        gdn_plan *plan = NULL;
        if (gdn_plan_create(&plan, context, &p) == GDN_OK) {
            char text[4096], expected[320];
            REQUIRE_OK(gdn_plan_describe(plan, text, sizeof(text), NULL));
            snprintf(expected, sizeof(expected), "note: implementations: \"%s\" names nothing", strays);
            assert_int_equal(strstr(text, expected) != NULL, strays[0] != '\0');
            gdn_plan_destroy(&plan);
        }
        gdn_context_destroy(&context);
    }
}

static void the_longest_list_fits(void **unused)
{
    (void)unused;
    char list[GDN_MAX_IMPLEMENTATION_LIST], strays[GDN_MAX_IMPLEMENTATION_LIST];
    memset(list, 'x', sizeof(list) - 1);
    list[sizeof(list) - 1] = '\0';
    list[0] = '-';
    gdn_context *context = context_with(list);
    assert_true(gdn_implementation_list_strays(context, strays));
    assert_string_equal(strays, list);
    gdn_context_destroy(&context);
}

static void malformed_lists_are_refused(void **unused)
{
    (void)unused;
    char long_list[400];
    memset(long_list, 'x', sizeof(long_list) - 1);
    long_list[sizeof(long_list) - 1] = '\0';
    const char *const lists[] = {",", "generic,", "-", "cpu,,generic", "-,cpu", long_list};
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        gdn_context_options options;
        REQUIRE_OK(gdn_context_options_init(&options));
        options.backend = "cpu";
        options.ignore_environment = 1;
        options.implementations = lists[i];
        gdn_context *context = NULL;
        assert_int_equal(gdn_context_create(&context, &options), GDN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(gdn_last_error(), "implementations"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_excluded_prefix_outweighs_an_allowed_one),
        cmocka_unit_test(mistyped_items_are_named),
        cmocka_unit_test(the_longest_list_fits),
        cmocka_unit_test(malformed_lists_are_refused),
    };
    return cmocka_run_group_tests_name("implementation_list", tests, NULL, NULL);
}
