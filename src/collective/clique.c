/* collective/clique.c -- the registry: finds or makes a clique, queues for it, holds it, drops its communicator.
 *
 * Each clique has a line of holds.  A hold enters the lines of all its cliques under one lock, so no two holds stand
 * in different order in two lines.  A hold that is first in every one of its lines has its cliques.  If a
 * communicator is missing then, a thread of its own makes it, because creation waits for other processes and must
 * block no other thread.
 *
 * The successor of a spent communicator needs a name that all members choose alike:
 * "<prefix>/<hash of key>/<generation>".  A process that finds generation n spent sets the key "<prefix>/<hash of key>"
 * to n + 1; a process that makes a communicator reads that key.
 *
 * A division (coll_clique_division) is run by the first hold that has it, once for each communicator of the whole, also
 * if all its parts have communicators here: other processes may lack some, and all ranks of the whole must take part.
 * The holds of the whole have the same order in all processes, since its collectives have; so all processes come to the
 * division together, and a process that does something else instead is found as at every collective.  A rank whose
 * part has a communicator, or cannot be made by a division, joins no part.  Parts that come out of it without a
 * communicator are made as without a division. */
#include <config.h>

#include "collective/clique.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/thread.h"
#include "collective/communicator.h"
#include "collective/ended.h"
#include "collective/internal.h"

/* The communicators of a clique's local ranks. */
typedef struct comm_set {
  struct comm_set *next;
  uint64_t hash, generation;
  uint64_t *divided;   /* [divided_count] names of the divisions that have been run */
  int divided_count, divided_capacity;
  int count;
  weft_comm *comms[];
} comm_set;

/* A place in one clique's line. */
typedef struct place {
  struct place *next;
  coll_clique_hold *hold;
  coll_clique *clique;
} place;

struct coll_clique {
  coll_clique *next;
  int64_t *devices;
  uint64_t *incarnations; /* NULL: one process holds every device */
  int *local_ranks;
  int size, local_count;
  uint64_t purpose, hash;
  comm_set *set; /* NULL until made, and after it was dropped */
  bool creating;
  bool dividing; /* `set` is being divided */
  uint64_t least_generation; /* of the next communicator: one more than the last that was spent */
  place *line;   /* the line: the hold in the first place has the clique */
};

struct coll_clique_hold {
  coll_cliques *cliques;
  coll_clique_hold *next, *next_fired; /* next: in the list of holds that have not fired */
  int refs;           /* its owner, threads that make communicators for it, a list of holds to fire */
  int count;
  weft_event *event;  /* NULL once it has fired */
  weft_status *error; /* the error with which it fires */
  weft_deadline deadline;
  atomic_bool cancel;
  coll_clique_division *divisions; /* [division_count] of what can be divided; in one block with their lists of parts */
  int division_count;
  place places[];
};

struct coll_cliques {
  weft_mutex mu;
  weft_cond changed; /* signalled for the timer thread, and when a thread ends */
  weft_kv *kv;
  char *prefix;
  coll_clique_factory factory;
  coll_clique *all WEFT_GUARDED_BY(mu);
  coll_clique_hold *waiting WEFT_GUARDED_BY(mu);
  uint64_t *dead WEFT_GUARDED_BY(mu);
  size_t dead_count WEFT_GUARDED_BY(mu);
  int threads WEFT_GUARDED_BY(mu);
  bool has_timer WEFT_GUARDED_BY(mu), closing WEFT_GUARDED_BY(mu);
  bool left WEFT_GUARDED_BY(mu);
  weft_status *parting WEFT_GUARDED_BY(mu); /* why this process left, or NULL; does not change once `left` is set */
  coll_clique_self self; /* owns `devices`; set before `left`, and does not change then */
  /* the store says that this process has left, for processes that would make a communicator with it */
  bool announced WEFT_GUARDED_BY(mu);
};

/* What is to be done once the lock is released. */
typedef struct leftovers {
  coll_clique_hold *fired;
  comm_set *dropped;
  const weft_status *parting; /* the error that the other members of the dropped communicators get, or NULL */
  bool announce; /* no run waits for a clique any more: write the key that says that this process has left */
} leftovers;

/* ---- keys ---- */

static uint64_t hash_key(const coll_clique_key *key)
{
  uint64_t h = 0xcbf29ce484222325u ^ key->purpose;
  for (int i = 0; i < key->size; i++) {
    h = (h ^ (uint64_t)key->devices[i]) * 0x100000001b3u;
    h = (h ^ (key->incarnations ? key->incarnations[i] : 0)) * 0x9e3779b97f4a7c15u;
    h ^= h >> 31;
  }
  return h;
}

static bool is_key(const coll_clique *c, const coll_clique_key *key, uint64_t hash)
{
  size_t n = (size_t)key->size;
  return c->hash == hash && c->size == key->size && c->purpose == key->purpose &&
         memcmp(c->devices, key->devices, n * sizeof *key->devices) == 0 && !c->incarnations == !key->incarnations &&
         (!key->incarnations || memcmp(c->incarnations, key->incarnations, n * sizeof *key->incarnations) == 0);
}

