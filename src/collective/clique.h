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

/* What moves the data of cliques for collectives: weft_comm_spec.communicator. */
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

/* Cliques whose keys differ in their purpose never share a communicator. */
enum {
  COLL_FOR_COLLECTIVES,         /* moved by the factory's communicators */
  COLL_FOR_SEND_RECV,           /* moved by the host's communicators, as all purposes below but the last */
  COLL_FOR_TRANSFERS,           /* between buffers of two processes */
  COLL_FOR_HOST_COLLECTIVES,    /* operations that the factory's communicators do not have */
  COLL_FOR_DEVICE_TRANSFERS     /* transfers of device memory: moved by the factory's */
};

typedef struct coll_clique_key {
  const int64_t *devices;        /* [size], in rank order */
  const uint64_t *incarnations;  /* [size], of each device's process; NULL where one process holds every device */
  int size;
  uint64_t purpose;              /* COLL_FOR_* */
} coll_clique_key;

typedef struct coll_clique_request {
  coll_clique_key key;           /* copied */
  const int *local_ranks;        /* this process's ranks in the key, ascending; copied */
  int local_count;
} coll_clique_request;

/* How cliques of a request come about together: a platform's communicator of all their devices, if it can be divided,
 * is divided once into theirs, instead of each being made by a rendezvous of its own.  All processes that have a
 * device of the whole ask for the same divisions of it in the same acquisition, in the same order. */
typedef struct coll_clique_division {
  uint64_t name;             /* the same in all these processes; other divisions of the whole have others */
  int whole;                 /* index of a request of the acquisition */
  const int *parts;          /* [part_count] indices of requests: parts of the whole that have no device in common */
  int part_count;            /* 0: this process wants its parts to be made without a division */
} coll_clique_division;

/* Asks for `count` cliques.  The event fires when all are held and ready, or with the error that prevents it:
 *   DEADLINE_EXCEEDED    another holder, or the creation of a communicator, took too long
 *   FAILED_PRECONDITION  "Task with incarnation id N is not connected": the task has been reported dead, or its
 *                        connection closed
 *   CANCELLED            coll_clique_hold_release before
 * *out_hold is owned by the caller until coll_clique_hold_release; the event too. */
WEFT_NODISCARD weft_status *coll_cliques_acquire(coll_cliques *cliques, const coll_clique_request *requests, int count,
                                                 weft_deadline deadline, coll_clique_hold **out_hold,
                                                 weft_event **out_event);

/* The same, with divisions (copied) for those cliques that have no communicator yet.  A division that fails spends the
 * communicator of the whole; its errors are those above, and those of weft_comm_split. */
WEFT_NODISCARD weft_status *coll_cliques_acquire_divided(coll_cliques *cliques, const coll_clique_request *requests,
                                                         int count, const coll_clique_division *divisions,
                                                         int division_count, weft_deadline deadline,
                                                         coll_clique_hold **out_hold, weft_event **out_event);

/* The communicator of a local rank of request `request`.  Valid from the time its event has fired without an error
 * until the hold is released. */
weft_comm *coll_clique_hold_comm(const coll_clique_hold *hold, int request, int rank);

/* Lets the next holds in line have the cliques.  A clique whose communicator is spent loses it (a clique for
 * collectives: once a rank here has heard of the error): the next acquisition makes a new communicator, under a new
 * name that its members agree on by counting generations.  NULL is fine. */
void coll_clique_hold_release(coll_clique_hold *hold);

/* The process that leaves: its devices [count], and its incarnation as the other processes know it (0: they know
 * none). */
typedef struct coll_clique_self {
  const int64_t *devices;
  int count;
  uint64_t incarnation;
} coll_clique_self;

/* Ends this process's part in all cliques.  Later acquisitions fail with FAILED_PRECONDITION.  Peers that wait for this
 * process learn that it leaves: at once on communicators that no run holds, on the others when the hold is released.  A
 * process that wants to make a communicator with this one finds the departure in the store and fails: with ABORTED and
 * the reason, or with FAILED_PRECONDITION if there is none.  `reason` (copied): what ended the program, for peers to
 * read; NULL: peers only hear that it left.  `self`: copied. */
void coll_cliques_leave(coll_cliques *cliques, const coll_clique_self *self, const char *reason);

/* Declares an incarnation dead.  Keys that contain it are stale from then on: holds that wait for such a clique fail,
 * and communicators that contain the incarnation are aborted. */
void coll_cliques_incarnation_died(coll_cliques *cliques, uint64_t incarnation, const char *detail);

#endif
