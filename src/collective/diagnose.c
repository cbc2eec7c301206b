/* collective/diagnose.c -- a deadline has passed: which ranks are missing, and what do they do instead?
 *
 * The group is frozen, so that its state does not change while it is examined.  Ranks of this process are looked at;
 * ranks of other processes are asked through their listeners, all at once, for WEFT_COLLECTIVE_DIAGNOSE at most. */
#include <config.h>

#include "collective/diagnose.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/dial.h"
#include "collective/flight_text.h"
#include "collective/frame.h"
#include "collective/host/direct.h"
#include "collective/host/link_state.h"
#include "collective/transport/transport.h"

enum { MOST_ASKED = 256, MOST_LISTED = 16 };

typedef enum verdict { UNASKED, SILENT, GONE, UNREACHED, ARRIVED, ABSENT, STRANGER } verdict;

/* One rank, and what became of the question to its process. */
typedef struct inquiry {
  int rank, asker, fd;
  bool connecting, proving;
  verdict verdict;
  int error; /* errno of a connection that was not made; 0: none */
  coll_handshake shake;
  coll_session session;
  coll_frame_reader reader;
  coll_answer answer;
  coll_stream_counts before; /* of messages between the asker and the rank, when the deadline had passed */
  uint64_t lost_here, lost_there; /* messages to the asker, and to the rank, that were sent and have not come */
} inquiry;

static void ask(inquiry *q, const coll_group *g, uint64_t seq)
{
  coll_query query = {.seq = seq, .rank = q->rank, .asker = q->asker};
  weft_status *st = coll_door_group_id(&g->addresses[q->rank].door, g->public_id, &query.group_id);

  if (st || !coll_frame_send(q->fd, &q->session, COLL_FRAME_QUERY, &query, sizeof query, -1)) q->verdict = GONE;
  weft_status_ignore(st);
}

/* Continues the challenge, and then asks the question. */
static void prove(inquiry *q, const coll_group *g, uint64_t seq, bool local)
{
  q->connecting = false;
  q->proving = true;
  switch (coll_handshake_go_on(&q->shake, q->fd, !local, &q->session)) {
  case COLL_SHAKE_WAITS: return;
  case COLL_SHAKE_DONE:
    q->proving = false;
    ask(q, g, seq);
    return;
  default: q->verdict = GONE; /* now another process is there, or none */
  }
}

/* A refusal means that the machine is there and the process is not; after other errors nothing is known of the
 * process. */
static void not_connected(inquiry *q, int error)
{
  if (error == EAGAIN) return; /* a local socket with a long queue: the process counts as silent */
  q->verdict = error == ECONNREFUSED || error == ENOENT || error == EPIPE || error == ECONNRESET ? GONE : UNREACHED;
  q->error = error;
}

static void on_ready(inquiry *q, const coll_group *g, uint64_t seq, bool local)
{
  if (q->proving) {
    prove(q, g, seq, local);
    return;
  }
  if (q->connecting) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(q->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) not_connected(q, error);
    else prove(q, g, seq, local);
    return;
  }
  switch (coll_frame_read(&q->reader, &q->session, q->fd)) {
  case COLL_READ_NONE: return;
  case COLL_READ_FRAME:
    if (q->reader.frame.type == COLL_FRAME_ANSWER && q->reader.frame.bytes == sizeof q->answer) {
      memcpy(&q->answer, q->reader.payload, sizeof q->answer);
      q->answer.text[sizeof q->answer.text - 1] = q->answer.spent[sizeof q->answer.spent - 1] = '\0';
      q->verdict = !q->answer.known ? STRANGER : q->answer.arrived ? ARRIVED : ABSENT;
      return;
    }
    /* fallthrough */
  default: q->verdict = GONE;
  }
}

