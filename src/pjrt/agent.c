/* pjrt/agent.c -- the coordination agent, for programs that cannot link libweft: a flat table of functions over
 * weft/coord.h.
 *
 * A client that is created with the option weft_agent finds the other processes through the agent, and a thread of
 * the client reports processes that died. So a framework's own agent, if it carries no secret (jaxlib's), is not
 * needed. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include <weft/coord.h>

#include "base/log.h"
#include "base/thread.h"
#include "pjrt/agent.h"
#include "pjrt/extensions.h"

enum { LIVE_TASKS_MS = 3600 * 1000, FIRST_LOOK_MS = 60 * 1000, LOOK_MS = 3600 * 1000 };

struct PJRT_WeftAgent {
  PJRT_WeftAgent *next; /* guarded by agents_mu */
  int refs;             /* guarded by agents_mu: the handle and the clients */
  int64_t id;
  char *address;
  weft_coord_agent_options options;
  weft_coord_agent *agent;
  weft_kv *kv;
  weft_mutex mu;
  weft_coord_preemption *preemption WEFT_GUARDED_BY(mu);
};

static weft_mutex agents_mu = WEFT_MUTEX_INITIALIZER;
static PJRT_WeftAgent *agents WEFT_GUARDED_BY(agents_mu);

/* ---- life ---- */

static void log_failure(void *ctx, const weft_status *error)
{
  const PJRT_WeftAgent *a = ctx;

  WEFT_LOG("coord", ERROR, "process %d: the job has failed: %s", (int)a->options.task_id, weft_status_message(error));
}

static void agent_free(PJRT_WeftAgent *a) WEFT_UNSHARED
{
  weft_coord_preemption_free(a->preemption);
  weft_kv_destroy(a->kv);
  weft_coord_agent_free(a->agent);
  weft_mutex_fini(&a->mu);
  free(a->address);
  free(a);
}

void pjrt_agent_release(PJRT_WeftAgent *a)
{
  if (!a) return;
  weft_mutex_lock(&agents_mu);
  bool is_last = --a->refs == 0;
  for (PJRT_WeftAgent **at = &agents; is_last && *at; at = &(*at)->next)
    if (*at == a) {
      *at = a->next;
      break;
    }
  weft_mutex_unlock(&agents_mu);
  if (is_last) agent_free(a);
}

weft_status *pjrt_agent_find(int64_t id, PJRT_WeftAgent **out_agent)
{
  PJRT_WeftAgent *a;

  weft_mutex_lock(&agents_mu);
  for (a = agents; a && a->id != id; a = a->next) {}
  if (a) a->refs++;
  weft_mutex_unlock(&agents_mu);
  *out_agent = a;
  return a ? NULL
           : WEFT_ERR(INVALID_ARGUMENT, "option weft_agent: there is no agent %lld in this process", (long long)id);
}

weft_status *pjrt_agent_kv(PJRT_WeftAgent *a, weft_kv **out_kv) { return weft_coord_agent_kv(a->agent, out_kv); }

static weft_status *make(PJRT_WeftAgent *a, const char *address, int64_t task, int64_t heartbeat_ms, int64_t init_ms)
{
  weft_coord_agent_options *o = &a->options;

  WEFT_TRY(weft_coord_agent_options_load(o));
  WEFT_TRY_ALLOC(a->address = strdup(address));
  o->address = a->address;
  o->task_id = task;
  if (heartbeat_ms > 0) o->heartbeat_timeout_ns = heartbeat_ms * WEFT_NS_PER_MS;
  if (init_ms > 0) o->init_timeout_ns = init_ms * WEFT_NS_PER_MS;
  o->on_error = log_failure;
  o->on_error_ctx = a;
  WEFT_TRY(weft_coord_agent_new(o, &a->agent));
  return weft_coord_agent_kv(a->agent, &a->kv);
}

static PJRT_Error *create(const char *address, int64_t task, int64_t heartbeat_ms, int64_t init_ms,
                          PJRT_WeftAgent **out_agent, int64_t *out_id) WEFT_UNSHARED
{
  static int64_t last_id; /* guarded by agents_mu */
  PJRT_WeftAgent *a = calloc(1, sizeof *a);

  *out_agent = NULL;
  if (!a) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  weft_mutex_init(&a->mu);
  a->refs = 1;
  weft_status *st = make(a, address, task, heartbeat_ms, init_ms);
  if (st) {
    agent_free(a);
    return pjrt_error(st);
  }
  weft_mutex_lock(&agents_mu);
  *out_id = a->id = ++last_id;
  a->next = agents;
  agents = a;
  weft_mutex_unlock(&agents_mu);
  *out_agent = a;
  return NULL;
}

