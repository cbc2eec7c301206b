/* coord/service.c -- tasks: registration, heartbeats, errors, shutdown, watches. */
#include <config.h>

#include "coord/service.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coord/service_internal.h"
#include "coord/wire/codec.h"

enum { STALE_CHECKS_PER_TIMEOUT = 10 };

/* ---- calls ---- */

/* Does a held call count against WEFT_COORD_MAX_TASK_WAITS? Calls that a task makes one at a time (registration,
 * error poll, shutdown) do not: a task that has used up its quota still lives and ends like any other. */
static bool is_in_quota(const coord_call *call)
{
  switch (call->method) {
  case COORD_WATCH_TASKS:
  case COORD_GET_KEY_VALUE:
  case COORD_BARRIER:
  case COORD_GET_ALIVE_TASKS: return true;
  default: return false;
  }
}

/* The number of held calls that count against the same quota as `call`. */
static size_t *held_beside(coord_service *service, const coord_call *call)
{
  return call->owner < service->config.task_count ? &service->tasks[call->owner].held : &service->held_of_none;
}

void coord_hold(coord_service *service, coord_call *call, int where, void *holder, coord_call **list)
{
  call->held = where;
  call->holder = holder;
  service->held++;
  *held_beside(service, call) += is_in_quota(call);
  if (list) DL_APPEND(*list, call);
}

static void held_no_more(coord_service *service, coord_call *call)
{
  service->held--;
  *held_beside(service, call) -= is_in_quota(call);
  call->held = COORD_HELD_NOWHERE;
}

/* Takes the call out of the list that holds it; barriers and polls have no lists. */
static void unlink_call(coord_service *service, coord_call *call)
{
  switch (call->held) {
  case COORD_HELD_WATCH: DL_DELETE(service->watchers, call); break;
  case COORD_HELD_GET: DL_DELETE(((coord_wait *)call->holder)->calls, call); break;
  case COORD_HELD_ALIVE: DL_DELETE(((coord_round *)call->holder)->calls, call); break;
  case COORD_HELD_BARRIER:
  case COORD_HELD_POLL:
  case COORD_HELD_NOWHERE: break;
  }
  if (call->held != COORD_HELD_NOWHERE) held_no_more(service, call);
  call->holder = NULL;
}

void coord_answer(coord_service *service, coord_call *call, const coord_reply *reply, const weft_status *error)
{
  unlink_call(service, call);
  service->config.answer(service->config.answer_ctx, call, reply, error);
}

void coord_answer_free(coord_service *service, coord_call *call, weft_status *error)
{
  coord_answer(service, call, NULL, error);
  weft_status_free(error);
}

void coord_service_drop(coord_service *service, coord_call *call)
{
  switch (call->held) {
  case COORD_HELD_NOWHERE: return;
  case COORD_HELD_BARRIER: coord_barrier_drop(service, call); break;
  case COORD_HELD_POLL: ((coord_task *)call->holder)->poll = NULL; break;
  case COORD_HELD_WATCH: DL_DELETE(service->watchers, call); break;
  case COORD_HELD_GET: coord_kv_drop(service, call); break;
  case COORD_HELD_ALIVE: coord_alive_drop(service, call); break;
  }
  held_no_more(service, call);
}

size_t coord_service_held(const coord_service *service) { return service->held; }

/* ---- tasks ---- */

coord_task *coord_service_task(const coord_service *service, int32_t task)
{
  return task >= 0 && task < service->config.task_count ? &service->tasks[task] : NULL;
}

coord_task_state coord_service_task_state(const coord_service *service, int32_t task)
{
  return service->tasks[task].state;
}

uint64_t coord_service_task_incarnation(const coord_service *service, int32_t task)
{
  return service->tasks[task].incarnation;
}

static weft_status *unknown_task(const coord_service *service, int32_t task)
{
  return COORD_ERR(INVALID_ARGUMENT, "task %" PRId32 " is not in the cluster of %" PRId32 " tasks", task,
                   service->config.task_count);
}

