/* coord/agent_core.c -- the agent's state machine: registration, heartbeats, error polling, retries and deadlines of
 * operations. */
#include <config.h>

#include "coord/agent_core.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */
#include <uthash.h>
#include <utlist.h>

#include "base/deadline.h"
#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

#define GRACE_NS (5 * WEFT_NS_PER_S)    /* on top of the time-outs that the service enforces */
#define FIRST_PAUSE_NS (20 * WEFT_NS_PER_MS)
#define LONGEST_PAUSE_NS (1 * WEFT_NS_PER_S)
#define CAUSE_DELAY_NS (1 * WEFT_NS_PER_S) /* a failed heartbeat waits this long for the error poll's cause */

/* How often this process has been through a barrier id. */
typedef struct coord_agent_barrier {
  int64_t counter; /* of the last instance; -1: none */
  coord_op *op;    /* the call in progress */
  UT_hash_handle hh;
  char id[];
} coord_agent_barrier;

struct coord_agent_core {
  coord_agent_config config;
  coord_task_state state;
  bool is_connecting, is_leaving, is_observer;
  uint64_t service_incarnation;
  weft_status *error;         /* of state ERROR */
  weft_status *pending_error; /* of a heartbeat; kept until pending_at_ns */
  int64_t pending_at_ns;
  coord_op *ops;              /* operations that are not done */
  coord_op *user_op;          /* of connect, shutdown or observe: done when `control` is */
  coord_op control, heartbeat, poll;
  int64_t next_heartbeat_ns, heartbeat_sent_ns, last_contact_ns;
  coord_agent_barrier *barriers;
  uint64_t random;
  int64_t now_ns;
};

static uint64_t next_random(coord_agent_core *core)
{
  core->random ^= core->random << 13; /* xorshift64 */
  core->random ^= core->random >> 7;
  core->random ^= core->random << 17;
  return core->random;
}

/* Exponential, with jitter: thousands of processes must not call at once. */
static int64_t pause_before(coord_agent_core *core, int attempt)
{
  int64_t longest = attempt > 6 ? LONGEST_PAUSE_NS : WEFT_MIN(FIRST_PAUSE_NS << attempt, LONGEST_PAUSE_NS);

  return longest / 2 + (int64_t)(next_random(core) % (uint64_t)(longest / 2 + 1));
}

/* Does the error come from the network, not from the service? */
static bool is_lost(const weft_status *error)
{
  size_t size;

  if (!error || weft_status_payload(error, COORD_PAYLOAD_SERVICE_ERROR, &size)) return false;
  switch (weft_status_code(error)) {
  case WEFT_UNAVAILABLE:
  case WEFT_UNKNOWN: return true;
  default: return false;
  }
}

static bool should_retry(const coord_agent_core *core, const coord_op *op, const weft_status *error)
{
  size_t size;

  if (!error || core->now_ns >= op->deadline_ns || weft_status_code(error) == WEFT_UNAUTHENTICATED) return false;
  switch (op->retry) {
  case COORD_RETRY_NEVER: return false;
  case COORD_RETRY_LOST: return is_lost(error);
  case COORD_RETRY_REGISTER:
    return !weft_status_payload(error, COORD_PAYLOAD_SERVICE_ERROR, &size) || weft_status_code(error) == WEFT_ABORTED ||
           weft_status_code(error) == WEFT_INTERNAL;
  }
  return false;
}

/* ---- operations ---- */

static void set_error(coord_agent_core *core, weft_status *st);

/* Ends the operation, which is not touched after its `done`. */
static void finish(coord_agent_core *core, coord_op *op, const coord_reply *reply, const weft_status *error)
{
  int64_t counter;
  uint64_t incarnation;
  coord_agent_barrier *barrier = op->barrier;
  bool is_mismatch = error && core->state == COORD_TASK_CONNECTED && coord_mismatch_incarnation(error, &incarnation);
  weft_status *mismatch = is_mismatch ? weft_status_dup(error) : NULL;

  if (op->in_flight) core->config.cancel(core->config.ctx, op);
  op->in_flight = false;
  op->barrier = NULL;
  weft_status_free(WEFT_MOVE(op->last_error));
  DL_DELETE(core->ops, op);
  if (barrier) {
    if (barrier->op == op) barrier->op = NULL;
    if (op->request.method == COORD_BARRIER && !error) barrier->counter = reply->counter;
    else if (op->request.method == COORD_BARRIER && coord_barrier_counter(error, &counter)) barrier->counter = counter;
  }
  op->done(op, reply, error);
  if (mismatch) set_error(core, mismatch);
}

