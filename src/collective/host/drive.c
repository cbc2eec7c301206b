/* collective/host/drive.c -- moves what can be moved on the links of a group, and notices what is wrong with them. */
#include <config.h>

#include "collective/host/link_state.h"

#include <string.h>

#include "collective/context.h"
#include "collective/host/ending.h"
#include "collective/transport/transport.h"

/* How long a peer whose stream broke has to give a reason on its control connection before it counts as dead. */
#define WORD_NS (50 * WEFT_NS_PER_MS)

/* The same for a peer whose process refuses connections.  The peer may have given up and left; then others, to which
 * it was connected, pass on what it said. */
#define REFUSED_WORD_NS WEFT_NS_PER_S

/* True if all messages of schedules have come that the peer, which has left, had sent. */
static bool has_all_steps(const coll_link *link) { return !link->rx_open && link->rx_count[0] >= link->rx_last[0]; }

/* Are there messages of a collective that may still end well?  Where a platform moves the data, the ranks of a group
 * that ends may be meeting at later ones. */
static bool is_needed(const coll_link *link, const coll_fifo *fifo)
{
  return fifo->head && (!link->group->ending || fifo->head->op->seq < link->group->ends_at);
}

/* True if this side needs a message of a peer that has left, and the message cannot come any more. */
static bool waits_in_vain(const coll_link *link)
{
  bool p2p = link->offered.head || link->incoming.head;
  const weft_comm *comm = link->group->locals[link->local];

  for (const coll_msg *m = comm ? comm->p2p_recvs.head : NULL; m; m = m->next) p2p |= m->op->args.peer == link->peer;
  return is_needed(link, &link->sends) || (is_needed(link, &link->recvs) && has_all_steps(link)) ||
         (p2p && coll_link_has_all_p2p(link));
}

static void mind_refused(coll_link *link)
{
  char how[512];

  if (link->redials > 0) {
    coll_link_redial(link);
    return;
  }
  if (weft_now_ns() - link->broken_ns <= REFUSED_WORD_NS) return;
  snprintf(how, sizeof how,
           "cannot be reached: its process ended, or left all its communicators, and nobody has told us why (%s)",
           weft_status_message(link->refused));
  coll_link_peer_died(link, false, how);
}

/* The stream's own connection is gone.  If the sealed control connection still stands, the peer is alive: the network,
 * or an attacker on the way, cut or damaged the stream's connection. */
static void data_connection_lost(coll_link *link, const char *why)
{
  char how[512];

  uint64_t owed = coll_link_owed_by_left(link->group, link->rank, link->peer);
  const char *cut = link->state == LINK_READY
                      ? "; its control connection stands: integrity, or a fault of the network (the "
                        "connection of its data was cut or damaged on its way)"
                    : owed ? "; it has left, and messages that it had sent before have not come: integrity, or a "
                             "fault of the network"
                           : "";
  snprintf(how, sizeof how, "%s%s", why, cut);
  coll_link_peer_died(link, false, how);
}

/* An operation needs the link and nothing moves on it: finds out why. */
static void look_what_is_wrong(coll_link *link)
{
  coll_group *g = link->group;
  bool left = link->state == LINK_LEFT;
  char who[256];

  weft_mutex_assert_held(&g->mu);
  if (left && waits_in_vain(link)) {
    coll_rank_describe(g, link->peer, who, sizeof who);
    coll_group_fail_locked(g, g->ending ? weft_status_dup(g->ending)
                                        : WEFT_ERR(FAILED_PRECONDITION, "%s left the communicator", who));
    return;
  }
  bool steps = is_needed(link, &link->sends) || is_needed(link, &link->recvs);
  if (left && (has_all_steps(link) || !steps) && coll_link_has_all_p2p(link)) return; /* its stream is of no use */
  weft_status *st = link->stream->ops->health(link->stream);
  if (!st) return;
  if (!link->broken_ns) link->broken_ns = weft_now_ns();
  if (weft_status_code(st) == WEFT_UNAUTHENTICATED) coll_link_forged(link, weft_status_message(st));
  else if (weft_status_code(st) != WEFT_UNAVAILABLE) coll_link_garbage(link, weft_status_message(st));
  else if (weft_now_ns() - link->broken_ns > WORD_NS && left && g->ending)
    coll_group_fail_locked(g, weft_status_dup(g->ending));
  else if (weft_now_ns() - link->broken_ns > WORD_NS && !link->doubted) /* else its process is being asked */
    data_connection_lost(link, weft_status_message(st));
  weft_status_free(st);
}

