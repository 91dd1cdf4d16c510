/* Finding backends: the ones linked in, and modules, good and bad. The build passes GDN_TEST_MODULES, the folder of
 * tests/modules. */
#include "check.h"
#include "module.h"
#include "plan.h"
#include "registry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lines;
static char logged[4096];

static void keep_line(void *user, gdn_log_level level, const char *line)
{
    (void)user;
    (void)level;
    lines++;
    const size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s\n", line);
}

static const char *folder_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", GDN_TEST_MODULES, name);
    return path;
}

static gdn_status create(gdn_context **context, const char *backend, const char *folder)
{
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = backend;
    options.ignore_environment = 1;
    options.backend_path = folder != NULL ? folder_of(folder) : NULL;
    options.log = keep_line;
    lines = 0;
    logged[0] = '\0';
    return gdn_context_create(context, &options);
}

/* Skips where the real module lies beside this program or is linked in: the toys are then never looked at. */
static void skip_if_hidden(void)
{
    char reason[512];
    bool module = false;
    for (int32_t i = 0; gdn_module_names[i] != NULL; i++) {
        module = module || strcmp(gdn_module_names[i], "cuda") == 0;
    }
    for (int32_t i = 0; gdn_static_backends[i] != NULL; i++) {
        module = module && strcmp(gdn_static_backends[i]->name, "cuda") != 0;
    }
    if (!module || gdn_module_load("cuda", NULL, reason, sizeof(reason)) != NULL) {
        printf("skipped: the cuda backend is linked in or beside this program\n");
        skip();
    }
}

static void the_list_names_each_backend_once_and_says_why(void **unused)
{
    (void)unused;
    const int32_t count = gdn_backend_count();
    assert_true(count >= 1);
    int cpus = 0;
    for (int32_t i = 0; i < count; i++) {
        gdn_backend_report report;
        memset(&report, 0xA5, sizeof(report));
        report.struct_size = sizeof(report);
        REQUIRE_OK(gdn_backend_info(i, &report));
        assert_true(report.usable == 0 || report.usable == 1);
        assert_true(report.usable ? report.reason[0] == '\0' && report.num_devices >= 1 : report.reason[0] != '\0');
        assert_null(strchr(report.reason, '\n'));
        cpus += strcmp(report.name, "cpu") == 0;
    }
    assert_int_equal(cpus, 1);
    gdn_backend_report report = {.struct_size = sizeof(report)};
    assert_int_equal(gdn_backend_info(-1, &report), GDN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(gdn_last_error(), "-1"));
    assert_int_equal(gdn_backend_info(count, &report), GDN_ERROR_INVALID_ARGUMENT);
    setenv("GDN_NUM_THREADS", "many", 1); /* no business of a list */
    REQUIRE_OK(gdn_backend_info(0, &report));
    unsetenv("GDN_NUM_THREADS");
    report.struct_size = 8;
    assert_int_equal(gdn_backend_info(0, &report), GDN_ERROR_VERSION_MISMATCH);
}

static void a_module_is_loaded_and_runs(void **unused)
{
    (void)unused;
    skip_if_hidden();
    gdn_context *context = NULL;
    REQUIRE_OK(create(&context, "cuda", "good"));
    assert_string_equal(gdn_context_backend(context), "cuda");
    gdn_problem p;
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 16, 16));
    p.operation = GDN_OPERATION_DECODE;
    gdn_plan *plan = NULL;
    REQUIRE_OK(gdn_plan_create(&plan, context, &p));
    assert_string_equal(plan->implementation->name, "cuda.toy");
    assert_int_equal(gdn_plan_workspace_size(plan), 1024);
    _Alignas(GDN_WORKSPACE_ALIGNMENT) static unsigned char box[1024];
    _Alignas(16) static float q[16];
    _Alignas(16) static float out[16];
    _Alignas(16) static float gates[4];
    gdn_decode_args args;
    REQUIRE_OK(gdn_decode_args_init(&args));
    args.num_rows = 1;
    args.q = args.k = args.v = q;
    args.o = out;
    args.gate = args.beta = gates;
    args.workspace = box;
    args.workspace_size = sizeof(box);
    REQUIRE_OK(gdn_decode(plan, &args));
    assert_true(out[0] == 42.0f);
    gdn_plan_destroy(&plan);
    REQUIRE_OK(gdn_problem_init(&p, 1, 1, 32, 16));
    p.operation = GDN_OPERATION_DECODE;
    assert_int_equal(gdn_plan_create(&plan, context, &p), GDN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(gdn_last_error(), "cuda.toy: head_k_dim 32 is not 16"));
    gdn_context_destroy(&context);
}

