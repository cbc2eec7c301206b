/* collective/listener.c -- sockets: listening, dialling, and connections that have not become links yet.
 *
 * Who connects is an entrant until it has proven that it belongs to the job (door.h).  Entrants are few, cost little and
 * stay for seconds: where there are too many the oldest goes, after a last look at what it has sent.  Then the connection is
 * held, until it is known what it wants and the communicator that it wants is there. */
#include <config.h>

#include "collective/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/flight.h"
#include "collective/link.h"

enum { MOST_HELD = 1024, GRAVES = 256, LISTEN_TRIES = 64 };
enum { MOST_ENTRANTS = 256, MOST_OF_STRANGERS_ADDRESS = 32, MOST_AT_ONCE = 128, KNOWN_ADDRESSES = 64 };
#define HOLD_NS (120 * WEFT_NS_PER_S)
#define ENTRANCE_NS (5 * WEFT_NS_PER_S)
#define COMPLAIN_NS (60 * WEFT_NS_PER_S)

/* A connection that has not proven itself.  The progress thread's, as all below. */
typedef struct entrant {
  int fd; /* -1: free */
  bool local;
  int64_t since_ns;
  struct in6_addr from; /* of a TCP connection */
  coll_handshake shake;
} entrant;

/* A connection of a member of the job that has not said yet what it wants, or whose communicator is not made yet. */
typedef struct held {
  int fd; /* -1: taken */
  bool has_hello;
  int64_t since_ns;
  coll_session session;
  coll_frame_reader reader;
} held;

static struct {
  weft_mutex mu; /* taken with no group's lock held */
  bool started WEFT_GUARDED_BY(mu);
  atomic_int local_fd, inet_fd;
  coll_address own WEFT_GUARDED_BY(mu);
  coll_key pair; /* set before the sockets are watched */
  entrant entrants[MOST_ENTRANTS];
  held *held[MOST_HELD];
  atomic_int entrant_count, held_count;
  struct in6_addr known[KNOWN_ADDRESSES]; /* where members have come from */
  size_t known_count;
  unsigned long turned_away;
  int64_t complained_ns;
} listener = {.mu = WEFT_MUTEX_INITIALIZER, .local_fd = -1, .inet_fd = -1};

static struct {
  weft_mutex mu; /* innermost */
  struct { uint64_t group_id, posted; char reason[256]; } of[GRAVES] WEFT_GUARDED_BY(mu);
  unsigned next WEFT_GUARDED_BY(mu);
} graves = {.mu = WEFT_MUTEX_INITIALIZER};

/* ---- dialling ---- */

static socklen_t local_name(const char *name, struct sockaddr_un *out)
{
  size_t length = strnlen(name, sizeof((coll_address){0}).local_name);

  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(out->sun_path + 1, name, length); /* a leading NUL: the abstract name space, no file */
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static bool inet_name(const char *text, uint16_t port, struct sockaddr_storage *out, socklen_t *out_length)
{
  struct sockaddr_in *v4 = (struct sockaddr_in *)out;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

  *out = (struct sockaddr_storage){0};
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *out_length = sizeof *v4;
    return true;
  }
  if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  *out_length = sizeof *v6;
  return true;
}

/* A connection that carries control must not outlive its peer's host for long. */
static void tune(int fd)
{
  int one = 1, idle_s = 5, interval_s = 2, count = 5, unacked_ms = 20000;

  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof unacked_ms);
}

weft_status *coll_dial(const coll_address *to, bool local, int *out_fd)
{
  struct sockaddr_storage name;
  socklen_t length;

  *out_fd = -1;
  errno = EADDRNOTAVAIL;
  if (local)
    length = local_name(to->local_name, (struct sockaddr_un *)&name);
  else if (!inet_name(to->inet, to->port, &name, &length))
    return WEFT_ERR(FAILED_PRECONDITION, "host %.64s published no network address", to->host);
  int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return WEFT_ERR(RESOURCE_EXHAUSTED, "socket: %s", strerror(errno));
  if (!local) tune(fd);
  if (connect(fd, (struct sockaddr *)&name, length) != 0 && errno != EINPROGRESS) {
    int error = errno;
    weft_status *st = WEFT_ERR(UNAVAILABLE, "connecting to host %.64s, pid %d: %s", to->host, to->pid, strerror(error));
    close(fd);
    errno = error;
    return st;
  }
  *out_fd = fd;
  return NULL;
}

/* ---- listening ---- */

