/* collective/comm.c -- creates, splits and destroys communicators. */
#include <config.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/address.h"
#include "collective/context.h"
#include "collective/flight_text.h"
#include "collective/host/direct.h"
#include "collective/host/ending.h"
#include "collective/host/host.h"
#include "collective/host/link.h"
#include "collective/progress.h"

enum { QUIET_LOOK_US = 500, CANCEL_LOOK_MS = 10 };
enum { INCOMPLETE = -1 }; /* claim.size of a part that is not made */

/* ---- groups ---- */

/* Gives the group's communicators to the caller, each with a reference of the group.  `g` is taken. */
static weft_status *hand_out(coll_group *g, weft_comm **out_comms)
{
  for (int i = 0; i < g->local_count; i++) {
    coll_group_retain(g);
    out_comms[i] = g->locals[i];
  }
  coll_group_release(g);
  return NULL;
}

/* Makes a group whose ranks have not met yet. */
static weft_status *new_group(const weft_comm_spec *spec, uint64_t public_id, coll_group **out_group)
{
  WEFT_AUTO(coll_group) g = NULL;

  *out_group = NULL;
  WEFT_TRY(coll_group_new(spec, public_id, &coll_host_communicator, &g));
  if (g->local_count == g->size) WEFT_TRY(coll_direct_init(g));
  *out_group = WEFT_MOVE(g);
  return NULL;
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
    return WEFT_ERR(INVALID_ARGUMENT,
                    "a communicator with ranks of other processes needs a key-value store and a name");
  return NULL;
}

typedef struct attendance {
  coll_group *group;
  const weft_comm_spec *spec; /* the user's */
} attendance;

/* weft_comm_spec.gone while the platform's communicator is made: a rank that has met the others and then fails or dies
 * fails the group. */
static weft_status *has_gone(void *ctx, int rank)
{
  const attendance *a = ctx;

  coll_group_lock(a->group);
  weft_status *st = weft_status_dup(a->group->error ? a->group->error : a->group->ending);
  coll_group_unlock(a->group);
  return st || !a->spec->gone ? st : a->spec->gone(a->spec->gone_ctx, rank);
}

/* *out_same: have the processes of all ranks given this number, which is not 0?  The answer is the same in all. */
static weft_status *agree(coll_group *g, uint64_t number, weft_deadline deadline, bool *out_same)
{
  weft_event **events = calloc((size_t)g->local_count, sizeof *events);
  uint64_t *all = calloc((size_t)g->size * (size_t)g->local_count, sizeof *all);
  weft_coll_call call = {.site = {.instruction = "communicator creation"}, .deadline = deadline};
  weft_status *st = events && all ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  for (int i = 0; i < g->local_count && !st; i++) {
    weft_coll_op op = {.kind = WEFT_ALL_GATHER, .dtype = WEFT_U8, .count = sizeof number, .send = &number,
                       .recv = all + (size_t)i * (size_t)g->size};
    st = weft_coll_post(g->locals[i], &op, &call, &events[i]);
  }
  for (int i = 0; events && i < g->local_count; i++) {
    if (!events[i]) continue;
    weft_status *ended = weft_coll_wait(g->locals[i], events[i]);
    if (st) weft_status_free(ended);
    else st = ended;
    weft_event_release(events[i]);
  }
  *out_same = !st && number;
  for (int r = 0; r < g->size && !st; r++) *out_same &= all[r] == number;
  free(events);
  free(all);
  return st;
}

/* Half of the time until the deadline, and half a minute at most: a new communicator can still be made after it. */
static weft_deadline part_of(weft_deadline deadline)
{
  enum { MOST_S = 30 };
  int64_t now = weft_now_ns();

  return weft_deadline_min((weft_deadline){now + (deadline.at_ns - now) / 2},
                           weft_deadline_after_ns(MOST_S * WEFT_NS_PER_S));
}

/* Makes the platform's communicator of an earlier one, if all ranks have it, and if this succeeds on all of them.  No
 * error and no communicator: a new one is to be made.  Ranks agree on both, since they must all do the same. */
