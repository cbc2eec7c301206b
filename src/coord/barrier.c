/* coord/barrier.c -- barriers: the participants, those that have arrived, and the result that all get.
 *
 * An id is used again and again; each use is an instance with a counter. Callers and the service count separately
 * and compare: a caller whose counter differs has restarted, or is out of step.
 *
 *   unseen --counter 0--> ongoing --all arrived, failed, late, cancelled--> passed --counter + 1--> ongoing ... */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coord/service_internal.h"

/* ---- participants ---- */

bool coord_barrier_has(const coord_barrier *barrier, int32_t task, int32_t *out_index)
{
  int32_t low = 0, high = barrier->count;

  if (task < 0 || !barrier->has_participants) return false;
  if (barrier->is_everyone) {
    *out_index = task;
    return task < barrier->count;
  }
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (barrier->tasks[middle] < task) low = middle + 1;
    else high = middle;
  }
  *out_index = low;
  return low < barrier->count && barrier->tasks[low] == task;
}

static int32_t participant(const coord_barrier *barrier, int32_t index)
{
  return barrier->is_everyone ? index : barrier->tasks[index];
}

/* ---- life of an entry ---- */

static void free_instance(coord_service *service, coord_barrier *barrier)
{
  size_t bytes = (size_t)barrier->count * (sizeof *barrier->arrived + sizeof *barrier->waiters);

  if (!barrier->arrived) return;
  free(barrier->arrived);
  free(barrier->waiters);
  barrier->arrived = NULL;
  barrier->waiters = NULL;
  coord_budget_give(service->config.budget, bytes);
  barrier->charged_bytes -= bytes;
}

static void barrier_free(coord_service *service, coord_barrier *barrier)
{
  HASH_DEL(service->barriers, barrier);
  free_instance(service, barrier);
  coord_budget_give(service->config.budget, barrier->charged_bytes);
  weft_status_free(barrier->result);
  free(barrier->tasks);
  free(barrier->id);
  free(barrier);
}

/* The number of barriers that count against the quota of `owner` (coord_request_owner). */
static size_t *named_by(coord_service *service, int32_t owner)
{
  return owner < service->config.task_count ? &service->tasks[owner].barriers : &service->barriers_of_none;
}

/* The error to report when barrier_new has returned NULL. */
static weft_status *no_barrier(coord_service *service, int32_t owner)
{
  size_t named = *named_by(service, owner), most = service->config.max_task_barriers;

  if (!most || named < most) return COORD_ERR(RESOURCE_EXHAUSTED, "the service's memory limit is reached");
  if (owner == service->config.task_count)
    return COORD_ERR(
      RESOURCE_EXHAUSTED,
      "connections that speak for no task have named %zu barriers, the limit (WEFT_COORD_MAX_TASK_BARRIERS)", named);
  return COORD_ERR(RESOURCE_EXHAUSTED,
                   "task %" PRId32 " has named %zu barriers, the limit (WEFT_COORD_MAX_TASK_BARRIERS)", owner, named);
}

/* A new entry without participants or result: "passed", with the counter before the first instance. */
static coord_barrier *barrier_new(coord_service *service, const char *id, coord_barrier_kind kind, int32_t owner)
{
  size_t bytes = sizeof(coord_barrier) + strlen(id) + 1, most = service->config.max_task_barriers;
  size_t *named = named_by(service, owner);
  coord_barrier *barrier;

  if (kind == COORD_BARRIER_USER && most && *named >= most) return NULL;
  if (!coord_budget_take(service->config.budget, bytes)) return NULL;
  barrier = calloc(1, sizeof *barrier);
  if (barrier) barrier->id = strdup(id);
  if (barrier && barrier->id) {
    barrier->kind = kind;
    barrier->counter = -1;
    barrier->passed = true;
    barrier->charged_bytes = bytes;
    HASH_ADD_KEYPTR(hh, service->barriers, barrier->id, strlen(barrier->id), barrier);
    /* the count never goes down, because the service remembers ids */
    if (barrier->hh.tbl && kind == COORD_BARRIER_USER) ++*named;
    if (barrier->hh.tbl) return barrier;
  }
  if (barrier) free(barrier->id);
  free(barrier);
  coord_budget_give(service->config.budget, bytes);
  return NULL;
}

