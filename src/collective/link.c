/* collective/link.c -- ranks of different processes: connecting, driving what is connected, dying.  message.c has the messages
 * of schedules, p2p.c sends and receives. */
#include <config.h>

#include "collective/link_state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/fabric/fabric.h"

/* How long a peer whose stream broke has to say why on the control connection, before it counts as dead. */
#define WORD_NS (50 * WEFT_NS_PER_MS)

/* The same for a peer whose process refuses connections: it may have given up and left, and what it said about that comes
 * by way of others, whom it was connected to. */
#define REFUSED_WORD_NS WEFT_NS_PER_S

/* A listener that strangers crowd may turn a member away, which tries again so often, each time after this pause. */
enum { MOST_REDIALS = 400 };
#define REDIAL_NS (10 * WEFT_NS_PER_MS)

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
const char *coll_link_why(const coll_link *link) { return link->why; }
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

/* Of a peer that has left: has all come that it sent? */
static bool has_all_steps(const coll_link *link) { return !link->rx_open && link->rx_count[0] >= link->rx_last[0]; }

/* The same: and do we need more of it? */
static bool waits_in_vain(const coll_link *link)
{
  bool p2p = link->offered.head || link->incoming.head;
  const weft_comm *comm = link->group->locals[link->local];

  for (const coll_msg *m = comm ? comm->p2p_recvs.head : NULL; m; m = m->next) p2p |= m->op->args.peer == link->peer;
  return link->sends.head || (link->recvs.head && has_all_steps(link)) || (p2p && coll_link_has_all_p2p(link));
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
  coll_session_fini(&link->session);
}

static weft_status *dial(coll_link *link);

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

/* The peer's listener is there, but had no place for us for long enough. */
static void on_turned_away(coll_link *link, weft_status *st)
{
  link->redials = link->redials ? link->redials - 1 : MOST_REDIALS;
  if (link->redials == 0) link->redials = -1; /* that was the last */
  on_refused(link, st);
}

static void redial(coll_link *link)
{
  if (weft_now_ns() - link->broken_ns <= REDIAL_NS) return;
  link->state = LINK_WAITING;
  link->group->refused_count--;
  weft_status_free(WEFT_MOVE(link->refused));
  link->broken_ns = 0;
  weft_status *st = dial(link);
  if (st) on_refused(link, st);
}

