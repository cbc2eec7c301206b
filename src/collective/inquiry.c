/* collective/inquiry.c -- asking other processes, and comparing what both sides have counted. */
#include <config.h>

#include "collective/inquiry.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collective/context.h"
#include "collective/dial.h"
#include "collective/host/link.h"
#include "collective/transport/transport.h"

/* ---- asking ---- */

static void ask(coll_inquiry *q, const coll_group *g, uint64_t seq)
{
  coll_query query = {.seq = seq, .rank = q->rank, .asker = q->asker};
  weft_status *st = coll_door_group_id(&q->to.door, g->public_id, &query.group_id);

  if (st || !coll_frame_send(q->fd, &q->session, COLL_FRAME_QUERY, &query, sizeof query, -1)) q->verdict = COLL_GONE;
  weft_status_ignore(st);
}

/* Continues the challenge, and then asks the question. */
static void prove(coll_inquiry *q, const coll_group *g, uint64_t seq)
{
  q->connecting = false;
  q->proving = true;
  switch (coll_handshake_go_on(&q->shake, q->fd, !q->local, &q->session)) {
  case COLL_SHAKE_WAITS: return;
  case COLL_SHAKE_DONE:
    q->proving = false;
    ask(q, g, seq);
    return;
  default: q->verdict = COLL_GONE; /* by now another process has the address, or none */
  }
}

/* A refused connection means that the machine runs and the process does not; after other errors nothing is known of the
 * process. */
static void not_connected(coll_inquiry *q, int error)
{
  if (error == EAGAIN) return; /* a local socket with a long queue: the process counts as silent */
  q->verdict = error == ECONNREFUSED || error == ENOENT || error == EPIPE || error == ECONNRESET ? COLL_GONE
                                                                                                 : COLL_UNREACHED;
  q->error = error;
}

static void on_ready(coll_inquiry *q, const coll_group *g, uint64_t seq)
{
  if (q->proving) {
    prove(q, g, seq);
    return;
  }
  if (q->connecting) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(q->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) not_connected(q, error);
    else prove(q, g, seq);
    return;
  }
  switch (coll_frame_read(&q->reader, &q->session, q->fd)) {
  case COLL_READ_NONE: return;
  case COLL_READ_FRAME:
    if (q->reader.frame.type == COLL_FRAME_ANSWER && q->reader.frame.bytes == sizeof q->answer) {
      memcpy(&q->answer, q->reader.payload, sizeof q->answer);
      q->answer.text[sizeof q->answer.text - 1] = q->answer.spent[sizeof q->answer.spent - 1] = '\0';
      q->answered = true;
      q->verdict = !q->answer.known ? COLL_STRANGER : q->answer.arrived ? COLL_ARRIVED : COLL_ABSENT;
      return;
    }
    /* fallthrough */
  default: q->verdict = COLL_GONE;
  }
}

/* Begins the connection of a question. */
static void dial(coll_inquiry *q, const coll_group *g, uint64_t seq)
{
  coll_key pair = {0};
  weft_status *st = coll_door_pair_key(&q->to.door, &pair);

  coll_handshake_init(&q->shake, true, &pair);
  coll_key_wipe(&pair);
  if (!st) st = coll_dial(&q->to, q->local, &q->fd);
  q->connecting = !q->local;
  q->verdict = COLL_SILENT;
  if (st) not_connected(q, errno);
  weft_status_ignore(st);
  if (q->fd >= 0 && q->local) prove(q, g, seq);
}

void coll_inquiries_ask(coll_group *g, coll_inquiry *qs, int count, uint64_t seq)
{
  weft_deadline deadline = weft_deadline_after_ns(WEFT_MAX(coll_settings_get()->diagnose_ns, WEFT_NS_PER_MS));
  struct pollfd *fds = calloc((size_t)count + 1, sizeof *fds);

  for (int i = 0; i < count && fds; i++)
    if (qs[i].to.magic) dial(&qs[i], g, seq);
  for (int open = 1; open && fds && !weft_deadline_passed(deadline);) {
    open = 0;
    for (int i = 0; i < count; i++) {
      bool waits = qs[i].verdict == COLL_SILENT;
      fds[i] = (struct pollfd){.fd = waits ? qs[i].fd : -1, .events = qs[i].connecting ? POLLOUT : POLLIN};
      open += waits;
    }
    if (!open || poll(fds, (nfds_t)count, weft_deadline_poll_ms(deadline)) < 0) continue;
    for (int i = 0; i < count; i++)
      if (fds[i].revents) on_ready(&qs[i], g, seq);
  }
  for (int i = 0; i < count; i++) {
    if (qs[i].verdict == COLL_SILENT && qs[i].connecting) qs[i].verdict = COLL_UNREACHED;
    if (qs[i].fd >= 0) close(qs[i].fd);
    if (qs[i].reader.passed_fd >= 0) close(qs[i].reader.passed_fd);
    qs[i].fd = qs[i].reader.passed_fd = -1;
    coll_session_fini(&qs[i].session);
    coll_key_wipe(&qs[i].shake.pair);
  }
  free(fds);
}

