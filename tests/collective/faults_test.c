/* tests/collective/faults_test.c -- for every operation, algorithm and transport, at every step: a rank that is killed,
 * stopped, late, cut off, silent, or that sends garbage.  Every survivor must get the specified error in time, leak
 * nothing, and work in the next communicator.
 *
 * A shard is a supervisor with one process for each surviving rank; those live through all cases of the shard.  The
 * victim of a case is a process of its own with WEFT_COLLECTIVE_FAULTS set, so the next case has a restarted rank.  A
 * dry run counts the victim's moves; then fault by fault is struck at move 1, 2, ... up to the end.  By default a few
 * faults at one move of each (operation, algorithm, transport) are tried; WEFT_TEST_LONG=1 tries all, with 2 to 8 ranks;
 * WEFT_TEST_LONG=n every n-th move; WEFT_TEST_SECONDS=n draws from all of them for so long (by WEFT_TEST_SEED);
 * WEFT_TEST_ONLY=kill only the faults with that in their name. */
#include "test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kv.h"
#include "collective/internal.h"
#include "collective/stream.h"

enum { MOST = 8, TEXT = 1500, SMALL = 37, LARGE = 60000, KNOWN_MS = 2000 /* 100 where nothing else runs */ };

/* What a rank tells of a case. */
typedef struct outcome {
  int code;
  int64_t at_ns;
  int descriptors;
  long resident_kib;
  char text[TEXT];
} outcome;

/* What a shard does next, in memory that its processes share. */
typedef struct arena {
  char name[64];
  int size, victim;
  weft_coll_kind kind;
  coll_algorithm algorithm;
  size_t count;
  int64_t timeout_ns;
  outcome of[MOST];      /* by rank */
  int rank_of_slot[MOST];
  volatile unsigned long before_end; /* moves of the victim when it began the last barrier, 0: it did not */
  unsigned long moves, fired_at;     /* of the victim, where it lived to tell */
  volatile int64_t struck_ns;        /* when the victim was seen dead or stopped */
  sem_t go[MOST], done[MOST];
} arena;

static arena *shared;        /* of this shard */
static char directory[64];
static const char *transport;

/* ---- a rank ---- */

static weft_status *run_once(weft_comm *comm)
{
  static float in[LARGE * MOST], out[LARGE * MOST];
  static size_t counts[MOST];
  int64_t offsets[MOST], sizes[MOST], theirs[MOST];
  int size = weft_comm_size(comm), rank = weft_comm_rank(comm);
  size_t count = shared->count;
  weft_event *event;

  for (int i = 0; i < size; i++) {
    counts[i] = count;
    sizes[i] = (int64_t)count;
    offsets[i] = (int64_t)count * i;
    theirs[i] = (int64_t)count * rank;
  }
  weft_coll_ragged ragged = {offsets, sizes, theirs, sizes, 1, 1, (int64_t)count * size, (int64_t)count * size};
  weft_coll_op op = {.kind = shared->kind, .dtype = WEFT_F32, .count = count, .send = in, .recv = out, .recv_counts = counts,
                     .send_counts = counts, .root = 1 % size, .source = (rank + size - 1) % size,
                     .target = (rank + 1) % size, .ragged = &ragged};
  if (op.kind == WEFT_ALL_REDUCE || op.kind == WEFT_REDUCE || op.kind == WEFT_REDUCE_SCATTER) op.reduction = WEFT_SUM;
  if (op.kind == WEFT_REDUCE_SCATTER) op.recv_counts = NULL;
  if (op.kind != WEFT_SEND) return weft_coll_run(comm, &op, NULL);
  weft_coll_op both[2] = {op, op};
  both[0].peer = op.target;
  both[1].kind = WEFT_RECV;
  both[1].peer = op.source;
  WEFT_TRY(weft_coll_post_group(comm, both, 2, NULL, &event));
  weft_status *st = weft_coll_wait(comm, event);
  weft_event_release(event);
  return st;
}

