/* cli/info.c -- `weft info`: describes this build, this machine, and every setting. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/build_id.h"
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/json.h"
#include "cli/options.h"
#include "codegen/codegen.h"
#include "platform/registry.h"
#include "pjrt/settings.h"

/* Environment variables of other software, with what they mean to Weft. */
static const struct { const char *name, *help; } foreign[] = {
    {"XLA_FLAGS", "--xla_force_host_platform_device_count, --xla_cpu_max_isa, --xla_dump_*, --xla_cpu_collective_*: as docs/jax.md says."},
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

/* Prints a setting: its description, its allowed values, and its value, with the reason if the value is refused. */
static void print_setting(const weft_option *o)
{
  const char *now = getenv(o->name);
  weft_status *st = weft_options_check(&(weft_option_table){.options = o, .count = 1});

  printf("  %-36s %-9s %-12s %s", o->name, type_name(o->type), *o->default_text ? o->default_text : "-", o->help);
  if (o->allowed) printf("  Allowed %s", o->allowed + (*o->allowed == '|'));
  if (now && *now) printf("  Now %s", now);
  printf("\n");
  if (st) printf("    warning: %s\n", weft_status_message(st));
  weft_status_free(st);
}

static void print_settings(void)
{
  printf("\nsettings (environment):\n");
  for (const weft_option_table *const *t = pjrt_settings; *t; t++) {
    for (size_t i = 0; i < (*t)->count; i++) {
      const weft_option *o = &(*t)->options[i];
      /* the service and the agent share some of their settings */
      if (pjrt_settings_find(o->name, strlen(o->name)) == o) print_setting(o);
    }
    printf("\n");
  }
  printf("of others:\n");
  for (size_t i = 0; i < WEFT_COUNT(foreign); i++) printf("  %-36s %s\n", foreign[i].name, foreign[i].help);
}

static void print_unknown(const char *name, const char *hint)
{
  printf("\nwarning: %s is set, and no setting has that name%s\n", name, hint);
}

static void describe(const weft_platform_ops *platform)
{
  printf("\nmachine, as platform \"%s\" sees it:\n", platform->name);
  fflush(stdout);
  weft_status *st = platform->describe ? platform->describe(stdout) : NULL;
  if (st) fprintf(stderr, "weft info: %s\n", weft_status_text(st, false));
  weft_status_free(st);
}

/* ---- JSON ---- */

static void put_setting(cli_json *json, const char *module, const weft_option *o)
{
  const char *now = getenv(o->name);
  weft_status *st = weft_options_check(&(weft_option_table){.options = o, .count = 1});

  cli_json_object(json, NULL);
  cli_json_text(json, "name", o->name);
  cli_json_text(json, "module", module);
  cli_json_text(json, "type", type_name(o->type));
  cli_json_text(json, "default", o->default_text);
  cli_json_text(json, "help", o->help);
  if (o->allowed) cli_json_text(json, "allowed", o->allowed + (*o->allowed == '|'));
  if (now && *now) cli_json_text(json, "value", now);
  if (st) cli_json_text(json, "refused", weft_status_message(st));
  cli_json_end_object(json);
  weft_status_free(st);
}

/* A platform's description of the machine, as an array of lines. */
static void put_machine(cli_json *json, const weft_platform_ops *platform)
{
  char *text = NULL, *rest, *line;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  weft_status *st = out && platform->describe ? platform->describe(out) : NULL;

  if (out) fclose(out);
  cli_json_array(json, platform->name);
  for (line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
    cli_json_text(json, NULL, line + strspn(line, " "));
  cli_json_end_array(json);
  weft_status_ignore(st); /* the array holds the lines that could be written */
  free(text);
}

static cli_json *unknown; /* the array of variables that no setting reads, while it is written */

static void put_unknown(const char *name, const char *hint)
{
  (void)hint;
  cli_json_text(unknown, NULL, name);
}

#ifdef HAVE_OPENBLAS
#define OPENBLAS "yes"
#else
#define OPENBLAS "no: no LAPACK; f64 and complex products, Cholesky factors and triangular systems are slower"
#endif
#ifdef HAVE_ONEDNN
#define ONEDNN "yes, where it is installed"
#else
#define ONEDNN "no: convolutions on processors with AVX-512 are slower"
#endif
#ifdef HAVE_LIBFABRIC
#define LIBFABRIC "yes"
#else
#define LIBFABRIC "no: processes on other machines cannot take part in collectives"
#endif

static void print_json(void)
{
  cli_json json = {.out = stdout};
  struct utsname host;

  uname(&host);
  cli_json_object(&json, NULL);
  cli_json_text(&json, "version", PACKAGE_VERSION);
  cli_json_text(&json, "host", host.nodename);
  cli_json_text(&json, "system", host.sysname);
  cli_json_text(&json, "release", host.release);
  cli_json_text(&json, "llvm", WEFT_LLVM_VERSION);
  cli_json_text(&json, "build", WEFT_BUILD_ID);
  cli_json_text(&json, "openblas", OPENBLAS);
  cli_json_text(&json, "onednn", ONEDNN);
  cli_json_text(&json, "libfabric", LIBFABRIC);
  cli_json_text(&json, "kernels_are_for", gen_target_description());
  cli_json_object(&json, "machine");
  for (int i = 0; i < plat_count(); i++) put_machine(&json, plat_at(i));
  cli_json_end_object(&json);
  cli_json_array(&json, "settings");
  for (const weft_option_table *const *t = pjrt_settings; *t; t++)
    for (size_t i = 0; i < (*t)->count; i++) {
      const weft_option *o = &(*t)->options[i];
      if (pjrt_settings_find(o->name, strlen(o->name)) == o) put_setting(&json, (*t)->module, o);
    }
  cli_json_end_array(&json);
  cli_json_array(&json, "unknown_variables");
  unknown = &json;
  pjrt_settings_unknown(put_unknown);
  unknown = NULL;
  cli_json_end_array(&json);
  cli_json_end_object(&json);
  putchar('\n');
}

int cli_info_main(int argc, char **argv)
{
  bool job = false, json = false;
  const cli_option options[] = {{"--job", NULL, "instead: the job that the environment names, and how it is protected", .out = &job},
                                {"--json", NULL, "print one JSON object", .out = &json}};
  const cli_command command = {"info", "[--job] [--json]", "Prints version, machine, libraries and every setting with its type and default.",
                               .options = options, .option_count = WEFT_COUNT(options)};
  struct utsname host;
  char huge[32];
  bool helped;
  weft_status *st = cli_parse_options(&command, &argc, argv, &helped);

  if (!st && !helped && argc > 1)
    st = WEFT_ERR(INVALID_ARGUMENT, "unexpected argument \"%s\" (see `weft info --help`)", argv[1]);
  if (!st && !helped && job) return cli_report("info", cli_print_job(stdout));
  if (st || helped) return cli_report("info", st);
  if (json) {
    print_json();
    return CLI_OK;
  }
  uname(&host);
  printf("weft %s\n", PACKAGE_VERSION);
  printf("  host               %s, %s %s, %s\n", host.nodename, host.sysname, host.release, host.machine);
  printf("  LLVM               %s\n", WEFT_LLVM_VERSION);
  printf("  build              %s\n", WEFT_BUILD_ID);
  printf("  OpenBLAS           %s\n", OPENBLAS);
  printf("  oneDNN             %s\n", ONEDNN);
  printf("  libfabric          %s\n", LIBFABRIC);
  printf("  kernels are for    %s\n", gen_target_description());
  for (int i = 0; i < plat_count(); i++) describe(plat_at(i));
  print_settings();
  read_choice("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
  if (strcmp(huge, "never") == 0)
    printf("\nwarning: transparent huge pages are off; large programs run slower "
           "(echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)\n");
  pjrt_settings_unknown(print_unknown);
  return CLI_OK;
}
