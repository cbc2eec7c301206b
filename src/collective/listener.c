/* collective/listener.c -- where other processes connect: the sockets, and the connections of the job's members that
 * wait.
 *
 * A process that connects first proves that it belongs to the job (entrance.c).  Then its connection is held until the
 * process has sent a greeting or a question and the communicator that it names exists. */
#include <config.h>

#include "collective/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/dial.h"
#include "collective/ended.h"
#include "collective/entrance.h"
#include "collective/flight_text.h"
#include "collective/host/link.h"
#include "collective/transport/transport.h"

enum { MOST_HELD = 1024, LISTEN_TRIES = 64 };
#define HOLD_NS (120 * WEFT_NS_PER_S)

/* A connection of a member of the job that has sent no greeting and no question yet, or whose communicator is not made
 * yet. */
typedef struct held {
  int fd; /* -1: a link has taken the connection */
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
  held *held[MOST_HELD]; /* only the progress thread touches them */
  atomic_int held_count;
} listener = {.mu = WEFT_MUTEX_INITIALIZER, .local_fd = -1, .inet_fd = -1};

static weft_status *listen_local(coll_address *own)
{
  struct sockaddr_un name;
  uint64_t random = 0;

  if (getrandom(&random, sizeof random, 0) < 0) random = (uint64_t)weft_now_ns();
  snprintf(own->local_name, sizeof own->local_name, "weft-%d-%016llx", (int)getpid(), (unsigned long long)random);
  listener.local_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener.local_fd < 0 ||
      bind(listener.local_fd, (struct sockaddr *)&name, coll_local_name(own->local_name, &name)) != 0 ||
      listen(listener.local_fd, SOMAXCONN) != 0)
    return WEFT_ERR(UNAVAILABLE, "listening on a local socket: %s", strerror(errno));
  return NULL;
}

/* Writes the numeric address of an interface (given by name or address), or of the first one that is not loopback. */
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

/* Returns -1 after an error; errno says why. */
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

/* Draws a port from the range that the system hands out. */
static uint16_t any_port(void)
{
  unsigned first = 32768, last = 60999, drawn;
  FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

  if (file && (fscanf(file, "%u %u", &first, &last) != 2 || first > last || last > UINT16_MAX))
    first = 32768, last = 60999;
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
  if (!coll_inet_name(own->inet, 0, &name, &length)) return WEFT_ERR(UNAVAILABLE, "no network address");
  /* Connections that ended a minute ago may hold every port of the system's range.  SO_REUSEADDR lets us share such a
   * port, but only one that we name: the system itself hands out free ports only.  A port that we name may belong to
   * another listener, so the first try names none, and there are several tries. */
  for (int tries = 0; fd < 0 && tries < LISTEN_TRIES; tries++) {
    if (tries > 0 && !coll_inet_name(own->inet, any_port(), &name, &length)) break;
    fd = listen_at(&name, length, tries > 0);
  }
  if (fd < 0) return WEFT_ERR(UNAVAILABLE, "listening on %s: %s", own->inet, strerror(errno));
  listener.inet_fd = fd;
  if (getsockname(fd, (struct sockaddr *)&name, &length) != 0)
    return WEFT_ERR(UNAVAILABLE, "listening on %s: %s", own->inet, strerror(errno));
  own->port = ntohs(name.ss_family == AF_INET ? ((struct sockaddr_in *)&name)->sin_port
                                              : ((struct sockaddr_in6 *)&name)->sin6_port);
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

/* ---- serving members ---- */

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

static void refuse(held *h, weft_code code, const char *text)
{
  coll_reason reason = {.code = code};

  snprintf(reason.text, sizeof reason.text, "%s", text);
  coll_frame_send(h->fd, &h->session, COLL_FRAME_REFUSE, &reason, sizeof reason, -1);
}

/* After an error streams are closed, so that nothing is known of their messages any more. */
static void count_messages(coll_group *g, const coll_query *q, coll_answer *a)
{
  if (g->error) return;
  coll_transports_poll(g); /* a frozen group does not look by itself */
  coll_stream_counts counts = coll_link_counts(g, q->rank, q->asker);
  a->counted = 1;
  memcpy(a->left, counts.left, sizeof a->left);
  memcpy(a->came, counts.came, sizeof a->came);
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
      count_messages(g, q, &a);
      if (g->error) snprintf(a.spent, sizeof a.spent, "%s", weft_status_message(g->error));
    }
    if (comm || g->live_count == 0) a.control = coll_link_control_locked(g, q->rank, q->asker);
    coll_group_unlock(g);
    coll_group_release(g);
  }
  coll_ended ended;
  if (!a.known && coll_ended_find(q->group_id, &ended)) {
    a.known = 1;
    a.posted = ended.posted;
    a.arrived = a.posted > q->seq;
    snprintf(a.text, sizeof a.text, "had posted %llu operations", (unsigned long long)a.posted);
    snprintf(a.spent, sizeof a.spent, "%s", ended.reason);
  }
  coll_frame_send(h->fd, &h->session, COLL_FRAME_ANSWER, &a, sizeof a, -1);
}

