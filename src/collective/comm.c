/* collective/comm.c -- communicators come and go: create, split, destroy. */
#include <config.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/address.h"
#include "collective/context.h"
#include "collective/flight.h"
#include "collective/internal.h"
#include "collective/link.h"

/* ---- groups ---- */

coll_group *coll_group_retain(coll_group *g)
{
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

static void op_free(coll_op *op)
{
  free(op->arrays);
  free(op->stage);
  free(op->tmp);
  free(op->msgs);
  free(op->parts);
  coll_jobs_fini(&op->jobs);
  free(op);
}

static void comm_free(weft_comm *comm)
{
  if (!comm) return;
  for (int i = 0; i < 2; i++)
    if (comm->spare[i]) op_free(comm->spare[i]);
  coll_flight_close(comm);
  for (int i = 0; i < COLL_CACHED_SCHEDULES; i++) coll_schedule_fini(&comm->cache[i].schedule);
  free(comm->lateness);
  free(comm);
}

weft_comm *coll_comm_retain(weft_comm *comm)
{
  atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
  return comm;
}

void coll_comm_release(weft_comm *comm)
{
  coll_group *g = comm->group;

  if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) != 1) return; /* acq_rel: as for groups */
  comm_free(comm);
  coll_group_release(g);
}

void coll_group_release(coll_group *g)
{
  /* acq_rel: what others did with the group happens before it is freed */
  if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
  for (coll_op *op = g->free_ops, *next; op; op = next) {
    next = op->next;
    op_free(op);
  }
  for (int i = 0; g->locals && i < g->local_count; i++) comm_free(g->locals[i]);
  coll_direct_fini(g);
  coll_topology_fini(&g->topology);
  weft_status_free(g->error);
  weft_status_free(g->ending);
  weft_mutex_fini(&g->mu);
  free(g->name);
  free(g->locals);
  free(g->local_of);
  free(g->device_ids);
  free(g->incarnations);
  free(g->addresses);
  free(g->pairs);
  free(g->links);
  free(g);
}

static bool group_allocate(coll_group *g, const weft_comm_spec *spec)
{
  size_t n = (size_t)spec->size, local = (size_t)spec->rank_count;

  return (g->name = strdup(spec->name ? spec->name : "unnamed")) && (g->locals = calloc(local, sizeof *g->locals)) &&
         (g->local_of = malloc(n * sizeof *g->local_of)) && (g->device_ids = malloc(n * sizeof *g->device_ids)) &&
         (g->incarnations = calloc(n, sizeof *g->incarnations)) && (g->pairs = calloc(local * local, sizeof *g->pairs));
}

static weft_status *add_local(coll_group *g, int local, int rank)
{
  static _Atomic uint64_t last_serial;
  weft_comm *comm = aligned_alloc(_Alignof(weft_comm), sizeof *comm);

  WEFT_TRY_ALLOC(comm);
  memset(comm, 0, sizeof *comm);
  comm->serial = ++last_serial;
  g->locals[local] = comm;
  g->local_of[rank] = local;
  comm->group = g;
  atomic_init(&comm->refs, 1);
  comm->rank = rank;
  comm->local = local;
  comm->tail = &comm->head;
  WEFT_TRY_ALLOC(comm->lateness = calloc((size_t)g->size, sizeof *comm->lateness));
  return coll_flight_open(comm);
}

/* Where there are more ranks than cores, the one that is waited for wants ours: a yield that nobody takes costs a quarter
 * of a microsecond, the spins before it cost each rank's turn.  Of ranks elsewhere we do not know how many share our cores. */
static int spins_of(const coll_group *g)
{
  enum { FEW = 4, MANY = 32 };
  cpu_set_t allowed;
  bool counted = sched_getaffinity(0, sizeof allowed, &allowed) == 0;

  return g->local_count == g->size && counted && CPU_COUNT(&allowed) >= g->size ? MANY : FEW;
}