static weft_status *listen_local(coll_address *own)
{
  struct sockaddr_un name;
  uint64_t random = 0;

  if (getrandom(&random, sizeof random, 0) < 0) random = (uint64_t)weft_now_ns();
  snprintf(own->local_name, sizeof own->local_name, "weft-%d-%016llx", (int)getpid(), (unsigned long long)random);
  listener.local_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener.local_fd < 0 || bind(listener.local_fd, (struct sockaddr *)&name, local_name(own->local_name, &name)) != 0 ||
      listen(listener.local_fd, SOMAXCONN) != 0)
    return WEFT_ERR(UNAVAILABLE, "listening on a local socket: %s", strerror(errno));
  return NULL;
}

/* The numeric address of an interface (by name or address), or of the first that reaches further than this host. */
static void find_inet(const char *wanted, char *out, size_t size)
{
  struct ifaddrs *all = NULL;
  int best = 0; /* 1 loopback, 2 IPv6, 3 IPv4, 4 wanted */

  snprintf(out, size, "127.0.0.1");
  if (getifaddrs(&all) != 0) return;
  for (struct ifaddrs *i = all; i; i = i->ifa_next) {
    char text[INET6_ADDRSTRLEN] = "";
    int rank = 0;
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    if (i->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, text, sizeof text);
      rank = 3;
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const struct in6_addr *a = &((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(a)) continue;
      inet_ntop(AF_INET6, a, text, sizeof text);
      rank = 2;
    } else {
      continue;
    }
    if (i->ifa_flags & IFF_LOOPBACK) rank = 1;
    if (*wanted && (strcmp(wanted, i->ifa_name) == 0 || strcmp(wanted, text) == 0)) rank = 4;
    if (rank <= best) continue;
    best = rank;
    snprintf(out, size, "%s", text);
  }
  freeifaddrs(all);
}

/* -1: errno says why. */
static int listen_at(const struct sockaddr_storage *name, socklen_t length, int reuse)
{
  int fd = socket(name->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), saved;

  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0 &&
      bind(fd, (const struct sockaddr *)name, length) == 0 && listen(fd, SOMAXCONN) == 0)
    return fd;
  saved = errno;
  if (fd >= 0) close(fd);
  errno = saved;
  return -1;
}

/* A port of those that the system hands out. */
static uint16_t any_port(void)
{
  unsigned first = 32768, last = 60999, drawn;
  FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

  if (file && (fscanf(file, "%u %u", &first, &last) != 2 || first > last || last > UINT16_MAX)) first = 32768, last = 60999;
  if (file) fclose(file);
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) drawn = (unsigned)weft_now_ns();
  return (uint16_t)(first + drawn % (last - first + 1));
}

static weft_status *listen_inet(coll_address *own)
{
  struct sockaddr_storage name;
  socklen_t length;
  int fd = -1;

  find_inet(coll_settings_get()->interface, own->inet, sizeof own->inet);
  if (!inet_name(own->inet, 0, &name, &length)) return WEFT_ERR(UNAVAILABLE, "no network address");
  /* Where connections that ended a minute ago hold all ports, theirs are shared: with SO_REUSEADDR, for a port that we name (the
   * system hands out none of those).  It may be another's: so not at first, and more than once. */
  for (int tries = 0; fd < 0 && tries < LISTEN_TRIES; tries++) {
    if (tries > 0 && !inet_name(own->inet, any_port(), &name, &length)) break;
    fd = listen_at(&name, length, tries > 0);
  }
  if (fd < 0) return WEFT_ERR(UNAVAILABLE, "listening on %s: %s", own->inet, strerror(errno));
  listener.inet_fd = fd;
  if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) return WEFT_ERR(UNAVAILABLE, "listening on %s: %s", own->inet, strerror(errno));
  own->port = ntohs(name.ss_family == AF_INET ? ((struct sockaddr_in *)&name)->sin_port : ((struct sockaddr_in6 *)&name)->sin6_port);
  return NULL;
}

static void close_all(void)
{
  atomic_int *fds[] = {&listener.local_fd, &listener.inet_fd};

  for (size_t i = 0; i < WEFT_COUNT(fds); i++) {
    int fd = atomic_exchange(fds[i], -1);
    if (fd < 0) continue;
    coll_context_unwatch(fd);
    close(fd);
  }
}