/* Sets the participants, once and for all. `tasks` is sorted; NULL: everyone. */
static weft_status *set_participants(coord_service *service, coord_barrier *barrier, const int32_t *tasks,
                                     int32_t count)
{
  size_t bytes = (size_t)count * sizeof *tasks;

  barrier->is_everyone = tasks == NULL;
  barrier->count = tasks ? count : service->config.task_count;
  if (tasks) {
    barrier->tasks = coord_budget_take(service->config.budget, bytes) ? malloc(bytes) : NULL;
    if (!barrier->tasks) return COORD_ERR(RESOURCE_EXHAUSTED, "no memory for barrier %s", barrier->id);
    barrier->charged_bytes += bytes;
    memcpy(barrier->tasks, tasks, bytes);
  }
  barrier->has_participants = true;
  return NULL;
}

/* ---- texts ---- */

static double seconds(int64_t ns) { return (double)ns / (double)WEFT_NS_PER_S; }

/* "task 3 (last heartbeat 2.0 s ago), task 5 (not registered)" and how many more. */
static void name_missing(const coord_service *service, const coord_barrier *barrier, int limit, char *buf, size_t size)
{
  size_t n = 0;
  int named = 0;
  int32_t missing = barrier->count - barrier->arrived_count;

  buf[0] = '\0';
  for (int32_t i = 0; i < barrier->count && named < limit; i++) {
    int32_t id = participant(barrier, i);
    const coord_task *task = coord_service_task(service, id);
    char what[64];
    if (barrier->arrived && barrier->arrived[i]) continue;
    if (!task || !task->has_registered) snprintf(what, sizeof what, "not registered");
    else if (task->state == COORD_TASK_ERROR)
      snprintf(what, sizeof what, "in error, last heartbeat %.1f s ago",
               seconds(service->now_ns - task->last_heartbeat_ns));
    else if (task->state == COORD_TASK_DISCONNECTED) snprintf(what, sizeof what, "disconnected");
    else snprintf(what, sizeof what, "last heartbeat %.1f s ago", seconds(service->now_ns - task->last_heartbeat_ns));
    n += (size_t)snprintf(buf + n, size - n, "%stask %" PRId32 " (%s)", named ? ", " : "", id, what);
    if (n >= size) return;
    named++;
  }
  if (missing > named) snprintf(buf + n, size - n, " and %" PRId32 " more", missing - named);
}

/* ---- the end of an instance ---- */

static void answer_register(coord_service *service, coord_call *call, const weft_status *result)
{
  const coord_task *task = &service->tasks[call->task];

  if (result) return coord_answer(service, call, NULL, result);
  if (task->incarnation != call->incarnation)
    return coord_answer_free(
      service, call,
      COORD_ERR(ALREADY_EXISTS, "task %" PRId32 " has been registered by a newer incarnation", call->task));
  coord_service_connect(service, call->task);
  coord_answer(service, call, &(coord_reply){.service_incarnation = service->config.incarnation}, NULL);
}

static void answer_shutdown(coord_service *service, coord_call *call, const weft_status *result)
{
  if (result)
    coord_answer_free(service, call,
                      COORD_ERR(INTERNAL, "Shutdown barrier has failed (%s): %s",
                                weft_code_name(weft_status_code(result)), weft_status_message(result)));
  else coord_answer(service, call, &(coord_reply){0}, NULL);
}

