/* collective/host/p2p.c -- sends and receives between processes: channel 1 of a link; see link_state.h. */
#include <config.h>

#include "collective/host/link_state.h"

#include <stdlib.h>
#include <string.h>

#include "collective/host/steps.h"

enum { EAGER_BYTES = 64 << 10, MOST_OFFERS = 65536 };

typedef enum coll_p2p_phase {
  P2P_TO_SEND, P2P_EAGER_TO_SEND, P2P_OFFERED, P2P_DATA_TO_SEND, P2P_ACCEPT_TO_SEND, P2P_DATA_TO_COME
} coll_p2p_phase;

/* ---- channel 1: sends and receives ---- */

/* Bytes of the receiver's room that an eager send takes. */
static size_t eager_cost(int64_t bytes) { return sizeof(coll_offer) + (size_t)bytes; }

static bool may_be_eager(const coll_link *link, const coll_msg *msg)
{
  int64_t bytes = coll_msg_bytes(msg);
  return bytes <= EAGER_BYTES && eager_cost(bytes) <= link->room_there && !coll_link_is_bulk(link, msg);
}

/* Sends the payload of a send that is eager or accepted; lends it where that is worthwhile.  True when the peer has
 * it. */
static bool send_data(coll_link *link, coll_msg *msg)
{
  if (msg->op->phase == P2P_EAGER_TO_SEND) return coll_link_send_some(link, 1, msg, COLL_MESSAGE_EAGER);
  if (link->lends == msg) return coll_link_is_lent(link);
  if (msg->header_done || link->lends || !coll_link_is_bulk(link, msg))
    return coll_link_send_some(link, 1, msg, COLL_MESSAGE_DATA);
  coll_link_lend(link, 1, msg, COLL_MESSAGE_DATA);
  return false;
}

/* Announces room that is free again, if there is enough of it to be worth a message and no message is half sent. */
static void give_room(coll_link *link)
{
  coll_header h = {.type = COLL_MESSAGE_ROOM, .bytes = link->room_due};
  const coll_msg *open = link->frames.head;
  void *at;

  if (link->room_due < COLL_EAGER_ROOM / 2 || (open && open->header_done) ||
      link->stream->ops->space(link->stream, 1, &at) < sizeof h)
    return;
  coll_header_seal(&h);
  memcpy(at, &h, sizeof h);
  link->tx_count[1]++;
  link->stream->ops->commit(link->stream, 1, sizeof h);
  link->room_here += link->room_due;
  link->room_due = 0;
}

bool coll_link_send_p2p(coll_link *link)
{
  bool any = false;

  give_room(link);
  for (coll_msg *msg; (msg = link->frames.head);) {
    coll_op *op = msg->op;
    void *at;
    if (op->phase == P2P_TO_SEND && may_be_eager(link, msg)) {
      link->room_there -= eager_cost(op->problem.bytes);
      op->phase = P2P_EAGER_TO_SEND;
    }
    if (op->phase == P2P_DATA_TO_SEND || op->phase == P2P_EAGER_TO_SEND) {
      int64_t before = msg->done_bytes;
      bool done = send_data(link, msg);
      any |= msg->done_bytes != before;
      if (!done) break;
      coll_fifo_pop(&link->frames);
      coll_op_finish_locked(op, NULL);
    } else {
      bool offers = op->phase == P2P_TO_SEND;
      if (link->stream->ops->space(link->stream, 1, &at) < COLL_STREAM_UNIT) break;
      coll_fifo_pop(&link->frames);
      link->tx_count[1]++;
      link->stream->ops->commit(
        link->stream, 1,
        coll_header_put(at, op, offers ? COLL_MESSAGE_OFFER : COLL_MESSAGE_ACCEPT, op->p2p_id, op->problem.bytes));
      op->phase = offers ? P2P_OFFERED : P2P_DATA_TO_COME;
      coll_fifo_push(offers ? &link->offered : &link->incoming, msg);
    }
    any = true;
  }
  return any;
}

/* A receive has met an offer or an eager message.  False if the group failed. */
static bool meet(coll_link *link, coll_op *recv, const coll_header *h)
{
  if ((int64_t)h->bytes != recv->problem.bytes || h->dtype != recv->args.dtype) {
    coll_link_disagree(link, h, "", recv);
    return false;
  }
  recv->p2p_id = h->id;
  recv->phase = h->type == COLL_MESSAGE_OFFER ? P2P_ACCEPT_TO_SEND : P2P_DATA_TO_COME;
  if (h->type == COLL_MESSAGE_OFFER) coll_fifo_push(&link->frames, &recv->p2p);
  return true;
}

