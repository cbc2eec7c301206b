/* collective/bootstrap.c -- how ranks find each other.
 *
 * Every rank publishes its address under "<name>/<rank>" and reads only the addresses of the ranks 1, 2, 4, ...
 * above it; the lower of two ranks connects.  Over these connections a Bruck all-gather brings every rank's address
 * to all ranks: log P reads, connections and messages for a rank.  The connections stay, so that an abort or a death
 * reaches all ranks in log P hops.  Other connections are made when an operation first needs them. */
#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/address.h"
#include "collective/diagnose.h"
#include "collective/host/link.h"
#include "collective/listener.h"

/* Processes with the same value share memory, local sockets and a clock. */
static uint64_t node_of_this_process(void)
{
  char boot[64] = "";
  struct stat net = {0};
  const char *label = coll_settings_get()->node;

  if (*label) return coll_hash_text(label, 1);
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file) {
    if (!fgets(boot, sizeof boot, file)) boot[0] = '\0';
    fclose(file);
  }
  if (stat("/proc/self/ns/net", &net) != 0) net.st_ino = 0; /* abstract sockets belong to a network namespace */
  return coll_hash_text(boot, 0xcbf29ce484222325u ^ (uint64_t)net.st_ino);
}

weft_status *coll_address_own(coll_address *out)
{
  *out = (coll_address){.magic = COLL_ADDRESS_MAGIC, .pid = (int32_t)getpid(), .node = node_of_this_process()};
  gethostname(out->host, sizeof out->host - 1);
  WEFT_TRY(coll_door_own(&out->door));
  return coll_listener_start(out);
}

static void rank_key(const coll_group *g, int rank, char *out, size_t size)
{
  snprintf(out, size, "%s/%d", g->name, rank);
}

typedef struct meeting {
  const weft_comm_spec *spec;
  weft_deadline deadline;
  weft_deadline ask; /* the time at which spec->gone is asked again */
} meeting;

enum { ASK_FIRST_MS = 100, ASK_AGAIN_MS = 500 };

/* NULL while the creation may go on; else why it may not: a cancellation, an error of the group, the reason why `peer`,
 * for which the creation waits, will not come, or the deadline (with the text `missing`). */
static weft_status *may_go_on(coll_group *g, meeting *m, int peer, const char *missing)
{
  const weft_comm_spec *spec = m->spec;
  weft_status *st = NULL;

  if (spec->cancel && *spec->cancel) return WEFT_ERR(CANCELLED, "creation was cancelled");
  coll_group_lock(g);
  if (g->error) st = weft_status_dup(g->error);
  coll_group_unlock(g);
  if (!st && spec->gone && weft_deadline_passed(m->ask)) {
    m->ask = weft_deadline_after_ms(ASK_AGAIN_MS);
    st = spec->gone(spec->gone_ctx, peer);
  }
  if (!st && weft_deadline_passed(m->deadline)) st = WEFT_ERR(DEADLINE_EXCEEDED, "%s", missing);
  return st;
}

static void nap(int64_t *ns)
{
  struct timespec pause = {.tv_nsec = *ns};
  nanosleep(&pause, NULL);
  *ns = WEFT_MIN(*ns + *ns / 2, 5 * WEFT_NS_PER_MS);
}

enum { LOOK_MS = 40 }; /* the longest time until a cancellation is noticed */

/* Reads the address of rank `peer` and dials it.  Tries again if the store holds the address of a process that is
 * gone. */
