/* collective/host/ending.c -- how a communicator that has peers ends: which messages the peers get, which operations
 * still end well, and when links close. See "When a communicator ends" in the README. */
#include <config.h>

#include "collective/host/ending.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collective/context.h"
#include "collective/ended.h"
#include "collective/host/link_state.h"
#include "collective/transport/transport.h"

static bool is_behind_locked(const coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && atomic_load_explicit(&g->locals[i]->ended_seq, memory_order_relaxed) < g->ends_at) return true;
  return false;
}

static bool has_collectives_locked(const coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && g->locals[i]->head) return true;
  return false;
}

void coll_group_check_end_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  coll_links_end_p2p_locked(g);
  coll_links_end_meetings_locked(g);
  if (!g->ending || is_behind_locked(g) || (!has_collectives_locked(g) && coll_links_owe_p2p_locked(g))) return;
  coll_group_fail_locked(g, WEFT_MOVE(g->ending));
}

/* Sends to all peers the number of collectives at which the group ends. */
static void tell_end(coll_group *g)
{
  coll_reason reason = {.code = weft_status_code(g->ending), .origin = g->origin, .ended = g->ends_at};

  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(g->ending));
  for (coll_link *link = g->open_links; link; link = link->next_open)
    if (link->fd >= 0 && link->state == LINK_READY)
      coll_frame_send(link->fd, &link->session, COLL_FRAME_ENDING, &reason, sizeof reason, -1);
}

void coll_group_end_at_locked(coll_group *g, weft_status *st, uint64_t ends_at, int origin)
{
  weft_mutex_assert_held(&g->mu);
  bool earlier = !g->ending || ends_at < g->ends_at;

  g->ends_at = WEFT_MIN(g->ends_at, ends_at);
  if (g->error || g->frozen || !earlier) { /* frozen: the group is about to fail for a deadline of its own */
    weft_status_free(st);
    if (g->ending && !g->frozen) coll_group_check_end_locked(g);
    return;
  }
  weft_status_free(g->ending);
  g->ending = st;
  g->origin = origin;
  for (coll_op *op = g->all_pending, *next; op; op = next) { /* operations that run already end with the group */
    next = op->pending_next;
    if (op->collective && op->seq >= g->ends_at && !op->started && !op->runnable)
      coll_op_finish_locked(op, weft_status_dup(st));
  }
  coll_group_check_end_locked(g);
  if (g->ending) tell_end(g);
}

bool coll_link_peer_has_ended(const coll_link *link)
{
  struct pollfd one = {.fd = link->fd, .events = POLLRDHUP};
  return link->fd < 0 || link->state == LINK_LEFT || poll(&one, 1, 0) != 0;
}

/* Fills in the fields that are the same for all peers. */
static coll_reason reason_of(const coll_group *g, const weft_status *st, uint64_t ended)
{
  coll_reason reason = {.code = weft_status_code(st), .ended = ended, .lost = g->lost, .member_lost = g->member_lost};

  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i])
      reason.ended = WEFT_MIN(reason.ended, atomic_load_explicit(&g->locals[i]->ended_seq, memory_order_relaxed));
  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(st));
  return reason;
}

void coll_links_fail_locked(coll_group *g, const weft_status *st)
{
  weft_mutex_assert_held(&g->mu);
  uint64_t posted = 0;

  if (!g->addresses) return;
  for (coll_link *link = g->open_links; link; link = link->next_open)
    if (link->stream && link->stream->ops->revoke) link->stream->ops->revoke(link->stream);
  coll_reason reason = reason_of(g, st, coll_transports_lost_some(g) ? 0 : g->ends_at);
  for (coll_link *link = g->open_links; link; link = link->next_open) {
    const weft_comm *comm = g->locals[link->local];
    reason.origin = g->origin >= 0 ? g->origin : link->rank;
    reason.posted = comm ? coll_comm_posted(comm) : 0;
    memcpy(reason.sent, link->tx_count, sizeof reason.sent);
    posted = WEFT_MAX(posted, reason.posted);
    if (link->fd >= 0) {
      if (link->state != LINK_CONNECTING && link->state != LINK_PROVING)
        coll_frame_send(link->fd, &link->session, COLL_FRAME_ABORT, &reason, sizeof reason, -1);
      coll_context_unwatch(link->fd);
      shutdown(link->fd, SHUT_WR);
    }
    link->sends = link->recvs = link->frames = link->offered = link->incoming = (coll_fifo){0};
    link->rx1_msg = link->lends = link->borrows = NULL;
    link->storing = NULL;
    if (link->stream && link->stream->unsent) atomic_store_explicit(&g->unsent, true, memory_order_relaxed);
  }
  coll_ended_add(g->id, posted, reason.text);
}

