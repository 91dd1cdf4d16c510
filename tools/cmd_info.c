#include "cli.h"
#include "commands.h"
#include "cpu_features.h"
#include "verify_problem.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPTION_JSON = 1, OPTION_SELF_TEST };

static const cli_option options[] = {
    {OPTION_JSON, 'j', "json", NULL, "print one JSON object"},
    {OPTION_SELF_TEST, 0, "self-test", NULL, "check each usable backend on built-in problems; exit 1 where one fails"},
    {0, 0, NULL, NULL, NULL},
};

static const cli_command command = {"info", "gdn info [options]",
                                    "Prints the library's version and features, each backend and whether this machine "
                                    "can use it, and what the CPU offers.",
                                    options};

static int print_json(const char *cpu)
{
    cJSON *const root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", gdn_version_string());
    cJSON_AddStringToObject(root, "features", gdn_features());
    cJSON_AddStringToObject(root, "cpu_features", cpu);
    cJSON *const backends = cJSON_AddArrayToObject(root, "backends");
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        if (gdn_backend_info(i, &report) != GDN_OK) {
            cJSON_Delete(root);
            return cli_fail("info", "%s", gdn_last_error());
        }
        cJSON *const item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", report.name);
        cJSON_AddBoolToObject(item, "usable", report.usable);
        cJSON_AddNumberToObject(item, "num_devices", report.num_devices);
        cJSON_AddStringToObject(item, report.usable ? "description" : "reason",
                                report.usable ? report.description : report.reason);
        cJSON_AddItemToArray(backends, item);
    }
    char *const text = cJSON_Print(root);
    cJSON_Delete(root);
    if (text == NULL) {
        return cli_fail("info", "out of memory");
    }
    printf("%s\n", text);
    cJSON_free(text);
    return CLI_SUCCESS;
}

static int print_text(const char *cpu)
{
    printf("libgdn %s\nfeatures: %s\n", gdn_version_string(), gdn_features());
    if (gdn_version() != GDN_VERSION_NUMBER) {
        printf("built for: %d.%d.%d\n", GDN_VERSION_MAJOR, GDN_VERSION_MINOR, GDN_VERSION_PATCH);
    }
    printf("cpu: %s\nbackends, best first:\n", cpu);
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        if (gdn_backend_info(i, &report) != GDN_OK) {
            return cli_fail("info", "%s", gdn_last_error());
        }
        if (report.usable) {
            printf("  %-6s usable, %d device%s: %s\n", report.name, (int)report.num_devices,
                   report.num_devices == 1 ? "" : "s", report.description);
        } else {
            printf("  %-6s not usable: %s\n", report.name, report.reason);
        }
    }
    return CLI_SUCCESS;
}

/* Shapes that the implementations of a machine meet: a tail chunk, two sequences, a state passed on, 16-bit tensors. */
static const char *const self_tests[] = {
    "heads=2/4 dim=128 seqs=70,1 gates=raw beta=logit norm=rsqrt",
    "heads=2/4 dim=128 seqs=70,1 dtype=bf16 gates=raw beta=logit norm=rsqrt state=pool:f32",
    "heads=2/6 dim=100/36 seqs=70 dtype=f16 gates=decay decay=strong",
    "op=decode heads=2/4 dim=128 rows=3 tokens_per_row=2 gates=raw beta=logit norm=rsqrt state=pool:f32",
};

static int self_test_backend(const char *backend)
{
    gdn_context_options context_options;
    gdn_context *context = NULL;
    if (cli_context_defaults(&context_options) != GDN_OK) {
        return cli_fail("info", "%s", gdn_last_error());
    }
    context_options.backend = backend;
    if (gdn_context_create(&context, &context_options) != GDN_OK) {
        printf("self-test of %s: FAIL %s\n", backend, gdn_last_error());
        return CLI_FAILURE;
    }
    int failed = 0;
    for (size_t i = 0; i < sizeof(self_tests) / sizeof(self_tests[0]); i++) {
        char error[512];
        problem_text text;
        const verify_style style = {.verbose = false, .quiet = true};
        if (!problem_text_parse(&text, self_tests[i], error, sizeof(error)) ||
            verify_problem(context, &text, false, &style) != VERDICT_PASS) {
            printf("  in %s\n", self_tests[i]);
            failed++;
        }
    }
    gdn_context_destroy(&context);
    printf("self-test of %s: %s\n", backend, failed == 0 ? "PASS" : "FAIL");
    return failed == 0 ? CLI_SUCCESS : CLI_FAILURE;
}

static int self_test(void)
{
    int code = CLI_SUCCESS;
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        if (gdn_backend_info(i, &report) == GDN_OK && report.usable && self_test_backend(report.name) != CLI_SUCCESS) {
            code = CLI_FAILURE;
        }
    }
    return code;
}

int command_info(int argc, char **argv)
{
    cli_parser parser;
    bool json = false, test = false;
    int id = 0;
    cli_begin(&parser, &command, argc, argv);
    while ((id = cli_next(&parser)) > 0) {
        json = json || id == OPTION_JSON;
        test = test || id == OPTION_SELF_TEST;
    }
    if (id < 0) {
        return id == CLI_HELP ? CLI_SUCCESS : CLI_USAGE;
    }
    if (cli_operand_count(&parser) > 0) {
        return cli_usage_error(&parser, "operand '%s' is not expected; allowed: none", cli_operand(&parser, 0));
    }
    char cpu[256];
    cpu_features(cpu, sizeof(cpu));
    if (json && test) {
        return cli_usage_error(&parser, "--self-test: not with --json; allowed: one of the two");
    }
    const int code = json ? print_json(cpu) : print_text(cpu);
    return code == CLI_SUCCESS && test ? self_test() : code;
}