static weft_status *reach(coll_group *g, meeting *m, int local, int peer)
{
  char key[512], missing[600];
  int64_t pause_ns = WEFT_NS_PER_MS;

  rank_key(g, peer, key, sizeof key);
  snprintf(missing, sizeof missing, "rank %d has not published its address (key \"%s\")", peer, key);
  coll_group_lock(g);
  const coll_link *link =
    g->links[(size_t)local * (size_t)g->size + (size_t)peer]; /* a link exists if this is not the first try */
  if (link && *coll_link_why(link))
    snprintf(missing, sizeof missing, "rank %d cannot be reached: %s", peer, coll_link_why(link));
  coll_group_unlock(g);
  for (;;) {
    WEFT_AUTO_STR value = NULL;
    size_t bytes;
    weft_status *st =
      weft_kv_get(m->spec->kv, key, weft_deadline_min(m->deadline, weft_deadline_after_ms(LOOK_MS)), &value, &bytes);
    if (!st) {
      WEFT_TRY_NOTE(coll_address_check((const coll_address *)value, bytes, g->size), "rank %d", peer);
      coll_group_lock(g);
      memcpy(&g->addresses[peer], value, sizeof g->addresses[peer]);
      g->incarnations[peer] = g->addresses[peer].incarnation;
      st = coll_link_dial_locked(g, local, peer);
      coll_group_unlock(g);
      if (!st) return NULL;
      snprintf(missing, sizeof missing, "rank %d cannot be reached: %.400s", peer, weft_status_message(st));
    }
    weft_code code = weft_status_code(st);
    if (code != WEFT_DEADLINE_EXCEEDED && code != WEFT_UNAVAILABLE && code != WEFT_UNAUTHENTICATED &&
        code != WEFT_NOT_FOUND)
      return st;
    weft_status_free(st);
    WEFT_TRY(may_go_on(g, m, peer, missing));
    nap(&pause_ns);
  }
}

/* Calls visit for each rank of another process that the local rank connects with at the start. */
static weft_status *each_neighbour(coll_group *g, int local,
                                   weft_status *(*visit)(coll_group *g, int local, int peer, void *ctx), void *ctx)
{
  int rank = g->locals[local]->rank;

  for (int distance = 1; distance < g->size; distance *= 2) {
    int both[2] = {(rank + distance) % g->size, (rank - distance % g->size + g->size) % g->size};
    for (int i = 0; i < 2; i++)
      if (g->local_of[both[i]] < 0) WEFT_TRY(visit(g, local, both[i], ctx));
  }
  return NULL;
}

static weft_status *dial_higher(coll_group *g, int local, int peer, void *ctx)
{
  return peer > g->locals[local]->rank ? reach(g, ctx, local, peer) : NULL;
}

static weft_status *await_link(coll_group *g, int local, int peer, void *ctx)
{
  meeting *m = ctx;
  int64_t pause_ns = 50 * WEFT_NS_PER_US;
  char missing[400];

  snprintf(missing, sizeof missing, "rank %d has not connected to rank %d", peer, g->locals[local]->rank);
  for (;;) {
    coll_group_lock(g);
    const coll_link *link = g->links[(size_t)local * (size_t)g->size + (size_t)peer];
    bool ready = link && coll_link_is_ready(link);
    bool lost = link && !ready && coll_link_is_waiting(link) && peer > g->locals[local]->rank;
    if (lost && *coll_link_why(link))
      snprintf(missing, sizeof missing, "rank %d cannot be reached: %s", peer, coll_link_why(link));
    coll_group_unlock(g);
    if (ready) return NULL;
    if (lost) WEFT_TRY(reach(g, m, local, peer)); /* the address was stale */
    WEFT_TRY(may_go_on(g, m, peer, missing));
    nap(&pause_ns);
  }
}

/* Gathers every rank's address, by an all-gather over the first connections. */
static weft_status *exchange(coll_group *g, weft_deadline deadline, coll_address *all)
{
  size_t n = (size_t)g->size, bytes = sizeof *all;
  weft_event **events = calloc((size_t)g->local_count, sizeof *events);
  coll_address *others = calloc(n * (size_t)(g->local_count - 1) + 1, bytes);
  weft_coll_call call = {.site = {.instruction = "communicator creation"}, .deadline = deadline};
  weft_status *st = NULL;
  int forced = g->forced_algorithm;

  if (!events || !others) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  g->forced_algorithm = COLL_ALG_BRUCK; /* sends only to ranks that are connected already */
  for (int i = 0; i < g->local_count && !st; i++) {
    weft_coll_op op = {.kind = WEFT_ALL_GATHER, .dtype = WEFT_U8, .count = bytes, .send = &g->addresses[g->locals[i]->rank],
                       .recv = i ? others + (size_t)(i - 1) * n : all};
    st = weft_coll_post(g->locals[i], &op, &call, &events[i]);
  }
  for (int i = 0; events && i < g->local_count; i++) {
    if (!events[i]) continue;
    weft_status *ended = weft_coll_wait(g->locals[i], events[i]);
    if (st) weft_status_free(ended);
    else st = ended;
    weft_event_release(events[i]);
  }
  g->forced_algorithm = forced;
  free(events);
  free(others);
  return st;
}

