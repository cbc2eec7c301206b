/* tests/coord/service_test.c -- The state machine alone, on virtual time: the scenarios of XLA's own tests of its
 * service, as requests and answers. The fragments of messages are those that XLA's tests look for. */
#include "test.h"

#include "base/deadline.h"
#include "coord/service.h"
#include "coord/wire/wire_status.h"

#define S WEFT_NS_PER_S
enum { MAX_CALLS = 256, INCARNATION = 7 };

typedef struct asked {
  coord_call call;
  bool answered;
  weft_code code;
  bool is_marked;
  char text[512], value[128];
  int64_t counter, barrier_counter, version;
  size_t count;
  int32_t tasks[16];
  uint64_t incarnations[16];
  coord_task_state states[16];
} asked;

static coord_service *service;
static coord_budget budget;
static int64_t now;
static asked calls[MAX_CALLS];
static int call_count;

static void answer(void *ctx, coord_call *call, const coord_reply *reply, const weft_status *error)
{
  asked *a = (asked *)call;
  size_t size;

  (void)ctx;
  T_TRUE(!a->answered);
  a->answered = true;
  a->code = weft_status_code(error);
  a->barrier_counter = -1;
  if (error) {
    snprintf(a->text, sizeof a->text, "%s", weft_status_message(error));
    a->is_marked = weft_status_payload(error, COORD_PAYLOAD_SERVICE_ERROR, &size) != NULL;
    (void)!coord_barrier_counter(error, &a->barrier_counter);
    return;
  }
  a->counter = reply->counter;
  a->version = reply->version;
  a->count = reply->task_count + reply->info_count + reply->entry_count;
  for (size_t i = 0; i < reply->task_count && i < 16; i++) {
    a->tasks[i] = reply->tasks[i];
    a->incarnations[i] = reply->incarnations[i];
  }
  for (size_t i = 0; i < reply->info_count && i < 16; i++) {
    a->states[reply->infos[i].task] = reply->infos[i].state;
    a->incarnations[reply->infos[i].task] = reply->infos[i].incarnation;
  }
  if (reply->entry_count == 1)
    snprintf(a->value, sizeof a->value, "%.*s", (int)reply->entries[0].value_size,
             (const char *)reply->entries[0].value);
}

static void start(int tasks, bool recoverable)
{
  coord_service_config config = {
    .task_count = tasks, .incarnation = INCARNATION, .heartbeat_timeout_ns = 10 * S, .register_timeout_ns = 60 * S,
    .shutdown_timeout_ns = 30 * S, .recoverable = recoverable, .max_key_bytes = 100, .max_value_bytes = 1000,
    .budget = &budget, .answer = answer,
  };

  coord_service_free(service);
  memset(calls, 0, sizeof calls);
  call_count = 0;
  budget = (coord_budget){.limit_bytes = 1 << 20};
  now = 100 * S;
  T_OK(coord_service_new(&config, now, &service));
}

static int stop_all(void **state)
{
  (void)state;
  coord_service_free(service);
  service = NULL;
  return budget.used_bytes == 0 ? 0 : -1;
}

static asked *ask(coord_request request)
{
  asked *a = &calls[call_count++];

  T_TRUE(call_count < MAX_CALLS);
  if (!request.key) request.key = "";
  if (!request.value) request.value = "";
  if (!request.barrier_id) request.barrier_id = "";
  if (!request.error_message) request.error_message = "";
  coord_service_handle(service, now, &request, &a->call);
  return a;
}

static void pass(int64_t ns)
{
  for (int64_t end = now + ns; now < end;) {
    now = WEFT_MIN(now + S / 2, end);
    coord_service_tick(service, now);
  }
}

static void expect_held(const asked *a) { T_TRUE(!a->answered); }
static void expect_code(const asked *a, weft_code code, const char *fragment)
{
  if (!a->answered) fail_msg("not answered, want %s", weft_code_name(code));
  if (a->code != code) fail_msg("got %s \"%s\", want %s", weft_code_name(a->code), a->text, weft_code_name(code));
  if (!strstr(a->text, fragment)) fail_msg("got \"%s\", want \"%s\"", a->text, fragment);
}
#define OK(a) expect_code((a), WEFT_OK, "")
#define FAILS(a, code, fragment) expect_code((a), WEFT_##code, (fragment))