static void *copy_of(const void *data, size_t bytes)
{
  void *copy = malloc(bytes ? bytes : 1);
  if (copy && bytes) memcpy(copy, data, bytes);
  return copy;
}

enum { MOST_FREED_APART = 32 };

static void set_free(comm_set *set)
{
  for (int i = 0; set && i < set->count; i++) weft_comm_destroy(set->comms[i]);
  if (set) free(set->divided);
  free(set);
}

static void *set_free_apart(void *set)
{
  set_free(set);
  return NULL;
}

/* Destroys communicators at the same time: each may wait for its peers. */
static void free_sets(comm_set *sets)
{
  pthread_t threads[MOST_FREED_APART];
  int started = 0;

  for (comm_set *set = sets, *next; set; set = next) {
    next = set->next;
    weft_status *st = next && started < MOST_FREED_APART
                        ? weft_thread_start(&threads[started], "weft-leave", set_free_apart, set)
                        : NULL;
    if (next && started < MOST_FREED_APART && !st) {
      started++;
    } else {
      weft_status_ignore(st);
      set_free(set);
    }
  }
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* The communicators of the clique have been taken out. */
static void clique_free(coll_clique *c)
{
  free(c->devices);
  free(c->incarnations);
  free(c->local_ranks);
  free(c);
}
WEFT_DEFINE_AUTO(coll_clique, clique_free)

static weft_status *find_locked(coll_cliques *cs, const coll_clique_request *r, coll_clique **out) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  uint64_t hash = hash_key(&r->key);
  size_t n = (size_t)r->key.size;

  for (coll_clique *c = cs->all; c; c = c->next)
    if (is_key(c, &r->key, hash)) {
      *out = c;
      return NULL;
    }
  WEFT_AUTO(coll_clique) c = calloc(1, sizeof *c);
  WEFT_TRY_ALLOC(c);
  c->size = r->key.size;
  c->local_count = r->local_count;
  c->purpose = r->key.purpose;
  c->hash = hash;
  WEFT_TRY_ALLOC(c->devices = copy_of(r->key.devices, n * sizeof *c->devices));
  WEFT_TRY_ALLOC(c->local_ranks = copy_of(r->local_ranks, (size_t)r->local_count * sizeof *c->local_ranks));
  if (r->key.incarnations) WEFT_TRY_ALLOC(c->incarnations = copy_of(r->key.incarnations, n * sizeof *c->incarnations));
  c->next = cs->all;
  cs->all = c;
  *out = WEFT_MOVE(c);
  return NULL;
}

static bool is_dead_locked(const coll_cliques *cs, uint64_t incarnation) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  for (size_t d = 0; d < cs->dead_count; d++)
    if (cs->dead[d] == incarnation) return true;
  return coll_dead_has(incarnation);
}

/* An error if a member is dead: the coordination service has reported its death, or its connection closed.
 * incarnations[size] or NULL. */
static weft_status *check_alive_locked(const coll_cliques *cs, const int64_t *devices, const uint64_t *incarnations,
                                       int size) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  for (int i = 0; incarnations && i < size; i++) {
    bool known = i && incarnations[i] == incarnations[i - 1]; /* the devices of a process stand together */
    if (known || !is_dead_locked(cs, incarnations[i])) continue;
    return WEFT_ERR(FAILED_PRECONDITION,
                    "Task with incarnation id %llu is not connected: it had device %lld; Incarnation id %llu is stale",
                    (unsigned long long)incarnations[i], (long long)devices[i], (unsigned long long)incarnations[i]);
  }
  return NULL;
}

/* ---- holds ---- */

static void hold_unref_locked(coll_clique_hold *h) WEFT_REQUIRES_ASSERTED(h->cliques->mu)
{
  weft_mutex_assert_held(&h->cliques->mu);
  if (--h->refs) return;
  weft_status_free(h->error);
  free(h->divisions);
  free(h);
}

static void leave_lines_locked(coll_clique_hold *h) WEFT_REQUIRES_ASSERTED(h->cliques->mu)
{
  weft_mutex_assert_held(&h->cliques->mu);
  for (int i = 0; i < h->count; i++)
    for (place **at = &h->places[i].clique->line; *at; at = &(*at)->next)
      if (*at == &h->places[i]) {
        *at = (*at)->next;
        break;
      }
}

/* The hold has its cliques, or h->error: it will fire. */
static void fire_locked(coll_clique_hold *h, leftovers *l) WEFT_REQUIRES_ASSERTED(h->cliques->mu)
{
  weft_mutex_assert_held(&h->cliques->mu);
  coll_clique_hold **at = &h->cliques->waiting;

  while (*at != h) at = &(*at)->next;
  *at = h->next;
  h->refs++;
  h->next_fired = l->fired;
  l->fired = h;
}

