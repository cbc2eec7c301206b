/* collective/communicator.h -- what moves the data of a communicator.
 *
 * Above this interface is what all communicators share: the queue of each rank, deadlines, the flight recorder, the comparison of
 * fingerprints, reports, and what peers tell each other when one of them fails.  Below it are the host's engine (host/host.c), which
 * is the first implementation, and those that a platform brings for its devices. */
#ifndef WEFT_COLLECTIVE_COMMUNICATOR_H
#define WEFT_COLLECTIVE_COMMUNICATOR_H

#include "weft/collective.h"

typedef struct coll_group coll_group;
typedef struct coll_op coll_op;
typedef struct coll_communicator coll_communicator;

typedef struct coll_communicator_ops {
  const char *name;

  /* Takes an operation whose turn has come, with the group's lock held: it does not block, and ends the operation later. */
  void (*post)(coll_communicator *c, coll_op *op);

  /* The group has failed, for the reason `why`.  With the group's lock held: it does not block. */
  void (*abort)(coll_communicator *c, const weft_status *why);

  /* One line on what it is and does, for reports.  With the group's lock held. */
  void (*describe)(const coll_communicator *c, char *out, size_t size);

  /* The last rank of this process has left; nothing is pending.  With the group's lock held. */
  void (*destroy)(coll_communicator *c);
} coll_communicator_ops;

/* The first member of an implementation's own struct. */
struct coll_communicator {
  const coll_communicator_ops *ops;
  coll_group *group;
};

#endif