static void received(coll_link *link, coll_op *recv, const coll_header *h)
{
  if (h->type == COLL_MESSAGE_EAGER) link->room_due += eager_cost((int64_t)h->bytes);
  coll_op_finish_locked(recv, NULL);
}

/* Lets the rest of a payload go straight to the receive. */
static void receive_rest(coll_link *link, coll_op *recv, const coll_header *h)
{
  link->rx1 = *h;
  link->rx1_msg = &recv->p2p;
}

/* Gives a receive the part of the kept payload that has come. */
static void receive_kept(coll_link *link, coll_op *recv, const coll_offer *o)
{
  if (o->got) coll_engine_deliver(&recv->p2p, o->payload, o->got);
  if (link->storing != o) {
    received(link, recv, &o->header);
    return;
  }
  link->storing = NULL;
  receive_rest(link, recv, &o->header);
}

/* Takes the first message that `fits` out of a FIFO; NULL: none. */
static coll_msg *take(coll_fifo *fifo, bool (*fits)(const coll_op *op, const coll_header *h, int peer),
                      const coll_header *h, int peer)
{
  coll_msg *before = NULL;

  for (coll_msg **at = &fifo->head; *at; before = *at, at = &(*at)->next) {
    coll_msg *msg = *at;
    if (!fits(msg->op, h, peer)) continue;
    *at = msg->next;
    if (fifo->tail == msg) fifo->tail = before;
    return msg;
  }
  return NULL;
}
static bool has_id(const coll_op *op, const coll_header *h, int peer)
{
  (void)peer;
  return op->p2p_id == h->id;
}
static bool wants_offer(const coll_op *op, const coll_header *h, int peer)
{
  return op->args.tag == h->tag && (op->args.peer < 0 || op->args.peer == peer);
}

/* Keeps an offer or an eager message that no receive has met yet. */
static void keep(coll_link *link, const coll_header *h)
{
  bool eager = h->type == COLL_MESSAGE_EAGER;
  coll_offer *o = link->offer_count < MOST_OFFERS ? malloc(sizeof *o + (eager ? h->bytes : 0)) : NULL;

  if (!o) {
    coll_link_garbage(link, "more offers of messages than anybody receives");
    return;
  }
  *o = (coll_offer){.header = *h, .arrival = link->group->offers_seen++};
  *link->offers_tail = o;
  link->offers_tail = &o->next;
  link->offer_count++;
  if (eager) link->storing = o;
}

/* An offer or an eager message has come. */
static void on_send(coll_link *link, const coll_header *h)
{
  bool eager = h->type == COLL_MESSAGE_EAGER;

  if (h->id != link->rx_p2p_id++) {
    coll_link_garbage(link, "a message came twice, or one got lost");
    return;
  }
  if (eager && (h->bytes > EAGER_BYTES || eager_cost((int64_t)h->bytes) > link->room_here)) {
    coll_link_garbage(link, "more than it was given room for");
    return;
  }
  if (eager) link->room_here -= eager_cost((int64_t)h->bytes);
  coll_msg *recv = take(&link->group->locals[link->local]->p2p_recvs, wants_offer, h, link->peer);
  if (!recv) keep(link, h);
  else if (meet(link, recv->op, h) && eager) receive_rest(link, recv->op, h);
}

/* Receives the payload of an eager message that is kept.  True when it is complete. */
static bool store_some(coll_link *link)
{
  coll_stream *s = link->stream;
  coll_offer *o = link->storing;

  while (o->got < o->header.bytes) {
    const void *at;
    size_t n = s->ops->data(s, 1, &at); /* read once, because the peer may write meanwhile */
    n = WEFT_MIN(n, (size_t)o->header.bytes - o->got);
    if (n == 0) return false;
    memcpy(o->payload + o->got, at, n);
    s->ops->consume(s, 1, WEFT_ALIGN_UP(n, (size_t)COLL_STREAM_UNIT));
    o->got += n;
  }
  link->storing = NULL;
  return true;
}

