#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 32

void cli_begin(cli_parser *parser, const cli_command *command, int argc, char **argv)
{
    *parser = (cli_parser){.command = command, .argc = argc, .argv = argv, .next_positional = argc};
    optind = 1;
    opterr = 0;
}

static void print_help(const cli_command *command)
{
    printf("usage: %s\n\n%s\n\noptions:\n", command->usage, command->help);
    for (const cli_option *option = command->options; option->id != 0; option++) {
        char label[64];
        const char *const argument = option->argument != NULL ? option->argument : "";
        const char *const space = option->argument != NULL ? " " : "";
        if (option->short_name != 0) {
            snprintf(label, sizeof(label), "-%c, --%s%s%s", option->short_name, option->name, space, argument);
        } else {
            snprintf(label, sizeof(label), "    --%s%s%s", option->name, space, argument);
        }
        printf("  %-26s %s\n", label, option->help);
    }
    printf("  %-26s %s\n", "-h, --help", "print this text");
}

/* The line that says what was not understood lists what would have been. */
static void report_unknown(const cli_command *command, const char *given)
{
    fprintf(stderr, "gdn %s: unknown or ambiguous option '%s'; allowed:", command->name, given);
    for (const cli_option *option = command->options; option->id != 0; option++) {
        if (option->short_name != 0) {
            fprintf(stderr, " -%c", option->short_name);
        }
        fprintf(stderr, " --%s", option->name);
    }
    fprintf(stderr, " --help\n");
}

int cli_next(cli_parser *parser)
{
    struct option long_options[MAX_OPTIONS + 2] = {{0}};
    char short_options[2 * MAX_OPTIONS + 4] = ":h";
    size_t num_long = 0, num_short = strlen(short_options);
    const cli_option *const options = parser->command->options;
    for (const cli_option *option = options; option->id != 0 && num_long < MAX_OPTIONS; option++) {
        const int has_argument = option->argument != NULL ? required_argument : no_argument;
        long_options[num_long++] = (struct option){option->name, has_argument, NULL, option->id};
        if (option->short_name != 0) {
            short_options[num_short++] = option->short_name;
            if (has_argument == required_argument) {
                short_options[num_short++] = ':';
            }
        }
    }
    long_options[num_long] = (struct option){"help", no_argument, NULL, 'h'};

    const int before = optind;
    const int found = getopt_long(parser->argc, parser->argv, short_options, long_options, NULL);
    if (found == -1) {
        parser->next_positional = optind;
        return CLI_END;
    }
    if (found == 'h') {
        print_help(parser->command);
        return CLI_HELP;
    }
    if (found == '?') {
        char letter[3] = {'-', (char)optopt, 0};
        const char *const word = parser->argv[optind > before ? optind - 1 : optind];
        report_unknown(parser->command, optopt > 0 && optopt < 256 ? letter : word);
        return CLI_ERROR;
    }
    for (const cli_option *option = options; option->id != 0; option++) {
        const int wanted = found == ':' ? optopt : found;
        if (wanted == option->id || wanted == option->short_name) {
            if (found == ':') {
                fprintf(stderr, "gdn %s: option --%s lacks its value %s: %s\n", parser->command->name, option->name,
                        option->argument, option->help);
                return CLI_ERROR;
            }
            parser->name = option->name;
            parser->value = optarg;
            return option->id;
        }
    }
    report_unknown(parser->command, "?");
    return CLI_ERROR;
}

bool cli_take_options(cli_parser *parser, const cli_command *command, int argc, char **argv, cli_take_fn take,
                      void *settings, int *code)
{
    int id = 0;
    cli_begin(parser, command, argc, argv);
    while ((id = cli_next(parser)) > 0) {
        if (!take(parser, id, settings)) {
            *code = CLI_USAGE;
            return false;
        }
    }
    *code = id == CLI_HELP ? CLI_SUCCESS : CLI_USAGE;
    return id == CLI_END;
}

int cli_operand_count(const cli_parser *parser)
{
    return parser->argc - parser->next_positional;
}

const char *cli_operand(const cli_parser *parser, int index)
{
    return parser->argv[parser->next_positional + index];
}

int cli_usage_error(const cli_parser *parser, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "gdn %s: ", parser->command->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return CLI_USAGE;
}

int cli_fail(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "gdn %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return CLI_FAILURE;
}

