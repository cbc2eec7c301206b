/* cli/cli_coord.c -- weft coord serve | status | kv | barrier. */
#include <config.h>

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weft/coord.h>

#include "base/guess.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/job.h"
#include "cli/options.h"
#include "collective/flight.h"
#include "collective/flight_text.h"

#define COORD_PREFIX "WEFT_COORD_"

/* "--heartbeat-timeout" for WEFT_COORD_HEARTBEAT_TIMEOUT. */
static void flag_name(const weft_option *option, char *buf, size_t size)
{
  size_t n = (size_t)snprintf(buf, size, "--");

  for (const char *c = option->name + strlen(COORD_PREFIX); *c && n + 1 < size; c++)
    buf[n++] = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
  buf[n] = '\0';
}

/* Removes "--name value" and "--name=value" pairs that the option table knows from argv. *argc counts the words that
 * are left. */
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
    WEFT_TRY(weft_option_read(found, name, value ? value : argv[i], (char *)settings + found->offset));
  }
  *argc = kept;
  return NULL;
}

static void print_options(const weft_option_table *table)
{
  char name[64];

  for (size_t i = 0; i < table->count; i++) {
    flag_name(&table->options[i], name, sizeof name);
    printf("  %-22s %s (%s%s)\n", name, table->options[i].help,
           *table->options[i].default_text ? "default " : "no default", table->options[i].default_text);
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
  if (argc > 0)
    return WEFT_ERR(INVALID_ARGUMENT, "serve: unexpected argument \"%s\" (see `weft coord serve --help`)", argv[0]);
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

/* ---- shared by the subcommands that are clients of a service ---- */

/* Removes the switch "--name" from the arguments; true if it was there. */
static bool take_flag(const char *name, int *argc, char **argv)
{
  for (int i = 0; i < *argc; i++) {
    if (strcmp(argv[i], name) != 0) continue;
    memmove(argv + i, argv + i + 1, (size_t)(*argc - i - 1) * sizeof *argv);
    --*argc;
    return true;
  }
  return false;
}

/* Takes ADDRESS (unless --address or WEFT_COORD_ADDRESS gave it) and the options from the arguments, and connects as
 * an observer. */
static weft_status *open_agent(int *argc, char ***argv, weft_coord_agent **out_agent)
{
  weft_coord_agent_options options;

  WEFT_TRY(weft_coord_agent_options_load(&options));
  options.init_timeout_ns = 10 * WEFT_NS_PER_S; /* a person waits */
  options.observes_at_once = !take_flag("--wait", argc, *argv);
  WEFT_TRY(take_options(&weft_coord_agent_option_table, &options, argc, *argv));
  if (*argc > 0 && (!*options.address || strchr((*argv)[0], ':'))) {
    options.address = (*argv)[0];
    ++*argv;
    --*argc;
  }
  WEFT_TRY(weft_coord_agent_new(&options, out_agent));
  WEFT_TRY_NOTE(weft_coord_agent_observe(*out_agent), "asking the coordination service at %s", options.address);
  return NULL;
}

/* Removes "--name VALUE" from the arguments and returns VALUE; NULL if the option is not there. */
static const char *take_value(const char *name, int *argc, char **argv)
{
  for (int i = 0; i + 1 < *argc; i++) {
    const char *value = argv[i + 1];
    if (strcmp(argv[i], name) != 0) continue;
    memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 2) * sizeof *argv);
    *argc -= 2;
    return value;
  }
  return NULL;
}

/* ---- status ---- */

static const char *state_name(weft_coord_task_state state)
{
  switch (state) {
  case WEFT_COORD_TASK_DISCONNECTED: return "disconnected";
  case WEFT_COORD_TASK_CONNECTED: return "connected";
  case WEFT_COORD_TASK_ERROR: return "error";
  }
  return "unknown";
}

static void print_age(int64_t ms)
{
  if (ms < 0) printf("%9s", "-");
  else printf("%7.1f s", (double)ms / 1000);
}

