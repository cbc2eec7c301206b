/* tests/coord/sim_test.c -- The service and its agents on virtual time: a seeded simulation that explores orders of
 * messages and faults.
 *
 * Processes run a small program (connect, rounds of keys and barriers, shutdown) on real agent cores against a real
 * service core; what lies between is simulated: every message travels as bytes, for a random time, and may be
 * overtaken.  Faults strike at random moments: processes die, die and come back, stop for a while, come back beside a
 * stopped old self; connections are reset or swallow everything; the service stops for a while, or is restarted; the
 * whole machine sleeps; clocks jump.  A second test aims each fault at each step of the program.
 *
 * Checked in every run:
 *   - every operation ends by its deadline, every process comes to an end
 *   - nobody passes connect, a barrier or shutdown before all have begun it
 *   - an acknowledged key keeps its value, and increments add up, as long as the service lives
 *   - the service holds exactly the calls whose callers still wait, and gives back every byte of its budget
 *   - without faults everybody succeeds; a recoverable job whose faults have ended comes together again
 *
 * WEFT_SIM_RUNS and WEFT_SIM_SEED choose how many runs, from which seed; a failing run prints its own. */
#include "test.h"

#include "base/deadline.h"
#include "coord/agent_core.h"
#include "coord/service.h"
#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

enum { MAX_TASKS = 6, MAX_PROCS = 64, ROUNDS = 6, MAX_KEYS = 4096 };
#define S WEFT_NS_PER_S
#define MS WEFT_NS_PER_MS
#define HEARTBEAT_TIMEOUT (2 * S)
#define BARRIER_TIMEOUT (4 * S)
#define FAULTS_END (20 * S)
#define FINAL_FROM (35 * S)
#define LONGEST_RUN (150 * S)
#define TOLERANCE (1500 * MS) /* what the service takes to notice, and messages to travel */

typedef struct sim sim;
typedef struct proc proc;

/* One request and its answer on their way. */
typedef struct wire {
  coord_call call; /* first: the service's handle */
  struct wire *next;
  sim *sim;
  proc *proc;
  coord_op *op;
  int epoch;                /* of the connection it travels on */
  int service_life;
  bool op_gone;             /* nobody waits for the answer */
  bool delivered, answered; /* at the service */
  coord_method method;
  uint8_t *request, *reply;
  size_t request_size, reply_size;
  weft_status *error;
} wire;

typedef enum fault_kind {
  KILL, RESTART, STOP, ZOMBIE, RESET, DEAF, SERVICE_STOP, SERVICE_RESTART, SLEEP, SERVICE_CLOCK, CLOCK, FAULT_KINDS
} fault_kind;
typedef enum stage { CONNECT, SET, ADD, BARRIER, GET, LIVE, FINAL, SHUTDOWN, ENDED } stage;

struct proc {
  sim *sim;
  int32_t task;
  uint64_t incarnation;
  coord_agent_core *core;
  stage stage;
  int round;
  bool dead, failed, replaced;
  int64_t stopped_until, next_tick;
  int epoch;
  int64_t deaf_until; /* a half-open connection: whatever is sent vanishes */
  int64_t clock;      /* its own, ahead of the simulation's by so much */
  coord_op op;
  bool op_active, was_stopped;
  char key[64], value[64], id[32];
  int32_t everyone[MAX_TASKS];
};

typedef enum event_kind { EV_REQUEST, EV_REPLY, EV_DROP, EV_LOST, EV_STEP, EV_FAULT, EV_START, EV_RESET } event_kind;
typedef struct event {
  int64_t at;
  uint64_t order;
  event_kind kind;
  wire *wire;
  proc *proc;
  int32_t task;
  fault_kind fault;
} event;

/* One fault, when a task is first in a stage. */
typedef struct aim {
  bool is_taken;
  int32_t task;
  stage stage;
  fault_kind fault;
} aim;

