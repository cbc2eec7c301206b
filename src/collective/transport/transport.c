/* collective/transport/transport.c -- the table of transports. */
#include <config.h>

#include "collective/transport/transport.h"

static const coll_transport_ops *const rows[COLL_TRANSPORT_COUNT] = {
#define ROW(name, text) [COLL_TRANSPORT_##name] = &coll_##text##_transport,
  COLL_TRANSPORTS(ROW)
#undef ROW
};

const coll_transport_ops *coll_transport_of(int32_t number)
{
  return number > COLL_TRANSPORT_NONE && number < COLL_TRANSPORT_COUNT ? rows[number] : NULL;
}

coll_transport coll_transport_between(const coll_address *from, const coll_address *to)
{
  int t = COLL_TRANSPORT_NONE + 1;

  /* the last transport reports why it does not reach */
  while (t + 1 < COLL_TRANSPORT_COUNT && !rows[t]->reaches(from, to)) t++;
  return (coll_transport)t;
}

/* Runs the statement that follows for each transport t that group `g` uses and that has function `fn`. */
#define EACH(t, g, fn)                                                     \
  for (int t = COLL_TRANSPORT_NONE + 1; t < COLL_TRANSPORT_COUNT; t++)     \
    if ((g)->transports[t] && rows[t]->fn)

bool coll_transports_poll(coll_group *g)
{
  bool any = false;

  EACH(t, g, poll) any |= rows[t]->poll(g);
  return any;
}

bool coll_transports_arm(coll_group *g)
{
  bool quiet = true;

  EACH(t, g, arm) quiet &= rows[t]->arm(g);
  return quiet;
}

void coll_transports_woken(coll_group *g) { EACH(t, g, woken) rows[t]->woken(g); }

int64_t coll_transports_nap_ns(const coll_group *g, int64_t now_ns)
{
  int64_t shortest_ns = 0;

  EACH(t, g, nap_ns)
  {
    int64_t ns = rows[t]->nap_ns(g, now_ns);
    if (ns && (!shortest_ns || ns < shortest_ns)) shortest_ns = ns;
  }
  return shortest_ns;
}

bool coll_transports_lost_some(const coll_group *g)
{
  bool lost = false;

  EACH(t, g, lost_some) lost |= rows[t]->lost_some(g);
  return lost;
}

void coll_transports_close(coll_group *g) { EACH(t, g, close) rows[t]->close(g); }
