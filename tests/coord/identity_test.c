/* tests/coord/identity_test.c -- Who may speak for a task, and what a task may keep: the state machine alone, with
 * connections. */
#include "test.h"

#include "base/deadline.h"
#include "coord/service.h"

enum { TASKS = 3, CALLS = 128, MOST_KEYS = 3, MOST_BYTES = 64, MOST_BARRIERS = 2, MOST_WAITS = 4 };

typedef struct asked {
  coord_call call;
  bool is_answered;
  weft_code code;
  char text[256];
} asked;

static coord_service *service;
static coord_budget budget;
static coord_caller connections[TASKS + 1]; /* of each task, and of another process */
static asked calls[CALLS];
static int call_count;
static int64_t now;
#define OTHER (&connections[TASKS])

static void answer(void *ctx, coord_call *call, const coord_reply *reply, const weft_status *error)
{
  asked *a = (asked *)call;

  (void)ctx;
  (void)reply;
  T_TRUE(!a->is_answered);
  a->is_answered = true;
  a->code = weft_status_code(error);
  snprintf(a->text, sizeof a->text, "%s", weft_status_message(error));
}

static asked *ask(coord_caller *by, coord_request request)
{
  asked *a = &calls[call_count++];

  T_TRUE(call_count < CALLS);
  request.caller = by;
  if (!request.key) request.key = "";
  if (!request.value) request.value = "";
  if (!request.barrier_id) request.barrier_id = "";
  if (!request.error_message) request.error_message = "";
  coord_service_handle(service, now, &request, &a->call);
  return a;
}

static asked *reg(coord_caller *by, int32_t task, uint64_t incarnation)
{
  return ask(by, (coord_request){.method = COORD_REGISTER_TASK, .task = task, .incarnation = incarnation});
}

static asked *say(coord_caller *by, coord_method method, int32_t task, uint64_t incarnation)
{
  return ask(by, (coord_request){
                   .method = method, .task = task, .incarnation = incarnation, .barrier_id = "b", .timeout_ms = 1000});
}

static void expect(const asked *a, weft_code code, const char *fragment)
{
  if (!a->is_answered) fail_msg("not answered, want %s", weft_code_name(code));
  if (a->code != code || !strstr(a->text, fragment))
    fail_msg("got %s \"%s\", want %s \"%s\"", weft_code_name(a->code), a->text, weft_code_name(code), fragment);
}

static void start(bool recoverable)
{
  coord_service_config config = {
    .task_count = TASKS, .incarnation = 7, .heartbeat_timeout_ns = 10 * WEFT_NS_PER_S, .register_timeout_ns = 60 * WEFT_NS_PER_S,
    .shutdown_timeout_ns = 30 * WEFT_NS_PER_S, .recoverable = recoverable, .max_key_bytes = 100, .max_value_bytes = 1000,
    .max_task_keys = MOST_KEYS, .max_task_bytes = MOST_BYTES, .max_task_barriers = MOST_BARRIERS, .max_task_waits = MOST_WAITS, .budget = &budget, .answer = answer,
  };

  memset(calls, 0, sizeof calls);
  memset(connections, 0, sizeof connections);
  call_count = 0;
  budget = (coord_budget){.limit_bytes = 1 << 20};
  now = 100 * WEFT_NS_PER_S;
  T_OK(coord_service_new(&config, now, &service));
  for (int32_t i = 0; i < TASKS; i++) reg(&connections[i], i, 100 + (uint64_t)i);
  for (int i = 0; i < TASKS; i++) expect(&calls[i], WEFT_OK, "");
}

static int stop(void **state)
{
  (void)state;
  for (int i = 0; i <= TASKS; i++) coord_service_caller_gone(service, now, &connections[i]);
  coord_service_free(service);
  service = NULL;
  return budget.used_bytes == 0 ? 0 : -1;
}

static void expect_job_is_well(void)
{
  for (int32_t i = 0; i < TASKS; i++) {
    expect(say(&connections[i], COORD_HEARTBEAT, i, 100 + (uint64_t)i), WEFT_OK, "");
    T_EQ_INT(coord_service_task_state(service, i), COORD_TASK_CONNECTED);
  }
}

