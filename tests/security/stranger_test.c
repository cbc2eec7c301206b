/* tests/security/stranger_test.c -- a *stranger*, a process without the job's secret, connects to the listeners of a
 * job's collectives. During the attacks the job runs all-reduces on a permanent communicator and on new ones. Their
 * results are right, no process's memory grows, and the stranger gets no answer but "authentication required".
 * WEFT_TEST_LONG=1: ten thousand attacks. */
#include "job.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "sanitized.h"

enum { SEED = 20261122 };

/* Of a process's memory. AddressSanitizer takes more for the same objects. */
static long most_growth_kib(void) { return (getenv("WEFT_SANITIZED") ? 64 : 32) << 10; }

static uint64_t drawn = SEED;

static uint64_t draw(uint64_t below)
{
  drawn ^= drawn << 13;
  drawn ^= drawn >> 7;
  drawn ^= drawn << 17;
  return drawn % below;
}

static int connect_to(const coll_address *a, bool local)
{
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(a->port)};
  int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

  memcpy(un.sun_path + 1, a->local_name, strlen(a->local_name));
  inet_pton(AF_INET, a->inet, &in.sin_addr);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a->local_name));
  bool ok = local ? connect(fd, (struct sockaddr *)&un, length) == 0
                  : connect(fd, (struct sockaddr *)&in, sizeof in) == 0;
  if (ok) return fd;
  close(fd);
  return -1;
}

static void say(int fd, const void *data, size_t bytes)
{
  if (send(fd, data, bytes, MSG_NOSIGNAL) < 0) return; /* the other side has closed the connection */
}

/* Reads until the connection closes, or until nothing has come for `ms`. */
static size_t hear(int fd, void *into, size_t most, int ms)
{
  struct pollfd one = {.fd = fd, .events = POLLIN};
  size_t got = 0;
  ssize_t n = 1;

  while (got < most && n > 0 && poll(&one, 1, ms) > 0)
    if ((n = recv(fd, (char *)into + got, most - got, MSG_DONTWAIT)) > 0) got += (size_t)n;
  return got;
}

/* The answers that a stranger may get: none, the refusal, or a challenge and then the refusal. */
static void check_answer(const char *answer, size_t bytes, bool knocked, const char *attack)
{
  coll_frame head = {COLL_FRAME_DENIED, sizeof COLL_DENIED_TEXT - 1};
  char refusal[sizeof head + sizeof COLL_DENIED_TEXT - 1];

  memcpy(refusal, &head, sizeof head);
  memcpy(refusal + sizeof head, COLL_DENIED_TEXT, sizeof COLL_DENIED_TEXT - 1);
  size_t challenge = knocked ? WEFT_MIN(bytes, sizeof(coll_challenge)) : 0;
  if (bytes > challenge &&
      (bytes - challenge != sizeof refusal || memcmp(answer + challenge, refusal, sizeof refusal) != 0))
    fail_msg("%s was told %zu bytes", attack, bytes);
}

/* ---- attacks ---- */

static uint8_t recorded[sizeof(coll_knock) + sizeof(coll_proof)]; /* bytes that a member has sent, recorded */

static size_t put_noise(uint8_t *at, size_t most)
{
  size_t bytes = draw(most) + 1;
  for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)draw(256);
  return bytes;
}

static coll_knock proper_knock(void)
{
  coll_handshake shake;
  coll_knock knock;

  coll_handshake_init(&shake, true, &(coll_key){{0}});
  knock = shake.knock;
  for (size_t i = 0; i < sizeof knock.random; i++) knock.random[i] = (uint8_t)draw(256);
  for (size_t i = 0; i < sizeof knock.share; i++) knock.share[i] = (uint8_t)draw(256);
  return knock;
}

static size_t put_frame(uint8_t *at, uint32_t type, const void *payload, size_t bytes)
{
  coll_frame frame = {type, (uint32_t)bytes};

  memcpy(at, &frame, sizeof frame);
  if (bytes) memcpy(at + sizeof frame, payload, bytes);
  return sizeof frame + bytes;
}

typedef enum attack_kind {
  NOISE, FRAME_OF_ANY_TYPE, HELLO, QUERY, FLIGHT, HALF_KNOCK, KNOCK_ONLY, KNOCK_AND_NOISE, KNOCK_AND_HELLO, REFLECTION, REPLAY, WRONG_KEY, NO_SHARE,
  NOTHING, KINDS,
} attack_kind;

