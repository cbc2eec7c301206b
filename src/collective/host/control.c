/* collective/host/control.c -- what peers say on the control connections of links, and what the end of a connection
 * means. */
#include <config.h>

#include "collective/host/link_state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collective/context.h"
#include "collective/ended.h"
#include "collective/host/ending.h"
#include "collective/transport/transport.h"

static weft_code code_for_peers(int32_t code)
{
  return code == WEFT_FAILED_PRECONDITION ? WEFT_FAILED_PRECONDITION : WEFT_ABORTED;
}

/* True if every rank of this process has left the group.  Then only the answers to the process's farewell matter. */
static bool is_left_locked(const coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  return g->live_count == 0;
}

/* The peer has left, after it had sent `sent` messages on each channel.  Those that have not come yet are still
 * received. */
static void has_left(coll_link *link, const uint64_t sent[COLL_CHANNELS])
{
  coll_group *g = link->group;

  memcpy(link->rx_last, sent, sizeof link->rx_last);
  link->state = LINK_LEFT;
  if (!link->stream || g->frozen || g->error) return;
  coll_transports_poll(g);
  if (g->locals[link->local]) coll_link_receive_p2p(link);
}

/* The peer's communicator ends or will end, or the peer refuses this side's greeting. */
static void on_reason(coll_link *link)
{
  coll_group *g = link->group;
  int type = (int)link->reader.frame.type;
  const char *what = type == COLL_FRAME_REFUSE ? "refused by" : "aborted by";
  const weft_comm *comm = g->locals[link->local];
  coll_reason reason;
  char who[256];

  weft_mutex_assert_held(&g->mu);
  if (link->reader.frame.bytes != sizeof reason) {
    coll_link_garbage(link, "a control frame of the wrong size");
    return;
  }
  memcpy(&reason, link->reader.payload, sizeof reason);
  reason.text[sizeof reason.text - 1] = '\0';
  link->unheard = false;
  if (is_left_locked(g)) return;
  if (type == COLL_FRAME_ABORT && g->frozen)
    link->told = (int64_t)reason.posted; /* for the report that is being made */
  if (type == COLL_FRAME_ABORT && coll_link_is_ready(link)) has_left(link, reason.sent);
  if (type == COLL_FRAME_REFUSE) { /* this rank has ended all that it can end without a connection to that peer */
    reason.ended = comm ? atomic_load_explicit(&comm->ended_seq, memory_order_relaxed) : 0;
    coll_link_hang_up(link);
    link->state = LINK_WAITING;
  }
  if (reason.lost) {
    coll_dead_add(reason.lost);
    g->lost = reason.lost;
  }
  if (g->error) return;
  coll_rank_describe(g, link->peer, who, sizeof who);
  weft_code code = code_for_peers(reason.code);
  bool passes = strstr(reason.text, "is not connected") || strstr(reason.text, "ranks disagree") ||
                strstr(reason.text, "by rank ");
  weft_status *st = passes ? weft_status_new(code, __FILE__, __LINE__, "%s", reason.text)
                           : weft_status_new(code, __FILE__, __LINE__, "%s %s: %s", what, who, reason.text);
  if (reason.member_lost && !g->frozen) /* frozen: the group is about to fail for a deadline of its own */
    coll_group_lose_member_locked(g, reason.lost, st);
  else coll_group_end_at_locked(g, st, reason.ended, type == COLL_FRAME_REFUSE ? -1 : reason.origin);
}

static void close_socket(coll_link *link)
{
  coll_context_unwatch(link->fd);
  close(link->fd);
  link->fd = -1;
}

/* The control connection of a link has ended, and neither side said that it would.  On a local socket the peer is dead.
 * Over a network an attacker between the hosts may have cut the connection: the diagnosis asks the peer's process. */
static void on_end(coll_link *link, bool given_up)
{
  coll_group *g = link->group;
  bool may_be_cut = !given_up && !link->cut_here && link->session.in;

  if (!may_be_cut && !g->frozen) {
    coll_link_peer_died(link, true, "died: its connection closed");
    return;
  }
  close_socket(link);
  link->doubted = may_be_cut;
  link->asked = g->frozen; /* frozen: a deadline has passed, and the peer is being asked */
  if (g->frozen) return;
  g->doubted_count++;
  atomic_store_explicit(&g->unsent, true,
                        memory_order_relaxed); /* so that the progress thread looks at the group's timers */
  coll_context_wake();
}

