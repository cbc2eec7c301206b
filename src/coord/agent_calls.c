/* coord/agent_calls.c -- the agent's blocking functions: keys, barriers, liveness, watches, status. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coord/agent_internal.h"
#include "coord/wire/codec.h"
#include "coord/wire/coord_admin.pb-c.h"
#include "coord/wire/wire_status.h"

static int64_t prompt_deadline(void) { return weft_deadline_after_ns(COORD_PROMPT_NS).at_ns; }

/* ---- keys and values ---- */

typedef struct value_out {
  char **value;
  size_t *size;
} value_out;

static weft_status *take_value(coord_agent_call *call, const coord_reply *reply)
{
  const value_out *out = call->out;
  const coord_entry *entry = &reply->entries[0];
  char *copy = malloc(entry->value_size + 1);

  WEFT_TRY_ALLOC(copy);
  if (entry->value_size > 0) memcpy(copy, entry->value, entry->value_size);
  copy[entry->value_size] = '\0';
  *out->value = copy;
  *out->size = entry->value_size;
  return NULL;
}

typedef struct agent_kv {
  weft_kv base;
  weft_coord_agent *agent;
} agent_kv;

static weft_coord_agent *agent_of(weft_kv *kv) { return WEFT_CONTAINER_OF(kv, agent_kv, base)->agent; }

static weft_status *kv_get(weft_kv *kv, const char *key, weft_deadline deadline, char **out_value, size_t *out_size)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_GET_KEY_VALUE, .key = key}, .retry = COORD_RETRY_LOST, .deadline_ns = deadline.at_ns},
    .take = take_value, .out = &(value_out){out_value, out_size},
  };

  *out_value = NULL;
  *out_size = 0;
  return coord_agent_run(agent_of(kv), &call);
}

static weft_status *kv_try_get(weft_kv *kv, const char *key, char **out_value, size_t *out_size)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_TRY_GET_KEY_VALUE, .key = key}, .retry = COORD_RETRY_LOST, .deadline_ns = prompt_deadline()},
    .take = take_value, .out = &(value_out){out_value, out_size},
  };

  *out_value = NULL;
  *out_size = 0;
  return coord_agent_run(agent_of(kv), &call);
}

static weft_status *kv_set(weft_kv *kv, const char *key, const void *value, size_t size, bool overwrite)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_INSERT_KEY_VALUE, .key = key, .value = value, .value_size = size, .overwrite = overwrite},
           .retry = overwrite ? COORD_RETRY_LOST : COORD_RETRY_NEVER, .deadline_ns = prompt_deadline()},
  };

  return coord_agent_run(agent_of(kv), &call);
}

static weft_status *kv_remove(weft_kv *kv, const char *key)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_DELETE_KEY_VALUE, .key = key}, .retry = COORD_RETRY_LOST, .deadline_ns = prompt_deadline()},
  };

  return coord_agent_run(agent_of(kv), &call);
}

static void kv_destroy(weft_kv *kv) { free(WEFT_CONTAINER_OF(kv, agent_kv, base)); }

static const weft_kv_ops agent_kv_ops = {
  .size = sizeof(weft_kv_ops), .name = "coordination agent", .get = kv_get, .try_get = kv_try_get, .set = kv_set,
  .remove = kv_remove, .destroy = kv_destroy,
};

weft_status *weft_coord_agent_kv(weft_coord_agent *agent, weft_kv **out_kv)
{
  agent_kv *kv = calloc(1, sizeof *kv);

  *out_kv = NULL;
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &agent_kv_ops;
  kv->agent = agent;
  *out_kv = &kv->base;
  return NULL;
}

static weft_status *take_number(coord_agent_call *call, const coord_reply *reply)
{
  const coord_entry *entry = &reply->entries[0];
  char text[32], *end;
  size_t size = WEFT_MIN(entry->value_size, sizeof text - 1);

  memcpy(text, entry->value, size);
  text[size] = '\0';
  errno = 0;
  *(int64_t *)call->out = strtoll(text, &end, 10);
  if (end == text || *end || errno) return WEFT_ERR(INTERNAL, "IncrementKeyValue: the service answered \"%s\"", text);
  return NULL;
}

weft_status *weft_coord_agent_increment(weft_coord_agent *agent, const char *key, int64_t increment, int64_t *out_value)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_INCREMENT_KEY_VALUE, .key = key, .increment = increment}, .deadline_ns = prompt_deadline()},
    .take = take_number, .out = out_value,
  };

  return coord_agent_run(agent, &call);
}

