/* tests/collective/faults_test.c -- for every operation, algorithm and transport, at every step: a rank that is killed,
 * stopped, late, cut off, silent, or that sends garbage.  Every survivor must get the specified error in time, leak
 * nothing, and work in the next communicator.
 *
 * A shard is a supervisor with one process for each surviving rank; those live through all cases of the shard.  The
 * victim of a case is a process of its own with WEFT_COLLECTIVE_FAULTS set, so the next case has a restarted rank.  A
 * dry run counts the victim's moves; then fault by fault is struck at move 1, 2, ... up to the end.  By default a few
 * faults at one move of each (operation, algorithm, transport) are tried, four cases at once.
 *
 *   WEFT_TEST_LONG=1     all, with 2 to 8 ranks; i/n: every n-th move from the i-th on, so that n runs make one of all
 *   WEFT_TEST_SECONDS=n  draws from all of them for so long (by WEFT_TEST_SEED)
 *   WEFT_TEST_SHARDS=n   of these two: cases at once (24); most of a case is waiting
 *   WEFT_TEST_ONLY=kill  only the faults with that in their name
 *
 * With many more processes than cores a deadline may pass because nobody got a core.  So the long runs have longer
 * deadlines, and in all of them a case that ended late, or before the fault came, is played again while no other is;
 * only then it counts. Nothing else is excused.
 *
 * Cases that are others under another name are left out of them: see is_worth_it, first_move, next_move and is_tail.
 *
 * With ON_GPUS (tests/gpu/process_faults_test) the ranks are processes with an emulated GPU each, whose data moves by
 * NCCL: the host's moves are those by which ranks meet, and there are faults of NCCL besides. */
#include "test.h"

#ifdef ON_GPUS
#include "gpus.h"
#endif

#include "entries.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kv.h"
#include "collective/internal.h"
#include "collective/transport/stream.h"

enum { MOST = 8, FEW = 4, TEXT = 1500, SMALL = 37, LARGE = 60000, MOST_SHARDS = 64 };

/* What a rank reports about a case. */
typedef struct outcome {
  int code;
  int64_t began_ns, at_ns; /* of the call that failed; of the end */
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
  bool counts_descriptors; /* which takes longer than many a case */
  outcome of[MOST];      /* by rank */
  int rank_of_slot[MOST];
  /* moves of the victim when it had the communicator, and when it began the last barrier; 0: it did not */
  volatile unsigned long created, before_end;
  unsigned long moves, fired_at;     /* the victim's, if it was alive to report them */
  volatile int64_t struck_ns;        /* when the victim was seen dead or stopped */
  sem_t go[MOST], done[MOST], victim_ready;
} arena;

static arena *shared; /* of this shard */

enum { MOST_MS = 1000 };

/* What all shards add up to, in memory that they share. */
typedef struct board {
  atomic_uint next_problem;
  atomic_int cases, errors, again, failed;
  /* survivors by the time from the death to their error, and from their deadline to it */
  atomic_int known_ms[MOST_MS + 1], late_ms[MOST_MS + 1];
} board;

static board *total;
static char directory[64];
static const char *transport;

/* ---- a rank ---- */

#ifdef ON_GPUS
static weft_status *run_staged(weft_comm *comm, const weft_coll_op *op)
{
  gpu_operands staged;
  weft_coll_op even = *op;
  even.recv_counts = even.send_counts = NULL; /* NCCL moves blocks of one size */
  weft_coll_op on_device = gpus_stage(comm, &even, &staged);
  weft_status *st = weft_coll_run(comm, &on_device, NULL);

  gpus_unstage(&staged);
  return st;
}
#else
static weft_status *run_staged(weft_comm *comm, const weft_coll_op *op) { return weft_coll_run(comm, op, NULL); }
#endif

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
  if (op.kind != WEFT_SEND) return run_staged(comm, &op);
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
#ifdef ON_GPUS
  gpus_bring(&spec);
#endif
  st = weft_comm_create(&spec, comm);
  weft_kv_destroy(kv);
  if (st) return weft_status_note(st, __FILE__, __LINE__, "creating");
#ifndef ON_GPUS /* where the host only lets the ranks meet */
  (*comm)->group->forced_algorithm = (int)shared->algorithm;
#endif
  if (rank == shared->victim) shared->created = coll_fault_seen().moves;
  for (int i = 0; i < (shared->size <= FEW ? 2 : 1); i++) { /* again over connections that exist */
    shared->of[rank].began_ns = weft_now_ns();
    WEFT_TRY(run_once(*comm));
  }
  if (rank == shared->victim) shared->before_end = coll_fault_seen().moves;
  shared->of[rank].began_ns = weft_now_ns();
  return weft_coll_run(*comm, &barrier, NULL);
}

/* Is the socket one of libfabric's provider net? That provider loses the socket of a connection in about one of a
 * hundred faults, when its endpoint closes early. Weft's sockets listen, or have keepalive set. */
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

