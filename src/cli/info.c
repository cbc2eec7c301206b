/* cli/info.c -- `weft info`: what this build is and what this machine offers. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <weft/coord.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "codegen/codegen.h"
#include "collective/settings.h"
#include "cpu/platform.h"
#include "cpu/topology.h"

/* Settings that are read where they are used, without a module's table. */
static const weft_option base_options[] = {
    {"WEFT_LOG", WEFT_OPT_STRING, "warn", 0, "What to log on standard error: [module:]error|warn|info|debug, comma-separated."},
    {"WEFT_TRACE", WEFT_OPT_STRING, "", 0, "File for a trace that Perfetto and chrome://tracing open."},
    {"WEFT_CACHE_DIR", WEFT_OPT_STRING, "", 0, "Folder that keeps machine code of kernels."},
    {"WEFT_DUMP_LLVM", WEFT_OPT_STRING, "", 0, "Folder for LLVM IR and assembly."},
    {"WEFT_COMPILE_THREADS", WEFT_OPT_INT, "", 0, "Threads that compile kernels; by default the online processors."},
};
static const weft_option_table base_table = {"base", base_options, WEFT_COUNT(base_options)};

/* What a process learns of its job; `weft launch` sets these. */
static const weft_option job_options[] = {
    {"WEFT_NUM_PROCESSES", WEFT_OPT_INT, "", 0, "Processes of the job."},
    {"WEFT_PROCESS_ID", WEFT_OPT_INT, "", 0, "Which of them this is, from 0."},
    {"WEFT_LOCAL_PROCESS_ID", WEFT_OPT_INT, "", 0, "Which of those on this machine."},
    {"WEFT_NUM_DEVICES", WEFT_OPT_INT, "", 0, "CPU devices of a PJRT client that asks for no number."},
    {"WEFT_K8S_SUBDOMAIN", WEFT_OPT_STRING, "", 0, "The headless service of a Kubernetes job."},
};
static const weft_option_table job_table = {"job", job_options, WEFT_COUNT(job_options)};

static const weft_option_table *const tables[] = {
    &base_table, &cpu_options, &job_table, &coll_option_table, &weft_coord_service_option_table, &weft_coord_agent_option_table};

/* Variables of others that mean something here. */
static const struct { const char *name, *help; } foreign[] = {
    {"XLA_FLAGS", "--xla_force_host_platform_device_count, --xla_dump_*, --xla_cpu_collective_*: as docs/jax.md says."},
    {"FI_PROVIDER", "The libfabric provider between nodes; libfabric's other FI_* variables apply too."},
    {"OPENBLAS_NUM_THREADS, OMP_NUM_THREADS", "Not used: WEFT_THREADS says how many threads work."},
};

static const char *type_name(weft_option_type type)
{
  static const char *const names[] = {
      [WEFT_OPT_BOOL] = "bool", [WEFT_OPT_INT] = "int", [WEFT_OPT_BYTES] = "bytes",
      [WEFT_OPT_DURATION] = "duration", [WEFT_OPT_STRING] = "text"};
  return names[type];
}

/* The word in brackets of a /sys/kernel/mm file ("always [madvise] never"), or "unknown". */
static void read_choice(const char *path, char *choice, size_t size)
{
  char line[128] = "";
  FILE *in = fopen(path, "re");
  char *open, *close;

  snprintf(choice, size, "unknown");
  if (!in) return;
  if (fgets(line, sizeof line, in) && (open = strchr(line, '[')) && (close = strchr(open, ']')))
    snprintf(choice, size, "%.*s", (int)(close - open - 1), open + 1);
  fclose(in);
}

/* The first table that has an option of that name. */
static const weft_option *find_option(const char *name, size_t length)
{
  for (size_t t = 0; t < WEFT_COUNT(tables); t++)
    for (size_t i = 0; i < tables[t]->count; i++)
      if (strlen(tables[t]->options[i].name) == length && strncmp(tables[t]->options[i].name, name, length) == 0)
        return &tables[t]->options[i];
  return NULL;
}

static void print_settings(void)
{
  printf("\nsettings (environment):\n");
  for (size_t t = 0; t < WEFT_COUNT(tables); t++) {
    for (size_t i = 0; i < tables[t]->count; i++) {
      const weft_option *o = &tables[t]->options[i];
      const char *now = getenv(o->name);
      if (find_option(o->name, strlen(o->name)) != o) continue; /* service and agent share some */
      printf("  %-36s %-9s %-12s %s%s%s\n", o->name, type_name(o->type), *o->default_text ? o->default_text : "-", o->help,
             now && *now ? "  Now " : "", now && *now ? now : "");
    }
    printf("\n");
  }
  printf("of others:\n");
  for (size_t i = 0; i < WEFT_COUNT(foreign); i++) printf("  %-36s %s\n", foreign[i].name, foreign[i].help);
}

extern char **environ;

/* Calls `warn` for each WEFT_* variable that no table has, with the option that it may have meant, or NULL. */
static void check_environment(void (*warn)(const char *name, const char *meant))
{
  for (char **at = environ; *at; at++) {
    size_t length = strcspn(*at, "=");
    char name[64];
    cli_guess guess = {.word = name};

    if (strncmp(*at, "WEFT_", 5) != 0 || length >= sizeof name || find_option(*at, length)) continue;
    snprintf(name, sizeof name, "%.*s", (int)length, *at);
    for (size_t t = 0; t < WEFT_COUNT(tables); t++)
      for (size_t i = 0; i < tables[t]->count; i++) cli_guess_offer(&guess, tables[t]->options[i].name);
    warn(name, guess.best);
  }
}

static void warn_of_misspelt(const char *name, const char *meant)
{
  if (meant) fprintf(stderr, "weft: warning: %s is set, which is no setting; did you mean %s?\n", name, meant);
}

void cli_warn_of_environment(void)
{
  (void)weft_log_enabled("cli", WEFT_LOG_WARN); /* reads WEFT_LOG, and says what it does not understand */
  check_environment(warn_of_misspelt);
}

static void print_unknown(const char *name, const char *meant)
{
  printf("\nwarning: %s is set, and no setting has that name%s%s\n", name, meant ? "; the nearest is " : "", meant ? meant : "");
}

int cli_info_main(int argc, char **argv)
{
  static const cli_command command = {"info", "", "Prints version, machine, libraries and every setting with its type and default.", .options = NULL};
  struct utsname host;
  char huge[32];
  bool helped;
  weft_status *st = cli_parse_options(&command, &argc, argv, &helped);

  if (!st && !helped && argc > 1) st = WEFT_ERR(INVALID_ARGUMENT, "what is \"%s\"? (see `weft info --help`)", argv[1]);
  if (st || helped) return cli_report("info", st);
  uname(&host);
  printf("weft %s\n", PACKAGE_VERSION);
  printf("  host               %s, %s %s, %s\n", host.nodename, host.sysname, host.release, host.machine);
  printf("  LLVM               %s\n", WEFT_LLVM_VERSION);
  printf("  kernels are for    %s\n", gen_target_description());
  printf("\nmachine:\n");
  fflush(stdout);
  st = cpu_topology_print(stdout);
  if (st) fprintf(stderr, "weft info: %s\n", weft_status_text(st, false));
  weft_status_free(st);
  print_settings();
  read_choice("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  if (strcmp(huge, "never") == 0)
    printf("\nwarning: transparent huge pages are off; large programs run slower "
           "(echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)\n");
  check_environment(print_unknown);
  return CLI_OK;
}