weft_status *coll_listener_start(coll_address *out)
{
  weft_status *st = NULL;

  weft_mutex_lock(&listener.mu);
  if (!listener.started) {
    for (int i = 0; i < MOST_ENTRANTS; i++) listener.entrants[i].fd = -1;
    coll_key door;
    st = coll_door_own(&door);
    if (!st) st = coll_door_pair_key(&door, &listener.pair);
    if (!st) st = listen_local(&listener.own);
    if (!st) st = listen_inet(&listener.own);
    if (!st) st = coll_context_watch(listener.local_fd, NULL, 0, false);
    if (!st) st = coll_context_watch(listener.inet_fd, NULL, 0, false);
    if (st)
      close_all();
    else
      listener.started = true;
  }
  if (!st) {
    memcpy(out->local_name, listener.own.local_name, sizeof out->local_name);
    memcpy(out->inet, listener.own.inet, sizeof out->inet);
    out->port = listener.own.port;
  }
  weft_mutex_unlock(&listener.mu);
  return st;
}

static void drop_entrant(entrant *e)
{
  coll_context_unwatch(e->fd);
  close(e->fd);
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  atomic_fetch_sub(&listener.entrant_count, 1);
}

static void drop(int slot)
{
  held *h = listener.held[slot];

  if (h->reader.passed_fd >= 0) close(h->reader.passed_fd);
  if (h->fd >= 0) {
    coll_context_unwatch(h->fd);
    close(h->fd);
  }
  coll_session_fini(&h->session);
  free(h);
  listener.held[slot] = NULL;
  atomic_fetch_sub(&listener.held_count, 1);
}

void coll_listener_stop(void) /* the progress thread has ended */
{
  weft_mutex_lock(&listener.mu);
  close_all();
  for (int i = 0; i < MOST_ENTRANTS && listener.started; i++)
    if (listener.entrants[i].fd >= 0) drop_entrant(&listener.entrants[i]);
  for (int i = 0; i < MOST_HELD; i++)
    if (listener.held[i]) drop(i);
  listener.started = false;
  weft_mutex_unlock(&listener.mu);
}

void coll_listener_bury(uint64_t group_id, uint64_t posted, const char *reason)
{
  weft_mutex_lock(&graves.mu);
  unsigned slot = graves.next++ % GRAVES;
  graves.of[slot].group_id = group_id;
  graves.of[slot].posted = posted;
  snprintf(graves.of[slot].reason, sizeof graves.of[slot].reason, "%s", reason);
  weft_mutex_unlock(&graves.mu);
}

/* ---- serving ---- */

static void refuse(held *h, weft_code code, const char *text)
{
  coll_reason reason = {.code = code};

  snprintf(reason.text, sizeof reason.text, "%s", text);
  coll_frame_send(h->fd, &h->session, COLL_FRAME_REFUSE, &reason, sizeof reason, -1);
}

static void answer(held *h, const coll_query *q)
{
  coll_answer a = {0};
  coll_group *g = coll_context_find(q->group_id, q->rank);

  if (g) {
    coll_group_lock(g);
    const weft_comm *comm = g->locals[g->local_of[q->rank]];
    if (comm) {
      a.known = 1;
      a.posted = coll_comm_posted(comm);
      a.ended = comm->ended_seq;
      a.arrived = coll_comm_posted(comm) > q->seq;
      for (coll_op *op = comm->head; op; op = op->next)
        if (op->seq == q->seq) a.arrived_ago_ns = weft_now_ns() - op->posted_ns;
      coll_flight_status_locked(comm, a.text, sizeof a.text);
      if (g->error) snprintf(a.spent, sizeof a.spent, "%s", weft_status_message(g->error));
    }
    coll_group_unlock(g);
    coll_group_release(g);
  }
  weft_mutex_lock(&graves.mu);
  for (int i = 0; i < GRAVES && !a.known; i++) { /* it may have failed and gone already */
    if (graves.of[i].group_id != q->group_id || !graves.of[i].reason[0]) continue;
    a.known = 1;
    a.posted = graves.of[i].posted;
    a.arrived = a.posted > q->seq;
    snprintf(a.text, sizeof a.text, "had posted %llu operations", (unsigned long long)a.posted);
    snprintf(a.spent, sizeof a.spent, "%s", graves.of[i].reason);
  }
  weft_mutex_unlock(&graves.mu);
  coll_frame_send(h->fd, &h->session, COLL_FRAME_ANSWER, &a, sizeof a, -1);
}

/* The recorder's text, with as many operations as a socket takes at once. */
static void tell_flight(held *h)
{
  enum { MOST_TEXT = 96 << 10, MOST_OPERATIONS = 1024 };
  WEFT_AUTO_STR text = NULL;
  size_t bytes = MOST_TEXT + 1;

  for (uint64_t most = MOST_OPERATIONS; bytes > MOST_TEXT && most; most /= 4) {
    free(text);
    text = coll_flight_text(most);
    bytes = text ? strlen(text) : 0;
  }
  bytes = WEFT_MIN(bytes, (size_t)MOST_TEXT);
  for (size_t at = 0, n; at < bytes; at += n) {
    n = WEFT_MIN(bytes - at, (size_t)COLL_MOST_FRAME_BYTES);
    if (!coll_frame_send(h->fd, &h->session, COLL_FRAME_TEXT, text + at, n, -1)) return;
  }
}