static bool progress(coll_link *link)
{
  coll_group *g = link->group;
  bool any = false, p2p = coll_link_has_p2p(link);

  if (link->state == LINK_REFUSED) mind_refused(link);
  if (!coll_link_is_ready(link)) return false;
  if (!link->sends.head && !link->recvs.head && !p2p && !link->stream->unsent) return false;
  if (link->stream->ops->poll) any |= link->stream->ops->poll(link->stream);
  if (link->recvs.head) any |= coll_link_receive_steps(link);
  if (link->sends.head && !g->error) any |= coll_link_send_steps(link);
  if (p2p && !g->error) any |= coll_link_receive_p2p(link);
  if (p2p && !g->error) any |= coll_link_send_p2p(link);
  if (!any && !g->error) look_what_is_wrong(link);
  return any;
}

/* A spent group still sends the data that it has committed, for a second at most: peers may need the data to end
 * operations that this group has ended. */
static bool flush_spent(coll_group *g)
{
  bool any = coll_transports_open(g) && coll_transports_poll(g), unsent = false,
       in_time = g->ends_at && weft_now_ns() < g->spent_ns + WEFT_NS_PER_S;

  for (coll_link *link = g->open_links; link; link = link->next_open) {
    if (link->stream && link->stream->ops->poll) any |= link->stream->ops->poll(link->stream);
    unsent |= link->stream && link->stream->unsent && !coll_link_peer_has_ended(link);
  }
  atomic_store_explicit(&g->bulk, false, memory_order_relaxed);
  atomic_store_explicit(&g->unsent, unsent && in_time, memory_order_relaxed);
  return any;
}

bool coll_links_poll_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  if (g->error) return flush_spent(g);
  bool any = coll_transports_open(g) && coll_transports_poll(g), unsent = false, bulk = false;

  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    any |= progress(link);
    unsent |= link->stream && link->stream->unsent;
    bulk |= link->lends || link->borrows;
  }
  atomic_store_explicit(&g->bulk, bulk && !g->error, memory_order_relaxed);
  atomic_store_explicit(&g->unsent, (unsent || g->refused_count || g->doubted_count) && !g->error,
                        memory_order_relaxed);
  return any;
}

/* Looks at the header of a message that no operation of this rank expects: the peer may be at another operation. */
static void look_for_strays(coll_link *link)
{
  const coll_op *op = link->group->locals[link->local] ? link->group->locals[link->local]->head : NULL;
  const void *at;
  coll_header h;

  if (!op || link->recvs.head || link->rx_open || link->stream->ops->data(link->stream, 0, &at) < sizeof h) return;
  memcpy(&h, at, sizeof h);
  if (!coll_header_is_sound(&h)) coll_link_garbage(link, "a message header is damaged");
  else if (h.seq < op->seq || (h.seq == op->seq && h.fingerprint != op->fingerprint))
    coll_link_disagree(link, &h, "", op);
}

bool coll_links_arm_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  bool quiet = true, waits = false;

  if ((!g->all_pending && !atomic_load_explicit(&g->unsent, memory_order_relaxed)) || g->frozen) return true;
  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    if (!coll_link_is_ready(link)) continue;
    bool still = link->stream->ops->arm(link->stream);
    bool needed = link->sends.head || link->recvs.head || coll_link_has_p2p(link) || link->stream->unsent;
    quiet = quiet && (still || !needed) && !link->broken_ns;
    waits |= needed;
    look_for_strays(link);
  }
  bool still = g->error || coll_transports_arm(g);
  return quiet && (still || !waits);
}

/* ---- posting ---- */

void coll_link_post_locked(coll_group *g, int local, int peer, coll_msg *msg)
{
  weft_mutex_assert_held(&g->mu);
  coll_link *link = coll_link_of_locked(g, local, peer);

  if (!link) return;
  coll_fifo_push(msg->step->kind == COLL_SEND ? &link->sends : &link->recvs, msg);
  if (!coll_link_is_ready(link)) return;
  if (msg->step->kind == COLL_SEND) coll_link_send_steps(link);
  else coll_link_receive_steps(link);
  if (link->stream->unsent) atomic_store_explicit(&g->unsent, true, memory_order_relaxed);
}