/* Asks all processes in parallel.  The addresses do not change any more: see coll_bootstrap. */
static void ask_all(coll_group *g, inquiry *qs, int count, uint64_t seq)
{
  weft_deadline deadline = weft_deadline_after_ns(WEFT_MAX(coll_settings_get()->diagnose_ns, WEFT_NS_PER_MS));
  struct pollfd *fds = calloc((size_t)count + 1, sizeof *fds);
  const coll_address *own = &g->addresses[0];

  for (int r = 0; r < g->size; r++)
    if (g->local_of[r] >= 0) own = &g->addresses[r];
  for (int i = 0; i < count && fds; i++) {
    const coll_address *to = &g->addresses[qs[i].rank];
    bool local = to->node == own->node;
    coll_key pair = {0};
    weft_status *st = coll_door_pair_key(&to->door, &pair);
    coll_handshake_init(&qs[i].shake, true, &pair);
    coll_key_wipe(&pair);
    if (!st) st = coll_dial(to, local, &qs[i].fd);
    qs[i].reader.passed_fd = -1;
    qs[i].connecting = !local;
    qs[i].verdict = SILENT;
    if (st) not_connected(&qs[i], errno);
    weft_status_ignore(st);
    if (qs[i].verdict == SILENT && local) prove(&qs[i], g, seq, true);
  }
  for (int open = 1; open && fds && !weft_deadline_passed(deadline);) {
    open = 0;
    for (int i = 0; i < count; i++) {
      bool waits = qs[i].verdict == SILENT;
      fds[i] = (struct pollfd){.fd = waits ? qs[i].fd : -1, .events = qs[i].connecting ? POLLOUT : POLLIN};
      open += waits;
    }
    if (!open || poll(fds, (nfds_t)count, weft_deadline_poll_ms(deadline)) < 0) continue;
    for (int i = 0; i < count; i++)
      if (fds[i].revents) on_ready(&qs[i], g, seq, g->addresses[qs[i].rank].node == own->node);
  }
  for (int i = 0; i < count; i++) {
    if (qs[i].verdict == SILENT && qs[i].connecting) qs[i].verdict = UNREACHED;
    if (qs[i].fd >= 0) close(qs[i].fd);
    coll_session_fini(&qs[i].session);
    coll_key_wipe(&qs[i].shake.pair);
  }
  free(fds);
}

static void list(FILE *out, const coll_group *g, const inquiry *q, int *listed)
{
  char who[256];

  if (++*listed > MOST_LISTED) return;
  coll_rank_describe(g, q->rank, who, sizeof who);
  fprintf(out, "\n    %s ", who);
  switch (q->verdict) {
  case GONE: fprintf(out, "is gone: nobody listens at its address"); break;
  case UNREACHED:
    fprintf(out, "cannot be reached (%s): its machine is down, or the network between",
            q->error ? strerror(q->error) : "no answer to a connection");
    break;
  case SILENT: fprintf(out, "is alive to the kernel, but does not answer: stopped, or starved of CPU"); break;
  case STRANGER: fprintf(out, "has left the communicator, or has not made it yet"); break;
  case ABSENT: fprintf(out, "%s", q->answer.text); break;
  case ARRIVED:
    if (q->answer.arrived_ago_ns) fprintf(out, "%.1f s ago", (double)q->answer.arrived_ago_ns / 1e9);
    else fprintf(out, "%s", q->answer.spent[0] ? "and gave up" : "and has finished it");
    break;
  default: fprintf(out, "was not asked");
  }
  if (q->answer.spent[0])
    fprintf(out, " (its communicator is spent: %.*s)", (int)strcspn(q->answer.spent, "\n"), q->answer.spent);
}

static bool here(const inquiry *q) { return q->verdict == ARRIVED; }
static bool not_here(const inquiry *q) { return q->verdict != ARRIVED; }

static void list_those(FILE *out, const coll_group *g, const char *title, const inquiry *qs, int count,
                       bool (*chosen)(const inquiry *q))
{
  int listed = 0, total = 0;

  for (int i = 0; i < count; i++) total += chosen(&qs[i]);
  fprintf(out, "\n  %s: %d of %d", title, total, g->size);
  for (int i = 0; i < count; i++)
    if (chosen(&qs[i])) list(out, g, &qs[i], &listed);
  if (listed > MOST_LISTED) fprintf(out, "\n    and %d more", listed - MOST_LISTED);
}

/* Fills in what a rank of this process does, in the form of an answer. */
static void look_at(inquiry *q, const weft_comm *comm, uint64_t seq, int64_t now_ns)
{
  const coll_slot *slot = comm && comm->group->use_direct ? coll_direct_slot(comm->group, comm->rank, seq) : NULL;
  int64_t posted_ns = 0;

  if (!comm) {
    q->verdict = STRANGER;
    return;
  }
  q->verdict = coll_comm_posted(comm) > seq ? ARRIVED : ABSENT;
  for (const coll_op *op = comm->head; op; op = op->next)
    if (op->seq == seq) posted_ns = op->posted_ns;
  if (!posted_ns && slot && q->verdict == ARRIVED) /* the rank polls and has not queued the operation yet */
    posted_ns = atomic_load(&slot->word) / 2 == seq + 1 ? slot->posted_ns : now_ns;
  if (posted_ns) q->answer.arrived_ago_ns = WEFT_MAX(now_ns - posted_ns, INT64_C(1));
  coll_flight_status_locked(comm, q->answer.text, sizeof q->answer.text);
}

