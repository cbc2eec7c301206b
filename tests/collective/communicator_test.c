/* tests/collective/communicator_test.c -- a platform's communicator offers what the host's offers: operations in order,
 * deadlines, reports, the flight recorder, mismatches that are found before data moves, and aborts. */
#include "world.h"

#include "collective/clique.h"
#include "collective/context.h"
#include "collective/diagnose.h"
#include "collective/inquiry.h"
#include "collective/internal.h"
#include "fake.h"

enum { RANKS = 3, ELEMS = 50, ROUNDS = 4 };

/* A rank of a busy machine is asked for longer before a report says that it has not answered. */
__attribute__((constructor)) static void be_patient(void) { setenv("WEFT_COLLECTIVE_DIAGNOSE", "5s", 0); }

static float in[ROUNDS][RANKS][ELEMS], out[ROUNDS][RANKS][ELEMS];

/* Devices of one process, or processes of one device each. */
static void open_world(world *w, bool processes)
{
  weft_comm_spec spec = {.communicator = &fake_ops};
  static const int ranks[] = {0, 1, 2};

  if (processes) {
    world_open_processes(w, RANKS, &spec);
    return;
  }
  *w = (world){.size = RANKS};
  spec.name = "devices";
  spec.size = spec.rank_count = RANKS;
  spec.ranks = ranks;
  T_OK(weft_comm_create(&spec, w->comms));
}

/* All communicators that were made have been destroyed, with nothing left in them. */
static void close_world(world *w)
{
  world_close(w);
  T_EQ_INT(fakes.count, 0);
  T_EQ_INT(fakes.destroyed, fakes.made);
  T_EQ_INT(fakes.ended, fakes.posted);
}

static weft_coll_op sum(int round, int rank)
{
  for (int e = 0; e < ELEMS; e++) in[round][rank][e] = (float)(round + 10 * rank + 100 * e);
  return (weft_coll_op){.kind = WEFT_ALL_REDUCE,
                        .dtype = WEFT_F32,
                        .reduction = WEFT_SUM,
                        .count = ELEMS,
                        .send = in[round][rank],
                        .recv = out[round][rank]};
}

static weft_coll_call within_ms(int64_t ms)
{
  return (weft_coll_call){.site = {.instruction = "all-reduce.7"}, .deadline = weft_deadline_after_ms(ms), .stream = (void *)(intptr_t)FAKE_STREAM_MARK};
}

/* The ends of operations that have been posted; NULL events: not posted. */
static void await_all(world *w, weft_event **events, weft_status **out_ends)
{
  for (int r = 0; r < RANKS; r++) {
    out_ends[r] = events[r] ? weft_coll_wait(w->comms[r], events[r]) : NULL;
    weft_event_release(events[r]);
    events[r] = NULL;
  }
}

static void free_all(weft_status **ends)
{
  for (int r = 0; r < RANKS; r++) weft_status_free(ends[r]);
}

/* The first rank whose status has the code. If there is none, the test fails. */
static const char *text_of(weft_status **ends, weft_code code)
{
  for (int r = 0; r < RANKS; r++)
    if (weft_status_code(ends[r]) == code) return weft_status_message(ends[r]);
  fail_msg("no rank has the code %s: %s", weft_code_name(code),
           ends[0] ? weft_status_text(ends[0], true) : "rank 0 ended well");
  return "";
}

static void check_contains(const char *text, const char *part)
{
  if (!strstr(text, part)) fail_msg("\"%s\" is not in: %s", part, text);
}

static void run_in_order(bool processes)
{
  world w;
  weft_event *events[ROUNDS][RANKS];
  weft_coll_call call = within_ms(20000);

  fake_reset();
  open_world(&w, processes);
  for (int round = 0; round < ROUNDS; round++) /* several are queued at once */
    for (int r = 0; r < RANKS; r++) {
      weft_coll_op op = sum(round, r);
      T_OK(weft_coll_post(w.comms[r], &op, &call, &events[round][r]));
    }
  for (int round = 0; round < ROUNDS; round++) {
    weft_status *ends[RANKS];
    await_all(&w, events[round], ends);
    for (int r = 0; r < RANKS; r++) T_OK(ends[r]);
    for (int r = 0; r < RANKS; r++)
      for (int e = 0; e < ELEMS; e++) T_TRUE(out[round][r][e] == (float)(3 * round + 30 + 300 * e));
  }
  T_EQ_INT(fakes.posted, ROUNDS * RANKS);
  T_EQ_INT(fakes.streamed, ROUNDS * RANKS);
  T_EQ_INT(fakes.aborted, 0);
  close_world(&w);
}