/* The process's resident memory: the heap's own counters are per arena. */
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

  o->began_ns = weft_now_ns();
  weft_status *st = take_part(rank, &comm);
  o->at_ns = weft_now_ns();
  o->code = weft_status_code(st);
  snprintf(o->text, sizeof o->text, "%s", weft_status_text(st, false));
  weft_status_free(st);
  weft_comm_destroy(comm);
  if (!shared->counts_descriptors) return;
  char listed[TEXT] = "";
  o->descriptors = list_descriptors(listed, sizeof listed);
  if (o->code == WEFT_OK) memcpy(o->text, listed, sizeof o->text);
  o->resident_kib = resident_kib();
}

/* With two nodes, the slots alternate between the nodes, and the victim is on the second. */
static int node_of(int rank, int victim) { return rank == victim ? 1 : (rank - (rank > victim)) % 2; }

static void settle(const char *faults, int node)
{
  if (strcmp(transport, "fabric") == 0) setenv("WEFT_COLLECTIVE_TRANSPORT", "fabric", 1);
  if (strcmp(transport, "nodes") == 0) setenv("WEFT_COLLECTIVE_NODE", node ? "second" : "first", 1);
  setenv("WEFT_COLLECTIVE_DIAGNOSE", "100ms", 1);
  setenv("WEFT_LOG", "coll:error", 0);
  setenv("WEFT_COLLECTIVE_FAULTS", faults, 1);
}

static pid_t fork_child(void)
{
  pid_t pid = fork();
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the child ends with the shard that forked it */
  return pid;
}

static pid_t start_slot(int slot)
{
  pid_t pid = fork_child();
  if (pid != 0) return pid;
  settle("", slot % 2);
  for (;;) {
    while (sem_wait(&shared->go[slot]) != 0) {}
    if (shared->size == 0) {
#ifdef ON_GPUS
      gpus_close();
#endif
      exit(0); /* so that a leak checker reports */
    }
    play(shared->rank_of_slot[slot]);
    sem_post(&shared->done[slot]);
  }
}

/* `faults` are of the host's moves, unless they are NCCL's or the driver's. */
static pid_t start_victim(const char *faults, const char *setting)
{
  pid_t pid = fork_child();
  if (pid != 0) return pid;
  settle(setting ? "" : faults, 1);
  if (setting) setenv(setting, faults, 1);
#ifdef ON_GPUS
  gpus(); /* not in the time that the deadlines count */
#endif
  sem_post(&shared->victim_ready);
  play(shared->victim);
  shared->moves = coll_fault_seen().moves;
  shared->fired_at = coll_fault_seen().fired_at;
  _exit(0);
}

/* ---- a case ---- */

typedef struct fault {
  const char *spec; /* of move %lu; and milliseconds; with `setting`, of the rank %lu */
  /* BROKEN: the victim's communicator fails at once */
  enum { HARMLESS, FATAL, CUT, LATE, GARBLED, BROKEN } kind;
  int timeout_ms, delay_ms;
  bool of_sends; /* strikes at the first move, from the given one on, that sends */
  bool may_pass; /* a connection that closes after the data, or a message that nobody reads: no harm */
  const char *setting; /* of the emulated NCCL or driver in the victim's process; NULL: a fault of the host's moves */
} fault;

/* A deadline that must pass is short; one that must not is long. */
static const fault faults[] = {
  {"kill@%lu", FATAL, 10000, 0, false, false, NULL},      {"stop@%lu", LATE, 250, 0, false, false, NULL},
  {"delay@%lu=%d", LATE, 250, 600, true, false, NULL},    {"delay@%lu=%d", HARMLESS, 20000, 15, true, true, NULL},
  {"disconnect@%lu", CUT, 10000, 0, false, true, NULL},   {"stall@%lu", LATE, 250, 0, true, false, NULL},
  {"drop@%lu", GARBLED, 250, 0, true, false, NULL},       {"corrupt@%lu", GARBLED, 500, 0, true, false, NULL},
  {"duplicate@%lu", GARBLED, 500, 0, true, true, NULL},
#ifdef ON_GPUS
  {"kill:%lu@1", FATAL, 10000, 0, false, false, "WEFT_EMU_NCCL"},
  {"kill:%lu@2", FATAL, 10000, 0, false, false, "WEFT_EMU_NCCL"},
  {"absent:%lu", LATE, 500, 0, false, false, "WEFT_EMU_NCCL"},
  {"silent:%lu@1", LATE, 500, 0, false, false, "WEFT_EMU_NCCL"},
  {"silent:%lu@2", LATE, 500, 0, false, false, "WEFT_EMU_NCCL"},
  {"async:%lu@1=6", BROKEN, 10000, 0, false, false, "WEFT_EMU_NCCL"},
  {"async:%lu@2=6", BROKEN, 10000, 0, false, false, "WEFT_EMU_NCCL"},
  {"ncclCommInitRankConfig:1=3", BROKEN, 10000, 0, false, false, "WEFT_EMU_FAULTS"},
  {"ncclCommInitRankConfig:1=delay:1500ms", LATE, 500, 0, false, false, "WEFT_EMU_FAULTS"},
#endif
};

