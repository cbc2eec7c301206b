/* tests/pjrt/agent_test.c -- The agent extension: keys, barriers and live tasks of two processes' agents, and two
 * clients that meet through them. */
#include "client.h"

#include <pthread.h>

#include <weft/coord.h>

enum { COUNT = 2, LONG_MS = 60000 };

static const PJRT_WeftAgent_Extension *x;
static weft_coord_service *service;
static PJRT_WeftAgent *agents[COUNT];
static int64_t ids[COUNT];
static PJRT_Client *clients[COUNT];

/* Each process is a thread; assertions belong to the main one. */
typedef struct part {
  pthread_t thread;
  PJRT_Error *(*run)(int process);
  int process;
  PJRT_Error *error;
} part;

static void *run_part(void *arg)
{
  part *p = arg;

  p->error = p->run(p->process);
  return NULL;
}

static void in_each(PJRT_Error *(*run)(int process))
{
  part parts[COUNT];

  for (int i = 0; i < COUNT; i++) {
    parts[i] = (part){.run = run, .process = i};
    assert_int_equal(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]), 0);
  }
  for (int i = 0; i < COUNT; i++) pthread_join(parts[i].thread, NULL);
  for (int i = 0; i < COUNT; i++) T_OK(status_of(parts[i].error));
}

static PJRT_Error *join_job(int process) { return x->connect(agents[process]); }
static PJRT_Error *leave_job(int process) { return x->shutdown(agents[process]); }
static PJRT_Error *meet(int process) { return x->barrier(agents[process], "all", LONG_MS, NULL, 0); }

static int begin(void **state)
{
  weft_coord_service_options options;

  (void)state;
  for (const PJRT_Extension_Base *e = GetPjrtApi()->extension_start; e; e = e->next)
    if (e->type == PJRT_Extension_Type_WeftAgent) x = (const PJRT_WeftAgent_Extension *)e;
  assert_non_null(x);
  T_OK(weft_coord_service_options_load(&options));
  options.task_count = COUNT;
  T_OK(weft_coord_service_start(&options, &service));
  for (int i = 0; i < COUNT; i++)
    T_OK(status_of(x->create(weft_coord_service_address(service), i, 0, LONG_MS, &agents[i], &ids[i])));
  in_each(join_job);
  return 0;
}

static int end(void **state)
{
  (void)state;
  weft_coord_service_stop(service);
  return 0;
}

TEST(keys)
{
  char *value;
  size_t size, count;
  int64_t sum;
  PJRT_WeftAgent_Entry *entries;

  T_OK(status_of(x->set(agents[0], "k/a", "\0one", 4, false)));
  T_CODE(status_of(x->set(agents[1], "k/a", "two", 3, false)), WEFT_ALREADY_EXISTS);
  T_OK(status_of(x->get(agents[1], "k/a", LONG_MS, &value, &size)));
  assert_int_equal(size, 4);
  assert_memory_equal(value, "\0one", 5);
  x->free_block(value);
  T_OK(status_of(x->set(agents[1], "k/a", "two", 3, true)));
  T_OK(status_of(x->list(agents[0], "k", &entries, &count)));
  assert_int_equal(count, 1);
  assert_string_equal(entries[0].key, "k/a");
  assert_string_equal(entries[0].value, "two");
  x->free_block(entries);
  T_CODE(status_of(x->get(agents[0], "k/b", -1, &value, &size)), WEFT_NOT_FOUND);
  T_CODE(status_of(x->get(agents[0], "k/b", 10, &value, &size)), WEFT_DEADLINE_EXCEEDED);
  T_OK(status_of(x->increment(agents[0], "n", 5, &sum)));
  T_OK(status_of(x->increment(agents[1], "n", -2, &sum)));
  assert_int_equal(sum, 3);
  T_OK(status_of(x->remove(agents[1], "k")));
  T_CODE(status_of(x->get(agents[0], "k/a", -1, &value, &size)), WEFT_NOT_FOUND);
}

static PJRT_Error *ask_who_lives(int process)
{
  const int32_t all[COUNT] = {0, 1};
  PJRT_WeftAgent_Task *live = NULL;
  size_t count = 0;
  PJRT_Error *error = x->live_tasks(agents[process], all, COUNT, &live, &count);
  bool is_right = !error && count == COUNT && live[0].task == 0 && live[1].task == 1 && live[0].incarnation &&
                  live[1].incarnation;

  x->free_block(live);
  return is_right ? error : error ? error : x->barrier(agents[process], "wrong answer", 1, NULL, 0);
}

TEST(barriers_and_live_tasks)
{
  const int32_t self = 0;

  in_each(meet);
  T_OK(status_of(x->barrier(agents[0], "alone", LONG_MS, &self, 1)));
  T_CODE(status_of(x->barrier(agents[0], "nobody else", 20, NULL, 0)), WEFT_DEADLINE_EXCEEDED);
  in_each(ask_who_lives);
}

TEST(a_sync_point_needs_a_listener)
{
  bool reached;

  T_CODE(status_of(x->reached_sync_point(agents[0], 1, &reached)), WEFT_FAILED_PRECONDITION);
  T_OK(status_of(x->preemption_start(agents[0])));
  T_CODE(status_of(x->preemption_start(agents[0])), WEFT_FAILED_PRECONDITION);
  T_OK(status_of(x->reached_sync_point(agents[0], 1, &reached)));
  assert_false(reached);
  x->preemption_stop(agents[0]);
  x->preemption_stop(agents[0]);
}

static PJRT_NamedValue number(const char *name, int64_t value)
{
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kInt64,
                           .int64_value = value,
                           .value_size = 1};
}

static PJRT_Error *make(int process, int64_t id, PJRT_Client **out)
{
  const PJRT_NamedValue options[] = {number("num_devices", 2), number("node_id", process), number("num_nodes", COUNT),
                                     number("weft_agent", id)};
  PJRT_Client_Create_Args args = {.struct_size = sizeof args, .create_options = options, .num_options = WEFT_COUNT(options)};
  PJRT_Error *error = GetPjrtApi()->PJRT_Client_Create(&args);

  *out = args.client;
  return error;
}

static PJRT_Error *make_one(int process) { return make(process, ids[process], &clients[process]); }

TEST(clients_meet_through_agents)
{
  PJRT_Client *none;

  T_FAILS(status_of(make(0, 4711, &none)), "there is no agent 4711");
  in_each(make_one);
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(CALL(Client_Devices, .client = clients[i]).num_devices, 2 * COUNT);
    assert_int_equal(CALL(Client_ProcessIndex, .client = clients[i]).process_index, i);
  }
  in_each(leave_job);
  for (int i = 0; i < COUNT; i++) x->destroy(agents[i]); /* the clients keep them */
  for (int i = 0; i < COUNT; i++) CALL(Client_Destroy, .client = clients[i]);
  T_FAILS(status_of(make(0, ids[0], &none)), "there is no agent");
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(keys), UNIT(barriers_and_live_tasks), UNIT(a_sync_point_needs_a_listener),
                                     UNIT(clients_meet_through_agents)};

  return cmocka_run_group_tests(units, begin, end);
}