TEST(operations_of_devices_run_in_order_on_their_streams) { run_in_order(false); }
TEST(operations_of_processes_run_in_order_on_their_streams) { run_in_order(true); }

/* Posts the operations of the first `count` ranks and gives their ends, of which a refusal is one. */
static void run_one(world *w, const weft_coll_op *ops, int count, const weft_coll_call *call, weft_status **out_ends)
{
  weft_event *events[RANKS] = {NULL};
  weft_status *refused[RANKS] = {NULL};

  for (int r = 0; r < count; r++) refused[r] = weft_coll_post(w->comms[r], &ops[r], call, &events[r]);
  await_all(w, events, out_ends);
  for (int r = 0; r < count; r++)
    if (refused[r]) out_ends[r] = refused[r];
}

static void disagree(bool processes)
{
  world w;
  weft_status *ends[RANKS];
  weft_coll_call call = within_ms(20000);

  fake_reset();
  open_world(&w, processes);
  weft_coll_op ops[RANKS] = {sum(0, 0), sum(0, 1), sum(0, 2)};
  ops[1].count = ELEMS - 1;
  run_one(&w, ops, RANKS, &call, ends);
  check_contains(text_of(ends, WEFT_FAILED_PRECONDITION), "ranks disagree on the operation: rank");
  for (int r = 0; r < RANKS; r++) T_EQ_INT(weft_status_code(ends[r]), WEFT_FAILED_PRECONDITION);
  free_all(ends);
  T_EQ_INT(fakes.posted, 0); /* no data moved */
  close_world(&w);
}

TEST(devices_that_disagree_are_found_before_data_moves) { disagree(false); }
TEST(processes_that_disagree_are_found_before_data_moves) { disagree(true); }

static void absent(bool processes)
{
  world w;
  weft_status *ends[RANKS];

  fake_reset();
  open_world(&w, processes);
  weft_coll_call call = within_ms(2000);
  weft_coll_op ops[RANKS] = {sum(0, 0), sum(0, 1), sum(0, 2)};
  run_one(&w, ops, RANKS - 1, &call, ends);
  const char *text = text_of(ends, WEFT_DEADLINE_EXCEEDED);
  check_contains(text, "not arrived: 1 of 3\n    rank 2 ");
  check_contains(text, "all-reduce f32[50] sum \"all-reduce.7\"");
  free_all(ends);
  T_EQ_INT(fakes.posted, 0);
  close_world(&w);
}

TEST(a_device_that_does_not_come_is_named) { absent(false); }
TEST(a_process_that_does_not_come_is_named) { absent(true); }

/* Operations of a graph are posted all at once. Only the first is said to wait. */
TEST(of_operations_that_are_held_only_the_first_warns)
{
  enum { WARN_MS = 100, DEADLINE_MS = 1500 };
  world w;
  weft_event *events[ROUNDS];
  weft_coll_call call = within_ms(DEADLINE_MS);
  char line[1000];
  int lines = 0, hold = 0, kept = dup(STDERR_FILENO);
  FILE *log = tmpfile();

  assert_non_null(log);
  fake_reset();
  open_world(&w, false);
  call.warn_ns = WARN_MS * WEFT_NS_PER_MS;
  call.hold = &hold;
  fflush(stderr);
  dup2(fileno(log), STDERR_FILENO);
  for (int round = 0; round < ROUNDS; round++) {
    weft_coll_op op = sum(round, 0);
    T_OK(weft_coll_post(w.comms[0], &op, &call, &events[round]));
  }
  for (int round = 0; round < ROUNDS; round++) {
    weft_status *st = weft_coll_wait(w.comms[0], events[round]);
    T_TRUE(st != NULL);
    weft_status_free(st);
    weft_event_release(events[round]);
  }
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(log);
  while (fgets(line, sizeof line, log)) lines += strstr(line, "may be stuck") != NULL;
  fclose(log);
  T_EQ_INT(lines, 1);
  close_world(&w);
}