static void left_key(const coll_cliques *cs, int64_t device, char *key, size_t size)
{
  snprintf(key, size, "%.160s/left/%lld", cs->prefix, (long long)device);
}

/* Writes a key for each device: the incarnation, a space and the reason.  Once written, a reason does not change. */
static void announce(coll_cliques *cs) WEFT_NO_THREAD_SAFETY
{
  WEFT_AUTO_STR text = NULL;
  char key[256];

  if (asprintf(&text, "%llu %s", (unsigned long long)cs->self.incarnation,
               cs->parting ? weft_status_message(cs->parting) : "") < 0)
    return;
  for (int i = 0; i < cs->self.count; i++) {
    left_key(cs, cs->self.devices[i], key, sizeof key);
    weft_status_ignore(weft_kv_set(cs->kv, key, text, strlen(text), true));
  }
}

static void clean_up(coll_cliques *cs, leftovers l)
{
  if (l.announce) announce(cs);
  for (comm_set *set = l.dropped, *next; set; set = next) {
    char key[256], text[24];
    next = set->next;
    snprintf(key, sizeof key, "%.160s/%016llx", cs->prefix, (unsigned long long)set->hash);
    snprintf(text, sizeof text, "%llu", (unsigned long long)set->generation + 1);
    if (cs->kv) weft_status_ignore(weft_kv_set(cs->kv, key, text, strlen(text), true));
    if (l.parting) weft_comm_abort(set->comms[0], weft_status_dup(l.parting));
  }
  free_sets(l.dropped);
  for (coll_clique_hold *h = l.fired, *next; h; h = next) {
    next = h->next_fired;
    weft_event *event = WEFT_MOVE(h->event);
    weft_event_set(event, weft_status_dup(h->error)); /* from here on its owner may release the hold */
    weft_event_release(event);
    weft_mutex_lock(&cs->mu);
    hold_unref_locked(h);
    weft_mutex_unlock(&cs->mu);
  }
}

/* ---- making communicators ---- */

typedef struct creation {
  coll_clique_hold *hold;
  coll_clique *clique;
} creation;

static void advance_locked(coll_cliques *cs, leftovers *l) WEFT_REQUIRES(cs->mu);

static uint64_t stored_generation(coll_cliques *cs, uint64_t hash)
{
  char key[256];
  WEFT_AUTO_STR text = NULL;
  size_t size;

  if (!cs->kv) return 0;
  snprintf(key, sizeof key, "%.160s/%016llx", cs->prefix, (unsigned long long)hash);
  weft_status *st = weft_kv_try_get(cs->kv, key, &text, &size);
  uint64_t generation = st ? 0 : strtoull(text, NULL, 10);
  weft_status_ignore(st);
  return generation;
}

typedef struct making {
  coll_cliques *cliques;
  const coll_clique *clique;
} making;

/* weft_comm_spec.gone: has the process of `rank` announced that it left?  An announcement of another incarnation
 * than the wanted one does not count. */
static weft_status *has_left(void *ctx, int rank)
{
  const making *m = ctx;
  long long device = (long long)m->clique->devices[rank];
  char key[256], *reason;
  WEFT_AUTO_STR text = NULL;
  size_t size;

  left_key(m->cliques, device, key, sizeof key);
  weft_status *st = weft_kv_try_get(m->cliques->kv, key, &text, &size);
  if (st) {
    weft_status_free(st);
    return NULL;
  }
  unsigned long long incarnation = strtoull(text, &reason, 10);
  if (m->clique->incarnations && m->clique->incarnations[rank] && m->clique->incarnations[rank] != incarnation)
    return NULL;
  if (*reason++ != ' ' || !*reason)
    return WEFT_ERR(FAILED_PRECONDITION, "the process of rank %d (device %lld) has left its job", rank, device);
  return WEFT_ERR(ABORTED, "the process of rank %d (device %lld) has left its job: %s", rank, device, reason);
}

/* The platform's communicators move the data. */
static bool is_factorys(const coll_clique *c)
{
  return c->purpose == COLL_FOR_COLLECTIVES || c->purpose == COLL_FOR_DEVICE_TRANSFERS;
}

static weft_status *new_set(coll_cliques *cs, const coll_clique *c, comm_set **out)
{
  comm_set *set = *out = calloc(1, sizeof *set + (size_t)c->local_count * sizeof *set->comms);

  WEFT_TRY_ALLOC(set);
  *set = (comm_set){.hash = c->hash, .generation = stored_generation(cs, c->hash), .count = c->local_count};
  set->generation = WEFT_MAX(set->generation, c->least_generation);
  return NULL;
}

