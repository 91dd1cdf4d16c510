#include "cli.h"
#include "commands.h"
#include "layer_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_OUTPUT = 1,
    OPTION_DTYPE,
    OPTION_CHUNK,
    OPTION_NUMERICS,
    OPTION_MIN_TIME,
    OPTION_MAX_ERROR,
    OPTION_NO_FLOAT64
};

static const cli_option options[] = {
    {OPTION_OUTPUT, 'o', "output", "OUT", "write o and final_state to this safetensors file"},
    {OPTION_DTYPE, 0, "dtype", "TYPE", "round q, k, v to f32, bf16 or f16, and write o in it; default: as in the file"},
    {OPTION_CHUNK, 0, "chunk", "N", "chunk size hint, in tokens; default 0: the implementation's choice"},
    {OPTION_NUMERICS, 0, "numerics", "MODE", "default, fp32, tf32 or bf16: how products may be rounded"},
    {OPTION_MIN_TIME, 0, "min-time", "SECONDS", "repeat for at least this long; default 0.3"},
    {OPTION_MAX_ERROR, 0, "max-error", "X", "fail (exit 1) where a relative Frobenius error is above X"},
    {OPTION_NO_FLOAT64, 0, "no-float64", NULL, "leave out the comparison with the float64 recurrence"},
    CLI_CONTEXT_OPTIONS,
    {0, 0, NULL, NULL, NULL},
};

static const cli_command command = {
    "prefill", "gdn prefill IN [-o OUT] [options]",
    "Reads one layer's inputs from the safetensors file IN (q, k, v, a, b, A_log, dt_bias, and optionally cu_seqlens,\n"
    "initial_state, ref.o, ref.final_state), runs prefill, and prints what ran and why, tokens/s, and the error "
    "against\n"
    "the outputs stored in the file and against the float64 token recurrence.",
    options};

typedef struct settings {
    layer_report_options report;
    gdn_dtype dtype;
    gdn_numerics numerics;
    int32_t chunk;
    double min_time;
    gdn_context_options context;
} settings;

static bool take_option(const cli_parser *parser, int id, void *user)
{
    settings *const s = user;
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    static const char *const numerics[] = {"default", "fp32", "tf32", "bf16"};
    int word = 0;
    int64_t number = 0;
    switch (id) {
    case OPTION_OUTPUT:
        s->report.output = parser->value;
        return true;
    case OPTION_DTYPE:
        if (!cli_word(parser, dtypes, 3, &word)) {
            return false;
        }
        s->dtype = (gdn_dtype)(GDN_DTYPE_F32 + word);
        return true;
    case OPTION_CHUNK:
        if (!cli_integer(parser, 0, INT32_MAX, &number)) {
            return false;
        }
        s->chunk = (int32_t)number;
        return true;
    case OPTION_NUMERICS:
        if (!cli_word(parser, numerics, 4, &word)) {
            return false;
        }
        s->numerics = (gdn_numerics)word;
        return true;
    case OPTION_MIN_TIME:
        return cli_number(parser, 0, 3600, &s->min_time);
    case OPTION_MAX_ERROR:
        return cli_number(parser, 0, 1e30, &s->report.max_error);
    case OPTION_NO_FLOAT64:
        s->report.float64 = false;
        return true;
    default:
        return cli_context_option(parser, id, &s->context) > 0;
    }
}

static int run(const settings *s, const char *input)
{
    char error[1024];
    layer_file layer;
    if (!layer_open(&layer, input, s->dtype, error, sizeof(error))) {
        cli_fail("prefill", "%s", error);
        return CLI_USAGE;
    }
    layer.load.problem.chunk_size = s->chunk;
    layer.load.problem.numerics = s->numerics;
    layer_print(&layer, input);

    gdn_context *context = NULL;
    workload_run run = {0};
    run_outputs outputs = {0};
    int code = CLI_SUCCESS;
    gdn_status status = gdn_context_create(&context, &s->context);
    if (status == GDN_OK) {
        status = workload_run_create(&run, context, &layer.load, 1);
    }
    if (status == GDN_OK) {
        status = layer_time_prefill(&run, s->min_time);
    }
    if (status == GDN_OK) {
        status = workload_run_outputs(&run, 0, &outputs);
    }
    if (status != GDN_OK) {
        code = cli_fail_call("prefill", status);
    } else {
        code = layer_report("prefill", &layer, &outputs, &s->report);
    }
    run_outputs_free(&outputs);
    if (context != NULL) {
        workload_run_destroy(&run);
    }
    gdn_context_destroy(&context);
    layer_close(&layer);
    return code;
}

int command_prefill(int argc, char **argv)
{
    settings s = {.min_time = 0.3, .report = {.max_error = -1, .float64 = true}};
    if (cli_context_defaults(&s.context) != GDN_OK) {
        return cli_fail("prefill", "%s", gdn_last_error());
    }
    cli_parser parser;
    int code = CLI_SUCCESS;
    if (!cli_take_options(&parser, &command, argc, argv, take_option, &s, &code)) {
        return code;
    }
    if (cli_operand_count(&parser) != 1) {
        return cli_usage_error(&parser, "%d input files given; allowed: exactly one", cli_operand_count(&parser));
    }
    return run(&s, cli_operand(&parser, 0));
}
