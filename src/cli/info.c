/* cli/info.c -- `weft info`: what this build is and what this machine offers. */
#include <config.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <weft/coord.h>

#include "cli/cli.h"
#include "codegen/codegen.h"
#include "collective/settings.h"
#include "cpu/platform.h"
#include "cpu/topology.h"

/* Settings that are read where they are used, without a module's table. */
static const weft_option base_options[] = {
    {"WEFT_LOG", WEFT_OPT_STRING, "warn", 0, "what to log on standard error: [module:]level, comma-separated"},
    {"WEFT_TRACE", WEFT_OPT_STRING, "", 0, "file for a trace that Perfetto and chrome://tracing open"},
    {"WEFT_CACHE_DIR", WEFT_OPT_STRING, "", 0, "folder that keeps machine code of kernels"},
    {"WEFT_DUMP_LLVM", WEFT_OPT_STRING, "", 0, "folder for LLVM IR and assembly"},
    {"WEFT_COMPILE_THREADS", WEFT_OPT_INT, "", 0, "threads that compile kernels; by default the online processors"},
};
static const weft_option_table base_table = {"base", base_options, WEFT_COUNT(base_options)};

const weft_option_table *const cli_option_tables[] = {&base_table, &cpu_options, &coll_option_table,
                                                      &weft_coord_service_option_table,
                                                      &weft_coord_agent_option_table, NULL};

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

static void print_settings(void)
{
  printf("\nsettings (environment):\n");
  for (const weft_option_table *const *table = cli_option_tables; *table; table++)
    for (size_t i = 0; i < (*table)->count; i++) {
      const weft_option *o = &(*table)->options[i];
      const char *now = getenv(o->name);
      printf("  %-28s %-9s default %-10s %s%s%s\n", o->name, type_name(o->type),
             *o->default_text ? o->default_text : "none", o->help, now && *now ? "; now " : "", now && *now ? now : "");
    }
}

static bool is_known(const char *assignment)
{
  size_t length = strcspn(assignment, "=");

  for (const weft_option_table *const *table = cli_option_tables; *table; table++)
    for (size_t i = 0; i < (*table)->count; i++)
      if (strlen((*table)->options[i].name) == length && strncmp((*table)->options[i].name, assignment, length) == 0)
        return true;
  return false;
}

extern char **environ;

int cli_info_main(int argc, char **argv)
{
  static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
  struct utsname host;
  char huge[32];

  for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
    if (c != 'h') return CLI_USAGE;
    printf("Usage: weft info\n\nPrints version, machine, libraries and every setting with its default.\n");
    return CLI_OK;
  }
  uname(&host);
  printf("weft %s\n", PACKAGE_VERSION);
  printf("  host               %s, %s %s, %s\n", host.nodename, host.sysname, host.release, host.machine);
  printf("  LLVM               %s\n", WEFT_LLVM_VERSION);
  printf("  kernels are for    %s\n", gen_target_description());
  printf("\nmachine:\n");
  fflush(stdout);
  weft_status *st = cpu_topology_print(stdout);
  if (st) fprintf(stderr, "weft info: %s\n", weft_status_text(st, false));
  weft_status_free(st);
  read_choice("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  print_settings();
  if (strcmp(huge, "never") == 0)
    printf("\nwarning: transparent huge pages are off; large programs run slower "
           "(echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)\n");
  for (char **at = environ; *at; at++)
    if (strncmp(*at, "WEFT_", 5) == 0 && !is_known(*at))
      printf("warning: %.*s is set, and no setting has that name\n", (int)strcspn(*at, "="), *at);
  return CLI_OK;
}