static void never_end(bool processes)
{
  world w;
  weft_status *ends[RANKS];

  fake_reset();
  fakes.never_ends = true;
  open_world(&w, processes);
  weft_coll_call call = within_ms(2000);
  weft_coll_op ops[RANKS] = {sum(0, 0), sum(0, 1), sum(0, 2)};
  run_one(&w, ops, RANKS, &call, ends);
  const char *text = text_of(ends, WEFT_DEADLINE_EXCEEDED);
  check_contains(text, "arrived: 3 of 3");
  check_contains(text, "is with fake: ");
  for (int r = 0; r < RANKS; r++)
    T_TRUE(weft_status_code(ends[r]) == WEFT_DEADLINE_EXCEEDED || weft_status_code(ends[r]) == WEFT_ABORTED);
  free_all(ends);
  T_EQ_INT(fakes.posted, RANKS);
  T_TRUE(fakes.aborted > 0);
  close_world(&w);
}

TEST(a_device_that_never_ends_has_a_deadline) { never_end(false); }
TEST(processes_whose_devices_never_end_have_a_deadline) { never_end(true); }

static void fail_at_second(bool processes)
{
  world w;
  weft_status *ends[RANKS];
  weft_coll_call call = within_ms(20000);
  int internal = 0;

  fake_reset();
  fakes.fails_at = RANKS + 2; /* the second rank's in the second round */
  open_world(&w, processes);
  weft_coll_op ops[RANKS] = {sum(0, 0), sum(0, 1), sum(0, 2)};
  run_one(&w, ops, RANKS, &call, ends);
  for (int r = 0; r < RANKS; r++) T_OK(ends[r]);
  run_one(&w, ops, RANKS, &call, ends);
  const char *text = text_of(ends, WEFT_INTERNAL);
  check_contains(text, "\"all-reduce.7\"");
  check_contains(text, "(fake): the device fell off the bus");
  for (int r = 0; r < RANKS; r++) {
    internal += weft_status_code(ends[r]) == WEFT_INTERNAL;
    T_TRUE(weft_status_code(ends[r]) == WEFT_INTERNAL || weft_status_code(ends[r]) == WEFT_ABORTED);
    check_contains(weft_status_message(ends[r]), "the device fell off the bus");
    T_FAILS(weft_coll_run(w.comms[r], &ops[r], &call), "the device fell off the bus"); /* it is spent */
  }
  T_EQ_INT(internal, processes ? 1 : RANKS);
  free_all(ends);
  close_world(&w);
}

TEST(the_error_of_a_devices_operation_is_everybodys) { fail_at_second(false); }
TEST(the_error_of_a_devices_operation_reaches_other_processes) { fail_at_second(true); }

/* What a call may take beyond its deadline. */
enum { HELD_MS = 50, SOON_MS = 10000 };

/* Keeps a group's lock, which is held, until the progress thread has looked for it. */
static void keep_lock(void)
{
  coll_context_wake();
  usleep(HELD_MS * 1000);
}

static void await_soon(weft_event *event, weft_code code, const char *says)
{
  weft_status *st = weft_event_await(event, weft_deadline_after_ms(SOON_MS));

  if (!weft_event_is_ready(event)) fail_msg("it has not ended after %d ms", SOON_MS);
  T_EQ_INT(weft_status_code(st), code);
  check_contains(weft_status_message(st), says);
  weft_status_free(st);
  weft_event_release(event);
}

/* The thread that minds deadlines cannot read those of a group whose lock another thread has: it looks again. */
TEST(a_deadline_holds_although_the_lock_was_taken_when_it_was_to_be_read)
{
  enum { DEADLINE_MS = 400 };
  world w;
  weft_event *event;

  fake_reset();
  open_world(&w, false);
  weft_coll_call call = within_ms(DEADLINE_MS);
  weft_coll_op op = sum(0, 0);
  T_OK(weft_coll_post(w.comms[0], &op, &call, &event));
  coll_group_lock(w.comms[0]->group);
  keep_lock();
  coll_group_unlock(w.comms[0]->group);
  await_soon(event, WEFT_DEADLINE_EXCEEDED, "not arrived: 2 of 3");
  close_world(&w);
}

