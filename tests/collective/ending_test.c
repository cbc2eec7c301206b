/* tests/collective/ending_test.c -- a rank gives up. Collectives that it had ended also succeed on the other ranks,
 * even on those that have not posted them yet; later collectives end with its error. ending_fabric_test is the same
 * over libfabric, and tests/gpu/ending_gpu_test between devices.
 *
 * On GPUs a collective begins when all ranks have met.  There a rank is behind because its device has not come to the
 * operation: the operation is held (actors.h). */
#include "actors.h"

#include "collective/host/direct.h"

#ifdef OVER_FABRIC /* the same tests, with libfabric between processes */
__attribute__((constructor)) static void over_fabric(void)
{
  if (getenv("WEFT_TEST_NO_FABRIC")) {
    puts("1..0 # SKIP no libfabric here");
    exit(0);
  }
  setenv("WEFT_COLLECTIVE_TRANSPORT", "fabric", 1);
}
#endif

/* In the emulated NCCL the root of a broadcast is ahead of the others by one broadcast at most, and a message that its
 * sender has ended fits in a box. */
#ifdef ON_GPUS
enum { ON_DEVICES = true, ELEMS = 600, BROADCASTS = 1 };
#else
enum { ON_DEVICES = false, ELEMS = 2000, BROADCASTS = 3 };
#endif

enum { FEW = 10, BEHIND = 1 /* slot of an operation behind the one of slot 0 */ };

static const actor_op broadcast = {.kind = WEFT_BROADCAST, .count = ELEMS}, barrier = {.kind = WEFT_BARRIER};

/* Rank 0 sends to 2, and 2 sends to 1: so rank 0 may have ended, and rank 1 waits, before rank 2 has come. */
static actor_op chain(int me)
{
  static const int sources[RANKS] = {-1, 2, 0, -1}, targets[RANKS] = {2, -1, 1, -1};
  return (actor_op){.kind = WEFT_PERMUTE, .count = ELEMS, .source = sources[me], .target = targets[me]};
}

static actor_op message(weft_coll_kind kind, int peer, uint64_t tag)
{
  return (actor_op){.kind = kind, .count = FEW, .peer = peer, .tag = tag};
}

static void runs_well(int rank, actor_op op) { check_answer(rank, tell_op(rank, RUN, op, 0), WEFT_OK, ""); }

static void fails(int rank, actor_op op, weft_code code, const char *says)
{
  check_answer(rank, tell_op(rank, RUN, op, 0), code, says);
}

static void posted(int rank, actor_op op, int slot) { check_answer(rank, tell_op(rank, POST, op, slot), WEFT_OK, ""); }

static void ends(int rank, int slot, weft_code code, const char *says)
{
  shared->actors[rank].slot = slot;
  check_answer(rank, tell(rank, AWAIT), code, says);
}

/* The rank has not come to the operation, while others end theirs. */
static void is_late(int rank, actor_op op)
{
  op.held = true;
  if (ON_DEVICES) posted(rank, op, 0);
}

/* Now it comes. */
static void comes(int rank, actor_op op)
{
  if (ON_DEVICES) let_go(rank);
  else posted(rank, op, 0);
}

static void begin_to_give_up(int rank, const char *why)
{
  snprintf(shared->actors[rank].text, WORDS, "%s", why);
  begin_telling(rank, ABORT);
}

static void begin_to_leave(int rank)
{
  shared->actors[rank].slot = 0; /* its operations are still waited for */
  begin_telling(rank, LEAVE);
}

static void gives_up(int rank, const char *why)
{
  begin_to_give_up(rank, why);
  finish_telling(rank);
}

/* Gives up or leaves although its device stands still: the call returns when the device has given its buffers back. */
static void gives_up_or_leaves_while_late(int rank, bool leaves)
{
  if (leaves) begin_to_leave(rank);
  else begin_to_give_up(rank, "had enough");
  usleep(100000);
  let_go(rank);
  finish_telling(rank);
}

