/* collective/host/link.c -- the life of a connection between ranks of different processes, from dialling to the
 * peer's death. */
#include <config.h>

#include "collective/host/link_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/dial.h"
#include "collective/ended.h"
#include "collective/transport/transport.h"

/* A listener that has too many entrants may turn a member of the job away.  The member tries again up to
 * MOST_REDIALS times, each time after a pause of REDIAL_NS. */
enum { MOST_REDIALS = 400 };
#define REDIAL_NS (10 * WEFT_NS_PER_MS)

bool coll_link_is_ready(const coll_link *link) { return link->state == LINK_READY || link->state == LINK_LEFT; }
const char *coll_link_why(const coll_link *link) { return link->why; }
bool coll_link_is_waiting(const coll_link *link) { return link->state == LINK_WAITING; }

void coll_link_peer_died(coll_link *link, bool dead, const char *how)
{
  coll_group *g = link->group;
  uint64_t incarnation = g->incarnations[link->peer];
  char who[256];

  weft_mutex_assert_held(&g->mu);
  coll_rank_describe(g, link->peer, who, sizeof who);
  if (dead) coll_dead_add(incarnation);
  coll_group_lose_member_locked(g, dead ? incarnation : 0,
                                WEFT_ERR(FAILED_PRECONDITION, "Task with incarnation id %llu is not connected: %s %s",
                                         (unsigned long long)incarnation, who, how));
}

coll_stream_counts coll_link_counts(coll_group *g, int rank, int peer)
{
  coll_stream_counts counts = {0};
  int local = g->local_of[rank];

  if (local < 0 || peer < 0 || peer >= g->size || !g->links) return counts;
  const coll_link *link = g->links[(size_t)local * (size_t)g->size + (size_t)peer];
  if (link && link->stream && link->stream->ops->counts) link->stream->ops->counts(link->stream, &counts);
  return counts;
}

uint64_t coll_link_owed_by_left(coll_group *g, int rank, int peer)
{
  enum { ANY_WINDOW = 32 << 10 }; /* bytes that a TCP connection accepts although the peer does not read them */
  int local = g->local_of[rank];
  const coll_link *link = local >= 0 && g->links ? g->links[(size_t)local * (size_t)g->size + (size_t)peer] : NULL;
  uint64_t owed = 0;

  if (!link || link->state != LINK_LEFT) return 0;
  coll_stream_counts counts = coll_link_counts(g, rank, peer);
  for (int c = 0; c < COLL_CHANNELS; c++)
    owed += link->farewell.left[c] > counts.came[c] ? link->farewell.left[c] - counts.came[c] : 0;
  return link->farewell.left_bytes <= counts.came_bytes + ANY_WINDOW ? owed : 0;
}

void coll_link_hang_up(coll_link *link)
{
  if (link->fd >= 0) {
    coll_context_unwatch(link->fd);
    close(link->fd);
  }
  link->fd = -1;
  if (link->stream) link->stream->ops->close(link->stream);
  link->stream = NULL;
  coll_session_fini(&link->session);
  link->group->doubted_count -= link->doubted && !link->asked;
  link->doubted = link->asked = link->cut_here = link->unheard = false;
}

static weft_status *dial(coll_link *link);

void coll_link_on_refused(coll_link *link, weft_status *st)
{
  coll_link_hang_up(link);
  link->state = LINK_REFUSED;
  link->refused = st;
  link->broken_ns = weft_now_ns();
  link->group->refused_count++;
  /* so that the progress thread looks at REDIAL_NS and REFUSED_WORD_NS */
  atomic_store_explicit(&link->group->unsent, true, memory_order_relaxed);
  coll_context_wake();
}

void coll_link_on_turned_away(coll_link *link, weft_status *st)
{
  link->redials = link->redials ? link->redials - 1 : MOST_REDIALS;
  if (link->redials == 0) link->redials = -1; /* that was the last try */
  coll_link_on_refused(link, st);
}

void coll_link_redial(coll_link *link)
{
  if (weft_now_ns() - link->broken_ns <= REDIAL_NS) return;
  link->state = LINK_WAITING;
  link->group->refused_count--;
  weft_status_free(WEFT_MOVE(link->refused));
  link->broken_ns = 0;
  weft_status *st = dial(link);
  if (st) coll_link_on_refused(link, st);
}

/* ---- connecting ---- */

