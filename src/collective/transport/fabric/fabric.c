/* collective/transport/fabric/fabric.c -- streams over libfabric's tagged RDM endpoints.
 *
 * A group has one endpoint; every stream posts receives for its own tags on it before its peer may send.  A commit
 * is one message, sent from the stream's own memory into the peer's posted memory.  A loan goes from the user's
 * memory to the user's, in pieces: the borrower posts receives for the next two pieces there, and tells the lender
 * how many bytes it wants and how long a piece is; the lender sends these.  (A message of many MB at once would
 * leave every cache before it is read.)  libfabric gives the memory of an unfinished send back only when the
 * endpoint closes, so revoking a loan closes the endpoint.  (RMA is left out on purpose: on the tcp, net and rxm
 * providers it is emulated by messages, and elsewhere it needs registration modes that differ by provider.)  Each
 * channel has a window: the receiver gives credits back as it consumes, at the end of a message that goes to the
 * sender anyway (its length, which is no multiple of a unit, says so), or, when many credits are due, by a message
 * of their own.  Receives of one tag complete in the order in which messages were sent (FI_ORDER_SAS), so a slot's
 * place in the ring is its place in that order.
 *
 * Any process that reaches the endpoint can send to it.  So a stream's tags are drawn from its session's keys, and a
 * message is accepted only if its code is right for the message of that number: the code covers the first
 * COVERED_BYTES, the credit and the length (mac.h), or, if the message is sealed, all of it (seal.h).  A loan is not
 * covered, but its announcement is; where everything must be covered, nothing is lent.
 *
 *   data, a multiple of units | credit, 24 bytes, if some are given | 8 bytes, if it is sealed | code, 8 bytes
 * The code goes as the completion's data where the provider has such data, so that small messages stay small enough
 * to be injected.
 *
 * libfabric does not report dead peers on such endpoints: the control connections do. */
#include <config.h>

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/mac.h"
#include "collective/transport/transport.h"

enum { SLOTS = 16, CREDIT_SLOTS = 4, CREDIT_CHANNEL = COLL_CHANNELS, BULK_CHANNEL };
enum { CREDIT_LANE = CREDIT_CHANNEL, LANES = COLL_CHANNELS + 1 };
enum { COVERED_BYTES = 1024, WHOLE_BYTES = 8 };
enum { BULK_BYTES = 128 << 10, MOST_PIECE_BYTES = 1 << 20, PIECES_AHEAD = 2 };
/* 64 KiB with header and name; a credit and the code */
enum { CHUNK_BYTES = (64 << 10) + 2 * COLL_STREAM_UNIT, SLOT_BYTES = CHUNK_BYTES + COLL_STREAM_UNIT };
#define TAG_MASK ((UINT64_C(1) << 62) - 1)
#define FLUSH_NS WEFT_NS_PER_S
/* how long revoke waits for committed data, while operations wait for their end */
#define REVOKE_NS (20 * WEFT_NS_PER_MS)

typedef enum slot_state { SLOT_FREE, SLOT_WAITING /* to be posted */, SLOT_POSTED, SLOT_DONE } slot_state;

typedef struct fabric_stream fabric_stream;

/* One message under way, or the place of one.  The context comes first, because libfabric gives its address back. */
typedef struct slot {
  struct fi_context2 context;
  fabric_stream *stream;
  slot_state state;
  bool sends;
  uint8_t lane;
  size_t bytes, data_bytes, room; /* data_bytes: without the trailer; room: size of a receive's memory */
  char *data;
  uint64_t tag;
  uint64_t code;      /* authenticates the message */
  uint64_t number;    /* of the message among those of its lane; the n-th receive gets the n-th message */
} slot;

/* A ring of slots, which are used, and complete for their reader, in order. */
typedef struct lane {
  slot slots[SLOTS];
  uint64_t begun;  /* messages sent or consumed */
  size_t consumed; /* bytes of the oldest message */
} lane;

/* What a receiver tells its sender. */
typedef struct credit {
  uint32_t owed[COLL_CHANNELS]; /* messages that it has consumed since the last credit */
  uint64_t wanted;              /* bytes of loans that it has asked for since the stream was made */
  uint64_t piece;               /* size of the pieces of the current loan, except the last piece */
} credit;
_Static_assert(sizeof(credit) + WHOLE_BYTES + COLL_SHORT_TAG_BYTES < COLL_STREAM_UNIT,
               "what is past a message's last whole unit is its trailer");

/* The form of a message.  It is authenticated behind data and credit but not sent: the receiver derives it from the
 * length. */
typedef struct form {
  uint64_t bytes;  /* of the data */
  uint32_t gives;  /* 1: a credit follows the data */
  uint32_t whole;  /* 1: the message is sealed */
} form;
_Static_assert(sizeof(credit) + sizeof(form) <= COLL_STREAM_UNIT, "a slot's memory has room for the form");
_Static_assert(COVERED_BYTES + sizeof(credit) + sizeof(form) <= COLL_MAC_MOST_BYTES, "what is covered is a text");

