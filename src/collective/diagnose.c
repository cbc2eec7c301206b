/* collective/diagnose.c -- a deadline has passed: which ranks are missing, and what do they do instead?
 *
 * The group is frozen, so that its state does not change while it is examined.  Ranks of this process are looked at;
 * ranks of other processes are asked through their listeners, all at once, for WEFT_COLLECTIVE_DIAGNOSE at most. */
#include <config.h>

#include "collective/diagnose.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/flight_text.h"
#include "collective/host/direct.h"
#include "collective/host/link_state.h"
#include "collective/inquiry.h"

enum { MOST_ASKED = 256, MOST_LISTED = 16 };

/* The subject of a report. `same`: the text with which an error of its operation begins; "" without an operation. */
typedef struct subject {
  const coll_group *group;
  const char *same;
} subject;

static void list(FILE *out, const subject *about, const coll_inquiry *q, int *listed)
{
  char who[256];

  if (++*listed > MOST_LISTED) return;
  coll_rank_describe(about->group, q->rank, who, sizeof who);
  fprintf(out, "\n    %s ", who);
  switch (q->verdict) {
  case COLL_GONE: fprintf(out, "is gone: nobody listens at its address"); break;
  case COLL_UNREACHED:
    fprintf(out, "cannot be reached (%s): its machine is down, or the network between",
            q->error ? strerror(q->error) : "no answer to a connection");
    break;
  case COLL_SILENT:
    fprintf(out, "is alive to the kernel, but does not answer: stopped, or starved of CPU%s",
            q->local ? "" : ", or its answers are held back on their way");
    break;
  case COLL_STRANGER: fprintf(out, "has left the communicator, or has not made it yet"); break;
  case COLL_ABSENT: fprintf(out, "%s", q->answer.text); break;
  case COLL_ARRIVED:
    if (q->answer.arrived_ago_ns) fprintf(out, "%.1f s ago", (double)q->answer.arrived_ago_ns / 1e9);
    else fprintf(out, "%s", q->answer.spent[0] ? "and gave up" : "and has finished it");
    break;
  default: fprintf(out, "was not asked");
  }
  coll_inquiry_tell_spent(q, about->same, out);
}

static bool here(const coll_inquiry *q) { return q->verdict == COLL_ARRIVED; }
static bool not_here(const coll_inquiry *q) { return q->verdict != COLL_ARRIVED; }

static void list_those(FILE *out, const subject *about, const char *title, const coll_inquiry *qs, int count,
                       bool (*chosen)(const coll_inquiry *q))
{
  int listed = 0, total = 0;

  for (int i = 0; i < count; i++) total += chosen(&qs[i]);
  fprintf(out, "\n  %s: %d of %d", title, total, about->group->size);
  for (int i = 0; i < count; i++)
    if (chosen(&qs[i])) list(out, about, &qs[i], &listed);
  if (listed > MOST_LISTED) fprintf(out, "\n    and %d more", listed - MOST_LISTED);
}

