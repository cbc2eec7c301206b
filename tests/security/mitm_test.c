/* tests/security/mitm_test.c -- somebody between two hosts of a job, who sees and changes all that passes.
 *
 * Each run is a job of two processes whose TCP connections, the control connection and libfabric's, all go through this
 * program: `connect` below sends them here.  At one place of one connection it drops, repeats,
 * changes, reorders or splices bytes.  Each process then has right results, or an error; never a wrong
 * result, a crash or a wait beyond its deadline. */
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "sanitized.h"
#include "weft/collective.h"

enum { RANKS = 2, ROUNDS = 12, ELEMS = 700, SHORT_MS = 700, LONG_MS = 20000, LONGEST_MS = 60000, SEED = 20261122, MORE_KIB = 32 << 10 };

/* ---- the way: a connection's port here says where it wants to go ---- */

static struct way {
  uint16_t proxy; /* network byte order; 0: connections go straight */
  atomic_bool ends; /* rank 0 is about to end */
  uint16_t target[65536];
} *way;

__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *to, socklen_t length)
{
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, there;
  socklen_t size = sizeof own;

  if (way && way->proxy && to->sa_family == AF_INET && length >= sizeof there) {
    memcpy(&there, to, sizeof there);
    getsockname(fd, (struct sockaddr *)&own, &size);
    if (own.sin_port == 0) {
      own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
      setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){0},
                 sizeof(int)); /* libfabric asks for none before it connects */
      if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0) return -1;
      getsockname(fd, (struct sockaddr *)&own, &size);
    }
    way->target[ntohs(own.sin_port)] = there.sin_port;
    there.sin_port = way->proxy;
    return (int)syscall(SYS_connect, fd, &there, sizeof there);
  }
  return (int)syscall(SYS_connect, fd, to, length);
}

/* ---- the job ---- */

typedef enum outcome { RIGHT = 10, INTEGRITY, AUTHENTICATION, DIFFERENT, LOST, DEADLINE, WRONG, CANNOT } outcome;
static const char *const outcome_names[] = {"right", "integrity", "authentication", "settings differ", "connection lost", "deadline", "wrong", "cannot"};

static outcome outcome_of(weft_status *st, bool loud)
{
  const char *text = weft_status_text(st, false);
  outcome o = strstr(text, "integrity")                                                               ? INTEGRITY
              : strstr(text, "authentica")                                                            ? AUTHENTICATION
              : strstr(text, "ranks differ in WEFT_COLLECTIVE_TLS")                                   ? DIFFERENT
              : weft_status_code(st) == WEFT_DEADLINE_EXCEEDED || strstr(text, "passed its deadline") ? DEADLINE
                                                                                                      : LOST;

  if (loud) fprintf(stderr, "# %s\n", text);
  weft_status_free(st);
  return o;
}

typedef struct setup {
  bool payload;        /* WEFT_COLLECTIVE_INTEGRITY */
  const char *secret;  /* of the job, or NULL */
  int deadline_ms;     /* of each operation */
  const char *diagnose; /* WEFT_COLLECTIVE_DIAGNOSE of the processes; NULL: 1s */
  /* rank 0 ends before the others: leaves its communicator, or is killed */
  enum { ALL_STAY, FIRST_LEAVES, FIRST_DIES } first;
  bool tls; /* WEFT_COLLECTIVE_TLS */
} setup;

static void write_secret(const char *directory, int rank, const char *secret)
{
  char path[96];

  snprintf(path, sizeof path, "%s/secret%d", directory, rank);
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  if (fd < 0 || write(fd, secret, strlen(secret)) != (ssize_t)strlen(secret) || close(fd) != 0) _exit(CANNOT);
  setenv("WEFT_COORD_SECRET_FILE", path, 1);
}

