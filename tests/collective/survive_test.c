/* tests/collective/survive_test.c -- processes that are killed or stopped, that are late, or that send wrong or damaged
 * data: every survivor gets the specified error in time, and the next communicator works. */
#include "test.h"

#include "entries.h"

#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kv.h"
#include "collective/flight.h"
#include "collective/flight_text.h"
#include "weft/collective.h"

/* Deadlines that must pass are short; those that must not pass are PATIENCE. An error that must come "at once" waits
 * for no deadline, but may take some time on a machine with other work. faults_test measures how fast errors come. */
enum { MOST = 8, TEXT = 3000, PATIENCE_MS = 120000, AT_ONCE_MS = 60000 };
#define PATIENCE (PATIENCE_MS * WEFT_NS_PER_MS)
#define SHORT (3 * WEFT_NS_PER_S)

/* What a child reports to its parent, in shared memory. */
typedef struct outcome {
  volatile int done, code; /* code: of the error that ended it */
  volatile int64_t at_ns;
  char text[TEXT];
} outcome;

typedef struct arena {
  outcome of[MOST];
  volatile int64_t event_ns; /* when the bad thing happened */
  volatile int counter;
  int made; /* atomic: ranks that have made their communicator */
  char directory[64];
} arena;

static arena *shared;

typedef struct scene {
  const char *name;
  int size;
  const char *transport; /* "shm", or "fabric" by giving each process a node of its own */
  int64_t timeout_ns;
  void (*act)(const struct scene *scene, int rank, weft_comm *comm);
  weft_coll_kind kind;
  const char *faults; /* of rank 1 */
} scene;

static void finish(int rank, weft_status *st)
{
  outcome *o = &shared->of[rank];
  o->code = weft_status_code(st);
  snprintf(o->text, sizeof o->text, "%s", weft_status_message(st));
  o->at_ns = weft_now_ns();
  o->done = 1;
  weft_status_free(st);
}

static weft_status *make(const scene *s, int rank, const char *name, weft_comm **comm)
{
  weft_kv *kv;
  WEFT_TRY(weft_kv_file_new(shared->directory, &kv));
  weft_comm_spec spec = {.kv = kv, .name = name, .size = s->size, .ranks = &rank, .rank_count = 1, .timeout_ns = s->timeout_ns,
                         .deadline = weft_deadline_after_ms(PATIENCE_MS)};
  weft_status *st = weft_comm_create(&spec, comm);
  weft_kv_destroy(kv);
  return st;
}

static void child(const scene *s, int rank, const char *name)
{
  char label[16];
  weft_comm *comm = NULL;

  snprintf(label, sizeof label, "node%d", rank);
  if (strcmp(s->transport, "fabric") == 0) setenv("WEFT_COLLECTIVE_NODE", label, 1);
  if (s->faults && rank == 1) setenv("WEFT_COLLECTIVE_FAULTS", s->faults, 1);
  weft_status *st = make(s, rank, name, &comm);
  if (st) {
    finish(rank, weft_status_note(st, __FILE__, __LINE__, "creating"));
    _exit(1);
  }
  __atomic_add_fetch(&shared->made, 1, __ATOMIC_RELEASE);
  s->act(s, rank, comm);
  weft_comm_destroy(comm);
  _exit(0);
}

static pid_t spawn(const scene *s, int rank, const char *name)
{
  pid_t pid = fork();
  if (pid == 0) child(s, rank, name);
  return pid;
}

/* Runs a scene to its end: at most `limit_ms` for the children that report; the rest is killed. */
static void play(const scene *s, pid_t pids[MOST])
{
  static int number;
  char name[64];

  memset(shared->of, 0, sizeof shared->of);
  shared->counter = 0;
  shared->made = 0;
  shared->event_ns = 0;
  snprintf(name, sizeof name, "%s-%d", s->name, number++);
  for (int r = 0; r < s->size; r++) pids[r] = spawn(s, r, name);
}

/* Fails the test because rank `silent` has not reported. What the other ranks reported may say why. */
static void fail_silent(const scene *s, int silent, int limit_ms)
{
  char *said = NULL;
  size_t size;
  FILE *out = open_memstream(&said, &size);

  for (int r = 0; r < s->size && out; r++)
    if (shared->of[r].done)
      fprintf(out, "\n  rank %d: %.1000s", r, shared->of[r].code ? shared->of[r].text : "no error");
  if (out) fclose(out);
  printf("# %s over %s: rank %d said nothing in %d ms; %d of %d ranks have made the communicator, and reported:%s\n",
         s->name, s->transport, silent, limit_ms, __atomic_load_n(&shared->made, __ATOMIC_ACQUIRE), s->size,
         said ? said : "");
  fflush(stdout);
  free(said);
  fail_msg("%s over %s: rank %d said nothing in %d ms", s->name, s->transport, silent, limit_ms);
}