static void mind_refused(coll_link *link)
{
  char how[512];

  if (link->redials > 0) {
    redial(link);
    return;
  }
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
  if (left && has_all_steps(link) && coll_link_has_all_p2p(link)) return; /* what becomes of its stream is no matter */
  weft_status *st = link->stream->ops->health(link->stream);
  if (!st) return;
  if (!link->broken_ns) link->broken_ns = weft_now_ns();
  if (weft_status_code(st) == WEFT_UNAUTHENTICATED)
    coll_link_forged(link, weft_status_message(st));
  else if (weft_status_code(st) != WEFT_UNAVAILABLE)
    coll_link_garbage(link, weft_status_message(st));
  else if (weft_now_ns() - link->broken_ns > WORD_NS && left && g->ending)
    coll_group_fail_locked(g, weft_status_dup(g->ending), true);
  else if (weft_now_ns() - link->broken_ns > WORD_NS)
    peer_died(link, false, weft_status_message(st));
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

/* Nobody who has ended its communicator, and so shut its side, needs anything of us. */
static bool peer_has_ended(const coll_link *link)
{
  struct pollfd one = {.fd = link->fd, .events = POLLRDHUP};
  return link->fd < 0 || link->state == LINK_LEFT || poll(&one, 1, 0) != 0;
}

/* What a spent group has committed still counts for those that end what it has ended: so it goes out, if that takes no longer
 * than a second. */
static bool flush_spent(coll_group *g)
{
  bool any = coll_fabric_poll(g), unsent = false, in_time = g->ends_at && weft_now_ns() < g->spent_ns + WEFT_NS_PER_S;

  for (coll_link *link = g->open_links; link; link = link->next_open) {
    if (link->stream && link->stream->ops->poll) any |= link->stream->ops->poll(link->stream);
    unsent |= link->stream && link->stream->unsent && !peer_has_ended(link);
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
  if (!coll_header_is_sound(&h))
    coll_link_garbage(link, "a message header is damaged");
  else if (h.seq < op->seq || (h.seq == op->seq && h.fingerprint != op->fingerprint))
    coll_link_disagree(link, &h, "", op);
}

bool coll_links_arm_locked(coll_group *g)
{
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
    coll_link_send_steps(link);
  else
    coll_link_receive_steps(link);
  if (link->stream->unsent) atomic_store_explicit(&g->unsent, true, memory_order_relaxed);
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
  if (link->fd >= 0) coll_frame_send(link->fd, &link->session, COLL_FRAME_BELL, NULL, 0, -1); /* a full socket wakes the peer as well */
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

static weft_status *hello_of(coll_link *link, coll_transport transport, coll_hello *out)
{
  coll_group *g = link->group;
  const coll_address *to = &g->addresses[link->peer];

  *out = (coll_hello){.src_incarnation = g->incarnations[link->rank], .dst_incarnation = to->magic ? to->incarnation : 0,
                      .src = link->rank, .dst = link->peer, .size = g->size, .transport = (int32_t)transport,
                      .whole = coll_settings_seal_whole(), .address = g->addresses[link->rank]};
  return coll_door_group_id(&to->door, g->public_id, &out->group_id);
}

/* The peer has proven itself. */
static weft_status *greet(coll_link *link)
{
  coll_group *g = link->group;
  bool local = same_node(link);
  int memory_fd = -1;
  pid_t pid = 0;
  coll_hello hello;

  WEFT_TRY(hello_of(link, local ? COLL_TRANSPORT_SHM : COLL_TRANSPORT_FABRIC, &hello));
  if (local && !coll_door_same_user(link->fd, &pid))
    return WEFT_ERR(UNAUTHENTICATED, "another user's process listens at the address of rank %d", link->peer);
  if (local) WEFT_TRY(coll_shm_new((size_t)coll_settings_get()->ring_bytes, pid, &link->stream, &memory_fd));
  weft_status *st = fill_fabric(g, (coll_transport)hello.transport, &hello);
  if (st) return st; /* without shared memory: memory_fd is not open */
  bool sent = coll_frame_send(link->fd, &link->session, COLL_FRAME_HELLO, &hello, sizeof hello, memory_fd);
  if (memory_fd >= 0) close(memory_fd);
  if (!sent) return WEFT_ERR(UNAVAILABLE, "greeting rank %d: %s", link->peer, strerror(errno));
  link->state = LINK_GREETING;
  return coll_context_watch(link->fd, g, link->id, false);
}

/* The challenge begins, or goes on. */
static weft_status *prove(coll_link *link)
{
  link->state = LINK_PROVING;
  switch (coll_handshake_go_on(&link->shake, link->fd, !same_node(link), &link->session)) {
  case COLL_SHAKE_DONE: return greet(link);
  case COLL_SHAKE_WAITS: return coll_context_watch(link->fd, link->group, link->id, false);
  case COLL_SHAKE_DENIED:
    return WEFT_ERR(UNAUTHENTICATED, "authentication failed: rank %d and rank %d do not have the same secret (WEFT_COORD_SECRET_FILE), or another process "
                    "listens at the address of rank %d", link->rank, link->peer, link->peer);
  case COLL_SHAKE_ENDED: break;
  }
  return WEFT_ERR(UNAVAILABLE, "rank %d closed the connection before it was authenticated", link->peer);
}

static weft_status *dial(coll_link *link)
{
  coll_group *g = link->group;
  bool local = same_node(link);
  coll_key pair;

  WEFT_TRY(coll_door_pair_key(&g->addresses[link->peer].door, &pair));
  coll_handshake_init(&link->shake, true, &pair);
  coll_key_wipe(&pair);
  WEFT_TRY(coll_dial(&g->addresses[link->peer], local, &link->fd));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  if (local) return prove(link); /* local connections are made at once */
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
                        .next_open = g->open_links, .state = LINK_WAITING, .told = -1, .room_there = COLL_EAGER_ROOM, .room_here = COLL_EAGER_ROOM};
    link->offers_tail = &link->offers;
    *slot = g->open_links = link;
  }
  errno = 0;
  if (g->addresses[peer].magic) st = dial(link);
  if (st && errno == EAGAIN) /* a local socket with a long queue */
    on_turned_away(link, st);
  else if (st)
    on_refused(link, st);
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

/* Of a greeting that came on `fd`. */
static weft_status *open_stream(coll_link *link, const coll_hello *theirs, int fd, int memory_fd)
{
  pid_t pid;

  if (theirs->transport != COLL_TRANSPORT_SHM) return coll_fabric_stream(link->group, &link->session, &theirs->address, theirs->src, theirs->dst, &link->stream);
  if (!coll_door_same_user(fd, &pid)) return WEFT_ERR(FAILED_PRECONDITION, "a peer offers shared memory over a network");
  return coll_shm_open(memory_fd, pid, &link->stream);
}

weft_status *coll_link_adopt_locked(coll_group *g, const coll_hello *hello, int fd, int passed_fd, coll_session *session)
{
  int me = hello->dst, peer = hello->src;
  coll_hello answer;
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
  if (hello->transport != COLL_TRANSPORT_SHM && hello->transport != COLL_TRANSPORT_FABRIC)
    return WEFT_ERR(FAILED_PRECONDITION, "rank %d asks for transport %d, which is unknown here", peer, hello->transport);
  if (hello->whole != coll_settings_seal_whole())
    return WEFT_ERR(FAILED_PRECONDITION, "ranks differ in WEFT_COLLECTIVE_TLS or WEFT_COLLECTIVE_INTEGRITY: rank %d %s all of its messages, rank %d %s", peer,
                    hello->whole ? "encrypts" : "does not encrypt", me, hello->whole ? "does not" : "does");
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
  if ((link->state == LINK_CONNECTING || link->state == LINK_PROVING || link->state == LINK_GREETING) && peer > me) { /* both dialled: ours stays */
    coll_frame_send(fd, session, COLL_FRAME_YIELD, NULL, 0, -1);
    return WEFT_ERR(ALREADY_EXISTS, "our own connection is under way");
  }
  hang_up(link);
  link->state = LINK_WAITING;
  link->broken_ns = 0;
  g->refused_count -= link->refused != NULL;
  weft_status_free(WEFT_MOVE(link->refused));
  link->reader = (coll_frame_reader){.passed_fd = -1};
  link->session = *session;
  weft_status *st = open_stream(link, hello, fd, passed_fd);
  link->session = (coll_session){0};
  if (st) return st;
  WEFT_TRY(hello_of(link, (coll_transport)hello->transport, &answer));
  WEFT_TRY(fill_fabric(g, (coll_transport)hello->transport, &answer));
  if (!coll_frame_send(fd, session, COLL_FRAME_ACCEPT, &answer, sizeof answer, -1))
    return WEFT_ERR(UNAVAILABLE, "the connection closed");
  link->fd = fd;
  link->session = *session;
  st = coll_context_watch(fd, g, link->id, false);
  if (!st) st = become_ready(link);
  if (st) {
    coll_context_unwatch(fd);
    link->fd = -1; /* the caller's again, and so is the session */
    link->session = (coll_session){0};
    hang_up(link);
    return st;
  }
  if (passed_fd >= 0) close(passed_fd);
  *session = (coll_session){0};
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
  if (g->locals[link->local]) coll_link_receive_p2p(link);
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
    coll_link_garbage(link, "a control frame of the wrong size");
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
  weft_status *st = passes ? weft_status_new(code, __FILE__, __LINE__, "%s", reason.text)
                           : weft_status_new(code, __FILE__, __LINE__, "%s %s: %s", what, who, reason.text);
  if (reason.bereaved && !g->frozen) /* frozen: it is about to fail for a deadline of its own */
    coll_group_bereave_locked(g, reason.lost, st);
  else
    coll_group_end_at_locked(g, st, reason.ended, type == COLL_FRAME_REFUSE ? -1 : reason.origin);
}

static void on_accept(coll_link *link)
{
  coll_group *g = link->group;
  coll_hello hello;
  weft_status *st = NULL;

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
  if (!link->stream) st = open_stream(link, &hello, link->fd, -1);
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
      coll_link_garbage(link, "a control frame of the wrong size");
      return;
    }
    has_left(link, (const uint64_t *)(const void *)link->reader.payload);
    return;
  case COLL_FRAME_YIELD:
    if (link->state != LINK_GREETING) return;
    hang_up(link);
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

/* Our connection is under way. */
static weft_status *connect_on(coll_link *link)
{
  int error = 0;
  socklen_t length = sizeof error;

  if (link->state == LINK_PROVING) return prove(link);
  getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error ? WEFT_ERR(UNAVAILABLE, "%s", strerror(error)) : prove(link);
}

/* ... and has failed.  `st` is taken. */
static void on_not_connected(coll_link *link, weft_status *st)
{
  bool turned_away = link->state == LINK_PROVING && weft_status_code(st) == WEFT_UNAVAILABLE;

  if (!link->group->topology.size) { /* still meeting: the bootstrap tries again */
    hang_up(link);
    link->state = LINK_WAITING;
    snprintf(link->why, sizeof link->why, "%s", weft_status_message(st));
    weft_status_free(st);
  } else if (turned_away) {
    on_turned_away(link, st);
  } else {
    on_refused(link, st);
  }
}

void coll_link_ready_locked(coll_group *g, uint64_t id)
{
  coll_link *link = find_link(g, id);

  if (!link) coll_fabric_woken(g); /* its descriptor has a number too */
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
        on_not_connected(link, WEFT_ERR(UNAUTHENTICATED, "authentication failed: rank %d does not accept the proof of rank %d", link->peer, link->rank));
      else
        coll_link_garbage(link, "an unknown control frame");
      return;
    case COLL_READ_END:
      if (link->state == LINK_LEFT || g->frozen) {
        coll_context_unwatch(link->fd);
        close(link->fd);
        link->fd = -1;
      } else if (link->state == LINK_GREETING && !g->topology.size) {
        on_not_connected(link, WEFT_ERR(UNAVAILABLE, "it closed the connection"));
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
  coll_reason reason = {.code = weft_status_code(st), .ended = ended, .lost = g->lost, .bereaved = g->bereaved};

  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i]) reason.ended = WEFT_MIN(reason.ended, atomic_load_explicit(&g->locals[i]->ended_seq, memory_order_relaxed));
  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(st));
  return reason;
}