static weft_status *inherit(coll_group *g, const weft_comm_spec *given, coll_communicator **out)
{
  const coll_communicator_ops *ops = given->communicator;
  weft_comm_spec spec = *given;
  bool same = false;

  if (!ops->heritage || g->local_count == g->size) return NULL;
  uint64_t heritage = ops->heritage(spec.communicator_ctx, &spec);
  WEFT_TRY(agree(g, heritage, given->deadline, &same));
  if (!same) return NULL;
  spec.deadline = part_of(given->deadline);
  weft_status *st = ops->inherit(spec.communicator_ctx, &spec, heritage, out);
  if (st) WEFT_LOG("coll", WARN, "communicator %s is made anew: %s", g->name, weft_status_message(st));
  weft_status *parted = agree(g, st ? 0 : heritage, given->deadline, &same);
  weft_status_free(st);
  if ((parted || !same) && *out) {
    (*out)->ops->abort(*out, parted);
    (*out)->ops->destroy(WEFT_MOVE(*out));
  }
  return parted;
}

/* Makes the platform's communicator, which will move the data of a group whose ranks have met. */
static weft_status *add_communicator(coll_group *g, const weft_comm_spec *given)
{
  weft_comm_spec spec = *given;
  attendance all = {g, given};
  coll_communicator *c = NULL;
  int64_t connect_ns = coll_settings_get()->connect_ns;

  if (spec.deadline.at_ns == 0) spec.deadline = connect_ns ? weft_deadline_after_ns(connect_ns) : WEFT_NO_DEADLINE;
  spec.gone = has_gone;
  spec.gone_ctx = &all;
  WEFT_TRY_NOTE(inherit(g, &spec, &c), "%s communicator", spec.communicator->name);
  if (!c)
    WEFT_TRY_NOTE(spec.communicator->create(spec.communicator_ctx, &spec, &c), "%s communicator",
                  spec.communicator->name);
  coll_group_lock(g);
  c->group = g;
  weft_status *st = weft_status_dup(g->error); /* a peer may have failed the group meanwhile */
  if (!st) g->communicator = c;
  /* ranks of this process meet by slots, also if an algorithm is forced: the choice is only for data that the host
   * moves */
  if (!st && g->local_count == g->size) g->use_direct = true;
  coll_group_unlock(g);
  if (st) c->ops->destroy(c);
  return st;
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
  uint64_t id = alone ? atomic_fetch_add(&local_id, 1)
                      : coll_hash_text(spec.name, 0xcbf29ce484222325u + (uint64_t)spec.size);
  WEFT_TRY(new_group(&spec, id, &g));
  WEFT_TRY(coll_progress_add(g));
  st = alone ? NULL : coll_bootstrap(g, &spec);
  if (!st && spec.communicator) st = add_communicator(g, &spec);
  if (st) {
    coll_group_lock(g);
    coll_group_fail_locked(g, weft_status_dup(st));
    coll_group_unlock(g);
    g->host.ops->destroy(&g->host);
    coll_progress_remove(g);
    return weft_status_note(st, __FILE__, __LINE__, "creating communicator %s", g->name);
  }
  if (!alone && given->incarnation) coll_flight_publish(spec.kv, given->incarnation);
  return hand_out(WEFT_MOVE(g), out_comms);
}

/* ---- split ---- */

typedef struct claim {
  int32_t color, key;
  int32_t size; /* ranks that the part must have; 0: any number */
} claim;

typedef struct member {
  int key, rank;
} member;

static int by_key(const void *a, const void *b)
{
  const member *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Makes the group of one color of the split, with addresses of the parent's ranks. */
static weft_status *make_part(coll_group *parent, const claim *claims, int color, uint64_t number,
                              coll_group **out_group, member *members, int *ranks, int64_t *devices)
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
  WEFT_TRY(new_group(&spec, coll_hash_text(name, parent->public_id), &g));
  for (int i = 0; i < size; i++) g->incarnations[i] = parent->incarnations[members[i].rank];
  WEFT_TRY(coll_progress_add(g));
  if (parent->addresses && local < size) {
    coll_address *addresses = calloc((size_t)size, sizeof *addresses);
    weft_status *st = addresses ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    for (int i = 0; !st && i < size; i++) addresses[i] = parent->addresses[members[i].rank];
    if (!st) st = coll_bootstrap_known(g, addresses);
    if (st) {
      coll_progress_remove(g);
      return st;
    }
  }
  *out_group = WEFT_MOVE(g);
  return NULL;
}