static void await(const scene *s, pid_t pids[MOST], unsigned expected, int limit_ms)
{
  for (int ms = 0; ms < limit_ms; ms += 5) {
    unsigned done = 0;
    for (int r = 0; r < s->size; r++) done |= (unsigned)shared->of[r].done << r;
    if ((done & expected) == expected) break;
    usleep(5000);
  }
  for (int r = 0; r < s->size; r++) {
    if (!(expected >> r & 1) || !shared->of[r].done) kill(pids[r], SIGKILL);
    waitpid(pids[r], NULL, 0);
  }
  for (int r = 0; r < s->size; r++)
    if ((expected >> r & 1) && !shared->of[r].done) fail_silent(s, r, limit_ms);
}

/* ---- what ranks do ---- */

enum { ELEMS = 3000 };

static weft_status *run_kind_until(weft_comm *comm, weft_coll_kind kind, size_t count, const char *instruction,
                                   weft_deadline deadline)
{
  int size = weft_comm_size(comm), rank = weft_comm_rank(comm);
  static float in[ELEMS * MOST], out[ELEMS * MOST];
  static size_t counts[MOST];
  for (int i = 0; i < size; i++) counts[i] = count;
  weft_coll_op op = {.kind = kind, .dtype = WEFT_F32, .count = count, .send = in, .recv = out, .recv_counts = counts,
                     .send_counts = counts, .source = (rank + size - 1) % size, .target = (rank + 1) % size};
  if (kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER) op.reduction = WEFT_SUM;
  weft_coll_call call = {.site = {.instruction = instruction, .source = "model.py:7"}, .deadline = deadline};
  return weft_coll_run(comm, &op, &call);
}

/* By the communicator's own deadline. */
static weft_status *run_kind(weft_comm *comm, weft_coll_kind kind, size_t count, const char *instruction)
{
  return run_kind_until(comm, kind, count, instruction, (weft_deadline){0});
}

/* All ranks have reached this point. */
static weft_status *meet(weft_comm *comm, weft_coll_kind kind, const char *instruction)
{
  return run_kind_until(comm, kind, 10, instruction, weft_deadline_after_ms(PATIENCE_MS));
}

/* Other ranks may still ask this process for its state, until all ranks but `silent` have reported. */
static void linger(const scene *s, int silent)
{
  for (int ms = 0, left = 1; ms < PATIENCE_MS && left; ms += 5, usleep(5000)) {
    left = 0;
    for (int r = 0; r < s->size; r++) left += r != silent && !shared->of[r].done;
  }
}

static void dies(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = NULL;
  for (int i = 0; i < 100000 && !st; i++) {
    if (rank == 2 && i == 3) {
      shared->event_ns = weft_now_ns();
      kill(getpid(), SIGKILL);
    }
    st = run_kind(comm, s->kind, 100, "op");
    if (i >= 3 && !st) usleep(1000); /* a rooted operation need not notice the failure at once: its data goes one way */
  }
  finish(rank, st);
}

static void sleeps(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = meet(comm, s->kind, "all-reduce.1");
  if (!st && rank == 3) {
    shared->event_ns = weft_now_ns();
    for (;;) pause();
  }
  if (!st) st = run_kind(comm, s->kind, 10, "all-reduce.2");
  finish(rank, st);
  linger(s, 3);
}

static void stops(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = meet(comm, s->kind, "first");
  if (rank == 1) {
    shared->event_ns = weft_now_ns();
    kill(getpid(), SIGSTOP);
  }
  if (!st) st = run_kind(comm, s->kind, 10, "second");
  finish(rank, st);
  linger(s, 1);
}

static void disagrees(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = meet(comm, s->kind, "first");
  shared->event_ns = weft_now_ns();
  if (!st) st = run_kind(comm, s->kind, rank == 1 ? 11 : 10, rank == 1 ? "wrong.9" : "right.8");
  finish(rank, st);
}