struct fabric_stream {
  coll_stream base;
  struct coll_fabric *fabric;
  fabric_stream *next;
  fi_addr_t peer;
  lane out[COLL_CHANNELS], in[COLL_CHANNELS];
  int credits[COLL_CHANNELS]; /* messages for which the peer has room */
  credit due;                 /* to be told to the peer */
  uint64_t wanted_told;
  slot credit_in[CREDIT_SLOTS], credit_out[CREDIT_SLOTS];
  lane bulk_in, bulk_out;
  uint64_t asked;             /* pieces of loans that this side has asked for */
  char *into;                 /* where borrowed data goes that is not asked for yet */
  size_t into_bytes;
  const char *lent_at;        /* the part of the loan that is not sent yet */
  uint64_t lent, sent, wanted; /* bytes of loans since the stream was made; `wanted` by the peer */
  uint64_t piece;              /* size of the pieces that the peer wants */
  char *memory;
  coll_seal *closes, *opens;               /* for sealed messages */
  coll_mac mac_out, mac_in;                /* for other messages */
  uint64_t numbered[LANES], posted[LANES]; /* numbers of messages sent, and of receives posted, by lane */
  uint64_t came[LANES];                    /* messages that came and were accepted, by lane */
  uint64_t numbered_bytes, came_bytes;     /* data of those of channels */
  uint64_t bulk_tag_out, bulk_tag_in;      /* tag of the first piece; each next piece has the next tag */
  bool whole; /* every message is sealed */
  bool waits; /* a slot waits to be posted */
  bool broken, closed;
  bool forged; /* a message was not the peer's next one; then `broken` is set too */
  char why[160];
};

struct coll_fabric {
  coll_group *group;
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep;
  bool code_beside; /* the code travels beside the message, as completion data */
  int wait_fd;
  uint64_t wait_id;
  int idle_wakes; /* wake-ups by wait_fd since anything completed */
  int64_t lies_since_ns;
  fabric_stream *streams;
  bool lost; /* the endpoint was closed before all committed data was sent */
};

static struct coll_fabric *of_group(const coll_group *g) { return g->transports[COLL_TRANSPORT_FABRIC]; }

/* ---- opening ---- */

/* Fast networks first, then sockets.  From libfabric 1.18 on `tcp` has RDM endpoints itself; before, `net` has. */
static const char *const providers_new[] = {"cxi", "efa", "psm3", "opx", "verbs;ofi_rxm", "tcp", "tcp;ofi_rxm", NULL};
static const char *const providers_old[] = {"cxi", "efa", "psm3", "opx", "verbs;ofi_rxm", "net", "tcp;ofi_rxm", NULL};

static struct fi_info *try_provider(const char *name, const char *inet)
{
  struct fi_info *hints = fi_allocinfo(), *info = NULL;
  bool by_inet = !name || strcmp(name, "tcp") == 0 || strcmp(name, "net") == 0 || strstr(name, "ofi_rxm");

  if (!hints) return NULL;
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN; /* all calls are made under the group's lock */
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (name) hints->fabric_attr->prov_name = strdup(name);
  int failed =
    fi_getinfo(FI_VERSION(1, 9), by_inet && *inet ? inet : NULL, NULL, by_inet && *inet ? FI_SOURCE : 0, hints, &info);
  fi_freeinfo(hints);
  return failed ? NULL : info;
}

static weft_status *find_provider(const char *inet, struct fi_info **out)
{
  uint32_t version = fi_version();
  bool old = FI_MAJOR(version) == 1 && FI_MINOR(version) < 18;
  const char *const *names = old ? providers_old : providers_new;

  *out = NULL;
  if (getenv("FI_PROVIDER")) *out = try_provider(NULL, inet); /* libfabric filters the providers */
  for (int i = 0; !*out && names[i]; i++) *out = try_provider(names[i], inet);
  if (*out) return NULL;
  return WEFT_ERR(UNAVAILABLE, "libfabric %u.%u has no provider with tagged RDM endpoints at %s%s%s", FI_MAJOR(version),
                  FI_MINOR(version), inet, getenv("FI_PROVIDER") ? " that FI_PROVIDER allows: " : "",
                  getenv("FI_PROVIDER") ? getenv("FI_PROVIDER") : "");
}

static weft_status *fabric_error(const char *what, int code)
{
  return WEFT_ERR(UNAVAILABLE, "libfabric: %s: %s", what, fi_strerror(code < 0 ? -code : code));
}