static void answer_waiter(coord_service *service, const coord_barrier *barrier, coord_call *call,
                          const weft_status *result)
{
  switch (barrier->kind) {
  case COORD_BARRIER_REGISTER: answer_register(service, call, result); break;
  case COORD_BARRIER_SHUTDOWN: answer_shutdown(service, call, result); break;
  case COORD_BARRIER_USER: coord_answer(service, call, &(coord_reply){.counter = barrier->counter}, result); break;
  }
}

/* What the end of the service's own barriers means for the tasks. */
static void after_internal(coord_service *service, coord_barrier_kind kind, const weft_status *result)
{
  weft_status *st;

  if (kind == COORD_BARRIER_SHUTDOWN && !result) {
    for (int32_t i = 0; i < service->config.task_count; i++)
      if (!service->tasks[i].recoverable) coord_service_disconnect(service, i);
    return;
  }
  if (!result) return;
  st = COORD_ERR(INTERNAL, "%s barrier has failed (%s): %s",
                 kind == COORD_BARRIER_SHUTDOWN ? "Shutdown" : "Registration", weft_code_name(weft_status_code(result)),
                 weft_status_message(result));
  if (kind == COORD_BARRIER_SHUTDOWN) coord_service_propagate(service, st);
  /* No process may register with this service again: it would meet tasks that have given up. */
  for (int32_t i = 0; i < service->config.task_count; i++) coord_service_set_error(service, i, weft_status_dup(st));
  weft_status_free(st);
}

/* Ends the ongoing instance; takes `result`. */
static void finish(coord_service *service, coord_barrier *barrier, weft_status *result)
{
  barrier->passed = true;
  barrier->result = result;
  DL_DELETE(service->ongoing, barrier);
  for (int32_t i = 0; i < barrier->count; i++) {
    coord_call *call = barrier->waiters[i];
    if (!call) continue;
    barrier->waiters[i] = NULL;
    answer_waiter(service, barrier, call, result);
  }
  free_instance(service, barrier);
  if (barrier->kind != COORD_BARRIER_USER) after_internal(service, barrier->kind, barrier->result);
}

static weft_status *with_id(const coord_barrier *barrier, weft_status *st)
{
  return coord_with_barrier(st, barrier->id, barrier->counter);
}

/* Ends the ongoing instance with an error for all; if it has ended already, only the caller gets the error. Takes
 * st. */
static void fail_for_all(coord_service *service, coord_barrier *barrier, coord_call *call, weft_status *st)
{
  st = with_id(barrier, st);
  answer_waiter(service, barrier, call, st);
  if (barrier->passed) weft_status_free(st);
  else finish(service, barrier, st);
}

/* ---- joining ---- */

/* Starts the instance of this counter. If that fails, the barrier stays passed, and the caller stores the error as
 * its result. */