static void works(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = NULL;
  for (int i = 0; i < 20 && !st; i++) {
    float in[ELEMS], out[ELEMS];
    for (int k = 0; k < ELEMS; k++) in[k] = (float)(rank + k % 100 + i);
    weft_coll_op op = {.kind = s->kind, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = ELEMS, .send = in, .recv = out};
    st = weft_coll_run(comm, &op, NULL);
    for (int k = 0; k < ELEMS && !st; k++) {
      float want = (float)(s->size * (k % 100 + i) + s->size * (s->size - 1) / 2);
      if (out[k] != want)
        st = WEFT_ERR(INTERNAL, "iteration %d element %d: got %f, want %f", i, k, (double)out[k], (double)want);
    }
  }
  finish(rank, st);
}

static void splits(const scene *s, int rank, weft_comm *comm)
{
  weft_comm *part = NULL;
  int color = rank % 2, key = -rank;
  float in = (float)rank, out = 0;
  (void)s;
  weft_status *st = weft_comm_split(&comm, 1, &color, &key, weft_deadline_after_ms(PATIENCE_MS), &part);
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &in, .recv = &out};
  if (!st) st = weft_coll_run(part, &op, NULL);
  if (!st && out != (color ? 4.0f : 2.0f)) st = WEFT_ERR(INTERNAL, "sum of color %d is %f", color, (double)out);
  if (!st && weft_comm_rank(part) != (rank < 2))
    st = WEFT_ERR(INTERNAL, "rank %d became %d", rank, weft_comm_rank(part));
  if (!st) st = run_kind(comm, WEFT_BARRIER, 0, NULL);
  weft_comm_destroy(part);
  finish(rank, st);
}

/* ---- aborted again and again ---- */

typedef struct holdings {
  size_t heap, resident_kib;
  int descriptors, threads, segments; /* segments: of shared memory, mapped */
} holdings;

static holdings what_is_held(void)
{
  holdings h = {.heap = mallinfo2().uordblks, .descriptors = count_entries("/proc/self/fd", ""), .threads = count_entries("/proc/self/task", "")};
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r"), *statm = fopen("/proc/self/statm", "r");

  while (maps && fgets(line, sizeof line, maps)) h.segments += strstr(line, "memfd:") || strstr(line, "/dev/shm/");
  if (!statm || fscanf(statm, "%*u %zu", &h.resident_kib) != 1) h.resident_kib = 0;
  h.resident_kib *= (size_t)sysconf(_SC_PAGESIZE) / 1024;
  if (maps) fclose(maps);
  if (statm) fclose(statm);
  return h;
}

enum ways_to_end { ONE_ABORTS, ONE_IS_LATE, ONE_LEAVES, WAYS_TO_END };

/* Makes a communicator, uses it, and sees it end: each rank in turn brings that about. */
static weft_status *one_round(const scene *s, int rank, int i)
{
  WEFT_AUTO(weft_comm) comm = NULL;
  enum ways_to_end way = (enum ways_to_end)(i % WAYS_TO_END);
  bool is_cause = rank == i % s->size;
  float x = 1, y = 0;
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
  weft_coll_call call = {.warn_ns = -1};
  char name[64];

  snprintf(name, sizeof name, "%s-again-%d", s->name, i);
  WEFT_TRY(make(s, rank, name, &comm));
  weft_status *st = weft_coll_run(comm, &op, NULL);
  if (!st && y != (float)s->size) return WEFT_ERR(INTERNAL, "round %d: the sum is %f", i, (double)y);
  if (is_cause && way == ONE_LEAVES) return st;
  if (is_cause && way == ONE_ABORTS) weft_comm_abort(comm, NULL);
  if (is_cause && way == ONE_IS_LATE) usleep(4000);
  if (!is_cause && way == ONE_IS_LATE) call.deadline = weft_deadline_after_ms(1);
  if (!st) st = weft_coll_run(comm, &op, &call); /* a slow rank may get the error in its first operation */
  weft_code code = weft_status_code(st);
  bool is_expected = code == WEFT_ABORTED || code == WEFT_FAILED_PRECONDITION ||
                     (way == ONE_IS_LATE && (code == WEFT_DEADLINE_EXCEEDED || code == WEFT_OK));
  if (!is_expected) return st ? st : WEFT_ERR(INTERNAL, "round %d: the operation succeeded", i);
  weft_status_free(st);
  return NULL;
}