static weft_status *take_part(int rank, weft_comm **comm)
{
  weft_kv *kv;
  weft_coll_op barrier = {.kind = WEFT_BARRIER};
  weft_status *st = NULL;

  WEFT_TRY(weft_kv_file_new(directory, &kv));
  weft_comm_spec spec = {.kv = kv, .name = shared->name, .size = shared->size, .ranks = &rank, .rank_count = 1,
                         .timeout_ns = shared->timeout_ns, .deadline = weft_deadline_after_ns(shared->timeout_ns)};
  st = weft_comm_create(&spec, comm);
  weft_kv_destroy(kv);
  if (st) return weft_status_note(st, __FILE__, __LINE__, "creating");
  (*comm)->group->forced_algorithm = (int)shared->algorithm;
  for (int i = 0; i < 2; i++) WEFT_TRY(run_once(*comm));
  if (rank == shared->victim) shared->before_end = coll_fault_seen().moves;
  return weft_coll_run(*comm, &barrier, NULL);
}

static int count_entries(const char *path)
{
  int count = 0;
  DIR *dir = opendir(path);
  if (!dir) return 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

/* Does libfabric's provider net own it?  That loses the socket of a connection now and then when its endpoint closes early
 * (one in some hundred faults).  Ours listen, or have keepalive set. */
static bool is_foreign(int fd)
{
  int domain = 0, listens = 0, alive = 0;
  socklen_t length = sizeof domain;

  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain != AF_UNIX &&
         getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && !listens &&
         getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &length) == 0 && !alive;
}

/* Counts our descriptors and says what they are. */
static int list_descriptors(char *out, size_t size)
{
  DIR *dir = opendir("/proc/self/fd");
  size_t at = 0;
  int count = 0;

  if (!dir) return 0;
  for (struct dirent *e; (e = readdir(dir));) {
    char what[48] = "";
    ssize_t length = readlinkat(dirfd(dir), e->d_name, what, sizeof what - 1);
    if (length <= 0 || is_foreign(atoi(e->d_name))) continue;
    count++;
    if (at < size) at += (size_t)snprintf(out + at, size - at, " %s=%s", e->d_name, what);
  }
  closedir(dir);
  return count;
}