struct sim {
  uint64_t seed, random;
  int64_t now;
  int task_count;
  bool recoverable, had_fault, service_was_restarted, service_was_stopped;
  bool some_have_left; /* tasks of a recoverable job: a task that starts again waits for them in vain */
  bool has_late_fault; /* in the end that they share: it may be missed */
  coord_service *service;
  int service_life;
  int failed_start_life; /* of the service whose registration barrier ran out of time: that job is over */
  uint64_t service_incarnation;
  int64_t service_next, service_stopped_until, service_clock; /* the clock as in proc */
  aim aim;
  coord_budget budget;
  proc procs[MAX_PROCS];
  int proc_count;
  event *heap;
  size_t heap_count, heap_capacity;
  uint64_t order;
  wire *wires;
  weft_arena arena;
  int began_round[MAX_TASKS];
  bool began_connect[MAX_TASKS], began_shutdown[MAX_TASKS];
  struct { char key[64], value[64]; int life; } acked[MAX_KEYS];
  int acked_count;
  int64_t increments_sent, increments_acked;
  int finals;
  bool verbose;
};

#define SIM_FAIL(s, ...)                                                                            \
  do {                                                                                              \
    print_message("seed %" PRIu64 ", at %.3f s: ", (s)->seed, (double)(s)->now / 1e9);              \
    print_message(__VA_ARGS__);                                                                     \
    fail_msg("WEFT_SIM_SEED=%" PRIu64 " WEFT_SIM_RUNS=1 repeats it", (s)->seed);                    \
  } while (0)

static uint64_t rnd(sim *s, uint64_t below)
{
  s->random ^= s->random << 13;
  s->random ^= s->random >> 7;
  s->random ^= s->random << 17;
  return (s->random * 0x2545f4914f6cdd1d >> 11) % below;
}

/* ---- events ---- */

static bool before(const event *a, const event *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }

static void push(sim *s, event e)
{
  size_t i = s->heap_count++;

  if (s->heap_count > s->heap_capacity) {
    s->heap_capacity = s->heap_capacity ? 2 * s->heap_capacity : 256;
    s->heap = realloc(s->heap, s->heap_capacity * sizeof *s->heap);
  }
  e.order = s->order++;
  for (; i > 0 && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = e;
}

static event pop(sim *s)
{
  event top = s->heap[0], last = s->heap[--s->heap_count];
  size_t i = 0, child;

  while ((child = 2 * i + 1) < s->heap_count) {
    if (child + 1 < s->heap_count && before(&s->heap[child + 1], &s->heap[child])) child++;
    if (!before(&s->heap[child], &last)) break;
    s->heap[i] = s->heap[child];
    i = child;
  }
  s->heap[i] = last;
  return top;
}

static int64_t agent_now(const proc *p) { return p->sim->now + p->clock; }
static int64_t service_now(const sim *s) { return s->now + s->service_clock; }
static int64_t from_clock(int64_t at, int64_t clock) { return at == INT64_MAX ? at : at - clock; }

/* Mostly quick, now and then slow enough to be overtaken by anything. */
static int64_t travel(sim *s) { return rnd(s, 20) == 0 ? (int64_t)rnd(s, 400) * MS : (int64_t)rnd(s, 5000) * 1000; }

/* ---- the network ---- */

static weft_status *send_op(void *ctx, coord_op *op)
{
  proc *p = ctx;
  sim *s = p->sim;
  const uint8_t *data;
  wire *w = calloc(1, sizeof *w);

  T_OK(coord_request_encode(&op->request, &s->arena, &data, &w->request_size));
  w->request = malloc(w->request_size + 1);
  memcpy(w->request, data, w->request_size);
  w->sim = s;
  w->proc = p;
  w->op = op;
  w->epoch = p->epoch;
  w->method = op->request.method;
  w->next = s->wires;
  s->wires = w;
  op->carrier = w;
  push(s, (event){.at = s->now + travel(s), .kind = EV_REQUEST, .wire = w});
  return NULL;
}

static void cancel_op(void *ctx, coord_op *op)
{
  proc *p = ctx;
  wire *w = op->carrier;

  w->op_gone = true;
  push(p->sim, (event){.at = p->sim->now + travel(p->sim), .kind = EV_DROP, .wire = w});
}

static void answer(void *ctx, coord_call *call, const coord_reply *reply, const weft_status *error)
{
  sim *s = ctx;
  wire *w = (wire *)call;
  uint8_t *details;
  size_t details_size;
  const uint8_t *head;
  coord_blob *tail;

  w->answered = true;
  if (error) {
    coord_details_encode(error, &details, &details_size);
    w->error = coord_status_from_wire((int)weft_status_code(error), weft_status_message(error), details, details_size);
    free(details);
  } else {
    T_OK(coord_reply_encode(COORD_DIALECT_X, w->method, reply, &s->arena, &head, &w->reply_size, &tail));
    w->reply = malloc(w->reply_size + (tail ? tail->size : 0) + 1);
    if (w->reply_size) memcpy(w->reply, head, w->reply_size);
    if (tail) {
      memcpy(w->reply + w->reply_size, tail->data, tail->size);
      w->reply_size += tail->size;
    }
  }
  push(s, (event){.at = s->now + travel(s), .kind = EV_REPLY, .wire = w});
}

/* Both sides lose the connection, each at its own time. */
static void reset_connection(sim *s, proc *p)
{
  p->epoch++;
  p->deaf_until = 0;
  for (wire *w = s->wires; w; w = w->next) {
    if (w->proc != p || w->epoch == p->epoch) continue;
    if (!w->answered && w->delivered) push(s, (event){.at = s->now + travel(s), .kind = EV_DROP, .wire = w});
    if (!w->op_gone) push(s, (event){.at = s->now + travel(s), .kind = EV_LOST, .wire = w});
  }
}

static void deliver_request(sim *s, wire *w)
{
  coord_request request;
  proc *p = w->proc;

  if (w->epoch != p->epoch || (p->dead && rnd(s, 2)) || s->now < p->deaf_until || w->op_gone) return;
  w->delivered = true;
  w->service_life = s->service_life;
  T_OK(coord_request_decode(COORD_DIALECT_X, w->method, w->request, w->request_size, &s->arena, &request));
  coord_service_handle(s->service, service_now(s), &request, &w->call);
  if (p->dead) push(s, (event){.at = s->now + travel(s), .kind = EV_DROP, .wire = w});
}

static void drop_call(sim *s, wire *w)
{
  if (!w->delivered || w->answered || w->service_life != s->service_life) return;
  coord_service_drop(s->service, &w->call);
  w->answered = true;
}

static void deliver_reply(sim *s, wire *w)
{
  proc *p = w->proc;
  coord_reply reply;

  if (w->op_gone || p->dead || w->epoch != p->epoch || s->now < p->deaf_until) return;
  w->op_gone = true;
  if (!w->error) T_OK(coord_reply_decode(w->method, w->reply, w->reply_size, &s->arena, &reply));
  coord_agent_core_reply(p->core, agent_now(p), w->op, w->error ? NULL : &reply, w->error);
}

static void lose(wire *w)
{
  weft_status *st;

  if (w->op_gone || w->proc->dead) return;
  w->op_gone = true;
  st = WEFT_ERR(UNAVAILABLE, "connection reset");
  coord_agent_core_reply(w->proc->core, agent_now(w->proc), w->op, NULL, st);
  weft_status_free(st);
}

/* ---- processes ---- */

static void step(sim *s, proc *p);

static void on_error(void *ctx, const weft_status *error)
{
  proc *p = ctx;

  if (p->sim->verbose)
    print_message("%.3f task %d/%" PRIx64 " error: %s\n", (double)p->sim->now / 1e9, p->task, p->incarnation,
                  weft_status_message(error));
  p->failed = true;
}

static void start_proc(sim *s, int32_t task)
{
  proc *p;
  coord_agent_config config;

  if (s->proc_count == MAX_PROCS) return;
  for (int i = 0; i < s->proc_count; i++)
    if (s->procs[i].task == task) s->procs[i].replaced = true;
  p = &s->procs[s->proc_count++];
  *p = (proc){.sim = s, .task = task, .incarnation = rnd(s, UINT64_MAX - 1) + 1, .next_tick = INT64_MAX};
  for (int i = 0; i < s->task_count; i++) p->everyone[i] = i;
  p->round = s->began_round[task];
  config = (coord_agent_config){
    .task = task,
    .incarnation = p->incarnation,
    .heartbeat_timeout_ns = HEARTBEAT_TIMEOUT,
    .init_timeout_ns = 15 * S,
    .shutdown_timeout_ns = 8 * S,
    .poll_for_error = rnd(s, 4) != 0,
    .seed = rnd(s, UINT64_MAX),
    .send = send_op,
    .cancel = cancel_op,
    .on_error = on_error,
    .ctx = p,
  };
  T_OK(coord_agent_core_new(&config, &p->core));
  push(s, (event){.at = s->now + (int64_t)rnd(s, 1500) * MS, .kind = EV_STEP, .proc = p});
}

static void kill_proc(sim *s, proc *p)
{
  if (p->dead) return;
  p->dead = true;
  p->op_active = false;
  for (wire *w = s->wires; w; w = w->next)
    if (w->proc == p) w->op_gone = true;
  /* The kernel closes its sockets: the service sees that, unless the machine went with it. */
  if (rnd(s, 3))
    for (wire *w = s->wires; w; w = w->next)
      if (w->proc == p && w->delivered && !w->answered)
        push(s, (event){.at = s->now + travel(s), .kind = EV_DROP, .wire = w});
}

static bool start_has_failed(const sim *s) { return s->failed_start_life == s->service_life; }

/* A supervisor starts it anew, if the job is of that kind; it gives up on one that never started. */
static void end_proc(sim *s, proc *p, bool failed)
{
  bool again = failed && s->recoverable && !p->replaced && !(start_has_failed(s) && s->now > FINAL_FROM);

  p->stage = ENDED;
  p->failed |= failed;
  if (s->verbose)
    print_message("%.3f task %d/%" PRIx64 " ends%s\n", (double)s->now / 1e9, p->task, p->incarnation,
                  failed ? " failed" : "");
  if (failed) kill_proc(s, p);
  if (again) push(s, (event){.at = s->now + 500 * MS + (int64_t)rnd(s, 1000) * MS, .kind = EV_START, .task = p->task});
}

static void check_all_began(sim *s, const bool *began, const char *what)
{
  for (int i = 0; i < s->task_count; i++)
    if (!began[i]) SIM_FAIL(s, "%s was passed before task %d began it\n", what, i);
}

static void op_succeeded(sim *s, proc *p)
{
  switch (p->stage) {
  case CONNECT: check_all_began(s, s->began_connect, "connect"); break;
  case SET:
    if (s->acked_count == MAX_KEYS) break;
    snprintf(s->acked[s->acked_count].key, 64, "%s", p->key);
    snprintf(s->acked[s->acked_count].value, 64, "%s", p->value);
    s->acked[s->acked_count++].life = s->service_life;
    break;
  case ADD: s->increments_acked++; break;
  case BARRIER:
    for (int i = 0; i < s->task_count && !s->recoverable; i++)
      if (s->began_round[i] < p->round)
        SIM_FAIL(s, "task %d passed the barrier of round %d, task %d is at %d\n", p->task, p->round, i,
                 s->began_round[i]);
    break;
  case FINAL: s->finals++; break;
  case SHUTDOWN:
    if (!s->recoverable) check_all_began(s, s->began_shutdown, "shutdown");
    break;
  default: break;
  }
}

static void op_done(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  proc *p = WEFT_CONTAINER_OF(op, proc, op);
  sim *s = p->sim;
  weft_code code = weft_status_code(error);
  int64_t counter;

  (void)reply;
  p->op_active = false;
  if (p->dead) return;
  if (!p->was_stopped && agent_now(p) > op->deadline_ns + TOLERANCE)
    SIM_FAIL(s, "task %d, %s: %.1f s over its deadline\n", p->task, coord_method_name(op->request.method),
             (double)(agent_now(p) - op->deadline_ns) / 1e9);
  if (error && s->verbose)
    print_message("%.3f task %d/%" PRIx64 " %s: %s %s\n", (double)s->now / 1e9, p->task, p->incarnation,
                  coord_method_name(op->request.method), weft_code_name(code), weft_status_message(error));
  if (error && !s->had_fault && (!s->recoverable || s->now < FINAL_FROM))
    SIM_FAIL(s, "task %d fails without a fault: %s\n", p->task, weft_status_message(error));
  if (p->stage == CONNECT && code == WEFT_DEADLINE_EXCEEDED && coord_barrier_counter(error, &counter))
    s->failed_start_life = s->service_life;
  if (!error) op_succeeded(s, p);
  if (p->stage == SHUTDOWN) s->some_have_left = true;
  if (p->stage == SHUTDOWN) return end_proc(s, p, error != NULL && !s->recoverable);
  if (error && s->now >= FINAL_FROM && p->stage == FINAL && s->recoverable && !s->has_late_fault && !p->failed &&
      !p->replaced && code != WEFT_ABORTED)
    SIM_FAIL(s, "task %d: the final barrier fails: %s\n", p->task, weft_status_message(error));
  if (error && (p->stage == CONNECT || (p->stage == FINAL && !s->some_have_left) || p->failed || code == WEFT_ABORTED))
    return end_proc(s, p, true);
  switch (p->stage) {
  case CONNECT: p->stage = SET; break;
  case SET: p->stage = ADD; break;
  case ADD: p->stage = BARRIER; break;
  case BARRIER:
    if (error && !s->recoverable) return end_proc(s, p, true);
    p->stage = GET;
    break;
  case GET: p->stage = LIVE; break;
  case LIVE:
    p->round++;
    p->stage = s->recoverable ? (s->now < FINAL_FROM ? SET : FINAL) : (p->round < ROUNDS ? SET : SHUTDOWN);
    break;
  case FINAL: p->stage = SHUTDOWN; break;
  default: break;
  }
  push(s, (event){.at = s->now + (int64_t)rnd(s, 300) * MS, .kind = EV_STEP, .proc = p});
}

static void step(sim *s, proc *p)
{
  coord_op *op = &p->op;

  if (p->dead || p->stage == ENDED || p->op_active) return;
  if (p->failed && p->stage != SHUTDOWN) return end_proc(s, p, true);
  *op = (coord_op){.done = op_done, .retry = COORD_RETRY_LOST};
  p->op_active = true;
  p->was_stopped = false;
  if (s->aim.is_taken && s->aim.task == p->task && s->aim.stage == p->stage) {
    s->aim.is_taken = false;
    push(s, (event){.at = s->now + (int64_t)rnd(s, 20) * MS, .kind = EV_FAULT, .proc = p, .fault = s->aim.fault});
  }
  switch (p->stage) {
  case CONNECT:
    s->began_connect[p->task] = true;
    op->deadline_ns = agent_now(p) + 15 * S;
    coord_agent_core_connect(p->core, agent_now(p), op);
    return;
  case SHUTDOWN:
    s->began_shutdown[p->task] = true;
    op->deadline_ns = agent_now(p) + 13 * S;
    coord_agent_core_shutdown(p->core, agent_now(p), op);
    return;
  case SET:
    s->began_round[p->task] = p->round;
    snprintf(p->key, sizeof p->key, "k/%d/%d/%" PRIx64, p->task, p->round, p->incarnation);
    snprintf(p->value, sizeof p->value, "%" PRIx64, rnd(s, UINT64_MAX));
    op->request = (coord_request){
      .method = COORD_INSERT_KEY_VALUE, .key = p->key, .value = p->value, .value_size = strlen(p->value)};
    op->retry = COORD_RETRY_NEVER;
    op->deadline_ns = agent_now(p) + 5 * S;
    break;
  case ADD:
    op->request = (coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "sum", .increment = 1};
    op->retry = COORD_RETRY_NEVER;
    op->deadline_ns = agent_now(p) + 5 * S;
    s->increments_sent++;
    break;
  case BARRIER:
    snprintf(p->id, sizeof p->id, s->recoverable ? "b%d" : "b%d", s->recoverable ? p->round : p->round % 2);
    op->request = (coord_request){.method = COORD_BARRIER, .barrier_id = p->id, .timeout_ms = BARRIER_TIMEOUT / MS};
    op->deadline_ns = agent_now(p) + BARRIER_TIMEOUT + 2 * S;
    break;
  case GET:
    op->request = (coord_request){.method = COORD_GET_KEY_VALUE, .key = rnd(s, 4) ? p->key : "never"};
    op->deadline_ns = agent_now(p) + 2 * S;
    if (!s->had_fault) op->request.key = p->key;
    break;
  case LIVE:
    op->request =
      (coord_request){.method = COORD_GET_ALIVE_TASKS, .tasks = p->everyone, .task_count = (size_t)s->task_count};
    op->deadline_ns = agent_now(p) + 6 * S;
    if (s->recoverable && s->had_fault) op->deadline_ns = agent_now(p) + 1 * S;
    break;
  case FINAL:
    op->request = (coord_request){.method = COORD_BARRIER, .barrier_id = "final", .timeout_ms = 30000};
    op->deadline_ns = agent_now(p) + 32 * S;
    break;
  case ENDED: return;
  }
  coord_agent_core_call(p->core, agent_now(p), op);
}

/* ---- the service ---- */

static void new_service(sim *s)
{
  coord_service_config config = {
    .task_count = s->task_count, .heartbeat_timeout_ns = HEARTBEAT_TIMEOUT, .register_timeout_ns = 12 * S,
    .shutdown_timeout_ns = 6 * S, .recoverable = s->recoverable, .max_key_bytes = 1024, .max_value_bytes = 1 << 20,
    .budget = &s->budget, .answer = answer, .answer_ctx = s,
  };

  config.incarnation = s->service_incarnation = rnd(s, UINT64_MAX - 1) + 1;
  s->service_life++;
  T_OK(coord_service_new(&config, service_now(s), &s->service));
  s->service_next = s->now;
}

static void free_service(sim *s)
{
  for (wire *w = s->wires; w; w = w->next) drop_call(s, w);
  if (coord_service_held(s->service) != 0)
    SIM_FAIL(s, "the service holds %zu calls that nobody made\n", coord_service_held(s->service));
  coord_service_free(s->service);
  s->service = NULL;
  if (s->budget.used_bytes != 0) SIM_FAIL(s, "%zu bytes of the budget are lost\n", s->budget.used_bytes);
}

static void check_held(sim *s)
{
  size_t waiting = 0;

  for (wire *w = s->wires; w; w = w->next)
    waiting += w->delivered && !w->answered && w->service_life == s->service_life;
  if (waiting != coord_service_held(s->service))
    SIM_FAIL(s, "the service holds %zu calls, %zu wait\n", coord_service_held(s->service), waiting);
}

static void check_keys(sim *s)
{
  wire w = {.sim = s, .method = COORD_TRY_GET_KEY_VALUE};
  coord_request request = {.method = COORD_TRY_GET_KEY_VALUE};
  coord_reply reply;
  size_t events = s->heap_count;

  for (int i = 0; i < s->acked_count; i++) {
    if (s->acked[i].life != s->service_life) continue;
    request.key = s->acked[i].key;
    coord_service_handle(s->service, service_now(s), &request, &w.call);
    if (w.error) SIM_FAIL(s, "the acknowledged key %s is gone\n", request.key);
    T_OK(coord_reply_decode(w.method, w.reply, w.reply_size, &s->arena, &reply));
    if (reply.entries[0].value_size != strlen(s->acked[i].value) ||
        memcmp(reply.entries[0].value, s->acked[i].value, reply.entries[0].value_size) != 0)
      SIM_FAIL(s, "the acknowledged key %s has another value\n", request.key);
    free(w.reply);
    /* takes these answers off the queue: they were pushed last, so they are at the end of the heap */
    s->heap_count = events;
  }
}

/* ---- faults ---- */

static void stop_proc(proc *p, int64_t length)
{
  p->stopped_until = p->sim->now + length;
  p->was_stopped = true;
}

static void fault(sim *s, proc *p, fault_kind kind)
{
  int64_t length = (int64_t)rnd(s, 6000) * MS;

  if (s->verbose)
    print_message("%.3f fault %d on task %d/%" PRIx64 "\n", (double)s->now / 1e9, kind, p->task, p->incarnation);
  switch (kind) {
  case KILL:
    kill_proc(s, p);
    if (s->recoverable) push(s, (event){.at = s->now + length, .kind = EV_START, .task = p->task});
    break;
  case RESTART:
    kill_proc(s, p);
    if (!p->replaced) push(s, (event){.at = s->now + length / 3, .kind = EV_START, .task = p->task});
    break;
  case STOP: stop_proc(p, length); break;
  case ZOMBIE: /* it wakes up when its successor is at work */
    stop_proc(p, length);
    if (!p->replaced && !p->dead) push(s, (event){.at = s->now + length / 2, .kind = EV_START, .task = p->task});
    break;
  case RESET: reset_connection(s, p); break;
  case DEAF:
    p->deaf_until = s->now + length;
    push(s, (event){.at = p->deaf_until, .kind = EV_RESET, .proc = p}); /* TCP gives up */
    break;
  case SLEEP:
    for (int i = 0; i < s->proc_count; i++) stop_proc(&s->procs[i], length);
    /* fall through */
  case SERVICE_STOP:
    s->service_stopped_until = s->now + length;
    s->service_was_stopped = true;
    break;
  case SERVICE_RESTART:
    if (s->recoverable) return reset_connection(s, p);
    free_service(s);
    new_service(s);
    s->service_was_restarted = true;
    for (int i = 0; i < s->proc_count; i++) reset_connection(s, &s->procs[i]);
    break;
  case SERVICE_CLOCK: s->service_clock += rnd(s, 2) ? length : -length; break;
  case CLOCK:
    p->clock += length;
    p->was_stopped = true;
    break;
  case FAULT_KINDS: break;
  }
}

/* Those that are likely, twice. */
static fault_kind random_fault(sim *s)
{
  uint64_t kind = rnd(s, FAULT_KINDS + 2);

  return kind < FAULT_KINDS ? (fault_kind)kind : kind == FAULT_KINDS ? RESTART : STOP;
}

/* ---- a run ---- */

static void deliver(sim *s, event e)
{
  bool at_service = e.kind == EV_REQUEST || e.kind == EV_DROP;
  proc *p = e.wire ? e.wire->proc : e.proc;

  if (at_service && s->now < s->service_stopped_until) {
    e.at = s->service_stopped_until;
    return push(s, e);
  }
  if (!at_service && p && e.kind != EV_RESET && e.kind != EV_FAULT && !p->dead && s->now < p->stopped_until) {
    p->was_stopped = true;
    e.at = p->stopped_until;
    return push(s, e);
  }
  switch (e.kind) {
  case EV_REQUEST: deliver_request(s, e.wire); break;
  case EV_DROP: drop_call(s, e.wire); break;
  case EV_REPLY: deliver_reply(s, e.wire); break;
  case EV_LOST: lose(e.wire); break;
  case EV_STEP: step(s, e.proc); break;
  case EV_START: start_proc(s, e.task); break;
  case EV_FAULT:
    if (!p) p = &s->procs[rnd(s, (uint64_t)s->proc_count)];
    fault(s, p, e.fault);
    break;
  case EV_RESET:
    if (!p->dead) reset_connection(s, p);
    break;
  }
}

static bool all_ended(const sim *s)
{
  for (int i = 0; i < s->proc_count; i++)
    if (!s->procs[i].dead && s->procs[i].stage != ENDED) return false;
  for (size_t i = 0; i < s->heap_count; i++)
    if (s->heap[i].kind == EV_START || s->heap[i].kind == EV_FAULT) return false;
  return true;
}

static int64_t tick_service(sim *s)
{
  return from_clock(coord_service_tick(s->service, service_now(s)), s->service_clock);
}

/* `aimed` NULL: random faults, or none. */
static void run_one(uint64_t seed, bool verbose, const aim *aimed)
{
  sim *s = calloc(1, sizeof *s);
  int faults;
  size_t steps = 0;

  s->seed = seed;
  s->random = (seed + 1) * 0x9e3779b97f4a7c15;
  s->verbose = verbose;
  weft_arena_init(&s->arena);
  s->budget.limit_bytes = 64 << 20;
  s->now = 1 * S;
  s->task_count = 1 + (int)rnd(s, MAX_TASKS);
  s->recoverable = rnd(s, 2);
  faults = aimed ? 0 : (int)rnd(s, 5);
  if (aimed) s->aim = *aimed;
  s->has_late_fault = aimed && aimed->stage >= FINAL;
  s->aim.task %= s->task_count;
  s->had_fault = faults > 0 || aimed;
  new_service(s);
  for (int i = 0; i < s->task_count; i++) start_proc(s, i);
  for (int i = 0; i < faults; i++)
    push(s, (event){.at = s->now + (int64_t)rnd(s, FAULTS_END / MS) * MS, .kind = EV_FAULT, .fault = random_fault(s)});

  while (!all_ended(s)) {
    int64_t next = s->heap_count ? s->heap[0].at : INT64_MAX,
            service_at = WEFT_MAX(s->service_next, s->service_stopped_until);
    proc *due = NULL;
    int64_t at;

    at = WEFT_MIN(next, service_at);
    for (int i = 0; i < s->proc_count; i++) {
      proc *p = &s->procs[i];
      int64_t tick_at = WEFT_MAX(p->next_tick, p->stopped_until);
      if (p->dead || tick_at >= at) continue;
      at = tick_at;
      due = p;
    }
    s->now = WEFT_MAX(s->now, at);
    if (s->now > LONGEST_RUN) {
      for (int i = 0; i < s->proc_count; i++)
        if (!s->procs[i].dead && s->procs[i].stage != ENDED)
          SIM_FAIL(s, "task %d/%" PRIx64 " hangs in stage %d\n", s->procs[i].task, s->procs[i].incarnation,
                   s->procs[i].stage);
      SIM_FAIL(s, "the run does not end\n");
    }
    if (!due && next <= service_at) deliver(s, pop(s));
    else if (!due) s->service_next = tick_service(s);
    /* what happened may have moved any timer */
    if (!due) s->service_next = s->now < s->service_stopped_until ? s->service_next : tick_service(s);
    for (int i = 0; i < s->proc_count; i++) {
      proc *p = &s->procs[i];
      if (!p->dead && s->now >= p->stopped_until)
        p->next_tick = from_clock(coord_agent_core_tick(p->core, agent_now(p)), p->clock);
    }
    if (++steps % 64 == 0) check_held(s);
    weft_arena_reset(&s->arena);
  }
  check_held(s);
  check_keys(s);
  if (s->recoverable && s->finals < s->task_count && !s->has_late_fault && !start_has_failed(s))
    SIM_FAIL(s, "only %d of %d tasks came through the final barrier\n", s->finals, s->task_count);

  for (int i = 0; i < s->proc_count; i++) {
    s->procs[i].dead = true;
    for (wire *w = s->wires; w; w = w->next) w->op_gone = true;
    coord_agent_core_free(s->procs[i].core);
  }
  free_service(s);
  for (wire *w = s->wires, *w_next; w; w = w_next) {
    w_next = w->next;
    free(w->request);
    free(w->reply);
    weft_status_free(w->error);
    free(w);
  }
  free(s->heap);
  weft_arena_fini(&s->arena);
  free(s);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
  const char *value = getenv(name);

  return value ? strtoull(value, NULL, 0) : otherwise;
}

TEST(thousands_of_random_histories_keep_the_promises)
{
  uint64_t first = number("WEFT_SIM_SEED", 1), count = number("WEFT_SIM_RUNS", 2000);

  for (uint64_t i = 0; i < count; i++) run_one(first + i, getenv("WEFT_SIM_VERBOSE") != NULL, NULL);
}

/* Which step and fault it was follows from the seed, so that a seed repeats the run. */
TEST(every_fault_at_every_step_keeps_the_promises)
{
  uint64_t cases = (uint64_t)FAULT_KINDS * ENDED, first = number("WEFT_SIM_SEED", 0),
           count = number("WEFT_SIM_RUNS", 8 * cases);

  for (uint64_t seed = first; seed < first + count; seed++)
    run_one(seed, getenv("WEFT_SIM_VERBOSE") != NULL,
            &(aim){.is_taken = true,
                   .task = (int32_t)(seed / cases),
                   .stage = (stage)(seed % ENDED),
                   .fault = (fault_kind)(seed / ENDED % FAULT_KINDS)});
}

TEST_MAIN(UNIT(thousands_of_random_histories_keep_the_promises), UNIT(every_fault_at_every_step_keeps_the_promises))