/* Attacks over one connection, and checks the answer. */
static void attack(const job *j, attack_kind kind, bool local, const char *name)
{
  const coll_address *to = &j->addresses[draw((uint64_t)j->size)];
  uint8_t out[8192], in[4096];
  coll_knock knock = proper_knock();
  coll_hello hello = {.group_id = draw(UINT64_MAX), .src_incarnation = FIRST_INCARNATION, .src = 0, .dst = 1, .size = j->size, .transport = 1 + (int)draw(2), .address = *to};
  coll_query query = {.group_id = coll_hash_text("job/0", 0xcbf29ce484222325u + (uint64_t)j->size), .rank = (int)draw((uint64_t)j->size)};
  int fd = connect_to(to, local), patience_ms = draw(20) == 0 ? 20 : 1;
  size_t bytes = 0, heard = 0;
  bool knocks = kind >= KNOCK_ONLY && kind != NOTHING;

  if (fd < 0) return; /* its queue is long */
  switch (kind) {
  case NOISE: bytes = put_noise(out, sizeof out); break;
  case FRAME_OF_ANY_TYPE: {
    uint8_t payload[4096];
    bytes = put_frame(out, (uint32_t)draw(16), payload, put_noise(payload, sizeof payload));
    break;
  }
  case HELLO: bytes = put_frame(out, COLL_FRAME_HELLO, &hello, sizeof hello); break;
  case QUERY: bytes = put_frame(out, COLL_FRAME_QUERY, &query, sizeof query); break;
  case FLIGHT: bytes = put_frame(out, COLL_FRAME_FLIGHT, NULL, 0); break;
  case NOTHING: break;
  case REPLAY: memcpy(out, recorded, bytes = sizeof recorded); break;
  default: memcpy(out, &knock, bytes = kind == HALF_KNOCK ? 1 + draw(sizeof knock - 1) : sizeof knock);
  }
  if (kind == NO_SHARE) memset(out + offsetof(coll_knock, share), 0, sizeof knock.share); /* agrees with nobody */
  if (bytes) say(fd, out, bytes);
  if (knocks && kind != KNOCK_ONLY && kind != REPLAY) {
    heard = hear(fd, in, sizeof(coll_challenge), 500);
    coll_handshake shake;
    coll_session session;
    bytes = sizeof(coll_proof);
    if (kind == REFLECTION && heard == sizeof(coll_challenge)) memcpy(out, in + offsetof(coll_challenge, mac), bytes);
    else if (kind == KNOCK_AND_HELLO) bytes = put_frame(out, COLL_FRAME_HELLO, &hello, sizeof hello);
    else if (kind != WRONG_KEY) bytes = put_noise(out, 64);
    if (kind == WRONG_KEY) { /* has read the store: knows the door key, but not the secret */
      coll_key pair;
      T_OK(coll_door_pair_key(&to->door, &pair));
      coll_handshake_init(&shake, true, &pair);
      int other = connect_to(to, local);
      coll_shake got = COLL_SHAKE_WAITS;
      for (int ms = 0; other >= 0 && got == COLL_SHAKE_WAITS && ms < 500; ms++, usleep(1000))
        got = coll_handshake_go_on(&shake, other, !local, &session);
      if (got == COLL_SHAKE_DONE) fail_msg("a handshake without the secret ended well");
      if (other >= 0) close(other);
      memset(out, 0, bytes);
    }
    say(fd, out, bytes);
  }
  heard += hear(fd, in + heard, sizeof in - heard, patience_ms);
  check_answer((char *)in, heard, knocks, name);
  close(fd);
}

static void attack_many(const job *j, int count)
{
  char name[64];

  for (int i = 0; i < count; i++) {
    attack_kind kind = (attack_kind)draw(KINDS);
    bool local = draw(2);
    snprintf(name, sizeof name, "attack %d of kind %d on the %s socket", i, kind, local ? "local" : "TCP");
    attack(j, kind, local, name);
  }
}

/* Records the bytes that a member sends to a listener. The listener draws another random number for the next
 * connection. */
static int be_a_member(const job *j, const coll_address *to, bool with_secret, int told)
{
  coll_shake got = COLL_SHAKE_WAITS;
  coll_handshake shake;
  coll_session session;
  coll_key pair;

  if (with_secret) setenv("WEFT_COORD_SECRET_FILE", j->secret, 1);
  int fd = connect_to(to, false);
  if (fd < 0 || coll_door_pair_key(&to->door, &pair)) return 1;
  coll_handshake_init(&shake, true, &pair);
  for (int ms = 0; got == COLL_SHAKE_WAITS && ms < 5000; ms++, usleep(1000))
    got = coll_handshake_go_on(&shake, fd, true, &session);
  if (got != COLL_SHAKE_DONE) return 2;
  memcpy(recorded, &shake.knock, sizeof shake.knock);
  memcpy(recorded + sizeof shake.knock, &shake.proof, sizeof shake.proof);
  return write(told, recorded, sizeof recorded) != sizeof recorded;
}

