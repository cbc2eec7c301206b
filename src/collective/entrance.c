/* collective/entrance.c -- the listener's handshake: connections that have not proven that they belong to the job
 * (door.h).
 *
 * Entrants are few, cost little and stay for seconds.  Where there are too many, the oldest one is closed, after a
 * last look at what it has sent.  All functions belong to the progress thread. */
#include <config.h>

#include "collective/entrance.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/inet.h"
#include "base/log.h"
#include "collective/context.h"
#include "collective/dial.h"

enum { MOST_ENTRANTS = 256, MOST_OF_STRANGERS_ADDRESS = 32, MOST_AT_ONCE = 128, KNOWN_ADDRESSES = 64 };
#define ENTRANCE_NS (5 * WEFT_NS_PER_S)
#define COMPLAIN_NS (60 * WEFT_NS_PER_S)

/* A connection that has not proven itself. */
typedef struct entrant {
  int fd; /* -1: free */
  bool local;
  int64_t since_ns;
  struct in6_addr from; /* of a TCP connection */
  coll_handshake shake;
} entrant;

static struct {
  bool open;
  coll_key pair; /* set before the sockets are watched */
  coll_admit *admit;
  entrant entrants[MOST_ENTRANTS];
  atomic_int count;
  struct in6_addr known[KNOWN_ADDRESSES]; /* addresses from which members have come */
  size_t known_count;
  unsigned long turned_away;
  int64_t complained_ns;
} entrance;

static void drop_entrant(entrant *e)
{
  coll_context_unwatch(e->fd);
  close(e->fd);
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  atomic_fetch_sub(&entrance.count, 1);
}

/* Counts a connection that was turned away.  At most one line a minute is logged as a warning. */
static void complain(const char *what)
{
  int64_t now_ns = weft_now_ns();

  entrance.turned_away++;
  WEFT_LOG("coll", DEBUG, "a connection to this process's collectives %s", what);
  if (entrance.complained_ns && now_ns - entrance.complained_ns < COMPLAIN_NS) return;
  entrance.complained_ns = now_ns;
  WEFT_LOG("coll", WARN, "a connection to this process's collectives %s; %lu were turned away so far", what,
           entrance.turned_away);
}

static bool is_known(const struct in6_addr *from)
{
  for (size_t i = 0; i < WEFT_MIN(entrance.known_count, (size_t)KNOWN_ADDRESSES); i++)
    if (memcmp(&entrance.known[i], from, sizeof *from) == 0) return true;
  return false;
}

/* Hands a connection that has proven itself to the listener. */
static void admit(entrant *e, coll_session *session)
{
  int fd = e->fd;

  if (!e->local && !is_known(&e->from)) entrance.known[entrance.known_count++ % KNOWN_ADDRESSES] = e->from;
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  atomic_fetch_sub(&entrance.count, 1);
  entrance.admit(fd, session);
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

/* Returns a free place.  If there is none, or a stranger's address has too many entrants, the oldest entrant is
 * closed for it. */
static entrant *make_room(bool local, const struct in6_addr *from, int64_t now_ns)
{
  bool known = local || is_known(from);
  entrant *room = NULL, *oldest = NULL, *oldest_there = NULL;
  int there = 0;

  for (entrant *e = entrance.entrants; e < entrance.entrants + MOST_ENTRANTS; e++) {
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
  coll_handshake_init(&e->shake, false, &entrance.pair);
  atomic_fetch_add(&entrance.count, 1);
  hear(e, now_ns);
}

void coll_entrance_accept(int listening_fd, bool local)
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
    if (!local) coll_tune_connection(fd);
    struct in6_addr from = weft_inet_address(&name);
    enter(fd, local, &from);
  }
}

void coll_entrance_hear(void)
{
  int64_t now_ns = weft_now_ns();

  for (int i = 0; i < MOST_ENTRANTS && atomic_load(&entrance.count); i++)
    if (entrance.entrants[i].fd >= 0) hear(&entrance.entrants[i], now_ns);
}

int64_t coll_entrance_timer_ns(void)
{
  int64_t first_ns = INT64_MAX;

  for (int i = 0; i < MOST_ENTRANTS && atomic_load(&entrance.count); i++)
    if (entrance.entrants[i].fd >= 0) first_ns = WEFT_MIN(first_ns, entrance.entrants[i].since_ns + ENTRANCE_NS + 1);
  return first_ns;
}

void coll_entrance_open(const coll_key *pair, coll_admit *admit)
{
  for (int i = 0; i < MOST_ENTRANTS; i++) entrance.entrants[i].fd = -1;
  entrance.pair = *pair;
  entrance.admit = admit;
  entrance.open = true;
}

void coll_entrance_close(void)
{
  for (int i = 0; i < MOST_ENTRANTS && entrance.open; i++)
    if (entrance.entrants[i].fd >= 0) drop_entrant(&entrance.entrants[i]);
  coll_key_wipe(&entrance.pair);
  entrance.open = false;
}
