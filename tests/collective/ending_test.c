/* tests/collective/ending_test.c -- a rank gives up. Collectives that it had ended also succeed on the other ranks,
 * even on those that have not posted them yet; later collectives end with its error. ending_fabric_test is the same
 * over libfabric. */
#include "world.h"

#include <unistd.h>

#include "collective/host/direct.h"

enum { SIZE = 4, ELEMS = 2000, BROADCASTS = 3 };

static float of[SIZE][ELEMS], to[SIZE][ELEMS];

/* The broadcast from rank 0 that rank `me` takes part in. */
static weft_coll_op broadcast(int me)
{
  return (weft_coll_op){.kind = WEFT_BROADCAST, .dtype = WEFT_F32, .count = ELEMS, .send = of[me], .recv = to[me]};
}

/* Rank 0 sends to 2, and 2 sends to 1: so rank 0 may have ended, and rank 1 waits, before rank 2 has come. */
static weft_coll_op chain(int me)
{
  static const int sources[SIZE] = {-1, 2, 0, -1}, targets[SIZE] = {2, -1, 1, -1};
  return (weft_coll_op){.kind = WEFT_PERMUTE,
                        .dtype = WEFT_F32,
                        .count = ELEMS,
                        .send = of[me],
                        .recv = to[me],
                        .source = sources[me],
                        .target = targets[me]};
}

static const weft_coll_op barrier = {.kind = WEFT_BARRIER};

static weft_coll_op message(weft_coll_kind kind, int me, int peer, uint64_t tag)
{
  return (weft_coll_op){
    .kind = kind, .dtype = WEFT_F32, .count = 10, .send = of[me], .recv = to[me], .peer = peer, .tag = tag};
}

static void open_world(world *w)
{
  weft_coll_op ops[SIZE] = {barrier, barrier, barrier, barrier};

  world_open_processes(w, SIZE, NULL);
  for (int r = 0; r < SIZE; r++)
    for (int i = 0; i < ELEMS; i++) {
      of[r][i] = (float)(1000 * r + i);
      to[r][i] = -1;
    }
  T_OK(world_run(w, ops, NULL));
}

static void runs_well(world *w, int rank, weft_coll_op op) { T_OK(weft_coll_run(w->comms[rank], &op, NULL)); }

static void fails(world *w, int rank, weft_coll_op op, weft_code code, const char *says)
{
  weft_status *st = weft_coll_run(w->comms[rank], &op, NULL);
  if (weft_status_code(st) != code || !strstr(weft_status_message(st), says))
    fail_msg("rank %d: got %s, want %s \"...%s...\"", rank, weft_status_text(st, false), weft_code_name(code), says);
  weft_status_free(st);
}

static weft_event *posted(world *w, int rank, weft_coll_op op, int64_t deadline_ms)
{
  weft_event *event;
  weft_coll_call call = {.deadline = deadline_ms ? weft_deadline_after_ms(deadline_ms) : (weft_deadline){0}};
  T_OK(weft_coll_post(w->comms[rank], &op, &call, &event));
  return event;
}

static void ends(weft_event *event, weft_code code, const char *says)
{
  weft_status *st = weft_event_await(event, weft_deadline_after_ms(20000));
  if (weft_status_code(st) != code || !strstr(weft_status_message(st), says))
    fail_msg("got %s, want %s \"...%s...\"", weft_status_text(st, false), weft_code_name(code), says);
  weft_status_free(st);
  weft_event_release(event);
}

static void gives_up(world *w, int rank, const char *why)
{
  weft_comm_abort(w->comms[rank], WEFT_ERR(ABORTED, "%s", why));
}

/* Waits until ranks [first, SIZE) know that a rank has given up. */
static void everybody_hears(world *w, int first)
{
  for (int r = first; r < SIZE; r++)
    for (int ms = 0;; ms++) {
      weft_status *st = weft_comm_health(w->comms[r]);
      bool heard = st != NULL;
      weft_status_free(st);
      if (heard) break;
      if (ms > 20000) fail_msg("rank %d hears nothing", r);
      usleep(1000);
    }
}

static void is_from(int rank, int source)
{
  for (int i = 0; i < ELEMS; i++)
    if (to[rank][i] != of[source][i])
      fail_msg("rank %d element %d: got %f, want %f", rank, i, (double)to[rank][i], (double)of[source][i]);
}