static weft_status *set_topology_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  uint64_t *labels = malloc((size_t)g->size * sizeof *labels);

  WEFT_TRY_ALLOC(labels);
  for (int r = 0; r < g->size; r++) labels[r] = g->addresses[r].node;
  weft_status *st = coll_topology_init(&g->topology, labels, g->size);
  free(labels);
  return st;
}

static weft_status *take_addresses(coll_group *g, const coll_address *all)
{
  weft_status *st = NULL;

  for (int r = 0; r < g->size; r++) WEFT_TRY_NOTE(coll_address_check(&all[r], sizeof all[r], g->size), "rank %d", r);
  coll_group_lock(g);
  for (int r = 0; r < g->size; r++) {
    g->addresses[r] = all[r];
    g->incarnations[r] = all[r].incarnation;
    g->device_ids[r] = all[r].device_id;
  }
  st = set_topology_locked(g);
  coll_group_unlock(g);
  return st;
}

/* Puts this process's addresses into the group, so that peers may connect. */
static weft_status *open_doors(coll_group *g, const weft_comm_spec *spec)
{
  coll_address own;
  coll_address *addresses = calloc((size_t)g->size, sizeof *addresses);
  coll_link **links = calloc((size_t)g->size * (size_t)g->local_count, sizeof *links);
  weft_status *st = addresses && links ? coll_address_own(&own) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  if (st) {
    free(addresses);
    free(links);
    return st;
  }
  for (int i = 0; i < g->local_count; i++) {
    int rank = g->locals[i]->rank;
    addresses[rank] = own;
    addresses[rank].size = g->size;
    addresses[rank].incarnation = spec->incarnation;
    addresses[rank].device_id = g->device_ids[rank];
  }
  coll_group_lock(g);
  g->addresses = addresses;
  g->links = links;
  coll_group_unlock(g);
  return NULL;
}

static weft_status *meet(coll_group *g, const weft_comm_spec *spec, weft_deadline deadline)
{
  meeting m = {spec, deadline, weft_deadline_after_ms(ASK_FIRST_MS)};
  char key[512];

  WEFT_TRY(open_doors(g, spec));
  for (int i = 0; i < g->local_count; i++) {
    int rank = g->locals[i]->rank;
    rank_key(g, rank, key, sizeof key);
    WEFT_TRY(weft_kv_set(spec->kv, key, &g->addresses[rank], sizeof g->addresses[rank], true));
  }
  for (int i = 0; i < g->local_count; i++) WEFT_TRY(each_neighbour(g, i, dial_higher, &m));
  for (int i = 0; i < g->local_count; i++) WEFT_TRY(each_neighbour(g, i, await_link, &m));
  coll_address *all = calloc((size_t)g->size, sizeof *all);
  WEFT_TRY_ALLOC(all);
  weft_status *st = exchange(g, deadline, all);
  if (!st) st = take_addresses(g, all);
  free(all);
  return st;
}

typedef struct search {
  const weft_comm_spec *spec;
  coll_missing *missing;
  int count;
} search;