static PJRT_Error *connect_agent(PJRT_WeftAgent *a) { return pjrt_error(weft_coord_agent_connect(a->agent)); }
static PJRT_Error *shut_down(PJRT_WeftAgent *a) { return pjrt_error(weft_coord_agent_shutdown(a->agent)); }

/* ---- keys ---- */

static PJRT_Error *get(PJRT_WeftAgent *a, const char *key, int64_t timeout_ms, char **out_value, size_t *out_size)
{
  if (timeout_ms < 0) return pjrt_error(weft_kv_try_get(a->kv, key, out_value, out_size));
  return pjrt_error(weft_kv_get(a->kv, key, weft_deadline_after_ms(timeout_ms), out_value, out_size));
}

static PJRT_Error *set(PJRT_WeftAgent *a, const char *key, const void *value, size_t size, bool overwrite)
{
  return pjrt_error(weft_kv_set(a->kv, key, value, size, overwrite));
}

static PJRT_Error *remove_key(PJRT_WeftAgent *a, const char *key) { return pjrt_error(weft_kv_remove(a->kv, key)); }

static PJRT_Error *increment(PJRT_WeftAgent *a, const char *key, int64_t by, int64_t *out_value)
{
  return pjrt_error(weft_coord_agent_increment(a->agent, key, by, out_value));
}

_Static_assert(sizeof(PJRT_WeftAgent_Entry) == sizeof(weft_coord_entry) &&
                 offsetof(PJRT_WeftAgent_Entry, value) == offsetof(weft_coord_entry, value) &&
                 offsetof(PJRT_WeftAgent_Entry, size) == offsetof(weft_coord_entry, size),
               "the same struct by two names");

static PJRT_Error *list(PJRT_WeftAgent *a, const char *directory, PJRT_WeftAgent_Entry **out_entries, size_t *out_count)
{
  weft_coord_entry *entries = NULL;
  weft_status *st = weft_coord_agent_list(a->agent, directory, &entries, out_count);

  *out_entries = (PJRT_WeftAgent_Entry *)entries;
  return pjrt_error(st);
}

/* ---- together with the other processes ---- */

static PJRT_Error *barrier(PJRT_WeftAgent *a, const char *id, int64_t timeout_ms, const int32_t *tasks, size_t count)
{
  return pjrt_error(weft_coord_agent_barrier(a->agent, id, timeout_ms * WEFT_NS_PER_MS, tasks, count));
}

_Static_assert(sizeof(PJRT_WeftAgent_Task) == sizeof(weft_coord_live_task) &&
                 offsetof(PJRT_WeftAgent_Task, incarnation) == offsetof(weft_coord_live_task, incarnation),
               "the same struct by two names");

static PJRT_Error *live_tasks(PJRT_WeftAgent *a, const int32_t *tasks, size_t count, PJRT_WeftAgent_Task **out_tasks,
                              size_t *out_count)
{
  weft_coord_live_task *live = NULL;
  weft_status *st =
    weft_coord_agent_live_tasks(a->agent, tasks, count, weft_deadline_after_ms(LIVE_TASKS_MS), &live, out_count);

  *out_tasks = (PJRT_WeftAgent_Task *)live;
  return pjrt_error(st);
}

/* ---- preemption ---- */

static PJRT_Error *preemption_start(PJRT_WeftAgent *a)
{
  weft_coord_preemption_options options;
  weft_coord_preemption *made = NULL;
  weft_status *st = weft_coord_preemption_options_load(&options);

  if (!st) st = weft_coord_preemption_new(a->agent, &options, &made);
  if (st) return pjrt_error(st);
  weft_mutex_lock(&a->mu);
  bool is_first = !a->preemption;
  if (is_first) a->preemption = made;
  weft_mutex_unlock(&a->mu);
  if (is_first) return NULL;
  weft_coord_preemption_free(made);
  return pjrt_error(WEFT_ERR(FAILED_PRECONDITION, "this agent listens for preemptions already"));
}

static void preemption_stop(PJRT_WeftAgent *a)
{
  weft_mutex_lock(&a->mu);
  weft_coord_preemption *gone = WEFT_MOVE(a->preemption);
  weft_mutex_unlock(&a->mu);
  weft_coord_preemption_free(gone);
}

