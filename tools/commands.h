/* The subcommands. Each takes the arguments from its own name on and returns the program's exit code. */
#ifndef GDN_TOOLS_COMMANDS_H
#define GDN_TOOLS_COMMANDS_H

int command_info(int argc, char **argv);
int command_prefill(int argc, char **argv);
int command_decode(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_bench(int argc, char **argv);

#endif
