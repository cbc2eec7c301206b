/* gpu/peer.h -- collectives between GPUs of one process that reach each other's memory, by kernels of Weft's own and by
 * copies, behind collective/communicator.h.
 *
 * Reductions fold in the order of ranks, so their bits are those of the host's collectives in rank order. */
#ifndef WEFT_GPU_PEER_H
#define WEFT_GPU_PEER_H

#include "collective/communicator.h"

struct weft_platform;
struct gpu_platform;

/* The context of `create` is the platform. */
extern const coll_communicator_ops gpu_peer_communicator;

/* Whether these communicators can do an operation. */
bool gpu_peer_has(weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction);

/* Whether the ranks of a communicator, or all devices of a platform, are few enough, belong to this process, and reach
 * each other's memory. */
bool gpu_peer_can_connect(const struct weft_platform *platform, const weft_comm_spec *spec);
bool gpu_peer_can_connect_all(const struct weft_platform *platform);
/* Whether two devices of the platform are one GPU (WEFT_CUDA_SHARE). */
bool gpu_peer_any_shared(const struct weft_platform *platform);

/* The kernels of a platform, loaded when they are first used. */
typedef struct gpu_peer_kernels gpu_peer_kernels;
void gpu_peer_kernels_free(struct gpu_platform *platform); /* all communicators must have been destroyed */

#endif