static void task_changed(coord_service *service)
{
  service->version++;
  service->version_changed = true;
  service->watch_share = 0;
  service->liveness_changed = true;
}

static void cancel_poll(coord_service *service, coord_task *task, const char *why)
{
  coord_call *poll = task->poll;

  if (!poll) return;
  task->poll = NULL;
  coord_answer_free(service, poll, COORD_ERR(CANCELLED, "error polling of task %" PRId32 " ends: %s", poll->task, why));
}

static void clear_error(coord_task *task)
{
  weft_status_free(WEFT_MOVE(task->error));
  task->lost = task->is_reported = false;
}

void coord_service_connect(coord_service *service, int32_t id)
{
  coord_task *task = &service->tasks[id];

  clear_error(task);
  task->state = COORD_TASK_CONNECTED;
  task->last_heartbeat_ns = service->now_ns;
  task_changed(service);
}

void coord_service_disconnect(coord_service *service, int32_t id)
{
  coord_task *task = &service->tasks[id];

  if (task->state == COORD_TASK_DISCONNECTED) return;
  clear_error(task);
  task->state = COORD_TASK_DISCONNECTED;
  task->grace_until_ns = service->now_ns + service->config.heartbeat_timeout_ns;
  task_changed(service);
  coord_barriers_leave(service, id, task->recoverable);
  cancel_poll(service, task, "it disconnects");
}

void coord_service_set_error(coord_service *service, int32_t id, weft_status *st)
{
  coord_task *task = &service->tasks[id];

  if (task->state == COORD_TASK_ERROR) return weft_status_free(st);
  task->state = COORD_TASK_ERROR;
  task->error = st;
  task_changed(service);
  coord_barriers_leave(service, id, task->recoverable);
}

void coord_service_propagate(coord_service *service, const weft_status *st)
{
  if (service->config.recoverable) return;
  if (!service->polled) { /* no task polls for errors: all get it with their next heartbeat */
    for (int32_t i = 0; i < service->config.task_count; i++)
      coord_service_set_error(service, i, COORD_ERR(INTERNAL, "another task failed: %s", weft_status_message(st)));
    return;
  }
  if (!service->first_error) service->first_error = weft_status_dup(st);
  for (int32_t i = 0; i < service->config.task_count; i++) {
    coord_call *poll = service->tasks[i].poll;
    if (!poll) continue;
    service->tasks[i].poll = NULL;
    coord_answer(service, poll, NULL, st);
  }
}

/* The task fails with st, and the other tasks get the error. Takes st. */
static void fail_task(coord_service *service, int32_t id, weft_status *st)
{
  coord_service_set_error(service, id, weft_status_dup(st));
  if (!service->tasks[id].recoverable) coord_service_propagate(service, st);
  weft_status_free(st);
}

/* ---- registration and heartbeats ---- */

/* Does another process register in the name of a connected task? A restarted process has lost its old connection: a
 * process that registers beside a living connection is another one, and no reason to fail the task. If processes may
 * come back, the newer process counts, because the end of the old connection may have been lost in the network. */
static bool is_impostor(const coord_task *task, const coord_request *request)
{
  if (task->state != COORD_TASK_CONNECTED || !coord_is_spoken_elsewhere(task, request)) return false;
  return task->incarnation == request->incarnation ? request->caller->tasks != NULL : !task->recoverable;
}

