/* cli/cli_coord.c -- weft coord serve | status | kv | barrier. */
#include <config.h>

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/coord.h>

#include "cli/cli.h"

#define COORD_PREFIX "WEFT_COORD_"

/* "--heartbeat-timeout" for WEFT_COORD_HEARTBEAT_TIMEOUT. */
static void flag_name(const weft_option *option, char *buf, size_t size)
{
  size_t n = (size_t)snprintf(buf, size, "--");

  for (const char *c = option->name + strlen(COORD_PREFIX); *c && n + 1 < size; c++)
    buf[n++] = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
  buf[n] = '\0';
}

/* Takes "--name value" or "--name=value" pairs that the table knows out of argv; *argc counts what is left. */
static weft_status *take_options(const weft_option_table *table, void *settings, int *argc, char **argv)
{
  int kept = 0;

  for (int i = 0; i < *argc; i++) {
    const weft_option *found = NULL;
    const char *value = NULL;
    char name[64];
    for (size_t k = 0; k < table->count && !found; k++) {
      size_t length;
      flag_name(&table->options[k], name, sizeof name);
      length = strlen(name);
      if (strncmp(argv[i], name, length) != 0 || (argv[i][length] && argv[i][length] != '=')) continue;
      found = &table->options[k];
      value = argv[i][length] ? argv[i] + length + 1 : NULL;
    }
    if (!found) {
      argv[kept++] = argv[i];
      continue;
    }
    if (!value && found->type == WEFT_OPT_BOOL && (i + 1 == *argc || argv[i + 1][0] == '-')) value = "1";
    if (!value && ++i == *argc) return WEFT_ERR(INVALID_ARGUMENT, "%s wants a value", name);
    WEFT_TRY(weft_option_parse(found->type, name, value ? value : argv[i], (char *)settings + found->offset));
  }
  *argc = kept;
  return NULL;
}

static void print_options(const weft_option_table *table)
{
  char name[64];

  for (size_t i = 0; i < table->count; i++) {
    flag_name(&table->options[i], name, sizeof name);
    printf("  %-22s %s (%s%s)\n", name, table->options[i].help, *table->options[i].default_text ? "default " : "no default",
           table->options[i].default_text);
  }
}

/* ---- serve ---- */

static weft_status *serve(int argc, char **argv)
{
  weft_coord_service_options options;
  WEFT_AUTO(weft_coord_service) service = NULL;
  sigset_t signals;
  int signal_number;

  WEFT_TRY(weft_coord_service_options_load(&options));
  WEFT_TRY(take_options(&weft_coord_service_option_table, &options, &argc, argv));
  if (argc > 0) return WEFT_ERR(INVALID_ARGUMENT, "serve: what is \"%s\"?", argv[0]);
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  WEFT_TRY(weft_coord_service_start(&options, &service));
  printf("listening on %s\n", weft_coord_service_address(service));
  fflush(stdout);
  sigwait(&signals, &signal_number);
  return NULL;
}

static const struct subcommand {
  const char *name;
  weft_status *(*run)(int argc, char **argv);
  const char *usage, *summary;
} subcommands[] = {
  {"serve", serve, "[OPTIONS]", "run a coordination service until SIGINT or SIGTERM"},
};

static void print_help(void)
{
  printf("Usage: weft coord SUBCOMMAND ...\n\n");
  for (size_t i = 0; i < WEFT_COUNT(subcommands); i++)
    printf("  %-8s %-40s %s\n", subcommands[i].name, subcommands[i].usage, subcommands[i].summary);
  printf("\nOptions of serve (each is a WEFT_COORD_* variable too):\n");
  print_options(&weft_coord_service_option_table);
}

int cli_coord_main(int argc, char **argv)
{
  if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    print_help();
    return argc < 2 ? CLI_USAGE : CLI_OK;
  }
  for (size_t i = 0; i < WEFT_COUNT(subcommands); i++)
    if (strcmp(argv[1], subcommands[i].name) == 0) return cli_report("coord", subcommands[i].run(argc - 2, argv + 2));
  return cli_report("coord", WEFT_ERR(INVALID_ARGUMENT, "no subcommand \"%s\"", argv[1]));
}
