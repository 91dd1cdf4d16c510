#include "bench_measure.h"
#include "bench_report.h"
#include "cli.h"
#include "commands.h"
#include "problem_text.h"
#include "progress.h"
#include "random_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_JSON = 1, OPTION_REPEAT, OPTION_MIN_TIME, OPTION_BUDGET, OPTION_NO_CEILINGS, OPTION_CPU_TIME };

static const cli_option options[] = {
    {OPTION_JSON, 'j', "json", NULL, "print one JSON object instead of the table"},
    {OPTION_REPEAT, 'r', "repeat", "N", "runs to time, 1..4096; default: as many as --min-time holds, at least 5"},
    {OPTION_MIN_TIME, 't', "min-time", "SECONDS", "time each problem for at least this long; default 0.5"},
    {OPTION_BUDGET, 0, "judge", "GFLOP", "float64 operations spent on each problem's errors; default 10, 0: none"},
    {OPTION_CPU_TIME, 0, "cpu-time", NULL, "count processor time, which a busy machine disturbs less; one thread, CPU"},
    {OPTION_NO_CEILINGS, 0, "no-ceilings", NULL, "do not measure the machine's limits first"},
    CLI_CONTEXT_OPTIONS,
    {0, 0, NULL, NULL, NULL},
};

static const char help[] =
    "Times each problem with seeded random inputs. Prints the median, the best, the spread (half of p90 - p10), the\n"
    "first call, and tokens/s; the least operations and bytes of the call, a second; the share of the floor that\n"
    "these and the measured ceilings set; the workspace; and the errors of a fresh call against the float64 token\n"
    "recurrence (relative Frobenius and worst row of o and of the final states, over as many heads and tokens as\n"
    "--judge allows). On a GPU calls are timed as a captured graph, and once more queued one after another (eager),\n"
    "as a program without graphs does. Decode, and everything on a GPU, steps through copies of its data that\n"
    "together exceed the last cache.\n"
    "\nA problem is one argument of key=value pairs:\n";

typedef struct settings {
    bool json, ceilings, cpu_time;
    bench_settings bench;
    gdn_context_options context;
} settings;

/* The thread count a CPU context settled on, from its description ("..., 2 threads, ..."); 1 if it says none. */
static int described_threads(const char *description)
{
    const char *const word = strstr(description, " thread");
    const char *digit = word;
    while (digit != NULL && digit > description && digit[-1] >= '0' && digit[-1] <= '9') {
        digit--;
    }
    return digit != NULL && digit < word ? atoi(digit) : 1;
}

static ceilings measure_ceilings(const settings *s, const char *description)
{
    ceilings limits = {0};
    if (!s->ceilings) {
        return limits;
    }
    progress_show("gdn bench: measuring the machine's limits");
    if (s->bench.driver == NULL) {
        return ceilings_cpu(described_threads(description));
    }
    limits.flops = cuda_bf16_rate(s->bench.driver);
    limits.flops_source = "bfloat16 product of 8192^3 by cuBLAS";
    limits.bytes = cuda_copy_rate(s->bench.driver);
    limits.bytes_source = "device-to-device copy of 1 GiB";
    return limits;
}

typedef struct output {
    bool begun;
    ceilings limits;
    cJSON *root, *rows;
} output;

/* The machine's lines come with the first result, which knows the backend's description. */
static void print_result(const settings *s, output *out, const char *problem, const bench_result *result)
{
    if (!out->begun) {
        out->begun = true;
        out->limits = measure_ceilings(s, result->backend);
        progress_clear();
        const int threads = s->bench.driver == NULL ? described_threads(result->backend) : 0;
        if (s->json) {
            out->root = bench_machine_json(result->backend, threads, &out->limits);
            out->rows = cJSON_AddArrayToObject(out->root, "results");
        } else {
            bench_print_machine(result->backend, threads, &out->limits);
            bench_print_header(s->bench.driver != NULL);
        }
    }
    if (s->json) {
        cJSON_AddItemToArray(out->rows, bench_row_json(problem, result, &out->limits));
    } else {
        bench_print_row(problem, result, &out->limits);
    }
}

