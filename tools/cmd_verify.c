#include "cli.h"
#include "commands.h"
#include "problem_text.h"
#include "progress.h"
#include "random_problem.h"
#include "verify_problem.h"

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
    bool repro;
    verify_style style;
    gdn_context_options context;
} settings;

typedef struct tally {
    int count[3]; /* by verdict */
} tally;

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
    if (!s->style.quiet) {
        printf("%s\n", canonical);
    }
    const verdict result = verify_problem(context, &text, drawn, &s->style);
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
    const gdn_status status = gdn_context_create(&context, &s->context);
    if (status != GDN_OK) {
        return cli_fail_call("verify", status);
    }
    tally sum = {{0}};
    bool understood = true;
    const int given = cli_operand_count(parser);
    for (int i = 0; understood && i < given; i++) {
        understood = verify_line(s, context, cli_operand(parser, i), false, &sum);
    }
    for (int64_t i = 0; understood && i < s->count; i++) {
        char line[2048];
        if (s->style.quiet) {
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

static bool take_option(const cli_parser *parser, int id, void *user)
{
    settings *const s = user;
    switch (id) {
    case OPTION_COUNT:
        return cli_integer(parser, 1, 1000000, &s->count);
    case OPTION_SEED:
        return cli_integer(parser, 0, INT64_MAX, &s->seed);
    case OPTION_REPRO:
        s->repro = true;
        return true;
    case OPTION_VERBOSE:
        s->style.verbose = true;
        return true;
    case OPTION_QUIET:
        s->style.quiet = true;
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
    if (cli_context_defaults(&s.context) != GDN_OK) {
        return cli_fail("verify", "%s", gdn_last_error());
    }
    cli_parser parser;
    int code = CLI_SUCCESS;
    if (!cli_take_options(&parser, &command, argc, argv, take_option, &s, &code)) {
        return code;
    }
    if (cli_operand_count(&parser) == 0 && s.count == 0) {
        return cli_usage_error(&parser,
                               "no problem given; allowed: one or more 'key=value ...' arguments, or --count N");
    }
    return verify_all(&s, &parser);
}
