/* tests/collective/world.h -- communicators for tests, and the scalar model of every operation. */
#ifndef WEFT_TESTS_COLLECTIVE_WORLD_H
#define WEFT_TESTS_COLLECTIVE_WORLD_H

#include "test.h"

#include <pthread.h>

#include "collective/host/host.h"

enum { MOST_RANKS = 16 };

#ifdef OVER_FABRIC /* the same tests, with libfabric between processes */
__attribute__((constructor)) static void over_fabric(void)
{
  if (getenv("WEFT_TEST_NO_FABRIC")) {
    puts("1..0 # SKIP no libfabric here");
    exit(0);
  }
  setenv("WEFT_COLLECTIVE_TRANSPORT", "fabric", 1);
}
#endif

#ifdef ON_GPUS /* the same tests, whose ranks are devices of the emulated GPU platform */
#include "gpus.h"
#endif

typedef struct world {
  int size;
  weft_kv *kv;
  weft_comm *comms[MOST_RANKS];
} world;

typedef struct creation {
  weft_comm_spec spec;
  int rank;
  weft_comm *comm;
  weft_status *st;
} creation;

static WEFT_UNUSED void *create_one(void *arg)
{
  creation *c = arg;
  c->spec.ranks = &c->rank;
  c->st = weft_comm_create(&c->spec, &c->comm);
  return NULL;
}

/* All ranks in one call: devices of a process. */
static WEFT_UNUSED void world_open_devices(world *w, int size)
{
  int ranks[MOST_RANKS];

  *w = (world){.size = size};
  for (int r = 0; r < size; r++) ranks[r] = r;
  weft_comm_spec spec = {.name = "devices", .size = size, .ranks = ranks, .rank_count = size};
#ifdef ON_GPUS
  gpus_bring(&spec);
#endif
  T_OK(weft_comm_create(&spec, w->comms));
}

/* Each rank by itself, as if in a process of its own: over shared memory. */
static WEFT_UNUSED void world_open_processes(world *w, int size, const weft_comm_spec *base)
{
  pthread_t threads[MOST_RANKS];
  creation creations[MOST_RANKS];
  static int number;
  char name[64];

  *w = (world){.size = size};
  T_OK(weft_kv_local_new(&w->kv));
  snprintf(name, sizeof name, "world%d", number++);
  for (int r = 0; r < size; r++) {
    creations[r] = (creation){.rank = r, .spec = base ? *base : (weft_comm_spec){0}};
    creations[r].spec.kv = w->kv;
    creations[r].spec.name = name;
    creations[r].spec.size = size;
    creations[r].spec.rank_count = 1;
#ifdef ON_GPUS
    gpus_bring(&creations[r].spec);
#endif
    pthread_create(&threads[r], NULL, create_one, &creations[r]);
  }
  for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < size; r++) {
    T_OK(creations[r].st);
    w->comms[r] = creations[r].comm;
  }
}

static WEFT_UNUSED void world_close(world *w)
{
  for (int r = 0; r < w->size; r++) weft_comm_destroy(w->comms[r]);
  weft_kv_destroy(w->kv);
}

/* Posts ops[r] on every rank and waits for all; the first error is returned. */
static WEFT_UNUSED weft_status *world_run(world *w, const weft_coll_op *ops, const weft_coll_call *call)
{
  weft_event *events[MOST_RANKS] = {NULL};
  weft_status *first = NULL;
#ifdef ON_GPUS
  gpu_operands staged[MOST_RANKS];
  weft_coll_op on_device[MOST_RANKS];
  for (int r = 0; r < w->size; r++) on_device[r] = gpus_stage(w->comms[r], &ops[r], &staged[r]);
  ops = on_device;
#endif

  for (int r = 0; r < w->size; r++) {
    weft_status *st = weft_coll_post(w->comms[r], &ops[r], call, &events[r]);
    if (!first) first = st;
    else weft_status_free(st);
  }
  for (int left = 1, turns = 0; w->kv && left && turns < 100000;
       turns++) { /* drive all ranks from here: no thread switches */
    left = 0;
    for (int r = 0; r < w->size; r++) {
      if (!events[r] || weft_event_is_ready(events[r])) continue;
      coll_group *g = w->comms[r]->group;
      coll_group_lock(g);
      coll_group_progress_locked(g);
      coll_group_unlock(g);
      left += !weft_event_is_ready(events[r]);
    }
  }
  for (int r = 0; r < w->size; r++) {
    if (!events[r]) continue;
    weft_status *st = weft_coll_wait(w->comms[r], events[r]);
    if (!first) first = st;
    else weft_status_free(st);
    weft_event_release(events[r]);
  }
#ifdef ON_GPUS
  for (int r = 0; r < w->size; r++) gpus_unstage(&staged[r]);
#endif
  return first;
}

static WEFT_UNUSED void world_force(world *w, coll_algorithm algorithm)
{
  for (int r = 0; r < w->size; r++) {
    coll_group *g = w->comms[r]->group;
    g->forced_algorithm = algorithm;
    if (g->local_count == g->size) g->use_direct = algorithm == COLL_ALG_AUTO;
  }
}

#endif
