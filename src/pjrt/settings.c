/* pjrt/settings.c -- the settings of all modules together, and what is wrong with the environment. */
#include <config.h>

#include "pjrt/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <weft/coord.h>

#include "base/guess.h"
#include "base/log.h"
#include "collective/settings.h"
#include "platform/registry.h"

/* Settings that the code which uses them reads directly, without a module's table. */
static const weft_option base_options[] = {
  {"WEFT_LOG", WEFT_OPT_STRING, "warn", 0, "What to log on standard error: [module:]error|warn|info|debug, comma-separated."},
  {"WEFT_TRACE", WEFT_OPT_STRING, "", 0, "File for a trace that Perfetto and chrome://tracing open; %p in it is the process's id. Also written on SIGTERM, SIGINT and SIGUSR1."},
};
static const weft_option_table base_table = {"base", base_options, WEFT_COUNT(base_options)};

/* The job of a process; `weft launch` sets these variables. */
static const weft_option job_options[] = {
  {"WEFT_NUM_PROCESSES", WEFT_OPT_INT, "", 0, "Processes of the job.", "1..2147483647"},
  {"WEFT_PROCESS_ID", WEFT_OPT_INT, "", 0, "Which of them this is, from 0.", "0..2147483647"},
  {"WEFT_LOCAL_PROCESS_ID", WEFT_OPT_INT, "", 0, "Which of those on this machine.", "0..2147483647"},
  {"WEFT_LOCAL_PROCESSES", WEFT_OPT_INT, "", 0, "Processes of the job that share the CPUs which this one may use; weft launch sets it.", "1.."},
  {"WEFT_NUM_DEVICES", WEFT_OPT_INT, "", 0, "CPU devices of a PJRT client that asks for no number.", "1.." WEFT_TEXT(WEFT_DEVICES_A_PROCESS)},
  {"WEFT_K8S_SUBDOMAIN", WEFT_OPT_STRING, "", 0, "The headless service of a Kubernetes job."},
  {"WEFT_K8S_HOSTS_FILE", WEFT_OPT_STRING, "", 0, "The file of host names that is read to find this pod's place in the job."},
};
static const weft_option_table job_table = {"job", job_options, WEFT_COUNT(job_options)};

/* Variables that Weft's Python package reads. */
static const weft_option python_options[] = {
  {"WEFT_PJRT_PLUGIN", WEFT_OPT_STRING, "", 0, "Path of the plugin, pjrt_weft.so, for Python."},
  {"WEFT_JAX_AGENT", WEFT_OPT_STRING, "", 0, "Whose agent jax.distributed.initialize uses: weft or jaxlib; by default weft's in a job of Weft's with a secret or TLS."},
};
static const weft_option_table python_table = {"python", python_options, WEFT_COUNT(python_options)};

const weft_option_table *const pjrt_settings[] = {
  &base_table, PLAT_OPTION_TABLES, &job_table, &python_table, &coll_option_table,
  &weft_coord_service_option_table, &weft_coord_agent_option_table, &weft_coord_preemption_option_table, NULL};

/* The beginnings of the names of variables of Weft's build and tests: these are no settings. */
static const char *const not_ours[] = {"WEFT_TEST_", "WEFT_EMU_", "WEFT_SIM_", "WEFT_SRCDIR", "WEFT_BUILDDIR", "WEFT_BUILD_DIR", "WEFT_CONFIGURE_ARGS",
                                       "WEFT_PYTHON", "WEFT_VENV", "WEFT_FRAMEWORKS_PYTHON", "WEFT_SANITIZED",
                                       "WEFT_EXHAUSTIVE", "WEFT_UPDATE_GOLDEN", "WEFT_REEXEC", "WEFT_E2E", "WEFT_SEED", "WEFT_FIRST"};

extern char **environ;

const weft_option *pjrt_settings_find(const char *name, size_t length)
{
  for (const weft_option_table *const *t = pjrt_settings; *t; t++)
    for (size_t i = 0; i < (*t)->count; i++) {
      const weft_option *o = &(*t)->options[i];
      if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
    }
  return NULL;
}

static bool is_for_tests(const char *variable)
{
  for (size_t i = 0; i < WEFT_COUNT(not_ours); i++)
    if (strncmp(variable, not_ours[i], strlen(not_ours[i])) == 0) return true;
  return false;
}

void pjrt_settings_unknown(void (*tell)(const char *name, const char *hint))
{
  for (char **at = environ; *at; at++) {
    size_t length = strcspn(*at, "=");
    char name[128], hint[128];
    weft_guess guess = {.word = name};

    if (strncmp(*at, "WEFT_", 5) != 0 || is_for_tests(*at) || pjrt_settings_find(*at, length)) continue;
    snprintf(name, sizeof name, "%.*s", (int)WEFT_MIN(length, sizeof name - 1), *at);
    for (const weft_option_table *const *t = pjrt_settings; *t; t++)
      for (size_t i = 0; i < (*t)->count; i++) weft_guess_offer(&guess, (*t)->options[i].name);
    tell(name, weft_guess_text(&guess, hint, sizeof hint));
  }
}

static void warn(const char *name, const char *hint)
{
  WEFT_LOG("settings", WARN, "%s is set, which is no setting%s (`weft info` lists them)", name, hint);
}

static void warn_of_unknown(void) { pjrt_settings_unknown(warn); }

weft_status *pjrt_settings_check(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  /* reads WEFT_LOG, and logs the parts that it does not understand */
  (void)weft_log_enabled("settings", WEFT_LOG_WARN);
  pthread_once(&once, warn_of_unknown);
  for (const weft_option_table *const *t = pjrt_settings; *t; t++) WEFT_TRY(weft_options_check(*t));
  return NULL;
}