static void record_a_handshake(const job *j, bool with_secret)
{
  int told[2], status = -1;

  T_EQ_INT(pipe(told), 0);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) _exit(be_a_member(j, &j->addresses[0], with_secret, told[1]));
  waitpid(pid, &status, 0);
  T_EQ_INT(status, 0);
  T_EQ_INT(read(told[0], recorded, sizeof recorded), sizeof recorded);
  close(told[0]);
  close(told[1]);
}

static void withstand(const char *transport, bool with_secret)
{
  const char *wanted = getenv("WEFT_TEST_LONG");
  int count = wanted && strcmp(wanted, "0") != 0 ? 5000 : 250;
  long quiet[MOST_PROCESSES];
  job j;

  drawn = SEED;
  job_start(&j, 3, transport, with_secret);
  usleep(500000);
  for (int r = 0; r < j.size; r++) quiet[r] = resident_kib(&j, r);
  record_a_handshake(&j, with_secret);
  if (!with_secret) /* in this case members trust the store, which the stranger cannot read */
    for (int r = 0; r < j.size; r++) j.addresses[r].door = (coll_key){{0}};
  attack_many(&j, count);
  for (int r = 0; r < j.size; r++) {
    long grown = resident_kib(&j, r) - quiet[r];
    print_message("# %s: rank %d grew by %ld KiB of %ld\n", transport, r, grown, quiet[r]);
    T_TRUE(grown < most_growth_kib());
  }
  job_end(&j);
}

TEST(strangers_do_not_disturb_a_job_in_shared_memory) { withstand("auto", true); }
TEST(strangers_do_not_disturb_a_job_over_the_network) { withstand("fabric", true); }
TEST(strangers_who_cannot_read_the_store_do_not_disturb_a_job_without_a_secret) { withstand("auto", false); }

/* ---- libfabric ---- */

/* Is it a socket of the process? */
static bool has_socket(pid_t pid, unsigned long inode)
{
  char path[64], want[32], link[64];
  bool found = false;

  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  snprintf(want, sizeof want, "socket:[%lu]", inode);
  DIR *all = opendir(path);
  for (struct dirent *e; all && !found && (e = readdir(all));) {
    ssize_t n = readlinkat(dirfd(all), e->d_name, link, sizeof link - 1);
    if (n > 0) link[n] = '\0';
    found = n > 0 && strcmp(link, want) == 0;
  }
  if (all) closedir(all);
  return found;
}

/* Ports that the process listens on besides `not_that`: libfabric's. */
static int find_ports(pid_t pid, uint16_t not_that, uint16_t *ports, int most)
{
  FILE *file = fopen("/proc/net/tcp", "re");
  unsigned port, state_of;
  unsigned long inode;
  char line[256];
  int count = 0;

  while (file && count < most && fgets(line, sizeof line, file)) {
    if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*s %*s %*s %*d %*d %lu", &port, &state_of, &inode) != 3 ||
        state_of != 10 || port == not_that)
      continue;
    if (has_socket(pid, inode)) ports[count++] = (uint16_t)port;
  }
  if (file) fclose(file);
  return count;
}

typedef struct injector {
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep;
} injector;

static bool injector_open(injector *x)
{
  struct fi_info *hints = fi_allocinfo();
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
  struct fi_av_attr av_attr = {.type = FI_AV_TABLE};

  *x = (injector){0};
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->fabric_attr->prov_name = strdup(FI_MAJOR(fi_version()) == 1 && FI_MINOR(fi_version()) < 18 ? "net" : "tcp");
  bool ok = fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &x->info) == 0 &&
            fi_fabric(x->info->fabric_attr, &x->fabric, NULL) == 0 &&
            fi_domain(x->fabric, x->info, &x->domain, NULL) == 0 &&
            fi_av_open(x->domain, &av_attr, &x->av, NULL) == 0 && fi_cq_open(x->domain, &cq_attr, &x->cq, NULL) == 0 &&
            fi_endpoint(x->domain, x->info, &x->ep, NULL) == 0 && fi_ep_bind(x->ep, &x->av->fid, 0) == 0 &&
            fi_ep_bind(x->ep, &x->cq->fid, FI_SEND | FI_RECV) == 0 && fi_enable(x->ep) == 0;
  fi_freeinfo(hints);
  return ok;
}