static void finish_with(coord_agent_core *core, coord_op *op, weft_status *error)
{
  finish(core, op, NULL, error);
  weft_status_free(error);
}

static void answered(coord_agent_core *core, coord_op *op, const coord_reply *reply, const weft_status *error)
{
  op->in_flight = false;
  if (!should_retry(core, op, error)) return finish(core, op, reply, error);
  op->retry_at_ns = core->now_ns + pause_before(core, op->attempts++);
  weft_status_free(op->last_error);
  op->last_error = weft_status_dup(error);
}

static void send(coord_agent_core *core, coord_op *op)
{
  weft_status *st;

  op->request.task = core->config.task;
  op->request.incarnation = core->is_observer ? 0 : core->config.incarnation;
  op->request.service_incarnation = core->service_incarnation;
  op->in_flight = true;
  st = core->config.send(core->config.ctx, op);
  if (st) answered(core, op, NULL, st);
  weft_status_free(st);
}

static void start(coord_agent_core *core, coord_op *op)
{
  op->in_flight = false;
  op->attempts = 0;
  op->last_error = NULL;
  op->barrier = NULL;
  DL_APPEND(core->ops, op);
  send(core, op);
}

/* An operation that fails before it starts. */
static void reject(coord_op *op, weft_status *error)
{
  op->done(op, NULL, error);
  weft_status_free(error);
}

void coord_agent_core_reply(coord_agent_core *core, int64_t now_ns, coord_op *op, const coord_reply *reply,
                            const weft_status *error)
{
  core->now_ns = now_ns;
  answered(core, op, reply, error);
}

void coord_agent_core_cancel(coord_agent_core *core, coord_op *op)
{
  finish_with(core, op, COORD_ERR(CANCELLED, "%s was cancelled", coord_method_name(op->request.method)));
}

static bool is_internal(const coord_agent_core *core, const coord_op *op)
{
  return op == &core->control || op == &core->heartbeat || op == &core->poll;
}

static bool is_active(const coord_agent_core *core, const coord_op *op)
{
  const coord_op *each;

  DL_FOREACH(core->ops, each)
    if (each == op) return true;
  return false;
}

/* Ends the operations for which `matches` holds. Their `done` may start others, so each search begins at the front. */
static void finish_all(coord_agent_core *core, bool (*matches)(const coord_agent_core *core, const coord_op *op),
                       const weft_status *error)
{
  coord_op *op;

again:
  DL_FOREACH(core->ops, op) {
    if (!matches(core, op)) continue;
    finish(core, op, NULL, error);
    goto again;
  }
}

static bool is_users(const coord_agent_core *core, const coord_op *op) { return !is_internal(core, op); }

/* Operations that wait for other processes through the service. */
static bool is_collective(const coord_agent_core *core, const coord_op *op)
{
  return is_users(core, op) && (op->request.method == COORD_BARRIER || op->request.method == COORD_GET_ALIVE_TASKS);
}

/* ---- errors ---- */

/* Only the first error counts. Takes st. */
static void set_error(coord_agent_core *core, weft_status *st)
{
  if (core->state != COORD_TASK_CONNECTED) return weft_status_free(st);
  core->state = COORD_TASK_ERROR;
  core->error = st;
  weft_status_free(WEFT_MOVE(core->pending_error));
  if (is_active(core, &core->poll)) coord_agent_core_cancel(core, &core->poll);
  finish_all(core, is_collective, st);
  core->config.on_error(core->config.ctx, st);
}

static void on_polled(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_core *core = WEFT_CONTAINER_OF(op, coord_agent_core, poll);

  (void)reply;
  if (error && weft_status_code(error) == WEFT_CANCELLED) return; /* the service or this process is leaving */
  if (error) set_error(core, weft_status_dup(error));
  else set_error(core, COORD_ERR(INTERNAL, "the service answered an error poll without an error"));
}

/* ---- heartbeats ---- */

static int64_t heartbeat_interval(const coord_agent_core *core) { return core->config.heartbeat_timeout_ns / 2; }

