/* tests/collective/clique_test.c -- the registry of cliques: a clique is found again, runs that want it queue without
 * deadlock, and a spent clique is dropped. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/clique.h"
#include "collective/communicator.h"

static const int64_t devices[] = {0, 1, 2, 3};
static const int first_two[] = {0, 1};

static coll_clique_request pair(int a) { return (coll_clique_request){{devices + a, NULL, 2, 0}, first_two, 2}; }

static weft_deadline soon(void) { return weft_deadline_after_ms(10000); }

TEST(the_same_key_gives_the_same_communicator)
{
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_event *event;
  weft_comm *first = NULL;

  T_OK(coll_cliques_new(NULL, "t", NULL, &cs));
  for (int i = 0; i < 3; i++) {
    coll_clique_request r = pair(0);
    T_OK(coll_cliques_acquire(cs, &r, 1, soon(), &hold, &event));
    T_OK(weft_event_await(event, soon()));
    weft_comm *comm = coll_clique_hold_comm(hold, 0, 1);
    if (i == 1) T_TRUE(comm == first);
    first = comm;
    if (i == 1) weft_comm_abort(comm, NULL); /* spent: the third is a new one */
    if (i == 2) T_TRUE(weft_comm_health(comm) == NULL);
    coll_clique_hold_release(hold);
    weft_event_release(event);
  }
  coll_cliques_free(cs);
}

/* Every order in which three runs with crossing cliques can acquire and release, on one thread: all get theirs. */
TEST(crossing_cliques_cannot_deadlock_in_any_interleaving)
{
  coll_cliques *cs;
  int interleavings = 0;

  T_OK(coll_cliques_new(NULL, "t", NULL, &cs));
  for (int code = 0; code < 729; code++) { /* six choices of the next run to move: acquire, then release */
    coll_clique_hold *holds[3] = {NULL};
    weft_event *events[3] = {NULL};
    int moves[3] = {0}, bad = 0;
    for (int step = 0, rest = code; step < 6; step++, rest /= 3) moves[rest % 3]++;
    for (int run = 0; run < 3; run++) bad |= moves[run] != 2;
    if (bad) continue;
    interleavings++;
    bool wants_release[3] = {false};
    int rest = code, acquired[3] = {0};
    for (int step = 0; step < 6; step++, rest /= 3) {
      int run = rest % 3;
      coll_clique_request both[2] = {pair(run), pair((run + 1) % 3)}; /* run and the next share one */
      if (!acquired[run]++) T_OK(coll_cliques_acquire(cs, both, 2, soon(), &holds[run], &events[run]));
      else wants_release[run] = true;
      for (int again = 0; again < 3; again++)
        for (int r = 0; r < 3; r++)
          if (wants_release[r] && holds[r] && weft_event_is_ready(events[r])) {
            coll_clique_hold_release(holds[r]);
            holds[r] = NULL;
          }
    }
    for (int left = 3; left;) { /* each run releases its cliques once it has them all: every run must get that far */
      left = 0;
      for (int r = 0; r < 3; r++) {
        if (!holds[r]) continue;
        left++;
        if (!weft_event_is_ready(events[r])) continue;
        T_OK(weft_event_await(events[r], soon()));
        coll_clique_hold_release(holds[r]);
        holds[r] = NULL;
      }
    }
    for (int r = 0; r < 3; r++) weft_event_release(events[r]);
  }
  T_EQ_INT(interleavings, 90);
  coll_cliques_free(cs);
}

TEST(waiting_in_line_has_a_deadline_and_can_be_cancelled)
{
  coll_cliques *cs;
  coll_clique_hold *first, *second, *third;
  weft_event *events[3];
  coll_clique_request r = pair(0);

  T_OK(coll_cliques_new(NULL, "t", NULL, &cs));
  T_OK(coll_cliques_acquire(cs, &r, 1, soon(), &first, &events[0]));
  T_OK(weft_event_await(events[0], soon()));
  T_OK(coll_cliques_acquire(cs, &r, 1, weft_deadline_after_ms(20), &second, &events[1]));
  T_OK(coll_cliques_acquire(cs, &r, 1, soon(), &third, &events[2]));
  T_CODE(weft_event_await(events[1], soon()), WEFT_DEADLINE_EXCEEDED);
  coll_clique_hold_release(third);
  T_CODE(weft_event_await(events[2], soon()), WEFT_CANCELLED);
  coll_clique_hold_release(second);
  coll_clique_hold_release(first);
  for (int i = 0; i < 3; i++) weft_event_release(events[i]);
  coll_cliques_free(cs);
}