static void injector_close(injector *x)
{
  struct fid *order[] = {x->ep ? &x->ep->fid : NULL, x->cq ? &x->cq->fid : NULL, x->av ? &x->av->fid : NULL, x->domain ? &x->domain->fid : NULL,
                         x->fabric ? &x->fabric->fid : NULL};
  for (size_t i = 0; i < WEFT_COUNT(order); i++)
    if (order[i]) fi_close(order[i]);
  if (x->info) fi_freeinfo(x->info);
}

/* Sends messages like those of a rank, without its keys: with tags made of rank numbers, random tags, and no tag. */
static int inject(const job *j, int count)
{
  char message[128];
  injector x;
  int sent = 0;

  if (!injector_open(&x)) return -1;
  for (int r = 0; r < j->size; r++) {
    uint16_t ports[16];
    int found = find_ports(j->pids[r], j->addresses[r].port, ports, 16);
    for (int p = 0; p < found; p++) {
      struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ports[p]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
      fi_addr_t peer;
      if (fi_av_insert(x.av, &to, 1, &peer, 0, NULL) != 1) continue;
      for (int i = 0; i < count; i++) {
        uint64_t src = draw((uint64_t)j->size),
                 tag = draw(3) ? draw(4) << 60 | src << 30 | (uint64_t)r : draw(UINT64_MAX);
        put_noise((uint8_t *)message, sizeof message);
        ssize_t failed = -FI_EAGAIN;
        struct fi_cq_tagged_entry entry;
        for (int tries = 0; failed == -FI_EAGAIN && tries < 100; tries++, usleep(200)) {
          failed = draw(2) ? fi_tinject(x.ep, message, 1 + draw(sizeof message), peer, tag)
                           : fi_tinjectdata(x.ep, message, 1 + draw(sizeof message), draw(UINT64_MAX), peer, tag);
          if (fi_cq_read(x.cq, &entry, 1) == -FI_EAVAIL) {
            struct fi_cq_err_entry error = {0};
            fi_cq_readerr(x.cq, &error, 0);
          }
        }
        sent += failed == 0;
      }
    }
  }
  injector_close(&x);
  return sent;
}

TEST(forged_messages_to_libfabric_endpoints_match_nothing)
{
  job j;
  int sent = 0;

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  drawn = SEED + 1;
  job_start(&j, 2, "fabric", true);
  usleep(300000);
  long quiet = resident_kib(&j, 0);
  for (int turn = 0; turn < 10; turn++) sent += inject(&j, 10);
  print_message("# %d forged messages went out\n", sent);
  T_TRUE(sent > 0);
  T_TRUE(resident_kib(&j, 0) - quiet < most_growth_kib());
  job_end(&j);
}

/* ---- floods ---- */

TEST(members_get_in_past_ten_thousand_idle_connections)
{
  enum { IDLE = 10000 };
  struct rlimit limit;
  int *fds = calloc(IDLE, sizeof *fds), open_ones = 0;
  coll_knock knock = proper_knock();
  long quiet;
  job j;

  T_TRUE(fds != NULL);
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  job_start(&j, 2, "fabric", true); /* new communicators all the time, over TCP */
  setrlimit(RLIMIT_NOFILE, &limit);
  usleep(300000);
  quiet = resident_kib(&j, 0);
  int most = (int)WEFT_MIN((rlim_t)IDLE, limit.rlim_cur - 64);
  for (int i = 0; i < most; i++) {
    fds[i] = connect_to(&j.addresses[i % 2], i % 16 == 1);
    open_ones += fds[i] >= 0;
    if (fds[i] >= 0 && i % 3)
      say(fds[i], &knock, i % 3 == 1 ? sizeof knock : 20); /* half-open ones and slow senders among them */
  }
  print_message("# %d connections were made\n", open_ones);
  T_TRUE(open_ones > most / 2);
  long grown = resident_kib(&j, 0) - quiet;
  T_TRUE(grown < most_growth_kib());
  usleep(500000);
  job_end(&j);
  for (int i = 0; i < most; i++)
    if (fds[i] >= 0) close(fds[i]);
  free(fds);
}