TEST(nobody_speaks_for_a_task_that_is_connected)
{
  static const coord_method methods[] = {COORD_HEARTBEAT, COORD_POLL_FOR_ERROR, COORD_REPORT_ERROR, COORD_SHUTDOWN_TASK, COORD_RESET_TASK,
                                         COORD_BARRIER, COORD_CANCEL_BARRIER, COORD_GET_ALIVE_TASKS};

  start(false);
  for (size_t i = 0; i < WEFT_COUNT(methods); i++) {
    expect(say(&connections[1], methods[i], 0, 100), WEFT_PERMISSION_DENIED,
           "task 0"); /* another member, who knows the incarnation */
    expect(say(&connections[1], methods[i], 0, 0), WEFT_PERMISSION_DENIED, "task 0");
    expect(say(OTHER, methods[i], 0, 0), WEFT_PERMISSION_DENIED, "task 0");
    expect(say(OTHER, methods[i], 0, 999), WEFT_PERMISSION_DENIED, "task 0");
  }
  expect_job_is_well();
}

TEST(a_second_process_of_a_number_does_not_disturb_the_first)
{
  start(false);
  expect(reg(OTHER, 0, 999), WEFT_ALREADY_EXISTS, "two processes have the same number");
  expect(reg(&connections[1], 0, 999), WEFT_ALREADY_EXISTS, "task 0");
  expect(reg(&connections[1], 0, 100), WEFT_ALREADY_EXISTS, "task 0");
  expect_job_is_well();
}

TEST(a_restart_is_still_noticed)
{
  start(false);
  coord_service_caller_gone(service, now, &connections[0]); /* it died */
  expect(reg(OTHER, 0, 999), WEFT_ABORTED, "it was restarted without the others");
  T_EQ_INT(coord_service_task_state(service, 0), COORD_TASK_ERROR);
}

TEST(a_recoverable_task_comes_back)
{
  start(true);
  coord_service_caller_gone(service, now, &connections[0]);
  expect(reg(OTHER, 0, 999), WEFT_OK, "");
  expect(say(OTHER, COORD_HEARTBEAT, 0, 999), WEFT_OK, "");
  coord_service_caller_gone(service, now, OTHER);
  expect(reg(&connections[0], 0, 1000), WEFT_OK, "");
  expect(reg(OTHER, 0, 1001), WEFT_OK, ""); /* the message that ends its connection was lost */
  expect(say(&connections[0], COORD_REPORT_ERROR, 0, 1000), WEFT_PERMISSION_DENIED, "task 0");
  T_EQ_INT(coord_service_task_incarnation(service, 0), 1001);
}

TEST(a_task_connects_anew_with_its_incarnation)
{
  start(false);
  expect(say(OTHER, COORD_HEARTBEAT, 0, 100), WEFT_OK, ""); /* the old connection has not ended yet */
  T_TRUE(!say(OTHER, COORD_BARRIER, 0, 0)->is_answered);    /* it speaks for the task, and waits for the others */
  expect(say(&connections[0], COORD_RESET_TASK, 0, 0), WEFT_PERMISSION_DENIED, "task 0");
  coord_service_caller_gone(service, now, OTHER);
  coord_service_caller_gone(service, now, &connections[1]);
  expect(say(&connections[0], COORD_HEARTBEAT, 0, 100), WEFT_OK, "");
  expect(say(&connections[0], COORD_HEARTBEAT, 1, 101), WEFT_OK,
         ""); /* two clients of one process share a connection */
  expect(say(&connections[0], COORD_HEARTBEAT, 0, 100), WEFT_OK, "");
  expect(say(&connections[0], COORD_HEARTBEAT, 2, 102), WEFT_PERMISSION_DENIED, "task 2");
}

