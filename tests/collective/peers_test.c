/* tests/collective/peers_test.c -- what the tests of Gloo, XLA and PyTorch check of their collectives, and what their
 * users reported: ranks that are alone, barriers, messages, large blocks, forks, wrong data in the store.
 * peers_fabric_test is the same over libfabric. */
#include "world.h"

#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_world(world *w, int size, bool processes)
{
  if (processes) world_open_processes(w, size, NULL);
  else world_open_devices(w, size);
}

/* ---- a lone rank (gloo: *_test TestTimeout) ---------------------------------------------------------------------- */

enum { TOO_LARGE = 100000 }; /* elements that no send sends unasked */

/* An operation in which rank `me` of two needs the other. */
static weft_coll_op needing_the_other(weft_coll_kind kind, int me)
{
  static float large[2][TOO_LARGE];
  static float in[4], out[2][4];
  static const size_t counts[2] = {2, 2};
  static const int64_t at[2] = {0, 2}, sizes[2] = {2, 2}, mine[2] = {0, 0};
  static const weft_coll_ragged ragged = {at, sizes, mine, sizes, 1, 1, 4, 4};
  bool collects = kind == WEFT_REDUCE || kind == WEFT_GATHER || kind == WEFT_GATHER_V;
  weft_coll_op op = {.kind = kind, .dtype = WEFT_F32, .count = 2, .send = in, .recv = out[me], .root = collects ? 0 : 1,
                     .peer = !me, .source = !me, .target = !me, .send_counts = counts, .recv_counts = counts, .ragged = &ragged};
  if (kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER) op.reduction = WEFT_SUM;
  if (kind == WEFT_SEND || kind == WEFT_RECV) op.count = TOO_LARGE, op.send = op.recv = large[me];
  return op;
}

TEST(a_lone_rank_is_told_in_time_whatever_it_waits_for)
{
  for (int processes = 0; processes < 2; processes++)
    for (int kind = 0; kind < WEFT_COLL_KIND_COUNT; kind++) {
      world w;
      float x = 1, y[2];
      weft_coll_op op = needing_the_other((weft_coll_kind)kind, 0);
      weft_coll_op warm[2] = {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y[0]}};
      warm[1] = warm[0];
      warm[1].recv = &y[1];
      open_world(&w, 2, processes);
      T_OK(world_run(&w, warm, NULL));
      int64_t began_ns = weft_now_ns();
      weft_status *st = weft_coll_run(w.comms[0], &op, &(weft_coll_call){.deadline = weft_deadline_after_ms(10)});
      int64_t took_ns = weft_now_ns() - began_ns;
      if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED)
        fail_msg("a lone %s: %s", weft_coll_kind_name((weft_coll_kind)kind), weft_status_text(st, false));
      if (!strstr(weft_status_message(st), "rank 1")) fail_msg("%s: rank 1 is not named", weft_status_message(st));
      weft_status_free(st);
      T_TRUE(took_ns >= 10 * WEFT_NS_PER_MS && took_ns < 10 * WEFT_NS_PER_S);
      /* the other rank gets the error on its control connection; until then it may send and end without an error */
      bool heard = false;
      for (int ms = 0; ms < 20000 && !heard; ms++) {
        st = weft_comm_health(w.comms[1]);
        heard = st != NULL;
        weft_status_free(st);
        if (!heard) usleep(1000);
      }
      T_TRUE(heard);
      weft_coll_op late = needing_the_other((weft_coll_kind)kind, 1); /* and its next operation ends with the error */
      st = weft_coll_run(w.comms[1], &late, &(weft_coll_call){.deadline = weft_deadline_after_ms(10000)});
      weft_code want = processes ? WEFT_ABORTED : WEFT_DEADLINE_EXCEEDED;
      if (weft_status_code(st) != want)
        fail_msg("the other %s: %s", weft_coll_kind_name((weft_coll_kind)kind), weft_status_text(st, false));
      weft_status_free(st);
      T_CODE(weft_coll_run(w.comms[1], &late, NULL), WEFT_FAILED_PRECONDITION);
      world_close(&w);
    }
}

/* ---- barriers (gloo: barrier_test) ------------------------------------------------------------------------------- */