/* ---- how much is tried ---- */

typedef struct extent {
  bool is_long;
  unsigned first, stride; /* moves that a fault strikes; stride 0: one */
  int64_t seconds;
  unsigned shards;
} extent;

static extent how_much(void)
{
  const char *text = getenv("WEFT_TEST_LONG"), *seconds = getenv("WEFT_TEST_SECONDS"),
             *shards = getenv("WEFT_TEST_SHARDS");
  extent e = {.is_long = text || seconds, .first = 1, .seconds = seconds ? atoi(seconds) : 0, .shards = 4};

  if (text && sscanf(text, "%u/%u", &e.first, &e.stride) < 2)
    e = (extent){.is_long = true, .first = 1, .stride = 1, .seconds = e.seconds};
  if (e.is_long) e.shards = shards ? (unsigned)atoi(shards) : 24;
  e.shards = WEFT_MIN(WEFT_MAX(e.shards, 1u), (unsigned)MOST_SHARDS);
  return e;
}

static extent extends; /* set once, in main */

/* Deadlines that must pass, with many more processes than cores. */
static int scaled(int ms) { return extends.is_long && ms < 1000 ? 3 * ms : ms; }

/* After the death of a peer; after a deadline; what this machine's other work may add to both. */
enum { KNOWN_MS = 100, PAST_DEADLINE_MS = 1000, SLACK_MS = 1900 };

/* Lets this case run alone; other cases wait. There are two locks: the first one keeps a stream of other cases from
 * delaying this one for ever. The system releases the locks of a process that ends. */
static void hold(int file, bool alone)
{
  struct flock door = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  struct flock room = {.l_type = alone ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};

  fcntl(file, F_SETLKW, &door);
  fcntl(file, F_SETLKW, &room);
  door.l_type = F_UNLCK;
  fcntl(file, F_SETLKW, &door);
}

static void release(int file)
{
  struct flock both = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 2};
  fcntl(file, F_SETLKW, &both);
}

static int gate = -1; /* of this shard */

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
           coll_algorithm_name(shared->algorithm), shared->count, transport, shared->size, shared->victim, spec,
           shared->name);
}

static void tell(const char *spec, const char *what, int rank)
{
  char text[300];
  const outcome *o = &shared->of[rank];

  describe(spec, text, sizeof text);
  printf("# %s: rank %d %s: %s %.1400s\n", text, rank, what, weft_code_name((weft_code)o->code), o->text);
  fflush(stdout);
  atomic_fetch_add(&total->failed, 1);
}

/* The shard cannot go on. */
static void complain(const char *spec, const char *what, int rank)
{
  tell(spec, what, rank);
  _exit(1);
}

/* False if it had to be killed. */
static bool victim_ends(pid_t pid, int *status)
{
  for (int waited_us = 0; waited_us < 120000000; waited_us += 500) {
    if (waitpid(pid, status, WNOHANG) == pid) return true;
    kill(pid, SIGCONT); /* it may stop itself (SIGSTOP) only now */
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
  case CUT:
    return (code == WEFT_FAILED_PRECONDITION && strstr(text, "is not connected")) ||
           (creating && (code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED));
  case LATE: /* or its first connection is to a rank that has given up and left */
    return code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED ||
           (code == WEFT_FAILED_PRECONDITION && strstr(text, "cannot be reached"));
  case GARBLED:
    return code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED ||
           (code == WEFT_FAILED_PRECONDITION &&
            (!strstr(text, "is not connected") || strstr(text, "cannot be reached")));
  case BROKEN: return code == WEFT_ABORTED;
  }
  return false;
}

/* How the victim ended. */
typedef struct strike {
  unsigned long at; /* 0: it lived on unharmed */
  bool finished;    /* the fault came when it had entered the last barrier, or not at all */
  int64_t death_ns; /* when it was seen dead, 0: it was not */
} strike;

static void spell(const fault *f, unsigned long at, char out[64])
{
  snprintf(out, 64, f->spec, at, f->delay_ms < 100 ? f->delay_ms : scaled(f->delay_ms));
}