static weft_status *make_set(const coll_clique_hold *h, const coll_clique *c, comm_set **out)
{
  coll_cliques *cs = h->cliques;
  char name[256];
  comm_set *set;

  WEFT_TRY(new_set(cs, c, &set));
  snprintf(name, sizeof name, "%.160s/%016llx/%llu", cs->prefix, (unsigned long long)c->hash,
           (unsigned long long)set->generation);
  making m = {cs, c};
  weft_comm_spec spec = {.kv = cs->kv, .name = name, .size = c->size, .ranks = c->local_ranks, .rank_count = c->local_count,
                         .incarnation = c->incarnations ? c->incarnations[c->local_ranks[0]] : 0, .device_ids = c->devices,
                         .deadline = h->deadline, .cancel = &h->cancel, .gone = has_left, .gone_ctx = &m,
                         .communicator = is_factorys(c) ? cs->factory.ops : NULL, .communicator_ctx = cs->factory.ctx};
  weft_status *st = weft_comm_create(&spec, set->comms);
  if (st) {
    free(set);
    return st;
  }
  *out = set;
  return NULL;
}

/* The end of a thread that has worked for a hold, with the error `st` (taken).  The thread touches nothing of the
 * registry after this. */
static void unlock_and_end_thread(coll_cliques *cs, coll_clique_hold *h, weft_status *st) WEFT_RELEASES(cs->mu)
{
  leftovers l = {0};

  weft_mutex_assert_held(&cs->mu);
  if (st && h->event && !h->error) h->error = st;
  else weft_status_free(st);
  advance_locked(cs, &l);
  hold_unref_locked(h);
  weft_mutex_unlock(&cs->mu);
  clean_up(cs, l);
  weft_mutex_lock(&cs->mu);
  cs->threads--;
  weft_cond_broadcast(&cs->changed);
  weft_mutex_unlock(&cs->mu);
}

static void *create_thread(void *arg)
{
  creation *c = arg;
  coll_clique_hold *h = c->hold;
  coll_cliques *cs = h->cliques;
  comm_set *set = NULL;
  weft_status *st = make_set(h, c->clique, &set);

  weft_mutex_lock(&cs->mu);
  c->clique->set = set;
  c->clique->creating = false;
  free(c);
  unlock_and_end_thread(cs, h, st);
  return NULL;
}

static weft_status *start_thread_locked(coll_cliques *cs, const char *name, void *(*run)(void *), void *arg)
  WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  pthread_t thread;

  WEFT_TRY(weft_thread_start(&thread, name, run, arg));
  pthread_detach(thread);
  cs->threads++;
  return NULL;
}

/* ---- dividing communicators ---- */

typedef struct dividing {
  coll_clique_hold *hold;
  const coll_clique_division *division;
  bool *wanted;              /* [part_count] the part has no communicator, and can be made by the division */
  comm_set **made;           /* [part_count] */
  int *colors, *keys, *sizes; /* [ranks of the whole in this process]: coll_split */
  weft_comm **comms;         /* likewise: of their parts */
} dividing;

static void dividing_free(dividing *d)
{
  free(d->wanted);
  free(d->made);
  free(d->colors);
  free(d->comms);
  free(d);
}
WEFT_DEFINE_AUTO(dividing, dividing_free)

static coll_clique *whole_of(const dividing *d) { return d->hold->places[d->division->whole].clique; }
static coll_clique *part_of(const dividing *d, int p) { return d->hold->places[d->division->parts[p]].clique; }

static int rank_with(const coll_clique *c, int64_t device)
{
  int rank = 0;

  while (rank < c->size && c->devices[rank] != device) rank++;
  return rank;
}

/* The index among the whole's ranks of this process of the part's `i`-th such rank. */
static int local_in(const coll_clique *whole, const coll_clique *part, int i)
{
  int rank = rank_with(whole, part->devices[part->local_ranks[i]]), local = 0;

  while (whole->local_ranks[local] != rank) local++;
  return local;
}

/* Says which part each rank of the whole joins. A part's color is the least rank of its devices in the whole: the same
 * in all processes. */
static void choose_colors(dividing *d)
{
  const coll_clique *whole = whole_of(d);

  for (int k = 0; k < whole->local_count; k++) d->colors[k] = -1;
  for (int p = 0; p < d->division->part_count; p++) {
    const coll_clique *part = part_of(d, p);
    int color = whole->size;
    for (int r = 0; r < part->size; r++) color = WEFT_MIN(color, rank_with(whole, part->devices[r]));
    for (int i = 0; d->wanted[p] && i < part->local_count; i++) {
      int k = local_in(whole, part, i);
      d->colors[k] = color;
      d->keys[k] = part->local_ranks[i];
      d->sizes[k] = part->size;
    }
  }
}

/* Puts the communicators that have been made into sets. */
static weft_status *take_parts(dividing *d)
{
  const coll_clique *whole = whole_of(d);

  for (int p = 0; p < d->division->part_count; p++) {
    const coll_clique *part = part_of(d, p);
    if (!d->wanted[p] || !d->comms[local_in(whole, part, 0)]) continue;
    WEFT_TRY(new_set(d->hold->cliques, part, &d->made[p]));
    for (int i = 0; i < part->local_count; i++) d->made[p]->comms[i] = WEFT_MOVE(d->comms[local_in(whole, part, i)]);
  }
  return NULL;
}