bool coll_link_receive_p2p(coll_link *link)
{
  coll_stream *s = link->stream;
  bool any = false;

  while (!link->group->error) {
    const void *at;
    coll_header h;
    if (link->rx1_msg) {
      int64_t before = link->rx1_msg->done_bytes;
      bool done = link->rx1.type & COLL_MESSAGE_IS_LENT
                    ? coll_link_borrow_some(link, link->rx1_msg, link->rx1.bytes)
                    : coll_link_receive_some(link, 1, link->rx1_msg, (int64_t)link->rx1.bytes);
      any |= done || link->rx1_msg->done_bytes != before;
      if (!done) break;
      received(link, WEFT_MOVE(link->rx1_msg)->op, &link->rx1);
      continue;
    }
    if (link->storing) {
      size_t before = link->storing->got;
      const coll_offer *o = link->storing;
      bool done = store_some(link);
      any |= done || o->got != before;
      if (!done) break;
      continue;
    }
    if (s->ops->data(s, 1, &at) < sizeof h) break;
    memcpy(&h, at, sizeof h);
    s->ops->consume(s, 1, sizeof h);
    link->rx_count[1]++;
    any = true;
    coll_msg *met = NULL;
    if (!coll_header_is_sound(&h)) {
      coll_link_garbage(link, "a message header is damaged");
    } else if (h.type == COLL_MESSAGE_OFFER || h.type == COLL_MESSAGE_EAGER) {
      on_send(link, &h);
    } else if (h.type == COLL_MESSAGE_ROOM && h.bytes <= COLL_EAGER_ROOM - link->room_there) {
      link->room_there += h.bytes;
    } else if (h.type == COLL_MESSAGE_ACCEPT && link->group->ending) {
      /* of an offer that has ended meanwhile */
    } else if (h.type == COLL_MESSAGE_ACCEPT && (met = take(&link->offered, has_id, &h, 0))) {
      met->op->phase = P2P_DATA_TO_SEND;
      coll_fifo_push(&link->frames, met);
    } else if ((h.type & ~(s->ops->borrow ? COLL_MESSAGE_IS_LENT : 0)) == COLL_MESSAGE_DATA &&
               (met = take(&link->incoming, has_id, &h, 0)) && (int64_t)h.bytes == met->op->problem.bytes) {
      receive_rest(link, met->op, &h);
      if (h.type & COLL_MESSAGE_IS_LENT)
        /* reading the payload takes long: first lend the sends that the peer has accepted, so that both sides read at
         * the same time */
        break;
    } else {
      coll_link_garbage(link, "a message that answers nothing");
    }
  }
  return any;
}

bool coll_link_has_p2p(const coll_link *link)
{
  const weft_comm *comm = link->group->locals[link->local];
  return link->frames.head || link->offered.head || link->incoming.head || link->rx1_msg ||
         (comm && comm->p2p_recvs.head);
}

bool coll_link_has_all_p2p(const coll_link *link)
{
  return !link->rx1_msg && !link->storing && link->rx_count[1] >= link->rx_last[1];
}

/* ---- posting ---- */

/* The oldest offer that a receive would take, from all links of its rank. */
static coll_link *find_offer(coll_group *g, int local, const coll_op *recv, coll_offer ***out_at)
{
  coll_link *found = NULL;
  uint64_t oldest = UINT64_MAX;

  for (coll_link *link = g->open_links; link; link = link->next_open) {
    if (link->local != local) continue;
    for (coll_offer **at = &link->offers; *at; at = &(*at)->next) {
      if (!wants_offer(recv, &(*at)->header, link->peer) || (*at)->arrival >= oldest) continue;
      oldest = (*at)->arrival;
      found = link;
      *out_at = at;
      break;
    }
  }
  return found;
}

bool coll_link_p2p_locked(coll_group *g, int local, coll_op *op)
{
  weft_mutex_assert_held(&g->mu);
  if (op->args.kind == WEFT_SEND) {
    coll_link *link = coll_link_of_locked(g, local, op->args.peer);
    if (!link) return true; /* the group has failed */
    op->p2p_id = link->next_p2p_id++;
    op->phase = P2P_TO_SEND;
    coll_fifo_push(&link->frames, &op->p2p);
    return true;
  }
  if (op->args.peer >= 0 && g->local_of[op->args.peer] < 0 && !coll_link_of_locked(g, local, op->args.peer))
    return true;
  coll_offer **at, *o;
  coll_link *link = find_offer(g, local, op, &at);
  if (!link) return false;
  o = *at;
  *at = o->next;
  if (!o->next) link->offers_tail = at;
  link->offer_count--;
  if (meet(link, op, &o->header) && o->header.type == COLL_MESSAGE_EAGER) receive_kept(link, op, o);
  free(o);
  return true;
}

/* ---- sends and receives that a platform's communicator has ----
 *
 * The n-th send of a rank to another one meets the n-th receive there.  So a rank that leaves says how many of each it
 * has had: all of these have ended at the rank, and the other halves end soon.  Further ones would never end. */

enum { SENDS, RECVS };