static void handle_register(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);
  coord_reply ok = {.service_incarnation = service->config.incarnation};
  bool may_join, is_same;
  weft_status *st;

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  if (is_impostor(task, request))
    return coord_answer_free(service, call,
                             COORD_ERR(ALREADY_EXISTS,
                                       "task %" PRId32 " is in the job, and its connection is alive: two processes "
                                       "have the same number",
                                       request->task));
  if (request->caller) coord_task_speaks(task, request->caller);
  may_join = task->state == COORD_TASK_DISCONNECTED || (task->recoverable && task->lost);
  is_same = task->incarnation == request->incarnation;
  if (may_join) {
    task->recoverable = service->config.recoverable || request->recoverable;
    if (!is_same) task_changed(service);
    task->incarnation = request->incarnation;
    task->has_registered = true;
    coord_barrier_join(service,
                       &(coord_barrier_request){.kind = COORD_BARRIER_REGISTER,
                                                .id = "[Init]Wait_for_all_tasks_to_register",
                                                .timeout_ns = service->config.register_timeout_ns,
                                                .task = request->task},
                       call);
    return;
  }
  if (task->state == COORD_TASK_CONNECTED && (is_same || task->recoverable)) {
    if (!is_same) { /* it restarted before anyone noticed */
      task->incarnation = request->incarnation;
      cancel_poll(service, task, "the task restarted");
      task_changed(service);
    }
    task->last_heartbeat_ns = service->now_ns;
    if (task->recoverable) coord_barriers_leave(service, request->task, true);
    return coord_answer(service, call, &ok, NULL);
  }
  if (task->state == COORD_TASK_CONNECTED)
    st = COORD_ERR(ABORTED, "task %" PRId32 " registers with a new incarnation: it was restarted without the others",
                   request->task);
  else
    st = COORD_ERR(ABORTED, "task %" PRId32 " tries to register while it is in error: %s", request->task,
                   weft_status_message(task->error));
  coord_answer(service, call, NULL, st);
  fail_task(service, request->task, st);
}

static void handle_heartbeat(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);
  coord_reply ok = {.service_incarnation = service->config.incarnation};
  weft_status *st;

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  if (task->state == COORD_TASK_ERROR)
    return coord_answer_free(service, call,
                             COORD_ERR(ABORTED, "heartbeat of task %" PRId32 ", which is already in error: %s",
                                       request->task, weft_status_message(task->error)));
  if (task->state == COORD_TASK_DISCONNECTED && service->now_ns > task->grace_until_ns)
    return coord_answer_free(service, call,
                             COORD_ERR(INVALID_ARGUMENT,
                                       "heartbeat of task %" PRId32
                                       ", which is not connected: the service may have been restarted",
                                       request->task));
  if (request->incarnation == task->incarnation) {
    task->last_heartbeat_ns = service->now_ns;
  } else if (!task->recoverable) {
    st = COORD_ERR(ABORTED, "heartbeat of task %" PRId32 " from another incarnation: it was restarted", request->task);
    coord_answer(service, call, NULL, st);
    return fail_task(service, request->task, st);
  }
  coord_answer(service, call, &ok, NULL);
}

/* Connected tasks that were silent for too long fail together, in one message. */
static void check_stale(coord_service *service)
{
  char names[160];
  size_t n = 0;
  int32_t lost = 0, first = 0;
  bool is_spread = false;
  int64_t timeout = service->config.heartbeat_timeout_ns;
  weft_status *st;

  for (int32_t i = 0; i < service->config.task_count; i++) {
    coord_task *task = &service->tasks[i];
    if (task->state != COORD_TASK_CONNECTED || service->now_ns - task->last_heartbeat_ns <= timeout) continue;
    if (lost == 0) first = i;
    if (lost < COORD_MAX_NAMES)
      n += (size_t)snprintf(names + n, sizeof names - n, "%stask %" PRId32, lost ? ", " : "", i);
    lost++;
    is_spread |= !task->recoverable;
  }
  if (lost == 0) return;
  if (lost > COORD_MAX_NAMES) snprintf(names + n, sizeof names - n, " and %" PRId32 " more", lost - COORD_MAX_NAMES);
  st = COORD_ERR(UNAVAILABLE,
                 "heartbeat timeout of %.1f s: the service has not heard from %s. They crashed, lost the "
                 "network, or were stopped",
                 (double)timeout / (double)WEFT_NS_PER_S, names);
  for (int32_t i = first; i < service->config.task_count; i++) {
    coord_task *task = &service->tasks[i];
    if (task->state != COORD_TASK_CONNECTED || service->now_ns - task->last_heartbeat_ns <= timeout) continue;
    coord_service_set_error(service, i,
                            COORD_ERR(UNAVAILABLE, "task %" PRId32 ": heartbeat timeout, silent for %.1f s", i,
                                      (double)(service->now_ns - task->last_heartbeat_ns) / (double)WEFT_NS_PER_S));
    task->lost = true;
  }
  if (is_spread) coord_service_propagate(service, st);
  weft_status_free(st);
}