static outcome play(const char *directory, int rank, const setup *how, bool loud)
{
  bool payload = how->payload;
  static float in[ELEMS], out[ELEMS];
  weft_kv *kv;
  weft_comm *comm;

  setenv("WEFT_COLLECTIVE_TRANSPORT", "fabric", 1);
  setenv("WEFT_COLLECTIVE_INTERFACE", "127.0.0.1", 1);
  setenv("WEFT_COLLECTIVE_INTEGRITY", payload ? "payload" : "headers", 1);
  setenv("WEFT_COLLECTIVE_TLS", how->tls ? "1" : "0", 1);
  setenv("WEFT_COLLECTIVE_DIAGNOSE", how->diagnose ? how->diagnose : "1s", 1);
  if (!loud) setenv("WEFT_LOG", "error", 1);
  if (how->secret) write_secret(directory, rank, how->secret);
  if (weft_kv_file_new(directory, &kv)) return CANNOT;
  weft_comm_spec spec = {.kv = kv, .name = "middle", .size = RANKS, .ranks = &rank, .rank_count = 1, .deadline = weft_deadline_after_ms(how->deadline_ms)};
  weft_status *st = weft_comm_create(&spec, &comm);
  if (st) return outcome_of(st, loud);
  for (int round = 0; round < ROUNDS + (how->first && rank > 0); round++) {
    int count = round % 3 ? 16 : ELEMS; /* of which headers cover a part only */
    if (!payload) count = WEFT_MIN(count, 200);
    for (int i = 0; i < count; i++) in[i] = (float)(rank * i + round);
    weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = (size_t)count, .send = in, .recv = out};
    st = weft_coll_run(comm, &op, &(weft_coll_call){.deadline = weft_deadline_after_ms(how->deadline_ms)});
    if (st) break;
    for (int i = 0; i < count; i++)
      if (out[i] != (float)(i + 2 * round)) return WRONG;
  }
  if (way && how->first && rank == 0) way->ends = true;
  if (rank == 0 && how->first == FIRST_DIES) raise(SIGKILL);
  weft_comm_destroy(comm);
  weft_kv_destroy(kv);
  return st ? outcome_of(st, loud) : RIGHT;
}

/* ---- the middle ---- */

typedef enum attack_kind { NONE, FLIP, DROP, REPEAT, SWAP, SPLICE, CUT, HOLD, KINDS, SEVER = KINDS, MUTE } attack_kind;
static const char *const attack_names[] = {"none", "flip", "drop", "repeat", "swap", "splice", "cut", "hold", "sever", "mute"};

typedef struct attack {
  attack_kind kind;
  int connection;    /* the connection's number, in the order in which connections were made; or ALL_DATA */
  int from;          /* 0: what the one who connected says; MUTE: both */
  int piece;         /* number of the piece of that direction that is struck */
  size_t place, bit; /* where in it, as a part of 65536 */
} attack;

/* Of ALL_DATA: all connections but the first, which is for control, and both
 * directions; their pieces count together. */
enum { ALL_DATA = -1, MOST_CONNECTIONS = 32, MOST_PIECE = 65536 };

typedef struct middle {
  int listening, count, fds[MOST_CONNECTIONS][2], pieces[MOST_CONNECTIONS][2];
  attack plan;
  bool struck, has_read; /* has_read: bytes of the ranks' arrays have passed as they are */
  int data_pieces; /* see ALL_DATA */
  char held[MOST_PIECE], last[MOST_PIECE]; /* of a swap; what another connection or direction said last */
  size_t held_bytes, last_bytes;
  long most_kib; /* memory of the largest process of the job */
} middle;

static void send_all(int fd, const char *data, size_t bytes)
{
  struct pollfd one = {.fd = fd, .events = POLLOUT};

  while (bytes > 0 && poll(&one, 1, 1000) > 0) {
    ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return;
    data += n > 0 ? n : 0;
    bytes -= n > 0 ? (size_t)n : 0;
  }
}

