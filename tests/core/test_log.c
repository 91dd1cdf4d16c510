/* Log lines: to the callback with its user pointer, once a plan for each choice and refusal; otherwise silence. */
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct log_record {
    int warnings, info, choices;
    char text[4096];
} log_record;

static void record(void *user, gdn_log_level level, const char *line)
{
    log_record *const log = user;
    log->warnings += level == GDN_LOG_WARNING;
    log->info += level == GDN_LOG_INFO;
    log->choices += level == GDN_LOG_CHOICE;
    assert_null(strchr(line, '\n'));
    const size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof(log->text) - used, "%s\n", line);
}

static void make_a_plan_of(const char *implementations, gdn_log_fn log, void *user)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cpu";
    options.cpu_isa = "scalar";
    options.implementations = implementations;
    options.log = log;
    options.log_user = user;
    gdn_context *context = NULL;
    REQUIRE_OK(gdn_context_create(&context, &options));
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 100, 100));
    p.max_tokens = 10;
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &p));
    gdn_plan_destroy(&plan);
    gdn_context_destroy(&context);
}

static void make_a_plan(gdn_log_fn log, void *user)
{
    make_a_plan_of(NULL, log, user);
}

static void choices_and_refusals_reach_the_callback(void **unused)
{
    (void)unused;
    log_record log = {0};
    make_a_plan(record, &log);
    assert_true(log.info >= 1);
    assert_true(log.choices >= 2);
    assert_int_equal(log.warnings, 0);
    assert_non_null(strstr(log.text, "backend cpu"));
    assert_non_null(strstr(log.text, "not cpu.scalar.prefill: head_k_dim 100"));
    assert_non_null(strstr(log.text, "generic"));
}

/* An exclusion that excludes nothing is most likely a typing error: its author hears of it. */
static void a_prefix_that_names_nothing_is_warned_of(void **unused)
{
    (void)unused;
    log_record log = {0};
    make_a_plan_of("-cpu.scaler,-cpu.plain,-cuda", record, &log);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, "implementations: \"-cpu.scaler\" names nothing that backend cpu has"));
    assert_null(strstr(log.text, "not cpu.scalar.prefill: excluded"));

    setenv("GDN_IMPL", "-cpu.scaler", 1);
    log = (log_record){0};
    make_a_plan_of(NULL, record, &log);
    unsetenv("GDN_IMPL");
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, "GDN_IMPL: \"-cpu.scaler\" names nothing"));
}

/* What the body writes to stderr. */
static void capture_stderr(void (*body)(void), char *text, size_t size)
{
    FILE *const file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    body();
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    assert_false(ferror(file));
    fclose(file);
}

static void without_callback(void)
{
    make_a_plan(NULL, NULL);
}

static void with_callback(void)
{
    log_record log = {0};
    make_a_plan(record, &log);
}

static void stderr_is_used_only_where_asked(void **unused)
{
    (void)unused;
    char text[4096];
    unsetenv("GDN_VERBOSE");
    capture_stderr(without_callback, text, sizeof(text));
    assert_string_equal(text, "");
    setenv("GDN_VERBOSE", "0", 1);
    capture_stderr(without_callback, text, sizeof(text));
    assert_string_equal(text, "");
    setenv("GDN_VERBOSE", "1", 1);
    capture_stderr(without_callback, text, sizeof(text));
    assert_non_null(strstr(text, "gdn: prefill: generic"));
    capture_stderr(with_callback, text, sizeof(text));
    assert_string_equal(text, "");
    unsetenv("GDN_VERBOSE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_and_refusals_reach_the_callback),
        cmocka_unit_test(a_prefix_that_names_nothing_is_warned_of),
        cmocka_unit_test(stderr_is_used_only_where_asked),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