/* ---- errors ---- */

static void handle_poll(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);
  weft_status *st = NULL;

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  service->polled = true;
  if (task->state == COORD_TASK_ERROR)
    st = COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " polls for errors and is already in error: %s", request->task,
                   weft_status_message(task->error));
  else if (task->state == COORD_TASK_DISCONNECTED && !task->has_registered)
    st = COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " polls for errors and has not been registered", request->task);
  else if (task->state == COORD_TASK_DISCONNECTED && service->now_ns <= task->grace_until_ns)
    st = COORD_ERR(CANCELLED, "error polling of task %" PRId32 " ends: it has disconnected", request->task);
  else if (task->state == COORD_TASK_DISCONNECTED)
    st = COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " polls for errors and has disconnected", request->task);
  else if (service->first_error) return coord_answer(service, call, NULL, service->first_error);
  if (st) return coord_answer_free(service, call, st);
  cancel_poll(service, task, "a newer poll replaces it");
  task->poll = call;
  coord_hold(service, call, COORD_HELD_POLL, task, NULL);
}

static void handle_report(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);
  int code = request->error_code;
  weft_status *st;

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  if (task->state != COORD_TASK_CONNECTED)
    return coord_answer_free(
      service, call,
      COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " reports an error and is not connected", request->task));
  if (code < WEFT_CANCELLED || code > WEFT_UNAUTHENTICATED) code = WEFT_UNKNOWN;
  st = coord_mark_reported(
    weft_status_new((weft_code)code, __FILE__, __LINE__, "%.*s", COORD_MAX_MESSAGE_BYTES, request->error_message),
    request->task);
  coord_answer(service, call, &(coord_reply){0}, NULL);
  task->is_reported = true;
  fail_task(service, request->task, st);
}

/* ---- leaving ---- */

static void handle_reset(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  if (task->state == COORD_TASK_DISCONNECTED)
    return coord_answer_free(service, call,
                             COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " is not connected", request->task));
  coord_service_disconnect(service, request->task);
  coord_answer(service, call, &(coord_reply){0}, NULL);
}

static void handle_shutdown(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task *task = coord_service_task(service, request->task);
  char id[64];
  int32_t *lasting = NULL; /* the tasks whose shutdown the others wait for */
  size_t count = 0, recoverable = 0;

  if (!task) return coord_answer_free(service, call, unknown_task(service, request->task));
  if (service->config.shutdown_timeout_ns == 0 || task->recoverable) return handle_reset(service, request, call);
  if (!task->has_registered)
    return coord_answer_free(
      service, call,
      COORD_ERR(FAILED_PRECONDITION, "task %" PRId32 " shuts down and has not been registered", request->task));
  for (int32_t i = 0; i < service->config.task_count; i++) recoverable += service->tasks[i].recoverable;
  if (recoverable > 0) {
    lasting = WEFT_ARENA_ARRAY(&service->scratch, int32_t, service->config.task_count);
    if (!lasting) return coord_answer_free(service, call, COORD_ERR(RESOURCE_EXHAUSTED, "out of memory"));
    for (int32_t i = 0; i < service->config.task_count; i++)
      if (!service->tasks[i].recoverable) lasting[count++] = i;
  }
  snprintf(id, sizeof id, "Shutdown::%" PRIu64, service->config.incarnation);
  coord_barrier_join(service,
                     &(coord_barrier_request){.kind = COORD_BARRIER_SHUTDOWN,
                                              .id = id,
                                              .timeout_ns = service->config.shutdown_timeout_ns,
                                              .task = request->task,
                                              .tasks = lasting,
                                              .task_count = count},
                     call);
}