TEST(who_does_not_come_to_a_clique_is_named)
{
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_event *event;
  weft_kv *kv;
  coll_clique_request r = {{devices, NULL, 3, 0}, first_two, 2};

  T_OK(weft_kv_local_new(&kv));
  T_OK(coll_cliques_new(kv, "t", NULL, &cs));
  T_OK(coll_cliques_acquire(cs, &r, 1, weft_deadline_after_ms(200), &hold, &event));
  weft_status *st = weft_event_await(event, soon());
  T_EQ_INT(weft_status_code(st), WEFT_DEADLINE_EXCEEDED);
  if (!strstr(weft_status_message(st), "rank 2")) fail_msg("%s", weft_status_text(st, true));
  weft_status_free(st);
  weft_event_release(event);
  coll_clique_hold_release(hold);
  coll_cliques_free(cs);
  weft_kv_destroy(kv);
}

TEST(a_dead_incarnation_makes_keys_stale)
{
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_event *event;
  uint64_t incarnations[] = {11, 12};
  coll_clique_request r = {{devices, incarnations, 2, 0}, first_two, 1};

  T_OK(coll_cliques_new(NULL, "t", NULL, &cs));
  coll_cliques_incarnation_died(cs, 12, "heartbeat");
  T_FAILS(coll_cliques_acquire(cs, &r, 1, soon(), &hold, &event), "Incarnation id 12 is stale");
  coll_cliques_free(cs);
}

/* The operation of a live clique ends, a run that waits for the clique gets the error, and other cliques go on. */
TEST(a_dead_incarnation_ends_its_live_cliques_only)
{
  enum { OURS, THEIRS, IN_LINE, LIVING, HOLDS };
  weft_kv *kv;
  coll_cliques *cs[2]; /* of two processes */
  coll_clique_hold *holds[HOLDS];
  weft_event *events[HOLDS], *pending;
  uint64_t incarnations[] = {11, 12}, others[] = {11, 11};
  coll_clique_request dying[2], living = {{devices + 2, others, 2, 0}, first_two, 2};
  float x = 1, y[2];
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y[0]};

  T_OK(weft_kv_local_new(&kv));
  for (int p = 0; p < 2; p++) {
    T_OK(coll_cliques_new(kv, "t", NULL, &cs[p]));
    dying[p] = (coll_clique_request){{devices, incarnations, 2, 0}, first_two + p, 1};
    T_OK(coll_cliques_acquire(cs[p], &dying[p], 1, soon(), &holds[p], &events[p]));
  }
  T_OK(coll_cliques_acquire(cs[0], &dying[0], 1, soon(), &holds[IN_LINE], &events[IN_LINE]));
  T_OK(coll_cliques_acquire(cs[0], &living, 1, soon(), &holds[LIVING], &events[LIVING]));
  T_OK(weft_event_await(events[OURS], soon()));
  T_OK(weft_event_await(events[THEIRS], soon()));
  T_OK(weft_event_await(events[LIVING], soon()));
  T_OK(weft_coll_post(coll_clique_hold_comm(holds[OURS], 0, 0), &op, NULL, &pending));
  coll_cliques_incarnation_died(cs[0], 12, "heartbeat");
  T_FAILS(weft_event_await(pending, soon()), "Task with incarnation id 12 is not connected");
  T_FAILS(weft_event_await(events[IN_LINE], soon()), "12");
  weft_event_release(pending);
  T_OK(weft_coll_post(coll_clique_hold_comm(holds[LIVING], 0, 0), &op, NULL, &pending));
  op.recv = &y[1];
  T_OK(weft_coll_run(coll_clique_hold_comm(holds[LIVING], 0, 1), &op, NULL));
  T_OK(weft_event_await(pending, soon()));
  T_TRUE(y[0] == 2 && y[1] == 2);
  weft_event_release(pending);
  for (int i = 0; i < HOLDS; i++) {
    coll_clique_hold_release(holds[i]);
    weft_event_release(events[i]);
  }
  for (int p = 0; p < 2; p++) coll_cliques_free(cs[p]);
  weft_kv_destroy(kv);
}

