/* gpu/nccl.h -- NCCL behind collective/communicator.h: it moves the data of collectives between GPUs.
 *
 * Each rank of this process has a thread, its *owner*, which alone calls the library for the rank's communicator, and a
 * stream of its own.  Communicators do not block: the owner polls, holds no lock meanwhile, and looks at aborts and
 * deadlines between two polls.  The library itself never gives up, so an operation that does not end by itself is ended
 * by an abort, and an operation keeps its buffers until the stream has done its work. */
#ifndef WEFT_GPU_NCCL_H
#define WEFT_GPU_NCCL_H

#include <stdatomic.h>

#include "collective/communicator.h"
#include "runtime/device.h"

struct weft_platform;

/* Opens the library.  Thread-safe; the same answer from the first call on.
 * Errors: UNAVAILABLE: it is not there, or it is too old. */
WEFT_NODISCARD weft_status *gpu_nccl_open(int *out_version);

/* For weft_platform_ops: the communicator's table, and whether it moves an operation.  The context of `create` is the
 * platform. */
extern const coll_communicator_ops gpu_nccl_communicator;
/* Sets the communicator that the group knows, of which `c` is a part: failures are reported as failures of `whole`. */
void gpu_nccl_report_to(coll_communicator *c, coll_communicator *whole);
bool gpu_nccl_registers(void); /* the library is there, and can register memory */
bool gpu_nccl_divides(void);   /* the library is there, and can divide communicators */
bool gpu_nccl_moves(const struct weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                    weft_reduction reduction);

/* ---- operations in graphs (talk.c) ---- */

struct gpu_job;
struct wcu_stream_st;
typedef struct rank gpu_nccl_rank; /* a rank of this process */

/* What an operation waits for that is posted with weft_coll_call.hold: its owner does not queue it when all ranks have
 * met, but holds it until the poster takes it back and queues the work.  The poster has a share of `left`, too. */
typedef struct gpu_hold {
  atomic_int left;                     /* operations that the owners do not hold yet, and shares */
  void (*met)(struct gpu_hold *hold);  /* called by the thread that takes the last of them; must be brief */
} gpu_hold;
void gpu_hold_count(gpu_hold *hold); /* one less is left */

/* Something that ends before the rank's communicator of the library does: a graph with its operations.  Guarded by
 * gpu_device.talk_mu. */
typedef struct gpu_lease {
  struct gpu_lease *next;
  gpu_nccl_rank *rank;                 /* NULL: the communicator has ended */
  uint64_t epoch;                      /* what gpu_nccl_epoch was when the operations were recorded */
  void (*end)(struct gpu_lease *lease);
} gpu_lease;

/* A rank of a communicator that is NCCL's, by its index among those of this process. */
gpu_nccl_rank *gpu_nccl_local_rank(coll_communicator *c, int local);
/* A number that is another one for another communicator, and when its registered memory has changed. */
uint64_t gpu_nccl_epoch(gpu_nccl_rank *r);
/* Under talk_mu: links a lease (false: the communicator has ended), unlinks it. */
bool gpu_nccl_lend(gpu_nccl_rank *r, gpu_lease *lease);
void gpu_nccl_give_up(gpu_lease *lease);

/* Has the owner queue an operation on a stream, and waits for that; not for other ranks.  `job`: the operation as
 * gpu_nccl_take has given it, which then holds the copy of an operand that is in the way of its result; NULL: the
 * operation is recorded, and such an operand is an error.  `until`: WEFT_NO_DEADLINE if the operation is posted, since
 * its own deadline then ends the wait, by an abort.  Errors: those of the library; ABORTED: the communicator fails
 * meanwhile, or the deadline passes. */
WEFT_NODISCARD weft_status *gpu_nccl_put(gpu_nccl_rank *r, struct gpu_job *job, const weft_coll_op *args,
                                         const struct coll_problem *problem, struct wcu_stream_st *stream,
                                         weft_deadline until);
/* Takes back the operations that the owner holds for `hold`: linked, in the order of their posts, or NULL. */
struct gpu_job *gpu_nccl_take(gpu_nccl_rank *r, const gpu_hold *hold);
/* The work of an operation that was taken back is on the compute stream, or has failed with `st` (taken). */
void gpu_nccl_queued(struct gpu_job *job, weft_stream *compute, weft_status *st);

#endif
