/* collective/link.c -- messages between ranks of different processes: connecting, framing, matching, dying.
 *
 * Channel 0 carries the messages of schedules, in order: each is a header, perhaps the instruction's name, and the
 * payload, padded to units.  A message stays in the stream until its receive is posted; that is the flow control.
 * Channel 1 carries sends and receives: OFFER, answered by ACCEPT once a receive matches, then DATA.  So nothing on it
 * ever waits for a receive that is not posted.  Small sends do not ask (EAGER): what no receive has met yet is kept here,
 * and each peer has so much ROOM for that; when it is used up, its sends ask again.
 *
 * Large payloads of both are lent.  One thing at a time is: a schedule's message may wait for a send's, whose receive is
 * posted, but not the other way round.  A send that finds something lent goes through the stream instead. */
#include <config.h>

#include "collective/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/fabric/fabric.h"

#define HEADER_MAGIC UINT32_C(0x3147534d)

enum { PIECE_BYTES = 64 << 10, BULK_PIECE_BYTES = 256 << 10, SITE_BYTES = COLL_STREAM_UNIT, MOST_OFFERS = 65536 };
enum { EAGER_BYTES = 64 << 10, EAGER_ROOM = 256 << 10 };

/* How long a peer whose stream broke has to say why on the control connection, before it counts as dead. */
#define WORD_NS (50 * WEFT_NS_PER_MS)

/* The same for a peer whose process refuses connections: it may have given up and left, and what it said about that comes
 * by way of others, whom it was connected to. */
#define REFUSED_WORD_NS WEFT_NS_PER_S

typedef enum link_state {
  LINK_WAITING,    /* for the peer's connection */
  LINK_CONNECTING, /* our connection is under way */
  LINK_GREETING,   /* HELLO sent */
  LINK_READY,
  LINK_REFUSED,    /* nobody listens at the peer's address; see REFUSED_WORD_NS */
  LINK_LEFT,       /* the peer said goodbye; what it sent before still counts, and may still be on its way */
} link_state;

typedef enum coll_p2p_phase {
  P2P_TO_SEND, P2P_EAGER_TO_SEND, P2P_OFFERED, P2P_DATA_TO_SEND, P2P_ACCEPT_TO_SEND, P2P_DATA_TO_COME
} coll_p2p_phase;

/* An offer that no receive has met yet, or what came without being asked for. */
typedef struct offer {
  struct offer *next;
  coll_header header;
  uint64_t arrival; /* of all offers of the group, for receives from any rank */
  size_t got;       /* bytes of an eager payload */
  char payload[];
} offer;

struct coll_link {
  coll_link *next_open;
  coll_group *group;
  uint64_t id;
  int local, rank, peer, fd; /* rank: of ours, number `local`; its communicator may be gone while others of the group are not */
  link_state state;
  coll_stream *stream;       /* NULL until greeting (shm) or ready */
  coll_frame_reader reader;
  coll_fifo sends, recvs;    /* channel 0 */
  coll_header rx;            /* of the message coming in on channel 0 */
  char rx_site[SITE_BYTES + 1];
  bool rx_open;
  coll_msg *lends;           /* sends.head or frames.head, if its payload is lent */
  coll_msg *borrows;         /* recvs.head or rx1_msg, while some of what is lent to it is under way: */
  size_t borrowing;          /* so many bytes */
  char *scratch;             /* BULK_PIECE_BYTES, for what is borrowed and then reduced; NULL until needed */
  uint64_t tx_count[COLL_CHANNELS], rx_count[COLL_CHANNELS]; /* messages begun */
  uint64_t rx_last[COLL_CHANNELS]; /* of one that left: how many it sent */
  coll_fifo frames;          /* channel 1: operations with something to send */
  coll_fifo offered;         /* our offers, waiting for ACCEPT */
  coll_fifo incoming;        /* our accepts, waiting for DATA */
  coll_header rx1;
  coll_msg *rx1_msg;         /* whose DATA is coming in */
  offer *offers, **offers_tail;
  size_t offer_count;
  offer *storing;            /* the last one, while its payload is coming in */
  uint64_t next_p2p_id, rx_p2p_id; /* of our next send, and the peer's */
  size_t room_there, room_here, room_due; /* for eager sends: at the peer, of the peer's here, and what we have not told it yet */
  int64_t told; /* see coll_link_told */
  int64_t broken_ns; /* when the stream was first seen broken, or the connection refused; 0: it works */
  weft_status *refused; /* why: LINK_REFUSED */
};

bool coll_link_is_ready(const coll_link *link) { return link->state == LINK_READY || link->state == LINK_LEFT; }

void coll_rank_describe(const coll_group *g, int rank, char *out, size_t size)
{
  const coll_address *a = g->addresses ? &g->addresses[rank] : NULL;

  if (g->local_of[rank] >= 0 || !a || !a->magic)
    snprintf(out, size, "rank %d (device %lld%s)", rank, (long long)g->device_ids[rank], g->local_of[rank] >= 0 ? ", this process" : "");
  else
    snprintf(out, size, "rank %d (device %lld on %.64s, pid %d)", rank, (long long)g->device_ids[rank], a->host, a->pid);
}

int64_t coll_link_told(const coll_link *link) { return link->told; }
bool coll_link_is_waiting(const coll_link *link) { return link->state == LINK_WAITING; }

/* It is not connected.  `dead`: for its process is gone, and not only out of reach. */
static void peer_died(coll_link *link, bool dead, const char *how)
{
  coll_group *g = link->group;
  uint64_t incarnation = g->incarnations[link->peer];
  char who[256];

  coll_rank_describe(g, link->peer, who, sizeof who);
  if (dead) coll_obituary_add(incarnation);
  coll_group_bereave_locked(g, dead ? incarnation : 0, WEFT_ERR(FAILED_PRECONDITION, "Task with incarnation id %llu is not connected: %s %s",
                                                                (unsigned long long)incarnation, who, how));
}

/* ---- headers ---- */

static uint32_t check_of(const coll_header *h)
{
  enum { WORDS = offsetof(coll_header, root) / 8 };
  uint64_t words[WORDS], sum = (uint64_t)(uint32_t)h->root * 0xff51afd7ed558ccdu;

  memcpy(words, h, sizeof words);
  for (size_t i = 0; i < WORDS; i++) sum += words[i] * (0x9e3779b97f4a7c15u + 2 * i * 0xc4ceb9fe1a85ec53u); /* odd, each another */
  return (uint32_t)(sum ^ sum >> 32);
}

