/* collective/clique.h -- communicators found by who is in them: a process's cache of cliques.
 *
 * A clique is keyed by its global devices in rank order and the incarnation of the process that holds each, so that a
 * restarted process never meets an old one's communicator.  A run acquires all the cliques it needs at once, before it
 * starts: its request enters the queues of all of them in one step, so that no two requests can wait for each other,
 * and it holds them until it is released.  Nothing blocks: acquiring returns an event. */
#ifndef WEFT_COLLECTIVE_CLIQUE_H
#define WEFT_COLLECTIVE_CLIQUE_H

#include "weft/collective.h"

/* Thread-safe. */
typedef struct coll_cliques coll_cliques;
typedef struct coll_clique coll_clique;
typedef struct coll_clique_hold coll_clique_hold;

/* What moves the data of the cliques' communicators: weft_comm_spec.communicator. */
typedef struct coll_clique_factory {
  const struct coll_communicator_ops *ops; /* NULL: the host */
  void *ctx;
} coll_clique_factory;

/* `factory` is copied; NULL: the host.  `kv` is borrowed until the registry is freed; NULL where one process holds
 * every device.  `prefix` (copied) must be the same in all processes of a job, and different for different jobs on
 * one store. */
WEFT_NODISCARD weft_status *coll_cliques_new(weft_kv *kv, const char *prefix, const coll_clique_factory *factory,
                                             coll_cliques **out_cliques);

/* All holds must have been released. */
void coll_cliques_free(coll_cliques *cliques);

typedef struct coll_clique_key {
  const int64_t *devices;        /* [size], in rank order */
  const uint64_t *incarnations;  /* [size], of each device's process; NULL where one process holds every device */
  int size;
  uint64_t purpose;              /* keys that differ in it never share a communicator: 0 collectives, 1 send/recv */
} coll_clique_key;

typedef struct coll_clique_request {
  coll_clique_key key;           /* copied */
  const int *local_ranks;        /* of this process's devices in the key, ascending; copied */
  int local_count;
} coll_clique_request;

/* Asks for `count` cliques.  The event fires when all are held and ready, or with the error that prevents it:
 *   DEADLINE_EXCEEDED    another holder or the rendezvous took too long
 *   FAILED_PRECONDITION  "Task with incarnation id N is not connected": it has been reported dead, or its connection
 *                        closed
 *   CANCELLED            coll_clique_hold_release before
 * *out_hold is owned by the caller until coll_clique_hold_release; the event too. */
WEFT_NODISCARD weft_status *coll_cliques_acquire(coll_cliques *cliques, const coll_clique_request *requests, int count,
                                                 weft_deadline deadline, coll_clique_hold **out_hold,
                                                 weft_event **out_event);

/* The communicator of a local rank of request `request`; good while the hold is held and its event has fired well. */
weft_comm *coll_clique_hold_comm(const coll_clique_hold *hold, int request, int rank);

/* Lets the cliques go to the next in line.  A clique whose communicator is spent is dropped (one for collectives:
 * once one of the ranks here has heard of it): the next acquisition makes a new one, under a new name that its
 * members agree on by counting.  NULL is fine. */
void coll_clique_hold_release(coll_clique_hold *hold);

/* The process that leaves: the devices of this process [count], and its incarnation as the others know it (0: they
 * know none). */
typedef struct coll_clique_self {
  const int64_t *devices;
  int count;
  uint64_t incarnation;
} coll_clique_self;

/* This process takes part in nothing more: what waits to be acquired from now on fails with FAILED_PRECONDITION, and
 * the other members of its communicators hear of it where they wait for this process, at once for those that no run
 * holds, later for the others at their release. A process that would make a communicator with this one finds the
 * departure in the store and fails: ABORTED with the reason, FAILED_PRECONDITION without. `reason` (copied): what
 * ended the program, for them to read; NULL: nothing did, and they only hear that it left.  `self`: copied. */
void coll_cliques_leave(coll_cliques *cliques, const coll_clique_self *self, const char *reason);

/* From now on keys with this incarnation are stale; holds that wait for it fail, communicators that have it are
 * aborted. */
void coll_cliques_incarnation_died(coll_cliques *cliques, uint64_t incarnation, const char *detail);

#endif