static void print_status(const weft_coord_status_report *r)
{
  size_t connected = 0;

  for (size_t i = 0; i < r->task_count; i++) connected += r->tasks[i].info.state == WEFT_COORD_TASK_CONNECTED;
  printf("%zu of %zu tasks connected", connected, r->task_count);
  if (r->is_partial) {
    printf("; this service tells no more than the tasks' states\n");
  } else {
    printf(", up %.0f s, heartbeat timeout %.1f s, %" PRId64 " connections\n", (double)r->uptime_ms / 1000,
           (double)r->heartbeat_timeout_ms / 1000, r->connections);
    printf("%" PRId64 " keys with %" PRId64 " bytes, %" PRId64 " waiting gets, %" PRId64
           " bytes of memory counted, incarnation %" PRIu64 "\n",
           r->keys, r->key_value_bytes, r->waiting_gets, r->memory_bytes, r->service_incarnation);
  }
  if (!r->is_partial) cli_print_protection(stdout, &r->protection);
  if (*r->first_error) printf("the job has failed: %s\n", r->first_error);
  printf("\n%6s  %-12s  %20s  %9s\n", "task", "state", "incarnation", "heartbeat");
  for (size_t i = 0; i < r->task_count; i++) {
    const weft_coord_status_task *t = &r->tasks[i];
    printf("%6" PRId32 "  %-12s  %20" PRIu64 "  ", t->info.task, state_name(t->info.state), t->info.incarnation);
    print_age(t->heartbeat_age_ms);
    printf("%s", t->recoverable ? "  recoverable" : "");
    if (t->info.error_code) printf("  %s: %s", weft_code_name(t->info.error_code), t->info.error_message);
    printf("\n");
  }
  for (size_t i = 0; i < r->barrier_count; i++) {
    const weft_coord_status_barrier *b = &r->barriers[i];
    printf("\nbarrier %s::%" PRId64 ": %" PRId32 "/%" PRId32 " arrived in %.1f s", b->id, b->counter, b->arrived,
           b->participants, (double)b->age_ms / 1000);
    if (b->left_ms >= 0) printf(", %.1f s left", (double)b->left_ms / 1000);
    printf("; missing:");
    for (size_t k = 0; k < b->missing_count; k++) printf(" %" PRId32, b->missing[k]);
    if ((size_t)(b->participants - b->arrived) > b->missing_count) printf(" ...");
    printf("\n");
  }
}

static void print_protection_json(const weft_coord_protection *p)
{
  printf(
    ", \"protection\": {\"secret\": %s, \"tls\": %s, \"client_certificates\": %s, \"lets_anyone_in\": %s, \"hosts\": %" PRId64
    ", \"by_secret\": %" PRId64 ", \"by_certificate\": %" PRId64 ", \"by_uid\": %" PRId64 ", \"by_host\": %" PRId64
    ", \"by_anyone\": %" PRId64 ", \"strangers\": %" PRId64 ", \"refused_calls\": %" PRId64 "}",
    p->has_secret ? "true" : "false", p->has_tls ? "true" : "false", p->asks_certificates ? "true" : "false",
    p->lets_anyone_in ? "true" : "false", p->hosts, p->by_secret, p->by_certificate, p->by_uid, p->by_host,
    p->by_anyone, p->strangers, p->refused_calls);
}

static void print_status_json(const weft_coord_status_report *r)
{
  printf("{\"service_incarnation\": \"%" PRIu64 "\", \"partial\": %s, \"uptime_ms\": %" PRId64
         ", \"heartbeat_timeout_ms\": %" PRId64 ", \"keys\": %" PRId64 ", \"key_value_bytes\": %" PRId64
         ", \"waiting_gets\": %" PRId64 ", \"connections\": %" PRId64 ", \"memory_bytes\": %" PRId64
         ", \"first_error\": ",
         r->service_incarnation, r->is_partial ? "true" : "false", r->uptime_ms, r->heartbeat_timeout_ms, r->keys,
         r->key_value_bytes, r->waiting_gets, r->connections, r->memory_bytes);
  cli_json_string(stdout, r->first_error);
  print_protection_json(&r->protection);
  printf(", \"tasks\": [");
  for (size_t i = 0; i < r->task_count; i++) {
    const weft_coord_status_task *t = &r->tasks[i];
    printf("%s{\"task\": %" PRId32 ", \"state\": \"%s\", \"incarnation\": \"%" PRIu64
           "\", \"heartbeat_age_ms\": %" PRId64 ", \"recoverable\": %s, \"error_code\": \"%s\", \"error_message\": ",
           i ? ", " : "", t->info.task, state_name(t->info.state), t->info.incarnation, t->heartbeat_age_ms,
           t->recoverable ? "true" : "false", weft_code_name(t->info.error_code));
    cli_json_string(stdout, t->info.error_message);
    printf("}");
  }
  printf("], \"barriers\": [");
  for (size_t i = 0; i < r->barrier_count; i++) {
    const weft_coord_status_barrier *b = &r->barriers[i];
    printf("%s{\"id\": ", i ? ", " : "");
    cli_json_string(stdout, b->id);
    printf(", \"counter\": %" PRId64 ", \"age_ms\": %" PRId64 ", \"left_ms\": %" PRId64 ", \"arrived\": %" PRId32
           ", \"participants\": %" PRId32 ", \"missing\": [",
           b->counter, b->age_ms, b->left_ms, b->arrived, b->participants);
    for (size_t k = 0; k < b->missing_count; k++) printf("%s%" PRId32, k ? ", " : "", b->missing[k]);
    printf("]}");
  }
  printf("]}\n");
}