static asked *reg(int32_t task, uint64_t incarnation)
{
  return ask((coord_request){.method = COORD_REGISTER_TASK, .task = task, .incarnation = incarnation});
}
static asked *beat(int32_t task, uint64_t incarnation)
{
  return ask((coord_request){.method = COORD_HEARTBEAT, .task = task, .incarnation = incarnation});
}
static asked *poll_error(int32_t task) { return ask((coord_request){.method = COORD_POLL_FOR_ERROR, .task = task}); }
static asked *leave(int32_t task) { return ask((coord_request){.method = COORD_SHUTDOWN_TASK, .task = task}); }
static asked *report(int32_t task)
{
  return ask((coord_request){
    .method = COORD_REPORT_ERROR, .task = task, .error_code = WEFT_INTERNAL, .error_message = "reported"});
}
static asked *watch(int64_t version) { return ask((coord_request){.method = COORD_WATCH_TASKS, .version = version}); }
static asked *bar(const char *id, int64_t counter, int32_t task)
{
  return ask(
    (coord_request){.method = COORD_BARRIER, .barrier_id = id, .counter = counter, .timeout_ms = 5000, .task = task});
}
static asked *bar_of(const char *id, int32_t task, const int32_t *tasks, size_t count)
{
  return ask((coord_request){
    .method = COORD_BARRIER, .barrier_id = id, .timeout_ms = 5000, .task = task, .tasks = tasks, .task_count = count});
}
static asked *alive(int32_t task, const int32_t *tasks, size_t count)
{
  return ask((coord_request){.method = COORD_GET_ALIVE_TASKS, .task = task, .tasks = tasks, .task_count = count});
}
static asked *put(const char *key, const char *value, bool overwrite)
{
  return ask((coord_request){
    .method = COORD_INSERT_KEY_VALUE, .key = key, .value = value, .value_size = strlen(value), .overwrite = overwrite});
}
static asked *key(coord_method method, const char *name) { return ask((coord_request){.method = method, .key = name}); }

static void join(int tasks, bool recoverable)
{
  start(tasks, recoverable);
  for (int32_t i = 0; i < tasks; i++) reg(i, (uint64_t)i + 100);
  for (int i = 0; i < tasks; i++) OK(&calls[i]);
}

/* ---- registration ---- */

TEST(registration_is_a_barrier)
{
  start(2, false);
  asked *first = reg(0, 1);
  expect_held(first);
  pass(5 * S);
  expect_held(first);
  OK(reg(1, 2));
  OK(first);
  FAILS(reg(2, 1), INVALID_ARGUMENT, "not in the cluster");
  OK(reg(0, 1)); /* a lost reply */
}

TEST(registration_that_is_incomplete_ends_the_service_for_all)
{
  start(2, false);
  asked *first = reg(0, 1);
  pass(61 * S);
  FAILS(first, DEADLINE_EXCEEDED, "task 1 (not registered)");
  FAILS(reg(0, 1), ABORTED, "in error");
  FAILS(reg(1, 1), ABORTED, "in error");
}

TEST(recoverable_job_too_wants_all_at_its_start)
{
  start(2, true);
  asked *first = reg(0, 1);
  pass(61 * S);
  FAILS(first, DEADLINE_EXCEEDED, "task 1 (not registered)");
  FAILS(reg(0, 1), ABORTED, "in error");
}

TEST(restart_during_registration_is_harmless)
{
  start(2, false);
  asked *stale = reg(0, 1), *fresh = reg(0, 2);
  FAILS(stale, ALREADY_EXISTS, "");
  OK(reg(1, 5));
  OK(fresh);
  T_EQ_INT(coord_service_task_incarnation(service, 0), 2);
}