static coll_pair *pair_of(coll_group *g, const coll_op *op)
{
  int me = op->comm->local, there = g->local_of[op->args.peer];

  return &g->pairs[op->args.kind == WEFT_SEND ? me * g->local_count + there : there * g->local_count + me];
}

static coll_link *known_link(const coll_group *g, const coll_op *op)
{
  return g->links[(size_t)op->comm->local * (size_t)g->size + (size_t)op->args.peer];
}

/* Has the peer left without the other half of the operation? */
static bool never_meets(coll_group *g, const coll_op *op)
{
  int other = op->args.kind == WEFT_SEND ? RECVS : SENDS, there = g->local_of[op->args.peer];

  if (there >= 0) return !g->locals[there] && pair_of(g, op)->below[other] <= op->p2p_id;
  const coll_link *link = known_link(g, op);
  return link && link->state == LINK_LEFT && link->farewell.below[other] <= op->p2p_id;
}

static void fail_unmet(coll_group *g, const coll_op *op) WEFT_REQUIRES(g->mu)
{
  char who[256];

  coll_rank_describe(g, op->args.peer, who, sizeof who);
  coll_group_fail_locked(
    g, WEFT_ERR(FAILED_PRECONDITION, "%s left the communicator, and has not %s rank %d", who,
                op->args.kind == WEFT_SEND ? "received what was sent by" : "sent what was awaited by", op->comm->rank));
}

bool coll_p2p_goes_below_locked(coll_group *g, coll_op *op)
{
  int half = op->args.kind == WEFT_SEND ? SENDS : RECVS;

  weft_mutex_assert_held(&g->mu);
  if (g->local_of[op->args.peer] >= 0) {
    op->p2p_id = pair_of(g, op)->below[half]++;
  } else {
    coll_link *link = coll_link_of_locked(g, op->comm->local, op->args.peer); /* by which this rank hears of the peer */
    if (!link) return false;
    op->p2p_id = link->below[half]++;
  }
  if (!g->ending && never_meets(g, op)) fail_unmet(g, op);
  return !g->error;
}

void coll_p2p_check_left_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  for (const coll_op *op = g->all_pending; op && !g->error && !g->ending && !g->frozen; op = op->pending_next) {
    if (!op->below || op->collective || !never_meets(g, op)) continue;
    fail_unmet(g, op);
    return;
  }
}

/* ---- sends and receives of a communicator that ends ---- */

/* True if the peer has sent messages that have not come.  Other ranks may say which rank gave up first, before that
 * rank's own frame says how many messages it sent. */
static bool is_awaited(const coll_link *link)
{
  return link->state == LINK_LEFT ? !coll_link_has_all_p2p(link)
                                  : link->state == LINK_READY && link->peer == link->group->origin;
}

/* True if a message that was sent earlier may still meet this receive. */
static bool may_come(const coll_group *g, const coll_msg *recv)
{
  for (const coll_link *link = g->open_links; link; link = link->next_open)
    if (link->rank == recv->op->comm->rank && (recv->op->args.peer < 0 || recv->op->args.peer == link->peer) &&
        is_awaited(link))
      return true;
  return false;
}
static bool never(const coll_group *g, const coll_msg *msg)
{
  (void)g;
  (void)msg;
  return false;
}
static bool is_under_way(const coll_group *g, const coll_msg *msg)
{
  (void)g;
  return msg->header_done;
}

/* Ends the messages of a FIFO, except those for which `stays` is true. */
static void end_others(coll_group *g, coll_fifo *fifo, bool (*stays)(const coll_group *g, const coll_msg *msg))
{
  coll_fifo kept = {0};

  for (coll_msg *msg; (msg = coll_fifo_pop(fifo));) {
    if (stays(g, msg)) coll_fifo_push(&kept, msg);
    else coll_op_finish_locked(msg->op, weft_status_dup(g->ending));
  }
  *fifo = kept;
}

void coll_links_end_p2p_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < g->local_count; i++) {
    if (!g->locals[i]) continue;
    end_others(g, &g->locals[i]->p2p_sends, never);
    end_others(g, &g->locals[i]->p2p_recvs, may_come);
  }
  for (coll_link *link = g->open_links; link; link = link->next_open) {
    end_others(g, &link->frames, is_under_way);
    end_others(g, &link->offered, never);
    if (link->state == LINK_LEFT && coll_link_has_all_p2p(link)) end_others(g, &link->incoming, never);
  }
}

bool coll_links_owe_p2p_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  for (const coll_link *link = g->open_links; link; link = link->next_open)
    if (is_awaited(link) ||
        (link->state == LINK_LEFT && link->offers && link->offers->header.type == COLL_MESSAGE_EAGER))
      return true;
  return false;
}
