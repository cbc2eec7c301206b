/* collective/entrance.c -- the listener's handshake: connections that have not proven that they belong to the job
 * (door.h).
 *
 * Entrants are few, cost little and stay for seconds; base/strangers.h says which entrant is closed when there are too
 * many. All functions belong to the progress thread. */
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
#include "base/strangers.h"
#include "collective/context.h"
#include "collective/dial.h"

enum { MOST_ENTRANTS = 256, MOST_OF_STRANGERS_ADDRESS = 32, MOST_AT_ONCE = 128 };
#define ENTRANCE_NS (5 * WEFT_NS_PER_S)
#define COMPLAIN_NS (60 * WEFT_NS_PER_S)

/* A connection that has not proven itself. */
typedef struct entrant {
  int fd; /* -1: free */
  weft_stranger stranger;
  coll_handshake shake;
} entrant;

static struct {
  bool open;
  coll_key pair; /* set before the sockets are watched */
  coll_admit *admit;
  entrant entrants[MOST_ENTRANTS];
  weft_strangers table; /* of the entrants whose fd is set */
  unsigned long turned_away;
  int64_t complained_ns;
} entrance = {.table = {.most = MOST_ENTRANTS, .most_of_an_address = MOST_OF_STRANGERS_ADDRESS, .most_ns = ENTRANCE_NS}};

static void drop_entrant(entrant *e)
{
  coll_context_unwatch(e->fd);
  close(e->fd);
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  weft_strangers_remove(&entrance.table, &e->stranger);
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

/* Hands a connection that has proven itself to the listener. */
static void admit(entrant *e, coll_session *session)
{
  int fd = e->fd;

  if (e->stranger.has_address) weft_strangers_know(&entrance.table, &e->stranger.from);
  coll_key_wipe(&e->shake.pair);
  e->fd = -1;
  weft_strangers_remove(&entrance.table, &e->stranger);
  entrance.admit(fd, session);
}

/* Looks at what an entrant has sent. */
static void hear(entrant *e, int64_t now_ns)
{
  coll_session session;

  switch (coll_handshake_go_on(&e->shake, e->fd, e->stranger.has_address, &session)) {
  case COLL_SHAKE_DONE: admit(e, &session); return;
  case COLL_SHAKE_DENIED:
    coll_door_deny(e->fd);
    complain("did not prove that it belongs to the job");
    break;
  case COLL_SHAKE_WAITS:
    if (now_ns - e->stranger.since_ns <= ENTRANCE_NS) return;
    complain("said nothing for too long");
    break;
  case COLL_SHAKE_ENDED: break;
  }
  drop_entrant(e);
}

/* Returns a free place.  If too many connections are in the way, the oldest of them is closed, after a last look at
 * what it has sent. */
static entrant *make_room(const struct in6_addr *from, int64_t now_ns)
{
  weft_stranger *oldest = weft_strangers_in_the_way(&entrance.table, from);
  entrant *room = oldest ? WEFT_CONTAINER_OF(oldest, entrant, stranger) : entrance.entrants;

  while (!oldest && room->fd >= 0) room++; /* the table is not full, so one is free */
  if (room->fd >= 0) hear(room, now_ns);
  if (room->fd >= 0) {
    complain("made way for newer ones without having proven that it belongs to the job");
    drop_entrant(room);
  }
  return room;
}

/* `from` NULL: a local socket. */
static void enter(int fd, const struct in6_addr *from)
{
  int64_t now_ns = weft_now_ns();
  entrant *e = make_room(from, now_ns);
  weft_status *st = coll_context_watch(fd, NULL, 0, false);

  if (st) {
    weft_status_ignore(st);
    close(fd);
    return;
  }
  *e = (entrant){.fd = fd};
  weft_strangers_add(&entrance.table, &e->stranger, from, now_ns);
  coll_handshake_init(&e->shake, false, &entrance.pair);
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
    enter(fd, local ? NULL : &from);
  }
}

void coll_entrance_hear(void)
{
  int64_t now_ns = weft_now_ns();

  for (int i = 0; i < MOST_ENTRANTS && entrance.table.count; i++)
    if (entrance.entrants[i].fd >= 0) hear(&entrance.entrants[i], now_ns);
}

int64_t coll_entrance_timer_ns(void) { return weft_strangers_timer_ns(&entrance.table); }

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