TEST(caller_that_is_gone_does_not_count_as_registered)
{
  start(2, false);
  asked *gone = reg(0, 1);
  coord_service_drop(service, &gone->call);
  asked *other = reg(1, 2);
  expect_held(other);
  OK(reg(0, 3));
  OK(other);
}

TEST(restart_after_registration_fails_the_job)
{
  join(2, false);
  asked *poll = poll_error(1), *barrier = bar("b", 0, 1);
  FAILS(reg(0, 999), ABORTED, "restarted");
  FAILS(poll, ABORTED, "restarted");
  FAILS(barrier, INTERNAL, "task 0");
  FAILS(poll_error(1), ABORTED, "");
  FAILS(beat(0, 100), ABORTED, "already in error");
  OK(beat(1, 101));
}

/* ---- heartbeats ---- */

TEST(silent_task_is_lost_and_named)
{
  join(3, false);
  asked *poll = poll_error(0);
  for (int i = 0; i < 12; i++) {
    pass(1 * S);
    beat(0, 100), beat(2, 102);
  }
  FAILS(poll, UNAVAILABLE, "heartbeat timeout");
  T_TRUE(strstr(poll->text, "task 1") && !strstr(poll->text, "task 2"));
  FAILS(beat(1, 101), ABORTED, "heartbeat timeout");
  FAILS(poll_error(1), FAILED_PRECONDITION, "already in error");
  FAILS(poll_error(2), UNAVAILABLE, "task 1");
}

TEST(without_polls_everybody_learns_from_heartbeats)
{
  join(2, false);
  for (int i = 0; i < 12; i++) {
    pass(1 * S);
    beat(0, 100);
  }
  FAILS(beat(0, 100), ABORTED, "another task failed");
}

TEST(service_that_was_stopped_itself_forgives_silence)
{
  join(1, false);
  pass(3 * S);
  OK(beat(0, 100));
  now += 60 * S; /* SIGSTOP, a sleeping laptop */
  coord_service_tick(service, now);
  OK(beat(0, 100));
  T_EQ_INT(coord_service_task_state(service, 0), COORD_TASK_CONNECTED);
}

TEST(heartbeats_after_a_disconnect_have_a_grace_period)
{
  join(1, false);
  OK(leave(0));
  pass(5 * S);
  OK(beat(0, 100));
  pass(6 * S);
  FAILS(beat(0, 100), INVALID_ARGUMENT, "restarted");
  FAILS(beat(7, 1), INVALID_ARGUMENT, "not in the cluster");
}

TEST(heartbeat_of_another_incarnation)
{
  join(2, false);
  FAILS(beat(0, 5), ABORTED, "restarted");
  join(2, true);
  OK(beat(0, 5)); /* a zombie: answered, and not counted */
  for (int i = 0; i < 12; i++) {
    pass(1 * S);
    beat(0, 5), beat(1, 101);
  }
  T_EQ_INT(coord_service_task_state(service, 0), COORD_TASK_ERROR);
}

/* ---- errors ---- */

TEST(polls_end_for_a_reason)
{
  join(2, false);
  asked *older = poll_error(0), *newer = poll_error(0);
  FAILS(older, CANCELLED, "newer");
  expect_held(newer);
  asked *last = leave(0);
  OK(leave(1));
  OK(last);
  FAILS(newer, CANCELLED, "disconnects");
  pass(11 * S);
  FAILS(poll_error(0), FAILED_PRECONDITION, "has disconnected");
  FAILS(poll_error(9), INVALID_ARGUMENT, "not in the cluster");
  start(2, false);
  FAILS(poll_error(0), FAILED_PRECONDITION, "has not been registered");
}

TEST(reported_error_reaches_all_or_only_the_reporter)
{
  join(2, false);
  asked *poll = poll_error(1);
  OK(report(0));
  FAILS(poll, INTERNAL, "reported");
  FAILS(report(0), FAILED_PRECONDITION, "not connected");
  join(2, true);
  poll = poll_error(1);
  OK(report(0));
  expect_held(poll);
  FAILS(reg(0, 100), ABORTED, "reported"); /* it said so itself: it may not come back */
}