/* ---- lists: one block that holds the array and, behind it, what its members point to ---- */

static char *append(char **cursor, const void *data, size_t size)
{
  char *copy = *cursor;

  if (size > 0) memcpy(copy, data, size);
  copy[size] = '\0';
  *cursor += size + 1;
  return copy;
}

typedef struct entries_out {
  weft_coord_entry **entries;
  size_t *count;
} entries_out;

static weft_status *take_entries(coord_agent_call *call, const coord_reply *reply)
{
  const entries_out *out = call->out;
  size_t bytes = reply->entry_count * sizeof(weft_coord_entry) + 1;
  weft_coord_entry *list;
  char *cursor;

  for (size_t i = 0; i < reply->entry_count; i++)
    bytes += strlen(reply->entries[i].key) + reply->entries[i].value_size + 2;
  list = malloc(bytes);
  WEFT_TRY_ALLOC(list);
  cursor = (char *)(list + reply->entry_count);
  for (size_t i = 0; i < reply->entry_count; i++) {
    const coord_entry *entry = &reply->entries[i];
    list[i].key = append(&cursor, entry->key, strlen(entry->key));
    list[i].value = append(&cursor, entry->value, entry->value_size);
    list[i].size = entry->value_size;
  }
  *out->entries = list;
  *out->count = reply->entry_count;
  return NULL;
}

weft_status *weft_coord_agent_list(weft_coord_agent *agent, const char *directory, weft_coord_entry **out_entries,
                                   size_t *out_count)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_GET_KEY_VALUE_DIR, .key = directory}, .retry = COORD_RETRY_LOST, .deadline_ns = prompt_deadline()},
    .take = take_entries, .out = &(entries_out){out_entries, out_count},
  };

  *out_entries = NULL;
  *out_count = 0;
  return coord_agent_run(agent, &call);
}

/* ---- barriers ---- */

weft_status *weft_coord_agent_barrier(weft_coord_agent *agent, const char *id, int64_t timeout_ns, const int32_t *tasks,
                                      size_t count)
{
  int64_t limit = WEFT_MAX(timeout_ns, 0);
  coord_agent_call call = {
    .op = {.request = {.method = COORD_BARRIER, .barrier_id = id, .timeout_ms = limit / WEFT_NS_PER_MS + (limit % WEFT_NS_PER_MS != 0),
                       .tasks = tasks, .task_count = count},
           .retry = COORD_RETRY_LOST,
           .deadline_ns = weft_deadline_after_ns(limit > INT64_MAX - COORD_GRACE_NS ? INT64_MAX : limit + COORD_GRACE_NS).at_ns},
  };

  return coord_agent_run(agent, &call);
}

weft_status *weft_coord_agent_barrier_cancel(weft_coord_agent *agent, const char *id)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_CANCEL_BARRIER, .barrier_id = id}, .deadline_ns = prompt_deadline()},
  };

  return coord_agent_run(agent, &call);
}

/* ---- liveness ---- */

typedef struct live_out {
  weft_coord_live_task **tasks;
  size_t *count;
} live_out;

static weft_status *take_live(coord_agent_call *call, const coord_reply *reply)
{
  const live_out *out = call->out;
  weft_coord_live_task *list = malloc(reply->task_count * sizeof *list + 1);

  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < reply->task_count; i++)
    list[i] = (weft_coord_live_task){.task = reply->tasks[i], .incarnation = reply->incarnations[i]};
  *out->tasks = list;
  *out->count = reply->task_count;
  return NULL;
}

weft_status *weft_coord_agent_live_tasks(weft_coord_agent *agent, const int32_t *tasks, size_t count,
                                         weft_deadline deadline, weft_coord_live_task **out_tasks, size_t *out_count)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_GET_ALIVE_TASKS, .tasks = tasks, .task_count = count}, .retry = COORD_RETRY_LOST,
           .deadline_ns = deadline.at_ns},
    .take = take_live, .out = &(live_out){out_tasks, out_count},
  };

  *out_tasks = NULL;
  *out_count = 0;
  return coord_agent_run(agent, &call);
}

typedef struct infos_out {
  int64_t *version;
  weft_coord_task_info **infos;
  size_t *count;
} infos_out;

static int compare_infos(const void *a, const void *b)
{
  int32_t x = ((const weft_coord_task_info *)a)->task, y = ((const weft_coord_task_info *)b)->task;

  return (x > y) - (x < y);
}