static void aborts_again_and_again(const scene *s, int rank, weft_comm *first)
{
  enum { WARM_UP = 30, ROUNDS = 150, ROUNDS_LONG = 10000, HEAP_BYTES = 128 << 10, RESIDENT_KIB = 4096 };
  int rounds = getenv("WEFT_TEST_LONG") ? ROUNDS_LONG : ROUNDS;
  /* libfabric 1.17's provider net keeps what describes a connection that it has accepted: up to a KiB for each peer. */
  size_t kept = strcmp(s->transport, "fabric") == 0 ? (size_t)(rounds * (s->size - 1)) << 10 : 0;
  weft_status *st = run_kind(first, WEFT_BARRIER, 0, NULL);
  holdings before = {0}, after;

  for (int i = 0; i < WARM_UP + rounds && !st; i++) {
    if (i == WARM_UP) before = what_is_held();
    st = one_round(s, rank, i);
  }
  for (int ms = 0; ms < 5000; ms += 10) { /* a thread that has reported may not have ended yet */
    after = what_is_held();
    if (after.threads <= before.threads && after.descriptors <= before.descriptors) break;
    usleep(10000);
  }
  bool grew = after.heap > before.heap + HEAP_BYTES + kept || after.threads > before.threads ||
              after.descriptors > before.descriptors || after.segments > before.segments ||
              (!getenv("WEFT_SANITIZED") && after.resident_kib > before.resident_kib + RESIDENT_KIB + kept / 1024);
  if (!st && grew)
    st = WEFT_ERR(
      INTERNAL,
      "%d aborts: heap %zu -> %zu, resident %zu -> %zu KiB, descriptors %d -> %d, threads %d -> %d, segments %d -> %d",
      rounds, before.heap, after.heap, before.resident_kib, after.resident_kib, before.descriptors, after.descriptors,
      before.threads, after.threads, before.segments, after.segments);
  finish(rank, st);
}

/* Of six ranks, 0 and 3 are not neighbours. Rank 0 first connects to rank 3 when rank 3 has left, and the ranks that
 * know the reason are stopped. */
enum { EVERYBODY_IS_STOPPED = 1, THREE_HAS_LEFT, ZERO_HAS_CALLED };

static weft_status *await_counter(int value)
{
  for (int ms = 0; shared->counter < value; ms++, usleep(1000))
    if (ms == PATIENCE_MS) return WEFT_ERR(INTERNAL, "the counter is %d, not %d", shared->counter, value);
  return NULL;
}

/* A rank that stops must wait for this first. Its own creation may have ended although it still has data to send that
 * other ranks need for theirs: the progress thread sends the data, unless the process is stopped. */
static weft_status *await_all_made(const scene *s)
{
  for (int ms = 0; __atomic_load_n(&shared->made, __ATOMIC_ACQUIRE) < s->size; ms++, usleep(1000))
    if (ms == PATIENCE_MS) return WEFT_ERR(INTERNAL, "not all ranks have made their communicator");
  return NULL;
}

static weft_status *leave_early(weft_comm *comm)
{
  WEFT_TRY(await_counter(EVERYBODY_IS_STOPPED));
  weft_comm_abort(comm, WEFT_ERR(ABORTED, "lost patience"));
  weft_comm_destroy(comm);
  shared->event_ns = weft_now_ns();
  shared->counter = THREE_HAS_LEFT;
  for (;;) pause(); /* it lives on */
}

static weft_status *call_one_that_has_left(weft_comm *comm)
{
  weft_coll_op send = {.kind = WEFT_SEND, .dtype = WEFT_F32, .count = 1, .send = &(float){1}, .peer = 3};
  weft_event *event;

  WEFT_TRY(await_counter(THREE_HAS_LEFT));
  weft_status *st = weft_coll_post(comm, &send, NULL, &event);
  shared->counter = ZERO_HAS_CALLED;
  if (st) return st;
  st = weft_coll_wait(comm, event);
  weft_event_release(event);
  return st;
}

static void gives_up(const scene *s, int rank, weft_comm *comm)
{
  weft_status *st = rank == 3 ? leave_early(comm) : rank == 0 ? call_one_that_has_left(comm) : await_all_made(s);

  if (!st && rank != 0) {
    kill(getpid(), SIGSTOP);
    st = run_kind(comm, WEFT_BARRIER, 0, NULL);
  }
  finish(rank, st);
}

/* ---- scenes ---- */

static const char *const transports[] = {"shm", "fabric"};

static bool transport_works(const char *transport)
{
  return strcmp(transport, "shm") == 0 || getenv("WEFT_TEST_NO_FABRIC") == NULL;
}