/* Prints the flight recorder of every process that has published the address at which it can be asked. */
static weft_status *print_flights(weft_coord_agent *agent)
{
  weft_coord_entry *found = NULL;
  size_t count = 0;

  WEFT_TRY(weft_coord_agent_list(agent, COLL_FLIGHT_KEYS, &found, &count));
  for (size_t i = 0; i < count; i++) {
    printf("\nincarnation %s\n", strrchr(found[i].key, '/') + 1);
    fflush(stdout);
    weft_status *st = coll_flight_ask(found[i].value, found[i].size, weft_deadline_after_ms(2000), stdout);
    if (st) printf("  %s\n", weft_status_message(st));
    weft_status_free(st);
  }
  if (count == 0) printf("\nno process has a communicator with others\n");
  free(found);
  return NULL;
}

static weft_status *status(int argc, char **argv)
{
  bool json = take_flag("--json", &argc, argv), watch = take_flag("--watch", &argc, argv),
       flight = take_flag("--flight", &argc, argv);
  WEFT_AUTO(weft_coord_agent) agent = NULL;

  WEFT_TRY(open_agent(&argc, &argv, &agent));
  if (argc > 0) return WEFT_ERR(INVALID_ARGUMENT, "status: unexpected argument \"%s\"", argv[0]);
  for (;;) {
    WEFT_AUTO(weft_coord_status_report) report = NULL;
    WEFT_TRY(weft_coord_agent_status(agent, &report));
    if (watch && !json) printf("\033[H\033[2J"); /* home, clear */
    (json ? print_status_json : print_status)(report);
    if (flight && !json) WEFT_TRY(print_flights(agent));
    fflush(stdout);
    if (!watch) return NULL;
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  }
}

/* ---- kv ---- */

static weft_status *kv_get(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns)
{
  WEFT_AUTO_STR value = NULL;
  size_t size;

  (void)agent;
  if (timeout_ns > 0) WEFT_TRY(weft_kv_get(kv, argv[0], weft_deadline_after_ns(timeout_ns), &value, &size));
  else WEFT_TRY(weft_kv_try_get(kv, argv[0], &value, &size));
  fwrite(value, 1, size, stdout);
  if (size == 0 || value[size - 1] != '\n') printf("\n");
  return NULL;
}

static weft_status *kv_set(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns)
{
  (void)agent;
  (void)timeout_ns;
  return weft_kv_set(kv, argv[0], argv[1], strlen(argv[1]), true);
}

static weft_status *kv_delete(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns)
{
  (void)agent;
  (void)timeout_ns;
  return weft_kv_remove(kv, argv[0]);
}

static weft_status *kv_list(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns)
{
  weft_coord_entry *entries;
  size_t count;

  (void)kv;
  (void)timeout_ns;
  WEFT_TRY(weft_coord_agent_list(agent, argv[0], &entries, &count));
  for (size_t i = 0; i < count; i++) printf("%s\t%zu bytes\n", entries[i].key, entries[i].size);
  free(entries);
  return NULL;
}

static weft_status *kv_increment(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns)
{
  int64_t by, sum;

  (void)kv;
  (void)timeout_ns;
  WEFT_TRY(weft_option_parse(WEFT_OPT_INT, "increment", argv[1], &by));
  WEFT_TRY(weft_coord_agent_increment(agent, argv[0], by, &sum));
  printf("%" PRId64 "\n", sum);
  return NULL;
}

static weft_status *key_value(int argc, char **argv)
{
  static const struct {
    const char *name;
    int argc;
    weft_status *(*run)(weft_coord_agent *agent, weft_kv *kv, char **argv, int64_t timeout_ns);
  } verbs[] = {
    {"get", 1, kv_get}, {"set", 2, kv_set}, {"delete", 1, kv_delete}, {"list", 1, kv_list}, {"increment", 2, kv_increment},
  };
  const char *timeout = take_value("--timeout", &argc, argv);
  int64_t timeout_ns = 0;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_kv) kv = NULL;

  if (timeout) WEFT_TRY(weft_option_parse(WEFT_OPT_DURATION, "--timeout", timeout, &timeout_ns));
  WEFT_TRY(open_agent(&argc, &argv, &agent));
  WEFT_TRY(weft_coord_agent_kv(agent, &kv));
  for (size_t i = 0; argc > 0 && i < WEFT_COUNT(verbs); i++)
    if (strcmp(argv[0], verbs[i].name) == 0 && argc == verbs[i].argc + 1)
      return verbs[i].run(agent, kv, argv + 1, timeout_ns);
  return WEFT_ERR(INVALID_ARGUMENT,
                  "kv: expected get KEY, set KEY VALUE, delete KEY, list DIRECTORY or increment KEY NUMBER");
}