/* Sends the recorder's text, with as many operations as a socket takes at once. */
static void tell_flight(held *h)
{
  enum { MOST_TEXT = 64 << 10, /* Linux gives a new socket 87040 bytes */ MOST_OPERATIONS = 1024 };
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

/* Gives the connection to the link that its greeting names, or refuses it.  False: the communicator is not made yet. */
static bool place_hello(held *h)
{
  coll_hello hello;
  weft_status *st;

  memcpy(&hello, h->reader.payload, sizeof hello);
  coll_group *g = coll_context_find(hello.group_id, hello.dst);
  if (!g) {
    coll_ended ended;
    bool known = coll_ended_find(hello.group_id, &ended);
    if (known) refuse(h, WEFT_ABORTED, ended.reason);
    return known;
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

/* Holds the connection of a member of the job that has just proven itself. */
static void admit(int fd, coll_session *session)
{
  int slot = 0;

  while (slot < MOST_HELD && listener.held[slot]) slot++;
  held *h = slot < MOST_HELD ? calloc(1, sizeof *h) : NULL;
  if (!h) {
    coll_session_fini(session);
    coll_context_unwatch(fd);
    close(fd);
    return;
  }
  *h = (held){.fd = fd, .since_ns = weft_now_ns(), .session = *session, .reader = {.passed_fd = -1}};
  listener.held[slot] = h;
  atomic_fetch_add(&listener.held_count, 1);
  if (serve(h)) drop(slot);
}

/* ---- starting and stopping ---- */

weft_status *coll_listener_start(coll_address *out)
{
  weft_status *st = NULL;

  weft_mutex_lock(&listener.mu);
  if (!listener.started) {
    coll_key door, pair;
    st = coll_door_own(&door);
    if (!st) st = coll_door_pair_key(&door, &pair);
    if (!st) coll_entrance_open(&pair, admit);
    coll_key_wipe(&pair);
    if (!st) st = listen_local(&listener.own);
    if (!st) st = listen_inet(&listener.own);
    if (!st) st = coll_context_watch(listener.local_fd, NULL, 0, false);
    if (!st) st = coll_context_watch(listener.inet_fd, NULL, 0, false);
    if (st) close_all();
    else listener.started = true;
  }
  if (!st) {
    memcpy(out->local_name, listener.own.local_name, sizeof out->local_name);
    memcpy(out->inet, listener.own.inet, sizeof out->inet);
    out->port = listener.own.port;
  }
  weft_mutex_unlock(&listener.mu);
  return st;
}

void coll_listener_stop(void) /* called after the progress thread has ended */
{
  weft_mutex_lock(&listener.mu);
  close_all();
  coll_entrance_close();
  for (int i = 0; i < MOST_HELD; i++)
    if (listener.held[i]) drop(i);
  listener.started = false;
  weft_mutex_unlock(&listener.mu);
}

/* ---- what the progress thread does ---- */

void coll_listener_ready(void)
{
  int64_t now_ns = weft_now_ns();

  coll_entrance_hear();
  coll_entrance_accept(listener.local_fd, true);
  coll_entrance_accept(listener.inet_fd, false);
  for (int i = 0; i < MOST_HELD && atomic_load(&listener.held_count); i++)
    if (listener.held[i] && (serve(listener.held[i]) || now_ns - listener.held[i]->since_ns > HOLD_NS)) drop(i);
}

bool coll_listener_is_due(void)
{
  return atomic_load(&listener.held_count) > 0 || coll_entrance_timer_ns() <= weft_now_ns();
}

int64_t coll_listener_timer_ns(void)
{
  if (atomic_load(&listener.held_count) > 0)
    return weft_now_ns() + 20 * WEFT_NS_PER_MS; /* a communicator may have been made */
  return coll_entrance_timer_ns();
}