static weft_status *start(coord_service *service, coord_barrier *barrier, const coord_barrier_request *request,
                          const int32_t *tasks, int32_t count, int64_t counter)
{
  size_t bytes;
  weft_status *st = NULL;

  weft_status_free(WEFT_MOVE(barrier->result));
  barrier->counter = counter;
  barrier->arrived_count = 0;
  barrier->initiator = request->task;
  barrier->started_ns = service->now_ns;
  if (__builtin_add_overflow(service->now_ns, request->timeout_ns, &barrier->deadline_ns))
    barrier->deadline_ns = INT64_MAX;
  if (!barrier->has_participants) {
    for (int32_t i = 0; i < count && !st; i++)
      if (!coord_service_task(service, tasks[i]))
        st = WEFT_ERR(INVALID_ARGUMENT,
                      "Barrier %s names task %" PRId32 ", which is not in the cluster of %" PRId32 " tasks",
                      barrier->id, tasks[i], service->config.task_count);
    if (!st) st = set_participants(service, barrier, tasks, count);
    if (st) return st;
  }
  for (int32_t i = 0; i < barrier->count; i++) {
    int32_t id = participant(barrier, i);
    const coord_task *task = &service->tasks[id];
    if (task->state == COORD_TASK_ERROR && !task->recoverable)
      return WEFT_ERR(INTERNAL, "Barrier %s::%" PRId64 " cannot start: task %" PRId32 " is in error: %s", barrier->id,
                      counter, id, weft_status_message(task->error));
  }
  bytes = (size_t)barrier->count * (sizeof *barrier->arrived + sizeof *barrier->waiters);
  if (!coord_budget_take(service->config.budget, bytes))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the service's memory limit is reached");
  barrier->arrived = calloc((size_t)barrier->count, sizeof *barrier->arrived);
  barrier->waiters = calloc((size_t)barrier->count, sizeof *barrier->waiters);
  barrier->charged_bytes += bytes;
  if (!barrier->arrived || !barrier->waiters) {
    free(barrier->arrived);
    free(barrier->waiters);
    barrier->arrived = NULL;
    barrier->waiters = NULL;
    barrier->charged_bytes -= bytes;
    coord_budget_give(service->config.budget, bytes);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  barrier->passed = false;
  DL_APPEND(service->ongoing, barrier);
  return NULL;
}

static weft_status *counter_mismatch(const coord_barrier *barrier, const coord_barrier_request *request)
{
  bool restarted = request->counter == 0 || barrier->counter == 0;

  return WEFT_ERR(INTERNAL,
                  "Barrier %s: task %" PRId32 " is at instance %" PRId64 " and the service at %" PRId64 ": %s",
                  barrier->id, request->task, request->counter, barrier->counter,
                  restarted ? "one of them has restarted" : "the task is too quick / slow for the others");
}

/* NULL if the caller names the barrier's own participants and is one of them. */
static weft_status *check_participants(const coord_barrier *barrier, const coord_barrier_request *request,
                                       const int32_t *tasks, int32_t count, int32_t *out_index)
{
  bool same = tasks ? !barrier->is_everyone && count == barrier->count &&
                        memcmp(tasks, barrier->tasks, (size_t)count * sizeof *tasks) == 0
                    : barrier->is_everyone;

  if (!same)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "Conflicting tasks specified for barrier %s::%" PRId64 ": task %" PRId32
                    " names %s, the first caller named %s",
                    barrier->id, barrier->counter, request->task, tasks ? "a list" : "everyone",
                    barrier->is_everyone ? "everyone" : "another list");
  if (!coord_barrier_has(barrier, request->task, out_index))
    return WEFT_ERR(INVALID_ARGUMENT, "A non-participating task (%" PRId32 ") called barrier %s::%" PRId64,
                    request->task, barrier->id, barrier->counter);
  return NULL;
}

static void arrive(coord_service *service, coord_barrier *barrier, int32_t index, coord_call *call)
{
  coord_call *older = barrier->waiters[index];

  if (older) {
    barrier->waiters[index] = NULL;
    if (barrier->kind == COORD_BARRIER_REGISTER) /* a code that no agent retries */
      coord_answer_free(service, older, COORD_ERR(ALREADY_EXISTS, "task %" PRId32 " registers again", older->task));
    else
      coord_answer_free(service, older,
                        WEFT_ERR(CANCELLED, "Barrier %s: a newer call of task %" PRId32 " replaces this one",
                                 barrier->id, older->task));
  }
  coord_hold(service, call, COORD_HELD_BARRIER, barrier, NULL);
  barrier->waiters[index] = call;
  if (barrier->arrived[index]) return;
  barrier->arrived[index] = true;
  if (++barrier->arrived_count == barrier->count) finish(service, barrier, NULL);
}