static strike play_case(const fault *f, unsigned long at)
{
  static int number;
  char spec[64];
  int status = 0, slots = shared->size - 1;
  strike s = {0};

  if (f->setting) at = (unsigned long)shared->victim;
  spell(f, at, spec);
  snprintf(shared->name, sizeof shared->name, "%.20s-%d-%d", transport, (int)getpid(), number++);
  shared->timeout_ns = scaled(f->timeout_ms) * WEFT_NS_PER_MS;
  shared->created = shared->before_end = shared->moves = shared->fired_at = 0;
  memset(shared->of, 0, sizeof shared->of);
  pid_t victim = start_victim(spec, f->setting);
  if (!wait_for(&shared->victim_ready, 120000)) complain(spec, "(the victim) does not begin", shared->victim);
  for (int i = 0, r = 0; i < slots; i++, r++) {
    r += r == shared->victim;
    shared->rank_of_slot[i] = r;
    sem_post(&shared->go[i]);
  }
  if (f->kind == FATAL) { /* known from the moment of death on */
    siginfo_t info;
    while (waitid(P_PID, (id_t)victim, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
    s.death_ns = weft_now_ns();
  }
  for (int i = 0; i < slots; i++)
    if (!wait_for(&shared->done[i], f->timeout_ms + 120000)) complain(spec, "hangs", shared->rank_of_slot[i]);
  if (!victim_ends(victim, &status)) complain(spec, "(the victim) hangs", shared->victim);
  bool killed = WIFSIGNALED(status);
  if (killed ? f->kind != FATAL || WTERMSIG(status) != SIGKILL : WEXITSTATUS(status) != 0)
    complain(spec, "(the victim) crashed", shared->victim);
  if (!killed) s.death_ns = 0;
  s.at = killed ? at : shared->fired_at;
  if (f->setting) s.at = 1;
  s.finished = !s.at || (shared->before_end && s.at > shared->before_end);
  return s;
}

static void count_in(atomic_int by_ms[MOST_MS + 1], int64_t ms)
{
  atomic_fetch_add(&by_ms[WEFT_MIN(WEFT_MAX(ms, 0), MOST_MS)], 1);
}

/* Checks that each rank got the specified error in time. Returns NULL, or the fault with its rank in *out_rank.
 * *out_excused: the load of the machine may explain it. */
static const char *judge(const fault *f, const strike *s, int *out_rank, bool *out_excused)
{
  for (int r = 0; r < shared->size; r++) {
    const outcome *o = &shared->of[r];
    *out_rank = r;
    *out_excused = false;
    if (r == shared->victim && f->kind != HARMLESS) continue; /* it has ended, which is all that is required */
    bool gave_up = o->code == WEFT_DEADLINE_EXCEEDED || o->code == WEFT_ABORTED;
    if (f->kind == HARMLESS ? gave_up : f->kind >= LATE && !s->at && o->code != WEFT_OK) {
      *out_excused = true;
      return "failed before the fault came";
    }
    /* a rank that came late itself has not waited */
    *out_excused = f->kind == LATE && f->delay_ms && o->code == WEFT_OK;
    if (f->kind != GARBLED && strstr(o->text, "integrity")) return "accuses somebody on the way";
    if (!is_expected(f, o->code, o->text, s->finished)) return "got";
    if (o->code == WEFT_OK || !s->at) continue;
    int64_t known_ms = (o->at_ns - s->death_ns) / WEFT_NS_PER_MS;
    int64_t late_ms = (o->at_ns - o->began_ns - shared->timeout_ns) / WEFT_NS_PER_MS;
    *out_excused = true;
    if (s->death_ns && !strstr(o->text, "creating communicator")) {
      if (known_ms > KNOWN_MS + SLACK_MS) return "was told of a death late";
      count_in(total->known_ms, known_ms);
    }
    if (f->kind == LATE || f->kind == GARBLED) {
      if (late_ms > PAST_DEADLINE_MS + SLACK_MS) return "was told late of its deadline";
      count_in(total->late_ms, late_ms);
    }
  }
  return NULL;
}

/* Runs one case: fault `f` at the victim's move `at`. Returns the move at which the fault struck; 0: none. */
static unsigned long run_case(const fault *f, unsigned long at)
{
  enum { ATTEMPTS = 5 };
  const char *wrong;
  bool excused;
  int rank;

  for (int attempt = 0;; attempt++) {
    hold(gate, attempt > 0);
    strike s = play_case(f, at);
    release(gate);
    wrong = judge(f, &s, &rank, &excused);
    atomic_fetch_add(attempt ? &total->again : &total->cases, 1);
    if (!wrong || !excused || attempt == ATTEMPTS) {
      char spec[64];
      spell(f, at, spec);
      if (wrong) tell(spec, wrong, rank);
      for (int r = 0; r < shared->size; r++)
        if (shared->of[r].code != WEFT_OK && r != shared->victim) atomic_fetch_add(&total->errors, 1);
      return s.at;
    }
  }
}

/* Runs the case without a fault: the layer that injects faults only counts moves. */
static void run_without(void)
{
  static const fault none = {"stop@%lu", HARMLESS, 20000, 0, false, true, NULL};
  run_case(&none, UINT32_MAX);
}

/* ---- all cases ---- */

/* Did the fault strike in the last barrier, after its first move? Then the case equals one of the barrier's own cases,
 * which are all tried. */
static bool is_tail(unsigned long struck)
{
  return shared->before_end && struck > shared->before_end && shared->kind != WEFT_BARRIER;
}

/* Communicators of one size are all created in the same way, so faults during creation are tried with the barriers
 * only. */
static unsigned long first_move(unsigned salt)
{
  return 1 + (shared->kind == WEFT_BARRIER ? 0 : shared->created) + (salt + extends.first) % extends.stride;
}

/* A fault of sent pieces that was requested at a move that receives has struck at the next move that sends. That later
 * move need not be tried again. */
static unsigned long next_move(const fault *f, unsigned long at, unsigned long struck)
{
  return (f->of_sends ? WEFT_MAX(at, struck) : at) + extends.stride;
}

/* Everything about the operation in `shared`. */
static void sweep(unsigned salt)
{
  const char *only = getenv("WEFT_TEST_ONLY");

  run_without(); /* works, and counts */
  unsigned long moves = shared->moves, first = extends.stride ? first_move(salt) : 1, struck;
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) {
    const fault *f = &faults[i];
    if (only && !strstr(f->spec, only)) continue;
    if (f->setting) { /* of an operation that NCCL has */
      if (shared->kind != WEFT_BARRIER && (extends.stride || (salt + i) % 2 == 0)) run_case(f, 1);
      continue;
    }
    if (shared->count == LARGE && strncmp(f->spec, "corrupt", 7) == 0) continue; /* payloads carry no checksum */
    if (!extends.stride) {                                                       /* half of the faults */
      if ((salt + i) % 2 == 0) run_case(f, 1 + (salt * 7919u + (unsigned)i * 104729u) % moves);
      continue;
    }
    unsigned long at = first;
    while ((struck = run_case(f, at)) && at < 4 * moves && !is_tail(struck)) at = next_move(f, at, struck);
  }
}

#ifdef ON_GPUS
static const weft_coll_kind kinds[] = {WEFT_BARRIER,    WEFT_ALL_REDUCE, WEFT_REDUCE,  WEFT_REDUCE_SCATTER, WEFT_BROADCAST,
                                       WEFT_ALL_GATHER, WEFT_ALL_TO_ALL, WEFT_PERMUTE};
#else
static const weft_coll_kind kinds[] = {
  WEFT_BARRIER, WEFT_ALL_REDUCE, WEFT_REDUCE, WEFT_REDUCE_SCATTER, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_ALL_GATHER_V,
  WEFT_GATHER, WEFT_GATHER_V, WEFT_SCATTER, WEFT_SCATTER_V, WEFT_ALL_TO_ALL, WEFT_ALL_TO_ALL_V, WEFT_RAGGED_ALL_TO_ALL,
  WEFT_PERMUTE, WEFT_SEND,
};
#endif

typedef struct problem {
  int size, victim;
  weft_coll_kind kind;
  coll_algorithm algorithm;
  size_t count;
} problem;

enum { MOST_PROBLEMS = 4096 };

/* ---- problems that are others under another name ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

/* A rank's schedule as text: what it does, with which peer, and with how many bytes; or with the size class only. */
enum { EXACTLY, ABOUT, VIEWS };

/* False where the algorithm has no schedule, or, with two nodes, none that depends on the nodes: the other transports
 * try those. */
static bool schedules_of(const problem *p, uint64_t of[VIEWS][MOST])
{
  bool nodes = strcmp(transport, "nodes") == 0, applies = true;
  coll_topology topology = {0};
  uint64_t labels[MOST];
  bool uneven = p->kind == WEFT_ALL_GATHER_V || p->kind == WEFT_GATHER_V || p->kind == WEFT_SCATTER_V;
  int64_t prefix[MOST + 1], sizes[MOST], bytes = (int64_t)p->count * (int64_t)sizeof(float);
  coll_schedule schedule = {0};

  for (int r = 0; r <= p->size; r++) prefix[r] = r * bytes;
  for (int r = 0; r < p->size; r++) {
    sizes[r] = bytes;
    labels[r] = (uint64_t)node_of(r, p->victim);
  }
  if (nodes) T_OK(coll_topology_init(&topology, labels, p->size));
  for (int r = 0; r < p->size && applies; r++) {
    coll_problem one = {.kind = p->kind, .size = p->size, .rank = r, .root = 1 % p->size, .bytes = p->kind == WEFT_BARRIER ? 0 : bytes,
                        .elem_bytes = sizeof(float), .prefix = uneven ? prefix : NULL, .send_at = prefix, .send_bytes = sizes, .recv_at = prefix,
                        .recv_bytes = sizes, .source = (r + p->size - 1) % p->size, .target = (r + 1) % p->size};
    applies = !(nodes && coll_algorithm_applies(p->algorithm, &one));
    if (nodes) one.topology = &topology;
    applies = applies && coll_algorithm_applies(p->algorithm, &one);
    if (!applies) break;
    T_OK(coll_schedule_build(&one, p->algorithm, &schedule));
    of[EXACTLY][r] = of[ABOUT][r] = 0;
    for (size_t i = 0; i < schedule.count; i++) {
      const coll_step *s = &schedule.steps[i];
      of[ABOUT][r] = mix(mix(mix(of[ABOUT][r], s->kind), (uint64_t)ilogb((double)s->bytes)), s->ends_round);
      of[EXACTLY][r] = mix(mix(mix(of[EXACTLY][r], of[ABOUT][r]), (uint64_t)s->bytes), (uint64_t)s->peer);
    }
  }
  coll_schedule_fini(&schedule);
  coll_topology_fini(&topology);
  return applies;
}

/* Of ranks with equal schedules in a large communicator, the first and the last are tried: the rank number decides
 * which of two ranks connects to the other. */
static bool is_between(const uint64_t *of, int rank, int size)
{
  bool before = false, after = false;

  for (int r = 0; r < size; r++) {
    before |= r < rank && of[r] == of[rank];
    after |= r > rank && of[r] == of[rank];
  }
  return size > FEW && before && after;
}

/* Is victim `p->victim` of problem `p` to be tried? Not if the ranks have the schedules of a problem that has been
 * `seen`. */
static bool is_worth_it(const problem *p, uint64_t *seen, int *seen_count)
{
  uint64_t of[VIEWS][MOST], h = mix((uint64_t)p->size, (uint64_t)p->victim);

  if (p->kind == WEFT_SEND) return p->algorithm == COLL_ALG_DIRECT && strcmp(transport, "nodes") != 0;
  if (!schedules_of(p, of)) return false;
  if (!extends.is_long) return true;
  if (p->kind == WEFT_RAGGED_ALL_TO_ALL) h = mix(h, 1); /* it has steps that no schedule shows */
  for (int r = 0; r < p->size; r++) h = mix(h, of[EXACTLY][r]);
  for (int i = 0; i < *seen_count; i++)
    if (seen[i] == h) return false;
  seen[(*seen_count)++] = h;
  return p->kind == WEFT_BARRIER || !is_between(of[ABOUT], p->victim, p->size);
}

static problem problems[MOST_PROBLEMS];
static unsigned problem_count;

#ifdef ON_GPUS
static void list_problems(void)
{
  problem_count = 0;
  for (int size = 2; size <= FEW; size++)
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
      for (int large = 0; large <= (kinds[k] != WEFT_BARRIER); large++)
        for (int victim = 0; victim < size; victim++) {
          bool one_of_few = size == 2 + (int)k % (FEW - 1) && large == ((int)k % 2 == 1) &&
                            victim == ((int)k + large) % size;
          if (extends.is_long || one_of_few)
            problems[problem_count++] = (problem){size, victim, kinds[k], COLL_ALG_AUTO, large ? LARGE : SMALL};
        }
}
#else
static void list_problems(void)
{
  static const int sizes_short[] = {4}, sizes_long[] = {2, 3, 4, 5, 8};
  static uint64_t seen[MOST_PROBLEMS];
  const int *sizes = extends.is_long ? sizes_long : sizes_short;
  int seen_count = 0;

  problem_count = 0;
  for (size_t z = 0; z < (extends.is_long ? WEFT_COUNT(sizes_long) : WEFT_COUNT(sizes_short)); z++)
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
      for (int a = 1; a < COLL_ALGORITHM_COUNT; a++)
        for (int large = 0; large <= (kinds[k] != WEFT_BARRIER); large++)
          for (int victim = 0; victim < sizes[z]; victim++) {
            problem one = {sizes[z], victim, kinds[k], (coll_algorithm)a, large ? LARGE : SMALL};
            if (!extends.is_long && victim != (a + large) % sizes[z]) continue;
            if (is_worth_it(&one, seen, &seen_count) && problem_count < MOST_PROBLEMS) problems[problem_count++] = one;
          }
}
#endif

static void take_up(const problem *p, unsigned salt)
{
  shared->size = p->size;
  shared->victim = p->victim;
  shared->kind = p->kind;
  shared->algorithm = p->algorithm;
  shared->count = p->count;
  sweep(salt);
}

/* The last rank's descriptors and memory after a case without a fault. */
static outcome take_stock(void)
{
  shared->size = extends.is_long ? MOST : 4;
  shared->victim = 0;
  shared->kind = WEFT_ALL_REDUCE;
#ifdef ON_GPUS
  shared->size = FEW;
#endif
  shared->algorithm = COLL_ALG_RING;
  shared->count = LARGE;
  shared->counts_descriptors = true;
  run_without();
  shared->counts_descriptors = false;
  return shared->of[shared->size - 1];
}

static long half_kib; /* resident memory when half of the time of a run with WEFT_TEST_SECONDS was over */

/* Runs problems that no other shard has taken, or random ones for some seconds. */
static void run_shard(unsigned shard)
{
  unsigned i;
  int64_t end_ns = weft_now_ns() + extends.seconds * WEFT_NS_PER_S;
  const char *seed = getenv("WEFT_TEST_SEED");

  while (!extends.seconds && (i = atomic_fetch_add(&total->next_problem, 1)) < problem_count) {
    take_up(&problems[problem_count - 1 - i], problem_count - i); /* the longest first */
    if (extends.is_long && i % 50 == 49) printf("# problem %u of %u, %d cases\n", i + 1, problem_count, total->cases);
    fflush(stdout);
  }
  srand((seed ? (unsigned)atoi(seed) : (unsigned)time(NULL)) * MOST_SHARDS + shard);
  while (weft_now_ns() < end_ns) {
    unsigned salt = (unsigned)rand();
    take_up(&problems[(unsigned)rand() % problem_count], salt);
    if (half_kib == 0 && end_ns - weft_now_ns() < extends.seconds * WEFT_NS_PER_S / 2)
      half_kib = take_stock().resident_kib;
  }
}

/* Loads libfabric before the fork, once for all children: its providers read the kernel's symbols for a seventh of a
 * second. (PSM's provider also installs handlers of crash signals, which exit.) */
static void warm_libfabric(void)
{
  static void *info;
  void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const void *, void **) = NULL;

  if (library) *(void **)&getinfo = dlsym(library, "fi_getinfo");
  if (getinfo) getinfo(1 << 16 | 9, NULL, NULL, 0, NULL, &info);
}

