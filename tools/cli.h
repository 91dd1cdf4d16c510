/* Command-line handling shared by the subcommands: option tables, strict values, one-line errors. */
#ifndef GDN_TOOLS_CLI_H
#define GDN_TOOLS_CLI_H

#include <gdn/gdn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program exits with. */
enum {
    CLI_SUCCESS = 0,
    CLI_FAILURE = 1, /* a run or a check failed, or a file could not be written */
    CLI_USAGE = 2 /* the command line, a problem or an input file is wrong */
};

#define CLI_PRINTF(format_index, args_index) __attribute__((format(printf, format_index, args_index)))

/* One option of a command. `argument` is its placeholder in the help text, NULL for a flag. */
typedef struct cli_option {
    int id; /* what cli_next returns; from 1, unique in the table */
    char short_name; /* 0: none */
    const char *name;
    const char *argument;
    const char *help;
} cli_option;

/* A command: how it is called, what it does, its options (ended by an id of 0). */
typedef struct cli_command {
    const char *name;
    const char *usage; /* "gdn prefill IN [-o OUT] [options]" */
    const char *help; /* paragraphs printed after the usage line */
    const cli_option *options;
} cli_command;

typedef struct cli_parser {
    const cli_command *command;
    int argc;
    char **argv;
    const char *value; /* the argument of the option just returned */
    const char *name; /* its long name */
    int next_positional; /* argv index of the first operand once cli_next returned CLI_END */
} cli_parser;

enum {
    CLI_END = 0, /* no more options */
    CLI_ERROR = -1, /* reported on stderr: exit with CLI_USAGE */
    CLI_HELP = -2 /* the help text was printed: exit with CLI_SUCCESS */
};

/* Options that every command that creates a context takes; place CLI_CONTEXT_OPTIONS in its table. */
enum {
    CLI_OPTION_BACKEND = 1001,
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    CLI_OPTION_IMPL,
    CLI_OPTION_ISA,
    CLI_OPTION_BLAS,
    CLI_OPTION_BACKEND_PATH
};

#define CLI_CONTEXT_OPTIONS                                                                                           \
    {CLI_OPTION_BACKEND, 0, "backend", "NAME", "auto (default), cpu or cuda"},                                        \
        {CLI_OPTION_DEVICE, 0, "device", "N", "device of the backend, from 0"},                                       \
        {CLI_OPTION_THREADS, 0, "threads", "N", "CPU threads; default: what the quota and the affinity allow"},       \
        {CLI_OPTION_IMPL, 0, "impl", "LIST", "implementations to allow by prefix, each with - before it to exclude"}, \
        {CLI_OPTION_ISA, 0, "isa", "NAME", "highest CPU instruction set: scalar, avx2, avx512 or neon"},              \
        {CLI_OPTION_BLAS, 0, "blas", "MODE", "auto (default) or off: the plain products"},                            \
    {                                                                                                                 \
        CLI_OPTION_BACKEND_PATH, 0, "backend-path", "DIR", "folder of backend modules"                                \
    }

void cli_begin(cli_parser *parser, const cli_command *command, int argc, char **argv);
/* The id of the next option, or CLI_END, CLI_ERROR, CLI_HELP. */
int cli_next(cli_parser *parser);
/* Gives every option to `take`, which reports a wrong one and returns false. False: exit with *code, after an error or the help
 * text. */
typedef bool (*cli_take_fn)(const cli_parser *parser, int id, void *settings);
bool cli_take_options(cli_parser *parser, const cli_command *command, int argc, char **argv, cli_take_fn take,
                      void *settings, int *code);
/* Operands left after the options: count, and the i-th. */
int cli_operand_count(const cli_parser *parser);
const char *cli_operand(const cli_parser *parser, int index);

/* One line on stderr, "gdn COMMAND: ...". cli_usage_error returns CLI_USAGE, cli_fail CLI_FAILURE, for
 * `return cli_fail(...)`. */
int cli_usage_error(const cli_parser *parser, const char *format, ...) CLI_PRINTF(2, 3);
int cli_fail(const char *command, const char *format, ...) CLI_PRINTF(2, 3);
/* The message of a library call that failed: CLI_USAGE where what the command was given is wrong, else CLI_FAILURE. */
int cli_fail_call(const char *command, gdn_status status);

/* Values of the option just returned; false where they are wrong, which is then reported. */
bool cli_integer(const cli_parser *parser, int64_t min, int64_t max, int64_t *value);
bool cli_number(const cli_parser *parser, double min, double max, double *value);
/* One of `count` words; *index gets which. */
bool cli_word(const cli_parser *parser, const char *const *words, int count, int *index);

/* The defaults of CLI_CONTEXT_OPTIONS. The library's warnings go to stderr, and all it logs where GDN_VERBOSE asks. */
gdn_status cli_context_defaults(gdn_context_options *options);
/* Handles an option of CLI_CONTEXT_OPTIONS: 1 handled, 0 not one of them, -1 wrong and reported. */
int cli_context_option(const cli_parser *parser, int id, gdn_context_options *options);

/* The context options as they would be typed, for a line that repeats a run; "" where all are defaults. */
void cli_format_context_options(const gdn_context_options *options, char *text, size_t size);

#endif