/* The abort is put off as an operation has ended on one device; the thread that fails the group has its lock when it
 * says so. */
TEST(an_abort_that_was_put_off_comes)
{
  world w;
  weft_event *events[RANKS];
  weft_coll_call call = within_ms(60000);

  fake_reset();
  fakes.never_ends = fakes.only_first_ends = true;
  open_world(&w, false);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_op op = sum(0, r);
    T_OK(weft_coll_post(w.comms[r], &op, &call, &events[r]));
  }
  T_OK(weft_event_await(events[0], weft_deadline_after_ms(SOON_MS)));
  weft_event_release(events[0]);
  coll_group *g = w.comms[0]->group;
  coll_group_lock(g);
  coll_group_fail_locked(g, WEFT_ERR(UNAVAILABLE, "the link is down"));
  int aborted = fakes.aborted;
  keep_lock();
  coll_group_unlock(g);
  T_EQ_INT(aborted, 0);
  for (int r = 1; r < RANKS; r++) await_soon(events[r], WEFT_UNAVAILABLE, "the link is down");
  close_world(&w);
}

static void *end_well(void *op)
{
  fakes.ended++;
  coll_communicator_ended(op, NULL);
  return NULL;
}

/* A device ends an operation while it is examined why the operation has not ended: the report is about an operation
 * that is still there, and the communicator fails as the report says. */
TEST(what_a_device_ends_during_the_diagnosis_ends_with_it)
{
  enum { DEADLINE_MS = 300 };
  world w;
  weft_event *events[RANKS], *next;
  pthread_t thread;
  coll_op *op = NULL;

  fake_reset();
  fakes.never_ends = true;
  open_world(&w, true);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_call call = within_ms(r ? 60000 : DEADLINE_MS);
    weft_coll_op sum_of = sum(0, r);
    T_OK(weft_coll_post(w.comms[r], &sum_of, &call, &events[r]));
  }
  while (fakes.posted < RANKS) usleep(1000);
  coll_group *g = w.comms[0]->group;
  coll_group_lock(g);
  usleep(2 * DEADLINE_MS * 1000); /* nobody else looks at the deadline */
  pthread_mutex_lock(&fakes.mu);
  for (int i = 0; i < fakes.count && !op; i++) {
    if (fakes.queue[i].rank != 0) continue;
    op = fakes.queue[i].op;
    fake_take_locked(i);
  }
  pthread_mutex_unlock(&fakes.mu);
  T_TRUE(op != NULL);
  coll_group_timers_locked(g, weft_now_ns());
  bool frozen = g->frozen;
  pthread_create(&thread, NULL, end_well, op);
  coll_group_unlock(g);
  T_TRUE(frozen);
  pthread_join(thread, NULL);
  weft_status *st = weft_event_await(events[0], weft_deadline_after_ms(SOON_MS));
  T_TRUE(weft_event_is_ready(events[0]));
  T_TRUE(!st || weft_status_code(st) == WEFT_DEADLINE_EXCEEDED); /* it may have been later than the report */
  weft_status_free(st);
  weft_event_release(events[0]);
  weft_coll_call call = within_ms(DEADLINE_MS);
  weft_coll_op behind = sum(1, 0);
  st = weft_coll_post(w.comms[0], &behind, &call, &next);
  if (st) check_contains(weft_status_message(st), "all-reduce.7\" (seq 1");
  else await_soon(next, WEFT_DEADLINE_EXCEEDED, "all-reduce.7\" (seq 1");
  weft_status_free(st);
  for (int r = 1; r < RANKS; r++) {
    st = weft_coll_wait(w.comms[r], events[r]);
    T_TRUE(st != NULL);
    weft_status_free(st);
    weft_event_release(events[r]);
  }
  close_world(&w);
}