/* True if the connection has found its place, or there is none for it. */
static bool place_hello(held *h)
{
  coll_hello hello;
  weft_status *st;

  memcpy(&hello, h->reader.payload, sizeof hello);
  coll_group *g = coll_context_find(hello.group_id, hello.dst);
  if (!g) {
    char reason[sizeof graves.of[0].reason] = "";
    weft_mutex_lock(&graves.mu);
    for (int i = 0; i < GRAVES; i++)
      if (graves.of[i].group_id == hello.group_id) memcpy(reason, graves.of[i].reason, sizeof reason);
    weft_mutex_unlock(&graves.mu);
    if (reason[0]) refuse(h, WEFT_ABORTED, reason);
    return reason[0] != '\0';
  }
  coll_group_lock(g);
  coll_context_unwatch(h->fd); /* the link watches it under its own number */
  st = coll_link_adopt_locked(g, &hello, h->fd, h->reader.passed_fd, &h->session);
  coll_group_unlock(g);
  coll_group_release(g);
  if (!st) {
    h->fd = h->reader.passed_fd = -1;
    return true;
  }
  bool wait = weft_status_code(st) == WEFT_UNAVAILABLE; /* the communicator is being made */
  if (!wait && weft_status_code(st) != WEFT_ALREADY_EXISTS) refuse(h, weft_status_code(st), weft_status_message(st));
  weft_status_free(st);
  return !wait;
}

static bool serve(held *h)
{
  if (h->has_hello) return place_hello(h);
  switch (coll_frame_read(&h->reader, &h->session, h->fd)) {
  case COLL_READ_NONE: return false;
  case COLL_READ_FRAME: break;
  default: return true;
  }
  if (h->reader.frame.type == COLL_FRAME_QUERY && h->reader.frame.bytes == sizeof(coll_query)) {
    coll_query q;
    memcpy(&q, h->reader.payload, sizeof q);
    answer(h, &q);
    return true;
  }
  if (h->reader.frame.type == COLL_FRAME_FLIGHT) {
    tell_flight(h);
    return true;
  }
  if (h->reader.frame.type != COLL_FRAME_HELLO || h->reader.frame.bytes != sizeof(coll_hello)) return true;
  h->has_hello = true;
  return place_hello(h);
}

/* ---- entering ---- */

/* Strangers come and go without a line for each. */
static void complain(const char *what)
{
  int64_t now_ns = weft_now_ns();

  listener.turned_away++;
  WEFT_LOG("coll", DEBUG, "a connection to this process's collectives %s", what);
  if (listener.complained_ns && now_ns - listener.complained_ns < COMPLAIN_NS) return;
  listener.complained_ns = now_ns;
  WEFT_LOG("coll", WARN, "a connection to this process's collectives %s; %lu were turned away so far", what, listener.turned_away);
}

static bool is_known(const struct in6_addr *from)
{
  for (size_t i = 0; i < WEFT_MIN(listener.known_count, (size_t)KNOWN_ADDRESSES); i++)
    if (memcmp(&listener.known[i], from, sizeof *from) == 0) return true;
  return false;
}

/* It has proven itself: it is held now. */
static void admit(entrant *e, coll_session *session)
{
  int slot = 0;

  while (slot < MOST_HELD && listener.held[slot]) slot++;
  held *h = slot < MOST_HELD ? calloc(1, sizeof *h) : NULL;
  if (!h) {
    coll_session_fini(session);
    drop_entrant(e);
    return;
  }
  if (!e->local && !is_known(&e->from)) listener.known[listener.known_count++ % KNOWN_ADDRESSES] = e->from;
  *h = (held){.fd = e->fd, .since_ns = weft_now_ns(), .session = *session, .reader = {.passed_fd = -1}};
  listener.held[slot] = h;
  atomic_fetch_add(&listener.held_count, 1);
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  atomic_fetch_sub(&listener.entrant_count, 1);
  if (serve(h)) drop(slot);
}