/* Fills in what a rank of this process does, in the form of an answer. */
static void look_at(coll_inquiry *q, const weft_comm *comm, uint64_t seq, int64_t now_ns)
{
  const coll_slot *slot = comm && comm->group->use_direct ? coll_direct_slot(comm->group, comm->rank, seq) : NULL;
  int64_t posted_ns = 0;

  if (!comm) {
    q->verdict = COLL_STRANGER;
    return;
  }
  q->verdict = coll_comm_posted(comm) > seq ? COLL_ARRIVED : COLL_ABSENT;
  for (const coll_op *op = comm->head; op; op = op->next)
    if (op->seq == seq) posted_ns = op->posted_ns;
  if (!posted_ns && slot && q->verdict == COLL_ARRIVED) /* the rank polls and has not queued the operation yet */
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

static weft_status *report(coll_group *g, const coll_op *op, const coll_inquiry *qs, int count)
{
  char text[512], same[800], *body = NULL;
  subject about = {g, same};
  size_t size = 0;
  FILE *out = open_memstream(&body, &size);
  bool p2p = op->args.kind == WEFT_SEND || op->args.kind == WEFT_RECV;

  coll_op_describe(op, text, sizeof text);
  if (!out) return WEFT_ERR(DEADLINE_EXCEEDED, "%s on communicator %s passed its deadline", text, g->name);
  snprintf(same, sizeof same, "%s on communicator %s", text, g->name);
  fprintf(out, "%s passed its deadline by rank %d's clock, %.1f s after it was posted", same, op->comm->rank,
          (double)(weft_now_ns() - op->posted_ns) / 1e9);
  if (p2p) {
    int listed = 0;
    fprintf(out, "\n  rank %d waits for%s", op->comm->rank, count ? "" : " any rank");
    for (int i = 0; i < count; i++) list(out, &about, &qs[i], &listed);
  } else {
    list_those(out, &about, "arrived", qs, count, here);
    list_those(out, &about, "not arrived", qs, count, not_here);
  }
  for (int i = 0; i < count; i++) coll_inquiry_tell(&qs[i], out);
  if (op->below) {
    g->communicator->ops->describe(g->communicator, text, sizeof text);
    fprintf(out, "\n  rank %d's operation is with %s: %s", op->comm->rank, g->communicator->ops->name, text);
  }
  fclose(out);
  weft_status *st = WEFT_ERR(DEADLINE_EXCEEDED, "%s", body);
  free(body);
  return st;
}

/* A peer that does not exist any more may have said earlier how many operations it had posted. */
static void recall(const coll_group *g, coll_inquiry *q, uint64_t seq)
{
  if (q->verdict == COLL_ARRIVED || q->verdict == COLL_ABSENT) return;
  for (int i = 0; i < g->local_count; i++) {
    const coll_link *link = g->links[(size_t)i * (size_t)g->size + (size_t)q->rank];
    int64_t posted = link ? link->told : -1;
    if (posted < 0) continue;
    q->verdict = (uint64_t)posted > seq ? COLL_ARRIVED : COLL_ABSENT;
    snprintf(q->answer.text, sizeof q->answer.text, "had posted %lld operations", (long long)posted);
    snprintf(q->answer.spent, sizeof q->answer.spent, "it said so, and left");
  }
}

static int by_rank(const void *a, const void *b)
{
  return ((const coll_inquiry *)a)->rank - ((const coll_inquiry *)b)->rank;
}

/* Makes the report.  The lock is held on entry and on exit, but not while other processes are asked.  NULL: the
 * group failed meanwhile. */
static weft_status *diagnose_locked(coll_group *g, const coll_op *op) WEFT_REQUIRES(g->mu) WEFT_NO_THREAD_SAFETY
{
  int count = WEFT_MIN(g->size, MOST_ASKED), remote = 0, filled;
  coll_inquiry *qs = calloc((size_t)count, sizeof *qs);
  bool p2p = op->args.kind == WEFT_SEND || op->args.kind == WEFT_RECV;
  uint64_t seq = p2p ? UINT64_MAX : op->seq; /* sends and receives have no number, so that no rank counts as arrived */
  weft_status *st = NULL;

  weft_mutex_assert_held(&g->mu);
  if (!qs) return WEFT_ERR(DEADLINE_EXCEEDED, "an operation on communicator %s passed its deadline", g->name);
  int first = p2p ? WEFT_MAX(op->args.peer, 0) : 0, end = p2p ? op->args.peer + 1 : count;
  for (int r = first; r < end; r++)
    if (g->local_of[r] < 0) { coll_inquiry_init_locked(&qs[remote++], g, r, op->comm->rank, NULL); }
  filled = remote;
  for (int r = first; r < end; r++) {
    if (g->local_of[r] < 0) continue;
    qs[filled] = (coll_inquiry){.rank = r, .fd = -1};
    look_at(&qs[filled++], g->locals[g->local_of[r]], seq, weft_now_ns());
  }
  count = filled;
  if (remote) {
    coll_group_unlock(g);
    coll_inquiries_ask(g, qs, remote, seq);
    coll_group_lock(g);
    coll_inquiries_compare_locked(g, qs, remote, seq);
    for (int i = 0; i < remote && !g->error; i++) recall(g, &qs[i], seq);
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

/* ---- control connections that ended without a word ---- */

typedef struct doubts {
  coll_group *group; /* one reference */
  int count;
  coll_inquiry inquiries[];
} doubts;

/* Decides whether the peer has died, or the connection between two processes that are alive was cut. */
static void judge_locked(coll_group *g, const coll_inquiry *q) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  coll_link *link = g->links[(size_t)g->local_of[q->asker] * (size_t)g->size + (size_t)q->rank];
  char how[400];

  if (!link || !link->doubted || g->error) return;
  if (q->cut) {
    coll_link_peer_died(link, false,
                        "answers, and has not ended its control connection: integrity, or a fault of the network (the "
                        "connection was cut on its way)");
  } else if (q->unheard) {
    coll_link_peer_died(link, false,
                        "has left the communicator, and its farewell has not come: integrity, or a fault of the "
                        "network (the farewell was removed on its way)");
  } else if (q->answered && q->answer.spent[0]) {
    snprintf(how, sizeof how, "gave up: %.*s", (int)strcspn(q->answer.spent, "\n"), q->answer.spent);
    coll_link_peer_died(link, false, how);
  } else {
    coll_link_peer_died(link, true, "died: its connection closed");
  }
}

static void *doubts_thread(void *arg)
{
  doubts *d = arg;
  coll_group *g = d->group;

  coll_inquiries_ask(g, d->inquiries, d->count, UINT64_MAX);
  coll_group_lock(g);
  if (!g->error && g->links) coll_inquiries_compare_locked(g, d->inquiries, d->count, UINT64_MAX);
  for (int i = 0; i < d->count && !g->error && g->links; i++) judge_locked(g, &d->inquiries[i]);
  coll_group_unlock(g);
  coll_group_release(g);
  free(d);
  return NULL;
}

/* Asks the peers of all links whose control connection has ended without a farewell or a reason. */
static void ask_doubted_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  doubts *d = calloc(1, sizeof *d + (size_t)g->doubted_count * sizeof *d->inquiries);
  weft_status *st = NULL;
  pthread_t thread;

  for (coll_link *link = g->open_links; link && d; link = link->next_open) {
    if (!link->doubted || link->asked) continue;
    link->asked = true;
    coll_inquiry_init_locked(&d->inquiries[d->count++], g, link->peer, link->rank, NULL);
  }
  g->doubted_count = 0;
  if (d) {
    d->group = coll_group_retain(g);
    st = weft_thread_start(&thread, "weft-diagnose", doubts_thread, d);
    if (!st) {
      pthread_detach(thread);
      return;
    }
    coll_group_release(g);
  }
  weft_status_free(st);
  for (coll_link *link = g->open_links; link && !g->error; link = link->next_open)
    if (link->doubted) coll_link_peer_died(link, true, "died: its connection closed");
  free(d);
}

/* ---- ranks that do not meet ---- */

weft_status *coll_diagnose_meeting(coll_group *g, const coll_missing *missing, int count, weft_status *st)
{
  coll_inquiry *qs = calloc((size_t)count, sizeof *qs);
  char *body = NULL;
  size_t size = 0;
  int listed = 0;
  subject about = {g, ""};
  FILE *out = open_memstream(&body, &size);

  if (!qs || !out || !count) {
    if (out) fclose(out);
    free(body);
    free(qs);
    return st;
  }
  fprintf(out, "%s", weft_status_message(st));
  coll_group_lock(g);
  for (int i = 0; i < count; i++)
    coll_inquiry_init_locked(&qs[i], g, missing[i].rank, missing[i].asker, missing[i].to.magic ? &missing[i].to : NULL);
  coll_group_unlock(g);
  coll_inquiries_ask(g, qs, count, 0);
  coll_group_lock(g);
  coll_inquiries_compare_locked(g, qs, count, 0);
  for (int i = 0; i < count; i++) {
    if (!qs[i].to.magic) continue;
    list(out, &about, &qs[i], &listed);
    coll_inquiry_tell(&qs[i], out);
  }
  coll_group_unlock(g);
  fclose(out);
  weft_status *said = weft_status_new(weft_status_code(st), __FILE__, __LINE__, "%s", body);
  weft_status_free(st);
  free(body);
  free(qs);
  return said;
}

/* ---- timers ---- */

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

  if (g->error) coll_group_stop_platform_locked(g, now_ns);
  if (g->doubted_count && !g->error && !g->frozen) ask_doubted_locked(g);
  if (now_ns < atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed) || g->error) return;
  for (coll_op *op = g->all_pending; op; op = op->pending_next) {
    if (!op->warned && now_ns >= op->warn_at_ns) {
      char text[256];
      op->warned = true;
      if (!op->hold || op == op->comm->head) { /* all of a graph's are posted at once: its first one tells */
        coll_op_describe(op, text, sizeof text);
        WEFT_LOG("coll", WARN, "%s: rank %d has waited %.1f s in %s and may be stuck", g->name, op->comm->rank,
                 (double)(now_ns - op->posted_ns) / 1e9, text);
      }
    }
    overdue |= now_ns >= op->deadline_ns;
    next_ns = WEFT_MIN(next_ns, op->warned ? op->deadline_ns : WEFT_MIN(op->warn_at_ns, op->deadline_ns));
  }
  atomic_store_explicit(&g->next_timer_ns, overdue ? INT64_MAX : next_ns, memory_order_relaxed);
  if (overdue && !g->frozen) start_locked(g);
}