static void hang_up(middle *m, int c)
{
  for (int side = 0; side < 2; side++)
    if (m->fds[c][side] >= 0) close(m->fds[c][side]);
  m->fds[c][0] = m->fds[c][1] = -1;
}

/* A piece of the direction that is attacked, at the place that is. */
static void strike(middle *m, int c, int to, char *data, size_t bytes)
{
  const attack *a = &m->plan;
  size_t at = a->place * bytes / 65536;

  m->struck = true;
  switch (a->kind) {
  case FLIP: data[at] ^= (char)(1 << a->bit); break;
  case DROP:
  case MUTE:
  case HOLD: return; /* HOLD: here and from here on */
  case REPEAT: send_all(to, data, bytes); break;
  case SEVER: /* the first connection, between two frames; no data passes after this */
    if (m->fds[0][0] >= 0) hang_up(m, 0);
    return;
  case SWAP: memcpy(m->held, data, m->held_bytes = bytes); return;
  case SPLICE: send_all(to, m->last, m->last_bytes); break;
  case CUT:
    send_all(to, data, at);
    hang_up(m, c);
    return;
  default: break;
  }
  send_all(to, data, bytes);
}

/* Are there elements of rank 0's array of round 7 among these bytes? */
static bool has_elements(const char *data, size_t bytes)
{
  static const float elements[] = {7, 7, 7, 7};

  return memmem(data, bytes, elements, sizeof elements) != NULL;
}

static void pass_on(middle *m, int c, int side)
{
  static char data[MOST_PIECE];
  int to = m->fds[c][!side];
  ssize_t n = recv(m->fds[c][side], data, sizeof data, MSG_DONTWAIT);

  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    hang_up(m, c);
    return;
  }
  m->has_read |= has_elements(data, (size_t)n);
  int piece = m->pieces[c][side]++;
  bool there = c == m->plan.connection && (side == m->plan.from || m->plan.kind == MUTE);
  if (m->plan.connection == ALL_DATA && c > 0) {
    there = true;
    piece = m->data_pieces++;
  }
  bool now = m->plan.kind == MUTE
               ? way->ends
               : piece == m->plan.piece || ((m->plan.kind == HOLD || m->plan.kind == SEVER) && piece > m->plan.piece);
  if (there && now && m->plan.kind != NONE) {
    strike(m, c, to, data, (size_t)n);
    return;
  }
  send_all(to, data, (size_t)n);
  if (there && m->held_bytes) {
    send_all(to, m->held, m->held_bytes);
    m->held_bytes = 0;
  }
  if (!there) memcpy(m->last, data, m->last_bytes = (size_t)n);
}

static void join_ends(middle *m)
{
  struct sockaddr_in from, to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof from;
  int fd = accept4(m->listening, (struct sockaddr *)&from, &length, SOCK_CLOEXEC);

  if (fd < 0) return;
  to.sin_port = way->target[ntohs(from.sin_port)];
  int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (m->count == MOST_CONNECTIONS || syscall(SYS_connect, there, &to, sizeof to) != 0) {
    close(fd);
    close(there);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, 1, &(int){1}, sizeof(int)); /* TCP_NODELAY */
  setsockopt(there, IPPROTO_TCP, 1, &(int){1}, sizeof(int));
  m->fds[m->count][0] = fd;
  m->fds[m->count++][1] = there;
}

