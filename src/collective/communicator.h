/* collective/communicator.h -- what moves the data of a communicator.
 *
 * Above this interface is what all communicators share: the queue of each rank, deadlines, the flight recorder, the
 * comparison of fingerprints, reports, and what peers tell each other when one of them fails.  Below it are the host's
 * engine (host/host.c), which is the first implementation, and those that a platform brings for its devices.
 *
 * Every group has the host's communicator.  Where a platform's communicator moves the data, ranks first meet through
 * the host's: a collective is posted to the platform's communicator ("below") only when all ranks have arrived at it
 * with the same fingerprint.  So a rank that is missing, or takes part in another operation, is found and named before
 * any data moves.  Sends and receives do not meet.
 *
 *   weft_coll_post -> queue of the rank -> host: all ranks meet -> ops->post -> (the device) -> coll_communicator_ended
 *   deadline, failure of a peer, weft_comm_abort -> ops->abort -> coll_communicator_ended for each operation below */
#ifndef WEFT_COLLECTIVE_COMMUNICATOR_H
#define WEFT_COLLECTIVE_COMMUNICATOR_H

#include "weft/collective.h"

typedef struct coll_group coll_group;
typedef struct coll_op coll_op;
typedef struct coll_communicator coll_communicator;
struct coll_problem;

/* An operation as an implementation gets it. */
typedef struct coll_posting {
  coll_op *op;              /* for coll_communicator_ended */
  int rank, local;          /* local: the rank's index among those of this process */
  uint64_t seq;             /* its number among the collectives of the rank */
  /* valid until the operation has ended, except its count and offset arrays: use `problem` for these */
  const weft_coll_op *args;
  const struct coll_problem *problem; /* the same arguments in bytes (host/schedule.h) */
  void *stream;             /* weft_coll_call.stream */
  uint64_t stream_point;    /* weft_coll_call.stream_point */
  bool together;            /* weft_coll_call.together */
  const char *name;         /* weft_coll_site.instruction, for profiles as the next two are; NULL: unknown */
  int64_t program, run;     /* weft_coll_call.program and run */
  void *hold;               /* weft_coll_call.hold */
  uint64_t place;           /* what `place` has told on every rank; COLL_NO_PLACE: it has not told the same on all */
} coll_posting;

enum { COLL_NO_PLACE, COLL_ANY_PLACE }; /* coll_posting.place */

/* How the ranks of a communicator become *parts*, communicators of their own. */
typedef struct coll_division {
  int part_count;              /* of parts with ranks of this process; may be 0 */
  const weft_comm_spec *specs; /* [part_count] sizes, ranks and devices; no key-value store */
  const int *colors;           /* [part_count] the number of each part, the same in all processes, at least 0 */
  const int *part_of, *rank_in; /* [ranks of this process in the whole] index of the rank's part, or -1; rank there */
  weft_deadline deadline;
  weft_status *(*ends)(void *ctx); /* why the division has to end before its deadline; NULL: it need not */
  void *ends_ctx;
} coll_division;

typedef struct coll_communicator_ops {
  const char *name;

  /* Makes the communicator of this process's ranks, which have met the others.  May block until spec->deadline, and
   * should look at spec->cancel.  Called with no lock held.  NULL in the table of the host, whose communicator every
   * group has. */
  weft_status *(*create)(void *ctx, const weft_comm_spec *spec, coll_communicator **out_communicator);

  /* A number, other than 0, of an earlier communicator that has failed, and that can become the one of `spec` because
   * it has all of its ranks; it is the same in all processes that were in that communicator.  0: there is none.  May
   * block for a second.  NULL in the table: there never is. */
  uint64_t (*heritage)(void *ctx, const weft_comm_spec *spec);

  /* As `create`, from that earlier communicator, which is used up also by an error.  All ranks have the same number. */
  weft_status *(*inherit)(void *ctx, const weft_comm_spec *spec, uint64_t heritage,
                          coll_communicator **out_communicator);

  /* Makes the communicators of the parts, out[part_count].  All ranks of `c` call this, also those that join no part;
   * they have agreed on the division, and have no operation under way.  May block until the deadline.  Called with no
   * lock held.  After an error `c` may have failed, too.  NULL in the table: the communicator cannot be divided. */
  weft_status *(*divide)(coll_communicator *c, const coll_division *division, coll_communicator **out);

  /* Can a communicator for `whole` be divided, so that `part`, some of its ranks, is like a communicator that `create`
   * makes?  `part` NULL: can it be divided at all?  The specs have sizes, ranks and devices.  All processes of `whole`
   * give the same answer for NULL, all processes of `part` for a part, or it is made without a division.  May be called
   * from any thread.  NULL in the table: never. */
  bool (*divides)(void *ctx, const weft_comm_spec *whole, const weft_comm_spec *part);

  /* What all ranks must have in common so that a collective may use memory that the communicator has registered, or is
   * to register for it: a number other than COLL_NO_PLACE; COLL_ANY_PLACE: the operation uses no such memory. The ranks
   * compare their numbers while they meet.  Called with the group's lock held, when the rank's collectives before this
   * one have been posted; posting->place is not set.  NULL in the table: COLL_ANY_PLACE. */
  uint64_t (*place)(coll_communicator *c, const coll_posting *posting);

  /* Takes an operation whose turn has come.  Called with the group's lock held: it must neither block nor call back,
   * and the operation ends later.  Operations of one rank and stream are posted in order. */
  void (*post)(coll_communicator *c, const coll_posting *posting);

  /* The group has failed, for the reason `why` (borrowed).  Called with the group's lock held: it must neither block
   * nor call back.  Every operation that the communicator still has must end soon, whatever the device does, as soon
   * as the operation's buffers are not in use any more. */
  void (*abort)(coll_communicator *c, const weft_status *why);

  /* Writes one line for reports: what the communicator is, and its state.  Called with the group's lock held. */
  void (*describe)(const coll_communicator *c, char *out, size_t size);

  /* The last rank of this process has left, and the communicator has no operation.  Called with no lock held. */
  void (*destroy)(coll_communicator *c);
} coll_communicator_ops;

/* The first member of an implementation's own struct. */
struct coll_communicator {
  const coll_communicator_ops *ops;
  coll_group *group; /* set after `create` */
};

/* ---- for implementations, which call these from a thread that holds no lock ---- */

/* An operation has ended and its buffers are free: well (NULL), or with an error (taken), which spends the
 * communicator.  After an abort the operation's owner gets the group's error instead. */
void coll_communicator_ended(coll_op *op, weft_status *st);

/* From now on the operation has `times` times the time that it had when it was posted, since it waits for work that is
 * not its own; but no more than most_ns (0: no limit), unless it had more than that when it was posted. */
void coll_communicator_extend(coll_op *op, int times, int64_t most_ns);

/* Describes an operation of a rank in bytes, as a posting has it.  Errors: those of the post. */
WEFT_NODISCARD weft_status *coll_communicator_problem(weft_comm *comm, const weft_coll_op *args,
                                                      struct coll_problem *out);

/* The communicator has failed, but no particular operation has.  `st` is taken. */
void coll_communicator_failed(coll_communicator *c, weft_status *st);

#endif