/* ---- a process that is killed ---- */

enum { SURVIVOR = 201, VICTIM };

/* The clique of two devices, one of each process, that the process holds. */
static weft_status *hold_pair(coll_cliques *cs, int rank, coll_clique_hold **hold)
{
  uint64_t incarnations[] = {SURVIVOR, VICTIM};
  coll_clique_request r = {{devices, incarnations, 2, 0}, &rank, 1};
  weft_event *event = NULL;
  weft_status *st = coll_cliques_acquire(cs, &r, 1, weft_deadline_after_ms(120000), hold, &event);

  if (!st) st = weft_event_await(event, WEFT_NO_DEADLINE);
  weft_event_release(event);
  return st;
}

static void live_until_killed(const char *directory)
{
  weft_kv *kv;
  coll_cliques *cs;
  coll_clique_hold *hold;

  if (weft_kv_file_new(directory, &kv) || coll_cliques_new(kv, "killed", NULL, &cs) || hold_pair(cs, 1, &hold))
    _exit(1);
  for (;;) pause();
}

/* Nobody reports the death: the connection that closed is enough. */
TEST(a_killed_process_is_not_waited_for_again)
{
  char directory[] = "/tmp/weft-clique-XXXXXX", command[64];
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_kv *kv;
  float x = 1, y = 0;
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};

  T_TRUE(mkdtemp(directory) != NULL);
  pid_t pid = fork();
  if (pid == 0) live_until_killed(directory);
  T_OK(weft_kv_file_new(directory, &kv));
  T_OK(coll_cliques_new(kv, "killed", NULL, &cs));
  T_OK(hold_pair(cs, 0, &hold));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  T_FAILS(weft_coll_run(coll_clique_hold_comm(hold, 0, 0), &op, NULL), "Task with incarnation id 202 is not connected");
  coll_clique_hold_release(hold);
  int64_t began_ns = weft_now_ns();
  weft_status *st = hold_pair(cs, 0, &hold);
  T_TRUE(weft_now_ns() - began_ns < 60 * WEFT_NS_PER_S); /* its deadline is two minutes away; it takes microseconds */
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  if (!strstr(weft_status_message(st), "Task with incarnation id 202 is not connected"))
    fail_msg("%s", weft_status_message(st));
  weft_status_free(st);
  coll_clique_hold_release(hold);
  coll_cliques_free(cs);
  weft_kv_destroy(kv);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  T_EQ_INT(system(command), 0);
}

/* Two registries stand for two processes. The first leaves, and the collective in which the other waits ends with the
 * reason. */
static void leave_with(const char *reason, const char *heard)
{
  static uint64_t incarnations[] = {301, 302};
  static const int ranks[] = {0, 1};
  coll_cliques *cs[2];
  coll_clique_hold *holds[2], *none;
  weft_event *events[2], *pending, *no_event;
  weft_kv *kv;
  float x[2] = {1, 2}, y[2] = {0};
  weft_coll_op ops[2];
  coll_clique_request r[2];

  T_OK(weft_kv_local_new(&kv));
  for (int p = 0; p < 2; p++) {
    r[p] = (coll_clique_request){{devices, incarnations, 2, 0}, &ranks[p], 1};
    ops[p] = (weft_coll_op){
      .kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x[p], .recv = &y[p]};
    T_OK(coll_cliques_new(kv, "leaves", NULL, &cs[p]));
    T_OK(coll_cliques_acquire(cs[p], &r[p], 1, soon(), &holds[p], &events[p]));
  }
  for (int p = 0; p < 2; p++) T_OK(weft_event_await(events[p], soon()));
  coll_cliques_leave(cs[0], &(coll_clique_self){devices, 1, incarnations[0]},
                     reason); /* its run is not over: that one ends well */
  T_OK(weft_coll_post(coll_clique_hold_comm(holds[0], 0, 0), &ops[0], NULL, &pending));
  T_OK(weft_coll_run(coll_clique_hold_comm(holds[1], 0, 1), &ops[1], NULL));
  T_OK(weft_event_await(pending, soon()));
  weft_event_release(pending);
  T_TRUE(y[0] == 3 && y[1] == 3);
  T_CODE(coll_cliques_acquire(cs[0], &r[0], 1, soon(), &none, &no_event), WEFT_FAILED_PRECONDITION);
  T_OK(weft_coll_post(coll_clique_hold_comm(holds[1], 0, 1), &ops[1], NULL, &pending));
  coll_clique_hold_release(holds[0]);
  T_FAILS(weft_event_await(pending, soon()), heard);
  weft_event_release(pending);
  coll_clique_hold_release(holds[1]);
  for (int p = 0; p < 2; p++) {
    weft_event_release(events[p]);
    coll_cliques_free(cs[p]);
  }
  weft_kv_destroy(kv);
  incarnations[0] += 2;
  incarnations[1] += 2;
}

