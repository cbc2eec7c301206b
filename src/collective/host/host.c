/* collective/host/host.c -- the host's communicator: schedules, links, and operations in the memory of one process,
 * driven by every thread that has time. */
#include <config.h>

#include "collective/host/host.h"

#include <sched.h>

#include "collective/context.h"
#include "collective/host/direct.h"
#include "collective/host/ending.h"
#include "collective/host/engine.h"
#include "collective/host/link_state.h"
#include "collective/host/steps.h"

/* True if anything can move on the links.  With libfabric, finding out costs a system call. */
static bool links_matter(const coll_group *g)
{
  return g->open_links && (g->all_pending || atomic_load_explicit(&g->unsent, memory_order_relaxed));
}

bool coll_group_progress_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  bool moved = false, again;

  do {
    again = false;
    if (g->frozen) return moved;
    if (g->runnable) again |= coll_engine_drain_locked(g);
    if (g->direct.running) again |= coll_direct_work_locked(g);
    if (links_matter(g)) again |= coll_links_poll_locked(g);
    if (g->ending) coll_group_check_end_locked(g);
    moved |= again;
  } while (again);
  return moved;
}

static bool runs_alone_locked(const coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && atomic_load(&g->locals[i]->turn) & COLL_TURN_ALONE) return true;
  return false;
}

void coll_group_settle_locked(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  weft_mutex_assert_held(&g->mu);
  while (g->direct.running || runs_alone_locked(g)) {
    if (g->direct.running) coll_direct_work_locked(g);
    coll_group_unlock(g);
    sched_yield();
    coll_group_lock(g);
  }
}

/* A large transfer that has begun is polled for longer: the network carries parts of it that neither side sees yet. */
int64_t coll_group_spin_ns(const coll_group *g)
{
  enum { LONGER = 40 };
  return coll_settings_get()->spin_ns * (atomic_load_explicit(&g->bulk, memory_order_relaxed) ? LONGER : 1);
}

/* ---- the communicator ---- */

static void post(coll_communicator *c, const coll_posting *posting)
{
  (void)c;
  if (posting->op->collective) coll_engine_make_runnable_locked(posting->op);
  else coll_p2p_post_locked(posting->op);
}

/* Links fail, and pending operations are on no list of the engine any more. */
static void abort_links(coll_communicator *c, const weft_status *why)
{
  coll_group *g = c->group;

  weft_mutex_assert_held(&g->mu);
  coll_links_fail_locked(g, why);
  if (g->stop_at_ns) coll_context_wake_by(g->stop_at_ns);
  for (int i = 0; i < g->local_count * g->local_count; i++) g->pairs[i] = (coll_pair){0};
  for (coll_op *op = g->runnable; op; op = op->next_runnable) op->runnable = false;
  g->runnable = NULL;
  g->runnable_tail = &g->runnable;
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i]) g->locals[i]->p2p_sends = g->locals[i]->p2p_recvs = (coll_fifo){0};
}

static void describe(const coll_communicator *c, char *out, size_t size)
{
  const coll_group *g = c->group;
  int links = 0;

  for (const coll_link *link = g->open_links; link; link = link->next_open) links += coll_link_is_ready(link);
  snprintf(out, size, "%d of %d ranks in this process, %d links to others", g->local_count, g->size, links);
}

static void destroy(coll_communicator *c)
{
  coll_group_lock(c->group);
  coll_links_close_locked(c->group);
  coll_group_unlock(c->group);
}

const coll_communicator_ops coll_host_communicator = {
  .name = "host", .post = post, .abort = abort_links, .describe = describe, .destroy = destroy,
};
