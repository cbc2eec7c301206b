/* collective/settings.c -- WEFT_COLLECTIVE_* and the flags that XLA users know. */
#include <config.h>

#include "collective/settings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/host/schedule.h"

#define ROW(name, type, default_text, member, ...) /* the help, and what is allowed */ \
  {"WEFT_COLLECTIVE_" name, WEFT_OPT_##type, default_text, offsetof(coll_settings, member), __VA_ARGS__}
#define OR_ALGORITHM(name, text) "|" text
static const weft_option options[] = {
  ROW("TIMEOUT", DURATION, "300s", timeout_ns, "Longest time from posting a collective to its end; 0: none."),
  ROW("WARN", DURATION, "20s", warn_ns, "After this time a pending collective is logged as stuck; 0: never."),
  ROW("CONNECT_TIMEOUT", DURATION, "120s", connect_ns, "Longest creation or split of a communicator; 0: none."),
  ROW("DIAGNOSE", DURATION, "500ms", diagnose_ns, "Longest wait for other ranks' answers when a deadline passed."),
  ROW("SPIN", DURATION, "50us", spin_ns, "How long the progress thread and waiters poll before they sleep."),
  ROW("ORDER", STRING, "fast", order, "fast: same bits every run; rank: same bits for every algorithm and transport.", "fast|rank"),
  ROW("ALGORITHM", STRING, "", algorithm, "Algorithm to use wherever it applies; empty: by the table.", COLL_ALGORITHMS(OR_ALGORITHM)),
  ROW("TABLE", STRING, "", table, "File of the algorithm table (weft bench collectives --tune writes it)."),
  ROW("TRANSPORT", STRING, "auto", transport, "Between processes of one node: auto and shm (shared memory) or fabric.", "auto|shm|fabric"),
  ROW("INTERFACE", STRING, "", interface, "Network interface or address to use; empty: the first that is not loopback."),
  ROW("NODE", STRING, "", node, "Label of this node; empty: the booted kernel and its network namespace."),
  ROW("INTEGRITY", STRING, "headers", integrity, "What is authenticated of messages over libfabric: headers (and the first KiB), or payload (all; it is encrypted then).", "headers|payload"),
  ROW("TLS", BOOL, "0", tls, "Encrypts all messages over libfabric, as INTEGRITY=payload does.  Control connections over a network always are."),
  ROW("RING", BYTES, "256K", ring_bytes, "Shared memory of each direction between two ranks of a node.", "8K..1G"),
  ROW("FLIGHT_ENTRIES", INT, "256", flight_entries, "Operations that the flight recorder keeps for each rank.", "1..1048576"),
  ROW("FLIGHT_DIR", STRING, "", flight_dir, "Directory of flight recorder files, which survive the process."),
  ROW("SIGNAL", BOOL, "0", dump_on_signal, "SIGUSR1 prints what is pending and the last operations on standard error, all of the recorder to a file of FLIGHT_DIR."),
  ROW("FAULTS", STRING, "", faults, "Faults to inject between processes, for tests: see docs/collectives.md."),
};
const weft_option_table coll_option_table = {"collective", options, WEFT_COUNT(options)};

static coll_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The value of "--name=12" in XLA_FLAGS, in seconds; -1 if it is not given. */
static double xla_flag_s(const char *name)
{
  const char *flags = getenv("XLA_FLAGS"), *found = flags ? strstr(flags, name) : NULL;
  size_t length = strlen(name);
  char *end;

  if (!found || found[length] != '=') return -1;
  double seconds = strtod(found + length + 1, &end);
  return end == found + length + 1 ? -1 : seconds < 0 ? 0 : seconds;
}

static void from_xla(const char *ours, const char *theirs, int64_t *out_ns)
{
  double seconds = xla_flag_s(theirs);
  if (seconds >= 0 && seconds < 9e9 && !getenv(ours)) *out_ns = (int64_t)(seconds * 1e9);
}

static void load(void)
{
  /* One option at a time, so that a bad value affects only its own option. */
  for (size_t i = 0; i < coll_option_table.count; i++) {
    const weft_option *o = &options[i];
    weft_option_table row = {"collective", o, 1};
    weft_status *st = weft_options_load(&row, &settings);
    if (!st) continue;
    WEFT_LOG("coll", WARN, "%s; using %s", weft_status_message(st), o->default_text);
    weft_status_ignore(st);
    weft_status_ignore(weft_option_parse(o->type, o->name, o->default_text, (char *)&settings + o->offset));
  }
  from_xla("WEFT_COLLECTIVE_TIMEOUT", "--xla_cpu_collective_call_terminate_timeout_seconds", &settings.timeout_ns);
  from_xla("WEFT_COLLECTIVE_TIMEOUT", "--xla_cpu_collective_timeout_seconds", &settings.timeout_ns);
  from_xla("WEFT_COLLECTIVE_WARN", "--xla_cpu_collective_call_warn_stuck_timeout_seconds", &settings.warn_ns);
  while (settings.ring_bytes & (settings.ring_bytes - 1))
    settings.ring_bytes += settings.ring_bytes & -settings.ring_bytes;
}

const coll_settings *coll_settings_get(void)
{
  pthread_once(&once, load);
  return &settings;
}

bool coll_settings_seal_whole(void)
{
  const coll_settings *s = coll_settings_get();
  return s->tls || strcmp(s->integrity, "payload") == 0;
}