/* Fills in what the peer must know of this side's transport. */
static weft_status *fill_address(const coll_link *link, coll_hello *hello)
{
  const coll_transport_ops *t = coll_transport_of(link->transport);
  return t->open ? t->open(link->group, &hello->address) : NULL;
}

static void ring_peer(void *ctx)
{
  coll_link *link = ctx;
  if (link->fd >= 0) /* if the socket is full, the peer wakes as well */
    coll_frame_send(link->fd, &link->session, COLL_FRAME_BELL, NULL, 0, -1);
}

static void cut(void *ctx)
{
  coll_link *link = ctx;
  link->cut_here = true;
  if (link->fd >= 0) shutdown(link->fd, SHUT_RDWR);
}

weft_status *coll_link_become_ready(coll_link *link)
{
  const char *faults = coll_settings_get()->faults;

  link->stream->ring = ring_peer;
  link->stream->ring_ctx = link;
  if (*faults) WEFT_TRY(coll_fault_new(WEFT_MOVE(link->stream), faults, cut, link, &link->stream));
  /* tries whether the peer's memory can be read, and tells the peer */
  if (link->stream->ops->bulk_least) link->stream->ops->bulk_least(link->stream);
  link->state = LINK_READY;
  coll_context_wake(); /* messages may have been posted already */
  return NULL;
}

static weft_status *hello_of(coll_link *link, coll_hello *out)
{
  coll_group *g = link->group;
  const coll_address *to = &g->addresses[link->peer];

  *out = (coll_hello){.src_incarnation = g->incarnations[link->rank],
                      .dst_incarnation = to->magic ? to->incarnation : 0,
                      .src = link->rank,
                      .dst = link->peer,
                      .size = g->size,
                      .transport = (int32_t)link->transport,
                      .whole = coll_settings_seal_whole(),
                      .address = g->addresses[link->rank]};
  return coll_door_group_id(&to->door, g->public_id, &out->group_id);
}

/* The peer has proven itself: sends the greeting. */
static weft_status *greet(coll_link *link)
{
  const coll_transport_ops *t = coll_transport_of(link->transport);
  coll_transport_ends ends = {.group = link->group, .session = &link->session, .mine = link->rank, .theirs = link->peer, .fd = -1};
  int offered_fd = -1;
  coll_hello hello;

  WEFT_TRY(hello_of(link, &hello));
  if (t->is_local && !coll_door_same_user(link->fd, &ends.pid))
    return WEFT_ERR(UNAUTHENTICATED, "another user's process listens at the address of rank %d", link->peer);
  WEFT_TRY(fill_address(link, &hello));
  if (t->offer) WEFT_TRY(t->offer(&ends, &link->stream, &offered_fd));
  bool sent = coll_frame_send(link->fd, &link->session, COLL_FRAME_HELLO, &hello, sizeof hello, offered_fd);
  if (offered_fd >= 0) close(offered_fd);
  if (!sent) return WEFT_ERR(UNAVAILABLE, "greeting rank %d: %s", link->peer, strerror(errno));
  link->state = LINK_GREETING;
  link->spoke_ns = weft_now_ns();
  return coll_context_watch(link->fd, link->group, link->id, false);
}

weft_status *coll_link_prove(coll_link *link)
{
  if (link->state != LINK_PROVING) link->spoke_ns = weft_now_ns();
  link->state = LINK_PROVING;
  switch (coll_handshake_go_on(&link->shake, link->fd, !coll_transport_of(link->transport)->is_local, &link->session)) {
  case COLL_SHAKE_DONE: return greet(link);
  case COLL_SHAKE_WAITS: return coll_context_watch(link->fd, link->group, link->id, false);
  case COLL_SHAKE_DENIED:
    return WEFT_ERR(
      UNAUTHENTICATED,
      "authentication failed: rank %d and rank %d do not have the same secret (WEFT_COORD_SECRET_FILE), or another process "
      "listens at the address of rank %d",
      link->rank, link->peer, link->peer);
  case COLL_SHAKE_ENDED: break;
  }
  return WEFT_ERR(UNAVAILABLE, "rank %d closed the connection before it was authenticated", link->peer);
}