void coord_barrier_join(coord_service *service, const coord_barrier_request *request, coord_call *call)
{
  coord_barrier *barrier;
  const coord_task *task = coord_service_task(service, request->task);
  bool lenient = task && task->recoverable && request->counter == 0 && request->kind == COORD_BARRIER_USER;
  const int32_t *tasks = NULL;
  int32_t count = 0, index;
  weft_status *st;

  if (request->task_count > 0) {
    tasks = coord_task_set(service, request->tasks, request->task_count, &count);
    if (!tasks) return coord_answer_free(service, call, COORD_ERR(RESOURCE_EXHAUSTED, "out of memory"));
    if (count == service->config.task_count && tasks[0] == 0 && tasks[count - 1] == count - 1) { /* all */
      tasks = NULL;
      count = 0;
    }
  }
  HASH_FIND_STR(service->barriers, request->id, barrier);
  if (!barrier) barrier = barrier_new(service, request->id, request->kind, call->owner);
  if (!barrier) return coord_answer_free(service, call, no_barrier(service, call->owner));

  if (barrier->passed && (request->counter == barrier->counter + 1 || (lenient && barrier->counter >= 0))) {
    st = start(service, barrier, request, tasks, count, barrier->counter + 1);
    if (st) {
      barrier->result = with_id(barrier, st);
      answer_waiter(service, barrier, call, barrier->result);
      if (barrier->kind != COORD_BARRIER_USER) after_internal(service, barrier->kind, barrier->result);
      return;
    }
  } else if (barrier->counter < 0) { /* unseen, and the caller is not at instance 0: remembers instance 0 as failed */
    barrier->counter = 0;
    barrier->result = with_id(barrier, counter_mismatch(barrier, request));
    return answer_waiter(service, barrier, call, barrier->result);
  }
  if (request->counter != barrier->counter && !lenient)
    return fail_for_all(service, barrier, call, counter_mismatch(barrier, request));
  if (!barrier->has_participants) /* cancelled or out of step before anyone came */
    return answer_waiter(service, barrier, call, barrier->result);
  st = check_participants(barrier, request, tasks, count, &index);
  if (st) return fail_for_all(service, barrier, call, st);
  if (barrier->passed) return answer_waiter(service, barrier, call, barrier->result);
  arrive(service, barrier, index, call);
}

void coord_barrier_cancel(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_barrier *barrier;
  int32_t index;
  weft_status *st = NULL;

  HASH_FIND_STR(service->barriers, request->barrier_id, barrier);
  /* the cancellation came first: later callers of instance 0 find it cancelled */
  if (!barrier && request->counter == 0) {
    barrier = barrier_new(service, request->barrier_id, COORD_BARRIER_USER, call->owner);
    if (!barrier) return coord_answer_free(service, call, no_barrier(service, call->owner));
    barrier->counter = 0;
    barrier->result =
      with_id(barrier, WEFT_ERR(CANCELLED, "Barrier %s was cancelled by task %" PRId32, barrier->id, request->task));
    return coord_answer(service, call, &(coord_reply){0}, NULL);
  }
  if (!barrier || request->counter != barrier->counter)
    st = COORD_ERR(FAILED_PRECONDITION,
                   "Barrier %s is at instance %" PRId64 ", not %" PRId64 ": likely due to a restart",
                   request->barrier_id, barrier ? barrier->counter : -1, request->counter);
  else if (barrier->passed)
    st =
      COORD_ERR(FAILED_PRECONDITION, "Barrier %s::%" PRId64 " has already been passed", barrier->id, barrier->counter);
  else if (barrier->kind != COORD_BARRIER_USER)
    st = COORD_ERR(PERMISSION_DENIED, "Barrier %s is the service's own", barrier->id);
  else if (!coord_barrier_has(barrier, request->task, &index))
    st = COORD_ERR(PERMISSION_DENIED, "Barrier %s::%" PRId64 " is not task %" PRId32 "'s to cancel", barrier->id,
                   barrier->counter, request->task);
  if (st) return coord_answer_free(service, call, st);
  finish(service, barrier,
         with_id(barrier, WEFT_ERR(CANCELLED, "Barrier %s::%" PRId64 " was cancelled by task %" PRId32, barrier->id,
                                   barrier->counter, request->task)));
  coord_answer(service, call, &(coord_reply){0}, NULL);
}

