/* gpu/nccl.h -- NCCL behind collective/communicator.h: it moves the data of collectives between GPUs.
 *
 * Each rank of this process has a thread, its *owner*, which alone calls the library for the rank's communicator, and a
 * stream of its own.  Communicators do not block: the owner polls, holds no lock meanwhile, and looks at aborts and
 * deadlines between two polls.  The library itself never gives up, so an operation that does not end by itself is ended
 * by an abort, and an operation keeps its buffers until the stream has done its work. */
#ifndef WEFT_GPU_NCCL_H
#define WEFT_GPU_NCCL_H

#include "collective/communicator.h"

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
bool gpu_nccl_moves(const struct weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                    weft_reduction reduction);

#endif