/* Waits until ranks [first, RANKS) know that a rank has given up. */
static void everybody_hears(int first)
{
  for (int r = first; r < RANKS; r++)
    for (int ms = 0; tell(r, HEARS)->code == WEFT_OK; ms++) {
      if (ms > 20000) fail_msg("rank %d hears nothing", r);
      usleep(1000);
    }
}

static void is_from(int rank, int source, size_t count)
{
  check_answer(rank, tell_op(rank, IS_FROM, (actor_op){.source = source, .count = count}, 0), WEFT_OK, "");
}

static void open_processes(void)
{
#ifdef ON_GPUS
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
#endif
  open_world(1);
  for (int r = 0; r < RANKS; r++) posted(r, barrier, 0);
  for (int r = 0; r < RANKS; r++) ends(r, 0, WEFT_OK, "");
}

static void broadcasts_of_one_that_gives_up(bool leaves)
{
  open_processes();
  for (int r = 1; r < RANKS; r++) is_late(r, broadcast);
  for (int i = 0; i < BROADCASTS; i++) runs_well(0, broadcast);
  posted(0, barrier, BEHIND);
  gives_up(0, "lost patience");
  ends(0, BEHIND, WEFT_ABORTED, "lost patience");
  if (leaves) {
    begin_to_leave(0);
    finish_telling(0);
  }
  everybody_hears(1);
  for (int i = 0; i < BROADCASTS; i++) {
    for (int r = 1; r < RANKS; r++) comes(r, broadcast);
    for (int r = 1; r < RANKS; r++) ends(r, 0, WEFT_OK, "");
    for (int r = 1; r < RANKS; r++) is_from(r, 0, ELEMS);
  }
  for (int r = 1; r < RANKS; r++) {
    fails(r, barrier, WEFT_ABORTED, "lost patience");
    fails(r, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  }
  close_world();
}

TEST(what_it_had_ended_ends_well_at_those_who_had_not_posted_it) { broadcasts_of_one_that_gives_up(false); }
TEST(even_if_it_leaves_at_once) { broadcasts_of_one_that_gives_up(true); }

/* Rank 0 has ended the chain and given up; rank 1 is in the middle of it, with a barrier posted behind; rank 2 has not
 * come. */
static void give_up_in_the_middle(int64_t deadline_ms)
{
  actor_op of_one = chain(1);

  of_one.deadline_ms = deadline_ms;
  open_processes();
  posted(1, of_one, 0);
  posted(1, barrier, BEHIND);
  is_late(2, chain(2));
  posted(3, chain(3), 0);
  runs_well(0, chain(0));
  ends(3, 0, WEFT_OK, "");
  gives_up(0, "lost patience");
  everybody_hears(1);
  ends(1, BEHIND, WEFT_ABORTED, "lost patience"); /* at once; on GPUs it has begun to meet */
}

TEST(what_others_are_in_the_middle_of_ends_well)
{
  give_up_in_the_middle(0);
  shared->actors[1].slot = 0;
  T_TRUE(!tell(1, IS_READY)->number);
  comes(2, chain(2));
  ends(2, 0, WEFT_OK, "");
  ends(1, 0, WEFT_OK, "");
  is_from(2, 0, ELEMS);
  is_from(1, 2, ELEMS);
  fails(2, barrier, WEFT_ABORTED, "lost patience");
  /* the barrier that it posted before gave it the error */
  fails(1, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  close_world();
}

TEST(but_not_if_another_gives_up_before_it)
{
  give_up_in_the_middle(0);
  gives_up_or_leaves_while_late(2, false);
  ends(1, 0, WEFT_ABORTED, "had enough");
  if (ON_DEVICES) ends(2, 0, WEFT_ABORTED, "had enough");
  close_world();
}

TEST(nor_if_another_leaves)
{
  /* on GPUs it leaves with an operation, and says so */
  weft_code code = ON_DEVICES ? WEFT_FAILED_PRECONDITION : WEFT_ABORTED;
  const char *says = ON_DEVICES ? "left the communicator with 1 operations" : "lost patience";

  give_up_in_the_middle(0);
  gives_up_or_leaves_while_late(2, true);
  ends(1, 0, code, says);
  if (ON_DEVICES) ends(2, 0, WEFT_CANCELLED, "was destroyed");
  close_world();
}

/* The process of rank `of` learns that rank `rank` has died. */
static void learns_of_the_death(int of, int rank)
{
  shared->actors[of].number = (uint64_t)rank;
  tell(of, INCARNATION);
  tell(of, DIED);
}

TEST(nor_if_another_dies)
{
  give_up_in_the_middle(0);
  learns_of_the_death(1, 2);
  ends(1, 0, WEFT_FAILED_PRECONDITION, "is not connected");
  if (ON_DEVICES) {
    let_go(2);
    ends(2, 0, WEFT_FAILED_PRECONDITION, "is not connected");
  }
  close_world();
}

/* Rank 0 alone is told that rank 2 has died. The others learn it from rank 0, and all operations end: how many the
 * dead rank had ended is not known. */
TEST(a_rank_may_learn_of_a_death_from_another_rank_only)
{
  open_processes();
  posted(1, chain(1), 0);
  posted(1, barrier, BEHIND);
  is_late(2, chain(2));
  posted(3, chain(3), 0);
  runs_well(0, chain(0));
  ends(3, 0, WEFT_OK, "");
  posted(3, barrier, BEHIND);
  learns_of_the_death(0, 2);
  ends(1, 0, WEFT_FAILED_PRECONDITION, "is not connected");
  ends(1, BEHIND, WEFT_FAILED_PRECONDITION, "is not connected");
  ends(3, BEHIND, WEFT_FAILED_PRECONDITION, "is not connected");
  fails(0, barrier, WEFT_FAILED_PRECONDITION, "is not connected");
  if (ON_DEVICES) {
    let_go(2);
    ends(2, 0, WEFT_FAILED_PRECONDITION, "is not connected"); /* it lives after all */
  }
  fails(1, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  close_world();
}

TEST(its_deadline_holds)
{
  give_up_in_the_middle(ON_DEVICES ? 1000 : 300);
  ends(1, 0, WEFT_DEADLINE_EXCEEDED, ON_DEVICES ? "is with NCCL" : "not arrived: 1 of 4");
  if (ON_DEVICES) let_go(2);
  if (ON_DEVICES) ends(2, 0, WEFT_ABORTED, "is with NCCL");
  close_world();
}

TEST(small_sends_arrive_and_receives_of_nothing_end)
{
  /* NCCL receives from a rank that is named */
  actor_op from_any = message(WEFT_RECV, ON_DEVICES ? 0 : -1, 6), from_two = message(WEFT_RECV, 2, 7),
           from_zero = message(WEFT_RECV, 0, 8);

  open_processes();
  runs_well(0, message(WEFT_SEND, 1, 5));
  runs_well(0, message(WEFT_SEND, 3, 6));
  posted(1, from_two, 0);
  posted(2, from_zero, 0);
  posted(3, from_any, 0);
  if (ON_DEVICES) ends(3, 0, WEFT_OK, ""); /* what is under way there ends with the communicator */
  gives_up(0, "lost patience");
  everybody_hears(1);
  if (!ON_DEVICES) ends(3, 0, WEFT_OK, "");
  is_from(3, 0, FEW);
  ends(1, 0, WEFT_ABORTED, "lost patience");
  ends(2, 0, WEFT_ABORTED, "lost patience");
  fails(3, message(WEFT_RECV, 0, 6), WEFT_ABORTED, "lost patience");
  close_world();
}

/* ---- a rank that leaves without an operation under way ---- */

enum { SOON_TO_LEAVE_MS = 10000 };

static void leaves(int rank)
{
  begin_to_leave(rank);
  finish_telling(rank);
}

static void ends_soon(int rank, int slot, const char *says)
{
  int64_t began_ns = weft_now_ns();

  ends(rank, slot, WEFT_FAILED_PRECONDITION, says);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  if (took_ms > SOON_TO_LEAVE_MS) fail_msg("rank %d: it took %lld ms", rank, (long long)took_ms);
}

TEST(a_receive_ends_when_its_sender_leaves)
{
  open_processes();
  for (int i = 0; i < 3; i++) { /* receives that are met do not count */
    posted(1, message(WEFT_RECV, 0, 5), 0);
    runs_well(0, message(WEFT_SEND, 1, 5));
    ends(1, 0, WEFT_OK, "");
  }
  posted(1, message(WEFT_RECV, 0, 5), 0);
  posted(3, message(WEFT_RECV, 2, 5), 0);
  leaves(0);
  ends_soon(1, 0, "rank 0");
  ends_soon(3, 0, "left the communicator"); /* as the others hear */
  fails(2, barrier, WEFT_FAILED_PRECONDITION, "left the communicator");
  close_world();
}

TEST(what_was_sent_before_is_received_and_no_more)
{
  open_processes();
  runs_well(0, message(WEFT_SEND, 1, 5));
  leaves(0);
  usleep(100000);
  runs_well(1, message(WEFT_RECV, 0, 5));
  is_from(1, 0, FEW);
  posted(2, message(WEFT_RECV, 1, 6), 0);
  runs_well(1, message(WEFT_SEND, 2, 6)); /* the others go on without it */
  ends(2, 0, WEFT_OK, "");
  fails(1, message(WEFT_RECV, 0, 5), WEFT_FAILED_PRECONDITION, "left the communicator");
  close_world();
}

#ifdef ON_GPUS
/* The first message fits in the library's memory, the second does not. */
TEST(a_send_ends_when_its_receiver_leaves)
{
  actor_op large = {.kind = WEFT_SEND, .count = MOST_ELEMS, .peer = 1, .tag = 5};

  open_processes();
  posted(0, large, 0);
  posted(0, large, BEHIND);
  leaves(1);
  ends_soon(0, BEHIND, "received what was sent by rank 0");
  close_world();
}

TEST(a_receive_from_any_rank_is_refused)
{
  open_processes();
  fails(1, message(WEFT_RECV, -1, 5), WEFT_UNIMPLEMENTED, "any rank");
  posted(1, message(WEFT_RECV, 0, 5), 0);
  runs_well(0, message(WEFT_SEND, 1, 5)); /* the communicator is unharmed */
  ends(1, 0, WEFT_OK, "");
  is_from(1, 0, FEW);
  close_world();
}
#else
TEST(a_small_send_waits_for_its_receive_when_its_sender_has_given_up)
{
  open_processes();
  runs_well(0, message(WEFT_SEND, 1, 5));
  gives_up(0, "lost patience");
  everybody_hears(1);
  runs_well(1, message(WEFT_RECV, 0, 5));
  is_from(1, 0, FEW);
  fails(1, message(WEFT_RECV, 0, 5), WEFT_ABORTED, "lost patience");
  fails(1, barrier, WEFT_FAILED_PRECONDITION, "was aborted");
  close_world();
}
#endif

/* ---- a rank that gives up as soon as it has ended an operation ---- */

enum { ROUNDS = 12 };

/* However fast it is: the others end this operation well, too, and no other one. */
static void give_up_after(int each, weft_coll_kind kind, size_t count)
{
  for (int round = 1; round <= ROUNDS; round++) {
    open_world(each);
    for (int r = 0; r < RANKS; r++) {
      shared->actors[r].op = (actor_op){.kind = kind, .count = count};
      shared->actors[r].times = r == round % RANKS ? 1 + round % 3 : 0;
      begin_telling(r, REPEAT);
    }
    for (int r = 0; r < RANKS; r++) {
      const actor *a = finish_telling(r);
      bool gave_up = r == round % RANKS;
      if (a->number != 1 + (uint64_t)(round % 3))
        fail_msg("%s, round %d: rank %d has ended %d well, not %d: %s", weft_coll_kind_name(kind), round, r,
                 (int)a->number, 1 + round % 3, a->text);
      check_answer(r, a, gave_up ? WEFT_OK : WEFT_ABORTED, gave_up ? "" : "lost patience");
    }
    close_world();
  }
}

static void give_up_after_each(int each)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_ALL_GATHER, WEFT_BARRIER};

  for (size_t k = 0; k < WEFT_COUNT(kinds); k++) give_up_after(each, kinds[k], kinds[k] == WEFT_BARRIER ? 0 : FEW);
}

#ifdef ON_GPUS
TEST(all_end_well_what_one_has_ended_that_gives_up_at_once)
{
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  give_up_after_each(1);
}
TEST(also_devices_of_one_process_with_peers)
{
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  give_up_after_each(RANKS);
}
TEST(also_devices_of_one_process_with_nccl)
{
  stop_processes(true);
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  give_up_after_each(RANKS);
}
#else
TEST(all_end_well_what_one_has_ended_that_gives_up_at_once) { give_up_after_each(1); }
TEST(also_devices_of_one_process) { give_up_after_each(RANKS); }
#endif

/* ---- devices of a process ---- */

/* The ranks have arrived at the chain; rank 2 has not, or its device has not.  Rank 0 gives up or leaves, or a deadline
 * passes: no other process has to hear it, and what has not ended yet ends with it. */
static void give_up_in_one_process(const char *by, int64_t deadline_ms, bool leaves, weft_code code, const char *says)
{
  actor_op of_one = chain(1);

#ifdef ON_GPUS
  if (strcmp(by, getenv("WEFT_CUDA_COLLECTIVES")) != 0) stop_processes(true);
  setenv("WEFT_CUDA_COLLECTIVES", by, 1);
#endif
  (void)by;
  open_world(RANKS);
  of_one.deadline_ms = deadline_ms;
  posted(1, of_one, 0);
  posted(1, barrier, BEHIND);
  is_late(2, chain(2));
  posted(3, chain(3), 0);
  if (!ON_DEVICES || strcmp(by, "peers") == 0) posted(0, chain(0), 0);
  else runs_well(0, chain(0));
  if (leaves) begin_to_leave(0);
  else if (!deadline_ms) begin_to_give_up(0, "lost patience");
  if (ON_DEVICES) {
    /* longer than what some devices have ended may take on the others */
    usleep((useconds_t)deadline_ms * 1000 + 800000);
    let_go(2);
  }
  if (leaves || !deadline_ms) finish_telling(0);
  ends(1, 0, code, says);
  ends(1, BEHIND, code, says);
  if (ON_DEVICES) ends(2, 0, code, says);
  close_world();
}

static void in_one_process(const char *by)
{
  give_up_in_one_process(by, 0, false, WEFT_ABORTED, "lost patience");
  give_up_in_one_process(by, 0, true, WEFT_FAILED_PRECONDITION, "rank 0 left the communicator");
  give_up_in_one_process(by, 500, false, WEFT_DEADLINE_EXCEEDED, ON_DEVICES ? "is with" : "not arrived: 1 of 4");
}

#ifdef ON_GPUS
TEST(devices_of_one_process_end_with_the_one_that_gives_up_with_peers) { in_one_process("peers"); }
TEST(devices_of_one_process_end_with_the_one_that_gives_up_with_nccl) { in_one_process("nccl"); }
#else
TEST(devices_of_one_process_end_with_the_one_that_gives_up) { in_one_process(""); }

typedef struct late_device {
  weft_comm *comm;
  weft_status *st;
  bool pending;
} late_device;

static float of[2][FEW], to[2][FEW];

static weft_coll_op broadcast_of(int rank)
{
  return (weft_coll_op){.kind = WEFT_BROADCAST, .dtype = WEFT_F32, .count = FEW, .send = of[rank], .recv = to[rank]};
}

/* Arrives, does not poll for the other ranks, and enters the queue. For that the rank needs the lock, which the test
 * holds. */
static void *start_impatiently(void *arg)
{
  late_device *d = arg;
  weft_coll_waiter waiter = {0};
  weft_coll_op op = broadcast_of(1);
  atomic_int away = 1;
  d->st = weft_coll_start(d->comm, &op, 1, NULL, (weft_coll_patience){1, &away}, &waiter, &d->pending);
  return NULL;
}

TEST(a_device_that_the_others_have_met_ends_well_whoever_is_faster)
{
  weft_comm *comms[2];
  int ranks[2] = {0, 1};
  weft_comm_spec spec = {.name = "devices", .size = 2, .ranks = ranks, .rank_count = 2};
  weft_coll_op op = broadcast_of(0), other = broadcast_of(1);
  weft_event *first;
  pthread_t thread;

  stop_processes(true); /* this process makes communicators, and forks no other one after that */
  T_OK(weft_comm_create(&spec, comms));
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
#endif

#ifndef ON_GPUS
/* A thread that waits for a collective drives the links, and nobody else does.  When the collective has ended, the
 * receive that was posted before it goes on. */
TEST(a_receive_arrives_behind_collectives_that_other_threads_have_driven)
{
  enum { ROUNDS = 30, SOON_MS = 5000 };

  open_processes();
  for (int round = 0; round < ROUNDS; round++) {
    posted(0, message(WEFT_RECV, 1, (uint64_t)round), BEHIND);
    for (int r = 0; r < RANKS; r++) {
      shared->actors[r].op = barrier;
      begin_telling(r, RUN);
    }
    for (int r = 0; r < RANKS; r++) check_answer(r, finish_telling(r), WEFT_OK, "");
    int64_t began_ns = weft_now_ns();
    runs_well(1, message(WEFT_SEND, 0, (uint64_t)round));
    ends(0, BEHIND, WEFT_OK, "");
    int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
    if (took_ms > SOON_MS) fail_msg("round %d: it took %lld ms", round, (long long)took_ms);
  }
  close_world();
}
#endif

/* The processes end well: they leak nothing, also on their devices. */
TEST(nothing_is_left)
{
  if (shared) stop_processes(!world_is_open);
  T_TRUE(!world_is_open);
}

TEST_MAIN(UNIT(what_it_had_ended_ends_well_at_those_who_had_not_posted_it), UNIT(even_if_it_leaves_at_once),
          UNIT(what_others_are_in_the_middle_of_ends_well), UNIT(but_not_if_another_gives_up_before_it),
          UNIT(nor_if_another_leaves), UNIT(nor_if_another_dies),
          UNIT(a_rank_may_learn_of_a_death_from_another_rank_only), UNIT(its_deadline_holds),
          UNIT(small_sends_arrive_and_receives_of_nothing_end), UNIT(a_receive_ends_when_its_sender_leaves),
          UNIT(what_was_sent_before_is_received_and_no_more),
#ifdef ON_GPUS
          UNIT(a_send_ends_when_its_receiver_leaves), UNIT(a_receive_from_any_rank_is_refused),
          UNIT(all_end_well_what_one_has_ended_that_gives_up_at_once), UNIT(also_devices_of_one_process_with_nccl),
          UNIT(devices_of_one_process_end_with_the_one_that_gives_up_with_nccl),
          UNIT(devices_of_one_process_end_with_the_one_that_gives_up_with_peers),
          UNIT(also_devices_of_one_process_with_peers), UNIT(nothing_is_left))
#else
          UNIT(a_small_send_waits_for_its_receive_when_its_sender_has_given_up),
          UNIT(a_receive_arrives_behind_collectives_that_other_threads_have_driven),
          UNIT(all_end_well_what_one_has_ended_that_gives_up_at_once),
          UNIT(devices_of_one_process_end_with_the_one_that_gives_up), UNIT(also_devices_of_one_process),
          UNIT(nothing_is_left), UNIT(a_device_that_the_others_have_met_ends_well_whoever_is_faster))
#endif