TEST(an_abort_takes_the_buffers_back_from_the_device)
{
  world w;
  weft_event *events[RANKS];
  weft_status *ends[RANKS];
  weft_coll_call call = within_ms(60000);

  fake_reset();
  fakes.never_ends = true;
  open_world(&w, false);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_op op = sum(0, r);
    T_OK(weft_coll_post(w.comms[r], &op, &call, &events[r]));
  }
  T_EQ_INT(fakes.posted, RANKS); /* all have met: the device has them */
  weft_comm_abort(w.comms[1], WEFT_ERR(ABORTED, "the user pressed a key"));
  T_EQ_INT(fakes.count, 0);
  T_EQ_INT(fakes.ended, RANKS);
  await_all(&w, events, ends);
  for (int r = 0; r < RANKS; r++)
    check_contains(ends[r] ? weft_status_message(ends[r]) : "none", "the user pressed a key");
  free_all(ends);
  close_world(&w);
}

TEST(a_rank_that_leaves_cancels_what_the_device_has_of_it)
{
  world w;
  weft_event *events[RANKS];
  weft_status *ends[RANKS];
  weft_coll_call call = within_ms(60000);

  fake_reset();
  fakes.never_ends = true;
  open_world(&w, false);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_op op = sum(0, r);
    T_OK(weft_coll_post(w.comms[r], &op, &call, &events[r]));
  }
  weft_comm_destroy(w.comms[0]);
  T_CODE(weft_event_await(events[0], weft_deadline_after_ms(20000)), WEFT_CANCELLED);
  weft_event_release(events[0]);
  events[0] = NULL;
  w.comms[0] = NULL;
  await_all(&w, events, ends);
  for (int r = 1; r < RANKS; r++) T_EQ_INT(weft_status_code(ends[r]), WEFT_FAILED_PRECONDITION);
  free_all(ends);
  close_world(&w);
}

TEST(the_flight_recorder_shows_what_the_device_has)
{
  world w;
  weft_event *events[RANKS];
  weft_status *ends[RANKS];
  weft_coll_call call = within_ms(60000);

  fake_reset();
  fakes.never_ends = true;
  open_world(&w, false);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_op op = sum(0, r);
    T_OK(weft_coll_post(w.comms[r], &op, &call, &events[r]));
  }
  WEFT_AUTO_STR text = weft_coll_flight_text();
  check_contains(text, "by fake: 3 operations queued");
  check_contains(text, "running");
  check_contains(text, "all-reduce f32[50] sum \"all-reduce.7\"");
  weft_comm_abort(w.comms[0], NULL);
  await_all(&w, events, ends);
  free_all(ends);
  WEFT_AUTO_STR after = weft_coll_flight_text();
  check_contains(after, "ABORTED");
  close_world(&w);
}

static const int64_t ids[] = {0, 1, 2};
static const int everybody[] = {0, 1, 2};
static const coll_clique_request request = {{ids, NULL, RANKS, 0}, everybody, RANKS};

/* Acquires the clique and runs one operation on it.  Returns the operation's end. */
static weft_status *run_on_clique(coll_cliques *cs, int round)
{
  coll_clique_hold *hold;
  weft_event *ready, *events[RANKS];
  weft_status *first = NULL;
  weft_coll_call call = within_ms(20000);

  T_OK(coll_cliques_acquire(cs, &request, 1, weft_deadline_after_ms(20000), &hold, &ready));
  T_OK(weft_event_await(ready, weft_deadline_after_ms(20000)));
  weft_event_release(ready);
  for (int r = 0; r < RANKS; r++) {
    weft_coll_op op = sum(round, r);
    T_OK(weft_coll_post(coll_clique_hold_comm(hold, 0, r), &op, &call, &events[r]));
  }
  for (int r = 0; r < RANKS; r++) {
    weft_status *end = weft_coll_wait(coll_clique_hold_comm(hold, 0, r), events[r]);
    weft_event_release(events[r]);
    if (first) weft_status_free(end);
    else first = end;
  }
  coll_clique_hold_release(hold);
  return first;
}

TEST(cliques_make_the_communicators_of_their_platform_and_replace_spent_ones)
{
  coll_cliques *cs;

  fake_reset();
  fakes.fails_at = RANKS + 1;
  T_OK(coll_cliques_new(NULL, "t", &(coll_clique_factory){.ops = &fake_ops}, &cs));
  T_OK(run_on_clique(cs, 0));
  T_CODE(run_on_clique(cs, 1), WEFT_INTERNAL);
  T_OK(run_on_clique(cs, 2));
  T_EQ_INT(fakes.made, 2);
  coll_cliques_free(cs);
  T_EQ_INT(fakes.destroyed, 2);
}