static coll_header header_of(const coll_op *op, int type, uint64_t id, int64_t bytes)
{
  coll_header h = {.type = (uint8_t)type, .kind = (uint8_t)op->args.kind,
                   .dtype = (uint8_t)op->args.dtype, .reduction = (uint8_t)op->args.reduction, .seq = op->seq,
                   .bytes = (uint64_t)bytes, .count = op->args.count, .fingerprint = op->fingerprint,
                   .tag = op->args.tag, .id = id, .root = op->problem.root};
  return h;
}

void coll_header_seal(coll_header *h)
{
  h->magic = HEADER_MAGIC;
  h->check = check_of(h);
}

static bool header_is_sound(const coll_header *h)
{
  return h->magic == HEADER_MAGIC && h->check == check_of(h) && h->bytes <= INT64_MAX;
}

static void header_describe(const coll_header *h, const char *site, char *out, size_t size)
{
  char operation[200];

  coll_describe(h->kind, h->dtype, h->count, h->reduction, site, operation, sizeof operation);
  snprintf(out, size, "%s (seq %llu, message of %llu bytes)", operation, (unsigned long long)h->seq, (unsigned long long)h->bytes);
}

static void disagree(coll_link *link, const coll_header *h, const char *site, const coll_op *mine)
{
  char theirs[256], ours[256];

  header_describe(h, site, theirs, sizeof theirs);
  coll_op_describe(mine, ours, sizeof ours);
  coll_group_fail_locked(link->group,
                         WEFT_ERR(FAILED_PRECONDITION, "ranks disagree on the operation: rank %d is at %s, rank %d at %s",
                                  mine->comm->rank, ours, link->peer, theirs), true);
}

static void garbage(coll_link *link, const char *what)
{
  char who[256];

  coll_rank_describe(link->group, link->peer, who, sizeof who);
  coll_group_fail_locked(link->group, WEFT_ERR(FAILED_PRECONDITION, "%s sent garbage: %s", who, what), true);
}

/* ---- channel 0: schedules ---- */

/* Writes the header into a unit of its own, and the site after it.  Returns the bytes used. */
static size_t put_header(char *at, const coll_op *op, int type, uint64_t id, int64_t bytes)
{
  coll_header h = header_of(op, type, id, bytes);
  bool with_site = type & COLL_MESSAGE_HAS_SITE;

  coll_header_seal(&h);
  memcpy(at, &h, sizeof h);
  if (!with_site) return sizeof h;
  memset(at + sizeof h, 0, SITE_BYTES);
  strncpy(at + sizeof h, op->site.instruction, SITE_BYTES - 1);
  return sizeof h + SITE_BYTES;
}

/* Writes as much of a message as there is room for.  True when all of it is out. */
static bool send_some(coll_link *link, int channel, coll_msg *msg, int type)
{
  coll_stream *s = link->stream;
  int64_t bytes = coll_msg_bytes(msg);
  size_t lead = COLL_STREAM_UNIT + (type & COLL_MESSAGE_HAS_SITE ? SITE_BYTES : 0);

  for (;;) {
    void *at;
    size_t room = s->ops->space(s, channel, &at), used = 0;
    if (room < COLL_STREAM_UNIT || (!msg->header_done && room < lead)) return false;
    if (!msg->header_done) used = put_header(at, msg->op, type, channel ? msg->op->p2p_id : link->tx_count[0], bytes);
    link->tx_count[channel] += !msg->header_done;
    int64_t left = bytes - msg->done_bytes;
    size_t n = WEFT_MIN((size_t)left, WEFT_MIN(room - used, (size_t)PIECE_BYTES));
    if ((int64_t)n < left) n &= ~(size_t)(COLL_STREAM_UNIT - 1);
    if (n) memcpy((char *)at + used, coll_msg_source(msg) + msg->done_bytes, n);
    s->ops->commit(s, channel, WEFT_ALIGN_UP(used + n, (size_t)COLL_STREAM_UNIT));
    msg->header_done = true;
    msg->done_bytes += (int64_t)n;
    if (msg->done_bytes == bytes) return true;
  }
}

/* Worth lending? */
static bool is_bulk(const coll_link *link, const coll_msg *msg)
{
  coll_stream *s = link->stream;
  return s->ops->bulk_least && (size_t)coll_msg_bytes(msg) >= s->ops->bulk_least(s);
}

/* Announces a large payload and lends it, if there is room for that now. */
static void lend(coll_link *link, int channel, coll_msg *msg, int type)
{
  coll_stream *s = link->stream;
  void *at;

  if (s->ops->space(s, channel, &at) < COLL_STREAM_UNIT + SITE_BYTES) return;
  uint64_t number = link->tx_count[channel]++;
  s->ops->lend(s, coll_msg_source(msg), (size_t)coll_msg_bytes(msg));
  s->ops->commit(s, channel, put_header(at, msg->op, type | COLL_MESSAGE_IS_LENT, channel ? msg->op->p2p_id : number, coll_msg_bytes(msg)));
  msg->header_done = true;
  link->lends = msg;
}

/* Does the peer have all that is lent to it? */
static bool is_lent(coll_link *link)
{
  if (!link->stream->ops->lent(link->stream)) return false;
  link->lends = NULL;
  return true;
}

static bool send_steps(coll_link *link)
{
  bool any = false;

  for (coll_msg *msg; (msg = link->sends.head);) {
    int64_t before = msg->done_bytes;
    int type = COLL_MESSAGE_STEP | (msg->op->site.instruction ? COLL_MESSAGE_HAS_SITE : 0);
    bool had_header = msg->header_done, done = false;
    if (link->lends == msg)
      done = is_lent(link);
    else if (had_header || !is_bulk(link, msg))
      done = send_some(link, 0, msg, type);
    else if (!link->lends)
      lend(link, 0, msg, type);
    any |= done || msg->done_bytes != before || msg->header_done != had_header;
    if (!done) break;
    coll_fifo_pop(&link->sends);
    coll_engine_msg_done_locked(msg);
  }
  return any;
}