enum { RANKS = 4, ROUNDS = 5 };

typedef struct walker {
  weft_comm *comm;
  int rank;
  atomic_int *entered;
  const char *error;
} walker;

static void *walk(void *arg)
{
  walker *w = arg;
  weft_coll_op barrier = {.kind = WEFT_BARRIER};

  for (int i = 0; i < ROUNDS; i++) {
    usleep((unsigned)((w->rank + i) % RANKS) * 3000);
    atomic_fetch_add(w->entered, 1);
    weft_status *st = weft_coll_run(w->comm, &barrier, NULL);
    if (st || atomic_load(w->entered) < RANKS * (i + 1)) w->error = "left before the last entered";
    weft_status_free(st);
  }
  return NULL;
}

TEST(nobody_leaves_a_barrier_before_the_last_enters)
{
  for (int processes = 0; processes < 2; processes++) {
    world w;
    walker walkers[RANKS];
    pthread_t threads[RANKS];
    atomic_int entered = 0;
    open_world(&w, RANKS, processes);
    for (int r = 0; r < RANKS; r++) {
      walkers[r] = (walker){w.comms[r], r, &entered, NULL};
      pthread_create(&threads[r], NULL, walk, &walkers[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++)
      if (walkers[r].error) fail_msg("rank %d %s", r, walkers[r].error);
    world_close(&w);
  }
}

/* ---- messages (gloo: send_recv_test, alltoallv with offsets) ----------------------------------------------------- */

enum { MOST_EVENTS = 128 };

typedef struct mail {
  world w;
  weft_event *events[MOST_EVENTS];
  int count;
} mail;

static void post(mail *m, int rank, weft_coll_kind kind, int peer, uint64_t tag, int32_t *data, size_t count)
{
  weft_coll_op op = {.kind = kind, .dtype = WEFT_S32, .peer = peer, .tag = tag, .count = count};
  if (kind == WEFT_SEND) op.send = data;
  else op.recv = data;
  T_OK(weft_coll_post(m->w.comms[rank], &op, NULL, &m->events[m->count++]));
}

static void await_all(mail *m)
{
  for (int i = 0; i < m->count; i++) {
    T_OK(weft_coll_wait(m->w.comms[0], m->events[i]));
    weft_event_release(m->events[i]);
  }
  m->count = 0;
}

TEST(messages_may_be_empty_piped_answered_and_ones_own)
{
  for (int processes = 0; processes < 2; processes++) {
    mail m = {.count = 0};
    int32_t sent[20], got[20], call = 6, heard = 0, answer = 7, back = 0;
    open_world(&m.w, 3, processes);
    for (int i = 0; i < 20; i++) sent[i] = 100 + i;
    memset(got, 0, sizeof got);
    post(&m, 1, WEFT_RECV, 0, 4, got, 0); /* empty, then not */
    post(&m, 1, WEFT_RECV, 0, 4, got, 1);
    post(&m, 0, WEFT_SEND, 1, 4, sent, 0);
    post(&m, 0, WEFT_SEND, 1, 4, sent, 1);
    await_all(&m);
    T_EQ_INT(got[0], 100);
    for (int i = 0; i < 20; i++) post(&m, 2, WEFT_SEND, 0, 9, &sent[i], 1); /* one tag: in the order of posting */
    for (int i = 0; i < 20; i++) post(&m, 0, WEFT_RECV, 2, 9, &got[i], 1);
    await_all(&m);
    assert_memory_equal(got, sent, sizeof got);
    post(&m, 1, WEFT_RECV, -1, 1, &heard, 1); /* a call from anybody, and its answer */
    post(&m, 2, WEFT_RECV, 1, 2, &back, 1);
    post(&m, 2, WEFT_SEND, 1, 1, &call, 1);
    post(&m, 1, WEFT_SEND, 2, 2, &answer, 1);
    await_all(&m);
    T_EQ_INT(heard, 6);
    T_EQ_INT(back, 7);
    memset(got, 0, sizeof got);
    post(&m, 1, WEFT_SEND, 1, 3, sent, 20); /* to itself */
    post(&m, 1, WEFT_RECV, 1, 3, got, 20);
    await_all(&m);
    assert_memory_equal(got, sent, sizeof got);
    weft_coll_op turn[MOST_RANKS]; /* 0 and 2 swap, 1 keeps its own */
    for (int r = 0; r < 3; r++)
      turn[r] = (weft_coll_op){.kind = WEFT_PERMUTE,
                               .dtype = WEFT_S32,
                               .count = 1,
                               .send = &sent[r],
                               .recv = &got[r],
                               .source = 2 - r,
                               .target = 2 - r};
    T_OK(world_run(&m.w, turn, NULL));
    T_TRUE(got[0] == 102 && got[1] == 101 && got[2] == 100);
    world_close(&m.w);
  }
}

/* Large payloads are read from the sender's memory, one at a time on a connection. A payload must not wait for an
 * operation that is not posted. */
TEST(large_messages_wait_for_no_collective_and_cross_each_other)
{
  enum { COUNT = 300001, BYTES = COUNT * 4 };
  int32_t *sent[2], *got[2], *gathered[2];

  for (int r = 0; r < 2; r++) {
    sent[r] = malloc(BYTES);
    got[r] = malloc(BYTES);
    gathered[r] = malloc(2 * BYTES);
    for (int i = 0; i < COUNT; i++) sent[r][i] = r * COUNT + i;
  }
  for (int processes = 0; processes < 2; processes++) {
    mail m = {.count = 0};
    weft_event *gathers[2];
    open_world(&m.w, 2, processes);
    for (int turn = 0; turn < 3; turn++) {
      for (int r = 0; r < 2; r++) memset(got[r], 0, BYTES), memset(gathered[r], 0, 2 * BYTES);
      for (int r = 0; r < 2; r++) { /* rank 1 posts the gather only when it has its message */
        weft_coll_op gather = {.kind = WEFT_ALL_GATHER, .dtype = WEFT_S32, .count = COUNT, .send = sent[r], .recv = gathered[r]};
        T_OK(weft_coll_post(m.w.comms[r], &gather, NULL, &gathers[r]));
        if (r == 1) break;
        post(&m, 0, WEFT_SEND, 1, 5, sent[0], COUNT);
        post(&m, 1, WEFT_RECV, 0, 5, got[1], COUNT);
        await_all(&m);
      }
      post(&m, 0, WEFT_SEND, 1, 6, sent[0], COUNT);
      post(&m, 1, WEFT_SEND, 0, 6, sent[1], COUNT);
      assert_memory_equal(got[1], sent[0], BYTES);
      memset(got[1], 0, BYTES);
      post(&m, 0, WEFT_RECV, 1, 6, got[0], COUNT);
      post(&m, 1, WEFT_RECV, 0, 6, got[1], COUNT);
      await_all(&m);
      for (int r = 0; r < 2; r++) {
        T_OK(weft_coll_wait(m.w.comms[r], gathers[r]));
        weft_event_release(gathers[r]);
        assert_memory_equal(got[r], sent[!r], BYTES);
        for (int b = 0; b < 2; b++) assert_memory_equal(gathered[r] + b * COUNT, sent[b], BYTES);
      }
    }
    world_close(&m.w);
  }
  for (int r = 0; r < 2; r++) free(sent[r]), free(got[r]), free(gathered[r]);
}

/* Small sends do not wait for their receives, as long as the receiver has room: 256 KiB for each peer. */
TEST(small_sends_need_no_receive_until_the_room_is_full)
{
  enum { COUNT = 2048, BYTES = COUNT * 4, SENDS = 50, MOST_KEPT = (256 << 10) / BYTES };
  static int32_t sent[SENDS][COUNT], got[SENDS][COUNT];
  mail m = {.count = 0};
  int32_t never = 0;

  world_open_processes(&m.w, 2, NULL);
  for (int turn = 0; turn < 3; turn++) { /* the room is given back */
    int ready = 0;
    memset(got, 0, sizeof got);
    post(&m, 1, WEFT_RECV, -1, 99, &never, 1); /* so that rank 1 is ready to receive */
    for (int i = 0; i < SENDS; i++) {
      for (int j = 0; j < COUNT; j++) sent[i][j] = turn + i * COUNT + j;
      post(&m, 0, WEFT_SEND, 1, (uint64_t)i, sent[i], COUNT);
    }
    for (int i = 0; i < 10; i++) T_OK(weft_coll_wait(m.w.comms[0], m.events[1 + i]));
    memset(sent, 0, 10 * BYTES); /* they have left their memory */
    usleep(20000);
    for (int i = 0; i < SENDS; i++) ready += weft_event_is_ready(m.events[1 + i]);
    if (ready > MOST_KEPT) fail_msg("%d sends of %d bytes ended without a receive", ready, BYTES);
    for (int i = SENDS - 1; i >= 0; i--) post(&m, 1, WEFT_RECV, 0, (uint64_t)i, got[i], COUNT);
    post(&m, 0, WEFT_SEND, 1, 99, &turn, 1);
    T_TRUE(m.count <= (int)WEFT_COUNT(m.events));
    await_all(&m);
    for (int i = 0; i < SENDS; i++)
      for (int j = 0; j < COUNT; j++)
        if (got[i][j] != turn + i * COUNT + j) fail_msg("turn %d message %d element %d: %d", turn, i, j, got[i][j]);
    T_EQ_INT(never, turn);
  }
  post(&m, 0, WEFT_SEND, 1, 7, sent[0], COUNT); /* nobody ever receives it, and rank 0 leaves */
  await_all(&m);
  world_close(&m.w);
}

TEST(a_small_send_and_its_receive_may_not_disagree)
{
  for (int late = 0; late < 2; late++) {
    mail m = {.count = 0};
    int32_t sent[2] = {1, 2}, got[2], other = 0;
    world_open_processes(&m.w, 2, NULL);
    weft_coll_op recv = {.kind = WEFT_RECV, .dtype = WEFT_S32, .peer = 0, .tag = 1, .count = 1, .recv = got};
    weft_event *event = NULL;
    if (!late) T_OK(weft_coll_post(m.w.comms[1], &recv, NULL, &event));
    post(&m, 0, WEFT_SEND, 1, 1, sent, 2);
    if (late) { /* it is kept when the receive comes: what follows it has come */
      post(&m, 0, WEFT_SEND, 1, 2, &sent[1], 1);
      post(&m, 1, WEFT_RECV, 0, 2, &other, 1);
      await_all(&m);
      T_EQ_INT(other, 2);
      weft_status *st = weft_coll_run(m.w.comms[1], &recv, NULL);
      T_FAILS(st, "ranks disagree");
    } else {
      T_FAILS(weft_coll_wait(m.w.comms[1], event), "ranks disagree");
      weft_event_release(event);
      weft_status_free(weft_coll_wait(m.w.comms[0], m.events[0])); /* it may have ended before */
      weft_event_release(m.events[0]);
    }
    world_close(&m.w);
  }
}

TEST(all_to_all_v_reads_and_writes_where_it_is_told)
{
  enum { SIZE = 3, ROOM = 10 };
  for (int processes = 0; processes < 2; processes++) {
    world w;
    static int32_t in[SIZE][SIZE * ROOM], out[SIZE][SIZE * ROOM], want[SIZE][SIZE * ROOM];
    size_t sends[SIZE][SIZE], recvs[SIZE][SIZE], from[SIZE], to[SIZE];
    weft_coll_op ops[MOST_RANKS];
    open_world(&w, SIZE, processes);
    for (int r = 0; r < SIZE; r++) {
      from[r] = (size_t)(r * ROOM + 1);
      to[r] = (size_t)((SIZE - 1 - r) * ROOM + 2);
      for (int i = 0; i < SIZE * ROOM; i++) {
        in[r][i] = 1000 * r + i;
        out[r][i] = want[r][i] = -1;
      }
    }
    for (int r = 0; r < SIZE; r++)
      for (int o = 0; o < SIZE; o++) {
        sends[r][o] = (size_t)((r + 2 * o) % 4);
        recvs[o][r] = sends[r][o];
        for (size_t i = 0; i < sends[r][o]; i++) want[o][to[r] + i] = in[r][from[o] + i];
      }
    for (int r = 0; r < SIZE; r++)
      ops[r] = (weft_coll_op){.kind = WEFT_ALL_TO_ALL_V,
                              .dtype = WEFT_S32,
                              .send = in[r],
                              .recv = out[r],
                              .send_counts = sends[r],
                              .recv_counts = recvs[r],
                              .send_offsets = from,
                              .recv_offsets = to};
    T_OK(world_run(&w, ops, NULL));
    assert_memory_equal(out, want, sizeof out);
    world_close(&w);
  }
}

/* ---- large blocks, again and again (jax 40830; gloo: memory_test) ------------------------------------------------ */

TEST(large_reduce_scatters_are_right_every_time)
{
  enum { SIZE = 4, ELEMS = 1 << 17 }; /* blocks of 1 MiB */
  for (int processes = 0; processes < 2; processes++) {
    world w;
    static double in[SIZE][SIZE * ELEMS], out[SIZE][ELEMS];
    weft_coll_op ops[MOST_RANKS];
    open_world(&w, SIZE, processes);
    for (int turn = 0; turn < 4; turn++) {
      for (int r = 0; r < SIZE; r++) {
        for (int i = 0; i < SIZE * ELEMS; i++) in[r][i] = (r + 1) * (i % 1021 + turn);
        ops[r] = (weft_coll_op){.kind = WEFT_REDUCE_SCATTER,
                                .dtype = WEFT_F64,
                                .reduction = WEFT_SUM,
                                .count = ELEMS,
                                .send = in[r],
                                .recv = out[r]};
      }
      T_OK(world_run(&w, ops, NULL));
      for (int r = 0; r < SIZE; r++)
        for (int i = 0; i < ELEMS; i++)
          if (out[r][i] != 10.0 * ((r * ELEMS + i) % 1021 + turn))
            fail_msg("turn %d rank %d element %d: %f", turn, r, i, out[r][i]);
    }
    world_close(&w);
  }
}

TEST(thousands_of_operations_leave_no_memory_behind)
{
  for (int processes = 0; processes < 2; processes++) {
    world w;
    float in[4] = {1, 2, 3, 4}, out[2][2];
    weft_coll_op ops[MOST_RANKS];
    size_t before = 0;
    open_world(&w, 2, processes);
    for (int r = 0; r < 2; r++)
      ops[r] = (weft_coll_op){
        .kind = WEFT_REDUCE_SCATTER, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 2, .send = in, .recv = out[r]};
    for (int i = 0; i < 3000; i++) {
      T_OK(world_run(&w, ops, NULL));
      if (i == 500) before = mallinfo2().uordblks;
    }
    T_TRUE(mallinfo2().uordblks < before + 16384);
    world_close(&w);
  }
}

/* ---- what surrounds a rank --------------------------------------------------------------------------------------- */

static weft_status *join(weft_kv *kv, const char *name, int rank, weft_comm **comm)
{
  weft_comm_spec spec = {.kv = kv, .name = name, .size = 2, .ranks = &rank, .rank_count = 1, .timeout_ns = 20 * WEFT_NS_PER_S,
                         .deadline = weft_deadline_after_ms(20000)};
  return weft_comm_create(&spec, comm);
}

/* A rank forks, as data loaders do, and dies while its child lives. The child's copies of the rank's sockets must not
 * make the other rank wait. Each rank is a process of its own, since a fork copies both sides of a connection within
 * one process. */
static int play_parent(const char *directory, int gate)
{
  weft_kv *kv;
  weft_comm *comm;
  weft_coll_op barrier = {.kind = WEFT_BARRIER};
  struct pollfd closing = {.fd = gate};
  char go;

  if (weft_kv_file_new(directory, &kv) || join(kv, "forks", 1, &comm) || weft_coll_run(comm, &barrier, NULL)) return 1;
  if (fork() == 0) {
    poll(&closing, 1, 30000); /* until the test has its answer */
    _exit(0);
  }
  if (weft_coll_run(comm, &barrier, NULL) || read(gate, &go, 1) != 1) return 1; /* forking disturbs nobody */
  kill(getpid(), SIGKILL);
  return 1;
}

TEST(a_child_of_a_dead_rank_does_not_keep_it_alive)
{
  char directory[] = "/tmp/weft-peers-XXXXXX", command[64];
  weft_kv *kv;
  weft_comm *comm;
  weft_coll_op barrier = {.kind = WEFT_BARRIER};
  int gate[2];

  T_TRUE(mkdtemp(directory) != NULL);
  T_EQ_INT(pipe(gate), 0);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    close(gate[1]);
    _exit(play_parent(directory, gate[0]));
  }
  close(gate[0]);
  T_OK(weft_kv_file_new(directory, &kv));
  T_OK(join(kv, "forks", 0, &comm));
  for (int i = 0; i < 2; i++) T_OK(weft_coll_run(comm, &barrier, NULL));
  T_EQ_INT(write(gate[1], "", 1), 1);
  int64_t began_ns = weft_now_ns();
  T_FAILS(weft_coll_run(comm, &barrier, NULL), "is not connected");
  T_TRUE(weft_now_ns() - began_ns < 10 * WEFT_NS_PER_S);
  close(gate[1]);
  waitpid(pid, NULL, 0);
  weft_comm_destroy(comm);
  weft_kv_destroy(kv);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  T_EQ_INT(system(command), 0);
}

/* ---- no port is left --------------------------------------------------------------------------------------------- */

#ifndef OVER_FABRIC /* whose own sockets find none */
enum { FIRST_PORT = 40000, PORTS = 20, CANNOT = 77 };

static int socket_at(int port)
{
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);

  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  return bind(fd, (struct sockaddr *)&name, sizeof name) == 0 ? fd : -1;
}

