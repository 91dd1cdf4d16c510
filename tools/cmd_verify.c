#include "cli.h"
#include "commands.h"
#include "judge.h"
#include "plan_text.h"
#include "problem_text.h"
#include "progress.h"
#include "random_inputs.h"
#include "random_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_COUNT = 1, OPTION_SEED, OPTION_REPRO, OPTION_VERBOSE, OPTION_QUIET };

static const cli_option options[] = {
    {OPTION_COUNT, 'n', "count", "N", "check N random problems drawn from --seed, after those given"},
    {OPTION_SEED, 0, "seed", "N", "seed of the random problems; default 1"},
    {OPTION_REPRO, 0, "repro", NULL, "print the line that repeats a problem for each one, not only for failures"},
    {OPTION_VERBOSE, 'v', "verbose", NULL, "print each plan"},
    {OPTION_QUIET, 'q', "quiet", NULL, "print failures and the summary only"},
    CLI_CONTEXT_OPTIONS,
    {0, 0, NULL, NULL, NULL},
};

static const char help[] =
    "Fills each problem with seeded random inputs (outputs with NaN), runs it, and compares every output with a "
    "float64\n"
    "token recurrence: relative Frobenius error, worst row, for 16-bit outputs the worst element beyond half an ulp, "
    "and\n"
    "that nothing else was written. Prints PASS or FAIL and the bounds; exits with 1 where anything failed.\n\n"
    "A problem is one argument of key=value pairs:\n";

typedef struct settings {
    int64_t count, seed;
    bool repro, verbose, quiet;
    gdn_context_options context;
} settings;

typedef enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_SKIP } verdict;

typedef struct tally {
    int count[3]; /* by verdict */
} tally;

/* One output's line; true where it is within its bounds. */
static bool report_output(const settings *s, const char *name, const error_stats *stats, const error_bounds *bounds)
{
    if (stats->rows == 0 && stats->non_finite == 0) {
        return true;
    }
    const bool good = error_within(stats, bounds);
    if (good && s->quiet) {
        return true;
    }
    printf("  %s %-12s frobenius %.2e (<= %.1e)  row %.2e (<= %.1e)", good ? "PASS" : "FAIL", name,
           error_frobenius(stats), bounds->frobenius, stats->worst_row, bounds->row);
    if (bounds->excess > 0) {
        printf("  past half an ulp %.1e (<= %.1e)", stats->worst_excess, bounds->excess);
    }
    if (!good) {
        printf("  worst at %s %lld, head %lld", strcmp(name, "o") == 0 ? "token" : "sequence",
               (long long)stats->worst_at, (long long)stats->worst_head);
    }
    if (stats->non_finite > 0) {
        printf("  %lld elements not finite", (long long)stats->non_finite);
    }
    printf("\n");
    return good;
}

static bool report_outputs(const settings *s, const problem_text *text, const workload *load, const char *backend,
                           const run_outputs *outputs)
{
    judgement result;
    if (!judge(load, outputs, 0, &result)) {
        cli_fail("verify", "out of memory for the reference");
        return false;
    }
    const gdn_problem *const p = &load->problem;
    const bool hard = text->keys == TEXT_KEYS_REPEATED;
    const gdn_dtype final_dtype = p->state_form == GDN_STATE_POOL ? p->state.dtype : p->final_state.dtype;
    const struct {
        const char *name;
        const error_stats *stats;
        gdn_dtype dtype;
    } parts[] = {
        {"o", &result.o, p->o.dtype},
        {"final_state", &result.final, final_dtype},
        {"checkpoints", &result.checkpoints, p->checkpoints.dtype},
        {"token_states", &result.token_states, p->state.dtype},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const error_bounds bounds = judge_bounds(load, backend, parts[i].dtype, i > 0, hard);
        good = report_output(s, parts[i].name, parts[i].stats, &bounds) && good;
    }
    if (outputs->stray != NULL) {
        printf("  FAIL %s was written outside what the call describes\n", outputs->stray);
    }
    return good && outputs->stray == NULL;
}

/* A random problem that nothing on this context takes (--impl excludes it) is skipped; one asked for by name fails. */
static verdict run_problem(const settings *s, gdn_context *context, const problem_text *text, bool drawn)
{
    workload load;
    workload_run run = {0};
    run_outputs outputs = {0};
    if (!random_inputs(&load, text)) {
        cli_fail("verify", "out of memory for the inputs");
        return VERDICT_FAIL;
    }
    gdn_status status = workload_run_create(&run, context, &load, 1);
    if (status == GDN_OK) {
        char *const plan = s->verbose ? plan_text(run.plan) : NULL;
        printf("%s", plan != NULL ? plan : "");
        free(plan);
        status = workload_run_call(&run, 0, NULL);
    }
    if (status == GDN_OK) {
        status = gdn_plan_check(run.plan, run.buffers[RUN_WORKSPACE].data, NULL);
    }
    if (status == GDN_OK) {
        status = workload_run_outputs(&run, 0, &outputs);
    }
    verdict result = VERDICT_FAIL;
    if (status == GDN_ERROR_UNSUPPORTED && drawn) {
        result = VERDICT_SKIP;
        if (!s->quiet) {
            printf("  SKIP %s\n", gdn_last_error());
        }
    } else if (status != GDN_OK) {
        printf("  FAIL %s: %s\n", gdn_status_string(status), gdn_last_error());
    } else if (report_outputs(s, text, &load, gdn_context_backend(context), &outputs)) {
        result = VERDICT_PASS;
    }
    run_outputs_free(&outputs);
    workload_run_destroy(&run);
    workload_free(&load);
    return result;
}

