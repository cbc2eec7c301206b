/* cli/main.c -- finds the subcommand and hands over. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "collective/bench.h"
#include "collective/flight.h"

static const struct command {
  const char *name;
  int (*main)(int argc, char **argv);
  const char *summary;
} commands[] = {
    {"run", cli_run_main, "compile a program and run it, on given or generated inputs"},
    {"inspect", cli_inspect_main, "show what becomes of a program: passes, memory plan, steps, machine code"},
    {"info", cli_info_main, "version, machine, libraries, settings"},
    {"coord", cli_coord_main, "the coordination service: serve it, look into it"},
    {"launch", cli_launch_main, "start the processes of a job, here or in an allocation"},
};

/* Commands of one module with a word of their own before the options. */
static const struct {
  const char *name, *word;
  int (*main)(int argc, char **argv);
  const char *summary;
} special[] = {
    {"inspect", "--flight", cli_flight_main, "FILE...: join flight recorders of collectives: who diverged first"},
    {"bench", "collectives", cli_bench_collectives_main, "measure collectives, tune their algorithm table"},
};

static void print_help(FILE *out)
{
  fprintf(out,
          "Usage: weft COMMAND [OPTIONS] ...\n\n"
          "Compiles HLO and StableHLO programs and runs them on CPUs.\n\nCommands:\n");
  for (size_t i = 0; i < WEFT_COUNT(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
  for (size_t i = 0; i < WEFT_COUNT(special); i++)
    fprintf(out, "  %s %s  %s\n", special[i].name, special[i].word, special[i].summary);
  fprintf(out, "\n`weft COMMAND --help` tells more.  Exit codes: 0 done, 1 results differ, 2 bad input or usage, 3 failed.\n");
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    print_help(stderr);
    return CLI_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    print_help(stdout);
    return CLI_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("weft %s\n", PACKAGE_VERSION);
    return CLI_OK;
  }
  for (size_t i = 0; i < WEFT_COUNT(special) && argc > 2; i++)
    if (strcmp(argv[1], special[i].name) == 0 && strcmp(argv[2], special[i].word) == 0) return special[i].main(argc - 2, argv + 2);
  for (size_t i = 0; i < WEFT_COUNT(commands); i++)
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].main(argc - 1, argv + 1);
  for (size_t i = 0; i < WEFT_COUNT(special); i++)
    if (strcmp(argv[1], special[i].name) == 0) { /* without its word */
      fprintf(stderr, "Usage: weft %s %s ...\n\n  %s\n", special[i].name, special[i].word, special[i].summary);
      return argc > 2 && strcmp(argv[2], "--help") == 0 ? CLI_OK : CLI_USAGE;
    }
  fprintf(stderr, "weft: no command \"%s\"; see `weft --help`\n", argv[1]);
  return CLI_USAGE;
}