/* The heap's own counters are per arena; this is what the system sees. */
static long resident_kib(void)
{
  long pages = 0;
  malloc_trim(0);
  FILE *file = fopen("/proc/self/statm", "re");
  if (!file || fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void play(int rank)
{
  outcome *o = &shared->of[rank];
  weft_comm *comm = NULL;
  weft_status *st = take_part(rank, &comm);

  o->at_ns = weft_now_ns();
  o->code = weft_status_code(st);
  snprintf(o->text, sizeof o->text, "%s", weft_status_text(st, false));
  weft_status_free(st);
  weft_comm_destroy(comm);
  char listed[TEXT] = "";
  o->descriptors = list_descriptors(listed, sizeof listed);
  if (o->code == WEFT_OK) memcpy(o->text, listed, sizeof o->text);
  o->resident_kib = resident_kib();
}

static void settle(const char *faults)
{
  if (strcmp(transport, "fabric") == 0) setenv("WEFT_COLLECTIVE_TRANSPORT", "fabric", 1);
  setenv("WEFT_COLLECTIVE_DIAGNOSE", "100ms", 1);
  setenv("WEFT_LOG", "coll:off", 0);
  setenv("WEFT_COLLECTIVE_FAULTS", faults, 1);
}

static pid_t fork_child(void)
{
  pid_t pid = fork();
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* who complains takes its processes along */
  return pid;
}

static pid_t start_slot(int slot)
{
  pid_t pid = fork_child();
  if (pid != 0) return pid;
  settle("");
  for (;;) {
    while (sem_wait(&shared->go[slot]) != 0) {}
    if (shared->size == 0) exit(0); /* so that leak checkers speak */
    play(shared->rank_of_slot[slot]);
    sem_post(&shared->done[slot]);
  }
}

static pid_t start_victim(const char *faults)
{
  pid_t pid = fork_child();
  if (pid != 0) return pid;
  settle(faults);
  play(shared->victim);
  shared->moves = coll_fault_seen().moves;
  shared->fired_at = coll_fault_seen().fired_at;
  _exit(0);
}

/* ---- a case ---- */

typedef struct fault {
  const char *spec; /* of move %lu */
  enum { HARMLESS, FATAL, CUT, LATE, GARBLED } kind;
  int64_t timeout_ms;
  bool may_pass; /* a connection that closes after the data, or a message that nobody reads: no harm */
} fault;

/* A deadline that must pass is short; one that must not is long. */
static const fault faults[] = {
  {"kill@%lu", FATAL, 10000, false},    {"stop@%lu", LATE, 250, false},      {"delay@%lu=600", LATE, 250, false},
  {"delay@%lu=15", HARMLESS, 20000, true}, {"disconnect@%lu", CUT, 10000, true}, {"stall@%lu", LATE, 250, false},
  {"drop@%lu", GARBLED, 250, false},    {"corrupt@%lu", GARBLED, 500, false}, {"duplicate@%lu", GARBLED, 500, true},
};

typedef struct tally {
  int cases, ok, known_count;
  int64_t known_ms[100000 / 8], slowest_late_ms;
} tally;

static tally counts;

static bool wait_for(sem_t *sem, int64_t limit_ms)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += limit_ms / 1000;
  until.tv_nsec += limit_ms % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  while (sem_timedwait(sem, &until) != 0)
    if (errno != EINTR) return false;
  return true;
}

static void describe(const char *spec, char *out, size_t size)
{
  snprintf(out, size, "%s %s count %zu over %s, %d ranks, victim %d, %s (%s)", weft_coll_kind_name(shared->kind),
           coll_algorithm_name(shared->algorithm), shared->count, transport, shared->size, shared->victim, spec, shared->name);
}

static void complain(const char *spec, const char *what, int rank)
{
  char text[300];
  const outcome *o = &shared->of[rank];

  describe(spec, text, sizeof text);
  printf("# %s: rank %d %s: %s %.1400s\n", text, rank, what, weft_code_name((weft_code)o->code), o->text);
  fflush(stdout);
  _exit(1);
}

/* False if it had to be killed. */
static bool victim_ends(pid_t pid, int *status)
{
  for (int waited_us = 0; waited_us < 30000000; waited_us += 500) {
    if (waitpid(pid, status, WNOHANG) == pid) return true;
    kill(pid, SIGCONT); /* it may come to its stop only now */
    usleep(500);
  }
  kill(pid, SIGKILL);
  waitpid(pid, status, 0);
  return false;
}

/* Is `code` what the specification says?  `finished`: the fault came when the victim had entered the last barrier. */
static bool is_expected(const fault *f, int code, const char *text, bool finished)
{
  bool creating = strstr(text, "creating communicator") != NULL;

  if (code == WEFT_OK) return finished || f->may_pass;
  switch (f->kind) {
  case HARMLESS: return false;
  case FATAL:
  case CUT: return (code == WEFT_FAILED_PRECONDITION && strstr(text, "is not connected")) || (creating && (code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED));
  case LATE: /* or it first calls on one that has given up and left meanwhile */
    return code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED || (code == WEFT_FAILED_PRECONDITION && strstr(text, "cannot be reached"));
  case GARBLED:
    return code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED || (code == WEFT_FAILED_PRECONDITION && (!strstr(text, "is not connected") || strstr(text, "cannot be reached")));
  }
  return false;
}

/* One case: fault `f` (NULL: none) at the victim's move `at`.  False if it did not strike. */
static bool run_case(const fault *f, unsigned long at, int64_t *began)
{
  static int number;
  char spec[64] = "";
  int status = 0, slots = shared->size - 1;
  static const fault none = {"stop@%lu", HARMLESS, 20000, true};

  if (!f) {
    f = &none;
    at = UINT32_MAX; /* decorated, so that moves are counted; never comes */
  }
  snprintf(spec, sizeof spec, f->spec, at);
  snprintf(shared->name, sizeof shared->name, "%.20s-%d-%d", transport, (int)getpid(), number++);
  shared->timeout_ns = f->timeout_ms * WEFT_NS_PER_MS;
  shared->before_end = shared->moves = shared->fired_at = 0;
  memset(shared->of, 0, sizeof shared->of);
  pid_t victim = start_victim(spec);
  for (int s = 0, r = 0; s < slots; s++, r++) {
    r += r == shared->victim;
    shared->rank_of_slot[s] = r;
    sem_post(&shared->go[s]);
  }
  int64_t struck_ns = 0;
  *began = weft_now_ns();
  if (f->kind == FATAL) { /* known from the moment of death on */
    siginfo_t info;
    while (waitid(P_PID, (id_t)victim, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
    struck_ns = weft_now_ns();
  }
  for (int s = 0; s < slots; s++)
    if (!wait_for(&shared->done[s], f->timeout_ms + 20000)) complain(spec, "hangs", shared->rank_of_slot[s]);
  if (!victim_ends(victim, &status)) complain(spec, "(the victim) hangs", shared->victim);
  bool killed = WIFSIGNALED(status), struck = killed || shared->fired_at;
  unsigned long fired_at = killed ? at : shared->fired_at;
  bool finished = !struck || (shared->before_end && fired_at > shared->before_end);
  if (killed && (f->kind != FATAL || WTERMSIG(status) != SIGKILL)) complain(spec, "(the victim) crashed", shared->victim);
  for (int r = 0; r < shared->size; r++) {
    const outcome *o = &shared->of[r];
    if (r == shared->victim && f->kind != HARMLESS) continue; /* it has ended: all that it can be asked for */
    if (!is_expected(f, o->code, o->text, finished)) complain(spec, "got", r);
    counts.ok += o->code == WEFT_OK;
    if (o->code == WEFT_OK || !struck) continue;
    int64_t took_ms = (o->at_ns - (struck_ns ? struck_ns : *began)) / WEFT_NS_PER_MS;
    bool creating = strstr(o->text, "creating communicator") != NULL;
    if (struck_ns && !creating && counts.known_count < (int)WEFT_COUNT(counts.known_ms)) counts.known_ms[counts.known_count++] = took_ms;
    if (struck_ns && !creating && took_ms > KNOWN_MS) complain(spec, "was told late", r);
    if (f->kind == LATE) {
      counts.slowest_late_ms = WEFT_MAX(counts.slowest_late_ms, took_ms);
      /* creation, two operations and a barrier have a deadline each; 1 s is allowed, and as much for this machine's other work */
      if (took_ms > 4 * f->timeout_ms + 2000) complain(spec, "was told late", r);
    }
  }
  counts.cases++;
  return struck;
}

/* ---- all cases ---- */

/* Every how many moves a fault strikes; 0: a short run. */
static unsigned stride(void)
{
  const char *text = getenv("WEFT_TEST_LONG");
  return text ? (unsigned)WEFT_MAX(atoi(text), 1) : 0;
}

static int64_t seconds(void)
{
  const char *text = getenv("WEFT_TEST_SECONDS");
  return text ? atoi(text) : 0;
}

static bool is_long(void) { return stride() || seconds(); }

/* Everything about the operation in `shared`. */
static void sweep(unsigned salt)
{
  int64_t began;

  run_case(NULL, 0, &began); /* works, and counts */
  unsigned long moves = shared->moves;
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) {
    const char *only = getenv("WEFT_TEST_ONLY");
    if (only && !strstr(faults[i].spec, only)) continue;
    if (shared->count == LARGE && strncmp(faults[i].spec, "corrupt", 7) == 0) continue; /* payloads carry no checksum */
    if (!stride()) { /* half of the faults, a quarter where a case takes longer */
      if ((salt + i) % (strcmp(transport, "fabric") == 0 ? 4 : 2)) continue;
      run_case(&faults[i], 1 + (salt * 7919u + (unsigned)i * 104729u) % moves, &began);
      continue;
    }
    for (unsigned long at = 1 + salt % stride(); run_case(&faults[i], at, &began) && at < 4 * moves; at += stride()) {}
  }
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static const weft_coll_kind kinds[] = {
  WEFT_BARRIER, WEFT_ALL_REDUCE, WEFT_REDUCE, WEFT_REDUCE_SCATTER, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_ALL_GATHER_V,
  WEFT_GATHER, WEFT_GATHER_V, WEFT_SCATTER, WEFT_SCATTER_V, WEFT_ALL_TO_ALL, WEFT_ALL_TO_ALL_V, WEFT_RAGGED_ALL_TO_ALL,
  WEFT_PERMUTE, WEFT_SEND,
};

typedef struct problem {
  int size, victim;
  weft_coll_kind kind;
  coll_algorithm algorithm;
  size_t count;
} problem;

enum { MOST_PROBLEMS = 4096 };

static int list_problems(problem *out)
{
  static const int sizes_short[] = {4}, sizes_long[] = {2, 3, 4, 5, 8};
  const int *sizes = is_long() ? sizes_long : sizes_short;
  int count = 0;

  for (size_t z = 0; z < (is_long() ? WEFT_COUNT(sizes_long) : WEFT_COUNT(sizes_short)); z++)
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
      for (int a = 1; a < COLL_ALGORITHM_COUNT; a++) {
        coll_problem p = {.kind = kinds[k], .size = sizes[z], .bytes = 4, .elem_bytes = 4};
        bool applies = kinds[k] == WEFT_SEND ? a == COLL_ALG_DIRECT : coll_algorithm_applies((coll_algorithm)a, &p);
        for (int large = 0; applies && large <= (kinds[k] != WEFT_BARRIER); large++)
          for (int victim = 0; victim < sizes[z]; victim++)
            if ((is_long() || victim == (a + large) % sizes[z]) && count < MOST_PROBLEMS)
              out[count++] = (problem){sizes[z], victim, kinds[k], (coll_algorithm)a, large ? LARGE : SMALL};
      }
  return count;
}

static void take_up(const problem *p, unsigned salt)
{
  shared->size = p->size;
  shared->victim = p->victim;
  shared->kind = p->kind;
  shared->algorithm = p->algorithm;
  shared->count = p->count;
  sweep(salt);
}

/* The problems whose number is `shard` modulo `shards`, or what chance draws for some seconds. */
static void run_shard(unsigned shard, unsigned shards)
{
  static problem problems[MOST_PROBLEMS];
  unsigned count = (unsigned)list_problems(problems);
  int64_t end_ns = weft_now_ns() + seconds() * WEFT_NS_PER_S;
  const char *seed = getenv("WEFT_TEST_SEED");

  for (unsigned i = shard; i < count && !seconds(); i += shards) take_up(&problems[i], i + 1);
  srand((seed ? (unsigned)atoi(seed) : (unsigned)time(NULL)) * shards + shard);
  while (weft_now_ns() < end_ns) {
    unsigned salt = (unsigned)rand();
    take_up(&problems[(unsigned)rand() % count], salt);
  }
}

static int supervise(const char *over, unsigned shard, unsigned shards)
{
  pid_t slots[MOST];
  int64_t began;

  transport = over;
  if (strcmp(over, "fabric") == 0) dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL); /* once for all that are forked */
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int s = 0; s < MOST - 1; s++) {
    sem_init(&shared->go[s], 1, 0);
    sem_init(&shared->done[s], 1, 0);
    slots[s] = start_slot(s);
  }
  shared->size = is_long() ? MOST : 4;
  shared->kind = WEFT_ALL_REDUCE;
  shared->algorithm = COLL_ALG_RING;
  shared->count = LARGE;
  for (int i = 0; i < 3; i++) run_case(NULL, 0, &began); /* what is allocated once */
  outcome before = shared->of[shared->size - 1];
  run_shard(shard, shards);
  shared->size = is_long() ? MOST : 4;
  shared->victim = 0;
  run_case(NULL, 0, &began);
  const outcome *after = &shared->of[shared->size - 1];
  for (int i = 0; i < 20 && after->descriptors != before.descriptors; i++) { /* a diagnosis may still hold some */
    usleep(50000);
    run_case(NULL, 0, &began);
  }
  if (after->descriptors != before.descriptors) {
    printf("# %d descriptors, before %d:%s\n", after->descriptors, before.descriptors, before.text);
    complain("end", "leaks descriptors", shared->size - 1);
  }
  qsort(counts.known_ms, (size_t)counts.known_count, sizeof *counts.known_ms, by_value);
  printf("# %s: %d cases, %ld -> %ld KiB, death known: median %lld ms, worst %lld ms; deadline of 250 ms: at most %lld ms\n", over,
         counts.cases, before.resident_kib, after->resident_kib,
         (long long)(counts.known_count ? counts.known_ms[counts.known_count / 2] : 0),
         (long long)(counts.known_count ? counts.known_ms[counts.known_count - 1] : 0), (long long)counts.slowest_late_ms);
  fflush(stdout);
  if (!getenv("WEFT_SANITIZED") && after->resident_kib > before.resident_kib + 4096) complain("end", "leaks memory", shared->size - 1);
  shared->size = 0;
  for (int s = 0; s < MOST - 1; s++) {
    sem_post(&shared->go[s]);
    waitpid(slots[s], NULL, 0);
  }
  return 0;
}

static void over(const char *which)
{
  enum { SHARDS = 4 };
  static const int cmocka_catches[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
  pid_t pids[SHARDS];
  int shm_before = count_entries("/dev/shm"), failed = 0, status;

  if (strcmp(which, "fabric") == 0 && getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  fflush(stdout);
  for (unsigned i = 0; i < SHARDS; i++) {
    if ((pids[i] = fork_child()) != 0) continue;
    for (size_t s = 0; s < WEFT_COUNT(cmocka_catches); s++) signal(cmocka_catches[s], SIG_DFL); /* a crash is a crash */
    _exit(supervise(which, i, SHARDS));
  }
  for (int i = 0; i < SHARDS; i++) {
    waitpid(pids[i], &status, 0);
    failed += status != 0;
  }
  T_EQ_INT(failed, 0);
  if (strcmp(which, "shm") == 0) T_EQ_INT(count_entries("/dev/shm"), shm_before); /* providers of libfabric leave theirs */
}

TEST(every_fault_at_every_step_over_shared_memory) { over("shm"); }
TEST(every_fault_at_every_step_over_libfabric) { over("fabric"); }

/* ---- a network that breaks between two nodes ---- */

enum { SIDES = 2, RANKS_A_SIDE = 2 };

typedef struct partition {
  sem_t wired[SIDES], first_done, broken[SIDES * RANKS_A_SIDE], failed, mended[SIDES * RANKS_A_SIDE];
  pid_t side[SIDES];
  outcome of[2][SIDES * RANKS_A_SIDE]; /* while it is broken; after */
} partition;

static partition *cut;

static weft_status *sum_on(const char *name, int rank, weft_comm **comm)
{
  weft_kv *kv;
  WEFT_TRY(weft_kv_file_new(directory, &kv));
  weft_comm_spec spec = {.kv = kv, .name = name, .size = SIDES * RANKS_A_SIDE, .ranks = &rank, .rank_count = 1,
                         .timeout_ns = WEFT_NS_PER_S, .deadline = weft_deadline_after_ms(20000)};
  float x = 1, y = 0;
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
  weft_coll_call call = {.deadline = weft_deadline_after_ms(20000)};
  weft_status *st = weft_comm_create(&spec, comm);
  weft_kv_destroy(kv);
  if (!st) st = weft_coll_run(*comm, &op, &call);
  if (!st && y != SIDES * RANKS_A_SIDE) st = WEFT_ERR(INTERNAL, "the sum is %f", (double)y);
  return st;
}

static void note(outcome *o, weft_status *st, int64_t began_ns)
{
  o->at_ns = weft_now_ns() - began_ns;
  o->code = weft_status_code(st);
  snprintf(o->text, sizeof o->text, "%s", weft_status_text(st, false));
  weft_status_free(st);
}

static void rank_of_partition(int rank)
{
  weft_comm *comm = NULL;
  weft_coll_op barrier = {.kind = WEFT_BARRIER};
  weft_status *st = sum_on("whole", rank, &comm);

  if (st) printf("# rank %d: %s\n", rank, weft_status_text(st, false));
  sem_post(&cut->first_done);
  wait_for(&cut->broken[rank], 30000);
  int64_t began_ns = weft_now_ns();
  note(&cut->of[0][rank], st ? st : weft_coll_run(comm, &barrier, NULL), began_ns);
  sem_post(&cut->failed);
  weft_comm_destroy(comm);
  wait_for(&cut->mended[rank], 30000);
  comm = NULL;
  began_ns = weft_now_ns();
  note(&cut->of[1][rank], sum_on("mended", rank, &comm), began_ns);
  weft_comm_destroy(comm);
  _exit(0);
}

/* One node: a network namespace with an end of a cable, and two ranks.  The first side pulls the plug. */
static int play_side(int side)
{
  pid_t ranks[RANKS_A_SIDE];
  char command[128];

  if (unshare(CLONE_NEWNET) != 0) return 77;
  if (side == 0) {
    wait_for(&cut->wired[1], 10000); /* the other namespace is there */
    snprintf(command, sizeof command, "ip link add weft0 type veth peer name weft1 netns %d 2>/dev/null", (int)cut->side[1]);
    if (system(command) != 0) return 77;
    int slow = system("tc qdisc add dev weft0 root netem delay 20ms 2>/dev/null"); /* where the kernel has it */
    (void)slow;
    sem_post(&cut->wired[0]);
  } else {
    sem_post(&cut->wired[1]);
    if (!wait_for(&cut->wired[0], 10000)) return 77;
  }
  if (system(side ? "ip link set lo up; ip addr add 10.77.0.2/24 dev weft1; ip link set weft1 up"
                 : "ip link set lo up; ip addr add 10.77.0.1/24 dev weft0; ip link set weft0 up") != 0) return 77;
  for (int i = 0; i < RANKS_A_SIDE; i++) {
    fflush(stdout);
    if ((ranks[i] = fork_child()) != 0) continue;
    setenv("WEFT_LOG", "coll:off", 0);
    rank_of_partition(side * RANKS_A_SIDE + i);
  }
  if (side == 0) {
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) wait_for(&cut->first_done, 30000);
    if (system("ip link set weft0 down") != 0) return 1;
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) sem_post(&cut->broken[r]);
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) wait_for(&cut->failed, 30000);
    if (system("ip link set weft0 up") != 0) return 1;
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) sem_post(&cut->mended[r]);
  }
  for (int i = 0; i < RANKS_A_SIDE; i++) waitpid(ranks[i], NULL, 0);
  return 0;
}