/* Until both processes have ended.  False: one of them hung. */
static bool be_between(middle *m, const pid_t *pids, outcome *outcomes)
{
  weft_deadline end = weft_deadline_after_ms(LONGEST_MS);
  int left = RANKS;

  for (int r = 0; r < RANKS; r++) outcomes[r] = 0;
  while (left > 0 && !weft_deadline_passed(end)) {
    struct pollfd fds[1 + 2 * MOST_CONNECTIONS] = {{.fd = m->listening, .events = POLLIN}};
    for (int c = 0; c < m->count; c++)
      for (int side = 0; side < 2; side++)
        fds[1 + 2 * c + side] = (struct pollfd){.fd = m->fds[c][side], .events = POLLIN};
    int known = m->count;
    if (poll(fds, (nfds_t)(1 + 2 * known), 5) > 0) {
      for (int i = 0; i < 2 * known; i++)
        if (fds[1 + i].revents && m->fds[i / 2][i % 2] >= 0) pass_on(m, i / 2, i % 2);
      if (fds[0].revents) join_ends(m);
    }
    for (int r = 0; r < RANKS; r++) {
      int status;
      struct rusage used;
      if (outcomes[r] || wait4(pids[r], &status, WNOHANG, &used) != pids[r]) continue;
      m->most_kib = WEFT_MAX(m->most_kib, used.ru_maxrss);
      outcomes[r] = WIFEXITED(status) ? (outcome)WEXITSTATUS(status) : WRONG;
      if (!WIFEXITED(status)) fprintf(stderr, "# rank %d ended by signal %d\n", r, WTERMSIG(status));
      left--;
    }
  }
  for (int r = 0; r < RANKS && left > 0; r++)
    if (!outcomes[r]) {
      kill(pids[r], SIGKILL);
      waitpid(pids[r], NULL, 0);
    }
  return left == 0;
}

/* jobs: those that ended right, those of which a rank named integrity or authentication, and the others. */
typedef struct tally {
  int runs, struck, outcomes[CANNOT + 1];
  int right, named, unnamed;
} tally;

static void count_job(tally *t, const outcome outcomes[RANKS], const char *what)
{
  bool right = true, named = false;

  for (int r = 0; r < RANKS; r++) {
    right &= outcomes[r] == RIGHT;
    named |= outcomes[r] == INTEGRITY || outcomes[r] == AUTHENTICATION;
  }
  t->right += right;
  t->named += named;
  t->unnamed += !right && !named;
  if (!right && !named)
    print_message("# no rank names integrity: %s: %s, %s\n", what, outcome_names[outcomes[0] - RIGHT],
                  outcome_names[outcomes[1] - RIGHT]);
}

/* Plays a job, with `m` between its processes (NULL: nobody).  False: a process hung. */
static bool run_job(middle *m, const setup how[RANKS], outcome *outcomes)
{
  char directory[] = "/tmp/weft-middle-XXXXXX", command[64];
  static middle nobody;
  pid_t pids[RANKS];

  nobody = (middle){.listening = -1};
  T_TRUE(mkdtemp(directory) != NULL);
  fflush(stdout);
  for (int r = 0; r < RANKS; r++)
    if ((pids[r] = fork()) == 0) _exit(play(directory, r, &how[r], getenv("WEFT_TEST_LOUD") != NULL));
  bool ended = be_between(m ? m : &nobody, pids, outcomes);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  T_EQ_INT(system(command), 0);
  return ended;
}