static const coll_op *most_overdue_locked(const coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  const coll_op *found = NULL;
  for (const coll_op *op = g->all_pending; op; op = op->pending_next)
    if (!found || op->deadline_ns < found->deadline_ns) found = op;
  return found;
}

/* Which messages have left one side and not come to the other, although nothing moves any more?  They were held back,
 * removed or damaged on their way.  The peer's word is sealed, so nobody on the way has changed it. */
static void compare_counts(coll_group *g, inquiry *q)
{
  coll_stream_counts now = coll_link_counts(g, q->asker, q->rank);

  for (int c = 0; c < COLL_CHANNELS && q->answer.counted; c++) {
    if (now.came[c] == q->before.came[c] && q->answer.left[c] > now.came[c])
      q->lost_here += q->answer.left[c] - now.came[c];
    if (q->before.left[c] > q->answer.came[c]) q->lost_there += q->before.left[c] - q->answer.came[c];
  }
}

/* Writes which messages are on the way between the asker and the rank. */
static void tell_messages(FILE *out, const inquiry *q)
{
  static const char lost[] = "\n  integrity, or a fault of the network: %" PRIu64
                             " messages have left rank %d for rank %d and have not come";
  uint64_t waiting = q->before.waits[0] + q->before.waits[1];

  if (q->lost_here) fprintf(out, lost, q->lost_here, q->rank, q->asker);
  if (q->lost_there) fprintf(out, lost, q->lost_there, q->asker, q->rank);
  if (waiting)
    fprintf(out,
            "\n  %" PRIu64
            " messages for rank %d have not left: the connection of its data is not made or does not move "
            "(the rank is stopped or slow, the network is at fault, or somebody on the way damaged it: integrity)",
            waiting, q->rank);
}

static weft_status *report(coll_group *g, const coll_op *op, const inquiry *qs, int count)
{
  char text[512], *body = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&body, &size);
  bool p2p = op->args.kind == WEFT_SEND || op->args.kind == WEFT_RECV;

  coll_op_describe(op, text, sizeof text);
  if (!out) return WEFT_ERR(DEADLINE_EXCEEDED, "%s on communicator %s passed its deadline", text, g->name);
  fprintf(out, "%s on communicator %s passed its deadline by rank %d's clock, %.1f s after it was posted", text,
          g->name, op->comm->rank, (double)(weft_now_ns() - op->posted_ns) / 1e9);
  if (p2p) {
    int listed = 0;
    fprintf(out, "\n  rank %d waits for%s", op->comm->rank, count ? "" : " any rank");
    for (int i = 0; i < count; i++) list(out, g, &qs[i], &listed);
  } else {
    list_those(out, g, "arrived", qs, count, here);
    list_those(out, g, "not arrived", qs, count, not_here);
  }
  for (int i = 0; i < count; i++) tell_messages(out, &qs[i]);
  if (op->below) {
    g->communicator->ops->describe(g->communicator, text, sizeof text);
    fprintf(out, "\n  rank %d's operation is with %s: %s", op->comm->rank, g->communicator->ops->name, text);
  }
  fclose(out);
  weft_status *st = WEFT_ERR(DEADLINE_EXCEEDED, "%s", body);
  free(body);
  return st;
}

/* A peer that is gone by now may have said earlier how many operations it had posted. */
static void recall(const coll_group *g, inquiry *q, uint64_t seq)
{
  if (q->verdict == ARRIVED || q->verdict == ABSENT) return;
  for (int i = 0; i < g->local_count; i++) {
    const coll_link *link = g->links[(size_t)i * (size_t)g->size + (size_t)q->rank];
    int64_t posted = link ? link->told : -1;
    if (posted < 0) continue;
    q->verdict = (uint64_t)posted > seq ? ARRIVED : ABSENT;
    snprintf(q->answer.text, sizeof q->answer.text, "had posted %lld operations", (long long)posted);
    snprintf(q->answer.spent, sizeof q->answer.spent, "it said so, and left");
  }
}

static int by_rank(const void *a, const void *b) { return ((const inquiry *)a)->rank - ((const inquiry *)b)->rank; }