static void everybody_is(const scene *s, unsigned who, int code, const char *says, int64_t within_ms)
{
  for (int r = 0; r < s->size; r++) {
    if (!(who >> r & 1)) continue;
    const outcome *o = &shared->of[r];
    if (o->code != code && !(code == WEFT_DEADLINE_EXCEEDED && o->code == WEFT_ABORTED))
      fail_msg("%s %s over %s, rank %d: got %s \"%s\", want %s", s->name, weft_coll_kind_name(s->kind), s->transport, r,
               weft_code_name((weft_code)o->code), o->text, weft_code_name((weft_code)code));
    if (says && !strstr(o->text, says))
      fail_msg("%s %s over %s, rank %d: got \"%s\", want \"...%s...\"", s->name, weft_coll_kind_name(s->kind),
               s->transport, r, o->text, says);
    int64_t took_ms = (o->at_ns - shared->event_ns) / WEFT_NS_PER_MS;
    if (within_ms && took_ms > within_ms)
      fail_msg("%s over %s, rank %d: told after %lld ms, limit %lld", s->name, s->transport, r, (long long)took_ms,
               (long long)within_ms);
  }
}

TEST(a_killed_rank_ends_every_operation_at_once)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_BARRIER, WEFT_ALL_GATHER, WEFT_ALL_TO_ALL, WEFT_REDUCE_SCATTER,
                                         WEFT_BROADCAST, WEFT_REDUCE, WEFT_GATHER, WEFT_SCATTER, WEFT_PERMUTE};
  for (size_t t = 0; t < WEFT_COUNT(transports); t++)
    for (size_t k = 0; k < WEFT_COUNT(kinds) && transport_works(transports[t]); k++) {
      pid_t pids[MOST];
      scene s = {"killed", 4, transports[t], PATIENCE, dies, kinds[k], NULL};
      play(&s, pids);
      await(&s, pids, 0xb, PATIENCE_MS);
      everybody_is(&s, 0xb, WEFT_FAILED_PRECONDITION, "is not connected",
                   AT_ONCE_MS); /* 100 ms on a machine of one's own */
    }
}

TEST(a_sleeping_rank_is_named_with_what_it_did_last)
{
  for (size_t t = 0; t < WEFT_COUNT(transports); t++) {
    if (!transport_works(transports[t])) continue;
    pid_t pids[MOST];
    scene s = {"asleep", 4, transports[t], SHORT, sleeps, WEFT_ALL_REDUCE, NULL};
    play(&s, pids);
    await(&s, pids, 0x7, PATIENCE_MS);
    everybody_is(&s, 0x7, WEFT_DEADLINE_EXCEEDED, "not arrived: 1 of 4", AT_ONCE_MS);
    everybody_is(&s, 0x7, WEFT_DEADLINE_EXCEEDED, "rank 3", 0);
    everybody_is(&s, 0x7, WEFT_DEADLINE_EXCEEDED, "last seen at all-reduce f32[10] sum \"all-reduce.1\"", 0);
    if (t == 0) { /* not print_message: it cuts after 1024 bytes, newline and all */
      printf("# %s\n", shared->of[0].text);
      fflush(stdout);
    }
  }
}

TEST(recorders_of_killed_processes_say_who_never_came)
{
  pid_t pids[MOST];
  char paths[4][160], *text = NULL;
  const char *list[4];
  size_t size;
  DIR *dir;
  int n = 0;
  scene s = {"recorded", 4, "shm", SHORT, sleeps, WEFT_ALL_REDUCE, NULL};

  setenv("WEFT_COLLECTIVE_FLIGHT_DIR", shared->directory, 1);
  play(&s, pids);
  await(&s, pids, 0x7, PATIENCE_MS); /* kills the sleeper */
  unsetenv("WEFT_COLLECTIVE_FLIGHT_DIR");
  dir = opendir(shared->directory);
  for (struct dirent *e; (e = readdir(dir)) && n < 4;) {
    if (strncmp(e->d_name, "flight-", 7) != 0) continue;
    snprintf(paths[n], sizeof paths[n], "%s/%.80s", shared->directory, e->d_name);
    list[n] = paths[n];
    struct stat about;
    T_TRUE(stat(paths[n], &about) == 0 && (about.st_mode & 0777) == 0600);
    n++;
  }
  closedir(dir);
  T_EQ_INT(n, 4);
  FILE *out = open_memstream(&text, &size);
  T_OK(coll_flight_join(list, n, out));
  fclose(out);
  if (!strstr(text, "ranks are missing at seq 2") || !strstr(text, "rank 3 (") ||
      !strstr(text, "never posted it\n      last: all-reduce"))
    fail_msg("%s", text);
  char *quiet = strstr(text, "who went quiet first on top:\n  pid "), sleeper[32];
  snprintf(sleeper, sizeof sleeper, "  pid %d on ", pids[3]);
  if (!quiet || !strstr(quiet, sleeper)) fail_msg("the sleeper %d is not listed: %s", pids[3], text);
  free(text);
  T_FAILS(coll_flight_join((const char *[]){"/etc/passwd"}, 1, stderr), "no flight recorder");
  for (int i = 0; i < n; i++) unlink(paths[i]);
}