static void on_accept(coll_link *link)
{
  coll_group *g = link->group;
  coll_hello hello;
  weft_status *st = NULL;

  weft_mutex_assert_held(&g->mu);
  if (link->state != LINK_GREETING || link->reader.frame.bytes != sizeof hello) {
    coll_link_garbage(link, "an answer to no greeting");
    return;
  }
  memcpy(&hello, link->reader.payload, sizeof hello);
  if (hello.group_id != g->id || hello.src != link->peer || hello.dst != link->rank ||
      hello.src_incarnation != g->addresses[link->peer].incarnation) {
    coll_link_garbage(link, "an answer of another rank or incarnation");
    return;
  }
  g->incarnations[link->peer] = hello.src_incarnation;
  if (!link->stream) st = coll_link_open_stream(link, &hello, link->fd, -1);
  if (!st) st = coll_link_become_ready(link);
  if (st) coll_group_fail_locked(g, st);
}

static void on_farewell(coll_link *link)
{
  coll_group *g = link->group;

  weft_mutex_assert_held(&g->mu);
  if (link->reader.frame.bytes != sizeof link->farewell) {
    coll_link_garbage(link, "a control frame of the wrong size");
    return;
  }
  memcpy(&link->farewell, link->reader.payload, sizeof link->farewell);
  link->unheard = false; /* a peer that leaves needs no farewell */
  if (link->session.out) coll_frame_send(link->fd, &link->session, COLL_FRAME_HEARD, NULL, 0, -1);
  has_left(link, link->farewell.sent);
  coll_p2p_check_left_locked(g);
}

static void on_frame(coll_link *link)
{
  switch (link->reader.frame.type) {
  case COLL_FRAME_BELL: return; /* its only purpose was to wake the thread */
  case COLL_FRAME_ACCEPT: on_accept(link); return;
  case COLL_FRAME_REFUSE:
  case COLL_FRAME_ENDING:
  case COLL_FRAME_ABORT: on_reason(link); return;
  case COLL_FRAME_GOODBYE: on_farewell(link); return;
  case COLL_FRAME_HEARD: link->unheard = false; return;
  case COLL_FRAME_YIELD:
    if (link->state != LINK_GREETING) return;
    coll_link_hang_up(link);
    link->state = LINK_WAITING;
    return;
  default: coll_link_garbage(link, "an unknown control frame");
  }
}

static coll_link *find_link(coll_group *g, uint64_t id)
{
  coll_link *link = g->open_links;
  while (link && link->id != id) link = link->next_open;
  return link;
}

/* This side's connection is under way: continues it. */
static weft_status *connect_on(coll_link *link)
{
  int error = 0;
  socklen_t length = sizeof error;

  if (link->state == LINK_PROVING) return coll_link_prove(link);
  getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error ? WEFT_ERR(UNAVAILABLE, "%s", strerror(error)) : coll_link_prove(link);
}

/* This side's connection could not be made, for the reason `st` (taken). */
static void on_not_connected(coll_link *link, weft_status *st)
{
  bool turned_away = link->state == LINK_PROVING && weft_status_code(st) == WEFT_UNAVAILABLE;

  if (!link->group->topology.size) { /* ranks are still meeting: the bootstrap tries again */
    coll_link_hang_up(link);
    link->state = LINK_WAITING;
    snprintf(link->why, sizeof link->why, "%s", weft_status_message(st));
    weft_status_free(st);
  } else if (turned_away) {
    coll_link_on_turned_away(link, st);
  } else {
    coll_link_on_refused(link, st);
  }
}

