/* collective/host/message.c -- the messages of schedules between processes: headers, payloads and loans. */
#include <config.h>

#include "collective/host/link_state.h"

#include <stdlib.h>
#include <string.h>

#include "collective/host/steps.h"

#define HEADER_MAGIC UINT32_C(0x3147534d)

enum { PIECE_BYTES = 64 << 10, BULK_PIECE_BYTES = 256 << 10 };

/* ---- headers ---- */

static uint32_t check_of(const coll_header *h)
{
  enum { WORDS = offsetof(coll_header, root) / 8 };
  uint64_t words[WORDS], sum = (uint64_t)(uint32_t)h->root * 0xff51afd7ed558ccdu;

  memcpy(words, h, sizeof words);
  for (size_t i = 0; i < WORDS; i++)
    sum += words[i] * (0x9e3779b97f4a7c15u + 2 * i * 0xc4ceb9fe1a85ec53u); /* factors that are odd and all different */
  return (uint32_t)(sum ^ sum >> 32);
}

static coll_header header_of(const coll_op *op, int type, uint64_t id, int64_t bytes)
{
  coll_header h = {.type = (uint8_t)type, .kind = (uint8_t)op->args.kind,
                   .dtype = (uint8_t)op->args.dtype, .reduction = (uint8_t)op->args.reduction, .seq = op->seq,
                   .bytes = (uint64_t)bytes, .count = op->args.count, .fingerprint = op->fingerprint,
                   .tag = op->collective ? op->place : op->args.tag, .id = id, .root = op->problem.root};
  return h;
}

void coll_header_seal(coll_header *h)
{
  h->magic = HEADER_MAGIC;
  h->check = check_of(h);
}

bool coll_header_is_sound(const coll_header *h)
{
  return h->magic == HEADER_MAGIC && h->check == check_of(h) && h->bytes <= INT64_MAX;
}

static void header_describe(const coll_header *h, const char *site, char *out, size_t size)
{
  char operation[200];

  coll_describe(h->kind, h->dtype, h->count, h->reduction, site, operation, sizeof operation);
  snprintf(out, size, "%s (seq %llu, message of %llu bytes)", operation, (unsigned long long)h->seq,
           (unsigned long long)h->bytes);
}

void coll_link_disagree(coll_link *link, const coll_header *h, const char *site, const coll_op *mine)
{
  char theirs[256], ours[256];

  weft_mutex_assert_held(&link->group->mu);
  header_describe(h, site, theirs, sizeof theirs);
  coll_op_describe(mine, ours, sizeof ours);
  coll_group_fail_locked(link->group, WEFT_ERR(FAILED_PRECONDITION,
                                               "ranks disagree on the operation: rank %d is at %s, rank %d at %s",
                                               mine->comm->rank, ours, link->peer, theirs));
}

void coll_link_garbage(coll_link *link, const char *what)
{
  char who[256];

  weft_mutex_assert_held(&link->group->mu);
  coll_rank_describe(link->group, link->peer, who, sizeof who);
  coll_group_fail_locked(link->group, WEFT_ERR(FAILED_PRECONDITION, "%s sent garbage: %s", who, what));
}

void coll_link_forged(coll_link *link, const char *where)
{
  char who[256];

  weft_mutex_assert_held(&link->group->mu);
  coll_rank_describe(link->group, link->peer, who, sizeof who);
  coll_group_fail_locked(
    link->group,
    WEFT_ERR(FAILED_PRECONDITION,
             "integrity: a message from %s was changed, repeated, reordered or removed on its way (%s)", who, where));
}

/* ---- payloads ---- */

size_t coll_header_put(char *at, const coll_op *op, int type, uint64_t id, int64_t bytes)
{
  coll_header h = header_of(op, type, id, bytes);
  bool with_site = type & COLL_MESSAGE_HAS_SITE;

  coll_header_seal(&h);
  memcpy(at, &h, sizeof h);
  if (!with_site) return sizeof h;
  memset(at + sizeof h, 0, COLL_SITE_BYTES);
  strncpy(at + sizeof h, op->site.instruction, COLL_SITE_BYTES - 1);
  return sizeof h + COLL_SITE_BYTES;
}