#define TRY_FI(call)                                     \
  do {                                                   \
    int failed_ = (int)(call);                           \
    if (failed_) return fabric_error(#call, failed_);    \
  } while (0)

static void stream_free(fabric_stream *s)
{
  coll_seal_free(s->closes);
  coll_seal_free(s->opens);
  explicit_bzero(&s->mac_out, sizeof s->mac_out);
  explicit_bzero(&s->mac_in, sizeof s->mac_in);
  free(s->memory);
  free(s);
}

static void fabric_fini(struct coll_fabric *f)
{
  struct fid *order[] = {f->ep ? &f->ep->fid : NULL, f->cq ? &f->cq->fid : NULL, f->av ? &f->av->fid : NULL,
                         f->domain ? &f->domain->fid : NULL, f->fabric ? &f->fabric->fid : NULL};

  for (size_t i = 0; i < WEFT_COUNT(order); i++)
    if (order[i]) fi_close(order[i]);
  for (fabric_stream *s = f->streams, *next; s; s = next) { /* after the endpoint, which uses the streams' memory */
    next = s->next;
    stream_free(s);
  }
  if (f->info) fi_freeinfo(f->info);
  free(f);
}

static weft_status *fabric_init(struct coll_fabric *f, const char *inet)
{
  struct fi_cq_attr cq_attr = {.size = 8192, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
  struct fi_av_attr av_attr = {.type = FI_AV_TABLE};

  f->wait_fd = -1;
  WEFT_TRY(find_provider(inet, &f->info));
  f->code_beside = f->info->domain_attr->cq_data_size >= sizeof(uint64_t);
  TRY_FI(fi_fabric(f->info->fabric_attr, &f->fabric, NULL));
  TRY_FI(fi_domain(f->fabric, f->info, &f->domain, NULL));
  TRY_FI(fi_av_open(f->domain, &av_attr, &f->av, NULL));
  TRY_FI(fi_cq_open(f->domain, &cq_attr, &f->cq, NULL));
  TRY_FI(fi_endpoint(f->domain, f->info, &f->ep, NULL));
  TRY_FI(fi_ep_bind(f->ep, &f->av->fid, 0));
  TRY_FI(fi_ep_bind(f->ep, &f->cq->fid, FI_SEND | FI_RECV));
  TRY_FI(fi_enable(f->ep));
  if (fi_control(&f->cq->fid, FI_GETWAIT, &f->wait_fd) != 0) f->wait_fd = -1;
  return NULL;
}

static weft_status *open_for(coll_group *g, const char *inet)
{
  if (of_group(g)) return NULL;
  struct coll_fabric *f = calloc(1, sizeof *f);
  WEFT_TRY_ALLOC(f);
  weft_status *st = fabric_init(f, inet);
  if (st) {
    fabric_fini(f);
    return st;
  }
  f->group = g;
  f->wait_id = coll_context_next_id();
  g->transports[COLL_TRANSPORT_FABRIC] = f;
  atomic_store_explicit(&g->polls_slowly, true, memory_order_relaxed);
  WEFT_LOG("coll", DEBUG, "%s: libfabric provider %s at %s", g->name, f->info->fabric_attr->prov_name, inet);
  return NULL;
}

static weft_status *fabric_open(coll_group *g, coll_address *out)
{
  size_t bytes = sizeof out->fabric_name;

  WEFT_TRY(open_for(g, out->inet));
  TRY_FI(fi_getname(&of_group(g)->ep->fid, out->fabric_name, &bytes));
  if (bytes > sizeof out->fabric_name) return WEFT_ERR(UNIMPLEMENTED, "libfabric addresses of %zu bytes", bytes);
  out->fabric_bytes = (uint32_t)bytes;
  out->protocol = of_group(g)->info->ep_attr->protocol;
  snprintf(out->provider, sizeof out->provider, "%s", of_group(g)->info->fabric_attr->prov_name);
  return NULL;
}

/* ---- messages ---- */

static void broke(fabric_stream *s, const char *what, int code)
{
  if (s->broken) return;
  s->broken = true;
  s->base.unsent = false;
  snprintf(s->why, sizeof s->why, "cannot be reached: libfabric %s: %s", what, fi_strerror(code < 0 ? -code : code));
}

static void forged(fabric_stream *s, const char *what)
{
  if (!s->broken) snprintf(s->why, sizeof s->why, "libfabric, %s", what);
  s->broken = s->forged = true;
  s->base.unsent = false;
}

/* ---- authenticating ---- */

/* All messages are sealed while ranks meet, because ranks then tell each other their door keys. */
static bool seals_whole(const fabric_stream *s) { return s->whole || !s->fabric->group->topology.size; }

/* Makes the code of a message that goes out, or checks the code of one that came (`comes`).  The form is written
 * into the slot's memory. */
static bool authenticate(slot *sl, const form *f, bool comes)
{
  fabric_stream *s = sl->stream;
  char *behind = sl->data + f->bytes;
  size_t behind_bytes = (f->gives ? sizeof(credit) : 0) + sizeof *f;

  memcpy(behind + behind_bytes - sizeof *f, f, sizeof *f);
  if (f->whole) {
    coll_sealed message = {.lane = sl->lane, .number = sl->number, .head = behind, .head_bytes = behind_bytes, .body = sl->data,
                           .body_bytes = f->bytes, .short_tag = true};
    return comes ? coll_seal_open(s->opens, &message, &sl->code) : coll_seal_close(s->closes, &message, &sl->code);
  }
  coll_mac_text text = {sl->data, behind, WEFT_MIN(f->bytes, (uint64_t)COVERED_BYTES), behind_bytes};
  uint64_t code = coll_mac_code(comes ? &s->mac_in : &s->mac_out, sl->lane, sl->number, text);
  if (comes) return code == sl->code;
  sl->code = code;
  return true;
}

/* Completes a message with sl->bytes of data; adds the credit that is due if `gives`. */
static void close_message(slot *sl, bool gives)
{
  fabric_stream *s = sl->stream;
  form f = {.bytes = sl->bytes, .gives = gives, .whole = seals_whole(s)};

  sl->data_bytes = sl->bytes;
  char *at = sl->data + sl->bytes;

  if (gives) {
    memcpy(at, &s->due, sizeof s->due);
    at += sizeof s->due;
    memset(s->due.owed, 0, sizeof s->due.owed);
    s->wanted_told = s->due.wanted;
  }
  sl->number = s->numbered[sl->lane]++;
  s->numbered_bytes += sl->bytes;
  if (!authenticate(sl, &f, false)) broke(s, "sealing", FI_ENOMEM);
  if (f.whole) memset(at, 0, WHOLE_BYTES);
  at += f.whole ? WHOLE_BYTES : 0;
  if (!s->fabric->code_beside) memcpy(at, &sl->code, sizeof sl->code);
  at += s->fabric->code_beside ? 0 : sizeof sl->code;
  sl->bytes = (size_t)(at - sl->data);
}

/* Checks a message of `bytes` that has come; its code may have come beside it, in sl->code.  True: it is the peer's
 * next message.  Then sl->bytes is the size of its data, and *gives says whether a credit follows them. */
static bool open_message(slot *sl, size_t bytes, bool *gives)
{
  fabric_stream *s = sl->stream;
  size_t code = s->fabric->code_beside ? 0 : sizeof sl->code, data = bytes & ~(size_t)(COLL_STREAM_UNIT - 1);

  if (data + COLL_STREAM_UNIT > sl->room || bytes - data < code || (data > 0) == (sl->lane == CREDIT_LANE))
    return false;
  size_t rest = bytes - data - code;
  *gives = rest >= sizeof(credit);
  rest -= *gives ? sizeof(credit) : 0;
  form f = {.bytes = data, .gives = *gives, .whole = rest == WHOLE_BYTES};
  if ((rest && !f.whole) || (s->whole && !f.whole)) return false;
  if (code) memcpy(&sl->code, sl->data + bytes - code, code); /* saved, because the form is written over it */
  sl->bytes = data;
  return authenticate(sl, &f, true);
}

/* ---- posting ---- */

/* Hands a message to libfabric.  `inject`: libfabric keeps a copy, and there will be no completion. */
static ssize_t send_now(slot *sl, bool inject)
{
  fabric_stream *s = sl->stream;
  struct fid_ep *ep = s->fabric->ep;

  if (s->fabric->code_beside && sl->lane < LANES) {
    if (inject) return fi_tinjectdata(ep, sl->data, sl->bytes, sl->code, s->peer, sl->tag);
    return fi_tsenddata(ep, sl->data, sl->bytes, NULL, sl->code, s->peer, sl->tag, &sl->context);
  }
  if (inject) return fi_tinject(ep, sl->data, sl->bytes, s->peer, sl->tag);
  return fi_tsend(ep, sl->data, sl->bytes, NULL, s->peer, sl->tag, &sl->context);
}

/* Posts a slot that waits.  -FI_EAGAIN means "later": a queue is full, or a connection is being made. */
static void post(slot *sl)
{
  fabric_stream *s = sl->stream;
  struct coll_fabric *f = s->fabric;
  bool inject = sl->sends && sl->bytes <= f->info->tx_attr->inject_size;

  if (!f->ep) { /* revoked: the communicator is spent, and what is still written or consumed goes nowhere */
    sl->state = SLOT_FREE;
    return;
  }
  ssize_t failed = sl->sends ? send_now(sl, inject)
                             : fi_trecv(f->ep, sl->data, sl->room, NULL, FI_ADDR_UNSPEC, sl->tag, 0, &sl->context);
  if (failed == -FI_EAGAIN) {
    sl->state = SLOT_WAITING;
    s->waits = true;
  } else if (failed) {
    broke(s, sl->sends ? "send" : "receive", (int)failed);
  } else {
    if (!sl->sends && sl->lane < LANES) sl->number = s->posted[sl->lane]++;
    sl->state = inject ? SLOT_FREE : SLOT_POSTED;
  }
}

/* Is a credit of `least` messages due on a channel, or does this side want bytes of a loan that the peer does not know
 * of? */
static bool owes(const fabric_stream *s, uint32_t least)
{
  bool found = s->due.wanted != s->wanted_told;

  for (int c = 0; c < COLL_CHANNELS; c++) found |= s->due.owed[c] >= least;
  return found;
}

/* Sends a credit message if enough is due to be worth one. */
static void give_credits(fabric_stream *s)
{
  bool enough = owes(s, SLOTS / 2);

  for (int i = 0; i < CREDIT_SLOTS; i++)
    enough = enough && s->credit_out[i].state != SLOT_WAITING; /* no credit overtakes another */
  for (int i = 0; i < CREDIT_SLOTS && enough; i++) {
    slot *sl = &s->credit_out[i];
    if (sl->state != SLOT_FREE) continue;
    sl->bytes = 0;
    close_message(sl, true);
    post(sl);
    s->base.unsent |= sl->state != SLOT_FREE;
    return;
  }
}

static void take_credit(fabric_stream *s, const char *data)
{
  credit told;

  memcpy(&told, data, sizeof told);
  for (int c = 0; c < COLL_CHANNELS; c++)
    if (told.owed[c] <= SLOTS) s->credits[c] = WEFT_MIN(s->credits[c] + (int)told.owed[c], SLOTS);
  if (told.wanted <= s->wanted) return; /* credits may cross: the later one counts */
  s->wanted = told.wanted;
  s->piece = told.piece;
}

/* Posts the waiting slots of a lane in order, receives as well as sends: a later slot never overtakes one that
 * waits.  False: one still waits. */
static bool post_waiting(lane *l, uint64_t first)
{
  for (uint64_t i = 0; i < SLOTS; i++) {
    slot *sl = &l->slots[(first + i) % SLOTS];
    if (sl->state != SLOT_WAITING) continue;
    post(sl);
    if (sl->state == SLOT_WAITING) return false;
  }
  return true;
}

/* Sends what the peer wants of the loan. */
static void send_bulk(fabric_stream *s)
{
  lane *l = &s->bulk_out;

  while (s->wanted > s->sent && !s->broken) {
    slot *sl = &l->slots[l->begun % SLOTS];
    if (sl->state != SLOT_FREE) return;
    sl->bytes = (size_t)WEFT_MIN(s->piece, s->lent - s->sent);
    if (sl->bytes == 0 || sl->bytes > s->wanted - s->sent) {
      broke(s, "peer wants other than it was lent", FI_EINVAL);
      return;
    }
    sl->data = (char *)s->lent_at;
    sl->tag = (s->bulk_tag_out + l->begun) & TAG_MASK;
    sl->state = SLOT_WAITING;
    s->lent_at += sl->bytes;
    s->sent += sl->bytes;
    l->begun++;
    post_waiting(l, l->begun);
  }
}

/* Posts receives for the next pieces of the loan that is read. */
static void ask_for_bulk(fabric_stream *s)
{
  lane *l = &s->bulk_in;

  while (s->into_bytes > 0 && s->asked - l->begun < PIECES_AHEAD) {
    slot *sl = &l->slots[s->asked % SLOTS];
    sl->tag = (s->bulk_tag_in + s->asked++) & TAG_MASK;
    sl->data = s->into;
    sl->room = WEFT_MIN(s->into_bytes, (size_t)s->due.piece);
    sl->state = SLOT_WAITING;
    s->into += sl->room;
    s->into_bytes -= sl->room;
    s->due.wanted += sl->room;
    post_waiting(l, l->begun);
  }
}

/* Has the stream sent messages that have not gone yet?  (Injected messages count as gone: libfabric tells nothing of
 * them.) */
static bool has_unsent(const fabric_stream *s)
{
  bool found = false;

  for (int c = 0; c < COLL_CHANNELS; c++)
    for (int i = 0; i < SLOTS; i++) found |= s->out[c].slots[i].state != SLOT_FREE;
  for (int i = 0; i < CREDIT_SLOTS; i++) found |= s->credit_out[i].state != SLOT_FREE;
  return found;
}

static void post_all_waiting(fabric_stream *s)
{
  s->waits = false;
  for (int c = 0; c < COLL_CHANNELS; c++) {
    post_waiting(&s->out[c], s->out[c].begun); /* in a full ring the oldest slot is where the next message goes */
    post_waiting(&s->in[c], s->in[c].begun);
  }
  for (int i = 0; i < CREDIT_SLOTS; i++) {
    if (s->credit_in[i].state == SLOT_WAITING) post(&s->credit_in[i]);
    if (s->credit_out[i].state == SLOT_WAITING) post(&s->credit_out[i]);
  }
  post_waiting(&s->bulk_in, s->bulk_in.begun);
  post_waiting(&s->bulk_out, s->bulk_out.begun);
}

static void retry(fabric_stream *s)
{
  if (s->waits) post_all_waiting(s);
  give_credits(s);
  if (s->base.unsent) s->base.unsent = has_unsent(s);
}

/* A message of a channel, or a credit, has come. */
static void take_in(slot *sl, size_t bytes)
{
  fabric_stream *s = sl->stream;
  bool gives;

  if (s->broken) return; /* after that no message counts */
  if (!open_message(sl, bytes, &gives)) {
    forged(s, sl->lane == CREDIT_LANE ? "a credit" : "a message");
    return;
  }
  s->came[sl->lane]++;
  s->came_bytes += sl->bytes;
  if (gives) take_credit(s, sl->data + sl->bytes);
  if (sl->lane == CREDIT_LANE) post(sl);
  else sl->state = SLOT_DONE;
}

static void completed(const struct fi_cq_tagged_entry *e)
{
  slot *sl = WEFT_CONTAINER_OF(e->op_context, slot, context);
  fabric_stream *s = sl->stream;

  if (sl->sends) {
    sl->state = SLOT_FREE;
  } else if (sl->lane < LANES) {
    sl->code = e->data;
    take_in(sl, e->len);
  } else {
    sl->state = SLOT_DONE;
    if (e->len != sl->room) forged(s, "a piece of a large message");
  }
}

/* Takes the error of a completion that failed.  False: there is none after all. */
static bool failed_completion(struct coll_fabric *f)
{
  struct fi_cq_err_entry error = {0};

  if (fi_cq_readerr(f->cq, &error, 0) < 1) return false;
  if (!error.op_context) return true;
  slot *sl = WEFT_CONTAINER_OF(error.op_context, slot, context);
  if (sl->sends) sl->state = SLOT_FREE;
  if (!sl->sends && error.err == FI_ETRUNC) forged(sl->stream, "a message that is too long");
  else broke(sl->stream, sl->sends ? "send" : "receive", error.err);
  return true;
}

static bool poll_fabric(struct coll_fabric *f)
{
  struct fi_cq_tagged_entry entries[16];
  bool any = false;
  ssize_t n = WEFT_COUNT(entries);

  if (!f->ep) return false;
  /* a read that returns fewer is the last one: another would cost a system call */
  while (n == WEFT_COUNT(entries) || n == -FI_EAVAIL) {
    n = fi_cq_read(f->cq, entries, WEFT_COUNT(entries));
    if (n == -FI_EAVAIL && !failed_completion(f)) break;
    for (ssize_t i = 0; i < n; i++) completed(&entries[i]);
    any |= n > 0 || n == -FI_EAVAIL;
  }
  if (any) f->idle_wakes = 0;
  for (fabric_stream *s = f->streams; s; s = s->next)
    if (!s->closed && !s->broken) retry(s);
  return any;
}

static bool fabric_poll_all(coll_group *g) { return poll_fabric(of_group(g)); }

/* With some providers (net and tcp of libfabric 1.17) the descriptor stays readable: a thread that slept on it would
 * be woken at once, again and again. */
static bool wait_lies(const struct coll_fabric *f)
{
  enum { FEW = 16 };
  return f->idle_wakes > FEW;
}

static void fabric_woken(coll_group *g)
{
  struct coll_fabric *f = of_group(g);

  if (poll_fabric(f) || wait_lies(f)) return;
  f->idle_wakes++;
  f->lies_since_ns = weft_now_ns();
}

static int64_t fabric_nap_ns(const coll_group *g, int64_t now_ns)
{
  enum { SHARE = 16, MOST_MS = 4 };
  const struct coll_fabric *f = of_group(g);

  if (!wait_lies(f)) return 0;
  return WEFT_MAX(WEFT_MIN((now_ns - f->lies_since_ns) / SHARE, MOST_MS * WEFT_NS_PER_MS), WEFT_NS_PER_MS);
}

/* ---- the stream ---- */

static fabric_stream *of(coll_stream *base) { return WEFT_CONTAINER_OF(base, fabric_stream, base); }

static size_t fabric_space(coll_stream *base, int channel, void **at)
{
  fabric_stream *s = of(base);
  lane *l = &s->out[channel];

  /* the last message has gone, so no slot waits: begin again, in memory that the caches hold */
  if (l->slots[(l->begun + SLOTS - 1) % SLOTS].state == SLOT_FREE && l->slots[0].state == SLOT_FREE) l->begun = 0;
  slot *sl = &l->slots[l->begun % SLOTS];

  *at = sl->data;
  return s->broken || s->credits[channel] == 0 || sl->state != SLOT_FREE ? 0 : CHUNK_BYTES;
}

static void fabric_commit(coll_stream *base, int channel, size_t bytes)
{
  fabric_stream *s = of(base);
  lane *l = &s->out[channel];
  slot *sl = &l->slots[l->begun++ % SLOTS];

  s->credits[channel]--;
  sl->bytes = bytes;
  close_message(sl, owes(s, SLOTS / 4));
  sl->state = SLOT_WAITING;
  post_waiting(l, l->begun); /* behind the slots that wait already */
  s->base.unsent |= sl->state != SLOT_FREE;
}

static size_t fabric_data(coll_stream *base, int channel, const void **at)
{
  lane *l = &of(base)->in[channel];
  const slot *sl = &l->slots[l->begun % SLOTS];

  *at = sl->data + l->consumed;
  return sl->state == SLOT_DONE ? sl->bytes - l->consumed : 0;
}

static void fabric_consume(coll_stream *base, int channel, size_t bytes)
{
  fabric_stream *s = of(base);
  lane *l = &s->in[channel];
  slot *sl = &l->slots[l->begun % SLOTS];

  l->consumed += bytes;
  if (l->consumed < sl->bytes) return;
  l->consumed = 0;
  l->begun++;
  sl->state = SLOT_WAITING;
  post_waiting(l, l->begun);
  s->due.owed[channel]++;
  give_credits(s);
}

static bool fabric_arm(coll_stream *base)
{
  (void)base;
  return true; /* all streams of a group have one descriptor: see fabric_arm_all */
}

static bool fabric_arm_all(coll_group *g)
{
  struct coll_fabric *f = of_group(g);
  struct fid *fids[1];

  if (!f->ep) return true;
  fids[0] = &f->cq->fid;
  if (poll_fabric(f)) return false;
  if (wait_lies(f)) return true; /* the progress thread polls from time to time: see fabric_nap_ns */
  if (f->wait_fd < 0 || fi_trywait(f->fabric, fids, 1) != FI_SUCCESS) return false;
  weft_status *st = coll_context_watch_once(f->wait_fd, f->group, f->wait_id);
  bool watched = !st;
  weft_status_ignore(st);
  return watched; /* else the progress thread must not sleep */
}

static size_t fabric_bulk_least(coll_stream *base) { return seals_whole(of(base)) ? SIZE_MAX : BULK_BYTES; }

static void fabric_lend(coll_stream *base, const void *data, size_t bytes)
{
  of(base)->lent_at = data;
  of(base)->lent += bytes;
}

/* The kernel takes long to copy a large piece into a socket.  So nothing is sent before what has come has been
 * looked at: otherwise two ranks that lend to each other would take turns instead of working at once. */
static bool fabric_lent(coll_stream *base)
{
  fabric_stream *s = of(base);

  send_bulk(s);
  bool sent = s->sent == s->lent;

  for (int i = 0; i < SLOTS && sent; i++) sent = s->bulk_out.slots[i].state == SLOT_FREE;
  return sent;
}

static void fabric_borrow(coll_stream *base, void *into, size_t bytes)
{
  fabric_stream *s = of(base);

  s->into = into;
  s->into_bytes = bytes;
  s->due.piece = WEFT_MIN(bytes, (size_t)MOST_PIECE_BYTES);
  ask_for_bulk(s);
  give_credits(s);
}

static bool fabric_borrowed(coll_stream *base)
{
  fabric_stream *s = of(base);

  lane *l = &s->bulk_in;

  for (slot *sl; (sl = &l->slots[l->begun % SLOTS])->state == SLOT_DONE; l->begun++) sl->state = SLOT_FREE;
  ask_for_bulk(s);
  give_credits(s);
  return s->into_bytes == 0 && s->asked == l->begun;
}

/* Waits until committed data is sent.  True if it is. */
static bool flush(struct coll_fabric *f, int64_t give_up_ns)
{
  for (;;) {
    bool unsent = false;
    poll_fabric(f);
    for (const fabric_stream *s = f->streams; s; s = s->next)
      unsent |= !s->broken && !s->base.unwanted && has_unsent(s);
    if (!unsent || weft_now_ns() > give_up_ns) return !unsent;
    sched_yield();
  }
}

static bool fabric_lost_some(const coll_group *g) { return of_group(g)->lost; }

static void fabric_revoke(coll_stream *base)
{
  fabric_stream *s = of(base);
  struct coll_fabric *f = s->fabric;
  bool busy = false;

  for (int i = 0; i < SLOTS; i++) {
    slot_state in = s->bulk_in.slots[i].state;
    busy |= s->bulk_out.slots[i].state != SLOT_FREE || in == SLOT_WAITING || in == SLOT_POSTED;
  }
  if (!busy || !f->ep) return;
  if (f->group->ends_at) f->lost = !flush(f, weft_now_ns() + REVOKE_NS); /* 0: a member has died, and no rank goes on */
  fi_close(&f->ep->fid);
  f->ep = NULL; /* no stream of the group, whose communicator is spent, can send any more */
}

/* A message has left when libfabric has given its memory back, or kept a copy. */
static void fabric_counts(coll_stream *base, coll_stream_counts *out)
{
  const fabric_stream *s = of(base);

  out->left_bytes = s->numbered_bytes;
  out->came_bytes = s->came_bytes;
  for (int c = 0; c < COLL_CHANNELS; c++) {
    for (int i = 0; i < SLOTS; i++) {
      const slot *sl = &s->out[c].slots[i];
      if (sl->state == SLOT_FREE) continue;
      out->waits[c]++;
      out->left_bytes -= sl->data_bytes;
    }
    out->left[c] = s->numbered[c] - out->waits[c];
    out->came[c] = s->came[c];
  }
}

static weft_status *fabric_health(coll_stream *base)
{
  const fabric_stream *s = of(base);

  if (s->forged) return WEFT_ERR(UNAUTHENTICATED, "%s", s->why);
  return s->broken ? WEFT_ERR(UNAVAILABLE, "%s", s->why) : NULL;
}

/* the endpoint may still use its memory: fabric_fini frees it */
static void fabric_close(coll_stream *base) { of(base)->closed = true; }

static const coll_stream_ops fabric_ops = {
  .name = "fabric",
  .space = fabric_space,
  .commit = fabric_commit,
  .data = fabric_data,
  .consume = fabric_consume,
  .arm = fabric_arm,
  .bulk_least = fabric_bulk_least,
  .lend = fabric_lend,
  .lent = fabric_lent,
  .borrow = fabric_borrow,
  .borrowed = fabric_borrowed,
  .revoke = fabric_revoke,
  .counts = fabric_counts,
  .health = fabric_health,
  .close = fabric_close,
};

static weft_status *draw_key(const coll_session *session, const char *purpose, bool outgoing, coll_key *out)
{
  return coll_session_key(session, purpose, outgoing, out) ? NULL
                                                           : WEFT_ERR(RESOURCE_EXHAUSTED, "OpenSSL has no memory");
}

/* Derives tags and keys of one direction, which no third process can know. */
static weft_status *draw_keys(fabric_stream *s, const coll_session *session, bool outgoing, coll_key *key,
                              uint64_t tags[LANES + 1])
{
  WEFT_TRY(draw_key(session, "weft tags", outgoing, key));
  memcpy(tags, key, sizeof *key);
  for (int i = 0; i <= LANES; i++) tags[i] &= TAG_MASK;
  WEFT_TRY(draw_key(session, "weft codes", outgoing, key));
  coll_mac_init(outgoing ? &s->mac_out : &s->mac_in, key);
  WEFT_TRY(draw_key(session, "weft stream", outgoing, key));
  return coll_seal_new(key, outgoing, outgoing ? &s->closes : &s->opens);
}
_Static_assert(sizeof(coll_key) == (LANES + 1) * sizeof(uint64_t), "a key makes a tag for each lane and for bulk");

/* Places all slots in the stream's memory, and posts the receives. */
static void lay_out(fabric_stream *s, const uint64_t out[LANES + 1], const uint64_t in[LANES + 1])
{
  char *at = s->memory;

  for (uint8_t c = 0; c < COLL_CHANNELS; c++) {
    s->credits[c] = SLOTS;
    for (int i = 0; i < SLOTS; i++, at += 2 * SLOT_BYTES) {
      s->out[c].slots[i] = (slot){.stream = s, .lane = c, .sends = true, .data = at, .tag = out[c]};
      s->in[c].slots[i] = (slot){.stream = s, .lane = c, .data = at + SLOT_BYTES, .room = SLOT_BYTES, .tag = in[c]};
      post(&s->in[c].slots[i]);
    }
  }
  for (int i = 0; i < CREDIT_SLOTS; i++, at += 2 * COLL_STREAM_UNIT) {
    s->credit_out[i] = (slot){.stream = s, .lane = CREDIT_LANE, .sends = true, .data = at, .tag = out[CREDIT_LANE]};
    s->credit_in[i] = (slot){.stream = s,
                             .lane = CREDIT_LANE,
                             .data = at + COLL_STREAM_UNIT,
                             .room = COLL_STREAM_UNIT,
                             .tag = in[CREDIT_LANE]};
    post(&s->credit_in[i]);
  }
  s->bulk_tag_out = out[LANES];
  s->bulk_tag_in = in[LANES];
  for (int i = 0; i < SLOTS; i++) {
    s->bulk_out.slots[i] = (slot){.stream = s, .lane = LANES, .sends = true};
    s->bulk_in.slots[i] = (slot){.stream = s, .lane = LANES};
  }
}

/* Errors: FAILED_PRECONDITION, where the two sides have different providers. */
static weft_status *fabric_new(const coll_transport_ends *ends, coll_stream **out_stream)
{
  coll_group *g = ends->group;
  const coll_address *to = ends->address;
  coll_address own = g->addresses[ends->mine];
  size_t memory_bytes = (size_t)(2 * SLOTS * COLL_CHANNELS) * SLOT_BYTES +
                        (size_t)(2 * CREDIT_SLOTS) * COLL_STREAM_UNIT;
  uint64_t out[LANES + 1], in[LANES + 1];

  *out_stream = NULL;
  WEFT_TRY(fabric_open(g, &own));
  if (strcmp(own.provider, to->provider) != 0 || own.protocol != to->protocol || !to->fabric_bytes)
    return WEFT_ERR(
      FAILED_PRECONDITION,
      "libfabric providers differ: %s (protocol %u) on %.64s, %.24s (protocol %u) on %.64s; set FI_PROVIDER alike",
      own.provider, own.protocol, own.host, to->provider, to->protocol, to->host);
  fabric_stream *s = calloc(1, sizeof *s);
  WEFT_TRY_ALLOC(s);
  coll_key key;
  weft_status *st = draw_keys(s, ends->session, true, &key, out);
  if (!st) st = draw_keys(s, ends->session, false, &key, in);
  coll_key_wipe(&key);
  s->memory = aligned_alloc(4096, memory_bytes + (4096 - memory_bytes % 4096));
  if (!st && (!s->memory || fi_av_insert(of_group(g)->av, to->fabric_name, 1, &s->peer, 0, NULL) != 1))
    st = WEFT_ERR(UNAVAILABLE, "libfabric does not take the address of rank %d", ends->theirs);
  if (st) {
    stream_free(s);
    return st;
  }
  s->base.ops = &fabric_ops;
  s->fabric = of_group(g);
  s->whole = coll_settings_seal_whole();
  s->next = of_group(g)->streams;
  of_group(g)->streams = s;
  lay_out(s, out, in);
  *out_stream = &s->base;
  return NULL;
}

static void fabric_close_all(coll_group *g)
{
  struct coll_fabric *f = of_group(g);
  int64_t give_up_ns = weft_now_ns() + FLUSH_NS;

  g->transports[COLL_TRANSPORT_FABRIC] = NULL;
  if (g->error) give_up_ns = g->ends_at ? WEFT_MIN(give_up_ns, g->spent_ns + FLUSH_NS) : 0;
  for (fabric_stream *s = f->streams; s; s = s->next) s->closed = false;
  if (f->ep) flush(f, give_up_ns);
  if (f->wait_fd >= 0) coll_context_unwatch(f->wait_fd);
  fabric_fini(f);
}

static bool fabric_reaches(const coll_address *from, const coll_address *to)
{
  (void)from;
  (void)to;
  return true;
}

const coll_transport_ops coll_fabric_transport = {
  .name = "fabric", .reaches = fabric_reaches, .open = fabric_open, .stream = fabric_new, .poll = fabric_poll_all, .arm = fabric_arm_all,
  .woken = fabric_woken, .nap_ns = fabric_nap_ns, .lost_some = fabric_lost_some, .close = fabric_close_all,
};