void coll_link_ready_locked(coll_group *g, uint64_t id)
{
  weft_mutex_assert_held(&g->mu);
  coll_link *link = find_link(g, id);

  if (!link) coll_transports_woken(g); /* transports watch descriptors under numbers, too */
  if (!link || link->fd < 0 || g->error) return;
  if (link->state == LINK_CONNECTING || link->state == LINK_PROVING) {
    weft_status *st = connect_on(link);
    if (st) on_not_connected(link, st);
    return;
  }
  while (link->fd >= 0 && !g->error) {
    coll_read_result read = coll_frame_read(&link->reader, &link->session, link->fd);
    if (is_left_locked(g) && read != COLL_READ_NONE && read != COLL_READ_FRAME) {
      close_socket(link);
      return;
    }
    switch (read) {
    case COLL_READ_NONE: return;
    case COLL_READ_FRAME: on_frame(link); break;
    case COLL_READ_GARBAGE: coll_link_garbage(link, "a control frame that is too long"); return;
    case COLL_READ_FORGED: coll_link_forged(link, "on the control connection"); return;
    case COLL_READ_DENIED:
      if (link->state == LINK_GREETING)
        on_not_connected(link, WEFT_ERR(UNAUTHENTICATED,
                                        "authentication failed: rank %d does not accept the proof of rank %d",
                                        link->peer, link->rank));
      else coll_link_garbage(link, "an unknown control frame");
      return;
    case COLL_READ_CUT:
    case COLL_READ_LOST:
    case COLL_READ_END:
      if (link->state == LINK_LEFT) close_socket(link);
      else if (link->state == LINK_GREETING && !g->topology.size)
        on_not_connected(link, WEFT_ERR(UNAVAILABLE, "it closed the connection"));
      else if (read == COLL_READ_CUT) coll_link_forged(link, "its control connection ended within a frame");
      else on_end(link, read == COLL_READ_LOST);
      return;
    }
  }
}

static coll_stage stage_of(const coll_link *link)
{
  switch (link->state) {
  case LINK_PROVING: return COLL_STAGE_PROVING;
  case LINK_GREETING: return COLL_STAGE_GREETING;
  case LINK_READY:
    if (link->unheard) return COLL_STAGE_LEAVING;
    return link->doubted ? COLL_STAGE_CUT : link->cut_here ? COLL_STAGE_CLOSED : COLL_STAGE_STANDS;
  case LINK_LEFT: return COLL_STAGE_CLOSED;
  default: return COLL_STAGE_NONE;
  }
}

coll_control coll_link_control_locked(coll_group *g, int rank, int peer)
{
  weft_mutex_assert_held(&g->mu);
  int local = g->local_of[rank], unacked = 0;
  coll_control c = {.open = !g->error && g->links && g->addresses[rank].magic && !is_left_locked(g)};

  if (local < 0 || peer < 0 || peer >= g->size || !g->links) return c;
  coll_link *link = g->links[(size_t)local * (size_t)g->size + (size_t)peer];
  if (!link) return c;
  if (link->fd >= 0 && link->state != LINK_CONNECTING) coll_link_ready_locked(g, link->id);
  c.local = link->fd >= 0 && link->state != LINK_CONNECTING && coll_transport_of(link->transport)->is_local;
  int64_t spoke_ns = WEFT_MAX(link->spoke_ns, link->session.spoke_ns);
  c.stage = stage_of(link);
  c.name = coll_session_name(&link->session);
  c.sent = link->session.spoken;
  c.taken = link->session.taken;
  if (spoke_ns) c.spoke_ago_ns = WEFT_MAX(weft_now_ns() - spoke_ns, INT64_C(1));
  if (link->fd >= 0 && ioctl(link->fd, SIOCOUTQ, &unacked) == 0) c.unacked = (uint32_t)unacked;
  return c;
}

void coll_link_probe_locked(coll_group *g, int rank, int peer)
{
  weft_mutex_assert_held(&g->mu);
  coll_link *link =
    g->local_of[rank] >= 0 && g->links ? g->links[(size_t)g->local_of[rank] * (size_t)g->size + (size_t)peer] : NULL;

  if (link && link->fd >= 0 && link->state == LINK_READY && link->session.out)
    coll_frame_send(link->fd, &link->session, COLL_FRAME_BELL, NULL, 0, -1);
}