TEST(a_stopped_rank_is_told_apart)
{
  pid_t pids[MOST];
  scene s = {"stopped", 3, "shm", SHORT, stops, WEFT_ALL_REDUCE, NULL};
  play(&s, pids);
  await(&s, pids, 0x5, PATIENCE_MS);
  everybody_is(&s, 0x5, WEFT_DEADLINE_EXCEEDED, "does not answer", AT_ONCE_MS);
}

TEST(one_that_gave_up_and_left_is_not_called_dead)
{
  /* Rank 1 makes its communicator before what it sent has come to rank 0, which needs it for its own. */
  static const char *const faults[] = {NULL, "delay@1=500"};

  for (size_t t = 0; t < WEFT_COUNT(transports) * WEFT_COUNT(faults); t++) {
    const char *transport = transports[t / WEFT_COUNT(faults)];
    if (!transport_works(transport)) continue;
    static const int others[] = {1, 2, 4, 5};
    pid_t pids[MOST];
    int how;
    scene s = {"gave-up", 6, transport, PATIENCE, gives_up, WEFT_BARRIER, faults[t % WEFT_COUNT(faults)]};
    play(&s, pids);
    for (size_t i = 0; i < WEFT_COUNT(others); i++) waitpid(pids[others[i]], &how, WUNTRACED);
    shared->counter = EVERYBODY_IS_STOPPED;
    for (int ms = 0; ms < PATIENCE_MS && shared->counter < ZERO_HAS_CALLED; ms++) usleep(1000);
    for (size_t i = 0; i < WEFT_COUNT(others); i++) kill(pids[others[i]], SIGCONT);
    await(&s, pids, 0x37, PATIENCE_MS);
    everybody_is(&s, 0x37, WEFT_ABORTED, "lost patience", 0);
  }
}

TEST(stopped_and_continued_in_time_is_no_error)
{
  pid_t pids[MOST];
  int how;
  scene s = {"continued", 3, "shm", PATIENCE, stops, WEFT_ALL_REDUCE, NULL};
  play(&s, pids);
  waitpid(pids[1], &how, WUNTRACED);
  usleep(300000); /* the others wait */
  kill(pids[1], SIGCONT);
  await(&s, pids, 0x7, PATIENCE_MS);
  everybody_is(&s, 0x7, WEFT_OK, NULL, 0);
}

TEST(ranks_that_disagree_are_told_both_sides)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_ALL_GATHER, WEFT_BROADCAST, WEFT_ALL_TO_ALL};
  for (size_t t = 0; t < WEFT_COUNT(transports); t++)
    for (size_t k = 0; k < WEFT_COUNT(kinds) && transport_works(transports[t]); k++) {
      pid_t pids[MOST];
      scene s = {"disagreeing", 2, transports[t], PATIENCE, disagrees, kinds[k], NULL};
      play(&s, pids);
      await(&s, pids, kinds[k] == WEFT_BROADCAST ? 0x2 : 0x3,
            PATIENCE_MS); /* the root of a broadcast may be done already */
      everybody_is(&s, 0x2, WEFT_FAILED_PRECONDITION, "ranks disagree", AT_ONCE_MS);
      everybody_is(&s, 0x2, WEFT_FAILED_PRECONDITION, "wrong.9", 0);
      everybody_is(&s, 0x2, WEFT_FAILED_PRECONDITION, "right.8", 0);
    }
}