/* Reads the next message's header.  False if there is none, or the group failed. */
static bool open_step(coll_link *link, const coll_op *op)
{
  coll_stream *s = link->stream;
  const void *at;
  size_t got = s->ops->data(s, 0, &at);
  coll_header h;

  if (got < sizeof h) return false;
  memcpy(&h, at, sizeof h);
  if (!header_is_sound(&h) || (h.type & ~(COLL_MESSAGE_HAS_SITE | COLL_MESSAGE_IS_LENT)) != COLL_MESSAGE_STEP ||
      (h.type & COLL_MESSAGE_IS_LENT && !s->ops->borrow)) {
    garbage(link, "a message header is damaged");
    return false;
  }
  size_t lead = sizeof h;
  link->rx_site[0] = '\0';
  if (h.type & COLL_MESSAGE_HAS_SITE) {
    lead += SITE_BYTES;
    if (got < lead) return false;
    memcpy(link->rx_site, (const char *)at + sizeof h, SITE_BYTES);
    link->rx_site[SITE_BYTES] = '\0';
  }
  if (h.seq != op->seq || h.fingerprint != op->fingerprint) {
    disagree(link, &h, link->rx_site, op);
    return false;
  }
  if (h.id != link->rx_count[0]) {
    garbage(link, "a message came twice, or one got lost");
    return false;
  }
  link->rx_count[0]++;
  link->rx = h;
  link->rx_open = true;
  s->ops->consume(s, 0, lead);
  return true;
}

/* Takes in the payload of message `msg`, `total` bytes.  True when it is complete. */
static bool receive_some(coll_link *link, int channel, coll_msg *msg, int64_t total)
{
  coll_stream *s = link->stream;

  while (msg->done_bytes < total) {
    const void *at;
    size_t got = s->ops->data(s, channel, &at);
    size_t n = WEFT_MIN(WEFT_MIN(got, (size_t)PIECE_BYTES), (size_t)(total - msg->done_bytes));
    if (n == 0) return false;
    coll_engine_deliver(msg, at, n);
    s->ops->consume(s, channel, WEFT_ALIGN_UP(n, (size_t)COLL_STREAM_UNIT));
  }
  return true;
}

/* The same for a payload that is lent: whole to where it belongs, or piece by piece to be reduced. */
static bool borrow_some(coll_link *link, coll_msg *msg, size_t total)
{
  coll_stream *s = link->stream;
  char *target = coll_msg_target(msg);

  if (link->borrows && link->borrows != msg) {
    garbage(link, "it lends two things at once");
    return false;
  }
  while ((size_t)msg->done_bytes < total) {
    if (!link->borrowing) {
      if (!target && !link->scratch && !(link->scratch = malloc(BULK_PIECE_BYTES))) {
        coll_group_fail_locked(link->group, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a message"), true);
        return false;
      }
      link->borrowing = target ? total : WEFT_MIN(total - (size_t)msg->done_bytes, (size_t)BULK_PIECE_BYTES);
      link->borrows = msg;
      s->ops->borrow(s, target ? target : link->scratch, link->borrowing);
    }
    if (!s->ops->borrowed(s)) return false;
    link->borrows = NULL;
    if (target)
      msg->done_bytes = (int64_t)total;
    else
      coll_engine_deliver(msg, link->scratch, link->borrowing);
    link->borrowing = 0;
  }
  return true;
}

static bool receive_steps(coll_link *link)
{
  bool any = false;

  for (coll_msg *msg; (msg = link->recvs.head) && !link->group->error;) {
    if (!link->rx_open) {
      if (!open_step(link, msg->op)) break;
      any = true;
      if ((int64_t)link->rx.bytes != coll_msg_bytes(msg)) {
        disagree(link, &link->rx, link->rx_site, msg->op);
        return true;
      }
    }
    int64_t before = msg->done_bytes;
    bool done = link->rx.type & COLL_MESSAGE_IS_LENT ? borrow_some(link, msg, link->rx.bytes)
                                                     : receive_some(link, 0, msg, (int64_t)link->rx.bytes);
    any |= msg->done_bytes != before;
    if (!done) break;
    link->rx_open = false;
    coll_fifo_pop(&link->recvs);
    msg->op->last_peer = link->peer;
    coll_engine_msg_done_locked(msg);
    any = true;
  }
  return any;
}

/* ---- channel 1: sends and receives ---- */

/* Of the receiver's room. */
static size_t eager_cost(int64_t bytes) { return sizeof(offer) + (size_t)bytes; }

static bool may_be_eager(const coll_link *link, const coll_msg *msg)
{
  int64_t bytes = coll_msg_bytes(msg);
  return bytes <= EAGER_BYTES && eager_cost(bytes) <= link->room_there && !is_bulk(link, msg);
}

/* Sends the payload of a send: unasked or accepted, lent where that is worth it.  True when the peer has it. */
static bool send_data(coll_link *link, coll_msg *msg)
{
  if (msg->op->phase == P2P_EAGER_TO_SEND) return send_some(link, 1, msg, COLL_MESSAGE_EAGER);
  if (link->lends == msg) return is_lent(link);
  if (msg->header_done || link->lends || !is_bulk(link, msg)) return send_some(link, 1, msg, COLL_MESSAGE_DATA);
  lend(link, 1, msg, COLL_MESSAGE_DATA);
  return false;
}

/* Tells the peer of the room that it has again, between messages, when it is worth one. */
static void give_room(coll_link *link)
{
  coll_header h = {.type = COLL_MESSAGE_ROOM, .bytes = link->room_due};
  const coll_msg *open = link->frames.head;
  void *at;

  if (link->room_due < EAGER_ROOM / 2 || (open && open->header_done) || link->stream->ops->space(link->stream, 1, &at) < sizeof h) return;
  coll_header_seal(&h);
  memcpy(at, &h, sizeof h);
  link->tx_count[1]++;
  link->stream->ops->commit(link->stream, 1, sizeof h);
  link->room_here += link->room_due;
  link->room_due = 0;
}

static bool send_p2p(coll_link *link)
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
      link->stream->ops->commit(link->stream, 1, put_header(at, op, offers ? COLL_MESSAGE_OFFER : COLL_MESSAGE_ACCEPT,
                                                            op->p2p_id, op->problem.bytes));
      op->phase = offers ? P2P_OFFERED : P2P_DATA_TO_COME;
      coll_fifo_push(offers ? &link->offered : &link->incoming, msg);
    }
    any = true;
  }
  return any;
}

