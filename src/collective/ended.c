/* collective/ended.c -- what a process remembers of communicators that have ended and incarnations that have died. */
#include <config.h>

#include "collective/ended.h"

#include <stdio.h>

#include "base/thread.h"

enum { MOST_ENDED = 256, MOST_DEAD = 256 };

/* A connection may also have been cut between two processes that are alive.  So a death that only a closed
 * connection reported is believed for as long as the coordination service takes to notice a death (its heartbeat
 * timeout).  A death that the service reports is final. */
#define BELIEVED_NS (100 * WEFT_NS_PER_S)

static struct {
  weft_mutex mu; /* innermost */
  coll_ended of[MOST_ENDED] WEFT_GUARDED_BY(mu); /* the newest */
  unsigned next WEFT_GUARDED_BY(mu);
} ended = {.mu = WEFT_MUTEX_INITIALIZER};

void coll_ended_add(uint64_t group_id, uint64_t posted, const char *reason)
{
  weft_mutex_lock(&ended.mu);
  coll_ended *e = &ended.of[ended.next++ % MOST_ENDED];
  e->group_id = group_id;
  e->posted = posted;
  snprintf(e->reason, sizeof e->reason, "%s", reason);
  weft_mutex_unlock(&ended.mu);
}

bool coll_ended_find(uint64_t group_id, coll_ended *out)
{
  bool found = false;

  weft_mutex_lock(&ended.mu);
  for (int i = 0; i < MOST_ENDED && !found; i++) {
    found = ended.of[i].group_id == group_id && ended.of[i].reason[0];
    if (found) *out = ended.of[i];
  }
  weft_mutex_unlock(&ended.mu);
  return found;
}

typedef struct death {
  uint64_t incarnation;
  int64_t when_ns;
} death;

static struct {
  weft_mutex mu; /* innermost */
  death of[MOST_DEAD] WEFT_GUARDED_BY(mu); /* the newest */
  size_t count WEFT_GUARDED_BY(mu);
} dead = {.mu = WEFT_MUTEX_INITIALIZER};

void coll_dead_add(uint64_t incarnation)
{
  if (coll_dead_has(incarnation)) return;
  weft_mutex_lock(&dead.mu);
  dead.of[dead.count++ % MOST_DEAD] = (death){.incarnation = incarnation, .when_ns = weft_now_ns()};
  weft_mutex_unlock(&dead.mu);
}

bool coll_dead_has(uint64_t incarnation)
{
  int64_t since = weft_now_ns() - BELIEVED_NS;
  bool found = false;

  weft_mutex_lock(&dead.mu);
  for (size_t i = 0; i < WEFT_MIN(dead.count, (size_t)MOST_DEAD); i++)
    found |= dead.of[i].incarnation == incarnation && dead.of[i].when_ns > since;
  weft_mutex_unlock(&dead.mu);
  return found;
}