static int supervise(const char *over, unsigned shard)
{
  static const int caught[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS, SIGABRT};
  pid_t slots[MOST];
  outcome before, after;
  int status;

  mallopt(M_ARENA_MAX, 1); /* else how much memory a case takes for good depends on which threads meet in malloc */
  if (strcmp(over, "shm") != 0) warm_libfabric();
  for (size_t s = 0; s < WEFT_COUNT(caught); s++)
    signal(caught[s], SIG_DFL); /* undoes the handlers of cmocka and PSM, so that a crash ends the process */
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char path[80];
  snprintf(path, sizeof path, "%s/gate", directory);
  gate = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  for (int s = 0; s < MOST - 1; s++) {
    sem_init(&shared->go[s], 1, 0);
    sem_init(&shared->done[s], 1, 0);
    slots[s] = start_slot(s);
  }
  sem_init(&shared->victim_ready, 1, 0);
  for (int i = 0; i < 3; i++) before = take_stock(); /* what is allocated once */
  run_shard(shard);
  after = take_stock();
  for (int i = 0; i < 20 && after.descriptors != before.descriptors; i++) { /* a diagnosis may still hold some */
    usleep(50000);
    after = take_stock();
  }
  if (after.descriptors != before.descriptors) {
    printf("# %d descriptors, before %d:%s\n", after.descriptors, before.descriptors, before.text);
    complain("end", "leaks descriptors", shared->size - 1);
  }
  if (extends.is_long) printf("# %s: %ld -> %ld -> %ld KiB\n", over, before.resident_kib, half_kib, after.resident_kib);
  fflush(stdout);
  /* The first faults take memory for good: for code that has not run before, and for heaps and stacks of threads; up to
   * 2.9 MiB with GPUs, and at most 0.3 MiB later.  (libfabric keeps some of each connection.) */
#ifdef ON_GPUS
  enum { FIRST_KIB = 5120, LATER_KIB = 2048 };
#else
  enum { FIRST_KIB = 5120, LATER_KIB = 5120 };
#endif
  long most_kib = half_kib ? half_kib + LATER_KIB : before.resident_kib + FIRST_KIB;
  if (!getenv("WEFT_SANITIZED") && after.resident_kib > most_kib) complain("end", "leaks memory", shared->size - 1);
  shared->size = 0;
  for (int s = 0; s < MOST - 1; s++) {
    sem_post(&shared->go[s]);
    waitpid(slots[s], &status, 0);
    if (status) complain("end", "ends badly: leaves something on its device, or breaks a rule of NCCL", 0);
  }
  return 0;
}