/* ---- comparing ---- */

/* What was sent less than this ago may still come.  Bytes that the peer's system has acknowledged are there, or with
 * somebody who acknowledges in its name; bytes that it has not acknowledged may be sent again by TCP. */
#define SOON_NS (100 * WEFT_NS_PER_MS)
#define SOON_UNACKED_NS WEFT_NS_PER_S

static bool long_ago(int64_t ago_ns, uint32_t unacked) { return ago_ns >= (unacked ? SOON_UNACKED_NS : SOON_NS); }

/* Finds messages that one side has sent and the other has not received, although nothing moves any more. */
static void compare_messages(coll_group *g, coll_inquiry *q)
{
  coll_stream_counts now = coll_link_counts(g, q->asker, q->rank);
  bool waits = false, left = false;

  if (!q->answer.counted) return;
  for (int c = 0; c < COLL_CHANNELS; c++) {
    if (now.came[c] == q->before.came[c] && q->answer.left[c] > now.came[c])
      q->lost_here += q->answer.left[c] - now.came[c];
    if (q->before.left[c] > q->answer.came[c]) q->lost_there += q->before.left[c] - q->answer.came[c];
    waits |= q->before.waits[c] && now.waits[c];
    left |= now.left[c] > 0;
  }
  q->unmade = waits && !left;
}

/* The same for the frames of the control connection. */
static void compare_frames(coll_inquiry *q, const coll_control *now)
{
  const coll_control *then = &q->control, *theirs = &q->answer.control;
  bool same = now->name && now->name == theirs->name;
  bool unmet = theirs->stage == COLL_STAGE_NONE &&
               theirs->open; /* the rank has no connection and would take this one */

  if (same && theirs->sent > now->taken && long_ago(theirs->spoke_ago_ns, theirs->unacked))
    q->frames_here = theirs->sent - now->taken;
  if (q->answer.spent[0] || !now->name || then->name != now->name || !long_ago(then->spoke_ago_ns, now->unacked))
    return;
  if (same && then->sent > theirs->taken) q->frames_there = then->sent - theirs->taken;
  if (unmet) q->frames_there = then->sent;
}

static void compare_connections(coll_group *g, coll_inquiry *q, bool has_looked)
{
  weft_mutex_assert_held(&g->mu);
  coll_control now = coll_link_control_locked(g, q->asker, q->rank);
  const coll_control *then = &q->control, *theirs = &q->answer.control;
  bool theirs_waits = theirs->stage == COLL_STAGE_PROVING || theirs->stage == COLL_STAGE_GREETING;

  q->stands = now.stage == COLL_STAGE_STANDS;
  if (now.local || theirs->local || g->error) return;
  if (q->answered) {
    compare_frames(q, &now);
    q->stuck = (then->stage == COLL_STAGE_PROVING && now.stage == COLL_STAGE_PROVING &&
                long_ago(now.spoke_ago_ns, now.unacked)) ||
               (theirs_waits && now.stage == COLL_STAGE_NONE && now.open && has_looked &&
                long_ago(theirs->spoke_ago_ns, theirs->unacked));
    q->unheard = now.stage == COLL_STAGE_CUT && theirs->stage == COLL_STAGE_LEAVING && now.name == theirs->name &&
                 theirs->sent > now.taken;
    q->cut = now.stage == COLL_STAGE_CUT && !q->answer.spent[0] && theirs->stage != COLL_STAGE_CLOSED && !q->unheard;
  }
  q->unended = q->verdict == COLL_GONE && q->error == ECONNREFUSED && then->stage == COLL_STAGE_STANDS &&
               now.stage == COLL_STAGE_STANDS && now.unacked == 0;
}

static void compare_once_locked(coll_group *g, coll_inquiry *qs, int count, bool has_looked) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < count && !g->error; i++) {
    coll_inquiry *q = &qs[i], was = *q;
    q->lost_here = q->lost_there = q->frames_here = q->frames_there = 0;
    q->stuck = q->cut = q->unheard = q->unended = q->unmade = false;
    if (q->answered) compare_messages(g, q);
    q->lost_here = WEFT_MAX(q->lost_here, coll_link_owed_by_left(g, q->asker, q->rank));
    compare_connections(g, q, has_looked);
    if (q->stands && !q->answer.spent[0]) continue;
    q->frames_here = WEFT_MAX(
      q->frames_here, was.frames_here); /* the connection has ended meanwhile, and what was missing has not come */
    q->frames_there = WEFT_MAX(q->frames_there, was.frames_there);
    q->stuck |= was.stuck;
    q->cut |= was.cut;
    if (q->ended) q->cut = false; /* the end of the connection is that of its process */
  }
}

bool coll_inquiry_found(const coll_inquiry *q)
{
  return q->lost_here || q->lost_there || q->frames_here || q->frames_there || q->stuck || q->cut || q->unheard ||
         q->unended || q->unmade;
}