/* Stands between the processes of the jobs that follow. */
static middle *be_middle(attack plan)
{
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof own;
  static middle m;

  m = (middle){.plan = plan, .listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  T_TRUE(m.listening >= 0 && bind(m.listening, (struct sockaddr *)&own, sizeof own) == 0 &&
         listen(m.listening, 64) == 0);
  T_EQ_INT(getsockname(m.listening, (struct sockaddr *)&own, &length), 0);
  way->proxy = own.sin_port;
  return &m;
}

static void end_middle(middle *m)
{
  way->proxy = 0;
  close(m->listening);
  for (int c = 0; c < m->count; c++) hang_up(m, c);
}

static long quiet_kib, most_kib; /* of jobs that nobody attacks, and of all jobs */

static void check_memory(long kib, attack_kind kind, const char *what)
{
  if (kind == NONE) quiet_kib = WEFT_MAX(quiet_kib, kib);
  most_kib = WEFT_MAX(most_kib, kib);
  if (kib > quiet_kib + MORE_KIB)
    fail_msg("%s: a process takes %ld KiB, and %ld if nobody attacks", what, kib, quiet_kib);
}

/* One job with one attack.  Returns how many connections there were. */
static int run_one(attack plan, const setup *how, tally *t, int pieces[MOST_CONNECTIONS][2])
{
  int64_t began_ns = weft_now_ns();
  outcome outcomes[RANKS];
  char what[160];

  if (!quiet_kib && plan.kind != NONE)
    run_one((attack){.kind = NONE}, &(setup){true, NULL, LONG_MS}, &(tally){0}, NULL);
  middle *m = be_middle(plan);
  bool ended = run_job(m, (setup[RANKS]){*how, *how}, outcomes);
  end_middle(m);
  snprintf(what, sizeof what, "%s of piece %d of side %d of connection %d at %zu/65536, bit %zu, %s",
           attack_names[plan.kind], plan.piece, plan.from, plan.connection, plan.place, plan.bit,
           how->payload ? "payload" : "headers");
  if (!ended) fail_msg("%s: a process hung", what);
  check_memory(m->most_kib, plan.kind, what);
  t->runs++;
  t->struck += m->struck;
  for (int r = 0; r < RANKS; r++) {
    T_TRUE(outcomes[r] >= RIGHT && outcomes[r] <= CANNOT);
    const char *name = outcome_names[outcomes[r] - RIGHT];
    t->outcomes[outcomes[r]]++;
    if (outcomes[r] == WRONG || outcomes[r] == CANNOT) fail_msg("%s: rank %d ended %s", what, r, name);
    if (getenv("WEFT_TEST_LOUD"))
      fprintf(stderr, "# %s: rank %d ended %s after %lld ms\n", what, r, name,
              (long long)((weft_now_ns() - began_ns) / WEFT_NS_PER_MS));
  }
  count_job(t, outcomes, what);
  for (int r = 0; r < RANKS && !m->struck; r++)
    if (outcomes[r] == INTEGRITY || outcomes[r] == AUTHENTICATION)
      fail_msg("%s: nothing was changed, and rank %d says %s", what, r, outcome_names[outcomes[r] - RIGHT]);
  if (plan.kind == NONE)
    for (int r = 0; r < RANKS; r++) T_EQ_INT(outcomes[r], RIGHT);
  if (pieces) memcpy(pieces, m->pieces, sizeof m->pieces);
  return m->count;
}

static uint64_t drawn = SEED;

static uint64_t draw(uint64_t below)
{
  drawn ^= drawn << 13;
  drawn ^= drawn >> 7;
  drawn ^= drawn << 17;
  return drawn % below;
}

/* Loads libfabric's providers, half a second's work, for all the children that follow. */
static void load_libfabric(void)
{
  struct fi_info *info = NULL;

  if (fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, NULL, &info) == 0) fi_freeinfo(info);
}

static void open_way(void)
{
  if (way) return;
  way = mmap(NULL, sizeof *way, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  T_TRUE(way != MAP_FAILED);
  load_libfabric();
}

/* How many pieces pass over connections of data in a job that nobody disturbs. */
static int pieces_of_data(void)
{
  int pieces[MOST_CONNECTIONS][2], sum = 0;
  tally t = {0};
  int connections = run_one((attack){.kind = NONE}, &(setup){true, NULL, LONG_MS}, &t, pieces);

  for (int c = 1; c < connections; c++) sum += pieces[c][0] + pieces[c][1];
  return sum;
}

TEST(who_sits_between_two_hosts_reads_data_unless_it_is_encrypted)
{
  static const struct { bool payload, tls, is_read; } cases[] = {{false, false, true}, {true, false, false}, {false, true, false}};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    setup how = {.payload = cases[i].payload, .tls = cases[i].tls, .deadline_ms = LONG_MS};
    outcome outcomes[RANKS];
    middle *m = be_middle((attack){.kind = NONE});
    T_TRUE(run_job(m, (setup[RANKS]){how, how}, outcomes));
    end_middle(m);
    for (int r = 0; r < RANKS; r++) T_EQ_INT(outcomes[r], RIGHT);
    T_TRUE(m->count >= 2);
    T_EQ_INT(m->has_read, cases[i].is_read);
  }
}

