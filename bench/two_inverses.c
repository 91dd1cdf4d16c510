/* What one inverse a chunk saves: times core's generic prefill path, which shares N^-1 between its two uses, and the same
 * path with W formed through an inverse of its own, call about call in one run.
 *
 *   two_inverses [--threads N] [--repeat N] [--cpu-time] 'PROBLEM' ...
 *
 * The second variant is in no backend's table: this program puts it into a plan by hand, which is why it is built
 * against the internal library. */
#include "cli.h"
#include "context.h"
#include "generic_prefill_internal.h"
#include "judge.h"
#include "plan.h"
#include "problem_text.h"
#include "random_inputs.h"
#include "timing.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_REPEAT = 1, OPTION_CPU_TIME };

static const cli_option options[] = {
    {OPTION_REPEAT, 'r', "repeat", "N", "calls of each variant; default 15"},
    {OPTION_CPU_TIME, 0, "cpu-time", NULL, "count processor time; for one thread on a busy machine"},
    CLI_CONTEXT_OPTIONS,
    {0, 0, NULL, NULL, NULL},
};

static const cli_command command = {"two_inverses", "two_inverses [options] 'PROBLEM' ...",
                                    "Times the generic prefill with one inverse a chunk and with two. Problems are "
                                    "those of `gdn bench`, with a dense state.",
                                    options};

/* Puts the two-inverse variant into a run's plan and gives it the workspace it needs. */
static gdn_status use_two_inverses(workload_run *run)
{
    gdn_plan *const plan = run->plan;
    run_buffer *const workspace = &run->buffers[RUN_WORKSPACE];
    plan->implementation = &gdn_generic_prefill_two_inverses;
    memset(&plan->choice, 0, sizeof(plan->choice));
    gdn_status status =
        plan->implementation->book(plan->context->device, &plan->problem, plan->problem.max_workspace, &plan->choice);
    if (status == GDN_OK) {
        status = gdn_memory_free(run->context, &workspace->data);
    }
    workspace->bytes = plan->choice.ledger.total;
    return status == GDN_OK ? gdn_memory_alloc(run->context, &workspace->data, workspace->bytes) : status;
}

static gdn_status time_call(const workload_run *run, timing *times)
{
    const double before = timing_clock();
    const gdn_status status = workload_run_call(run, 0, NULL);
    (void)timing_add(times, timing_clock() - before);
    return status;
}

static double frobenius(const workload_run *run)
{
    run_outputs outputs = {0};
    judgement result = {0};
    double error = -1;
    if (workload_run_outputs(run, 0, &outputs) == GDN_OK && judge(run->load, &outputs, 5e9, &result)) {
        error = error_frobenius(&result.o);
    }
    run_outputs_free(&outputs);
    return error;
}

static gdn_status compare(gdn_context *context, const char *problem, const workload *load, int64_t repeat)
{
    static timing times[2]; /* too large for a stack */
    workload_run runs[2];
    gdn_status status = workload_run_create(&runs[0], context, load, 1);
    if (status != GDN_OK) {
        return status;
    }
    status = workload_run_create(&runs[1], context, load, 1);
    if (status == GDN_OK) {
        status = use_two_inverses(&runs[1]);
    }
    times[0].count = times[1].count = 0;
    for (int i = 0; status == GDN_OK && i < 2; i++) {
        status = workload_run_call(&runs[i], 0, NULL);
    }
    for (int64_t i = 0; status == GDN_OK && i < 2 * repeat; i++) {
        status = time_call(&runs[i % 2], &times[i % 2]);
    }
    if (status == GDN_OK) {
        const timing_summary one = timing_summarise(&times[0]), two = timing_summarise(&times[1]);
        printf(
            "one %.3f ms (%.1f%%, best %.3f), two %.3f ms (%.1f%%, best %.3f): one inverse saves %.1f%% (best %.1f%%); "
            "o error %.1e and %.1e; %s\n",
            1e3 * one.median, 100 * timing_spread(&one), 1e3 * times[0].seconds[0], 1e3 * two.median,
            100 * timing_spread(&two), 1e3 * times[1].seconds[0], 100 * (1 - one.median / two.median),
            100 * (1 - times[0].seconds[0] / times[1].seconds[0]), frobenius(&runs[0]), frobenius(&runs[1]), problem);
    }
    workload_run_destroy(&runs[1]);
    workload_run_destroy(&runs[0]);
    return status;
}

static int run_problem(const cli_parser *parser, gdn_context *context, const char *line, int64_t repeat)
{
    char error[1024];
    problem_text text;
    workload load;
    if (!problem_text_parse(&text, line, error, sizeof(error))) {
        return cli_usage_error(parser, "problem: %s", error);
    }
    if (text.op != GDN_OPERATION_PREFILL || text.state_form != GDN_STATE_DENSE) {
        return cli_usage_error(parser, "problem: '%s'; allowed: op=prefill with state=dense", line);
    }
    if (!random_inputs(&load, &text)) {
        return cli_fail(command.name, "out of memory");
    }
    const gdn_status status = compare(context, line, &load, repeat);
    workload_free(&load);
    return status == GDN_OK ? CLI_SUCCESS : cli_fail(command.name, "%s: %s", line, gdn_last_error());
}

int main(int argc, char **argv)
{
    gdn_context_options context_options;
    gdn_context *context = NULL;
    cli_parser parser;
    int64_t repeat = 15;
    int id = 0;
    if (gdn_context_options_init(&context_options) != GDN_OK) {
        return cli_fail(command.name, "%s", gdn_last_error());
    }
    context_options.backend = "cpu";
    context_options.implementations = "generic";
    cli_begin(&parser, &command, argc, argv);
    while ((id = cli_next(&parser)) > 0) {
        if (id == OPTION_CPU_TIME) {
            timing_use_processor_time();
        } else if (id == OPTION_REPEAT ? !cli_integer(&parser, 1, TIMING_MAX_RUNS, &repeat)
                                       : cli_context_option(&parser, id, &context_options) <= 0) {
            return CLI_USAGE;
        }
    }
    if (id < 0) {
        return id == CLI_HELP ? CLI_SUCCESS : CLI_USAGE;
    }
    if (gdn_context_create(&context, &context_options) != GDN_OK) {
        return cli_fail(command.name, "%s", gdn_last_error());
    }
    int code = CLI_SUCCESS;
    for (int i = 0; code == CLI_SUCCESS && i < cli_operand_count(&parser); i++) {
        code = run_problem(&parser, context, cli_operand(&parser, i), repeat);
    }
    gdn_context_destroy(&context);
    return code;
}
