/* gdn: the command-line program of libgdn. */
#include "cli.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"info", command_info, "version, features, backends and why each is or is not usable"},
    {"prefill", command_prefill, "run a recorded layer through prefill and compare with what the file expects"},
    {"decode", command_decode, "the same, token by token"},
    {"verify", command_verify, "check random inputs of a problem against a float64 reference"},
    {"bench", command_bench, "time a problem, beside the machine's limits"},
};
#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(void)
{
    printf("usage: gdn COMMAND [arguments]\n\nGated DeltaNet prefill and decode on a CPU or a GPU.\n\ncommands:\n");
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        printf("  %-9s %s\n", commands[i].name, commands[i].help);
    }
    printf("\n`gdn COMMAND --help` says more of each; `gdn --version` prints the version.\n"
           "Exit codes: 0 success, 1 a run or a check failed, 2 wrong usage.\n");
}

static int run(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (strcmp(name, "--version") == 0) {
        printf("gdn %s\n", gdn_version_string());
        return CLI_SUCCESS;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return CLI_SUCCESS;
    }
    fprintf(stderr, "gdn: %s%s%s; allowed: info, prefill, decode, verify, bench, --version, --help\n",
            name[0] != 0 ? "unknown command '" : "no command given", name, name[0] != 0 ? "'" : "");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    const char *const name = argc > 1 ? argv[1] : "";
    const int code = run(name, argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return code == CLI_SUCCESS ? cli_fail(name, "standard output cannot be written") : code;
    }
    return code;
}