/* ---- leaving ---- */

/* A caller that is gone no longer counts as arrived. A shutdown stands, since it declares that the process ends: the
 * process may be gone before the barrier opens. */
void coord_barrier_drop(coord_service *service, coord_call *call)
{
  coord_barrier *barrier = call->holder;
  int32_t index;

  (void)service;
  if (!coord_barrier_has(barrier, call->task, &index) || barrier->waiters[index] != call) return;
  barrier->waiters[index] = NULL;
  if (barrier->kind == COORD_BARRIER_SHUTDOWN) return;
  barrier->arrived[index] = false;
  barrier->arrived_count--;
}

static void uncount(coord_service *service, coord_barrier *barrier, int32_t index)
{
  coord_call *call = barrier->waiters[index];

  if (barrier->arrived[index]) {
    barrier->arrived[index] = false;
    barrier->arrived_count--;
  }
  if (!call) return;
  barrier->waiters[index] = NULL;
  coord_answer_free(service, call,
                    WEFT_ERR(CANCELLED, "Barrier %s: task %" PRId32 " has left it", barrier->id, call->task));
}

void coord_barriers_leave(coord_service *service, int32_t task, bool recoverable)
{
  coord_barrier *barrier;
  int32_t index;

again: /* finishing one may finish others: starts again at the front */
  DL_FOREACH(service->ongoing, barrier) {
    if (!coord_barrier_has(barrier, task, &index)) continue;
    if (recoverable) {
      if (barrier->kind != COORD_BARRIER_REGISTER) uncount(service, barrier, index);
      continue;
    }
    if (barrier->kind == COORD_BARRIER_REGISTER) continue;
    finish(service, barrier,
           with_id(barrier, WEFT_ERR(INTERNAL, "Barrier %s::%" PRId64 " has failed: task %" PRId32 " %s%s", barrier->id,
                                     barrier->counter, task,
                                     service->tasks[task].error ? "is in error: " : "disconnected before it opened",
                                     weft_status_message(service->tasks[task].error))));
    goto again;
  }
}

void coord_barriers_expire(coord_service *service)
{
  coord_barrier *barrier;
  char missing[512];

again:
  DL_FOREACH(service->ongoing, barrier) {
    if (service->now_ns < barrier->deadline_ns) continue;
    name_missing(service, barrier, COORD_MAX_NAMES - 1, missing, sizeof missing);
    finish(service, barrier,
           with_id(barrier, WEFT_ERR(DEADLINE_EXCEEDED,
                                     "Barrier timed out. Id: %s::%" PRId64 ". %" PRId32 "/%" PRId32
                                     " tasks arrived in %.1f s; the first was task %" PRId32 ". Missing: %s",
                                     barrier->id, barrier->counter, barrier->arrived_count, barrier->count,
                                     seconds(service->now_ns - barrier->started_ns), barrier->initiator, missing)));
    goto again;
  }
}

int64_t coord_barriers_next_deadline(const coord_service *service)
{
  const coord_barrier *barrier;
  int64_t next = INT64_MAX;

  DL_FOREACH(service->ongoing, barrier) next = WEFT_MIN(next, barrier->deadline_ns);
  return next;
}

void coord_barriers_stop(coord_service *service)
{
  while (service->ongoing) {
    coord_barrier *barrier = service->ongoing;
    barrier->kind = COORD_BARRIER_USER; /* the service ends, so nothing follows from its own barriers */
    finish(service, barrier,
           with_id(barrier, WEFT_ERR(ABORTED, "Barrier %s::%" PRId64 ": the service is shutting down", barrier->id,
                                     barrier->counter)));
  }
}

void coord_barriers_free(coord_service *service)
{
  while (service->barriers) barrier_free(service, service->barriers);
}