static void broadcasts_of_one_that_gives_up(bool leaves)
{
  world w;

  open_world(&w);
  for (int i = 0; i < BROADCASTS; i++) runs_well(&w, 0, broadcast(0));
  weft_event *pending = posted(&w, 0, barrier, 0);
  gives_up(&w, 0, "lost patience");
  ends(pending, WEFT_ABORTED, "lost patience");
  if (leaves) {
    weft_comm_destroy(w.comms[0]);
    w.comms[0] = NULL;
  }
  everybody_hears(&w, 1);
  for (int i = 0; i < BROADCASTS; i++) {
    weft_event *events[SIZE];
    for (int r = 1; r < SIZE; r++) events[r] = posted(&w, r, broadcast(r), 0);
    for (int r = 1; r < SIZE; r++) ends(events[r], WEFT_OK, "");
    for (int r = 1; r < SIZE; r++) is_from(r, 0);
  }
  for (int r = 1; r < SIZE; r++) {
    fails(&w, r, barrier, WEFT_ABORTED, "lost patience");
    fails(&w, r, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  }
  world_close(&w);
}

TEST(what_it_had_ended_ends_well_at_those_who_had_not_posted_it) { broadcasts_of_one_that_gives_up(false); }
TEST(even_if_it_leaves_at_once) { broadcasts_of_one_that_gives_up(true); }

/* Rank 0 has ended the chain and given up; rank 1 is in the middle of it, with a barrier posted behind; rank 2 has not
 * come. */
static void give_up_in_the_middle(world *w, weft_event *of_one[2], int64_t deadline_ms)
{
  open_world(w);
  runs_well(w, 0, chain(0));
  runs_well(w, 3, chain(3));
  of_one[0] = posted(w, 1, chain(1), deadline_ms);
  of_one[1] = posted(w, 1, barrier, 0);
  gives_up(w, 0, "lost patience");
  everybody_hears(w, 1);
  ends(of_one[1], WEFT_ABORTED, "lost patience"); /* at once */
}

TEST(what_others_are_in_the_middle_of_ends_well)
{
  world w;
  weft_event *of_one[2];

  give_up_in_the_middle(&w, of_one, 0);
  T_TRUE(!weft_event_is_ready(of_one[0]));
  runs_well(&w, 2, chain(2));
  ends(of_one[0], WEFT_OK, "");
  is_from(2, 0);
  is_from(1, 2);
  fails(&w, 2, barrier, WEFT_ABORTED, "lost patience");
  /* the barrier that it posted before gave it the error */
  fails(&w, 1, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  world_close(&w);
}

TEST(but_not_if_another_gives_up_before_it)
{
  world w;
  weft_event *of_one[2];

  give_up_in_the_middle(&w, of_one, 0);
  gives_up(&w, 2, "had enough");
  ends(of_one[0], WEFT_ABORTED, "had enough");
  world_close(&w);
}

TEST(nor_if_another_dies_or_leaves)
{
  for (int leaves = 0; leaves < 2; leaves++) {
    world w;
    weft_event *of_one[2];

    give_up_in_the_middle(&w, of_one, 0);
    if (leaves) {
      weft_comm_destroy(w.comms[2]);
      w.comms[2] = NULL;
    } else {
      weft_coll_incarnation_died(weft_comm_incarnation(w.comms[1], 2), "heartbeats stopped");
    }
    ends(of_one[0], leaves ? WEFT_ABORTED : WEFT_FAILED_PRECONDITION, leaves ? "lost patience" : "is not connected");
    world_close(&w);
  }
}

TEST(its_deadline_holds)
{
  world w;
  weft_event *of_one[2];

  give_up_in_the_middle(&w, of_one, 300);
  ends(of_one[0], WEFT_DEADLINE_EXCEEDED, "not arrived: 1 of 4");
  world_close(&w);
}

TEST(small_sends_arrive_and_receives_of_nothing_end)
{
  world w;

  open_world(&w);
  runs_well(&w, 0, message(WEFT_SEND, 0, 1, 5));
  runs_well(&w, 0, message(WEFT_SEND, 0, 3, 6));
  weft_event *in_vain[2] = {posted(&w, 1, message(WEFT_RECV, 1, 2, 7), 0), posted(&w, 2, message(WEFT_RECV, 2, 0, 8), 0)};
  weft_event *from_any = posted(&w, 3, message(WEFT_RECV, 3, -1, 6), 0);
  gives_up(&w, 0, "lost patience");
  everybody_hears(&w, 1);
  ends(from_any, WEFT_OK, "");
  T_TRUE(memcmp(to[3], of[0], 10 * sizeof(float)) == 0);
  for (int i = 0; i < 2; i++) ends(in_vain[i], WEFT_ABORTED, "lost patience");
  fails(&w, 3, message(WEFT_RECV, 3, 0, 6), WEFT_ABORTED, "lost patience");
  world_close(&w);
}

TEST(a_small_send_waits_for_its_receive_when_its_sender_has_given_up)
{
  world w;

  open_world(&w);
  runs_well(&w, 0, message(WEFT_SEND, 0, 1, 5));
  gives_up(&w, 0, "lost patience");
  everybody_hears(&w, 1);
  runs_well(&w, 1, message(WEFT_RECV, 1, 0, 5));
  T_TRUE(memcmp(to[1], of[0], 10 * sizeof(float)) == 0);
  fails(&w, 1, message(WEFT_RECV, 1, 0, 5), WEFT_ABORTED, "lost patience");
  fails(&w, 1, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  world_close(&w);
}

/* ---- devices of a process ---- */

typedef struct late_device {
  weft_comm *comm;
  weft_status *st;
  bool pending;
} late_device;

/* Arrives, does not poll for the other ranks, and enters the queue. For that the rank needs the lock, which the test
 * holds. */
static void *start_impatiently(void *arg)
{
  late_device *d = arg;
  weft_coll_waiter waiter = {0};
  weft_coll_op op = broadcast(1);
  op.count = 10;
  atomic_int away = 1;
  d->st = weft_coll_start(d->comm, &op, 1, NULL, (weft_coll_patience){1, &away}, &waiter, &d->pending);
  return NULL;
}

TEST(a_device_that_the_others_have_met_ends_well_whoever_is_faster)
{
  weft_comm *comms[2];
  int ranks[2] = {0, 1};
  weft_comm_spec spec = {.name = "devices", .size = 2, .ranks = ranks, .rank_count = 2};
  weft_coll_op op = broadcast(0), other = broadcast(1);
  weft_event *first;
  pthread_t thread;

  T_OK(weft_comm_create(&spec, comms));
  op.count = other.count = 10;
  T_OK(
    /* then each rank has the memory of one operation, and needs no lock to get it */
    weft_coll_post(comms[0], &op, NULL, &first));
  T_OK(weft_coll_run(comms[1], &other, NULL));
  T_OK(weft_coll_wait(comms[0], first));
  weft_event_release(first);
  coll_group *g = comms[0]->group;
  uint64_t seq = coll_comm_posted(comms[0]);
  late_device late = {.comm = comms[1]};
  coll_group_lock(g);
  pthread_create(&thread, NULL, start_impatiently, &late);
  while (atomic_load(&coll_direct_slot(g, 1, seq)->word) != 2 * (seq + 1)) usleep(100);
  T_OK(weft_coll_run(comms[0], &op, NULL));
  coll_group_fail_locked(g, WEFT_ERR(ABORTED, "lost patience"));
  coll_group_unlock(g);
  pthread_join(thread, NULL);
  T_OK(late.st);
  T_TRUE(!late.pending);
  for (int r = 0; r < 2; r++) weft_comm_destroy(comms[r]);
}

TEST_MAIN(UNIT(what_it_had_ended_ends_well_at_those_who_had_not_posted_it), UNIT(even_if_it_leaves_at_once),
          UNIT(what_others_are_in_the_middle_of_ends_well), UNIT(but_not_if_another_gives_up_before_it), UNIT(nor_if_another_dies_or_leaves),
          UNIT(its_deadline_holds), UNIT(small_sends_arrive_and_receives_of_nothing_end),
          UNIT(a_small_send_waits_for_its_receive_when_its_sender_has_given_up), UNIT(a_device_that_the_others_have_met_ends_well_whoever_is_faster))