weft_status *coll_group_new(const weft_comm_spec *spec, uint64_t public_id, coll_group **out_group)
{
  const coll_settings *settings = coll_settings_get();
  WEFT_AUTO(coll_group) g = aligned_alloc(64, sizeof *g);
  coll_algorithm forced = COLL_ALG_AUTO;

  *out_group = NULL;
  WEFT_TRY_ALLOC(g);
  memset(g, 0, sizeof *g);
  atomic_init(&g->refs, 1);
  weft_mutex_init(&g->mu);
  g->public_id = g->id = public_id;
  if (spec->rank_count < spec->size) {
    coll_key door;
    WEFT_TRY(coll_door_own(&door));
    WEFT_TRY(coll_door_group_id(&door, public_id, &g->id));
  }
  g->size = spec->size;
  g->local_count = g->live_count = spec->rank_count;
  g->runnable_tail = &g->runnable;
  g->ends_at = UINT64_MAX;
  g->origin = -1;
  g->timeout_ns = spec->timeout_ns ? spec->timeout_ns : settings->timeout_ns;
  g->warn_ns = spec->warn_ns ? spec->warn_ns : settings->warn_ns;
  g->rank_order = spec->order == WEFT_ORDER_RANK || (spec->order == WEFT_ORDER_DEFAULT && strcmp(settings->order, "rank") == 0);
  if (*settings->algorithm && !coll_algorithm_from_name(settings->algorithm, strlen(settings->algorithm), &forced))
    WEFT_LOG("coll", WARN, "WEFT_COLLECTIVE_ALGORITHM: there is no algorithm \"%s\"", settings->algorithm);
  g->forced_algorithm = forced;
  g->use_direct = spec->rank_count == spec->size && forced == COLL_ALG_AUTO;
  g->spins = spins_of(g);
  atomic_init(&g->next_timer_ns, INT64_MAX);
  WEFT_TRY_ALLOC(group_allocate(g, spec));
  if (g->local_count == g->size) WEFT_TRY(coll_direct_init(g));
  for (int r = 0; r < g->size; r++) {
    g->local_of[r] = -1;
    g->device_ids[r] = spec->device_ids ? spec->device_ids[r] : r;
    g->incarnations[r] = spec->incarnation;
  }
  for (int i = 0; i < g->local_count; i++) WEFT_TRY(add_local(g, i, spec->ranks[i]));
  *out_group = WEFT_MOVE(g);
  return NULL;
}

/* The group's communicators go to the caller, each with a reference.  `g` is taken. */
static weft_status *hand_out(coll_group *g, weft_comm **out_comms)
{
  for (int i = 0; i < g->local_count; i++) {
    coll_group_retain(g);
    out_comms[i] = g->locals[i];
  }
  coll_group_release(g);
  return NULL;
}

uint64_t coll_hash_text(const char *text, uint64_t h)
{
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
  return h;
}

/* ---- create ---- */

static weft_status *check_spec(const weft_comm_spec *spec)
{
  if (spec->size < 1 || spec->rank_count < 1 || spec->rank_count > spec->size)
    return WEFT_ERR(INVALID_ARGUMENT, "%d of %d ranks", spec->rank_count, spec->size);
  for (int i = 0; i < spec->rank_count; i++)
    if (spec->ranks[i] < 0 || spec->ranks[i] >= spec->size || (i && spec->ranks[i] <= spec->ranks[i - 1]))
      return WEFT_ERR(INVALID_ARGUMENT, "rank %d of %d: ranks must ascend within the size", spec->ranks[i], spec->size);
  if (spec->rank_count < spec->size && (!spec->kv || !spec->name))
    return WEFT_ERR(INVALID_ARGUMENT, "ranks of other processes need a store and a name to be met by");
  return NULL;
}