static void on_heartbeat(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_core *core = WEFT_CONTAINER_OF(op, coord_agent_core, heartbeat);

  if (core->state != COORD_TASK_CONNECTED) return;
  core->next_heartbeat_ns = core->heartbeat_sent_ns + heartbeat_interval(core);
  if (!error && reply->service_incarnation == core->service_incarnation) {
    core->last_contact_ns = core->heartbeat_sent_ns;
    return;
  }
  if (!error)
    return set_error(core, COORD_ERR(ABORTED, "the service was restarted: its incarnation is %" PRIu64 ", not %" PRIu64,
                                     reply->service_incarnation, core->service_incarnation));
  if (weft_status_code(error) == WEFT_CANCELLED) return;
  if (is_lost(error) || weft_status_code(error) == WEFT_DEADLINE_EXCEEDED) {
    if (core->now_ns - core->last_contact_ns > core->config.heartbeat_timeout_ns)
      set_error(core, COORD_ERR(UNAVAILABLE, "no heartbeat has reached the service for %.1f s: %s",
                                (double)(core->now_ns - core->last_contact_ns) / (double)WEFT_NS_PER_S,
                                weft_status_message(error)));
    else core->next_heartbeat_ns = WEFT_MIN(core->next_heartbeat_ns, core->now_ns + pause_before(core, 4));
    return;
  }
  if (core->pending_error) return;
  core->pending_error = weft_status_dup(error);
  core->pending_at_ns = core->now_ns + CAUSE_DELAY_NS;
}

static void send_heartbeat(coord_agent_core *core)
{
  core->heartbeat_sent_ns = core->now_ns;
  core->next_heartbeat_ns = INT64_MAX; /* until it is answered */
  core->heartbeat = (coord_op){
    .request.method = COORD_HEARTBEAT, .done = on_heartbeat, .deadline_ns = core->now_ns + heartbeat_interval(core)};
  start(core, &core->heartbeat);
}

/* ---- joining and leaving ---- */

/* Gives the result to the caller of connect, shutdown or observe. */
static void finish_user(coord_agent_core *core, const coord_reply *reply, const weft_status *error)
{
  coord_op *user = WEFT_MOVE(core->user_op);

  if (user) user->done(user, reply, error);
}

static void on_registered(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_core *core = WEFT_CONTAINER_OF(op, coord_agent_core, control);

  core->is_connecting = false;
  if (!error) {
    core->state = COORD_TASK_CONNECTED;
    core->service_incarnation = reply->service_incarnation;
    core->last_contact_ns = core->now_ns;
    core->next_heartbeat_ns = core->now_ns + heartbeat_interval(core);
    if (core->config.poll_for_error) {
      core->poll = (coord_op){
        .request.method = COORD_POLL_FOR_ERROR, .retry = COORD_RETRY_LOST, .done = on_polled, .deadline_ns = INT64_MAX};
      start(core, &core->poll);
    }
  }
  finish_user(core, reply, error);
}

static bool is_busy(const coord_agent_core *core) { return core->is_connecting || core->is_leaving || core->user_op; }

void coord_agent_core_connect(coord_agent_core *core, int64_t now_ns, coord_op *op)
{
  core->now_ns = now_ns;
  op->request.method = COORD_REGISTER_TASK;
  if (core->state != COORD_TASK_DISCONNECTED || is_busy(core))
    return reject(op, COORD_ERR(FAILED_PRECONDITION, "connect: this agent is connected, or on its way, or in error"));
  core->is_connecting = true;
  core->is_observer = false;
  core->user_op = op;
  core->control = (coord_op){.request.method = COORD_REGISTER_TASK,
                             .retry = COORD_RETRY_REGISTER,
                             .done = on_registered,
                             .deadline_ns = now_ns + core->config.init_timeout_ns};
  start(core, &core->control);
}

static void leave(coord_agent_core *core)
{
  weft_status *cancelled = COORD_ERR(CANCELLED, "the agent is shutting down");

  core->state = COORD_TASK_DISCONNECTED;
  core->is_leaving = false;
  core->service_incarnation = 0; /* calls fail from here on: nothing would end one that waits */
  weft_status_free(WEFT_MOVE(core->pending_error));
  if (is_active(core, &core->heartbeat)) finish(core, &core->heartbeat, NULL, cancelled);
  if (is_active(core, &core->poll)) finish(core, &core->poll, NULL, cancelled);
  finish_all(core, is_users, cancelled);
  weft_status_free(cancelled);
}

static void on_left(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_core *core = WEFT_CONTAINER_OF(op, coord_agent_core, control);

  leave(core);
  finish_user(core, reply, error);
}