/* Makes the report.  The lock is held on entry and on exit, but not while other processes are asked.  NULL: the
 * group failed meanwhile. */
static weft_status *diagnose_locked(coll_group *g, const coll_op *op) WEFT_REQUIRES(g->mu) WEFT_NO_THREAD_SAFETY
{
  int count = WEFT_MIN(g->size, MOST_ASKED), remote = 0, filled;
  inquiry *qs = calloc((size_t)count, sizeof *qs);
  bool p2p = op->args.kind == WEFT_SEND || op->args.kind == WEFT_RECV;
  uint64_t seq = p2p ? UINT64_MAX : op->seq; /* sends and receives have no number, so that no rank counts as arrived */
  weft_status *st = NULL;

  weft_mutex_assert_held(&g->mu);
  if (!qs) return WEFT_ERR(DEADLINE_EXCEEDED, "an operation on communicator %s passed its deadline", g->name);
  int first = p2p ? WEFT_MAX(op->args.peer, 0) : 0, end = p2p ? op->args.peer + 1 : count;
  for (int r = first; r < end; r++)
    if (g->local_of[r] < 0) {
      inquiry *q = &qs[remote++];
      *q = (inquiry){.rank = r, .asker = op->comm->rank, .fd = -1};
      q->before = coll_link_counts(g, q->asker, r);
    }
  filled = remote;
  for (int r = first; r < end; r++) {
    if (g->local_of[r] < 0) continue;
    qs[filled] = (inquiry){.rank = r, .fd = -1};
    look_at(&qs[filled++], g->locals[g->local_of[r]], seq, weft_now_ns());
  }
  count = filled;
  if (remote && g->topology.size) {
    coll_group_unlock(g);
    ask_all(g, qs, remote, seq);
    coll_group_lock(g);
    if (!g->error) coll_transports_poll(g); /* what came meanwhile counts as come */
    for (int i = 0; i < remote && !g->error; i++) {
      recall(g, &qs[i], seq);
      compare_counts(g, &qs[i]);
    }
  }
  qsort(qs, (size_t)count, sizeof *qs, by_rank);
  if (!g->error) st = report(g, op, qs, count); /* the group is frozen and healthy, so `op` is still pending */
  free(qs);
  return st;
}

static void *diagnose_thread(void *arg)
{
  coll_group *g = arg;

  coll_group_lock(g);
  const coll_op *op = most_overdue_locked(g);
  weft_status *st = op && g->frozen ? diagnose_locked(g, op) : NULL;
  if (st) coll_group_fail_locked(g, st);
  coll_group_unlock(g);
  coll_group_release(g);
  return NULL;
}

static void start_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  pthread_t thread;

  g->frozen = true;
  if (g->local_count < g->size) {
    weft_status *st = weft_thread_start(&thread, "weft-diagnose", diagnose_thread, coll_group_retain(g));
    if (!st) {
      pthread_detach(thread);
      return;
    }
    weft_status_ignore(st);
    coll_group_release(g);
    coll_group_fail_locked(g,
                           WEFT_ERR(DEADLINE_EXCEEDED, "an operation on communicator %s passed its deadline", g->name));
    return;
  }
  const coll_op *op = most_overdue_locked(g);
  if (op) coll_group_fail_locked(g, diagnose_locked(g, op));
}

void coll_group_timers_locked(coll_group *g, int64_t now_ns)
{
  weft_mutex_assert_held(&g->mu);
  int64_t next_ns = INT64_MAX;
  bool overdue = false;

  if (now_ns < atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed) || g->error) return;
  for (coll_op *op = g->all_pending; op; op = op->pending_next) {
    if (!op->warned && now_ns >= op->warn_at_ns) {
      char text[256];
      coll_op_describe(op, text, sizeof text);
      WEFT_LOG("coll", WARN, "%s: rank %d has waited %.1f s in %s and may be stuck", g->name, op->comm->rank,
               (double)(now_ns - op->posted_ns) / 1e9, text);
      op->warned = true;
    }
    overdue |= now_ns >= op->deadline_ns;
    next_ns = WEFT_MIN(next_ns, op->warned ? op->deadline_ns : WEFT_MIN(op->warn_at_ns, op->deadline_ns));
  }
  atomic_store_explicit(&g->next_timer_ns, overdue ? INT64_MAX : next_ns, memory_order_relaxed);
  if (overdue && !g->frozen) start_locked(g);
}