static weft_status *take_infos(coord_agent_call *call, const coord_reply *reply)
{
  const infos_out *out = call->out;
  size_t bytes = reply->info_count * sizeof(weft_coord_task_info) + 1;
  weft_coord_task_info *list;
  char *cursor;

  for (size_t i = 0; i < reply->info_count; i++) bytes += strlen(reply->infos[i].error_message) + 1;
  list = malloc(bytes);
  WEFT_TRY_ALLOC(list);
  cursor = (char *)(list + reply->info_count);
  for (size_t i = 0; i < reply->info_count; i++) {
    const coord_task_info *info = &reply->infos[i];
    list[i] = (weft_coord_task_info){.task = info->task,
                                     .state = (weft_coord_task_state)info->state,
                                     .incarnation = info->incarnation,
                                     .error_code = (weft_code)info->error_code};
    list[i].error_message = append(&cursor, info->error_message, strlen(info->error_message));
  }
  qsort(list, reply->info_count, sizeof *list, compare_infos);
  *out->version = reply->version;
  *out->infos = list;
  *out->count = reply->info_count;
  return NULL;
}

weft_status *weft_coord_agent_watch(weft_coord_agent *agent, int64_t *version, weft_deadline deadline,
                                    weft_coord_task_info **out_infos, size_t *out_count)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_WATCH_TASKS, .version = *version}, .retry = COORD_RETRY_LOST, .deadline_ns = deadline.at_ns},
    .take = take_infos, .out = &(infos_out){version, out_infos, out_count},
  };

  *out_infos = NULL;
  *out_count = 0;
  return coord_agent_run(agent, &call);
}

weft_status *weft_coord_agent_report_error(weft_coord_agent *agent, weft_code code, const char *message)
{
  coord_agent_call call = {
    .op = {.request = {.method = COORD_REPORT_ERROR, .error_code = code, .error_message = message},
           .deadline_ns = weft_deadline_after_ns(COORD_LAST_WORD_NS).at_ns},
  };

  return coord_agent_run(agent, &call);
}

/* ---- status ---- */

typedef struct status_call {
  coord_job job;
  weft_coord_agent *agent;
  weft_event *ended;
  weft_coord_status_report *report;
} status_call;

/* The report and all that it points to live in its arena. */
typedef struct status_report {
  weft_coord_status_report base;
  weft_arena arena;
} status_report;

static weft_coord_protection protection_of(const Ca__Protection *m)
{
  if (!m) return (weft_coord_protection){.has_secret = false};
  return (weft_coord_protection){
    .has_secret = m->has_secret,
    .has_tls = m->has_tls,
    .asks_certificates = m->asks_certificates,
    .lets_anyone_in = m->lets_anyone_in,
    .hosts = m->hosts,
    .by_secret = m->by_secret,
    .by_certificate = m->by_certificate,
    .by_uid = m->by_uid,
    .by_host = m->by_host,
    .by_anyone = m->by_anyone,
    .strangers = m->strangers,
    .refused_calls = m->refused_calls,
  };
}

