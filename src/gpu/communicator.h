/* gpu/communicator.h -- what moves the data of collectives between GPUs: NCCL (nccl.h), or kernels and copies
 * between the GPUs of one process (peer.h).
 *
 * WEFT_CUDA_COLLECTIVES chooses one of the two. By default both are used if both are available: operations of up to
 * PEER_BYTES, and those that NCCL does not have, go between the GPUs directly, and larger ones through NCCL. The two
 * kinds of operations have no order between them: a caller whose operation uses the result of another operation waits
 * for that operation before it posts its own. */
#ifndef WEFT_GPU_COMMUNICATOR_H
#define WEFT_GPU_COMMUNICATOR_H

#include "collective/communicator.h"

struct gpu_platform;
struct weft_platform;

/* For weft_platform_ops.  The context of `create` is the platform. */
extern const coll_communicator_ops gpu_communicator;
/* Whether communicators may be NCCL's, and the library can register memory. */
bool gpu_communicator_registers(const struct weft_platform *platform);
/* The rank of NCCL's communicator that gets this operation of `comm` if it is posted with a hold (nccl.h); NULL: it
 * goes to peers, and may have no hold.  All ranks of the program's operation get the same answer, also those of its
 * other groups: where not all groups have peers, small operations with a hold are NCCL's, too. */
struct rank *gpu_communicator_nccl_rank(weft_comm *comm, const struct gpu_platform *platform, const weft_coll_op *args,
                                        const struct coll_problem *problem);
bool gpu_communicator_moves(const struct weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                            weft_reduction reduction);

#endif