/* Adds a connection that is not made, with the peer's address if it has published one. */
static weft_status *add_missing(coll_group *g, int local, int peer, void *ctx)
{
  search *s = ctx;
  coll_missing m = {.rank = peer, .asker = g->locals[local]->rank};
  WEFT_AUTO_STR value = NULL;
  char key[512];
  size_t bytes;

  coll_group_lock(g);
  const coll_link *link = g->links[(size_t)local * (size_t)g->size + (size_t)peer];
  bool ready = link && coll_link_is_ready(link), known = g->addresses[peer].magic;
  coll_group_unlock(g);
  if (ready) return NULL;
  rank_key(g, peer, key, sizeof key);
  weft_status *st = known ? NULL : weft_kv_get(s->spec->kv, key, weft_deadline_after_ms(LOOK_MS), &value, &bytes);
  if (!st && value) st = coll_address_check((const coll_address *)value, bytes, g->size);
  if (!st && value) memcpy(&m.to, value, sizeof m.to);
  weft_status_ignore(st);            /* after an error no address is known, so no process can be asked */
  for (int i = 0; i < s->count; i++) /* of few ranks both neighbours may be one rank */
    if (s->missing[i].rank == m.rank && s->missing[i].asker == m.asker) return NULL;
  if (known || m.to.magic) s->missing[s->count++] = m;
  return NULL;
}

/* The deadline has passed, as `st` (taken) says.  Adds to the error what the diagnosis finds: whether an attacker
 * between the hosts, or the network, is the cause. */
static weft_status *explain(coll_group *g, const weft_comm_spec *spec, weft_status *st)
{
  enum { MOST_NEIGHBOURS = 64 }; /* of a rank: two for each power of two */
  search s = {.spec = spec};

  coll_group_lock(g);
  bool failed = g->error != NULL; /* then that error is the one that is reported */
  coll_group_unlock(g);
  if (!failed) s.missing = calloc((size_t)g->local_count * MOST_NEIGHBOURS, sizeof *s.missing);
  for (int i = 0; s.missing && i < g->local_count; i++) weft_status_ignore(each_neighbour(g, i, add_missing, &s));
  if (s.count) st = coll_diagnose_meeting(g, s.missing, s.count, st);
  free(s.missing);
  return st;
}

weft_status *coll_bootstrap(coll_group *g, const weft_comm_spec *spec)
{
  int64_t connect_ns = coll_settings_get()->connect_ns;
  weft_deadline deadline = spec->deadline;
  char key[512];

  if (deadline.at_ns == 0) deadline = connect_ns ? weft_deadline_after_ns(connect_ns) : WEFT_NO_DEADLINE;
  weft_status *st = meet(g, spec, deadline);
  if (weft_status_code(st) == WEFT_DEADLINE_EXCEEDED && g->links && !g->topology.size) st = explain(g, spec, st);
  coll_group_lock(g);
  if (st && g->error) { /* report the error that spent the group, not that the group is spent */
    weft_status_free(st);
    st = weft_status_dup(g->error);
  }
  coll_group_unlock(g);
  for (int i = 0; i < g->local_count; i++) { /* the ranks that need these keys have read them, or never will */
    rank_key(g, g->locals[i]->rank, key, sizeof key);
    weft_status_ignore(weft_kv_remove(spec->kv, key));
  }
  return st;
}

static weft_status *dial_known(coll_group *g, int local, int peer, void *ctx)
{
  (void)ctx;
  weft_mutex_assert_held(&g->mu);
  if (peer > g->locals[local]->rank) coll_link_of_locked(g, local, peer);
  return NULL;
}

weft_status *coll_bootstrap_known(coll_group *g, coll_address *addresses)
{
  coll_link **links = calloc((size_t)g->size * (size_t)g->local_count, sizeof *links);
  weft_status *st;

  if (!links) free(addresses);
  WEFT_TRY_ALLOC(links);
  coll_group_lock(g); /* under the lock, because deaths are reported to every group that exists */
  g->addresses = addresses;
  for (int r = 0; r < g->size; r++) g->addresses[r].size = g->size;
  st = set_topology_locked(g);
  g->links = links;
  for (int i = 0; i < g->local_count && !st; i++) st = each_neighbour(g, i, dial_known, NULL);
  coll_group_unlock(g);
  return st;
}