/* A receive and what the peer offers, or sends unasked, have met.  False if the group failed. */
static bool meet(coll_link *link, coll_op *recv, const coll_header *h)
{
  if ((int64_t)h->bytes != recv->problem.bytes || h->dtype != recv->args.dtype) {
    disagree(link, h, "", recv);
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

/* The rest of a payload goes straight to the receive. */
static void receive_rest(coll_link *link, coll_op *recv, const coll_header *h)
{
  link->rx1 = *h;
  link->rx1_msg = &recv->p2p;
}

/* Takes what was kept for a receive, as far as it has come. */
static void receive_kept(coll_link *link, coll_op *recv, const offer *o)
{
  if (o->got) coll_engine_deliver(&recv->p2p, o->payload, o->got);
  if (link->storing != o) {
    received(link, recv, &o->header);
    return;
  }
  link->storing = NULL;
  receive_rest(link, recv, &o->header);
}

/* Takes the message that `fits` out of a FIFO. */
static coll_msg *take(coll_fifo *fifo, bool (*fits)(const coll_op *op, const coll_header *h, int peer), const coll_header *h, int peer)
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
static bool has_id(const coll_op *op, const coll_header *h, int peer) { (void)peer; return op->p2p_id == h->id; }
static bool wants_offer(const coll_op *op, const coll_header *h, int peer)
{
  return op->args.tag == h->tag && (op->args.peer < 0 || op->args.peer == peer);
}

/* Keeps what no receive has met yet. */
static void keep(coll_link *link, const coll_header *h)
{
  bool eager = h->type == COLL_MESSAGE_EAGER;
  offer *o = link->offer_count < MOST_OFFERS ? malloc(sizeof *o + (eager ? h->bytes : 0)) : NULL;

  if (!o) {
    garbage(link, "more offers of messages than anybody receives");
    return;
  }
  *o = (offer){.header = *h, .arrival = link->group->offers_seen++};
  *link->offers_tail = o;
  link->offers_tail = &o->next;
  link->offer_count++;
  if (eager) link->storing = o;
}

/* An offer, or a send that did not ask. */
static void on_send(coll_link *link, const coll_header *h)
{
  bool eager = h->type == COLL_MESSAGE_EAGER;

  if (h->id != link->rx_p2p_id++) {
    garbage(link, "a message came twice, or one got lost");
    return;
  }
  if (eager && (h->bytes > EAGER_BYTES || eager_cost((int64_t)h->bytes) > link->room_here)) {
    garbage(link, "more than it was given room for");
    return;
  }
  if (eager) link->room_here -= eager_cost((int64_t)h->bytes);
  coll_msg *recv = take(&link->group->locals[link->local]->p2p_recvs, wants_offer, h, link->peer);
  if (!recv)
    keep(link, h);
  else if (meet(link, recv->op, h) && eager)
    receive_rest(link, recv->op, h);
}

/* Takes in what is kept.  True when it is complete. */
static bool store_some(coll_link *link)
{
  coll_stream *s = link->stream;
  offer *o = link->storing;

  while (o->got < o->header.bytes) {
    const void *at;
    size_t n = s->ops->data(s, 1, &at); /* asked once: the peer writes meanwhile */
    n = WEFT_MIN(n, (size_t)o->header.bytes - o->got);
    if (n == 0) return false;
    memcpy(o->payload + o->got, at, n);
    s->ops->consume(s, 1, WEFT_ALIGN_UP(n, (size_t)COLL_STREAM_UNIT));
    o->got += n;
  }
  link->storing = NULL;
  return true;
}

static bool receive_p2p(coll_link *link)
{
  coll_stream *s = link->stream;
  bool any = false;

  while (!link->group->error) {
    const void *at;
    coll_header h;
    if (link->rx1_msg) {
      int64_t before = link->rx1_msg->done_bytes;
      bool done = link->rx1.type & COLL_MESSAGE_IS_LENT ? borrow_some(link, link->rx1_msg, link->rx1.bytes)
                                                        : receive_some(link, 1, link->rx1_msg, (int64_t)link->rx1.bytes);
      any |= done || link->rx1_msg->done_bytes != before;
      if (!done) break;
      received(link, WEFT_MOVE(link->rx1_msg)->op, &link->rx1);
      continue;
    }
    if (link->storing) {
      size_t before = link->storing->got;
      const offer *o = link->storing;
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
    if (!header_is_sound(&h)) {
      garbage(link, "a message header is damaged");
    } else if (h.type == COLL_MESSAGE_OFFER || h.type == COLL_MESSAGE_EAGER) {
      on_send(link, &h);
    } else if (h.type == COLL_MESSAGE_ROOM && h.bytes <= EAGER_ROOM - link->room_there) {
      link->room_there += h.bytes;
    } else if (h.type == COLL_MESSAGE_ACCEPT && link->group->ending) {
      /* of an offer that has ended since */
    } else if (h.type == COLL_MESSAGE_ACCEPT && (met = take(&link->offered, has_id, &h, 0))) {
      met->op->phase = P2P_DATA_TO_SEND;
      coll_fifo_push(&link->frames, met);
    } else if ((h.type & ~(s->ops->borrow ? COLL_MESSAGE_IS_LENT : 0)) == COLL_MESSAGE_DATA && (met = take(&link->incoming, has_id, &h, 0)) &&
               (int64_t)h.bytes == met->op->problem.bytes) {
      receive_rest(link, met->op, &h);
      if (h.type & COLL_MESSAGE_IS_LENT) break; /* reading it takes long: first lend what the peer has accepted, so that both read at once */
    } else {
      garbage(link, "a message that answers nothing");
    }
  }
  return any;
}

static bool has_p2p(const coll_link *link)
{
  const weft_comm *comm = link->group->locals[link->local];
  return link->frames.head || link->offered.head || link->incoming.head || link->rx1_msg || (comm && comm->p2p_recvs.head);
}

/* Of a peer that has left: has all come that it sent? */
static bool has_all_steps(const coll_link *link) { return !link->rx_open && link->rx_count[0] >= link->rx_last[0]; }
static bool has_all_p2p(const coll_link *link)
{
  return !link->rx1_msg && !link->storing && link->rx_count[1] >= link->rx_last[1];
}

/* The same: and do we need more of it? */
static bool waits_in_vain(const coll_link *link)
{
  bool p2p = link->offered.head || link->incoming.head;
  const weft_comm *comm = link->group->locals[link->local];

  for (const coll_msg *m = comm ? comm->p2p_recvs.head : NULL; m; m = m->next) p2p |= m->op->args.peer == link->peer;
  return link->sends.head || (link->recvs.head && has_all_steps(link)) || (p2p && has_all_p2p(link));
}

/* ---- sends and receives of a communicator that ends ---- */

/* May something that was sent before still meet this receive? */
static bool may_come(const coll_group *g, const coll_msg *recv)
{
  for (const coll_link *link = g->open_links; link; link = link->next_open)
    if (link->rank == recv->op->comm->rank && (recv->op->args.peer < 0 || recv->op->args.peer == link->peer) &&
        link->state == LINK_LEFT && !has_all_p2p(link)) return true;
  return false;
}
static bool never(const coll_group *g, const coll_msg *msg) { (void)g; (void)msg; return false; }
static bool is_under_way(const coll_group *g, const coll_msg *msg) { (void)g; return msg->header_done; }

/* Ends all of a FIFO but those that `stay`. */
static void end_others(coll_group *g, coll_fifo *fifo, bool (*stays)(const coll_group *g, const coll_msg *msg))
{
  coll_fifo kept = {0};

  for (coll_msg *msg; (msg = coll_fifo_pop(fifo));) {
    if (stays(g, msg))
      coll_fifo_push(&kept, msg);
    else
      coll_op_finish_locked(msg->op, weft_status_dup(g->ending));
  }
  *fifo = kept;
}

void coll_links_end_p2p_locked(coll_group *g)
{
  for (int i = 0; i < g->local_count; i++) {
    if (!g->locals[i]) continue;
    end_others(g, &g->locals[i]->p2p_sends, never);
    end_others(g, &g->locals[i]->p2p_recvs, may_come);
  }
  for (coll_link *link = g->open_links; link; link = link->next_open) {
    end_others(g, &link->frames, is_under_way);
    end_others(g, &link->offered, never);
    if (link->state == LINK_LEFT && has_all_p2p(link)) end_others(g, &link->incoming, never);
  }
}

bool coll_links_owe_p2p_locked(coll_group *g)
{
  for (const coll_link *link = g->open_links; link; link = link->next_open)
    if (link->state == LINK_LEFT && (!has_all_p2p(link) || (link->offers && link->offers->header.type == COLL_MESSAGE_EAGER))) return true;
  return false;
}

/* ---- driving ---- */

static void hang_up(coll_link *link)
{
  if (link->fd >= 0) {
    coll_context_unwatch(link->fd);
    close(link->fd);
  }
  link->fd = -1;
  if (link->stream) link->stream->ops->close(link->stream);
  link->stream = NULL;
}

/* The connection cannot be made.  `st` is taken. */
static void on_refused(coll_link *link, weft_status *st)
{
  hang_up(link);
  link->state = LINK_REFUSED;
  link->refused = st;
  link->broken_ns = weft_now_ns();
  link->group->refused_count++;
  atomic_store_explicit(&link->group->unsent, true, memory_order_relaxed); /* the progress thread looks at the time */
  coll_context_wake();
}

static void mind_refused(coll_link *link)
{
  char how[512];

  if (weft_now_ns() - link->broken_ns <= REFUSED_WORD_NS) return;
  snprintf(how, sizeof how, "cannot be reached: its process ended, or left all its communicators, and nobody has told us why (%s)",
           weft_status_message(link->refused));
  peer_died(link, false, how);
}

/* Nothing moves on a link of which something is wanted. */
static void look_what_is_wrong(coll_link *link)
{
  coll_group *g = link->group;
  bool left = link->state == LINK_LEFT;
  char who[256];

  if (left && waits_in_vain(link)) {
    coll_rank_describe(g, link->peer, who, sizeof who);
    coll_group_fail_locked(g, g->ending ? weft_status_dup(g->ending) : WEFT_ERR(FAILED_PRECONDITION, "%s left the communicator", who), true);
    return;
  }
  if (left && has_all_steps(link) && has_all_p2p(link)) return; /* what becomes of its stream is no matter */
  weft_status *st = link->stream->ops->health(link->stream);
  if (!st) return;
  if (!link->broken_ns) link->broken_ns = weft_now_ns();
  if (weft_status_code(st) != WEFT_UNAVAILABLE)
    garbage(link, weft_status_message(st));
  else if (weft_now_ns() - link->broken_ns > WORD_NS && left && g->ending)
    coll_group_fail_locked(g, weft_status_dup(g->ending), true);
  else if (weft_now_ns() - link->broken_ns > WORD_NS)
    peer_died(link, false, weft_status_message(st));
  weft_status_free(st);
}

static bool progress(coll_link *link)
{
  coll_group *g = link->group;
  bool any = false, p2p = has_p2p(link);

  if (link->state == LINK_REFUSED) mind_refused(link);
  if (!coll_link_is_ready(link)) return false;
  if (!link->sends.head && !link->recvs.head && !p2p && !link->stream->unsent) return false;
  if (link->stream->ops->poll) any |= link->stream->ops->poll(link->stream);
  if (link->recvs.head) any |= receive_steps(link);
  if (link->sends.head && !g->error) any |= send_steps(link);
  if (p2p && !g->error) any |= receive_p2p(link);
  if (p2p && !g->error) any |= send_p2p(link);
  if (!any && !g->error) look_what_is_wrong(link);
  return any;
}

/* What a spent group has committed still counts for those that end what it has ended: so it goes out, if that takes no longer
 * than a second. */
static bool flush_spent(coll_group *g)
{
  bool any = coll_fabric_poll(g), unsent = false, in_time = g->ends_at && weft_now_ns() < g->spent_ns + WEFT_NS_PER_S;

  for (coll_link *link = g->open_links; link; link = link->next_open) {
    if (link->stream && link->stream->ops->poll) any |= link->stream->ops->poll(link->stream);
    unsent |= link->stream && link->stream->unsent;
  }
  atomic_store_explicit(&g->bulk, false, memory_order_relaxed);
  atomic_store_explicit(&g->unsent, unsent && in_time, memory_order_relaxed);
  return any;
}

bool coll_links_poll_locked(coll_group *g)
{
  if (g->error) return flush_spent(g);
  bool any = coll_fabric_poll(g), unsent = false, bulk = false;

  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    any |= progress(link);
    unsent |= link->stream && link->stream->unsent;
    bulk |= link->lends || link->borrows;
  }
  atomic_store_explicit(&g->bulk, bulk && !g->error, memory_order_relaxed);
  atomic_store_explicit(&g->unsent, (unsent || g->refused_count) && !g->error, memory_order_relaxed);
  return any;
}

/* A rank that takes part in another operation than ours may talk to us although we expect nothing from it. */
static void look_for_strays(coll_link *link)
{
  const coll_op *op = link->group->locals[link->local] ? link->group->locals[link->local]->head : NULL;
  const void *at;
  coll_header h;

  if (!op || link->recvs.head || link->rx_open || link->stream->ops->data(link->stream, 0, &at) < sizeof h) return;
  memcpy(&h, at, sizeof h);
  if (!header_is_sound(&h))
    garbage(link, "a message header is damaged");
  else if (h.seq < op->seq || (h.seq == op->seq && h.fingerprint != op->fingerprint))
    disagree(link, &h, "", op);
}

bool coll_links_arm_locked(coll_group *g)
{
  bool quiet = true, waits = false;

  if ((!g->all_pending && !atomic_load_explicit(&g->unsent, memory_order_relaxed)) || g->frozen) return true;
  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open) {
    if (!coll_link_is_ready(link)) continue;
    bool still = link->stream->ops->arm(link->stream), needed = link->sends.head || link->recvs.head || has_p2p(link) || link->stream->unsent;
    quiet = quiet && (still || !needed) && !link->broken_ns;
    waits |= needed;
    look_for_strays(link);
  }
  bool fabric_still = g->error || coll_fabric_arm(g);
  return quiet && (fabric_still || !waits);
}

/* ---- posting ---- */

void coll_link_post_locked(coll_group *g, int local, int peer, coll_msg *msg)
{
  coll_link *link = coll_link_of_locked(g, local, peer);

  if (!link) return;
  coll_fifo_push(msg->step->kind == COLL_SEND ? &link->sends : &link->recvs, msg);
  if (!coll_link_is_ready(link)) return;
  if (msg->step->kind == COLL_SEND)
    send_steps(link);
  else
    receive_steps(link);
  if (link->stream->unsent) atomic_store_explicit(&g->unsent, true, memory_order_relaxed);
}

/* The oldest offer that a receive would take, of all links of its rank. */
static coll_link *find_offer(coll_group *g, int local, const coll_op *recv, offer ***out_at)
{
  coll_link *found = NULL;
  uint64_t oldest = UINT64_MAX;

  for (coll_link *link = g->open_links; link; link = link->next_open) {
    if (link->local != local) continue;
    for (offer **at = &link->offers; *at; at = &(*at)->next) {
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
  if (op->args.kind == WEFT_SEND) {
    coll_link *link = coll_link_of_locked(g, local, op->args.peer);
    if (!link) return true; /* the group has failed */
    op->p2p_id = link->next_p2p_id++;
    op->phase = P2P_TO_SEND;
    coll_fifo_push(&link->frames, &op->p2p);
    return true;
  }
  if (op->args.peer >= 0 && g->local_of[op->args.peer] < 0 && !coll_link_of_locked(g, local, op->args.peer)) return true;
  offer **at, *o;
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

/* ---- connecting ---- */

static weft_status *fill_fabric(coll_group *g, coll_transport transport, coll_hello *hello)
{
  return transport == COLL_TRANSPORT_FABRIC ? coll_fabric_name(g, &hello->address) : NULL;
}

static bool same_node(const coll_link *link)
{
  const coll_address *addresses = link->group->addresses;

  return strcmp(coll_settings_get()->transport, "fabric") != 0 && addresses[link->rank].node == addresses[link->peer].node;
}

static void ring_peer(void *ctx)
{
  coll_link *link = ctx;
  if (link->fd >= 0) coll_frame_send(link->fd, COLL_FRAME_BELL, NULL, 0, -1); /* a full socket wakes the peer as well */
}

static void cut(void *ctx)
{
  coll_link *link = ctx;
  if (link->fd >= 0) shutdown(link->fd, SHUT_RDWR);
}

static weft_status *become_ready(coll_link *link)
{
  const char *faults = coll_settings_get()->faults;

  link->stream->ring = ring_peer;
  link->stream->ring_ctx = link;
  if (*faults) WEFT_TRY(coll_fault_new(WEFT_MOVE(link->stream), faults, cut, link, &link->stream));
  if (link->stream->ops->bulk_least) link->stream->ops->bulk_least(link->stream); /* finds out, and says so */
  link->state = LINK_READY;
  coll_context_wake(); /* messages may have been posted already */
  return NULL;
}

static coll_hello hello_of(coll_link *link, coll_transport transport)
{
  coll_group *g = link->group;

  return (coll_hello){.group_id = g->id, .src_incarnation = g->incarnations[link->rank],
                      .dst_incarnation = g->addresses[link->peer].magic ? g->addresses[link->peer].incarnation : 0,
                      .src = link->rank, .dst = link->peer, .size = g->size, .transport = (int32_t)transport,
                      .address = g->addresses[link->rank]};
}

static weft_status *greet(coll_link *link)
{
  coll_group *g = link->group;
  bool local = same_node(link);
  coll_hello hello;
  int memory_fd = -1;

  if (local) WEFT_TRY(coll_shm_new((size_t)coll_settings_get()->ring_bytes, &link->stream, &memory_fd));
  hello = hello_of(link, local ? COLL_TRANSPORT_SHM : COLL_TRANSPORT_FABRIC);
  weft_status *st = fill_fabric(g, (coll_transport)hello.transport, &hello);
  if (st) return st; /* without shared memory: memory_fd is not open */
  bool sent = coll_frame_send(link->fd, COLL_FRAME_HELLO, &hello, sizeof hello, memory_fd);
  if (memory_fd >= 0) close(memory_fd);
  if (!sent) return WEFT_ERR(UNAVAILABLE, "greeting rank %d: %s", link->peer, strerror(errno));
  link->state = LINK_GREETING;
  return coll_context_watch(link->fd, g, link->id, false);
}

static weft_status *dial(coll_link *link)
{
  coll_group *g = link->group;
  bool local = same_node(link);

  WEFT_TRY(coll_dial(&g->addresses[link->peer], local, &link->fd));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  if (local) return greet(link); /* local connections are made at once */
  link->state = LINK_CONNECTING;
  return coll_context_watch(link->fd, g, link->id, true);
}

coll_link *coll_link_of_locked(coll_group *g, int local, int peer)
{
  coll_link **slot = &g->links[(size_t)local * (size_t)g->size + (size_t)peer], *link = *slot;
  weft_status *st = NULL;

  if (link && (link->state != LINK_WAITING || !g->addresses[peer].magic)) return link;
  if (!link) {
    link = calloc(1, sizeof *link);
    if (!link) {
      coll_group_fail_locked(g, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a link"), true);
      return NULL;
    }
    *link = (coll_link){.group = g, .id = coll_context_next_id(), .local = local, .rank = g->locals[local]->rank, .peer = peer, .fd = -1,
                        .next_open = g->open_links, .state = LINK_WAITING, .told = -1, .room_there = EAGER_ROOM, .room_here = EAGER_ROOM};
    link->offers_tail = &link->offers;
    *slot = g->open_links = link;
  }
  if (g->addresses[peer].magic) st = dial(link);
  if (st) on_refused(link, st);
  return link;
}

weft_status *coll_link_dial_locked(coll_group *g, int local, int peer)
{
  coll_link **slot = &g->links[(size_t)local * (size_t)g->size + (size_t)peer];

  if (!*slot) {
    coll_address address = g->addresses[peer];
    g->addresses[peer].magic = 0; /* make it without dialling: an error is ours to handle */
    coll_link *made = coll_link_of_locked(g, local, peer);
    g->addresses[peer] = address;
    if (!made) return weft_status_dup(g->error);
  }
  coll_link *link = *slot;
  if (link->state != LINK_WAITING) return NULL;
  weft_status *st = dial(link);
  if (st) {
    hang_up(link);
    link->state = LINK_WAITING;
  }
  return st;
}

static weft_status *open_stream(coll_link *link, const coll_hello *theirs, int memory_fd)
{
  if (theirs->transport == COLL_TRANSPORT_SHM) return coll_shm_open(memory_fd, &link->stream);
  return coll_fabric_stream(link->group, &theirs->address, theirs->src, theirs->dst, &link->stream);
}

weft_status *coll_link_adopt_locked(coll_group *g, const coll_hello *hello, int fd, int passed_fd)
{
  int me = hello->dst, peer = hello->src;
  char who[256];

  if (g->error)
    return weft_status_new(weft_status_code(g->error) == WEFT_FAILED_PRECONDITION ? WEFT_FAILED_PRECONDITION : WEFT_ABORTED,
                           __FILE__, __LINE__, "%s", weft_status_message(g->error));
  if (!g->links || !g->addresses[me].magic) return WEFT_ERR(UNAVAILABLE, "being made");
  if (hello->size != g->size || peer < 0 || peer >= g->size || g->local_of[peer] >= 0 || !g->locals[g->local_of[me]])
    return WEFT_ERR(FAILED_PRECONDITION, "communicator %s has %d ranks for rank %d, and %d for rank %d", g->name, g->size,
                    me, hello->size, peer);
  if (hello->dst_incarnation && hello->dst_incarnation != g->incarnations[me])
    return WEFT_ERR(FAILED_PRECONDITION, "rank %d expects incarnation %llu of rank %d, which is %llu", peer,
                    (unsigned long long)hello->dst_incarnation, me, (unsigned long long)g->incarnations[me]);
  WEFT_TRY(coll_address_check(&hello->address, sizeof hello->address, g->size));
  if (g->addresses[peer].magic && g->addresses[peer].incarnation != hello->src_incarnation) {
    coll_rank_describe(g, peer, who, sizeof who);
    return WEFT_ERR(FAILED_PRECONDITION, "%s has incarnation %llu here and says it is %llu", who,
                    (unsigned long long)g->addresses[peer].incarnation, (unsigned long long)hello->src_incarnation);
  }
  coll_address known = g->addresses[peer];
  g->addresses[peer] = hello->address;
  g->addresses[peer].magic = 0; /* so that no dialling starts */
  coll_link *link = g->links[(size_t)g->local_of[me] * (size_t)g->size + (size_t)peer];
  if (!link) link = coll_link_of_locked(g, g->local_of[me], peer);
  g->addresses[peer] = known.magic ? known : hello->address;
  g->incarnations[peer] = hello->src_incarnation;
  if (!link) return weft_status_dup(g->error);
  if (coll_link_is_ready(link)) return WEFT_ERR(FAILED_PRECONDITION, "ranks %d and %d are connected already", peer, me);
  if ((link->state == LINK_CONNECTING || link->state == LINK_GREETING) && peer > me) { /* both dialled: ours stays */
    coll_frame_send(fd, COLL_FRAME_YIELD, NULL, 0, -1);
    return WEFT_ERR(ALREADY_EXISTS, "our own connection is under way");
  }
  hang_up(link);
  link->state = LINK_WAITING;
  link->broken_ns = 0;
  g->refused_count -= link->refused != NULL;
  weft_status_free(WEFT_MOVE(link->refused));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  WEFT_TRY(open_stream(link, hello, passed_fd));
  coll_hello answer = hello_of(link, (coll_transport)hello->transport);
  WEFT_TRY(fill_fabric(g, (coll_transport)hello->transport, &answer));
  if (!coll_frame_send(fd, COLL_FRAME_ACCEPT, &answer, sizeof answer, -1))
    return WEFT_ERR(UNAVAILABLE, "the connection closed");
  link->fd = fd;
  weft_status *st = coll_context_watch(fd, g, link->id, false);
  if (!st) st = become_ready(link);
  if (st) {
    coll_context_unwatch(fd);
    link->fd = -1; /* the caller's again */
    hang_up(link);
    return st;
  }
  if (passed_fd >= 0) close(passed_fd);
  return NULL;
}

/* ---- the control connection ---- */

static weft_code code_for_peers(int32_t code)
{
  return code == WEFT_FAILED_PRECONDITION ? WEFT_FAILED_PRECONDITION : WEFT_ABORTED;
}

/* What it had sent is still taken in. */
static void has_left(coll_link *link, const uint64_t sent[COLL_CHANNELS])
{
  coll_group *g = link->group;

  memcpy(link->rx_last, sent, sizeof link->rx_last);
  link->state = LINK_LEFT;
  if (!link->stream || g->frozen || g->error) return;
  coll_fabric_poll(g);
  if (g->locals[link->local]) receive_p2p(link);
}

/* The peer's communicator ends, or it refuses ours. */
static void on_reason(coll_link *link)
{
  coll_group *g = link->group;
  int type = (int)link->reader.frame.type;
  const char *what = type == COLL_FRAME_REFUSE ? "refused by" : "aborted by";
  const weft_comm *comm = g->locals[link->local];
  coll_reason reason;
  char who[256];

  if (link->reader.frame.bytes != sizeof reason) {
    garbage(link, "a control frame of the wrong size");
    return;
  }
  memcpy(&reason, link->reader.payload, sizeof reason);
  reason.text[sizeof reason.text - 1] = '\0';
  if (type == COLL_FRAME_ABORT && g->frozen) link->told = (int64_t)reason.posted; /* for the report that is being made */
  if (type == COLL_FRAME_ABORT && coll_link_is_ready(link)) has_left(link, reason.sent);
  if (type == COLL_FRAME_REFUSE) { /* it has ended all that needs no connection with it */
    reason.ended = comm ? atomic_load_explicit(&comm->ended_seq, memory_order_relaxed) : 0;
    hang_up(link);
    link->state = LINK_WAITING;
  }
  if (reason.lost) {
    coll_obituary_add(reason.lost);
    g->lost = reason.lost;
  }
  if (g->error) return;
  coll_rank_describe(g, link->peer, who, sizeof who);
  weft_code code = code_for_peers(reason.code);
  bool passes = strstr(reason.text, "is not connected") || strstr(reason.text, "ranks disagree") || strstr(reason.text, "by rank ");
  coll_group_end_at_locked(g, passes ? weft_status_new(code, __FILE__, __LINE__, "%s", reason.text)
                                     : weft_status_new(code, __FILE__, __LINE__, "%s %s: %s", what, who, reason.text), reason.ended);
}

static void on_accept(coll_link *link)
{
  coll_group *g = link->group;
  coll_hello hello;
  weft_status *st = NULL;

  if (link->state != LINK_GREETING || link->reader.frame.bytes != sizeof hello) {
    garbage(link, "an answer to no greeting");
    return;
  }
  memcpy(&hello, link->reader.payload, sizeof hello);
  if (hello.group_id != g->id || hello.src != link->peer || hello.dst != link->rank ||
      hello.src_incarnation != g->addresses[link->peer].incarnation) {
    garbage(link, "an answer of another rank or incarnation");
    return;
  }
  g->incarnations[link->peer] = hello.src_incarnation;
  if (!link->stream) st = open_stream(link, &hello, -1);
  if (!st) st = become_ready(link);
  if (st) coll_group_fail_locked(g, st, true);
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
      garbage(link, "a control frame of the wrong size");
      return;
    }
    has_left(link, (const uint64_t *)(const void *)link->reader.payload);
    return;
  case COLL_FRAME_YIELD:
    if (link->state != LINK_GREETING) return;
    hang_up(link);
    link->state = LINK_WAITING;
    return;
  default: garbage(link, "an unknown control frame");
  }
}

static coll_link *find_link(coll_group *g, uint64_t id)
{
  coll_link *link = g->open_links;
  while (link && link->id != id) link = link->next_open;
  return link;
}

void coll_link_ready_locked(coll_group *g, uint64_t id)
{
  coll_link *link = find_link(g, id);

  if (!link) coll_fabric_woken(g); /* its descriptor has a number too */
  if (!link || link->fd < 0 || g->error) return;
  if (link->state == LINK_CONNECTING) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    weft_status *st = error ? WEFT_ERR(UNAVAILABLE, "%s", strerror(error)) : greet(link);
    if (!st) return;
    if (g->topology.size) return on_refused(link, st);
    hang_up(link);
    link->state = LINK_WAITING; /* still meeting: the bootstrap tries again */
    weft_status_free(st);
    return;
  }
  while (link->fd >= 0 && !g->error) {
    switch (coll_frame_read(&link->reader, link->fd)) {
    case COLL_READ_NONE: return;
    case COLL_READ_FRAME: on_frame(link); break;
    case COLL_READ_GARBAGE: garbage(link, "a control frame that is too long"); return;
    case COLL_READ_END:
      if (link->state == LINK_LEFT || g->frozen) {
        coll_context_unwatch(link->fd);
        close(link->fd);
        link->fd = -1;
      } else if (link->state == LINK_GREETING && !g->topology.size) {
        hang_up(link);
        link->state = LINK_WAITING;
      } else {
        peer_died(link, true, "died: its connection closed");
      }
      return;
    }
  }
}

/* ---- the end ---- */

/* What is common to all peers. */
static coll_reason reason_of(const coll_group *g, const weft_status *st, uint64_t ended)
{
  coll_reason reason = {.code = weft_status_code(st), .ended = ended, .lost = g->lost};

  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i]) reason.ended = WEFT_MIN(reason.ended, atomic_load_explicit(&g->locals[i]->ended_seq, memory_order_relaxed));
  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(st));
  return reason;
}

