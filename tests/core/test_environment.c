/* GDN_* variables: read when a context is created, beaten by what a program sets, ignored where asked. */
#include "check.h"
#include "context.h"
#include "environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clear(void)
{
    static const char *const names[] = {"GDN_BACKEND",      "GDN_IMPL",        "GDN_CPU_ISA",
                                        "GDN_BACKEND_PATH", "GDN_NUM_THREADS", "GDN_VERBOSE"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        unsetenv(names[i]);
    }
}

static void unset_and_empty_variables_say_nothing(void **unused)
{
    (void)unused;
    gdn_environment environment;
    clear();
    for (int empty = 0; empty < 2; empty++) {
        REQUIRE_OK(gdn_environment_read(&environment));
        assert_null(environment.backend);
        assert_null(environment.implementations);
        assert_null(environment.cpu_isa);
        assert_null(environment.backend_path);
        assert_int_equal(environment.num_threads, 0);
        assert_false(environment.verbose);
        setenv("GDN_BACKEND", "", 1);
        setenv("GDN_IMPL", "", 1);
        setenv("GDN_CPU_ISA", "", 1);
        setenv("GDN_BACKEND_PATH", "", 1);
        setenv("GDN_NUM_THREADS", "", 1);
        setenv("GDN_VERBOSE", "", 1);
    }
    clear();
}

static void bad_thread_counts_are_refused(void **unused)
{
    (void)unused;
    static const char *const bad[] = {"0", "-1", "1025", "two", "3x", "99999999999999999999", " "};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        gdn_environment environment;
        setenv("GDN_NUM_THREADS", bad[i], 1);
        assert_int_equal(gdn_environment_read(&environment), GDN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(gdn_last_error(), "GDN_NUM_THREADS"));
        assert_non_null(strstr(gdn_last_error(), bad[i]));
        gdn_context *context = NULL;
        assert_int_equal(gdn_context_create(&context, NULL), GDN_ERROR_INVALID_ARGUMENT);
        assert_null(context);
    }
    clear();
}

static gdn_status create(gdn_context **context, const char *implementations, int32_t ignore)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.implementations = implementations;
    options.ignore_environment = ignore;
    return gdn_context_create(context, &options);
}

static void variables_fill_what_the_program_left(void **unused)
{
    (void)unused;
    gdn_context *context = NULL;
    setenv("GDN_BACKEND", "cpu", 1);
    setenv("GDN_IMPL", "generic", 1);
    setenv("GDN_NUM_THREADS", "3", 1);
    REQUIRE_OK(create(&context, NULL, 0));
    assert_string_equal(gdn_context_backend(context), "cpu");
    assert_string_equal(context->implementations, "generic");
    /* Without OpenMP there is one thread, whatever is asked for. */
    const char *const threads = strstr(gdn_features(), "openmp") != NULL ? "3 threads" : "1 thread";
    assert_non_null(strstr(context->device->description, threads));
    gdn_context_destroy(&context);

    REQUIRE_OK(create(&context, "cpu", 0));
    assert_string_equal(context->implementations, "cpu");
    gdn_context_destroy(&context);

    REQUIRE_OK(create(&context, NULL, 1));
    assert_string_equal(context->implementations, "");
    gdn_context_destroy(&context);

    clear();
}

/* A message names the variable that a bad value came from, and the option where a program set it. */
static void bad_values_are_reported_where_they_were_set(void **unused)
{
    (void)unused;
    static const struct {
        const char *variable, *option, *value;
    } bad[] = {
        {"GDN_BACKEND", "backend", "abacus"},
        {"GDN_CPU_ISA", "cpu_isa", "vax"},
        {"GDN_IMPL", "implementations", "cpu,,generic"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        gdn_context_options options;
        REQUIRE_OK(gdn_context_options_init(&options));
        char words[64];
        gdn_context *context = NULL;
        setenv(bad[i].variable, bad[i].value, 1);
        assert_int_equal(gdn_context_create(&context, &options), GDN_ERROR_INVALID_ARGUMENT);
        snprintf(words, sizeof(words), "%s: \"%s\", must be ", bad[i].variable, bad[i].value);
        assert_ptr_equal(strstr(gdn_last_error(), words), gdn_last_error());

        const char **const values[] = {&options.backend, &options.cpu_isa, &options.implementations};
        *values[i] = bad[i].value;
        assert_int_equal(gdn_context_create(&context, &options), GDN_ERROR_INVALID_ARGUMENT);
        snprintf(words, sizeof(words), "%s: \"%s\", must be ", bad[i].option, bad[i].value);
        assert_ptr_equal(strstr(gdn_last_error(), words), gdn_last_error());
        clear();
    }
}

static void a_context_keeps_no_pointer_into_the_environment(void **unused)
{
    (void)unused;
    gdn_context *context = NULL;
    setenv("GDN_BACKEND", "cpu", 1);
    setenv("GDN_IMPL", "generic", 1);
    REQUIRE_OK(create(&context, NULL, 0));
    setenv("GDN_IMPL", "changed", 1);
    clear();
    assert_string_equal(context->implementations, "generic");
    gdn_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unset_and_empty_variables_say_nothing),
        cmocka_unit_test(bad_thread_counts_are_refused),
        cmocka_unit_test(variables_fill_what_the_program_left),
        cmocka_unit_test(bad_values_are_reported_where_they_were_set),
        cmocka_unit_test(a_context_keeps_no_pointer_into_the_environment),
    };
    return cmocka_run_group_tests_name("environment", tests, NULL, NULL);
}