int cli_fail_call(const char *command, gdn_status status)
{
    cli_fail(command, "%s", gdn_last_error());
    return status == GDN_ERROR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILURE;
}

bool cli_integer(const cli_parser *parser, int64_t min, int64_t max, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    const long long parsed = strtoll(parser->value, &end, 10);
    if (end == parser->value || *end != 0 || errno != 0 || parsed < min || parsed > max) {
        cli_usage_error(parser, "--%s: '%s' is not an integer in %lld..%lld", parser->name, parser->value,
                        (long long)min, (long long)max);
        return false;
    }
    *value = parsed;
    return true;
}

bool cli_number(const cli_parser *parser, double min, double max, double *value)
{
    char *end = NULL;
    const double parsed = strtod(parser->value, &end);
    if (end == parser->value || *end != 0 || !(parsed >= min && parsed <= max)) {
        cli_usage_error(parser, "--%s: '%s' is not a number in %g..%g", parser->name, parser->value, min, max);
        return false;
    }
    *value = parsed;
    return true;
}

bool cli_word(const cli_parser *parser, const char *const *words, int count, int *index)
{
    char allowed[256] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(parser->value, words[i]) == 0) {
            *index = i;
            return true;
        }
        used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    cli_usage_error(parser, "--%s: '%s' is not one of %s", parser->name, parser->value, allowed);
    return false;
}

static void log_line(void *user, gdn_log_level level, const char *line)
{
    (void)user;
    const char *const verbose = getenv("GDN_VERBOSE");
    const bool all = verbose != NULL && verbose[0] != 0 && strcmp(verbose, "0") != 0;
    if (all || level == GDN_LOG_WARNING) {
        fprintf(stderr, "gdn: %s%s\n", level == GDN_LOG_WARNING ? "warning: " : "", line);
    }
}

gdn_status cli_context_defaults(gdn_context_options *options)
{
    const gdn_status status = gdn_context_options_init(options);
    if (status == GDN_OK) {
        options->log = log_line;
    }
    return status;
}

int cli_context_option(const cli_parser *parser, int id, gdn_context_options *options)
{
    static const char *const backends[] = {"auto", "cpu", "cuda"};
    static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
    static const char *const blas[] = {"auto", "off"};
    int64_t number = 0;
    int word = 0;
    switch (id) {
    case CLI_OPTION_BACKEND:
        if (!cli_word(parser, backends, 3, &word)) {
            return -1;
        }
        options->backend = backends[word];
        return 1;
    case CLI_OPTION_DEVICE:
        if (!cli_integer(parser, 0, 1023, &number)) {
            return -1;
        }
        options->device = (int32_t)number;
        return 1;
    case CLI_OPTION_THREADS:
        if (!cli_integer(parser, 1, 1024, &number)) {
            return -1;
        }
        options->num_threads = (int32_t)number;
        return 1;
    case CLI_OPTION_IMPL:
        options->implementations = parser->value;
        return 1;
    case CLI_OPTION_ISA:
        if (!cli_word(parser, isas, 4, &word)) {
            return -1;
        }
        options->cpu_isa = isas[word];
        return 1;
    case CLI_OPTION_BLAS:
        if (!cli_word(parser, blas, 2, &word)) {
            return -1;
        }
        options->blas = word == 1 ? GDN_BLAS_OFF : GDN_BLAS_AUTO;
        return 1;
    case CLI_OPTION_BACKEND_PATH:
        options->backend_path = parser->value;
        return 1;
    default:
        return 0;
    }
}

void cli_format_context_options(const gdn_context_options *options, char *text, size_t size)
{
    char device[32] = "", threads[32] = "";
    if (options->device != 0) {
        snprintf(device, sizeof(device), " --device %d", (int)options->device);
    }
    if (options->num_threads != 0) {
        snprintf(threads, sizeof(threads), " --threads %d", (int)options->num_threads);
    }
    const bool named = options->backend != NULL && strcmp(options->backend, "auto") != 0;
    snprintf(text, size, "%s%s%s%s%s%s%s%s%s", named ? " --backend " : "", named ? options->backend : "", device,
             threads, options->implementations != NULL ? " --impl " : "",
             options->implementations != NULL ? options->implementations : "",
             options->cpu_isa != NULL ? " --isa " : "", options->cpu_isa != NULL ? options->cpu_isa : "",
             options->blas == GDN_BLAS_OFF ? " --blas off" : "");
}