/* "median 1, 99 of 100 2, worst 7 ms". */
static const char *percentiles(const atomic_int by_ms[MOST_MS + 1], char out[80])
{
  int count = 0, seen = 0, at[3] = {0};

  for (int ms = 0; ms <= MOST_MS; ms++) count += by_ms[ms];
  for (int ms = 0; ms <= MOST_MS; ms++) {
    seen += by_ms[ms];
    if (2 * seen < count) at[0] = ms + 1;
    if ((int64_t)seen * 100 < (int64_t)count * 99) at[1] = ms + 1;
    if (by_ms[ms]) at[2] = ms;
  }
  snprintf(out, 80, "%d times, median %d, 99 of 100 %d, worst %d ms", count, at[0], at[1], at[2]);
  return out;
}

static void report(const char *which)
{
  char known[80], late[80];

  printf("# %s: %d cases, %d played again alone, %d errors told to survivors, %d failures\n", which, total->cases,
         total->again, total->errors, total->failed);
  printf("# %s: told of a death after it: %s; of a deadline after it: %s\n", which, percentiles(total->known_ms, known),
         percentiles(total->late_ms, late));
  fflush(stdout);
}

static void over(const char *which)
{
  pid_t pids[MOST_SHARDS];
  int shm_before = count_entries("/dev/shm", "weft"), failed = 0, status;

  if (strcmp(which, "shm") != 0 && getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  transport = which;
  list_problems();
  total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(stdout);
  for (unsigned i = 0; i < extends.shards; i++) {
    if ((pids[i] = fork_child()) != 0) continue;
    _exit(supervise(which, i));
  }
  for (unsigned i = 0; i < extends.shards; i++) {
    waitpid(pids[i], &status, 0);
    failed += status != 0;
  }
  report(which);
  T_EQ_INT(failed, 0);
  T_EQ_INT(total->failed, 0);
  T_TRUE(entries_are_gone("/dev/shm", "weft", shm_before));
  munmap(total, sizeof *total);
}

#ifdef ON_GPUS
TEST(every_fault_of_every_operation_between_processes_with_gpus) { over("shm"); }
#else
TEST(every_fault_at_every_step_over_shared_memory) { over("shm"); }
TEST(every_fault_at_every_step_over_libfabric) { over("fabric"); }
TEST(every_fault_at_every_step_between_two_nodes) { over("nodes"); } /* shared memory in each, libfabric between them */

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
                         .timeout_ns = WEFT_NS_PER_S, .deadline = weft_deadline_after_ms(60000)};
  float x = 1, y = 0;
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x, .recv = &y};
  weft_coll_call call = {.deadline = weft_deadline_after_ms(60000)};
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
  wait_for(&cut->broken[rank], 120000);
  int64_t began_ns = weft_now_ns();
  note(&cut->of[0][rank], st ? st : weft_coll_run(comm, &barrier, NULL), began_ns);
  sem_post(&cut->failed);
  weft_comm_destroy(comm);
  wait_for(&cut->mended[rank], 120000);
  comm = NULL;
  began_ns = weft_now_ns();
  note(&cut->of[1][rank], sum_on("mended", rank, &comm), began_ns);
  weft_comm_destroy(comm);
  _exit(0);
}

