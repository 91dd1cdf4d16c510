#include "cli.h"
#include "commands.h"
#include "layer_run.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_OUTPUT = 1, OPTION_DTYPE, OPTION_TOKENS, OPTION_MAX_ERROR, OPTION_NO_FLOAT64 };

static const cli_option options[] = {
    {OPTION_OUTPUT, 'o', "output", "OUT", "write o and final_state to this safetensors file"},
    {OPTION_DTYPE, 0, "dtype", "TYPE", "round q, k, v to f32, bf16 or f16, and write o in it; default: as in the file"},
    {OPTION_TOKENS, 'n', "tokens-per-row", "N", "tokens of a sequence in one call, 1..16; default 1"},
    {OPTION_MAX_ERROR, 0, "max-error", "X", "fail (exit 1) where a relative Frobenius error is above X"},
    {OPTION_NO_FLOAT64, 0, "no-float64", NULL, "leave out the comparison with the float64 recurrence"},
    CLI_CONTEXT_OPTIONS,
    {0, 0, NULL, NULL, NULL},
};

static const cli_command command = {"decode", "gdn decode IN [-o OUT] [options]",
                                    "Reads the same files as `gdn prefill` and feeds each sequence token by token (or "
                                    "N at a time) through decode calls\n"
                                    "on a state pool, all sequences as rows of one call. Prints what ran and why, "
                                    "tokens/s of the calls alone, and the\n"
                                    "same errors.",
                                    options};

typedef struct settings {
    layer_report_options report;
    gdn_dtype dtype;
    int32_t tokens_per_row;
    gdn_context_options context;
} settings;

static bool take_option(const cli_parser *parser, int id, void *user)
{
    settings *const s = user;
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
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
    case OPTION_TOKENS:
        if (!cli_integer(parser, 1, GDN_MAX_DECODE_TOKENS, &number)) {
            return false;
        }
        s->tokens_per_row = (int32_t)number;
        return true;
    case OPTION_MAX_ERROR:
        return cli_number(parser, 0, 1e30, &s->report.max_error);
    case OPTION_NO_FLOAT64:
        s->report.float64 = false;
        return true;
    default:
        return cli_context_option(parser, id, &s->context) > 0;
    }
}

/* The decode problem of a layer: a row for each sequence, its state in the pool slot of its number. */
static bool make_steps(const workload *layer, int32_t tokens_per_row, workload *steps)
{
    gdn_problem problem = layer->problem;
    const int64_t rows = layer->num_seqs;
    problem.operation = GDN_OPERATION_DECODE;
    problem.tokens_per_row = tokens_per_row;
    problem.state_form = GDN_STATE_POOL;
    problem.max_tokens = problem.max_seqlen = 0;
    problem.max_seqs = rows > 0 ? rows : 1;
    if (!workload_alloc(steps, &problem, rows, rows * tokens_per_row)) {
        return false;
    }
    const size_t states = (size_t)(rows * workload_state_size(layer));
    steps->num_slots = rows;
    steps->read_slots = calloc((size_t)rows + 1, sizeof(int64_t));
    steps->write_slots = calloc((size_t)rows + 1, sizeof(int64_t));
    steps->num_tokens = calloc((size_t)rows + 1, sizeof(int32_t));
    steps->initial = calloc(states + 1, sizeof(float));
    if (steps->read_slots == NULL || steps->write_slots == NULL || steps->num_tokens == NULL ||
        steps->initial == NULL) {
        workload_free(steps);
        return false;
    }
    for (int64_t n = 0; n < rows; n++) {
        steps->cu[n + 1] = (n + 1) * tokens_per_row;
        steps->read_slots[n] = steps->write_slots[n] = n;
    }
    if (layer->initial != NULL) {
        memcpy(steps->initial, layer->initial, states * sizeof(float));
    }
    if (layer->A_log != NULL) {
        memcpy(steps->A_log, layer->A_log, (size_t)problem.num_v_heads * sizeof(float));
    }
    if (layer->dt_bias != NULL) {
        memcpy(steps->dt_bias, layer->dt_bias, (size_t)problem.num_v_heads * sizeof(float));
    }
    return true;
}

/* Moves the step's tokens between the layer and the rows of the call: inputs in (o NULL), or o back. */
static void copy_rows(float *to, const float *from, int64_t to_token, int64_t from_token, int64_t count, int64_t width)
{
    memcpy(to + to_token * width, from + from_token * width, (size_t)(count * width) * sizeof(float));
}

static void load_step(const workload *layer, workload *steps, int64_t done)
{
    const gdn_problem *const p = &steps->problem;
    const int64_t qk = (int64_t)p->num_k_heads * p->head_k_dim, v = (int64_t)p->num_v_heads * p->head_v_dim;
    for (int64_t n = 0; n < steps->num_seqs; n++) {
        const int64_t left = layer->cu[n + 1] - layer->cu[n] - done;
        const int64_t count = left < 0 ? 0 : left < p->tokens_per_row ? left : p->tokens_per_row;
        const int64_t from = layer->cu[n] + done, to = steps->cu[n];
        steps->num_tokens[n] = (int32_t)count;
        if (count > 0) {
            copy_rows(steps->q, layer->q, to, from, count, qk);
            copy_rows(steps->k, layer->k, to, from, count, qk);
            copy_rows(steps->v, layer->v, to, from, count, v);
            copy_rows(steps->gate, layer->gate, to, from, count, p->num_v_heads);
            copy_rows(steps->beta, layer->beta, to, from, count, p->num_v_heads);
        }
    }
}