/* A connection that ended a moment ago keeps the port. */
static bool use_up(int port)
{
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int listening = socket_at(port), ours = socket_at(port + 10000), theirs;
  char end;

  if (listening < 0 || ours < 0 || listen(listening, 1) != 0 ||
      connect(ours, (struct sockaddr *)&name, sizeof name) != 0)
    return false;
  theirs = accept(listening, NULL, NULL);
  close(theirs); /* who closes first keeps it */
  bool ended = read(ours, &end, 1) == 0;
  close(ours);
  close(listening);
  return ended;
}

/* In a network of its own, with few ports. */
static int live_without_ports(void)
{
  weft_coll_op ops[2] = {{.kind = WEFT_BARRIER}, {.kind = WEFT_BARRIER}};
  FILE *range;
  world w;

  if (unshare(CLONE_NEWNET) != 0 || system("ip link set lo up 2>/dev/null") != 0) return CANNOT;
  if (!(range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w"))) return CANNOT;
  fprintf(range, "%d %d", FIRST_PORT, FIRST_PORT + PORTS - 1);
  if (fclose(range) != 0) return CANNOT;
  for (int i = 0; i < PORTS; i++)
    if (!use_up(FIRST_PORT + i)) return CANNOT;
  world_open_processes(&w, 2, NULL);
  return world_run(&w, ops, NULL) != NULL;
}
#endif

TEST(ports_that_ended_connections_hold_are_shared)
{
#ifdef OVER_FABRIC
  T_SKIP("libfabric needs ports of its own");
#else
  int status = -1;
  pid_t pid = fork();

  if (pid == 0) _exit(live_without_ports());
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) T_SKIP("needs root, for a network namespace");
  T_EQ_INT(status, 0);
#endif
}

TEST_MAIN(UNIT(ports_that_ended_connections_hold_are_shared),
          UNIT(a_child_of_a_dead_rank_does_not_keep_it_alive), /* first: it forks */
          UNIT(a_lone_rank_is_told_in_time_whatever_it_waits_for), UNIT(nobody_leaves_a_barrier_before_the_last_enters),
          UNIT(messages_may_be_empty_piped_answered_and_ones_own),
          UNIT(large_messages_wait_for_no_collective_and_cross_each_other), UNIT(small_sends_need_no_receive_until_the_room_is_full),
          UNIT(a_small_send_and_its_receive_may_not_disagree), UNIT(all_to_all_v_reads_and_writes_where_it_is_told),
          UNIT(large_reduce_scatters_are_right_every_time), UNIT(thousands_of_operations_leave_no_memory_behind))
