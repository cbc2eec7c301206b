/* cli/main.c -- finds the subcommand in its table and calls it. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "base/guess.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "pjrt/settings.h"

static int print_version(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "--help") != 0) {
    fprintf(stderr, "weft version: expected no arguments, got \"%s\"\n", argv[1]);
    return CLI_USAGE;
  }
  if (argc > 1) printf("Usage: weft version\n\nPrints the version, as `weft --version` does.\n");
  else printf("weft %s\n", PACKAGE_VERSION);
  return CLI_OK;
}

static const struct command {
  const char *name;
  int (*main)(int argc, char **argv);
  const char *summary;
} commands[] = {
    {"run", cli_run_main, "compile a program and run it, on given or generated inputs"},
    {"compile", cli_compile_main, "compile a program to a file of machine code"},
    {"inspect", cli_inspect_main, "show what becomes of a program: passes, memory plan, steps, machine code"},
    {"info", cli_info_main, "version, machine, libraries, settings"},
    {"launch", cli_launch_main, "start the processes of a job, here or in an allocation"},
    {"coord", cli_coord_main, "the coordination service: serve it, look into it"},
    {"bench", cli_bench_main, "measure collectives, tune their algorithm table"},
    {"version", print_version, "the version"},
};

static void print_help(FILE *out)
{
  fprintf(out, "Usage: weft COMMAND [OPTIONS] ...\n\n"
               "Compiles HLO and StableHLO programs and runs them on CPUs and NVIDIA GPUs.\n\nCommands:\n");
  for (size_t i = 0; i < WEFT_COUNT(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
  fprintf(
    out,
    "\n`weft COMMAND --help` tells more, `weft --version` the version.\n"
    "Exit codes: 0 done, 1 results differ, 2 bad input or usage, 3 failed (or standard output could not be written).\n");
}

static const struct command *find_command(const char *name)
{
  weft_guess guess = {.word = name};
  char hint[64];

  for (size_t i = 0; i < WEFT_COUNT(commands); i++) {
    if (strcmp(name, commands[i].name) == 0) return &commands[i];
    weft_guess_offer(&guess, commands[i].name);
  }
  fprintf(stderr, "weft: no command \"%s\"%s (see `weft --help`)\n", name, weft_guess_text(&guess, hint, sizeof hint));
  return NULL;
}

static int run(int argc, char **argv)
{
  const struct command *command;

  if (argc < 2) {
    print_help(stderr);
    return CLI_USAGE;
  }
  if (strcmp(argv[1], "--version") == 0) return print_version(1, NULL);
  if (strcmp(argv[1], "help") == 0 && argc > 2) { /* `weft help run` */
    command = find_command(argv[2]);
    return command ? command->main(2, (char *[]){argv[2], "--help", NULL}) : CLI_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    print_help(stdout);
    return CLI_OK;
  }
  command = find_command(argv[1]);
  if (!command) return CLI_USAGE;
  if (command->main != cli_info_main) { /* the check reports every wrong setting, not only the first */
    weft_status *st = pjrt_settings_check();
    if (st) return cli_report(command->name, st);
  }
  return command->main(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
  cli_open_standard_streams();
  return cli_close_output(run(argc, argv));
}