static PJRT_Error *reached_sync_point(PJRT_WeftAgent *a, int64_t step, bool *out_reached)
{
  weft_status *st = NULL;

  *out_reached = false;
  weft_mutex_lock(&a->mu); /* preemption_stop waits until this call has its answer */
  if (a->preemption) *out_reached = weft_coord_preemption_reached_sync_point(a->preemption, step);
  else st = WEFT_ERR(FAILED_PRECONDITION, "this agent does not listen for preemptions");
  weft_mutex_unlock(&a->mu);
  return pjrt_error(st);
}

PJRT_WeftAgent_Extension pjrt_agent_extension = {
    .base = {.struct_size = sizeof(PJRT_WeftAgent_Extension), .type = PJRT_Extension_Type_WeftAgent},
    .create = create, .destroy = pjrt_agent_release, .connect = connect_agent, .shutdown = shut_down,
    .get = get, .set = set, .remove = remove_key, .increment = increment, .list = list,
    .barrier = barrier, .live_tasks = live_tasks,
    .preemption_start = preemption_start, .preemption_stop = preemption_stop, .reached_sync_point = reached_sync_point,
    .free_block = free};

/* ---- the watch of processes ---- */

/* The observer is an agent of its own: it sees the other processes' states even after the first agent has learnt that
 * the job has failed. */
struct pjrt_watch {
  void (*take)(void *ctx, const PJRT_ProcessInfo *info);
  void *ctx; /* borrowed: it outlives the watch */
  weft_coord_agent *observer;
  int64_t version;
  pthread_t thread;
  bool has_thread;
  atomic_bool ends; /* the watch is being ended */
};

/* Waits for the next change of states and passes them to `take`. False: no more changes will come. */
static bool look(pjrt_watch *watch, weft_deadline deadline)
{
  weft_coord_task_info *infos = NULL;
  size_t count = 0;
  weft_status *st = weft_coord_agent_watch(watch->observer, &watch->version, deadline, &infos, &count);

  for (size_t i = 0; i < count; i++) {
    const char *text = infos[i].error_message ? infos[i].error_message : "";
    watch->take(watch->ctx, &(PJRT_ProcessInfo){.struct_size = sizeof(PJRT_ProcessInfo),
                                                .task_id = infos[i].task,
                                                .incarnation_id = infos[i].incarnation,
                                                .state = (PJRT_ProcessState)infos[i].state,
                                                .error_code = (int)infos[i].error_code,
                                                .error_message = text,
                                                .error_message_size = strlen(text)});
  }
  free(infos);
  bool goes_on = st ? weft_status_code(st) == WEFT_DEADLINE_EXCEEDED : watch->version >= 0;
  weft_status_free(st);
  return goes_on;
}

static void *watch_all(void *arg)
{
  pjrt_watch *watch = arg;

  /* pjrt_agent_unwatch shuts the observer down: a wait that has begun ends then, and one that begins later fails */
  while (!atomic_load(&watch->ends) && look(watch, weft_deadline_after_ms(LOOK_MS))) {}
  return NULL;
}

weft_status *pjrt_agent_watch(PJRT_WeftAgent *a, void (*take)(void *ctx, const PJRT_ProcessInfo *info), void *ctx,
                              pjrt_watch **out_watch)
{
  weft_coord_agent_options options = a->options;
  pjrt_watch *watch = calloc(1, sizeof *watch);
  weft_status *st;

  *out_watch = NULL;
  WEFT_TRY_ALLOC(watch);
  *watch = (pjrt_watch){.take = take, .ctx = ctx, .version = -1};
  options.on_error = NULL;
  st = weft_coord_agent_new(&options, &watch->observer);
  if (!st) st = weft_coord_agent_observe(watch->observer);
  if (!st && (!look(watch, weft_deadline_after_ms(FIRST_LOOK_MS)) || watch->version < 0))
    st = WEFT_ERR(UNAVAILABLE, "the coordination service at %s does not say which processes there are", a->address);
  if (!st) st = weft_thread_start(&watch->thread, "weft-watch", watch_all, watch);
  watch->has_thread = !st;
  if (st) pjrt_agent_unwatch(watch);
  else *out_watch = watch;
  return st;
}

void pjrt_agent_unwatch(pjrt_watch *watch)
{
  if (!watch) return;
  atomic_store(&watch->ends, true);
  if (watch->observer) weft_status_ignore(weft_coord_agent_shutdown(watch->observer));
  if (watch->has_thread) pthread_join(watch->thread, NULL);
  weft_coord_agent_free(watch->observer);
  free(watch);
}