/* False where the line is no problem at all. */
static bool verify_line(const settings *s, gdn_context *context, const char *line, bool drawn, tally *sum)
{
    char error[1024], canonical[8192], context_text[512];
    problem_text text;
    if (!problem_text_parse(&text, line, error, sizeof(error))) {
        fprintf(stderr, "gdn verify: problem: %s\n", error);
        return false;
    }
    if (!problem_text_format(&text, canonical, sizeof(canonical))) {
        snprintf(canonical, sizeof(canonical), "%s", line);
    }
    if (!s->quiet) {
        printf("%s\n", canonical);
    }
    const verdict result = run_problem(s, context, &text, drawn);
    sum->count[result]++;
    if (result == VERDICT_FAIL || s->repro) {
        cli_format_context_options(&s->context, context_text, sizeof(context_text));
        printf("  repro: gdn verify '%s'%s\n", canonical, context_text);
    }
    return true;
}

static int verify_all(const settings *s, const cli_parser *parser)
{
    gdn_context *context = NULL;
    if (gdn_context_create(&context, &s->context) != GDN_OK) {
        return cli_fail("verify", "%s", gdn_last_error());
    }
    tally sum = {{0}};
    bool understood = true;
    const int given = cli_operand_count(parser);
    for (int i = 0; understood && i < given; i++) {
        understood = verify_line(s, context, cli_operand(parser, i), false, &sum);
    }
    for (int64_t i = 0; understood && i < s->count; i++) {
        char line[2048];
        if (s->quiet) {
            progress_show("gdn verify: %lld of %lld problems, %d failed", (long long)i, (long long)s->count,
                          sum.count[VERDICT_FAIL]);
        }
        random_problem((uint64_t)s->seed, (uint64_t)i, line, sizeof(line));
        understood = verify_line(s, context, line, true, &sum);
    }
    progress_clear();
    gdn_context_destroy(&context);
    if (!understood) {
        return CLI_USAGE;
    }
    /* Nothing checked is nothing proved. */
    const bool good = sum.count[VERDICT_FAIL] == 0 && sum.count[VERDICT_PASS] > 0;
    printf("%s: %d passed, %d failed, %d skipped\n", good ? "PASS" : "FAIL", sum.count[VERDICT_PASS],
           sum.count[VERDICT_FAIL], sum.count[VERDICT_SKIP]);
    return good ? CLI_SUCCESS : CLI_FAILURE;
}

static bool take_option(const cli_parser *parser, int id, settings *s)
{
    switch (id) {
    case OPTION_COUNT:
        return cli_integer(parser, 1, 1000000, &s->count);
    case OPTION_SEED:
        return cli_integer(parser, 0, INT64_MAX, &s->seed);
    case OPTION_REPRO:
        s->repro = true;
        return true;
    case OPTION_VERBOSE:
        s->verbose = true;
        return true;
    case OPTION_QUIET:
        s->quiet = true;
        return true;
    default:
        return cli_context_option(parser, id, &s->context) > 0;
    }
}

int command_verify(int argc, char **argv)
{
    static char text[sizeof(help) + 8192];
    snprintf(text, sizeof(text), "%s", help);
    problem_text_keys(text + strlen(text), sizeof(text) - strlen(text));
    const cli_command command = {"verify", "gdn verify 'PROBLEM' ... [--count N] [options]", text, options};
    settings s = {.seed = 1};
    if (gdn_context_options_init(&s.context) != GDN_OK) {
        return cli_fail("verify", "%s", gdn_last_error());
    }
    cli_parser parser;
    int id = 0;
    cli_begin(&parser, &command, argc, argv);
    while ((id = cli_next(&parser)) > 0) {
        if (!take_option(&parser, id, &s)) {
            return CLI_USAGE;
        }
    }
    if (id < 0) {
        return id == CLI_HELP ? CLI_SUCCESS : CLI_USAGE;
    }
    if (cli_operand_count(&parser) == 0 && s.count == 0) {
        return cli_usage_error(&parser,
                               "no problem given; allowed: one or more 'key=value ...' arguments, or --count N");
    }
    return verify_all(&s, &parser);
}