TEST(stopped_service_ends_all_that_waits)
{
  join(2, false);
  asked *poll = poll_error(0), *barrier = bar("b", 0, 0), *get = key(COORD_GET_KEY_VALUE, "k"), *w = watch(-1);
  OK(w);
  w = watch(w->version);
  coord_service_stop(service);
  FAILS(poll, CANCELLED, "");
  FAILS(barrier, ABORTED, "");
  FAILS(get, CANCELLED, "");
  T_TRUE(!get->is_marked && !poll->is_marked);
  OK(w);
  T_EQ_INT(w->version, -1);
  T_EQ_INT(w->count, 0);
  FAILS(beat(0, 100), INTERNAL, "stopped");
}

/* ---- shutdown ---- */

TEST(shutdown_is_a_barrier)
{
  join(2, false);
  asked *first = leave(0);
  expect_held(first);
  OK(leave(1));
  OK(first);
  T_EQ_INT(coord_service_task_state(service, 0), COORD_TASK_DISCONNECTED);
}

TEST(shutdown_that_is_incomplete_fails_all)
{
  join(2, false);
  asked *first = leave(0), *poll = poll_error(1);
  for (int i = 0; i < 31; i++) {
    pass(1 * S);
    beat(0, 100), beat(1, 101);
  }
  FAILS(first, INTERNAL, "timed out");
  FAILS(poll, INTERNAL, "Shutdown barrier has failed");
  FAILS(reg(1, 5), ABORTED, "");
}

TEST(shutdown_counts_even_if_its_caller_is_gone)
{
  join(2, false);
  asked *first = leave(0);
  coord_service_drop(service, &first->call);
  OK(leave(1));
}

TEST(shutdown_with_a_dead_task_fails)
{
  join(2, false);
  poll_error(0);
  for (int i = 0; i < 12; i++) {
    pass(1 * S);
    beat(0, 100);
  }
  FAILS(leave(0), INTERNAL, "heartbeat timeout");
}

TEST(recoverable_tasks_leave_one_by_one)
{
  join(2, true);
  OK(leave(0));
  FAILS(leave(0), FAILED_PRECONDITION, "not connected");
  OK(beat(1, 101));
}

/* ---- barriers ---- */

TEST(barrier_opens_when_all_have_come_and_serves_again)
{
  join(3, false);
  for (int64_t counter = 0; counter < 4; counter++) {
    asked *a = bar("b", counter, 0), *b = bar("b", counter, 1);
    expect_held(a), expect_held(b);
    asked *c = bar("b", counter, 2);
    OK(a), OK(b), OK(c);
    T_EQ_INT(c->counter, counter);
    OK(bar("b", counter, 1)); /* a lost reply */
  }
}

TEST(late_barrier_names_the_missing)
{
  join(3, false);
  asked *a = bar("b", 0, 1);
  for (int i = 0; i < 6; i++) {
    pass(1 * S);
    beat(0, 100), beat(1, 101), beat(2, 102);
  }
  FAILS(a, DEADLINE_EXCEEDED, "Barrier timed out. Id: b::0. 1/3 tasks arrived");
  T_TRUE(strstr(a->text, "task 0 (last heartbeat") && strstr(a->text, "first was task 1"));
  T_EQ_INT(a->barrier_counter, 0);
  FAILS(bar("b", 0, 2), DEADLINE_EXCEEDED, "Barrier timed out"); /* late, and it gets the same answer */
  asked *x = bar("b", 1, 0), *y = bar("b", 1, 1);
  OK(bar("b", 1, 2));
  OK(x), OK(y);
}

TEST(barrier_of_hundred_late_tasks_has_a_short_message)
{
  start(100, false);
  for (int i = 0; i < 100; i++) reg(i, 5);
  asked *a = bar("b", 0, 0);
  pass(6 * S);
  FAILS(a, DEADLINE_EXCEEDED, "and 97 more");
  T_TRUE(strlen(a->text) < 400);
}