void coll_links_tell_end_locked(coll_group *g)
{
  coll_reason reason = {.code = weft_status_code(g->ending), .ended = g->ends_at};

  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(g->ending));
  for (coll_link *link = g->open_links; link; link = link->next_open)
    if (link->fd >= 0 && link->state == LINK_READY) coll_frame_send(link->fd, COLL_FRAME_ENDING, &reason, sizeof reason, -1);
}

void coll_links_fail_locked(coll_group *g, const weft_status *st, bool tell_peers)
{
  uint64_t posted = 0;

  if (!g->addresses) return;
  for (coll_link *link = g->open_links; link; link = link->next_open)
    if (link->stream && link->stream->ops->revoke) link->stream->ops->revoke(link->stream);
  coll_reason reason = reason_of(g, st, coll_fabric_lost_some(g) ? 0 : g->ends_at);
  for (coll_link *link = g->open_links; link; link = link->next_open) {
    const weft_comm *comm = g->locals[link->local];
    reason.posted = comm ? coll_comm_posted(comm) : 0;
    memcpy(reason.sent, link->tx_count, sizeof reason.sent);
    posted = WEFT_MAX(posted, reason.posted);
    if (link->fd >= 0) {
      if (tell_peers && link->state != LINK_CONNECTING) coll_frame_send(link->fd, COLL_FRAME_ABORT, &reason, sizeof reason, -1);
      coll_context_unwatch(link->fd);
      shutdown(link->fd, SHUT_WR);
    }
    link->sends = link->recvs = link->frames = link->offered = link->incoming = (coll_fifo){0};
    link->rx1_msg = link->lends = link->borrows = NULL;
    link->storing = NULL;
    if (link->stream && link->stream->unsent) atomic_store_explicit(&g->unsent, true, memory_order_relaxed);
  }
  coll_listener_bury(g->id, posted, reason.text);
}

void coll_links_close_locked(coll_group *g)
{
  for (coll_link *link = g->open_links, *next; link; link = next) {
    next = link->next_open;
    if (link->fd >= 0 && !g->error && link->state == LINK_READY) coll_frame_send(link->fd, COLL_FRAME_GOODBYE, link->tx_count, sizeof link->tx_count, -1);
    hang_up(link);
    for (offer *o = link->offers, *after; o; o = after) {
      after = o->next;
      free(o);
    }
    g->links[(size_t)link->local * (size_t)g->size + (size_t)link->peer] = NULL;
    free(link->scratch);
    weft_status_free(link->refused);
    free(link);
  }
  g->open_links = NULL;
  coll_fabric_close(g);
}