static weft_status *dial(coll_link *link)
{
  coll_group *g = link->group;
  coll_key pair;

  link->transport = coll_transport_between(&g->addresses[link->rank], &g->addresses[link->peer]);
  bool local = coll_transport_of(link->transport)->is_local;
  WEFT_TRY(coll_door_pair_key(&g->addresses[link->peer].door, &pair));
  coll_handshake_init(&link->shake, true, &pair);
  coll_key_wipe(&pair);
  WEFT_TRY(coll_dial(&g->addresses[link->peer], local, &link->fd));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  if (local) return coll_link_prove(link); /* a local socket connects at once */
  link->state = LINK_CONNECTING;
  return coll_context_watch(link->fd, g, link->id, true);
}

coll_link *coll_link_of_locked(coll_group *g, int local, int peer)
{
  weft_mutex_assert_held(&g->mu);
  coll_link **slot = &g->links[(size_t)local * (size_t)g->size + (size_t)peer], *link = *slot;
  weft_status *st = NULL;

  if (link && (link->state != LINK_WAITING || !g->addresses[peer].magic)) return link;
  if (!link) {
    link = calloc(1, sizeof *link);
    if (!link) {
      coll_group_fail_locked(g, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a link"));
      return NULL;
    }
    *link = (coll_link){.group = g,
                        .id = coll_context_next_id(),
                        .local = local,
                        .rank = g->locals[local]->rank,
                        .peer = peer,
                        .fd = -1,
                        .next_open = g->open_links,
                        .state = LINK_WAITING,
                        .told = -1,
                        .room_there = COLL_EAGER_ROOM,
                        .room_here = COLL_EAGER_ROOM};
    link->offers_tail = &link->offers;
    *slot = g->open_links = link;
  }
  errno = 0;
  if (g->addresses[peer].magic) st = dial(link);
  if (st && errno == EAGAIN) /* a local socket with a long queue */
    coll_link_on_turned_away(link, st);
  else if (st) coll_link_on_refused(link, st);
  return link;
}

weft_status *coll_link_dial_locked(coll_group *g, int local, int peer)
{
  weft_mutex_assert_held(&g->mu);
  coll_link **slot = &g->links[(size_t)local * (size_t)g->size + (size_t)peer];

  if (!*slot) {
    coll_address address = g->addresses[peer];
    g->addresses[peer].magic = 0; /* makes the link without dialling, so that the caller handles an error */
    coll_link *made = coll_link_of_locked(g, local, peer);
    g->addresses[peer] = address;
    if (!made) return weft_status_dup(g->error);
  }
  coll_link *link = *slot;
  if (link->state != LINK_WAITING) return NULL;
  weft_status *st = dial(link);
  if (st) {
    coll_link_hang_up(link);
    link->state = LINK_WAITING;
  }
  return st;
}

weft_status *coll_link_open_stream(coll_link *link, const coll_hello *theirs, int fd, int passed_fd)
{
  const coll_transport_ops *t = coll_transport_of(theirs->transport);
  coll_transport_ends ends = {.group = link->group, .session = &link->session, .address = &theirs->address, .mine = link->rank,
                              .theirs = link->peer, .fd = passed_fd};

  if (!t)
    return WEFT_ERR(FAILED_PRECONDITION, "rank %d asks for transport %d, which is unknown here", link->peer,
                    theirs->transport);
  if (t->is_local && !coll_door_same_user(fd, &ends.pid))
    return WEFT_ERR(FAILED_PRECONDITION, "a peer offers %s over a network", t->name);
  link->transport = (coll_transport)theirs->transport;
  return t->stream(&ends, &link->stream);
}

/* Checks whether the group may take a greeting.  The error says why it may not. */
static weft_status *check_hello(const coll_group *g, const coll_hello *hello)
{
  int me = hello->dst, peer = hello->src;
  char who[256];

  if (g->error)
    return weft_status_new(weft_status_code(g->error) == WEFT_FAILED_PRECONDITION ? WEFT_FAILED_PRECONDITION
                                                                                  : WEFT_ABORTED,
                           __FILE__, __LINE__, "%s", weft_status_message(g->error));
  if (!g->links || !g->addresses[me].magic) return WEFT_ERR(UNAVAILABLE, "being made");
  if (g->live_count == 0) return WEFT_ERR(UNAVAILABLE, "left"); /* the group is about to be freed */
  if (hello->size != g->size || peer < 0 || peer >= g->size || g->local_of[peer] >= 0 || !g->locals[g->local_of[me]])
    return WEFT_ERR(FAILED_PRECONDITION, "communicator %s has %d ranks for rank %d, and %d for rank %d", g->name,
                    g->size, me, hello->size, peer);
  if (hello->dst_incarnation && hello->dst_incarnation != g->incarnations[me])
    return WEFT_ERR(FAILED_PRECONDITION, "rank %d expects incarnation %llu of rank %d, which is %llu", peer,
                    (unsigned long long)hello->dst_incarnation, me, (unsigned long long)g->incarnations[me]);
  WEFT_TRY(coll_address_check(&hello->address, sizeof hello->address, g->size));
  if (!coll_transport_of(hello->transport))
    return WEFT_ERR(FAILED_PRECONDITION, "rank %d asks for transport %d, which is unknown here", peer,
                    hello->transport);
  if (hello->whole != coll_settings_seal_whole())
    return WEFT_ERR(
      FAILED_PRECONDITION,
      "ranks differ in WEFT_COLLECTIVE_TLS or WEFT_COLLECTIVE_INTEGRITY: rank %d %s all of its messages, rank %d %s",
      peer, hello->whole ? "encrypts" : "does not encrypt", me, hello->whole ? "does not" : "does");
  if (g->addresses[peer].magic && g->addresses[peer].incarnation != hello->src_incarnation) {
    coll_rank_describe(g, peer, who, sizeof who);
    return WEFT_ERR(FAILED_PRECONDITION, "%s has incarnation %llu here and says it is %llu", who,
                    (unsigned long long)g->addresses[peer].incarnation, (unsigned long long)hello->src_incarnation);
  }
  return NULL;
}

weft_status *coll_link_adopt_locked(coll_group *g, const coll_hello *hello, int fd, int passed_fd,
                                    coll_session *session)
{
  weft_mutex_assert_held(&g->mu);
  int me = hello->dst, peer = hello->src;
  coll_hello answer;

  WEFT_TRY(check_hello(g, hello));
  coll_address known = g->addresses[peer];
  g->addresses[peer] = hello->address;
  g->addresses[peer].magic = 0; /* so that coll_link_of_locked does not dial */
  coll_link *link = g->links[(size_t)g->local_of[me] * (size_t)g->size + (size_t)peer];
  if (!link) link = coll_link_of_locked(g, g->local_of[me], peer);
  g->addresses[peer] = known.magic ? known : hello->address;
  g->incarnations[peer] = hello->src_incarnation;
  if (!link) return weft_status_dup(g->error);
  if (coll_link_is_ready(link)) /* a rank greets again only if its first connection has ended for it */
    return WEFT_ERR(
      FAILED_PRECONDITION,
      "ranks %d and %d are connected already, and rank %d has lost that connection: integrity, or a fault of "
      "the network (the connection was cut on its way)",
      peer, me, peer);
  if ((link->state == LINK_CONNECTING || link->state == LINK_PROVING || link->state == LINK_GREETING) &&
      peer > me) { /* both sides dialled: the connection of the lower rank, which is this one, stays */
    coll_frame_send(fd, session, COLL_FRAME_YIELD, NULL, 0, -1);
    return WEFT_ERR(ALREADY_EXISTS, "our own connection is under way");
  }
  coll_link_hang_up(link);
  link->state = LINK_WAITING;
  link->broken_ns = 0;
  g->refused_count -= link->refused != NULL;
  weft_status_free(WEFT_MOVE(link->refused));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  link->session = *session;
  weft_status *st = coll_link_open_stream(link, hello, fd, passed_fd);
  link->session = (coll_session){0};
  if (st) return st;
  WEFT_TRY(hello_of(link, &answer));
  WEFT_TRY(fill_address(link, &answer));
  if (!coll_frame_send(fd, session, COLL_FRAME_ACCEPT, &answer, sizeof answer, -1))
    return WEFT_ERR(UNAVAILABLE, "the connection closed");
  link->fd = fd;
  link->session = *session;
  st = coll_context_watch(fd, g, link->id, false);
  if (!st) st = coll_link_become_ready(link);
  if (st) {
    coll_context_unwatch(fd);
    link->fd = -1; /* the caller owns the descriptor and the session again */
    link->session = (coll_session){0};
    coll_link_hang_up(link);
    return st;
  }
  if (passed_fd >= 0) close(passed_fd);
  *session = (coll_session){0};
  return NULL;
}