/* ---- watches ---- */

static coord_task_info task_info(const coord_service *service, int32_t id)
{
  const coord_task *task = &service->tasks[id];

  return (coord_task_info){.task = id,
                           .state = task->state,
                           .incarnation = task->incarnation,
                           .error_code = weft_status_code(task->error),
                           .error_message = weft_status_message(task->error),
                           .is_reported = task->is_reported};
}

/* Made once for each version, since thousands ask for it. */
static coord_reply snapshot(coord_service *service)
{
  if (service->watch_share == 0) {
    for (int32_t i = 0; i < service->config.task_count; i++) service->infos[i] = task_info(service, i);
    service->watch_share = ++service->last_share;
  }
  return (coord_reply){.version = service->version,
                       .infos = service->infos,
                       .info_count = (size_t)service->config.task_count,
                       .share = service->watch_share};
}

static void handle_watch(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_reply reply;

  if (request->version > service->version)
    return coord_answer_free(service, call,
                             COORD_ERR(INVALID_ARGUMENT,
                                       "WatchTasks: version %" PRId64 " is yet to come, the latest is %" PRId64,
                                       request->version, service->version));
  if (request->version == service->version)
    return coord_hold(service, call, COORD_HELD_WATCH, NULL, &service->watchers);
  reply = snapshot(service);
  coord_answer(service, call, &reply, NULL);
}

/* Answers all watchers at once: several changes make one answer. */
static void answer_watchers(coord_service *service)
{
  coord_reply reply;

  service->version_changed = false;
  if (!service->watchers) return;
  reply = snapshot(service);
  while (service->watchers) coord_answer(service, service->watchers, &reply, NULL);
}

