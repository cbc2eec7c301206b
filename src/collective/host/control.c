/* collective/host/control.c -- what peers say on the control connections of links, and what the end of a connection
 * means. */
#include <config.h>

#include "collective/host/link_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

/* The peer has left, after it had sent `sent` messages on each channel.  What is still to come of them is taken in. */
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

static void on_frame(coll_link *link)
{
  switch (link->reader.frame.type) {
  case COLL_FRAME_BELL: return; /* the wake-up was its purpose */
  case COLL_FRAME_ACCEPT: on_accept(link); return;
  case COLL_FRAME_REFUSE:
  case COLL_FRAME_ENDING:
  case COLL_FRAME_ABORT: on_reason(link); return;
  case COLL_FRAME_GOODBYE:
    if (link->reader.frame.bytes != sizeof link->rx_last) {
      coll_link_garbage(link, "a control frame of the wrong size");
      return;
    }
    has_left(link, (const uint64_t *)(const void *)link->reader.payload);
    return;
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
    switch (coll_frame_read(&link->reader, &link->session, link->fd)) {
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
    case COLL_READ_END:
      if (link->state == LINK_LEFT || g->frozen) {
        coll_context_unwatch(link->fd);
        close(link->fd);
        link->fd = -1;
      } else if (link->state == LINK_GREETING && !g->topology.size) {
        on_not_connected(link, WEFT_ERR(UNAVAILABLE, "it closed the connection"));
      } else {
        coll_link_peer_died(link, true, "died: its connection closed");
      }
      return;
    }
  }
}
