/* pjrt/cross_link.h -- what carries buffers from one device to another: links, and the parts of transfers. */
#ifndef WEFT_PJRT_CROSS_LINK_H
#define WEFT_PJRT_CROSS_LINK_H

#include "collective/clique.h"
#include "pjrt/internal.h"

/* A turn: work that begins in the order of the numbers that the receiving side gives. */
typedef struct pjrt_turn {
  struct pjrt_turn *next;
  uint64_t number;
  /* Called when all turns of lower numbers have begun, or with the error (taken) because of which the turn never
   * begins. */
  void (*begin)(struct pjrt_turn *turn, weft_status *st);
} pjrt_turn;

/* The communicators of an ordered pair of devices.  A link is made at the pair's first transfer and kept. */
typedef struct pjrt_link {
  struct pjrt_link *next;
  weft_platform *platform;   /* borrowed: see pjrt_links_free */
  int refs;                  /* atomic: the client's list, transfers, and the job that fails it */
  int64_t devices[2];        /* from, to */
  uint64_t incarnations[2];  /* of their processes; 0: unknown */
  /* the platform's communicator moves the data; the host's carries the messages between the two sides */
  bool on_device;
  coll_clique_hold *hold;
  weft_event *ready;
  bool failing;              /* atomic: pjrt_link_fail was called */
  rt_job fail_job;
  weft_status *failure;      /* written before fail_job is offered */
  weft_mutex mu;             /* a leaf */
  pjrt_turn *turns WEFT_GUARDED_BY(mu);     /* turns that have not begun */
  uint64_t next_number WEFT_GUARDED_BY(mu); /* the next number that the receiver gives */
  uint64_t next_turn WEFT_GUARDED_BY(mu);
  bool beginning WEFT_GUARDED_BY(mu);       /* a thread lets turns begin */
} pjrt_link;

/* Takes a reference to the pair's link; a missing or failed link is made anew.  `rank` is this side's: 0 sends. */
WEFT_NODISCARD weft_status *pjrt_link_get(PJRT_Client *client, int64_t from, int64_t to, int rank,
                                          pjrt_link **out_link);
pjrt_link *pjrt_link_retain(pjrt_link *link); /* returns link */
void pjrt_link_release(pjrt_link *link);      /* NULL is fine */
WEFT_DEFINE_AUTO(pjrt_link, pjrt_link_release)
/* Releases what a transfer holds: the link, its buffer, which it has begun to read, and its storage; any of them may be
 * NULL.  The buffer and the storage are released last, because they keep the platform alive. */
void pjrt_link_give_back(pjrt_link *link, weft_buffer *buffer, weft_storage *storage);

/* The communicators of this process's rank, once `ready` has fired without an error. */
weft_comm *pjrt_link_host(const pjrt_link *link, int rank);
weft_comm *pjrt_link_device(const pjrt_link *link, int rank); /* of a link that is on_device */

/* Ends all transfers on the link, on both sides, with `st` (taken).  Returns at once. */
void pjrt_link_fail(pjrt_link *link, weft_status *st);

/* Queues a turn.  `numbered`: with the number that the turn has; else with the next number. */
void pjrt_link_queue(pjrt_link *link, pjrt_turn *turn, bool numbered);

/* Starts a transfer of device memory on a link that is on_device (cross_device.c).  `done` is retained, and set when
 * the transfer has ended.  A send has begun to read `buffer` (weft_buffer_begin_read); a receive writes to `storage`
 * (retained).  `link` and `buffer` are taken, also on failure. */
WEFT_NODISCARD weft_status *pjrt_device_send(pjrt_link *link, weft_buffer *buffer, int64_t key, weft_event *done);
WEFT_NODISCARD weft_status *pjrt_device_receive(pjrt_link *link, const weft_array_type *type, weft_storage *storage,
                                                int64_t key, weft_event *done);

#endif