void coord_agent_core_shutdown(coord_agent_core *core, int64_t now_ns, coord_op *op)
{
  core->now_ns = now_ns;
  op->request.method = COORD_SHUTDOWN_TASK;
  if (core->state == COORD_TASK_ERROR) {
    weft_status *st =
      COORD_ERR(FAILED_PRECONDITION, "shutdown: this agent is in error: %s", weft_status_message(core->error));
    leave(core);
    return reject(op, st);
  }
  if (is_busy(core))
    return reject(op, COORD_ERR(FAILED_PRECONDITION, "shutdown: the agent is connecting or shutting down"));
  if (core->state != COORD_TASK_CONNECTED) { /* nothing to leave */
    leave(core);
    return op->done(op, &(coord_reply){0}, NULL);
  }
  core->is_leaving = true;
  core->user_op = op;
  core->control = (coord_op){.request.method = COORD_SHUTDOWN_TASK,
                             .retry = COORD_RETRY_LOST,
                             .done = on_left,
                             .deadline_ns = now_ns + core->config.shutdown_timeout_ns + GRACE_NS};
  start(core, &core->control);
}

static void on_observed(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_core *core = WEFT_CONTAINER_OF(op, coord_agent_core, control);
  uint64_t incarnation;

  core->is_connecting = false;
  if (error && coord_mismatch_incarnation(error, &incarnation)) { /* the incarnation is what was asked for */
    core->service_incarnation = incarnation;
    error = NULL;
  } else if (error && weft_status_code(error) == WEFT_NOT_FOUND) {
    error = NULL;
  }
  finish_user(core, error ? NULL : reply ? reply : &(coord_reply){0}, error);
}

void coord_agent_core_observe(coord_agent_core *core, int64_t now_ns, coord_op *op)
{
  core->now_ns = now_ns;
  op->request.method = COORD_TRY_GET_KEY_VALUE;
  if (core->state != COORD_TASK_DISCONNECTED || is_busy(core))
    return reject(op, COORD_ERR(FAILED_PRECONDITION, "observe: this agent is connected, or on its way, or in error"));
  core->is_connecting = core->is_observer = true;
  core->user_op = op;
  core->control = (coord_op){.request = {.method = COORD_TRY_GET_KEY_VALUE, .key = "observer"},
                             .retry = core->config.observes_at_once ? COORD_RETRY_NEVER : COORD_RETRY_LOST,
                             .done = on_observed,
                             .deadline_ns = now_ns + core->config.init_timeout_ns};
  start(core, &core->control);
}

/* ---- calls ---- */

static coord_agent_barrier *barrier_entry(coord_agent_core *core, const char *id, bool make)
{
  coord_agent_barrier *barrier;

  HASH_FIND_STR(core->barriers, id, barrier);
  if (barrier || !make) return barrier;
  barrier = calloc(1, sizeof *barrier + strlen(id) + 1);
  if (!barrier) return NULL;
  barrier->counter = -1;
  strcpy(barrier->id, id);
  HASH_ADD_STR(core->barriers, id, barrier);
  if (barrier->hh.tbl) return barrier;
  free(barrier);
  return NULL;
}

static weft_status *prepare_barrier(coord_agent_core *core, coord_op *op, coord_agent_barrier **out_barrier)
{
  const char *id = op->request.barrier_id;
  coord_agent_barrier *barrier = barrier_entry(core, id, op->request.method == COORD_BARRIER);

  if (op->request.method == COORD_CANCEL_BARRIER) {
    if (!barrier || !barrier->op)
      return COORD_ERR(FAILED_PRECONDITION, "barrier %s is not in progress in this process", id);
    op->request.counter = barrier->op->request.counter;
    return NULL;
  }
  WEFT_TRY_ALLOC(barrier);
  if (barrier->op) return COORD_ERR(FAILED_PRECONDITION, "barrier %s is already being waited for in this process", id);
  op->request.counter = barrier->counter + 1;
  *out_barrier = barrier;
  return NULL;
}