TEST(callers_out_of_step_fail_the_barrier)
{
  join(2, false);
  asked *a = bar("b", 0, 0);
  OK(bar("b", 0, 1)), OK(a);
  asked *next = bar("b", 1, 0), *restarted = bar("b", 0, 1);
  FAILS(restarted, INTERNAL, "restarted");
  FAILS(next, INTERNAL, "restarted");
  T_EQ_INT(restarted->barrier_counter, 1);
  a = bar("b", 2, 0);
  OK(bar("b", 2, 1)), OK(a);
  a = bar("b", 3, 0);
  FAILS(bar("b", 7, 1), INTERNAL, "too quick / slow");
  FAILS(a, INTERNAL, "too quick / slow");
  asked *unseen = bar("unseen", 4, 0);
  FAILS(unseen, INTERNAL, "restarted");
  T_EQ_INT(unseen->barrier_counter, 0); /* where the agent goes on from */
  a = bar("unseen", 1, 0);
  OK(bar("unseen", 1, 1)), OK(a);
}

TEST(callers_must_mean_the_same_tasks)
{
  static const int32_t two[] = {0, 1}, reversed[] = {1, 0, 1}, all[] = {2, 1, 0}, strange[] = {0, 9};
  join(3, false);
  asked *a = bar_of("b", 0, two, 2);
  OK(bar_of("b", 1, reversed, 3)), OK(a);
  a = bar_of("all", 0, all, 3);
  asked *b = bar("all", 0, 1);
  OK(bar("all", 0, 2)), OK(a), OK(b); /* everyone, spelled out or not */
  a = bar_of("c", 0, two, 2);
  FAILS(bar("c", 0, 1), INVALID_ARGUMENT, "Conflicting tasks specified");
  FAILS(a, INVALID_ARGUMENT, "Conflicting tasks specified");
  a = bar_of("d", 0, two, 2);
  FAILS(bar_of("d", 2, two, 2), INVALID_ARGUMENT, "A non-participating task");
  FAILS(a, INVALID_ARGUMENT, "A non-participating task");
  FAILS(bar_of("e", 0, strange, 2), INVALID_ARGUMENT, "not in the cluster");
  FAILS(bar("f", 0, 17), INVALID_ARGUMENT, "A non-participating task");
}

TEST(stray_caller_does_not_change_a_passed_barrier)
{
  static const int32_t two[] = {0, 1};
  join(3, false);
  asked *a = bar_of("b", 0, two, 2);
  OK(bar_of("b", 1, two, 2)), OK(a);
  FAILS(bar_of("b", 2, two, 2), INVALID_ARGUMENT, "A non-participating task");
  OK(bar_of("b", 1, two, 2));
}

TEST(newer_call_of_a_task_replaces_the_older)
{
  join(2, false);
  asked *older = bar("b", 0, 0), *newer = bar("b", 0, 0);
  FAILS(older, CANCELLED, "newer");
  T_TRUE(!older->is_marked);
  OK(bar("b", 0, 1)), OK(newer);
}

TEST(barrier_is_cancelled_for_all)
{
  join(2, false);
  coord_request cancel = {.method = COORD_CANCEL_BARRIER, .barrier_id = "b", .task = 1};
  asked *a = bar("b", 0, 0);
  cancel.counter = 3;
  FAILS(ask(cancel), FAILED_PRECONDITION, "likely due to a restart");
  cancel.counter = 0;
  OK(ask(cancel));
  FAILS(a, CANCELLED, "cancelled by task 1");
  FAILS(ask(cancel), FAILED_PRECONDITION, "already been passed");
  FAILS(bar("b", 0, 1), CANCELLED, "");
  a = bar("b", 1, 0);
  OK(bar("b", 1, 1)), OK(a);
  cancel.barrier_id = "early";
  OK(ask(cancel));
  FAILS(bar("early", 0, 0), CANCELLED, "");
  a = bar("early", 1, 0);
  OK(bar("early", 1, 1)), OK(a);
}