/* From the middle of the operations on nothing comes through libfabric's connections.  The ranks wait until their
 * deadline has passed; then they compare what has left and what has come. */
TEST(what_is_held_back_of_the_data_is_missed)
{
  setup how = {.payload = true, .deadline_ms = 8000, .diagnose = "3s"};
  tally t = {0};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  int piece = pieces_of_data();
  do { /* in some runs the same bytes pass in fewer, larger pieces */
    t = (tally){0};
    piece = piece * 2 / 3;
    run_one((attack){.kind = HOLD, .connection = ALL_DATA, .piece = piece}, &how, &t, NULL);
  } while (!t.struck && piece > 1);
  T_EQ_INT(t.struck, 1);
  T_EQ_INT(t.outcomes[RIGHT], 0);
  T_TRUE(t.outcomes[INTEGRITY] >= 1); /* a rank cannot ask a peer that has given up already */
}

/* Each message of the handshake and of the greeting, and all that follows it in its direction, is held back. */
TEST(what_is_held_back_while_ranks_meet_is_missed)
{
  setup how = {.payload = true, .deadline_ms = 2000, .diagnose = "3s"};
  tally t = {0};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  for (int from = 0; from < 2; from++)
    for (int piece = 0; piece < 2; piece++) {
      t = (tally){0};
      run_one((attack){.kind = HOLD, .connection = 0, .from = from, .piece = piece}, &how, &t, NULL);
      T_EQ_INT(t.struck, 1);
      T_EQ_INT(t.named, 1);
    }
}

/* The control connection ends between two frames, as that of a process that has died; but its process is alive. */
TEST(a_connection_that_is_cut_between_the_living_is_no_death)
{
  setup how = {.payload = true, .deadline_ms = 20000, .diagnose = "3s"};
  tally t = {0};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  int piece = pieces_of_data();
  t = (tally){0};
  run_one((attack){.kind = SEVER, .connection = ALL_DATA, .piece = piece / 3}, &how, &t, NULL);
  T_EQ_INT(t.struck, 1);
  T_EQ_INT(t.named, 1);
  T_TRUE(t.outcomes[INTEGRITY] >= 1); /* a rank cannot ask a peer that has given up already */
}

/* Rank 0 ends, and rank 1 waits for one operation more. */
static outcome end_first(const setup *how, attack_kind kind)
{
  outcome outcomes[RANKS];
  middle *m = be_middle((attack){.kind = kind});

  way->ends = false;
  T_TRUE(run_job(m, (setup[RANKS]){*how, *how}, outcomes));
  end_middle(m);
  T_EQ_INT(outcomes[0], how->first == FIRST_DIES ? WRONG : RIGHT);
  T_TRUE(kind == NONE || m->struck);
  return outcomes[1];
}

/* What rank 0 says last on the control connection does not come, and then the connection ends.  Rank 0 is still there
 * to be asked.  A rank that was killed is never taken for this. */
TEST(a_farewell_that_is_removed_is_missed)
{
  setup how = {.payload = true, .deadline_ms = LONG_MS, .first = FIRST_LEAVES};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  T_EQ_INT(end_first(&how, NONE), LOST);
  T_EQ_INT(end_first(&how, MUTE), INTEGRITY);
  how.first = FIRST_DIES;
  T_EQ_INT(end_first(&how, NONE), LOST);
}