static weft_status *run_division(dividing *d)
{
  const coll_clique *whole = whole_of(d);
  comm_set *set = whole->set; /* nobody changes it while it is divided */
  coll_split split = {.colors = d->colors, .keys = d->keys, .sizes = d->sizes, .deadline = d->hold->deadline,
                      .cancel = &d->hold->cancel};

  choose_colors(d);
  weft_status *st = coll_comm_split(set->comms, set->count, &split, d->comms);
  if (!st) st = take_parts(d);
  for (int k = 0; k < set->count; k++) weft_comm_destroy(d->comms[k]);
  /* no rank of the whole may go on as if the division had been run */
  if (st) weft_comm_abort(set->comms[0], weft_status_dup(st));
  return st;
}

static void *divide_thread(void *arg)
{
  WEFT_AUTO(dividing) d = arg;
  coll_clique_hold *h = d->hold;
  coll_cliques *cs = h->cliques;
  weft_status *st = run_division(d);

  weft_mutex_lock(&cs->mu);
  coll_clique *whole = whole_of(d);
  comm_set *set = whole->set;
  if (!st) set->divided[set->divided_count++] = d->division->name; /* there is room: start_division_locked */
  for (int p = 0; p < d->division->part_count; p++) {
    if (!d->wanted[p]) continue;
    part_of(d, p)->set = d->made[p];
    part_of(d, p)->creating = false;
  }
  whole->dividing = false;
  unlock_and_end_thread(cs, h, st);
  return NULL;
}

static weft_comm_spec spec_of(const coll_clique *c)
{
  return (weft_comm_spec){
    .size = c->size, .ranks = c->local_ranks, .rank_count = c->local_count, .device_ids = c->devices};
}

static weft_status *new_dividing(coll_cliques *cs, coll_clique_hold *h, const coll_clique_division *division,
                                 dividing **out) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  WEFT_AUTO(dividing) d = calloc(1, sizeof *d);
  size_t parts = (size_t)WEFT_MAX(division->part_count, 1);

  WEFT_TRY_ALLOC(d);
  d->hold = h;
  d->division = division;
  size_t locals = (size_t)whole_of(d)->local_count;
  comm_set *set = whole_of(d)->set;
  WEFT_TRY_ALLOC(d->wanted = calloc(parts, sizeof *d->wanted));
  WEFT_TRY_ALLOC(d->made = calloc(parts, sizeof *d->made));
  WEFT_TRY_ALLOC(d->colors = calloc(3 * locals, sizeof *d->colors));
  WEFT_TRY_ALLOC(d->comms = calloc(locals, sizeof *d->comms));
  WEFT_TRY_ALLOC(WEFT_RESERVE(set->divided, set->divided_capacity, set->divided_count + 1, 4));
  d->keys = d->colors + locals;
  d->sizes = d->keys + locals;
  *out = WEFT_MOVE(d);
  return NULL;
}

static weft_status *start_division_locked(coll_cliques *cs, coll_clique_hold *h, const coll_clique_division *division)
  WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  WEFT_AUTO(dividing) d = NULL;

  WEFT_TRY(new_dividing(cs, h, division, &d));
  weft_comm_spec whole = spec_of(whole_of(d));
  for (int p = 0; p < division->part_count; p++) {
    coll_clique *c = part_of(d, p);
    weft_comm_spec part = spec_of(c);
    d->wanted[p] = !c->set && !c->creating && cs->factory.ops->divides(cs->factory.ctx, &whole, &part);
  }
  WEFT_TRY(start_thread_locked(cs, "weft-divide", divide_thread, d));
  for (int p = 0; p < division->part_count; p++) part_of(d, p)->creating |= d->wanted[p];
  whole_of(d)->dividing = true;
  h->refs++;
  (void)WEFT_MOVE(d); /* the thread's */
  return NULL;
}

static bool is_run(const comm_set *set, uint64_t name)
{
  bool run = false;

  for (int i = 0; i < set->divided_count; i++) run |= set->divided[i] == name;
  return run;
}

/* A division that is still to be run will make the hold's `i`-th clique, or find that it cannot. */
static bool is_to_be_divided(const coll_clique_hold *h, int i)
{
  for (int d = 0; d < h->division_count; d++) {
    const coll_clique_division *division = &h->divisions[d];
    const coll_clique *whole = h->places[division->whole].clique;
    if (whole->set && is_run(whole->set, division->name)) continue;
    for (int p = 0; p < division->part_count; p++)
      if (division->parts[p] == i) return true;
  }
  return false;
}

/* Runs the next of the hold's divisions whose whole has a communicator.  False: not all have been run. */
static bool divide_locked(coll_cliques *cs, coll_clique_hold *h) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  bool all = true;

  for (int d = 0; d < h->division_count && !h->error; d++) {
    const coll_clique_division *division = &h->divisions[d];
    const coll_clique *whole = h->places[division->whole].clique;
    if (!whole->set || is_run(whole->set, division->name)) continue;
    all = false;
    if (!whole->dividing) h->error = start_division_locked(cs, h, division);
  }
  return all;
}