TEST(barrier_with_a_dead_task_fails_at_once)
{
  join(2, false);
  poll_error(0);
  OK(report(1));
  FAILS(bar("b", 0, 0), INTERNAL, "task 1 is in error: reported");
}

TEST(caller_that_is_gone_is_not_at_the_barrier)
{
  join(2, false);
  asked *gone = bar("b", 0, 0);
  coord_service_drop(service, &gone->call);
  asked *a = bar("b", 0, 1);
  expect_held(a);
  OK(bar("b", 0, 0)), OK(a);
}

/* ---- recoverable ---- */

TEST(recoverable_task_that_restarts_starts_over)
{
  join(2, true);
  for (int64_t counter = 0; counter < 3; counter++) {
    asked *a = bar("b", counter, 0);
    OK(bar("b", counter, 1)), OK(a);
  }
  asked *before = bar("b", 3, 1), *poll = poll_error(0);
  OK(reg(1, 500)); /* restarted before its heartbeats were missed */
  FAILS(before, CANCELLED, "left");
  expect_held(poll);
  asked *again = bar("b", 0, 1); /* it counts from 0 again, and joins instance 3 */
  expect_held(again);
  asked *peer = bar("b", 3, 0);
  OK(peer), OK(again);
  T_EQ_INT(again->counter, 3);
  again = bar("b", 0, 1); /* and restarts once more, and opens instance 4 */
  peer = bar("b", 4, 0);
  OK(peer), OK(again);
  T_EQ_INT(again->counter, 4);
}

TEST(recoverable_task_that_was_lost_may_return)
{
  join(2, true);
  asked *poll = poll_error(0), *stuck = bar("b", 0, 0);
  for (int i = 0; i < 12; i++) {
    pass(S / 4);
    beat(0, 100);
  }
  (void)stuck;
  for (int i = 0; i < 12; i++) {
    pass(1 * S);
    beat(0, 100);
  }
  expect_held(poll);
  T_EQ_INT(coord_service_task_state(service, 1), COORD_TASK_ERROR);
  OK(reg(1, 777));
  T_EQ_INT(coord_service_task_state(service, 1), COORD_TASK_CONNECTED);
}

TEST(one_recoverable_task_among_others)
{
  /* dialect T: a task says it of itself */
  start(2, false);
  ask((coord_request){.method = COORD_REGISTER_TASK, .task = 0, .incarnation = 1, .recoverable = true});
  OK(reg(1, 2));
  asked *poll = poll_error(1);
  OK(reg(0, 3));
  expect_held(poll);
  OK(leave(1)); /* the others do not wait for it */
}

/* ---- zombies and other services ---- */

TEST(requests_for_another_service_are_refused)
{
  join(1, false);
  asked *a =
    ask((coord_request){.method = COORD_TRY_GET_KEY_VALUE, .key = "k", .is_fenced = true, .service_incarnation = 8});
  FAILS(a, INTERNAL, "wrong service incarnation");
  a = ask((coord_request){
    .method = COORD_TRY_GET_KEY_VALUE, .key = "k", .is_fenced = true, .service_incarnation = INCARNATION});
  FAILS(a, NOT_FOUND, "Config key k not found.");
}

TEST(zombies_may_not_speak_for_their_successors)
{
  join(2, true);
  OK(reg(1, 500));
  asked *zombie = ask((coord_request){.method = COORD_BARRIER,
                                      .barrier_id = "b",
                                      .task = 1,
                                      .incarnation = 101,
                                      .is_fenced = true,
                                      .service_incarnation = INCARNATION});
  FAILS(zombie, ABORTED, "replaced");
}

/* ---- liveness and watches ---- */