TEST(who_sits_between_two_hosts_changes_no_result)
{
  const char *wanted = getenv("WEFT_TEST_LONG");
  bool is_long = wanted && strcmp(wanted, "0") != 0;
  int64_t until_ns = weft_now_ns() + 25 * WEFT_NS_PER_S;
  int pieces[MOST_CONNECTIONS][2], count = !is_long ? 100 : atoi(wanted) > 1 ? atoi(wanted) : 1000;
  tally t = {0};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  open_way();
  int connections = run_one((attack){.kind = NONE}, &(setup){true, NULL, LONG_MS}, &t, pieces);
  print_message("# %d connections pass", connections);
  for (int c = 0; c < connections; c++) print_message(", %d and %d pieces", pieces[c][0], pieces[c][1]);
  print_message("\n");
  T_TRUE(connections >= 2); /* control, and libfabric's */
  for (int i = 0; i < count && (is_long || weft_now_ns() < until_ns); i++) {
    attack plan = {.kind = (attack_kind)(1 + draw(KINDS - 1)), .connection = (int)draw((uint64_t)connections), .from = (int)draw(2), .place = draw(65536), .bit = draw(8)};
    plan.piece = (int)draw((uint64_t)WEFT_MAX(pieces[plan.connection][plan.from], 1));
    run_one(plan, &(setup){draw(3) != 0, NULL, SHORT_MS}, &t, NULL);
  }
  print_message("# %d runs, %d struck; ranks ended", t.runs, t.struck);
  for (int o = RIGHT; o <= CANNOT; o++)
    print_message(" %s: %d%s", outcome_names[o - RIGHT], t.outcomes[o], o == CANNOT ? "\n" : ",");
  print_message("# jobs: right %d, integrity or authentication %d, neither %d\n", t.right, t.named, t.unnamed);
  print_message("# the largest process took %ld KiB; without attacks %ld KiB\n", most_kib, quiet_kib);
  T_TRUE(t.struck > t.runs / 3);
  T_TRUE(t.outcomes[INTEGRITY] + t.outcomes[AUTHENTICATION] > 0);
}

/* ---- processes that were started differently ---- */

static void disagree(setup first, setup second, outcome want)
{
  outcome outcomes[RANKS];

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  T_TRUE(run_job(NULL, (setup[RANKS]){first, second}, outcomes));
  /* a rank that waits for its peer to connect may see only its deadline */
  T_TRUE(outcomes[0] == want || outcomes[1] == want);
  for (int r = 0; r < RANKS; r++) T_TRUE(outcomes[r] != RIGHT && outcomes[r] != WRONG);
}

TEST(ranks_that_seal_differently_are_told_so)
{
  disagree((setup){true, "one", 5000}, (setup){false, "one", 5000}, DIFFERENT);
}
TEST(ranks_with_different_secrets_are_told_so)
{
  disagree((setup){false, "one", 4000}, (setup){false, "two", 4000}, AUTHENTICATION);
}
TEST(a_rank_without_the_secret_is_told_so)
{
  disagree((setup){false, "one", 4000}, (setup){false, NULL, 4000}, AUTHENTICATION);
}
TEST(ranks_with_one_secret_meet)
{
  outcome outcomes[RANKS];
  setup how = {true, "one", LONG_MS};

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  T_TRUE(run_job(NULL, (setup[RANKS]){how, how}, outcomes));
  for (int r = 0; r < RANKS; r++) T_EQ_INT(outcomes[r], RIGHT);
}

TEST_MAIN(UNIT(ranks_with_one_secret_meet), UNIT(ranks_that_seal_differently_are_told_so), UNIT(ranks_with_different_secrets_are_told_so),
          UNIT(a_rank_without_the_secret_is_told_so), UNIT(who_sits_between_two_hosts_reads_data_unless_it_is_encrypted),
          UNIT(what_is_held_back_of_the_data_is_missed), UNIT(what_is_held_back_while_ranks_meet_is_missed),
          UNIT(a_connection_that_is_cut_between_the_living_is_no_death), UNIT(a_farewell_that_is_removed_is_missed), UNIT(who_sits_between_two_hosts_changes_no_result))