/* One node: a network namespace with one end of a virtual cable (veth), and two ranks. The first side takes the cable
 * down. */
static int play_side(int side)
{
  pid_t ranks[RANKS_A_SIDE];
  char command[128];

  if (unshare(CLONE_NEWNET) != 0) return 77;
  if (side == 0) {
    wait_for(&cut->wired[1], 120000); /* the other namespace is there */
    snprintf(command, sizeof command, "ip link add weft0 type veth peer name weft1 netns %d 2>/dev/null",
             (int)cut->side[1]);
    if (system(command) != 0) return 77;
    int slow = system("tc qdisc add dev weft0 root netem delay 20ms 2>/dev/null"); /* where the kernel has it */
    (void)slow;
    sem_post(&cut->wired[0]);
  } else {
    sem_post(&cut->wired[1]);
    if (!wait_for(&cut->wired[0], 120000)) return 77;
  }
  if (system(side ? "ip link set lo up; ip addr add 10.77.0.2/24 dev weft1; ip link set weft1 up"
                  : "ip link set lo up; ip addr add 10.77.0.1/24 dev weft0; ip link set weft0 up") != 0)
    return 77;
  for (int i = 0; i < RANKS_A_SIDE; i++) {
    fflush(stdout);
    if ((ranks[i] = fork_child()) != 0) continue;
    setenv("WEFT_LOG", "coll:error", 0);
    rank_of_partition(side * RANKS_A_SIDE + i);
  }
  if (side == 0) {
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) wait_for(&cut->first_done, 120000);
    if (system("ip link set weft0 down") != 0) return 1;
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) sem_post(&cut->broken[r]);
    for (int r = 0; r < SIDES * RANKS_A_SIDE; r++) wait_for(&cut->failed, 120000);
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
    if (broken->code != WEFT_DEADLINE_EXCEEDED && broken->code != WEFT_ABORTED)
      fail_msg("rank %d, partitioned: %s", r, broken->text);
    T_TRUE(broken->at_ns <
           /* 1 s of deadline, the second that is allowed, and some time for the machine's other work; well below a
            * minute */
           15 * WEFT_NS_PER_S);
    if (after->code != WEFT_OK) fail_msg("rank %d, mended: %s", r, after->text);
  }
}

#endif /* !ON_GPUS */

int main(void)
{
  const struct CMUnitTest units[] = {
#ifdef ON_GPUS
    UNIT(every_fault_of_every_operation_between_processes_with_gpus),
#else
    UNIT(every_fault_at_every_step_over_shared_memory), UNIT(every_fault_at_every_step_over_libfabric),
    UNIT(every_fault_at_every_step_between_two_nodes), UNIT(a_partition_ends_in_deadlines_and_the_next_communicator_works),
#endif
  };
  char command[128];

  extends = how_much();
  snprintf(directory, sizeof directory, "/tmp/weft-faults-XXXXXX");
  if (!mkdtemp(directory)) return 99;
  cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));
  int failed = cmocka_run_group_tests(units, NULL, NULL);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  return failed + (system(command) != 0);
}