TEST(faults_of_the_transport_end_in_an_error_or_do_no_harm)
{
  static const struct { const char *faults; bool harmless; } cases[] = {
    {"delay@5=300", true}, {"drop@5", false}, {"corrupt@5", false}, {"stall@5", false}, {"disconnect@5", false},
    {"duplicate@5", false}, {"drop@9", false}, {"corrupt@8", false}, {"duplicate@12", false},
  };
  for (size_t t = 0; t < WEFT_COUNT(transports); t++)
    for (size_t i = 0; i < WEFT_COUNT(cases) && transport_works(transports[t]); i++) {
      pid_t pids[MOST];
      scene s = {"faulty", 3, transports[t], cases[i].harmless ? PATIENCE : 2 * WEFT_NS_PER_S, works, WEFT_ALL_REDUCE, cases[i].faults};
      play(&s, pids);
      await(&s, pids, 0x7, PATIENCE_MS);
      for (int r = 0; r < s.size; r++) {
        bool ok = shared->of[r].code == WEFT_OK;
        if (ok != cases[i].harmless || shared->of[r].code == WEFT_INTERNAL)
          fail_msg("%s over %s, rank %d: %s %s", cases[i].faults, s.transport, r,
                   weft_code_name((weft_code)shared->of[r].code), shared->of[r].text);
      }
    }
}

TEST(the_next_communicator_works_with_a_restarted_rank)
{
  for (size_t t = 0; t < WEFT_COUNT(transports); t++) {
    if (!transport_works(transports[t])) continue;
    pid_t pids[MOST];
    scene dead = {"before", 4, transports[t], PATIENCE, dies, WEFT_ALL_REDUCE, NULL};
    play(&dead, pids);
    await(&dead, pids, 0xb, PATIENCE_MS);
    scene again = {"after", 4, transports[t], PATIENCE, works, WEFT_ALL_REDUCE, NULL};
    play(&again, pids);
    await(&again, pids, 0xf, PATIENCE_MS);
    everybody_is(&again, 0xf, WEFT_OK, NULL, 0);
  }
}

TEST(communicators_aborted_again_and_again_leave_nothing_behind)
{
  for (size_t t = 0; t < WEFT_COUNT(transports); t++) {
    if (!transport_works(transports[t])) continue;
    pid_t pids[MOST];
    scene s = {"aborted", 3, transports[t], PATIENCE, aborts_again_and_again, WEFT_ALL_REDUCE, NULL};
    int before = count_entries("/dev/shm", "weft");
    play(&s, pids);
    await(&s, pids, 0x7, getenv("WEFT_TEST_LONG") ? 3600000 : 600000);
    everybody_is(&s, 0x7, WEFT_OK, NULL, 0);
    T_TRUE(entries_are_gone("/dev/shm", "weft", before));
  }
}

TEST(splitting_needs_no_store)
{
  for (size_t t = 0; t < WEFT_COUNT(transports); t++) {
    if (!transport_works(transports[t])) continue;
    pid_t pids[MOST];
    scene s = {"split", 4, transports[t], PATIENCE, splits, WEFT_ALL_REDUCE, NULL};
    play(&s, pids);
    await(&s, pids, 0xf, PATIENCE_MS);
    everybody_is(&s, 0xf, WEFT_OK, NULL, 0);
  }
}