TEST(who_leaves_is_not_waited_for)
{
  leave_with("ValueError: bad data", "ValueError: bad data");
  leave_with(NULL, "left the communicator");
}

/* Process 1, as the others know it by `incarnation`, has left with `reason`; process 0, which never
 * met it, wants a communicator with it. */
static weft_status *meet_who_left(uint64_t incarnation, const char *reason, weft_deadline deadline)
{
  static const uint64_t incarnations[] = {401, 402};
  static const int rank = 0;
  const coll_clique_request r = {{devices, incarnations, 2, 0}, &rank, 1};
  coll_cliques *here, *there;
  coll_clique_hold *hold;
  weft_event *event;
  weft_kv *kv;

  T_OK(weft_kv_local_new(&kv));
  T_OK(coll_cliques_new(kv, "gone", NULL, &here));
  T_OK(coll_cliques_new(kv, "gone", NULL, &there));
  coll_cliques_leave(there, &(coll_clique_self){&devices[1], 1, incarnation}, reason);
  T_OK(coll_cliques_acquire(here, &r, 1, deadline, &hold, &event));
  weft_status *st = weft_event_await(event, soon());
  coll_clique_hold_release(hold);
  weft_event_release(event);
  coll_cliques_free(here);
  coll_cliques_free(there);
  weft_kv_destroy(kv);
  return st;
}

TEST(who_left_is_not_met)
{
  T_FAILS(meet_who_left(402, "ValueError: bad data", soon()),
          "has left its job: its program ended: ValueError: bad data");
  T_FAILS(meet_who_left(402, NULL, soon()), "the process of rank 1 (device 1) has left its job");
  T_CODE(meet_who_left(399, "an earlier incarnation", weft_deadline_after_ms(1500)), WEFT_DEADLINE_EXCEEDED);
}

/* A run that waits for its communicator when its process leaves still gets it. */
TEST(who_leaves_still_meets_those_it_waits_for)
{
  static const uint64_t incarnations[] = {411, 412};
  static const int ranks[] = {0, 1};
  coll_cliques *cs[2];
  coll_clique_hold *holds[2];
  weft_event *events[2];
  weft_kv *kv;

  T_OK(weft_kv_local_new(&kv));
  for (int p = 0; p < 2; p++) {
    const coll_clique_request r = {{devices, incarnations, 2, 0}, &ranks[p], 1};
    T_OK(coll_cliques_new(kv, "late", NULL, &cs[p]));
    if (p == 1) coll_cliques_leave(cs[0], &(coll_clique_self){devices, 1, incarnations[0]}, "ValueError: bad data");
    if (p == 1) nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    T_OK(coll_cliques_acquire(cs[p], &r, 1, soon(), &holds[p], &events[p]));
  }
  for (int p = 0; p < 2; p++) T_OK(weft_event_await(events[p], soon()));
  for (int p = 0; p < 2; p++) {
    coll_clique_hold_release(holds[p]);
    weft_event_release(events[p]);
    coll_cliques_free(cs[p]);
  }
  weft_kv_destroy(kv);
}

typedef struct member {
  weft_kv *kv;
  int rank;
  const char *error;
} member;