TEST(only_who_takes_part_cancels_a_barrier)
{
  static const int32_t two[] = {0, 1};

  start(false);
  asked *waits =
    ask(&connections[0],
        (coord_request){.method = COORD_BARRIER, .barrier_id = "c", .timeout_ms = 5000, .tasks = two, .task_count = 2});
  expect(ask(&connections[2],
             (coord_request){.method = COORD_CANCEL_BARRIER, .barrier_id = "c", .task = 2, .incarnation = 102}),
         WEFT_PERMISSION_DENIED, "task 2");
  T_TRUE(!waits->is_answered);
  expect(ask(&connections[1],
             (coord_request){.method = COORD_CANCEL_BARRIER, .barrier_id = "c", .task = 1, .incarnation = 101}),
         WEFT_OK, "");
  expect(waits, WEFT_CANCELLED, "task 1");
}

static asked *put(coord_caller *by, const char *key, const char *value)
{
  return ask(
    by,
    (coord_request){
      .method = COORD_INSERT_KEY_VALUE, .key = key, .value = value, .value_size = strlen(value), .overwrite = true});
}

TEST(keys_count_against_the_task_that_wrote_them)
{
  start(false);
  expect(put(&connections[0], "a", "1"), WEFT_OK, "");
  expect(put(&connections[0], "b", "1"), WEFT_OK, "");
  expect(put(&connections[0], "c", "1"), WEFT_OK, "");
  expect(put(&connections[0], "d", "1"), WEFT_RESOURCE_EXHAUSTED, "at most 3 keys and 64 bytes");
  expect(put(&connections[0], "a", "2"), WEFT_OK, ""); /* in its own place */
  expect(put(&connections[1], "a", "3"), WEFT_OK, ""); /* now the other's */
  expect(put(&connections[0], "d", "1"), WEFT_OK, "");
  expect(ask(&connections[1], (coord_request){.method = COORD_DELETE_KEY_VALUE, .key = "b"}), WEFT_OK, "");
  expect(put(&connections[0], "b", "0123456789012345678901234567890123456789012345678901234567890"),
         WEFT_RESOURCE_EXHAUSTED, "64 bytes");
  expect(put(&connections[2], "b", "012345678901234567890123456789012345678901234567890123456789012"), WEFT_OK, "");
  expect(put(OTHER, "tool", "1"), WEFT_OK, ""); /* a connection that speaks for no task has a quota too */
  expect(put(OTHER, "tools", "1"), WEFT_OK, "");
  expect(put(OTHER, "toolss", "1"), WEFT_OK, "");
  expect(put(OTHER, "toolsss", "1"), WEFT_RESOURCE_EXHAUSTED, "3 keys");
}

TEST(barrier_ids_count_against_the_task_that_named_them)
{
  static const int32_t alone[] = {0}, other[] = {1};

  start(false);
  for (int i = 0; i < 3; i++) {
    char id[8];
    snprintf(id, sizeof id, "b%d", i);
    asked *a = ask(
      &connections[0],
      (coord_request){.method = COORD_BARRIER, .barrier_id = id, .timeout_ms = 5000, .tasks = alone, .task_count = 1});
    if (i < MOST_BARRIERS) expect(a, WEFT_OK, "");
    else expect(a, WEFT_RESOURCE_EXHAUSTED, "task 0 has named 2 barriers");
  }
  expect(
    ask(&connections[1],
        (coord_request){
          .method = COORD_BARRIER, .barrier_id = "x", .task = 1, .timeout_ms = 5000, .tasks = other, .task_count = 1}),
    WEFT_OK, "");
}

/* A connection that speaks for no task may call a barrier in the name of a task that has none. */
TEST(barrier_ids_of_a_stranger_do_not_count_against_the_task_that_it_names)
{
  static const int32_t alone[] = {0};

  start(false);
  coord_service_caller_gone(service, now, &connections[0]);
  for (int i = 0; i < 3; i++) {
    char id[8];
    snprintf(id, sizeof id, "s%d", i);
    asked *a = ask(
      OTHER,
      (coord_request){.method = COORD_BARRIER, .barrier_id = id, .timeout_ms = 5000, .tasks = alone, .task_count = 1});
    if (i < MOST_BARRIERS) expect(a, WEFT_OK, "");
    else expect(a, WEFT_RESOURCE_EXHAUSTED, "connections that speak for no task have named 2 barriers");
  }
  expect(reg(&connections[0], 0, 100), WEFT_OK, "");
  expect(ask(&connections[0],
             (coord_request){
               .method = COORD_BARRIER, .barrier_id = "own", .timeout_ms = 5000, .tasks = alone, .task_count = 1}),
         WEFT_OK, "");
}