TEST(a_communicator_that_cannot_be_made_says_so)
{
  coll_cliques *cs;
  coll_clique_hold *hold;
  weft_event *ready;

  fake_reset();
  fakes.refuses = true;
  T_OK(coll_cliques_new(NULL, "t", &(coll_clique_factory){.ops = &fake_ops}, &cs));
  T_OK(coll_cliques_acquire(cs, &request, 1, weft_deadline_after_ms(20000), &hold, &ready));
  weft_status *st = weft_event_await(ready, weft_deadline_after_ms(20000));
  T_EQ_INT(weft_status_code(st), WEFT_UNAVAILABLE);
  check_contains(weft_status_text(st, true), "no device answers");
  weft_status_free(st);
  weft_event_release(ready);
  coll_clique_hold_release(hold);
  coll_cliques_free(cs);
}

TEST(the_host_has_no_streams)
{
  world w;
  weft_coll_call call = within_ms(20000);
  weft_coll_op op = sum(0, 0);

  world_open_devices(&w, RANKS);
  T_FAILS(weft_coll_run(w.comms[0], &op, &call), "there are no streams");
  world_close(&w);
}

/* What a report says of a rank whose communicator is spent by `spent`. */
static void told(const char *spent, const char *want)
{
  coll_inquiry *q = calloc(1, sizeof *q);
  char text[600] = "";
  FILE *out = fmemopen(text, sizeof text, "w");

  assert_true(q && out);
  snprintf(q->answer.spent, sizeof q->answer.spent, "%s", spent);
  coll_inquiry_tell_spent(q, "all-reduce f32[1] \"sum\" (seq 2, 4 bytes) on communicator c", out);
  fclose(out);
  T_EQ_STR(text, want);
  free(q);
}

TEST(a_report_does_not_repeat_the_operation_that_it_is_about)
{
  told(
    "all-reduce f32[1] \"sum\" (seq 2, 4 bytes) on communicator c passed its deadline by rank 1's clock\n  arrived: 3 of 4",
    " (its communicator is spent: the operation passed its deadline by rank 1's clock)");
  told(
    "all-reduce f32[1] \"sum\" (seq 3, 4 bytes) on communicator c passed its deadline by rank 1's clock",
    " (its communicator is spent: all-reduce f32[1] \"sum\" (seq 3, 4 bytes) on communicator c passed its deadline by "
    "rank 1's clock)");
  told("rank 3 died: its connection closed", " (its communicator is spent: rank 3 died: its connection closed)");
  told("", "");
}

TEST_MAIN(UNIT(a_report_does_not_repeat_the_operation_that_it_is_about),
          UNIT(operations_of_devices_run_in_order_on_their_streams),
          UNIT(operations_of_processes_run_in_order_on_their_streams),
          UNIT(devices_that_disagree_are_found_before_data_moves),
          UNIT(processes_that_disagree_are_found_before_data_moves),
          UNIT(a_device_that_does_not_come_is_named),
          UNIT(a_process_that_does_not_come_is_named),
          UNIT(of_operations_that_are_held_only_the_first_warns),
          UNIT(a_device_that_never_ends_has_a_deadline),
          UNIT(processes_whose_devices_never_end_have_a_deadline),
          UNIT(the_error_of_a_devices_operation_is_everybodys),
          UNIT(the_error_of_a_devices_operation_reaches_other_processes),
          UNIT(a_deadline_holds_although_the_lock_was_taken_when_it_was_to_be_read),
          UNIT(an_abort_that_was_put_off_comes),
          UNIT(what_a_device_ends_during_the_diagnosis_ends_with_it),
          UNIT(an_abort_takes_the_buffers_back_from_the_device),
          UNIT(a_rank_that_leaves_cancels_what_the_device_has_of_it),
          UNIT(the_flight_recorder_shows_what_the_device_has),
          UNIT(cliques_make_the_communicators_of_their_platform_and_replace_spent_ones),
          UNIT(a_communicator_that_cannot_be_made_says_so),
          UNIT(the_host_has_no_streams))