weft_status *weft_comm_create(const weft_comm_spec *given, weft_comm **out_comms)
{
  weft_comm_spec spec = *given;
  WEFT_AUTO(coll_group) g = NULL;
  static atomic_ulong local_id;
  weft_status *st;

  WEFT_TRY(check_spec(&spec));
  while (spec.incarnation == 0)
    if (getrandom(&spec.incarnation, sizeof spec.incarnation, 0) < 0) spec.incarnation = (uint64_t)weft_now_ns();
  bool alone = spec.rank_count == spec.size;
  uint64_t id = alone ? atomic_fetch_add(&local_id, 1) : coll_hash_text(spec.name, 0xcbf29ce484222325u + (uint64_t)spec.size);
  WEFT_TRY(coll_group_new(&spec, id, &g));
  WEFT_TRY(coll_context_add(g));
  st = alone ? NULL : coll_bootstrap(g, &spec);
  if (st) {
    coll_group_lock(g);
    coll_group_fail_locked(g, weft_status_dup(st), true);
    coll_links_close_locked(g);
    coll_group_unlock(g);
    coll_context_remove(g);
    return weft_status_note(st, __FILE__, __LINE__, "creating communicator %s", g->name);
  }
  if (!alone && given->incarnation) coll_flight_publish(spec.kv, given->incarnation);
  return hand_out(WEFT_MOVE(g), out_comms);
}

/* ---- split ---- */

typedef struct claim {
  int32_t color, key;
} claim;

typedef struct member {
  int key, rank;
} member;