TEST(the_living_agree_on_who_is_alive)
{
  static const int32_t all[] = {0, 1, 2}, pair[] = {1, 0};
  join(3, true);
  asked *a = alive(0, all, 3), *b = alive(1, all, 3), *again = alive(1, all, 3), *p = alive(0, pair, 2);
  expect_held(a), expect_held(b), expect_held(p);
  asked *c = alive(2, all, 3);
  OK(a), OK(b), OK(again), OK(c);
  T_EQ_INT(a->count, 3);
  T_EQ_INT(b->incarnations[2], 102);
  expect_held(p);
  OK(alive(1, pair, 2)), OK(p);
  FAILS(alive(2, pair, 2), INVALID_ARGUMENT, "without itself");
  a = alive(0, all, 3);
  b = alive(1, all, 3);
  OK(report(2)); /* it dies while they wait */
  OK(a), OK(b);
  T_EQ_INT(a->count, 2);
}

TEST(task_that_asked_and_died_is_not_in_the_round)
{
  static const int32_t all[] = {0, 1};
  join(2, true);
  asked *a = alive(1, all, 2);
  coord_service_drop(service, &a->call); /* died */
  OK(reg(1, 500));                       /* came back, and has not asked */
  a = alive(0, all, 2);
  expect_held(a);
  OK(alive(1, all, 2)), OK(a);
  T_EQ_INT(a->incarnations[1], 500);
}

TEST(watches_see_changes_and_may_miss_steps)
{
  join(2, true);
  asked *w = watch(-1);
  OK(w);
  T_EQ_INT(w->count, 2);
  T_EQ_INT(w->states[1], COORD_TASK_CONNECTED);
  asked *next = watch(w->version);
  expect_held(next);
  OK(leave(1));
  OK(reg(1, 300));
  expect_held(next);
  pass(S / 2);
  OK(next);
  T_EQ_INT(next->incarnations[1], 300);
  FAILS(watch(next->version + 1), INVALID_ARGUMENT, "yet to come");
  OK(watch(0));
}

/* ---- keys and values ---- */

TEST(keys_are_paths)
{
  join(1, false);
  OK(put("/dir//a/", "1", false));
  OK(put("dir/b/c", "2", false));
  OK(put("dir_x", "3", false));
  OK(put("dir!y", "4", false));
  asked *a = key(COORD_GET_KEY_VALUE, "dir/a");
  OK(a);
  T_EQ_STR(a->value, "1");
  FAILS(put("dir/a", "9", false), ALREADY_EXISTS, "key dir/a already exists.");
  T_TRUE(!calls[call_count - 1].is_marked);
  OK(put("dir/a", "9", true));
  a = key(COORD_GET_KEY_VALUE_DIR, "/dir/");
  OK(a);
  T_EQ_INT(a->count, 2);
  T_EQ_INT(key(COORD_GET_KEY_VALUE_DIR, "")->count, 0);
  T_EQ_INT(key(COORD_GET_KEY_VALUE_DIR, "di")->count, 0);
  OK(key(COORD_DELETE_KEY_VALUE, "dir"));
  OK(key(COORD_DELETE_KEY_VALUE, "dir"));
  FAILS(key(COORD_TRY_GET_KEY_VALUE, "dir/b/c"), NOT_FOUND, "Config key dir/b/c not found.");
  OK(key(COORD_TRY_GET_KEY_VALUE, "dir_x"));
  OK(key(COORD_TRY_GET_KEY_VALUE, "dir!y"));
}

TEST(gets_wait_for_their_key)
{
  join(1, false);
  asked *a = key(COORD_GET_KEY_VALUE, "k//x"), *b = key(COORD_GET_KEY_VALUE, "k/x"), *c = key(COORD_GET_KEY_VALUE, "k");
  expect_held(a);
  OK(key(COORD_DELETE_KEY_VALUE, "k"));
  coord_service_drop(service, &b->call);
  OK(put("k/x", "v", false));
  OK(a);
  T_EQ_STR(a->value, "v");
  T_TRUE(!b->answered);
  expect_held(c);
  OK(ask((coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "k", .increment = 5}));
  OK(c);
  T_EQ_STR(c->value, "5");
}