static weft_status *cancelled(const coll_split *s)
{
  return s->cancel && atomic_load(s->cancel) ? WEFT_ERR(CANCELLED, "the division of the communicator was cancelled")
                                             : NULL;
}

/* Waits until the parent's ranks of this process have no operation under way: those that a platform's communicator has
 * may still end well. */
static weft_status *await_quiet(coll_group *parent, const coll_split *s)
{
  for (;;) {
    coll_group_lock(parent);
    weft_status *st = weft_status_dup(parent->error);
    bool quiet = !parent->all_pending;
    coll_group_unlock(parent);
    if (st || quiet) return st;
    WEFT_TRY(cancelled(s));
    if (weft_deadline_passed(s->deadline))
      return WEFT_ERR(DEADLINE_EXCEEDED, "operations of the communicator have not ended");
    usleep(QUIET_LOOK_US);
  }
}

static claim claim_of(const coll_split *s, int i)
{
  return (claim){s->colors[i], s->keys ? s->keys[i] : 0, s->sizes ? s->sizes[i] : 0};
}

/* Waits for an event of a rank of the parent.  The parent fails if the division is cancelled: the other ranks wait for
 * this one. */
static weft_status *await_claims(weft_comm *comm, weft_event *event, const coll_split *s)
{
  weft_status *st = NULL;

  while (s->cancel && !weft_event_is_ready(event) && !st) {
    weft_status_ignore(weft_event_await(event, weft_deadline_after_ms(CANCEL_LOOK_MS)));
    if (!weft_event_is_ready(event)) st = cancelled(s);
  }
  if (st) weft_comm_abort(comm, st);
  return weft_coll_wait(comm, event);
}

/* Gathers every rank's claim, by an all-gather on the parent. */
static weft_status *gather_claims(weft_comm *const *comms, int count, const coll_split *s, claim *claims)
{
  coll_group *parent = comms[0]->group;
  weft_event **events = calloc((size_t)count, sizeof *events);
  claim *mine = calloc((size_t)count, sizeof *mine),
        *dropped = calloc((size_t)count * (size_t)parent->size, sizeof *dropped);
  weft_status *st = NULL;

  if (!events || !mine || !dropped) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  weft_coll_call call = {.site = {.instruction = "split"}, .deadline = s->deadline};
  for (int i = 0; i < count && !st; i++) {
    mine[i] = claim_of(s, i);
    weft_coll_op op = {.kind = WEFT_ALL_GATHER, .dtype = WEFT_S32, .count = sizeof(claim) / 4, .send = &mine[i],
                       .recv = i ? dropped + (size_t)i * (size_t)parent->size : claims};
    st = coll_post_by_host(comms[i], &op, &call, &events[i]);
  }
  for (int i = 0; events && i < count; i++) {
    if (!events[i]) continue;
    weft_status *ended = await_claims(comms[i], events[i], s);
    if (st) weft_status_free(ended);
    else st = ended;
    weft_event_release(events[i]);
  }
  free(events);
  free(mine);
  free(dropped);
  return st;
}

/* The claims of a communicator whose ranks are all in this call. */
static void take_claims(weft_comm *const *comms, int count, const coll_split *s, claim *claims)
{
  for (int i = 0; i < count; i++) claims[comms[i]->rank] = claim_of(s, i);
}

/* ---- the parts of a platform's communicator ---- */

/* A division while it is made: its parts are groups of which this process has ranks. */
typedef struct dividing {
  coll_group *parent, **parts;
  const coll_split *split;
  int count;
  weft_comm_spec *specs;
  int *colors, *ranks, *part_of, *rank_in; /* ranks: of this process, part by part */
  coll_communicator **made;
} dividing;

static weft_status *health(coll_group *g)
{
  coll_group_lock(g);
  weft_status *st = weft_status_dup(g->error ? g->error : g->ending);
  coll_group_unlock(g);
  return st;
}