/* Gives missing messages and frames time to come.  True: the progress thread has looked at all connections. */
static bool let_come(coll_group *g)
{
  enum { PIECES = 20 };
  unsigned long rounds = coll_context_rounds();
  struct timespec piece = {.tv_nsec = SOON_NS / PIECES};

  for (int i = 0; i < PIECES; i++) {
    coll_context_wake();
    nanosleep(&piece, NULL);
    coll_group_lock(g);
    if (!g->error) coll_transports_poll(g); /* a frozen group does not look by itself */
    coll_group_unlock(g);
  }
  return coll_context_rounds() - rounds >= 3; /* the first and the last may be half a round */
}

/* Asks once more the ranks that have answered. For a rank that does not answer this time, the first answer stays. */
static void ask_again(coll_group *g, coll_inquiry *qs, int count, uint64_t seq)
{
  coll_inquiry *again = calloc((size_t)count, sizeof *again);

  for (int i = 0; again && i < count; i++) {
    again[i] = (coll_inquiry){.rank = qs[i].rank, .asker = qs[i].asker, .fd = -1, .local = qs[i].local, .reader = {.passed_fd = -1}};
    if (qs[i].answered) again[i].to = qs[i].to;
  }
  if (again) coll_inquiries_ask(g, again, count, seq);
  for (int i = 0; again && i < count; i++) {
    coll_inquiry *q = &qs[i];
    if (again[i].answered) q->answer = again[i].answer;
    q->ended = again[i].verdict == COLL_GONE && again[i].error == ECONNREFUSED;
  }
  free(again);
}

void coll_inquiries_compare_locked(coll_group *g, coll_inquiry *qs, int count, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  bool found = false;

  if (!g->error) coll_transports_poll(g); /* what came meanwhile counts as come */
  compare_once_locked(g, qs, count, true);
  for (int i = 0; i < count; i++) found |= coll_inquiry_found(&qs[i]);
  if (!found || g->error) return;
  coll_group_unlock(g);
  bool has_looked = let_come(g);
  ask_again(g, qs, count, seq);
  coll_group_lock(g);
  if (!g->error) coll_transports_poll(g);
  compare_once_locked(g, qs, count, has_looked);
}

void coll_inquiry_tell_spent(const coll_inquiry *q, const char *same, FILE *out)
{
  const char *spent = q->answer.spent;
  size_t length = strlen(same);
  bool repeats = length > 0 && strncmp(spent, same, length) == 0;

  if (repeats) spent += length;
  if (spent[0])
    fprintf(out, " (its communicator is spent: %s%.*s)", repeats ? "the operation" : "", (int)strcspn(spent, "\n"),
            spent);
}

void coll_inquiry_tell(const coll_inquiry *q, FILE *out)
{
  static const char fault[] = "\n  integrity, or a fault of the network: ",
                    missing[] = "%s%" PRIu64 " %s have left rank %d for rank %d and have not come";
  uint64_t waiting = q->before.waits[0] + q->before.waits[1];

  if (q->lost_here) fprintf(out, missing, fault, q->lost_here, "messages", q->rank, q->asker);
  if (q->lost_there) fprintf(out, missing, fault, q->lost_there, "messages", q->asker, q->rank);
  if (q->frames_here)
    fprintf(out, missing, fault, q->frames_here, "frames of the control connection", q->rank, q->asker);
  if (q->frames_there)
    fprintf(out, missing, fault, q->frames_there, "frames of the control connection", q->asker, q->rank);
  if (q->stuck)
    fprintf(
      out, "%sthe handshake between rank %d and rank %d does not go on, although rank %d answers on another connection",
      fault, q->asker, q->rank, q->rank);
  if (q->cut)
    fprintf(out,
            "%sthe control connection between rank %d and rank %d was cut on its way, for neither side has ended it",
            fault, q->asker, q->rank);
  if (q->unheard)
    fprintf(out, "%srank %d has left, and its farewell has not come to rank %d", fault, q->rank, q->asker);
  if (q->unended)
    fprintf(out, "%srank %d is gone, and the end of its control connection has not come to rank %d", fault, q->rank,
            q->asker);
  if (waiting)
    fprintf(out,
            "\n  %" PRIu64
            " messages for rank %d have not left: the connection of its data is not made or does not move (%s)",
            waiting, q->rank,
            q->unmade
              ? "no message has left, and the rank answers on another connection: integrity, or a fault of the network"
              : "the rank is stopped or slow, or the network is at fault");
}

void coll_inquiry_init_locked(coll_inquiry *q, coll_group *g, int rank, int asker, const coll_address *to)
{
  weft_mutex_assert_held(&g->mu);
  *q = (coll_inquiry){.rank = rank, .asker = asker, .fd = -1, .reader = {.passed_fd = -1}};
  q->to = to ? *to : g->addresses[rank];
  q->local = q->to.node == g->addresses[asker].node;
  q->before = coll_link_counts(g, asker, rank);
  q->control = coll_link_control_locked(g, asker, rank);
  coll_link_probe_locked(g, asker, rank);
}