/* ---- barrier ---- */

static weft_status *barrier(int argc, char **argv)
{
  enum { MAX_TASKS = 65536 };
  const char *timeout = take_value("--timeout", &argc, argv), *list = take_value("--tasks", &argc, argv);
  int64_t timeout_ns = 60 * WEFT_NS_PER_S;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  int32_t *tasks = NULL;
  size_t count = 0;
  weft_status *st;

  if (timeout) WEFT_TRY(weft_option_parse(WEFT_OPT_DURATION, "--timeout", timeout, &timeout_ns));
  WEFT_TRY(open_agent(&argc, &argv, &agent));
  if (argc != 1) return WEFT_ERR(INVALID_ARGUMENT, "barrier: expected one ID");
  if (list) {
    char *end = NULL;
    tasks = calloc(MAX_TASKS, sizeof *tasks);
    WEFT_TRY_ALLOC(tasks);
    for (const char *at = list; count < MAX_TASKS; at = end + 1) {
      tasks[count++] = (int32_t)strtol(at, &end, 10);
      if (end == at || *end != ',') break;
    }
    if (!end || *end) {
      free(tasks);
      return WEFT_ERR(INVALID_ARGUMENT, "--tasks: expected numbers with commas, got \"%s\"", list);
    }
  }
  st = weft_coord_agent_barrier(agent, argv[0], timeout_ns, tasks, count);
  free(tasks);
  return st;
}

static const struct subcommand {
  const char *name;
  weft_status *(*run)(int argc, char **argv);
  const weft_option_table *options;
  const char *usage, *summary;
} subcommands[] = {
  {"serve", serve, &weft_coord_service_option_table, "[OPTIONS]", "run a coordination service until SIGINT or SIGTERM"},
  {"status", status, &weft_coord_agent_option_table, "ADDRESS [--wait] [--watch] [--json] [--flight]",
   "tasks, heartbeats, barriers and who is missing; the collectives of all processes"},
  {"kv", key_value, &weft_coord_agent_option_table, "ADDRESS get KEY [--timeout 10s] | set KEY VALUE | delete KEY | list DIR | increment KEY N", "keys and values"},
  {"barrier", barrier, &weft_coord_agent_option_table, "ADDRESS ID --task N [--tasks 0,1,...] [--timeout 60s]", "wait at a barrier, as that task; an id serves once"},
};

static void print_help(void)
{
  printf("Usage: weft coord SUBCOMMAND ...\n\n");
  for (size_t i = 0; i < WEFT_COUNT(subcommands); i++)
    printf("  %-8s %s\n           %s\n", subcommands[i].name, subcommands[i].usage, subcommands[i].summary);
  printf(
    "\n--wait: wait for the service, 10 s or --init-timeout, where none listens yet; otherwise that is an error at once.\n"
    "`weft coord SUBCOMMAND --help` lists its options.\n");
}

static void print_subcommand_help(const struct subcommand *sub)
{
  printf("Usage: weft coord %s %s\n\n%c%s.\n\nOptions (each is a %s* variable too):\n", sub->name, sub->usage,
         toupper((unsigned char)sub->summary[0]), sub->summary + 1, COORD_PREFIX);
  print_options(sub->options);
}

static bool is_help(const char *arg) { return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0; }

static weft_status *no_subcommand(const char *name)
{
  weft_guess guess = {.word = name};
  char hint[64];

  for (size_t i = 0; i < WEFT_COUNT(subcommands); i++) weft_guess_offer(&guess, subcommands[i].name);
  return WEFT_ERR(INVALID_ARGUMENT, "no subcommand \"%s\"%s (see `weft coord --help`)", name,
                  weft_guess_text(&guess, hint, sizeof hint));
}

int cli_coord_main(int argc, char **argv)
{
  if (argc < 2 || is_help(argv[1])) {
    print_help();
    return argc < 2 ? CLI_USAGE : CLI_OK;
  }
  for (size_t i = 0; i < WEFT_COUNT(subcommands); i++) {
    if (strcmp(argv[1], subcommands[i].name) != 0) continue;
    if (argc < 3 || !is_help(argv[2])) return cli_report("coord", subcommands[i].run(argc - 2, argv + 2));
    print_subcommand_help(&subcommands[i]);
    return CLI_OK;
  }
  return cli_report("coord", no_subcommand(argv[1]));
}