/* A rank that fails or dies fails the parent or its part. */
static weft_status *division_ends(void *ctx)
{
  const dividing *d = ctx;
  weft_status *st = cancelled(d->split);

  if (!st) st = health(d->parent);
  for (int p = 0; p < d->count && !st; p++) st = health(d->parts[p]);
  return st;
}

/* Describes the parts of which `parts` are the communicators of this process's ranks. */
static void describe_parts(dividing *d, weft_comm *const *comms, weft_comm *const *parts, int count, const int *colors)
{
  int *ranks = d->ranks;

  for (int i = 0; i < d->parent->local_count; i++) d->part_of[i] = -1;
  for (int i = 0; i < count; i++) {
    if (!parts[i]) continue;
    coll_group *g = parts[i]->group;
    int p = 0;
    while (p < d->count && d->parts[p] != g) p++;
    d->part_of[comms[i]->local] = p;
    d->rank_in[comms[i]->local] = parts[i]->rank;
    if (p < d->count) continue;
    d->parts[d->count++] = g;
    d->colors[p] = colors[i];
    d->specs[p] = (weft_comm_spec){
      .name = g->name, .size = g->size, .ranks = ranks, .rank_count = g->local_count, .device_ids = g->device_ids};
    for (int r = 0; r < g->size; r++)
      if (g->local_of[r] >= 0) *ranks++ = r;
  }
}

/* The platform's communicator of a part moves the data of the part. */
static weft_status *attach(coll_group *part, coll_communicator *c)
{
  coll_group_lock(part);
  c->group = part;
  weft_status *st = weft_status_dup(part->error); /* a peer may have failed the part meanwhile */
  if (!st) part->communicator = c;
  if (!st && part->local_count == part->size) part->use_direct = true; /* see add_communicator */
  coll_group_unlock(part);
  if (st) c->ops->destroy(c);
  return st;
}

static weft_status *divide(dividing *d, weft_deadline deadline)
{
  coll_communicator *c = d->parent->communicator;
  coll_division division = {d->count, d->specs, d->colors, d->part_of, d->rank_in, deadline, division_ends, d};

  for (int p = 0; p < d->count; p++) d->specs[p].deadline = deadline;
  WEFT_TRY_NOTE(c->ops->divide(c, &division, d->made), "%s communicator", c->ops->name);
  weft_status *st = NULL;
  for (int p = 0; p < d->count; p++) {
    weft_status *own = attach(d->parts[p], d->made[p]);
    if (st) weft_status_free(own);
    else st = own;
  }
  return st;
}

/* Gives the parts, whose ranks in this process are `parts`, communicators of the parent's platform. */
static weft_status *divide_platform(weft_comm *const *comms, weft_comm *const *parts, int count, const coll_split *s)
{
  coll_group *parent = comms[0]->group;
  size_t locals = (size_t)parent->local_count;
  dividing d = {.parent = parent,
                .split = s,
                .parts = calloc(locals, sizeof *d.parts),
                .specs = calloc(locals, sizeof *d.specs),
                .made = calloc(locals, sizeof *d.made),
                .colors = calloc(4 * locals, sizeof *d.colors)};
  weft_status *st;

  if (!d.parts || !d.specs || !d.made || !d.colors) {
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  } else {
    d.ranks = d.colors + locals;
    d.part_of = d.ranks + locals;
    d.rank_in = d.part_of + locals;
    describe_parts(&d, comms, parts, count, s->colors);
    st = divide(&d, s->deadline);
  }
  free(d.parts);
  free(d.specs);
  free(d.made);
  free(d.colors);
  return st;
}

/* Every rank's claim. */
static weft_status *find_claims(weft_comm *const *comms, int count, const coll_split *s, claim *claims)
{
  coll_group *parent = comms[0]->group;

  if (!coll_group_has_platform(parent)) return gather_claims(comms, count, s, claims);
  WEFT_TRY(await_quiet(parent, s));
  if (count < parent->size) return gather_claims(comms, count, s, claims);
  take_claims(comms, count, s, claims);
  return NULL;
}

/* Drops the claims to parts that not all of their ranks want.  Returns how many claims are left; all ranks of the
 * parent see the same. */