static void store_step(const workload *layer, const workload *steps, int64_t done, const float *o, float *all)
{
    const int64_t width = (int64_t)steps->problem.num_v_heads * steps->problem.head_v_dim;
    for (int64_t n = 0; n < steps->num_seqs; n++) {
        copy_rows(all, o, layer->cu[n] + done, steps->cu[n], steps->num_tokens[n], width);
    }
}

/* Runs every step; o collects the outputs, the last step's outputs hold the final states. */
static gdn_status run_steps(const workload *layer, workload *steps, workload_run *run, run_outputs *outputs)
{
    int64_t longest = 0;
    for (int64_t n = 0; n < layer->num_seqs; n++) {
        const int64_t length = layer->cu[n + 1] - layer->cu[n];
        longest = length > longest ? length : longest;
    }
    float *const o = calloc((size_t)(layer->total_tokens * layer->problem.num_v_heads * layer->problem.head_v_dim) + 1,
                            sizeof(float));
    gdn_status status = o != NULL ? GDN_OK : GDN_ERROR_OUT_OF_MEMORY;
    double seconds = 0;
    int64_t calls = 0;
    const char *stray = NULL;
    for (int64_t done = 0; status == GDN_OK && (done < longest || done == 0); done += steps->problem.tokens_per_row) {
        load_step(layer, steps, done);
        status = workload_run_fill_tokens(run, 0);
        const double before = timing_now();
        if (status == GDN_OK) {
            status = workload_run_call(run, 0, NULL);
        }
        if (status == GDN_OK) {
            status = gdn_plan_check(run->plan, run->buffers[RUN_WORKSPACE].data, NULL);
        }
        seconds += timing_now() - before;
        calls++;
        run_outputs_free(outputs);
        if (status == GDN_OK) {
            status = workload_run_outputs(run, 0, outputs);
        }
        if (status == GDN_OK) {
            /* The pool moves on from step to step: only o is compared with what the call was given. */
            stray = outputs->stray != NULL && strcmp(outputs->stray, "o") == 0 ? outputs->stray : stray;
            store_step(layer, steps, done, outputs->o, o);
        }
    }
    if (status != GDN_OK) {
        free(o);
        return status;
    }
    free(outputs->o);
    outputs->o = o;
    outputs->stray = stray;
    printf("time: %lld calls, %.3f ms a call, %.0f tokens/s\n", (long long)calls, 1e3 * seconds / (double)calls,
           (double)layer->total_tokens / seconds);
    return GDN_OK;
}

static int decode_layer(const settings *s, const layer_file *layer, workload *steps)
{
    gdn_context *context = NULL;
    workload_run run = {0};
    run_outputs outputs = {0};
    int code = CLI_SUCCESS;
    gdn_status status = gdn_context_create(&context, &s->context);
    if (status == GDN_OK) {
        status = workload_run_create(&run, context, steps, 1);
    }
    if (status == GDN_OK) {
        layer_print_plan(run.plan);
        status = run_steps(&layer->load, steps, &run, &outputs);
    }
    if (status != GDN_OK) {
        code = cli_fail_call("decode", status);
    } else {
        code = layer_report("decode", layer, &outputs, &s->report);
    }
    run_outputs_free(&outputs);
    if (context != NULL) {
        workload_run_destroy(&run);
    }
    gdn_context_destroy(&context);
    return code;
}

int command_decode(int argc, char **argv)
{
    settings s = {.tokens_per_row = 1, .report = {.max_error = -1, .float64 = true}};
    if (cli_context_defaults(&s.context) != GDN_OK) {
        return cli_fail("decode", "%s", gdn_last_error());
    }
    cli_parser parser;
    int code = CLI_SUCCESS;
    if (!cli_take_options(&parser, &command, argc, argv, take_option, &s, &code)) {
        return code;
    }
    if (cli_operand_count(&parser) != 1) {
        return cli_usage_error(&parser, "%d input files given; allowed: exactly one", cli_operand_count(&parser));
    }
    const char *const input = cli_operand(&parser, 0);
    char error[1024];
    layer_file layer;
    workload steps;
    if (!layer_open(&layer, input, s.dtype, error, sizeof(error))) {
        cli_fail("decode", "%s", error);
        return CLI_USAGE;
    }
    layer_print(&layer, input);
    code = CLI_FAILURE;
    if (make_steps(&layer.load, s.tokens_per_row, &steps)) {
        code = decode_layer(&s, &layer, &steps);
        workload_free(&steps);
    } else {
        cli_fail("decode", "out of memory");
    }
    layer_close(&layer);
    return code;
}