/* A process with one device of two, as a thread. */
static void *be_member(void *arg)
{
  member *m = arg;
  uint64_t incarnations[] = {101, 102};
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_event *event;

  m->error = "failed";
  if (coll_cliques_new(m->kv, "job", NULL, &cs)) return NULL;
  for (int i = 0; i < 3; i++) {
    coll_clique_request r = {{devices, incarnations, 2, 0}, &m->rank, 1};
    if (coll_cliques_acquire(cs, &r, 1, soon(), &hold, &event)) return NULL;
    weft_status *st = weft_event_await(event, soon());
    float x = 1, y = 0;
    weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
    if (!st) st = weft_coll_run(coll_clique_hold_comm(hold, 0, m->rank), &op, NULL);
    if (st || y != 2) return NULL;
    if (i == 1) { /* both have their result: now it may go */
      char *value, key[2][8] = {"done0", "done1"};
      size_t size;
      weft_status_ignore(weft_kv_set(m->kv, key[m->rank], "", 0, true));
      if (weft_kv_get(m->kv, key[!m->rank], soon(), &value, &size)) return NULL;
      free(value);
      weft_comm_abort(coll_clique_hold_comm(hold, 0, m->rank), NULL);
    }
    coll_clique_hold_release(hold);
    weft_event_release(event);
  }
  coll_cliques_free(cs);
  m->error = NULL;
  return NULL;
}

/* ---- communicators whose ends take long ---- */

enum { FAREWELL_MS = 300 };
static atomic_int farewells;

static weft_status *slow_create(void *ctx, const weft_comm_spec *spec, coll_communicator **out)
{
  (void)spec;
  *out = calloc(1, sizeof **out);
  WEFT_TRY_ALLOC(*out);
  (*out)->ops = ((const coll_clique_factory *)ctx)->ops;
  return NULL;
}
static void slow_abort(coll_communicator *c, const weft_status *why) { (void)c, (void)why; }
static void slow_destroy(coll_communicator *c)
{
  usleep(1000 * FAREWELL_MS);
  atomic_fetch_add(&farewells, 1);
  free(c);
}
static const coll_communicator_ops slow_ops = {
  .name = "slow", .create = slow_create, .abort = slow_abort, .destroy = slow_destroy};

/* A process that ends, or leaves its job, waits for its communicators as long as for one of them. */
TEST(communicators_are_destroyed_at_the_same_time)
{
  for (int leaves = 0; leaves < 2; leaves++) {
    coll_clique_factory factory = {.ops = &slow_ops, .ctx = &factory};
    coll_cliques *cs;
    T_OK(coll_cliques_new(NULL, "slow", &factory, &cs));
    atomic_store(&farewells, 0);
    for (int a = 0; a < 3; a++) {
      coll_clique_hold *hold;
      weft_event *event;
      coll_clique_request r = pair(a);
      T_OK(coll_cliques_acquire(cs, &r, 1, soon(), &hold, &event));
      T_OK(weft_event_await(event, soon()));
      coll_clique_hold_release(hold);
      weft_event_release(event);
    }
    int64_t began_ns = weft_now_ns();
    if (leaves) coll_cliques_leave(cs, &(coll_clique_self){devices, 4, 501}, "it is over");
    if (leaves) T_EQ_INT(atomic_load(&farewells), 3);
    coll_cliques_free(cs);
    int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
    T_EQ_INT(atomic_load(&farewells), 3);
    if (took_ms >= 3 * FAREWELL_MS) fail_msg("it took %lld ms", (long long)took_ms);
  }
}

TEST(members_of_two_processes_agree_on_the_next_generation)
{
  weft_kv *kv;
  member members[2];
  pthread_t threads[2];

  T_OK(weft_kv_local_new(&kv));
  for (int i = 0; i < 2; i++) {
    members[i] = (member){kv, i, NULL};
    pthread_create(&threads[i], NULL, be_member, &members[i]);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) T_TRUE(members[i].error == NULL);
  weft_kv_destroy(kv);
}

TEST_MAIN(UNIT(a_killed_process_is_not_waited_for_again), /* first: it forks */
          UNIT(the_same_key_gives_the_same_communicator), UNIT(crossing_cliques_cannot_deadlock_in_any_interleaving),
          UNIT(waiting_in_line_has_a_deadline_and_can_be_cancelled), UNIT(who_does_not_come_to_a_clique_is_named), UNIT(a_dead_incarnation_makes_keys_stale),
          UNIT(a_dead_incarnation_ends_its_live_cliques_only), UNIT(who_leaves_is_not_waited_for), UNIT(who_left_is_not_met),
          UNIT(who_leaves_still_meets_those_it_waits_for),
          UNIT(communicators_are_destroyed_at_the_same_time), UNIT(members_of_two_processes_agree_on_the_next_generation))