TEST(increments_add_up_or_say_why_not)
{
  join(1, false);
  OK(ask((coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "n", .increment = INT64_C(5000000000)}));
  asked *a = ask((coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "n", .increment = -1});
  OK(a);
  T_EQ_STR(a->value, "4999999999");
  OK(put("text", "12x", false));
  FAILS(ask((coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "text", .increment = 1}), FAILED_PRECONDITION,
        "not a decimal");
  OK(put("max", "9223372036854775807", false));
  FAILS(ask((coord_request){.method = COORD_INCREMENT_KEY_VALUE, .key = "max", .increment = 1}), FAILED_PRECONDITION,
        "does not fit");
}

TEST(limits_are_kept_and_named)
{
  char long_key[128], big[1100];
  join(1, false);
  memset(long_key, 'k', sizeof long_key);
  long_key[101] = '\0';
  FAILS(put(long_key, "v", false), RESOURCE_EXHAUSTED, "the limit is 100");
  memset(big, 'v', sizeof big);
  big[1001] = '\0';
  FAILS(put("k", big, false), RESOURCE_EXHAUSTED, "the limit is 1000");
  FAILS(put("bad\xff", "v", false), INVALID_ARGUMENT, "UTF-8");
  FAILS(put("/", "v", false), INVALID_ARGUMENT, "empty key");
  big[900] = '\0';
  for (int i = 0; i < 3000; i++) {
    snprintf(long_key, sizeof long_key, "k%d", i);
    call_count = 1;
    memset(&calls[1], 0, sizeof calls[1]);
    asked *a = put(long_key, big, false);
    if (a->code == WEFT_OK) continue;
    FAILS(a, RESOURCE_EXHAUSTED, "memory limit");
    T_TRUE(i > 900 && i < 1200);
    T_TRUE(budget.used_bytes <= budget.limit_bytes);
    return;
  }
  fail_msg("no limit");
}

int main(void)
{
#define U(name) cmocka_unit_test_teardown(name, stop_all)
  const struct CMUnitTest units[] = {
    U(registration_is_a_barrier), U(registration_that_is_incomplete_ends_the_service_for_all), U(recoverable_job_too_wants_all_at_its_start),
    U(restart_during_registration_is_harmless), U(caller_that_is_gone_does_not_count_as_registered),
    U(restart_after_registration_fails_the_job), U(silent_task_is_lost_and_named),
    U(without_polls_everybody_learns_from_heartbeats), U(service_that_was_stopped_itself_forgives_silence),
    U(heartbeats_after_a_disconnect_have_a_grace_period), U(heartbeat_of_another_incarnation), U(polls_end_for_a_reason),
    U(reported_error_reaches_all_or_only_the_reporter), U(stopped_service_ends_all_that_waits), U(shutdown_is_a_barrier),
    U(shutdown_that_is_incomplete_fails_all), U(shutdown_counts_even_if_its_caller_is_gone),
    U(shutdown_with_a_dead_task_fails), U(recoverable_tasks_leave_one_by_one),
    U(barrier_opens_when_all_have_come_and_serves_again), U(late_barrier_names_the_missing),
    U(barrier_of_hundred_late_tasks_has_a_short_message), U(callers_out_of_step_fail_the_barrier),
    U(callers_must_mean_the_same_tasks), U(stray_caller_does_not_change_a_passed_barrier),
    U(newer_call_of_a_task_replaces_the_older), U(barrier_is_cancelled_for_all), U(barrier_with_a_dead_task_fails_at_once),
    U(caller_that_is_gone_is_not_at_the_barrier), U(recoverable_task_that_restarts_starts_over),
    U(recoverable_task_that_was_lost_may_return), U(one_recoverable_task_among_others),
    U(requests_for_another_service_are_refused), U(zombies_may_not_speak_for_their_successors),
    U(the_living_agree_on_who_is_alive), U(task_that_asked_and_died_is_not_in_the_round),
    U(watches_see_changes_and_may_miss_steps), U(keys_are_paths), U(gets_wait_for_their_key),
    U(increments_add_up_or_say_why_not), U(limits_are_kept_and_named),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