static weft_status *start_creation_locked(coll_cliques *cs, coll_clique_hold *h, coll_clique *clique)
  WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  creation *c = malloc(sizeof *c);

  WEFT_TRY_ALLOC(c);
  *c = (creation){h, clique};
  weft_status *st = start_thread_locked(cs, "weft-clique", create_thread, c);
  if (st) {
    free(c);
    return st;
  }
  h->refs++;
  clique->creating = true;
  return NULL;
}

/* ---- the lines ---- */

static bool is_first(const coll_clique_hold *h)
{
  for (int i = 0; i < h->count; i++)
    if (h->places[i].clique->line != &h->places[i]) return false;
  return true;
}

/* A spent communicator for collectives is kept until a rank of this process has heard of its error.  The launch that
 * other processes gave up must fail in this process too, and must not meet their next launch on a new communicator.
 * Sends and receives need no such care, as they find each other by their tags. */
static bool is_to_be_dropped(const coll_clique *c)
{
  if (!c->set || c->dividing) return false;
  if (c->purpose == COLL_FOR_COLLECTIVES || c->purpose == COLL_FOR_HOST_COLLECTIVES)
    return weft_comm_is_told(c->set->comms[0]);
  weft_status *spent = weft_comm_health(c->set->comms[0]);
  bool drop = spent != NULL;
  weft_status_free(spent);
  return drop;
}

/* Drops communicators that are spent and makes those that are missing.  True if all communicators exist. */
static bool complete_locked(coll_cliques *cs, coll_clique_hold *h, leftovers *l) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  bool all = true;

  for (int i = 0; i < h->count && !h->error; i++) {
    coll_clique *c = h->places[i].clique;
    if (is_to_be_dropped(c)) {
      c->least_generation = c->set->generation + 1;
      c->set->next = l->dropped;
      l->dropped = WEFT_MOVE(c->set);
    }
    if (!c->set && !c->creating) h->error = check_alive_locked(cs, c->devices, c->incarnations, c->size);
    if (!c->set && !c->creating && !h->error && !is_to_be_divided(h, i)) h->error = start_creation_locked(cs, h, c);
    all = all && c->set;
  }
  return divide_locked(cs, h) && all;
}

static bool is_creating(const coll_clique_hold *h)
{
  for (int i = 0; i < h->count; i++)
    if ((h->places[i].clique->creating || h->places[i].clique->dividing) && h->places[i].clique->line == &h->places[i])
      return true;
  return false;
}

/* In a registry that has left: drops communicators that no run holds, and announces the departure once no run waits
 * for a clique. */
static void part_locked(coll_cliques *cs, leftovers *l) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  l->parting = cs->parting;
  l->announce = cs->left && cs->kv && !cs->waiting && !cs->announced;
  cs->announced |= l->announce;
  for (coll_clique *c = cs->left ? cs->all : NULL; c; c = c->next) {
    if (!c->set || c->line || c->creating || c->dividing) continue;
    c->set->next = l->dropped;
    l->dropped = WEFT_MOVE(c->set);
  }
}

static void advance_locked(coll_cliques *cs, leftovers *l) WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  for (coll_clique_hold *h = cs->waiting, *next; h; h = next) {
    next = h->next;
    bool complete = !h->error && is_first(h) && complete_locked(cs, h, l);
    if (h->error && !is_creating(h)) { /* its places go to other holds only after its threads have ended */
      leave_lines_locked(h);
      fire_locked(h, l);
      next = cs->waiting; /* holds before this one may have become first */
    } else if (complete) {
      fire_locked(h, l);
    }
  }
  part_locked(cs, l);
}

enum { SAY_WHO_MS = 5000 };

/* The creation of a communicator ends by itself at the hold's deadline and names the rank that did not come.  The timer
 * acts only if the creation does not end. */
static weft_deadline patience(const coll_clique_hold *h)
{
  return is_creating(h) && h->deadline.at_ns < INT64_MAX - SAY_WHO_MS * WEFT_NS_PER_MS
           ? (weft_deadline){h->deadline.at_ns + SAY_WHO_MS * WEFT_NS_PER_MS}
           : h->deadline;
}