void coll_links_tell_end_locked(coll_group *g)
{
  coll_reason reason = {.code = weft_status_code(g->ending), .origin = g->origin, .ended = g->ends_at};

  snprintf(reason.text, sizeof reason.text, "%s", weft_status_message(g->ending));
  for (coll_link *link = g->open_links; link; link = link->next_open)
    if (link->fd >= 0 && link->state == LINK_READY) coll_frame_send(link->fd, &link->session, COLL_FRAME_ENDING, &reason, sizeof reason, -1);
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
    reason.origin = g->origin >= 0 ? g->origin : link->rank;
    reason.posted = comm ? coll_comm_posted(comm) : 0;
    memcpy(reason.sent, link->tx_count, sizeof reason.sent);
    posted = WEFT_MAX(posted, reason.posted);
    if (link->fd >= 0) {
      if (tell_peers && link->state != LINK_CONNECTING && link->state != LINK_PROVING) coll_frame_send(link->fd, &link->session, COLL_FRAME_ABORT, &reason, sizeof reason, -1);
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
    if (link->stream) link->stream->unwanted = g->error && peer_has_ended(link);
    if (link->fd >= 0 && !g->error && link->state == LINK_READY)
      coll_frame_send(link->fd, &link->session, COLL_FRAME_GOODBYE, link->tx_count, sizeof link->tx_count, -1);
    hang_up(link);
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
  coll_fabric_close(g);
}