static int drop_incomplete(claim *claims, int size)
{
  int left = 0;

  for (int r = 0; r < size; r++) {
    int same = 0;
    for (int other = 0; other < size; other++) same += claims[other].color == claims[r].color;
    if (claims[r].size > 0 && claims[r].size != same) claims[r].size = INCOMPLETE;
  }
  for (int r = 0; r < size; r++) {
    if (claims[r].size == INCOMPLETE) claims[r].color = -1;
    left += claims[r].color >= 0;
  }
  return left;
}

/* Makes the groups of the parts, for the ranks of this process. */
static weft_status *make_parts(weft_comm *const *comms, int count, const claim *claims, weft_comm **out_comms)
{
  coll_group *parent = comms[0]->group;
  size_t n = (size_t)parent->size;
  member *members = calloc(n, sizeof *members);
  int *ranks = calloc(n, sizeof *ranks);
  int64_t *devices = calloc(n, sizeof *devices);
  weft_status *st = members && ranks && devices ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  coll_group_lock(parent);
  uint64_t number = parent->splits++;
  coll_group_unlock(parent);
  for (int i = 0; i < count && !st; i++) {
    coll_group *part = NULL;
    int color = claims[comms[i]->rank].color;
    if (color < 0 || out_comms[i]) continue;
    st = make_part(parent, claims, color, number, &part, members, ranks, devices);
    for (int k = 0; k < count && !st; k++) {
      if (claims[comms[k]->rank].color != color) continue;
      for (int m = 0; m < part->size; m++)
        if (members[m].rank == comms[k]->rank) out_comms[k] = part->locals[part->local_of[m]];
      coll_group_retain(part);
    }
    coll_group_release(part);
  }
  free(members);
  free(ranks);
  free(devices);
  return st;
}

static weft_status *split(weft_comm *const *comms, int count, const coll_split *s, weft_comm **out_comms)
{
  coll_group *parent = comms[0]->group;
  claim *claims = calloc((size_t)parent->size, sizeof *claims);
  weft_status *st = claims ? find_claims(comms, count, s, claims) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  if (!st && drop_incomplete(claims, parent->size) > 0) {
    st = make_parts(comms, count, claims, out_comms);
    if (!st && coll_group_has_platform(parent)) st = divide_platform(comms, out_comms, count, s);
  }
  free(claims);
  return st;
}

weft_status *coll_comm_split(weft_comm *const *comms, int count, const coll_split *wanted, weft_comm **out_comms)
{
  coll_group *parent = comms[0]->group;
  coll_split s = *wanted;

  for (int i = 0; i < count; i++) out_comms[i] = NULL;
  if (coll_group_has_platform(parent) && !parent->communicator->ops->divide)
    return WEFT_ERR(UNIMPLEMENTED, "communicator %s (%s) cannot be split", parent->name,
                    parent->communicator->ops->name);
  if (coll_group_has_platform(parent) && s.deadline.at_ns == 0) {
    int64_t connect_ns = coll_settings_get()->connect_ns;
    s.deadline = connect_ns ? weft_deadline_after_ns(connect_ns) : WEFT_NO_DEADLINE;
  }
  if (count != parent->live_count)
    return WEFT_ERR(INVALID_ARGUMENT, "split of %d of this process's %d ranks: pass all", count, parent->live_count);
  weft_status *st = split(comms, count, &s, out_comms);
  for (int i = 0; st && i < count; i++) {
    weft_comm_destroy(out_comms[i]);
    out_comms[i] = NULL;
  }
  return weft_status_note(st, __FILE__, __LINE__, "splitting communicator %s", parent->name);
}

weft_status *weft_comm_split(weft_comm *const *comms, int count, const int *colors, const int *keys,
                             weft_deadline deadline, weft_comm **out_comms)
{
  return coll_comm_split(comms, count, &(coll_split){.colors = colors, .keys = keys, .deadline = deadline}, out_comms);
}

/* ---- destroy ---- */

/* Ends the rank's pending operations: at once, or, if a platform's communicator has the operation, when the group
 * has failed.  Returns their number. */