/* Ends holds that wait too long. */
static void *timer_thread(void *arg)
{
  coll_cliques *cs = arg;

  weft_mutex_lock(&cs->mu);
  while (!cs->closing) {
    weft_deadline first = WEFT_NO_DEADLINE;
    leftovers l = {0};
    for (coll_clique_hold *h = cs->waiting; h; h = h->next) {
      if (h->error) continue;
      if (weft_deadline_passed(patience(h))) {
        h->error = WEFT_ERR(DEADLINE_EXCEEDED, "a run waited too long for its %d cliques: %s", h->count,
                            is_creating(h) ? "they are still being made" : "other runs hold them");
        h->cancel = true;
      } else {
        first = weft_deadline_min(first, patience(h));
      }
    }
    advance_locked(cs, &l);
    if (l.fired || l.dropped || l.announce) {
      weft_mutex_unlock(&cs->mu);
      clean_up(cs, l);
      weft_mutex_lock(&cs->mu);
      continue;
    }
    weft_cond_wait(&cs->changed, &cs->mu, first);
  }
  cs->threads--;
  weft_cond_broadcast(&cs->changed);
  weft_mutex_unlock(&cs->mu);
  return NULL;
}

/* ---- the interface ---- */

weft_status *coll_cliques_new(weft_kv *kv, const char *prefix, const coll_clique_factory *factory,
                              coll_cliques **out_cliques)
{
  coll_cliques *cs = calloc(1, sizeof *cs);

  *out_cliques = NULL;
  WEFT_TRY_ALLOC(cs);
  cs->kv = kv;
  if (factory) cs->factory = *factory;
  cs->prefix = strdup(prefix);
  if (!cs->prefix) {
    free(cs);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  weft_mutex_init(&cs->mu);
  weft_cond_init(&cs->changed);
  *out_cliques = cs;
  return NULL;
}

void coll_cliques_free(coll_cliques *cs) WEFT_UNSHARED
{
  if (!cs) return;
  weft_mutex_lock(&cs->mu);
  cs->closing = true;
  weft_cond_broadcast(&cs->changed);
  while (cs->threads) weft_cond_wait(&cs->changed, &cs->mu, WEFT_NO_DEADLINE);
  weft_mutex_unlock(&cs->mu);
  comm_set *sets = NULL;
  for (coll_clique *c = cs->all, *next; c; c = next) {
    next = c->next;
    if (c->set) c->set->next = sets;
    if (c->set) sets = c->set;
    clique_free(c);
  }
  free_sets(sets);
  weft_cond_fini(&cs->changed);
  weft_mutex_fini(&cs->mu);
  weft_status_free(cs->parting);
  free((void *)cs->self.devices);
  free(cs->dead);
  free(cs->prefix);
  free(cs);
}

static weft_status *check_request(const coll_clique_request *r)
{
  if (r->key.size < 1 || r->local_count < 1 || r->local_count > r->key.size)
    return WEFT_ERR(INVALID_ARGUMENT, "a clique of %d devices, %d of them here", r->key.size, r->local_count);
  return NULL;
}

/* Copies the divisions of communicators that can be divided. */
static weft_status *take_divisions(coll_clique_hold *h, const coll_clique_request *requests,
                                   const coll_clique_division *given, int count)
{
  const coll_clique_factory *factory = &h->cliques->factory;
  size_t parts = 0;

  if (!factory->ops || !factory->ops->divides) return NULL;
  for (int d = 0; d < count; d++) parts += (size_t)given[d].part_count;
  if (count == 0) return NULL;
  h->divisions = malloc((size_t)count * sizeof *h->divisions + parts * sizeof(int));
  WEFT_TRY_ALLOC(h->divisions);
  int *at = (int *)(h->divisions + count);
  for (int d = 0; d < count; d++) {
    const coll_clique_request *whole = &requests[given[d].whole];
    weft_comm_spec spec = {.size = whole->key.size, .ranks = whole->local_ranks, .rank_count = whole->local_count,
                           .device_ids = whole->key.devices};
    if (whole->key.purpose != COLL_FOR_COLLECTIVES || !factory->ops->divides(factory->ctx, &spec, NULL)) continue;
    h->divisions[h->division_count] = given[d];
    h->divisions[h->division_count++].parts = at;
    for (int p = 0; p < given[d].part_count; p++) *at++ = given[d].parts[p];
  }
  return NULL;
}

/* Enters the lines of all cliques. */
static weft_status *enter_locked(coll_cliques *cs, coll_clique_hold *h, const coll_clique_request *requests)
  WEFT_REQUIRES(cs->mu)
{
  weft_mutex_assert_held(&cs->mu);
  int count = h->count;

  if (cs->left) return WEFT_ERR(FAILED_PRECONDITION, "this process has left its job: its program ended");
  for (int i = 0; i < count; i++) {
    WEFT_TRY(check_alive_locked(cs, requests[i].key.devices, requests[i].key.incarnations, requests[i].key.size));
    h->places[i].hold = h;
    WEFT_TRY(find_locked(cs, &requests[i], &h->places[i].clique));
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++) /* the hold would wait for itself */
      if (h->places[k].clique == h->places[i].clique) return WEFT_ERR(INVALID_ARGUMENT, "a clique is requested twice");
  if (!cs->has_timer) WEFT_TRY(start_thread_locked(cs, "weft-cliques", timer_thread, cs));
  cs->has_timer = true;
  for (int i = 0; i < count; i++) {
    place **at = &h->places[i].clique->line;
    while (*at) at = &(*at)->next;
    *at = &h->places[i];
  }
  coll_clique_hold **at = &cs->waiting;
  while (*at) at = &(*at)->next;
  *at = h;
  return NULL;
}

weft_status *coll_cliques_acquire_divided(coll_cliques *cs, const coll_clique_request *requests, int count,
                                          const coll_clique_division *divisions, int division_count,
                                          weft_deadline deadline, coll_clique_hold **out_hold, weft_event **out_event)
{
  WEFT_AUTO(weft_event) event = NULL;
  coll_clique_hold *h;
  leftovers l = {0};

  *out_hold = NULL;
  *out_event = NULL;
  for (int i = 0; i < count; i++) WEFT_TRY(check_request(&requests[i]));
  WEFT_TRY(weft_event_new(&event));
  WEFT_TRY_ALLOC(h = calloc(1, sizeof *h + (size_t)count * sizeof *h->places));
  *h = (coll_clique_hold){
    .cliques = cs, .refs = 1, .count = count, .deadline = deadline, .event = weft_event_retain(event)};
  weft_status *st = take_divisions(h, requests, divisions, division_count);
  weft_mutex_lock(&cs->mu);
  if (!st) st = enter_locked(cs, h, requests);
  if (!st) {
    advance_locked(cs, &l);
    if (cs->waiting) weft_cond_broadcast(&cs->changed); /* the timer thread looks at its deadline */
  }
  weft_mutex_unlock(&cs->mu);
  clean_up(cs, l);
  if (st) {
    weft_event_release(h->event);
    free(h->divisions);
    free(h);
    return st;
  }
  *out_hold = h;
  *out_event = WEFT_MOVE(event);
  return NULL;
}

weft_status *coll_cliques_acquire(coll_cliques *cs, const coll_clique_request *requests, int count,
                                  weft_deadline deadline, coll_clique_hold **out_hold, weft_event **out_event)
{
  return coll_cliques_acquire_divided(cs, requests, count, NULL, 0, deadline, out_hold, out_event);
}

weft_comm *coll_clique_hold_comm(const coll_clique_hold *hold, int request, int rank)
{
  const coll_clique *c = hold->places[request].clique;

  for (int i = 0; i < c->local_count; i++)
    if (c->local_ranks[i] == rank) return c->set->comms[i];
  return NULL;
}

void coll_clique_hold_release(coll_clique_hold *h)
{
  if (!h) return;
  coll_cliques *cs = h->cliques;
  leftovers l = {0};

  weft_mutex_lock(&cs->mu);
  bool waits = false;
  for (const coll_clique_hold *w = cs->waiting; w; w = w->next) waits |= w == h;
  if (waits) {
    if (!h->error) h->error = WEFT_ERR(CANCELLED, "the run was released before it had its cliques");
    h->cancel = true;
  } else if (!h->error) {
    leave_lines_locked(h);
  }
  advance_locked(cs, &l);
  hold_unref_locked(h);
  weft_mutex_unlock(&cs->mu);
  clean_up(cs, l);
}

void coll_cliques_leave(coll_cliques *cs, const coll_clique_self *self, const char *reason)
{
  leftovers l = {0};

  weft_mutex_lock(&cs->mu);
  if (!cs->left) {
    cs->self.devices = copy_of(self->devices, (size_t)self->count * sizeof *self->devices);
    cs->self.count = cs->self.devices ? self->count : 0;
    cs->self.incarnation = self->incarnation;
    if (reason) cs->parting = WEFT_ERR(ABORTED, "its program ended: %s", reason);
  }
  cs->left = true;
  advance_locked(cs, &l);
  weft_mutex_unlock(&cs->mu);
  clean_up(cs, l);
}

static bool needs(const coll_clique_hold *h, uint64_t incarnation)
{
  for (int i = 0; i < h->count; i++)
    for (int r = 0; h->places[i].clique->incarnations && r < h->places[i].clique->size; r++)
      if (h->places[i].clique->incarnations[r] == incarnation) return true;
  return false;
}

void coll_cliques_incarnation_died(coll_cliques *cs, uint64_t incarnation, const char *detail)
{
  leftovers l = {0};

  weft_mutex_lock(&cs->mu);
  if (WEFT_RESIZE(cs->dead, cs->dead_count + 1)) cs->dead[cs->dead_count++] = incarnation;
  for (coll_clique_hold *h = cs->waiting; h; h = h->next) {
    if (h->error || !needs(h, incarnation)) continue;
    h->error = WEFT_ERR(FAILED_PRECONDITION, "Task with incarnation id %llu is not connected%s%s",
                        (unsigned long long)incarnation, detail ? ": " : "", detail ? detail : "");
    h->cancel = true;
  }
  advance_locked(cs, &l);
  weft_mutex_unlock(&cs->mu);
  clean_up(cs, l);
  weft_coll_incarnation_died(incarnation, detail);
}