static int bench_problem(const settings *s, gdn_context *context, const problem_text *text, output *out)
{
    char problem[8192], error[512];
    workload load;
    bench_result result;
    if (!problem_text_format(text, problem, sizeof(problem))) {
        return cli_fail("bench", "a problem's canonical text is too long");
    }
    progress_show("gdn bench: drawing the inputs of %s", problem);
    if (!random_inputs(&load, text)) {
        return cli_fail("bench", "%s: out of memory for the inputs", problem);
    }
    const gdn_status status = bench_measure(context, &load, &s->bench, &result, error, sizeof(error));
    workload_free(&load);
    progress_clear();
    if (status != GDN_OK) {
        return cli_fail("bench", "%s: %s", problem, error[0] != 0 ? error : gdn_last_error());
    }
    print_result(s, out, problem, &result);
    if (result.stray != NULL) {
        return cli_fail("bench", "%s: %s was written outside what the call describes", problem, result.stray);
    }
    return CLI_SUCCESS;
}

static int bench_all(settings *s, const problem_text *texts, int count)
{
    gdn_context *context = NULL;
    char error[512];
    const gdn_status status = gdn_context_create(&context, &s->context);
    if (status != GDN_OK) {
        return cli_fail_call("bench", status);
    }
    int code = CLI_SUCCESS;
    output out = {0};
    if (strcmp(gdn_context_backend(context), "cuda") == 0 &&
        !cuda_driver_open(&s->bench.driver, s->context.device, error, sizeof(error))) {
        code = cli_fail("bench", "%s", error);
    }
    for (int i = 0; code == CLI_SUCCESS && i < count; i++) {
        code = bench_problem(s, context, &texts[i], &out);
    }
    if (out.root != NULL) {
        char *const text = cJSON_Print(out.root);
        if (text == NULL) {
            code = cli_fail("bench", "out of memory");
        } else {
            printf("%s\n", text);
        }
        cJSON_free(text);
        cJSON_Delete(out.root);
    }
    cuda_driver_close(&s->bench.driver);
    gdn_context_destroy(&context);
    return code;
}

static bool take_option(const cli_parser *parser, int id, void *user)
{
    settings *const s = user;
    switch (id) {
    case OPTION_JSON:
        s->json = true;
        return true;
    case OPTION_REPEAT:
        return cli_integer(parser, 1, TIMING_MAX_RUNS, &s->bench.repeat);
    case OPTION_MIN_TIME:
        return cli_number(parser, 0, 3600, &s->bench.min_time);
    case OPTION_BUDGET:
        if (!cli_number(parser, 0, 1e6, &s->bench.budget)) {
            return false;
        }
        s->bench.budget *= 1e9;
        return true;
    case OPTION_CPU_TIME:
        s->cpu_time = true;
        return true;
    case OPTION_NO_CEILINGS:
        s->ceilings = false;
        return true;
    default:
        return cli_context_option(parser, id, &s->context) > 0;
    }
}

int command_bench(int argc, char **argv)
{
    static char text[sizeof(help) + 8192];
    snprintf(text, sizeof(text), "%s", help);
    problem_text_keys(text + strlen(text), sizeof(text) - strlen(text));
    const cli_command command = {"bench", "gdn bench 'PROBLEM' ... [options]", text, options};
    settings s = {.ceilings = true, .bench = {.min_time = 0.5, .budget = 1e10}};
    if (cli_context_defaults(&s.context) != GDN_OK) {
        return cli_fail("bench", "%s", gdn_last_error());
    }
    cli_parser parser;
    int code = CLI_SUCCESS;
    if (!cli_take_options(&parser, &command, argc, argv, take_option, &s, &code)) {
        return code;
    }
    if (s.cpu_time && (s.context.num_threads != 1 || strcmp(s.context.backend, "cpu") != 0)) {
        return cli_usage_error(&parser,
                               "--cpu-time: allowed with --backend cpu --threads 1, where it is the time of the work");
    }
    if (s.cpu_time) {
        timing_use_processor_time();
    }
    const int count = cli_operand_count(&parser);
    if (count == 0) {
        return cli_usage_error(&parser, "no problem given; allowed: one or more 'key=value ...' arguments");
    }
    problem_text *const texts = calloc((size_t)count, sizeof(*texts));
    if (texts == NULL) {
        return cli_fail("bench", "out of memory");
    }
    char error[1024];
    code = CLI_SUCCESS;
    for (int i = 0; code == CLI_SUCCESS && i < count; i++) {
        if (!problem_text_parse(&texts[i], cli_operand(&parser, i), error, sizeof(error))) {
            code = cli_usage_error(&parser, "problem %d: %s", i + 1, error);
        }
    }
    if (code == CLI_SUCCESS) {
        code = bench_all(&s, texts, count);
    }
    free(texts);
    return code;
}