/* The version of the tasks' states that the next watcher waits beyond: the latest. */
static int64_t version(void)
{
  int64_t latest = 0;

  for (asked *a = NULL; !a || a->is_answered; latest++) {
    a = ask(OTHER, (coord_request){.method = COORD_WATCH_TASKS, .version = latest});
    if (!a->is_answered) {
      coord_service_drop(service, &a->call);
      return latest;
    }
  }
  return latest;
}

static asked *wait_for(coord_caller *by, int i)
{
  static const char *const keys[] = {"k0", "k1", "k2"};
  static const int32_t all[] = {0, 1, 2};
  int32_t task = (int32_t)(by - connections);

  switch (i) {
  case 0: return ask(by, (coord_request){.method = COORD_WATCH_TASKS, .version = version()});
  case 1: return ask(by, (coord_request){.method = COORD_BARRIER, .barrier_id = "w", .task = task, .timeout_ms = 5000});
  case 2: return ask(by, (coord_request){.method = COORD_GET_ALIVE_TASKS, .task = task, .tasks = all, .task_count = 3});
  default: return ask(by, (coord_request){.method = COORD_GET_KEY_VALUE, .key = keys[i % 3]});
  }
}

TEST(waiting_calls_count_against_the_task_that_makes_them)
{
  asked *waits[MOST_WAITS + 2];

  start(false);
  asked *poll = say(&connections[0], COORD_POLL_FOR_ERROR, 0, 100); /* does not count */
  for (int i = 0; i < MOST_WAITS; i++) {
    waits[i] = wait_for(&connections[0], i);
    T_TRUE(!waits[i]->is_answered);
  }
  for (int i = 0; i < MOST_WAITS; i++)
    expect(wait_for(&connections[0], i), WEFT_RESOURCE_EXHAUSTED,
           "4 calls of task 0 wait already, the limit (WEFT_COORD_MAX_TASK_WAITS)");
  expect(ask(&connections[0], (coord_request){.method = COORD_TRY_GET_KEY_VALUE, .key = "k0"}), WEFT_NOT_FOUND, "");
  expect_job_is_well();
  for (int i = 1; i < MOST_WAITS; i++)
    T_TRUE(!wait_for(&connections[1], i)->is_answered); /* others have quotas of their own */
  for (int i = 0; i < MOST_WAITS; i++) T_TRUE(!wait_for(OTHER, 3)->is_answered);
  expect(wait_for(OTHER, 3), WEFT_RESOURCE_EXHAUSTED, "connections that speak for no task");
  coord_service_drop(service, &waits[0]->call);         /* one is given up, */
  expect(put(&connections[2], "k0", "1"), WEFT_OK, ""); /* and one is answered */
  expect(waits[3], WEFT_OK, "");
  T_TRUE(!wait_for(&connections[0], 4)->is_answered);
  T_TRUE(!wait_for(&connections[0], 5)->is_answered);
  expect(wait_for(&connections[0], 4), WEFT_RESOURCE_EXHAUSTED, "task 0");
  T_TRUE(!poll->is_answered);
}

#define U(name) cmocka_unit_test_teardown(name, stop)

int main(void)
{
  const struct CMUnitTest tests[] = {
    U(nobody_speaks_for_a_task_that_is_connected), U(a_second_process_of_a_number_does_not_disturb_the_first), U(a_restart_is_still_noticed),
    U(a_recoverable_task_comes_back), U(a_task_connects_anew_with_its_incarnation), U(only_who_takes_part_cancels_a_barrier),
    U(keys_count_against_the_task_that_wrote_them), U(barrier_ids_count_against_the_task_that_named_them),
    U(barrier_ids_of_a_stranger_do_not_count_against_the_task_that_it_names),
    U(waiting_calls_count_against_the_task_that_makes_them),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