void coord_agent_core_call(coord_agent_core *core, int64_t now_ns, coord_op *op)
{
  coord_agent_barrier *barrier = NULL;
  weft_status *st = NULL;
  bool is_gated;

  core->now_ns = now_ns;
  switch (op->request.method) {
  case COORD_BARRIER:
  case COORD_CANCEL_BARRIER:
  case COORD_GET_ALIVE_TASKS:
  case COORD_REPORT_ERROR: is_gated = true; break;
  default: is_gated = false; break;
  }
  if (is_gated && core->state == COORD_TASK_ERROR)
    st = COORD_ERR(FAILED_PRECONDITION, "%s: this agent is in error: %s", coord_method_name(op->request.method),
                   weft_status_message(core->error));
  else if (core->service_incarnation == 0)
    st = COORD_ERR(FAILED_PRECONDITION, "%s: this agent is not connected", coord_method_name(op->request.method));
  else if (op->request.method == COORD_BARRIER || op->request.method == COORD_CANCEL_BARRIER)
    st = prepare_barrier(core, op, &barrier);
  if (st) return reject(op, st);
  op->in_flight = false;
  op->attempts = 0;
  op->last_error = NULL;
  op->barrier = barrier;
  if (barrier) barrier->op = op;
  DL_APPEND(core->ops, op);
  send(core, op);
}

/* ---- time ---- */

static int64_t op_due(const coord_op *op)
{
  return op->in_flight ? op->deadline_ns : WEFT_MIN(op->deadline_ns, op->retry_at_ns);
}

/* The service's last answer, or an error which says that the service has not answered. */
static weft_status *late_error(const coord_op *op)
{
  const coord_request *r = &op->request;
  const char *what = r->method == COORD_GET_KEY_VALUE ? r->key : r->method == COORD_BARRIER ? r->barrier_id : "";

  if (op->last_error && !is_lost(op->last_error)) return weft_status_dup(op->last_error);
  if (op->last_error)
    return COORD_ERR(DEADLINE_EXCEEDED, "%s%s%s timed out after %d attempts: %s", coord_method_name(r->method),
                     *what ? " of " : "", what, op->attempts, weft_status_message(op->last_error));
  return COORD_ERR(DEADLINE_EXCEEDED, "%s%s%s timed out: %s", coord_method_name(r->method), *what ? " of " : "", what,
                   r->method == COORD_GET_KEY_VALUE ? "no process has set it" : "no answer from the service");
}

int64_t coord_agent_core_tick(coord_agent_core *core, int64_t now_ns)
{
  coord_op *op;
  int64_t next = INT64_MAX;

  core->now_ns = now_ns;
again:
  DL_FOREACH(core->ops, op) {
    if (now_ns < op_due(op)) continue;
    if (now_ns >= op->deadline_ns) {
      finish_with(core, op, late_error(op));
    } else {
      send(core, op);
    }
    goto again;
  }
  if (core->state == COORD_TASK_CONNECTED) {
    if (core->pending_error && now_ns >= core->pending_at_ns) set_error(core, WEFT_MOVE(core->pending_error));
    else if (now_ns >= core->next_heartbeat_ns) send_heartbeat(core);
  }
  DL_FOREACH(core->ops, op) next = WEFT_MIN(next, op_due(op));
  if (core->state == COORD_TASK_CONNECTED) {
    next = WEFT_MIN(next, core->next_heartbeat_ns);
    if (core->pending_error) next = WEFT_MIN(next, core->pending_at_ns);
  }
  return next;
}

/* ---- life ---- */

weft_status *coord_agent_core_new(const coord_agent_config *config, coord_agent_core **out_core)
{
  coord_agent_core *core;

  *out_core = NULL;
  if (config->heartbeat_timeout_ns <= 0) return WEFT_ERR(INVALID_ARGUMENT, "the heartbeat timeout must be positive");
  core = calloc(1, sizeof *core);
  WEFT_TRY_ALLOC(core);
  core->config = *config;
  core->state = COORD_TASK_DISCONNECTED;
  core->random = config->seed | 1;
  core->next_heartbeat_ns = INT64_MAX;
  *out_core = core;
  return NULL;
}

static bool is_any(const coord_agent_core *core, const coord_op *op)
{
  (void)core;
  (void)op;
  return true;
}

void coord_agent_core_free(coord_agent_core *core)
{
  weft_status *cancelled;
  coord_agent_barrier *barrier, *next;

  if (!core) return;
  cancelled = COORD_ERR(CANCELLED, "the agent is gone");
  core->state = COORD_TASK_DISCONNECTED;
  finish_all(core, is_any, cancelled);
  weft_status_free(cancelled);
  HASH_ITER(hh, core->barriers, barrier, next) {
    HASH_DEL(core->barriers, barrier);
    free(barrier);
  }
  weft_status_free(core->error);
  weft_status_free(core->pending_error);
  free(core);
}