TEST(a_partition_ends_in_deadlines_and_the_next_communicator_works)
{
  int status, worst = 0;

  if (getenv("WEFT_TEST_NO_FABRIC") || geteuid() != 0) T_SKIP("needs libfabric, and root for network namespaces");
  cut = mmap(NULL, sizeof *cut, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  sem_t *all[] = {&cut->wired[0], &cut->wired[1], &cut->first_done, &cut->failed};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) sem_init(all[i], 1, 0);
  for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) {
    sem_init(&cut->broken[r], 1, 0);
    sem_init(&cut->mended[r], 1, 0);
  }
  fflush(stdout);
  for (int i = SIDES - 1; i >= 0; i--) { /* the first side needs the other's number */
    pid_t pid = fork_child();
    if (pid == 0) _exit(play_side(i));
    cut->side[i] = pid;
  }
  for (int i = 0; i < SIDES; i++) {
    waitpid(cut->side[i], &status, 0);
    worst = WEFT_MAX(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  if (worst == 77) T_SKIP("no network namespaces or veth pairs here");
  T_EQ_INT(worst, 0);
  for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) {
    const outcome *broken = &cut->of[0][r], *after = &cut->of[1][r];
    if (broken->code != WEFT_DEADLINE_EXCEEDED && broken->code != WEFT_ABORTED) fail_msg("rank %d, partitioned: %s", r, broken->text);
    T_TRUE(broken->at_ns < 4 * WEFT_NS_PER_S); /* 1 s, and the second that is allowed, and the machine's other work */
    if (after->code != WEFT_OK) fail_msg("rank %d, mended: %s", r, after->text);
  }
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(every_fault_at_every_step_over_shared_memory), UNIT(every_fault_at_every_step_over_libfabric),
    UNIT(a_partition_ends_in_deadlines_and_the_next_communicator_works),
  };
  char command[128];

  snprintf(directory, sizeof directory, "/tmp/weft-faults-XXXXXX");
  if (!mkdtemp(directory)) return 99;
  cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));
  int failed = cmocka_run_group_tests(units, NULL, NULL);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  return failed + (system(command) != 0);
}