static int by_key(const void *a, const void *b)
{
  const member *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The part of `color`: its group, with the addresses of the parent's. */
static weft_status *make_part(coll_group *parent, const claim *claims, int color, uint64_t number, coll_group **out_group,
                              member *members, int *ranks, int64_t *devices)
{
  WEFT_AUTO(coll_group) g = NULL;
  char name[256];
  int size = 0, local = 0;

  for (int r = 0; r < parent->size; r++)
    if (claims[r].color == color) members[size++] = (member){claims[r].key, r};
  qsort(members, (size_t)size, sizeof *members, by_key);
  for (int i = 0; i < size; i++) {
    devices[i] = parent->device_ids[members[i].rank];
    if (parent->local_of[members[i].rank] >= 0) ranks[local++] = i;
  }
  snprintf(name, sizeof name, "%.200s/split%llu.%d", parent->name, (unsigned long long)number, color);
  weft_comm_spec spec = {.name = name, .size = size, .ranks = ranks, .rank_count = local, .device_ids = devices,
                         .timeout_ns = parent->timeout_ns ? parent->timeout_ns : -1,
                         .warn_ns = parent->warn_ns ? parent->warn_ns : -1,
                         .order = parent->rank_order ? WEFT_ORDER_RANK : WEFT_ORDER_FAST};
  WEFT_TRY(coll_group_new(&spec, coll_hash_text(name, parent->public_id), &g));
  for (int i = 0; i < size; i++) g->incarnations[i] = parent->incarnations[members[i].rank];
  WEFT_TRY(coll_context_add(g));
  if (parent->addresses && local < size) {
    coll_address *addresses = calloc((size_t)size, sizeof *addresses);
    weft_status *st = addresses ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    for (int i = 0; !st && i < size; i++) addresses[i] = parent->addresses[members[i].rank];
    if (!st) st = coll_bootstrap_known(g, addresses);
    if (st) {
      coll_context_remove(g);
      return st;
    }
  }
  *out_group = WEFT_MOVE(g);
  return NULL;
}

/* Everybody's color and key, by an all-gather of the parent. */
static weft_status *gather_claims(weft_comm *const *comms, int count, const int *colors, const int *keys,
                                  weft_deadline deadline, claim *claims)
{
  coll_group *parent = comms[0]->group;
  weft_event **events = calloc((size_t)count, sizeof *events);
  claim *mine = calloc((size_t)count, sizeof *mine), *dropped = calloc((size_t)count * (size_t)parent->size, sizeof *dropped);
  weft_status *st = NULL;

  if (!events || !mine || !dropped) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  weft_coll_call call = {.site = {.instruction = "split"}, .deadline = deadline};
  for (int i = 0; i < count && !st; i++) {
    mine[i] = (claim){colors[i], keys ? keys[i] : 0};
    weft_coll_op op = {.kind = WEFT_ALL_GATHER, .dtype = WEFT_S32, .count = 2, .send = &mine[i],
                       .recv = i ? dropped + (size_t)i * (size_t)parent->size : claims};
    st = weft_coll_post(comms[i], &op, &call, &events[i]);
  }
  for (int i = 0; events && i < count; i++) {
    if (!events[i]) continue;
    weft_status *ended = weft_coll_wait(comms[i], events[i]);
    if (st)
      weft_status_free(ended);
    else
      st = ended;
    weft_event_release(events[i]);
  }
  free(events);
  free(mine);
  free(dropped);
  return st;
}

weft_status *weft_comm_split(weft_comm *const *comms, int count, const int *colors, const int *keys,
                             weft_deadline deadline, weft_comm **out_comms)
{
  coll_group *parent = comms[0]->group;
  size_t n = (size_t)parent->size;
  weft_status *st = NULL;

  for (int i = 0; i < count; i++) out_comms[i] = NULL;
  if (count != parent->live_count)
    return WEFT_ERR(INVALID_ARGUMENT, "split of %d of this process's %d ranks: pass all", count, parent->live_count);
  claim *claims = calloc(n, sizeof *claims);
  member *members = calloc(n, sizeof *members);
  int *ranks = calloc(n, sizeof *ranks);
  int64_t *devices = calloc(n, sizeof *devices);
  if (!claims || !members || !ranks || !devices)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  else
    st = gather_claims(comms, count, colors, keys, deadline, claims);
  coll_group_lock(parent);
  uint64_t number = parent->splits++;
  coll_group_unlock(parent);
  for (int i = 0; i < count && !st; i++) {
    coll_group *part = NULL;
    if (colors[i] < 0 || out_comms[i]) continue;
    st = make_part(parent, claims, colors[i], number, &part, members, ranks, devices);
    for (int k = 0; k < count && !st; k++) {
      if (colors[k] != colors[i]) continue;
      for (int m = 0; m < part->size; m++)
        if (members[m].rank == comms[k]->rank) out_comms[k] = part->locals[part->local_of[m]];
      coll_group_retain(part);
    }
    coll_group_release(part);
  }
  free(claims);
  free(members);
  free(ranks);
  free(devices);
  for (int i = 0; st && i < count; i++) {
    weft_comm_destroy(out_comms[i]);
    out_comms[i] = NULL;
  }
  return weft_status_note(st, __FILE__, __LINE__, "splitting communicator %s", parent->name);
}

/* ---- destroy ---- */

void weft_comm_destroy(weft_comm *comm)
{
  if (!comm) return;
  coll_group *g = comm->group;
  int cancelled = 0;

  coll_group_lock(g);
  atomic_store(&g->disturbed, true);
  coll_group_settle_locked(g);
  for (coll_op *op = g->all_pending, *next; op; op = next) {
    next = op->pending_next;
    if (op->comm != comm) continue;
    coll_op_finish_locked(op, WEFT_ERR(CANCELLED, "communicator %s was destroyed", g->name));
    cancelled++;
  }
  if (cancelled || (g->use_direct && g->all_pending)) /* the others cannot end without it */
    coll_group_fail_locked(g, WEFT_ERR(FAILED_PRECONDITION, "rank %d left the communicator with %d operations pending",
                                       comm->rank, cancelled), true);
  g->locals[comm->local] = NULL;
  bool last = --g->live_count == 0;
  if (last) coll_links_close_locked(g);
  else if (g->ending) coll_group_check_end_locked(g); /* the others do not wait for it */
  coll_group_unlock(g);
  if (last) coll_context_remove(g);
  coll_comm_release(comm);
}

/* ---- deaths reported from outside ---- */

typedef struct death {
  uint64_t incarnation;
  const char *detail;
} death;

static void on_death(coll_group *g, void *ctx)
{
  const death *d = ctx;

  coll_group_lock(g);
  for (int r = 0; r < g->size; r++) {
    if (g->incarnations[r] != d->incarnation || g->local_of[r] >= 0) continue;
    char who[256];
    coll_rank_describe(g, r, who, sizeof who);
    coll_group_bereave_locked(g, d->incarnation, WEFT_ERR(FAILED_PRECONDITION, "Task with incarnation id %llu is not connected: %s%s%s",
                                          (unsigned long long)d->incarnation, who, d->detail ? ": " : "", d->detail ? d->detail : ""));
    break;
  }
  coll_group_unlock(g);
}

void weft_coll_incarnation_died(uint64_t incarnation, const char *detail)
{
  coll_context_each(on_death, &(death){incarnation, detail});
}