/* Writes as much of a message as there is space for.  True when all of it is written. */
bool coll_link_send_some(coll_link *link, int channel, coll_msg *msg, int type)
{
  coll_stream *s = link->stream;
  int64_t bytes = coll_msg_bytes(msg);
  size_t lead = COLL_STREAM_UNIT + (type & COLL_MESSAGE_HAS_SITE ? COLL_SITE_BYTES : 0);

  for (;;) {
    void *at;
    size_t room = s->ops->space(s, channel, &at), used = 0;
    if (room < COLL_STREAM_UNIT || (!msg->header_done && room < lead)) return false;
    if (!msg->header_done)
      used = coll_header_put(at, msg->op, type, channel ? msg->op->p2p_id : link->tx_count[0], bytes);
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

bool coll_link_is_bulk(const coll_link *link, const coll_msg *msg)
{
  coll_stream *s = link->stream;
  return s->ops->bulk_least && (size_t)coll_msg_bytes(msg) >= s->ops->bulk_least(s);
}

void coll_link_lend(coll_link *link, int channel, coll_msg *msg, int type)
{
  coll_stream *s = link->stream;
  void *at;

  if (s->ops->space(s, channel, &at) < COLL_STREAM_UNIT + COLL_SITE_BYTES) return;
  uint64_t number = link->tx_count[channel]++;
  s->ops->lend(s, coll_msg_source(msg), (size_t)coll_msg_bytes(msg));
  s->ops->commit(
    s, channel,
    coll_header_put(at, msg->op, type | COLL_MESSAGE_IS_LENT, channel ? msg->op->p2p_id : number, coll_msg_bytes(msg)));
  msg->header_done = true;
  link->lends = msg;
}

bool coll_link_is_lent(coll_link *link)
{
  if (!link->stream->ops->lent(link->stream)) return false;
  link->lends = NULL;
  return true;
}

bool coll_link_send_steps(coll_link *link)
{
  bool any = false;

  for (coll_msg *msg; (msg = link->sends.head);) {
    int64_t before = msg->done_bytes;
    int type = COLL_MESSAGE_STEP | (msg->op->site.instruction ? COLL_MESSAGE_HAS_SITE : 0);
    bool had_header = msg->header_done, done = false;
    if (link->lends == msg) done = coll_link_is_lent(link);
    else if (had_header || !coll_link_is_bulk(link, msg)) done = coll_link_send_some(link, 0, msg, type);
    else if (!link->lends) coll_link_lend(link, 0, msg, type);
    any |= done || msg->done_bytes != before || msg->header_done != had_header;
    if (!done) break;
    coll_fifo_pop(&link->sends);
    coll_engine_msg_done_locked(msg);
  }
  return any;
}

/* Reads the header of the next message.  False if it has not come, or the group failed. */
static bool open_step(coll_link *link, coll_op *op)
{
  coll_stream *s = link->stream;
  const void *at;
  size_t got = s->ops->data(s, 0, &at);
  coll_header h;

  if (got < sizeof h) return false;
  memcpy(&h, at, sizeof h);
  if (!coll_header_is_sound(&h) || (h.type & ~(COLL_MESSAGE_HAS_SITE | COLL_MESSAGE_IS_LENT)) != COLL_MESSAGE_STEP ||
      (h.type & COLL_MESSAGE_IS_LENT && !s->ops->borrow)) {
    coll_link_garbage(link, "a message header is damaged");
    return false;
  }
  size_t lead = sizeof h;
  link->rx_site[0] = '\0';
  if (h.type & COLL_MESSAGE_HAS_SITE) {
    lead += COLL_SITE_BYTES;
    if (got < lead) return false;
    memcpy(link->rx_site, (const char *)at + sizeof h, COLL_SITE_BYTES);
    link->rx_site[COLL_SITE_BYTES] = '\0';
  }
  if (h.seq != op->seq || h.fingerprint != op->fingerprint) {
    coll_link_disagree(link, &h, link->rx_site, op);
    return false;
  }
  if (h.id != link->rx_count[0]) {
    coll_link_garbage(link, "a message came twice, or one got lost");
    return false;
  }
  coll_op_meet_place(op, h.tag);
  link->rx_count[0]++;
  link->rx = h;
  link->rx_open = true;
  s->ops->consume(s, 0, lead);
  return true;
}

/* Receives the payload of message `msg`, `total` bytes long.  True when it is complete. */
bool coll_link_receive_some(coll_link *link, int channel, coll_msg *msg, int64_t total)
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

/* The same for a payload that the peer lends: the whole payload is read into its place, or it is read piece by piece
 * and reduced. */
bool coll_link_borrow_some(coll_link *link, coll_msg *msg, size_t total)
{
  coll_stream *s = link->stream;
  char *target = coll_msg_target(msg);

  weft_mutex_assert_held(&link->group->mu);
  if (link->borrows && link->borrows != msg) {
    coll_link_garbage(link, "it lends two things at once");
    return false;
  }
  while ((size_t)msg->done_bytes < total) {
    if (!link->borrowing) {
      if (!target && !link->scratch && !(link->scratch = malloc(BULK_PIECE_BYTES))) {
        coll_group_fail_locked(link->group, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a message"));
        return false;
      }
      link->borrowing = target ? total : WEFT_MIN(total - (size_t)msg->done_bytes, (size_t)BULK_PIECE_BYTES);
      link->borrows = msg;
      s->ops->borrow(s, target ? target : link->scratch, link->borrowing);
    }
    if (!s->ops->borrowed(s)) return false;
    link->borrows = NULL;
    if (target) msg->done_bytes = (int64_t)total;
    else coll_engine_deliver(msg, link->scratch, link->borrowing);
    link->borrowing = 0;
  }
  return true;
}

bool coll_link_receive_steps(coll_link *link)
{
  bool any = false;

  for (coll_msg *msg; (msg = link->recvs.head) && !link->group->error;) {
    if (!link->rx_open) {
      if (!open_step(link, msg->op)) break;
      any = true;
      if ((int64_t)link->rx.bytes != coll_msg_bytes(msg)) {
        coll_link_disagree(link, &link->rx, link->rx_site, msg->op);
        return true;
      }
    }
    int64_t before = msg->done_bytes;
    bool done = link->rx.type & COLL_MESSAGE_IS_LENT ? coll_link_borrow_some(link, msg, link->rx.bytes)
                                                     : coll_link_receive_some(link, 0, msg, (int64_t)link->rx.bytes);
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

/* ---- meetings that have become vain ---- */

/* Has the stream a part of one of the operation's messages? */
static bool is_half_moved(const coll_link *link, const coll_op *op)
{
  if (link->rx_open && link->recvs.head && link->recvs.head->op == op) return true;
  for (const coll_msg *msg = link->sends.head; msg; msg = msg->next)
    if (msg->op == op && (msg->header_done || msg->done_bytes)) return true;
  return false;
}

static void drop_of(coll_fifo *fifo, const coll_op *op)
{
  coll_fifo kept = {0};

  for (coll_msg *msg; (msg = coll_fifo_pop(fifo));)
    if (msg->op != op) coll_fifo_push(&kept, msg);
  *fifo = kept;
}

/* Takes the messages of an operation out of all queues.  False, and nothing is done: one of them is half moved. */
static bool withdraw(coll_group *g, const coll_op *op)
{
  for (const coll_link *link = g->open_links; link; link = link->next_open)
    if (is_half_moved(link, op)) return false;
  for (coll_link *link = g->open_links; link; link = link->next_open) {
    drop_of(&link->sends, op);
    drop_of(&link->recvs, op);
  }
  for (int i = 0; i < g->local_count * g->local_count; i++) {
    drop_of(&g->pairs[i].sends, op);
    drop_of(&g->pairs[i].recvs, op);
  }
  return true;
}

void coll_links_end_meetings_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  if (!g->ending || !coll_group_has_platform(g) || g->use_direct) return;
  for (coll_op *op = g->all_pending, *next; op; op = next) {
    next = op->pending_next;
    if (op->collective && op->started && !op->runnable && coll_op_goes_below(op) && !op->below &&
        op->seq >= g->ends_at && withdraw(g, op))
      coll_op_finish_locked(op, weft_status_dup(g->ending));
  }
}
