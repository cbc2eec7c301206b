/* gpu/communicator.h -- what moves the data of collectives between GPUs: NCCL (nccl.h), or kernels and copies
 * between the GPUs of one process (peer.h).
 *
 * WEFT_CUDA_COLLECTIVES says which; by default both are used where both can be: operations of up to PEER_BYTES, and
 * those that NCCL does not have, go between the GPUs directly, and larger ones through NCCL. Operations of the two
 * kinds have no order between them: who posts an operation that uses the result of another waits for that one first. */
#ifndef WEFT_GPU_COMMUNICATOR_H
#define WEFT_GPU_COMMUNICATOR_H

#include "collective/communicator.h"

struct weft_platform;

/* For weft_platform_ops.  The context of `create` is the platform. */
extern const coll_communicator_ops gpu_communicator;
bool gpu_communicator_moves(const struct weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                            weft_reduction reduction);

#endif