static weft_status *fill_report(status_report *report, const Ca__StatusResponse *m)
{
  weft_arena *arena = &report->arena;
  weft_coord_status_task *tasks = WEFT_ARENA_ARRAY(arena, weft_coord_status_task, m->n_tasks);
  weft_coord_status_barrier *barriers = WEFT_ARENA_ARRAY(arena, weft_coord_status_barrier, m->n_barriers);

  if (!tasks || !barriers) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  report->base = (weft_coord_status_report){
    .service_incarnation = m->service_incarnation,
    .uptime_ms = m->uptime_ms,
    .heartbeat_timeout_ms = m->heartbeat_timeout_ms,
    .keys = m->keys,
    .key_value_bytes = m->key_value_bytes,
    .waiting_gets = m->waiting_gets,
    .connections = m->connections,
    .memory_bytes = m->memory_bytes,
    .first_error = weft_arena_strdup(arena, m->first_error),
    .protection = protection_of(m->protection),
    .tasks = tasks,
    .task_count = m->n_tasks,
    .barriers = barriers,
    .barrier_count = m->n_barriers,
  };
  WEFT_TRY_ALLOC(report->base.first_error);
  for (size_t i = 0; i < m->n_tasks; i++) {
    const Ca__Task *t = m->tasks[i];
    tasks[i] = (weft_coord_status_task){
      .info = {.task = t->task_id,
               .state = (weft_coord_task_state)t->state,
               .incarnation = t->incarnation,
               .error_code = (weft_code)t->error_code,
               .error_message = weft_arena_strdup(arena, t->error_message)},
      .heartbeat_age_ms = t->heartbeat_age_ms,
      .lost_ms = t->lost_ms,
      .recoverable = t->recoverable,
    };
    WEFT_TRY_ALLOC(tasks[i].info.error_message);
  }
  for (size_t i = 0; i < m->n_barriers; i++) {
    const Ca__Barrier *b = m->barriers[i];
    barriers[i] = (weft_coord_status_barrier){
      .id = weft_arena_strdup(arena, b->id),
      .counter = b->counter,
      .age_ms = b->age_ms,
      .left_ms = b->left_ms,
      .arrived = b->arrived,
      .participants = b->participants,
      .missing = weft_arena_memdup(arena, b->missing ? (const void *)b->missing : "", b->n_missing * sizeof(int32_t)),
      .missing_count = b->n_missing,
    };
    if (!barriers[i].id || !barriers[i].missing) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  return NULL;
}

static status_report *report_new(void)
{
  status_report *report = calloc(1, sizeof *report);

  if (report) weft_arena_init(&report->arena);
  return report;
}

void weft_coord_status_report_free(weft_coord_status_report *base)
{
  status_report *report;

  if (!base) return;
  report = WEFT_CONTAINER_OF(base, status_report, base);
  weft_arena_fini(&report->arena);
  free(report);
}

static void on_status(void *ctx, weft_status *error, const uint8_t *message, size_t size)
{
  status_call *call = ctx;
  status_report *report = NULL;
  Ca__StatusResponse *m = error ? NULL : ca__status_response__unpack(NULL, size, message);

  if (!error && !m) error = WEFT_ERR(INTERNAL, "the service's status is no StatusResponse");
  if (m) {
    report = report_new();
    error = report ? fill_report(report, m) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    ca__status_response__free_unpacked(m, NULL);
  }
  if (error && report) weft_coord_status_report_free(&report->base);
  if (!error) call->report = &report->base;
  weft_event_set(call->ended, error);
}

static void begin_status(coord_job *job)
{
  status_call *call = WEFT_CONTAINER_OF(job, status_call, job);
  coord_h2_call *h2_call;
  weft_status *st = coord_agent_dial(call->agent);

  if (!st) st = coord_h2_start(call->agent->conn.h2, "/weft.coord.Admin/Status", "", 0, on_status, call, &h2_call);
  if (st) weft_event_set(call->ended, st);
  else coord_conn_touch(&call->agent->conn);
}

/* The status that any service of the protocol can give. */
static weft_status *partial_status(weft_coord_agent *agent, weft_coord_status_report **out_report)
{
  weft_coord_task_info *infos;
  weft_coord_status_task *tasks;
  size_t count;
  int64_t version = -1;
  status_report *report;

  WEFT_TRY(weft_coord_agent_watch(agent, &version, weft_deadline_after_ns(COORD_PROMPT_NS), &infos, &count));
  report = report_new();
  tasks = report ? WEFT_ARENA_ARRAY(&report->arena, weft_coord_status_task, count) : NULL;
  if (tasks)
    report->base =
      (weft_coord_status_report){.is_partial = true, .first_error = "", .tasks = tasks, .task_count = count};
  for (size_t i = 0; tasks && i < count; i++) {
    tasks[i] = (weft_coord_status_task){.info = infos[i], .heartbeat_age_ms = -1, .lost_ms = -1};
    tasks[i].info.error_message = weft_arena_strdup(&report->arena, infos[i].error_message);
    if (!tasks[i].info.error_message) tasks = NULL;
  }
  free(infos);
  if (!tasks) {
    if (report) weft_coord_status_report_free(&report->base);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out_report = &report->base;
  return NULL;
}

weft_status *weft_coord_agent_status(weft_coord_agent *agent, weft_coord_status_report **out_report)
{
  status_call call = {.job.run = begin_status, .agent = agent};
  weft_status *st;

  *out_report = NULL;
  if (pthread_equal(pthread_self(), agent->thread))
    return WEFT_ERR(FAILED_PRECONDITION, "a blocking call from the agent's own callback");
  WEFT_TRY(weft_event_new(&call.ended));
  coord_loop_post(agent->loop, &call.job);
  st = weft_event_await(call.ended, WEFT_NO_DEADLINE); /* TCP's time-outs bound it: coord_socket_tune */
  weft_event_release(call.ended);
  *out_report = call.report;
  if (!st || weft_status_code(st) != WEFT_UNIMPLEMENTED) return st;
  weft_status_free(st);
  return partial_status(agent, out_report);
}