static void a_module_speaks_through_cores_message(void **unused)
{
    (void)unused;
    skip_if_hidden();
    gdn_context_options options;
    REQUIRE_OK(gdn_context_options_init(&options));
    options.backend = "cuda";
    options.backend_path = folder_of("good");
    options.ignore_environment = 1;
    options.device = 3;
    gdn_context *context = NULL;
    assert_int_equal(gdn_context_create(&context, &options), GDN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(gdn_last_error(), "device: 3, the toy backend has one");
}

static void bad_modules_are_passed_over_with_one_clear_line(void **unused)
{
    (void)unused;
    skip_if_hidden();
    static const struct {
        const char *folder, *says;
    } table[] = {{"wrong_abi", "9999"},
                 {"wrong_version", "version 1"},
                 {"wrong_name", "abacus"},
                 {"no_symbol", "gdn_backend_entry"},
                 {"empty_file", "libgdn_cuda.so: "},
                 {"text", "libgdn_cuda.so: "},
                 {"folder", "not a file"},
                 {"nowhere", "no such file"}};
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        gdn_context *context = NULL;
        assert_int_equal(create(&context, "cuda", table[i].folder), GDN_ERROR_BACKEND_UNAVAILABLE);
        assert_null(context);
        if (strstr(gdn_last_error(), table[i].says) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", table[i].folder, gdn_last_error(), table[i].says);
        }
        const char *const path = strstr(gdn_last_error(), folder_of(table[i].folder));
        if (path == NULL || strstr(path + 1, folder_of(table[i].folder)) != NULL) {
            fail_msg("%s: \"%s\" does not name the file once", table[i].folder, gdn_last_error());
        }
        /* auto uses the CPU and the log has one line on the module. */
        REQUIRE_OK(create(&context, "auto", table[i].folder));
        assert_string_equal(gdn_context_backend(context), "cpu");
        assert_non_null(strstr(logged, "backend cuda not usable"));
        assert_non_null(strstr(logged, table[i].says));
        gdn_context_destroy(&context);
    }
}

static void the_current_folder_is_not_searched(void **unused)
{
    (void)unused;
    skip_if_hidden();
    char before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder_of("good")), 0);
    gdn_context *context = NULL;
    assert_int_equal(create(&context, "cuda", NULL), GDN_ERROR_BACKEND_UNAVAILABLE);
    assert_int_equal(chdir(before), 0);
}

static void the_best_rank_wins_under_auto(void **unused)
{
    (void)unused;
    skip_if_hidden();
    /* The toy ranks below the CPU. */
    gdn_context *context = NULL;
    REQUIRE_OK(create(&context, "auto", "good"));
    assert_string_equal(gdn_context_backend(context), "cpu");
    gdn_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_names_each_backend_once_and_says_why),
        cmocka_unit_test(bad_modules_are_passed_over_with_one_clear_line),
        cmocka_unit_test(the_current_folder_is_not_searched),
        cmocka_unit_test(a_module_is_loaded_and_runs),
        cmocka_unit_test(a_module_speaks_through_cores_message),
        cmocka_unit_test(the_best_rank_wins_under_auto),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