/* libfabric accepts connections to its endpoints by itself; Weft cannot refuse them. */
TEST(a_flood_of_libfabrics_own_port_does_not_disturb_a_job)
{
  const char *wanted = getenv("WEFT_TEST_LONG");
  int most = wanted && strcmp(wanted, "0") != 0 ? 3000 : 600, open_ones = 0;
  uint8_t noise[256];
  struct rlimit limit;
  uint16_t ports[16];
  job j;

  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  drawn = SEED + 2;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  job_start(&j, 2, "fabric", true);
  setrlimit(RLIMIT_NOFILE, &limit);
  usleep(300000);
  long quiet = resident_kib(&j, 0);
  int found = find_ports(j.pids[0], j.addresses[0].port, ports, 16), *fds = calloc((size_t)most, sizeof *fds);
  T_TRUE(found > 0 && fds);
  /* some of the short-lived communicators have been destroyed: the first one is permanent */
  for (int i = 0; i < most; i++) {
    coll_address to = j.addresses[0];
    to.port = ports[i % found];
    fds[i] = connect_to(&to, false);
    open_ones += fds[i] >= 0;
    if (fds[i] >= 0 && i % 3) say(fds[i], noise, put_noise(noise, i % 3 == 1 ? 8 : sizeof noise));
    if (i % 7 == 0 && fds[i] >= 0) { /* some close the connection with a reset */
      setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
      close(fds[i]);
      fds[i] = -1;
    }
  }
  usleep(500000);
  long grown = resident_kib(&j, 0) - quiet;
  print_message("# %d connections to %d ports of libfabric; rank 0 grew by %ld KiB\n", open_ones, found, grown);
  T_TRUE(open_ones > 0);
  T_TRUE(grown < most_growth_kib());
  job_end(&j);
  for (int i = 0; i < most; i++)
    if (fds[i] >= 0) close(fds[i]);
  free(fds);
}

/* ---- another user of the machine ---- */

/* This process has read the store and even the secret; it is refused because the kernel reports its user. */
static int be_somebody_else(const coll_address *to, const coll_key *pair)
{
  coll_handshake shake;
  coll_session session;
  coll_shake got = COLL_SHAKE_WAITS;

  if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
  int fd = connect_to(to, true);
  if (fd < 0) return 0;
  coll_handshake_init(&shake, true, pair);
  for (int ms = 0; got == COLL_SHAKE_WAITS && ms < 5000; ms++, usleep(1000))
    got = coll_handshake_go_on(&shake, fd, false, &session);
  return got == COLL_SHAKE_DENIED || got == COLL_SHAKE_ENDED ? 0 : 1;
}

TEST(another_user_of_the_machine_does_not_get_in)
{
  int status = -1;
  coll_key pair;
  job j;

  if (geteuid() != 0) T_SKIP("needs root, to become somebody else");
  job_start(&j, 2, "auto", false);
  T_OK(coll_door_pair_key(&j.addresses[0].door, &pair));
  for (int i = 0; i < 20; i++) {
    pid_t pid = fork();
    if (pid == 0) _exit(be_somebody_else(&j.addresses[i % 2], &pair));
    waitpid(pid, &status, 0);
    T_EQ_INT(status, 0);
  }
  job_end(&j);
}

/* ---- who belongs to the job ---- */

TEST(who_knows_store_and_secret_may_ask_for_the_recorder_and_who_lacks_the_secret_may_not)
{
  char *text = NULL;
  size_t length;
  job j;

  job_start(&j, 2, "auto", true);
  FILE *out = open_memstream(&text, &length);
  T_CODE(coll_flight_ask(&j.addresses[0], sizeof j.addresses[0], weft_deadline_after_ms(5000), out),
         WEFT_UNAUTHENTICATED);
  fflush(out);
  T_EQ_INT(length, 0);
  fclose(out);
  free(text);
  fflush(stdout);
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) { /* a process that was started with the secret */
    setenv("WEFT_COORD_SECRET_FILE", j.secret, 1);
    out = fopen("/dev/null", "w");
    _exit(weft_status_code(coll_flight_ask(&j.addresses[0], sizeof j.addresses[0], weft_deadline_after_ms(5000), out)));
  }
  waitpid(pid, &status, 0);
  T_EQ_INT(status, 0);
  job_end(&j);
}

TEST_MAIN(UNIT(strangers_do_not_disturb_a_job_in_shared_memory), UNIT(strangers_do_not_disturb_a_job_over_the_network),
          UNIT(strangers_who_cannot_read_the_store_do_not_disturb_a_job_without_a_secret), UNIT(forged_messages_to_libfabric_endpoints_match_nothing),
          UNIT(members_get_in_past_ten_thousand_idle_connections), UNIT(a_flood_of_libfabrics_own_port_does_not_disturb_a_job),
          UNIT(another_user_of_the_machine_does_not_get_in),
          UNIT(who_knows_store_and_secret_may_ask_for_the_recorder_and_who_lacks_the_secret_may_not))