/* ---- leaving ----
 *
 * An attacker between the hosts may remove the farewell, and then the end of the connection, which follows, looks like
 * that of a process that was killed.  So a process waits until its peers have heard it.  If a peer does not answer,
 * this process ends the connection and stays for a moment: if the peer then asks this process, it answers that it has
 * left. */

#define HEARD_SOON_NS (300 * WEFT_NS_PER_MS)
#define STAYS_NS WEFT_NS_PER_S

/* Returns whether the farewell was sent. */
static bool say_goodbye(coll_link *link)
{
  coll_stream_counts counts = coll_link_counts(link->group, link->rank, link->peer);
  coll_farewell farewell = {.left_bytes = counts.left_bytes};

  memcpy(farewell.sent, link->tx_count, sizeof farewell.sent);
  memcpy(farewell.left, counts.left, sizeof farewell.left);
  memcpy(farewell.below, link->below, sizeof farewell.below);
  return coll_frame_send(link->fd, &link->session, COLL_FRAME_GOODBYE, &farewell, sizeof farewell, -1);
}

static void say_goodbyes_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    if (link->fd < 0 || (link->state != LINK_READY && link->state != LINK_GREETING)) continue;
    bool said = say_goodbye(link);
    link->unheard = said && link->session.out && link->state == LINK_READY; /* sealed: it leaves this host */
  }
}

/* True if a link is left whose peer has not confirmed the farewell.  `ends`: ends this side of the connection of each
 * such link. */
static bool is_unheard_locked(coll_group *g, bool ends) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  bool unheard = false;

  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    unheard |= link->unheard;
    if (link->unheard && ends && link->fd >= 0) shutdown(link->fd, SHUT_WR);
  }
  return unheard;
}

void coll_links_leave(coll_group *g)
{
  int64_t began_ns = weft_now_ns(), waited_ns = 0;
  struct timespec nap = {.tv_nsec = 20000};
  bool unheard, ended = false;

  coll_group_lock(g);
  say_goodbyes_locked(g);
  unheard = is_unheard_locked(g, false);
  coll_group_unlock(g);
  if (coll_context_is_progress_thread()) return; /* which takes the answers */
  while (unheard && waited_ns < STAYS_NS) {
    nanosleep(&nap, NULL);
    nap.tv_nsec = WEFT_MIN(2 * nap.tv_nsec, 2 * WEFT_NS_PER_MS);
    waited_ns = weft_now_ns() - began_ns;
    bool ends = !ended && waited_ns > HEARD_SOON_NS;
    coll_group_lock(g);
    unheard = is_unheard_locked(g, ends);
    coll_group_unlock(g);
    ended |= ends;
  }
}

void coll_links_close_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  for (coll_link *link = g->open_links, *next; link; link = next) {
    next = link->next_open;
    if (link->stream) link->stream->unwanted = g->error && coll_link_peer_has_ended(link);
    coll_link_hang_up(link);
    for (coll_offer *o = link->offers, *after; o; o = after) {
      after = o->next;
      free(o);
    }
    g->links[(size_t)link->local * (size_t)g->size + (size_t)link->peer] = NULL;
    free(link->scratch);
    weft_status_free(link->refused);
    free(link);
  }
  g->open_links = NULL;
  coll_transports_close(g);
}