/* Looks at what an entrant has sent. */
static void hear(entrant *e, int64_t now_ns)
{
  coll_session session;

  switch (coll_handshake_go_on(&e->shake, e->fd, !e->local, &session)) {
  case COLL_SHAKE_DONE: admit(e, &session); return;
  case COLL_SHAKE_DENIED:
    coll_door_deny(e->fd);
    complain("did not prove that it belongs to the job");
    break;
  case COLL_SHAKE_WAITS:
    if (now_ns - e->since_ns <= ENTRANCE_NS) return;
    complain("said nothing for too long");
    break;
  case COLL_SHAKE_ENDED: break;
  }
  drop_entrant(e);
}

/* A free place; where there is none, or strangers of one address have many, that of the oldest. */
static entrant *make_room(bool local, const struct in6_addr *from, int64_t now_ns)
{
  bool known = local || is_known(from);
  entrant *room = NULL, *oldest = NULL, *oldest_there = NULL;
  int there = 0;

  for (entrant *e = listener.entrants; e < listener.entrants + MOST_ENTRANTS; e++) {
    if (e->fd < 0) {
      room = e;
      continue;
    }
    bool same = !local && !e->local && memcmp(&e->from, from, sizeof *from) == 0;
    there += same;
    if (same && (!oldest_there || e->since_ns < oldest_there->since_ns)) oldest_there = e;
    if (!oldest || e->since_ns < oldest->since_ns) oldest = e;
  }
  if (!known && there >= MOST_OF_STRANGERS_ADDRESS) room = oldest_there;
  if (!room) room = oldest;
  if (room->fd >= 0) hear(room, now_ns); /* its message may just have come */
  if (room->fd >= 0) {
    complain("made way for newer ones without having proven that it belongs to the job");
    drop_entrant(room);
  }
  return room;
}

static void enter(int fd, bool local, const struct in6_addr *from)
{
  int64_t now_ns = weft_now_ns();
  entrant *e = make_room(local, from, now_ns);
  weft_status *st = coll_context_watch(fd, NULL, 0, false);

  if (st) {
    weft_status_ignore(st);
    close(fd);
    return;
  }
  *e = (entrant){.fd = fd, .local = local, .since_ns = now_ns, .from = *from};
  coll_handshake_init(&e->shake, false, &listener.pair);
  atomic_fetch_add(&listener.entrant_count, 1);
  hear(e, now_ns);
}

/* As an IPv6 address. */
static struct in6_addr address_of(const struct sockaddr_storage *name)
{
  struct in6_addr out = IN6ADDR_ANY_INIT;

  if (name->ss_family == AF_INET6) out = ((const struct sockaddr_in6 *)name)->sin6_addr;
  if (name->ss_family == AF_INET) memcpy(&out.s6_addr[12], &((const struct sockaddr_in *)name)->sin_addr, 4);
  return out;
}

static void accept_some(int listening_fd, bool local)
{
  for (int i = 0; i < MOST_AT_ONCE && listening_fd >= 0; i++) {
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof name;
    pid_t pid;
    int fd = accept4(listening_fd, (struct sockaddr *)&name, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (local && !coll_door_same_user(fd, &pid)) {
      coll_door_deny(fd);
      close(fd);
      complain("came from another user of this machine");
      continue;
    }
    if (!local) tune(fd);
    struct in6_addr from = address_of(&name);
    enter(fd, local, &from);
  }
}

void coll_listener_ready(void)
{
  int64_t now_ns = weft_now_ns();

  for (int i = 0; i < MOST_ENTRANTS && atomic_load(&listener.entrant_count); i++)
    if (listener.entrants[i].fd >= 0) hear(&listener.entrants[i], now_ns);
  accept_some(listener.local_fd, true);
  accept_some(listener.inet_fd, false);
  for (int i = 0; i < MOST_HELD && atomic_load(&listener.held_count); i++)
    if (listener.held[i] && (serve(listener.held[i]) || now_ns - listener.held[i]->since_ns > HOLD_NS)) drop(i);
}

/* When the next entrant has been here for too long; INT64_MAX: there is none. */
static int64_t entrance_ends_ns(void)
{
  int64_t first_ns = INT64_MAX;

  for (int i = 0; i < MOST_ENTRANTS && atomic_load(&listener.entrant_count); i++)
    if (listener.entrants[i].fd >= 0) first_ns = WEFT_MIN(first_ns, listener.entrants[i].since_ns + ENTRANCE_NS + 1);
  return first_ns;
}

bool coll_listener_is_due(void) { return atomic_load(&listener.held_count) > 0 || entrance_ends_ns() <= weft_now_ns(); }

int64_t coll_listener_timer_ns(void)
{
  if (atomic_load(&listener.held_count) > 0) return weft_now_ns() + 20 * WEFT_NS_PER_MS; /* a communicator may have been made */
  return entrance_ends_ns();
}