static int cancel_locked(weft_comm *comm) WEFT_REQUIRES_ASSERTED(comm->group->mu)
{
  weft_mutex_assert_held(&comm->group->mu);
  coll_group *g = comm->group;
  int cancelled = 0;

  for (coll_op *op = g->all_pending, *next; op; op = next) {
    next = op->pending_next;
    if (op->comm != comm) continue;
    weft_status *st = WEFT_ERR(CANCELLED, "communicator %s was destroyed", g->name);
    cancelled++;
    if (!op->below) {
      coll_op_finish_locked(op, st);
    } else {
      weft_status_free(op->result);
      op->result = st; /* see coll_communicator_ended */
    }
  }
  return cancelled;
}

void weft_comm_destroy(weft_comm *comm)
{
  if (!comm) return;
  coll_group *g = comm->group;

  coll_group_lock(g);
  atomic_store(&g->disturbed, true);
  coll_group_settle_locked(g);
  int cancelled = cancel_locked(comm);
  if (cancelled || (g->use_direct && g->all_pending)) /* the other ranks cannot end without this one */
    coll_group_fail_locked(g, WEFT_ERR(FAILED_PRECONDITION, "rank %d left the communicator with %d operations pending",
                                       comm->rank, cancelled));
  bool drained = !g->error || coll_group_drain_locked(g);
  g->locals[comm->local] = NULL;
  bool last = --g->live_count == 0;
  if (!last && g->ending) coll_group_check_end_locked(g); /* the others do not wait for this rank */
  if (!last) coll_p2p_check_left_locked(g);
  coll_group_unlock(g);
  if (last) coll_links_leave(g); /* first: others may wait for what this rank has not sent */
  if (last && coll_group_has_platform(g) && drained) g->communicator->ops->destroy(g->communicator);
  if (last) g->host.ops->destroy(&g->host);
  if (last) coll_progress_remove(g);
  /* else the device may still write to the operations' buffers: the communicator is not freed */
  if (drained) coll_comm_release(comm);
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
    coll_group_lose_member_locked(
      g, d->incarnation,
      WEFT_ERR(FAILED_PRECONDITION, "Task with incarnation id %llu is not connected: %s%s%s",
               (unsigned long long)d->incarnation, who, d->detail ? ": " : "", d->detail ? d->detail : ""));
    break;
  }
  coll_group_unlock(g);
}

void weft_coll_incarnation_died(uint64_t incarnation, const char *detail)
{
  coll_context_each(on_death, &(death){incarnation, detail});
}

int weft_comm_rank(const weft_comm *comm) { return comm->rank; }
int weft_comm_size(const weft_comm *comm) { return comm->group->size; }
int weft_comm_local_count(const weft_comm *comm) { return comm->group->local_count; }
uint64_t weft_comm_serial(const weft_comm *comm) { return comm->serial; }
uint64_t weft_comm_incarnation(const weft_comm *comm, int rank) { return comm->group->incarnations[rank]; }

weft_status *weft_comm_health(weft_comm *comm)
{
  coll_group *g = comm->group;

  coll_group_lock(g);
  weft_status *st = weft_status_dup(g->error ? g->error : g->ending);
  coll_group_unlock(g);
  return st;
}

bool weft_comm_is_told(weft_comm *comm)
{
  coll_group *g = comm->group;
  bool told = false;

  coll_group_lock(g);
  for (int i = 0; (g->error || g->ending) && i < g->local_count; i++) told |= g->locals[i] && g->locals[i]->told;
  coll_group_unlock(g);
  return told;
}

void weft_comm_abort(weft_comm *comm, weft_status *st)
{
  WEFT_AUTO(coll_group) g = coll_group_retain(comm->group);

  coll_group_lock(g);
  comm->told = true;
  coll_group_fail_locked(g, st ? st : WEFT_ERR(ABORTED, "aborted by rank %d", comm->rank));
  coll_group_settle_locked(g);
  coll_group_drain_locked(g);
  coll_group_unlock(g);
}

void weft_comm_stragglers(weft_comm *comm, weft_comm_lateness *out)
{
  coll_group *g = comm->group;

  coll_group_lock(g);
  for (int r = 0; r < g->size; r++) out[r] = coll_comm_lateness(comm, r);
  coll_group_unlock(g);
}