TEST(creation_names_who_did_not_come_and_can_be_cancelled)
{
  pid_t pid = fork();
  if (pid == 0) {
    weft_kv *kv;
    weft_comm *comm;
    int rank = 0;
    atomic_bool cancel = true;
    bool ok = true;
    T_OK(weft_kv_local_new(&kv));
    weft_comm_spec spec = {.kv = kv, .name = "lonely", .size = 2, .ranks = &rank, .rank_count = 1, .deadline = weft_deadline_after_ms(1000)};
    weft_status *st = weft_comm_create(&spec, &comm);
    ok &= weft_status_code(st) == WEFT_DEADLINE_EXCEEDED && strstr(weft_status_message(st), "rank 1 has not published");
    weft_status_free(st);
    spec.deadline = weft_deadline_after_ms(60000);
    spec.cancel = &cancel;
    st = weft_comm_create(&spec, &comm);
    ok &= weft_status_code(st) == WEFT_CANCELLED;
    weft_status_free(st);
    weft_kv_destroy(kv);
    _exit(!ok);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  T_EQ_INT(status, 0);
}

/* ---- one process ---- */

static void abort_many(int count)
{
  for (int i = 0; i < count; i++) {
    weft_comm *comms[2];
    int ranks[2] = {0, 1};
    float x = 1, y = 0;
    weft_event *event;
    weft_comm_spec spec = {.name = "aborted", .size = 2, .ranks = ranks, .rank_count = 2};
    weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
    weft_coll_call late = {.deadline = {1}};
    T_OK(weft_comm_create(&spec, comms));
    T_OK(weft_coll_post(comms[0], &op, i % 2 ? NULL : &late, &event));
    if (i % 2) weft_comm_abort(comms[1], WEFT_ERR(ABORTED, "enough"));
    weft_status *st = weft_coll_wait(comms[0], event);
    T_TRUE(weft_status_code(st) == (i % 2 ? WEFT_ABORTED : WEFT_DEADLINE_EXCEEDED));
    weft_status_free(st);
    weft_event_release(event);
    if (i % 2 == 0) T_CODE(weft_coll_run(comms[1], &op, NULL), WEFT_DEADLINE_EXCEEDED); /* did not have the error yet */
    T_CODE(weft_coll_run(comms[1], &op, NULL), WEFT_FAILED_PRECONDITION);
    T_FAILS(weft_coll_run(comms[0], &op, NULL), "was aborted");
    weft_comm_destroy(comms[0]);
    weft_comm_destroy(comms[1]);
  }
}

TEST(ten_thousand_aborts_leave_no_memory_behind)
{
  abort_many(200);
  size_t before = mallinfo2().uordblks;
  int fds = count_entries("/proc/self/fd", "");
  abort_many(getenv("WEFT_TEST_QUICK") ? 300 : 10000);
  T_TRUE(mallinfo2().uordblks < before + 65536);
  T_EQ_INT(count_entries("/proc/self/fd", ""), fds);
}

TEST(local_deadline_names_the_missing_device)
{
  weft_comm *comms[3];
  int ranks[3] = {0, 1, 2};
  int64_t devices[3] = {70, 71, 72};
  float x = 1, y = 0;
  weft_event *event, *other;
  weft_comm_spec spec = {.name = "cores", .size = 3, .ranks = ranks, .rank_count = 3, .device_ids = devices, .timeout_ns = WEFT_NS_PER_S};
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
  weft_coll_call call = {.site = {.instruction = "all-reduce.12", .source = "train.py:41"}};
  T_OK(weft_comm_create(&spec, comms));
  T_OK(weft_coll_post(comms[0], &op, &call, &event));
  T_OK(weft_coll_post(comms[2], &op, &call, &other));
  weft_status *st = weft_event_await(event, weft_deadline_after_ms(PATIENCE_MS)); /* by the progress thread alone */
  T_EQ_INT(weft_status_code(st), WEFT_DEADLINE_EXCEEDED);
  T_TRUE(strstr(weft_status_message(st), "not arrived: 1 of 3\n    rank 1 (device 71") != NULL);
  T_TRUE(strstr(weft_status_message(st), "\"all-reduce.12\" at train.py:41") != NULL);
  weft_status_free(st);
  T_CODE(weft_event_await(other, weft_deadline_after_ms(PATIENCE_MS)), WEFT_DEADLINE_EXCEEDED);
  weft_event_release(event);
  weft_event_release(other);
  char *text = weft_coll_flight_text();
  T_TRUE(text && strstr(text, "DEADLINE_EXCEEDED") && strstr(text, "all-reduce.12"));
  free(text);
  for (int r = 0; r < 3; r++) weft_comm_destroy(comms[r]);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(a_killed_rank_ends_every_operation_at_once), UNIT(a_sleeping_rank_is_named_with_what_it_did_last),
    UNIT(recorders_of_killed_processes_say_who_never_came),
    UNIT(a_stopped_rank_is_told_apart), UNIT(one_that_gave_up_and_left_is_not_called_dead), UNIT(stopped_and_continued_in_time_is_no_error),
    UNIT(ranks_that_disagree_are_told_both_sides), UNIT(faults_of_the_transport_end_in_an_error_or_do_no_harm),
    UNIT(the_next_communicator_works_with_a_restarted_rank), UNIT(communicators_aborted_again_and_again_leave_nothing_behind), UNIT(splitting_needs_no_store),
    UNIT(creation_names_who_did_not_come_and_can_be_cancelled),
    UNIT(local_deadline_names_the_missing_device),
    UNIT(ten_thousand_aborts_leave_no_memory_behind), /* last: they start threads */
  };
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  snprintf(shared->directory, sizeof shared->directory, "/tmp/weft-survive-XXXXXX");
  if (!mkdtemp(shared->directory)) return 99;
  int failed = cmocka_run_group_tests(units, NULL, NULL);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", shared->directory);
  return failed + (system(command) != 0);
}