static void handle_states(coord_service *service, const coord_request *request, coord_call *call)
{
  coord_task_info *infos = WEFT_ARENA_ARRAY(&service->scratch, coord_task_info, request->task_count);

  if (!infos) return coord_answer_free(service, call, COORD_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  for (size_t i = 0; i < request->task_count; i++) {
    if (!coord_service_task(service, request->tasks[i]))
      return coord_answer_free(service, call, unknown_task(service, request->tasks[i]));
    infos[i] = task_info(service, request->tasks[i]);
  }
  coord_answer(service, call, &(coord_reply){.infos = infos, .info_count = request->task_count}, NULL);
}

/* ---- entries ---- */

/* Ends an entry into the service: looks at the rounds again, and brings the scratch memory back to a modest size. */
static void leave(coord_service *service)
{
  enum { KEEP_BYTES = 1 << 20 };

  if (service->liveness_changed) coord_alive_settle(service);
  if (service->scratch.total_bytes > KEEP_BYTES) weft_arena_fini(&service->scratch);
  else weft_arena_reset(&service->scratch);
}

/* Refuses an agent that registered with another service, and one that a newer incarnation has replaced. */
static weft_status *check_fences(const coord_service *service, const coord_request *request)
{
  const coord_task *task;

  if (!request->is_fenced) return NULL;
  if (request->service_incarnation != service->config.incarnation)
    return coord_with_mismatch(
      WEFT_ERR(INTERNAL,
               "wrong service incarnation: %s is for %" PRIu64 ", this is %" PRIu64 ": the service was restarted",
               coord_method_name(request->method), request->service_incarnation, service->config.incarnation),
      service->config.incarnation);
  switch (request->method) { /* methods that speak for a task */
  case COORD_POLL_FOR_ERROR:
  case COORD_REPORT_ERROR:
  case COORD_SHUTDOWN_TASK:
  case COORD_BARRIER:
  case COORD_CANCEL_BARRIER:
  case COORD_GET_ALIVE_TASKS: break;
  default: return NULL;
  }
  task = coord_service_task(service, request->task);
  if (!task || request->incarnation == 0 || !task->has_registered || request->incarnation == task->incarnation)
    return NULL;
  return COORD_ERR(ABORTED, "%s: this incarnation of task %" PRId32 " has been replaced by a newer one",
                   coord_method_name(request->method), request->task);
}

static weft_status *check_waits(coord_service *service, const coord_call *call)
{
  size_t held = *held_beside(service, call), most = service->config.max_task_waits;

  if (most == 0 || held < most || !is_in_quota(call)) return NULL;
  if (call->owner == service->config.task_count)
    return COORD_ERR(
      RESOURCE_EXHAUSTED,
      "%s: %zu calls of connections that speak for no task wait already, the limit (WEFT_COORD_MAX_TASK_WAITS)",
      coord_method_name(call->method), held);
  return COORD_ERR(RESOURCE_EXHAUSTED,
                   "%s: %zu calls of task %" PRId32 " wait already, the limit (WEFT_COORD_MAX_TASK_WAITS)",
                   coord_method_name(call->method), held, call->owner);
}

static void dispatch(coord_service *service, const coord_request *request, coord_call *call)
{
  switch (request->method) {
  case COORD_REGISTER_TASK: handle_register(service, request, call); break;
  case COORD_HEARTBEAT: handle_heartbeat(service, request, call); break;
  case COORD_POLL_FOR_ERROR: handle_poll(service, request, call); break;
  case COORD_REPORT_ERROR: handle_report(service, request, call); break;
  case COORD_SHUTDOWN_TASK: handle_shutdown(service, request, call); break;
  case COORD_RESET_TASK: handle_reset(service, request, call); break;
  case COORD_WATCH_TASKS: handle_watch(service, request, call); break;
  case COORD_GET_TASK_STATE: handle_states(service, request, call); break;
  case COORD_INSERT_KEY_VALUE:
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE:
  case COORD_INCREMENT_KEY_VALUE:
  case COORD_GET_KEY_VALUE_DIR:
  case COORD_DELETE_KEY_VALUE: coord_kv_handle(service, request, call); break;
  case COORD_BARRIER:
    coord_barrier_join(service,
                       &(coord_barrier_request){.kind = COORD_BARRIER_USER,
                                                .id = request->barrier_id,
                                                .counter = request->counter,
                                                .timeout_ns = request->timeout_ms > INT64_MAX / WEFT_NS_PER_MS
                                                                ? INT64_MAX
                                                                : WEFT_MAX(request->timeout_ms, 0) * WEFT_NS_PER_MS,
                                                .task = request->task,
                                                .tasks = request->tasks,
                                                .task_count = request->task_count},
                       call);
    break;
  case COORD_CANCEL_BARRIER: coord_barrier_cancel(service, request, call); break;
  case COORD_GET_ALIVE_TASKS: coord_alive_handle(service, request, call); break;
  case COORD_METHOD_COUNT: break;
  }
}

void coord_service_handle(coord_service *service, int64_t now_ns, const coord_request *request, coord_call *call)
{
  weft_status *st;

  service->now_ns = now_ns;
  call->held = COORD_HELD_NOWHERE;
  call->method = request->method;
  call->task = request->task;
  call->incarnation = request->incarnation;
  call->owner = coord_request_owner(service, request);
  if (service->stopped) st = COORD_ERR(INTERNAL, "%s: the service has stopped", coord_method_name(request->method));
  else st = check_fences(service, request);
  if (!st) st = coord_check_identity(service, request);
  if (!st) st = check_waits(service, call);
  if (!st && (request->method == COORD_BARRIER || request->method == COORD_CANCEL_BARRIER) &&
      (strlen(request->barrier_id) > service->config.max_key_bytes || !*request->barrier_id))
    st = COORD_ERR(INVALID_ARGUMENT, "barrier id of %zu bytes; 1 to %zu are allowed", strlen(request->barrier_id),
                   service->config.max_key_bytes);
  if (st) coord_answer_free(service, call, st);
  else dispatch(service, request, call);
  leave(service);
}

int64_t coord_service_tick(coord_service *service, int64_t now_ns)
{
  int64_t interval = WEFT_MIN(service->config.heartbeat_timeout_ns / STALE_CHECKS_PER_TIMEOUT + 1, WEFT_NS_PER_S), late;

  service->now_ns = now_ns;
  if (service->stopped) return INT64_MAX;
  if (now_ns >= service->next_stale_check_ns) {
    late = now_ns - service->next_stale_check_ns;
    if (late > service->config.heartbeat_timeout_ns / 2) /* the service itself was stopped, so silence proves nothing */
      for (int32_t i = 0; i < service->config.task_count; i++) service->tasks[i].last_heartbeat_ns += late;
    check_stale(service);
    service->next_stale_check_ns = now_ns + interval;
  }
  coord_barriers_expire(service);
  if (service->version_changed) answer_watchers(service);
  leave(service);
  return service->version_changed ? now_ns
                                  : WEFT_MIN(service->next_stale_check_ns, coord_barriers_next_deadline(service));
}

void coord_service_stop(coord_service *service)
{
  if (service->stopped) return;
  service->stopped = true;
  coord_barriers_stop(service);
  while (service->watchers) coord_answer(service, service->watchers, &(coord_reply){.version = -1}, NULL);
  for (int32_t i = 0; i < service->config.task_count; i++) {
    coord_call *poll = service->tasks[i].poll;
    if (!poll) continue;
    service->tasks[i].poll = NULL; /* unmarked, as in the protocol */
    coord_answer_free(service, poll, WEFT_ERR(CANCELLED, "error polling ends: the service is shutting down"));
  }
  coord_alive_stop(service);
  coord_kv_stop(service);
  leave(service);
}

weft_status *coord_service_new(const coord_service_config *config, int64_t now_ns, coord_service **out_service)
{
  coord_service *service = NULL;

  *out_service = NULL;
  if (config->task_count < 1) return WEFT_ERR(INVALID_ARGUMENT, "a service for %" PRId32 " tasks", config->task_count);
  if (config->heartbeat_timeout_ns <= 0) return WEFT_ERR(INVALID_ARGUMENT, "the heartbeat timeout must be positive");
  service = calloc(1, sizeof *service);
  WEFT_TRY_ALLOC(service);
  service->config = *config;
  weft_arena_init(&service->scratch);
  service->started_ns = service->now_ns = now_ns;
  service->tasks = calloc((size_t)config->task_count, sizeof *service->tasks);
  service->infos = calloc((size_t)config->task_count, sizeof *service->infos);
  service->kv = coord_kv_store_new(config->budget, &(coord_kv_quota){.owners = config->task_count + 1,
                                                                     .most_keys = config->max_task_keys,
                                                                     .most_bytes = config->max_task_bytes});
  if (!service->tasks || !service->infos || !service->kv) {
    coord_service_free(service);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int32_t i = 0; i < config->task_count; i++) {
    service->tasks[i].state = COORD_TASK_DISCONNECTED;
    service->tasks[i].recoverable = config->recoverable;
  }
  service->next_stale_check_ns = now_ns;
  *out_service = service;
  return NULL;
}

void coord_service_free(coord_service *service)
{
  if (!service) return;
  if (service->tasks && service->kv) coord_service_stop(service);
  coord_barriers_free(service);
  for (int32_t i = 0; service->tasks && i < service->config.task_count; i++) weft_status_free(service->tasks[i].error);
  free(service->tasks);
  free(service->infos);
  coord_kv_store_free(service->kv);
  weft_status_free(service->first_error);
  weft_arena_fini(&service->scratch);
  free(service);
}
