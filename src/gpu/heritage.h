/* gpu/heritage.h -- communicators of NCCL that have ended and are kept for a while, so that survivors can shrink them.
 *
 * A group that has lost members fails.  Its communicator offers what the library has made for its ranks; each owner
 * then keeps its part here once the part has no work left, or says that there is nothing to keep.  A later communicator
 * whose ranks are some of those ranks, in the same order, takes the parts. */
#ifndef WEFT_GPU_HERITAGE_H
#define WEFT_GPU_HERITAGE_H

#include "gpu/abi/nccl.h"
#include "weft/collective.h"

struct weft_platform;

/* What one communicator leaves in this process.  Thread-safe; its lock is a leaf. */
typedef struct gpu_heirloom gpu_heirloom;

/* NULL: there is nothing to leave, because all ranks are of this process, or there is no memory. */
gpu_heirloom *gpu_heirloom_new(const struct weft_platform *platform, const weft_comm_spec *spec);

/* From now on no communicator finds it.  For one that is not freed, because an owner is in a call of the library that
 * does not return.  NULL is fine. */
void gpu_heirloom_withdraw(gpu_heirloom *h);

/* No thread uses it any more, and nothing is kept in it.  NULL is fine. */
void gpu_heirloom_free(gpu_heirloom *h);

/* From now on later communicators find it.  Does not block.  NULL is fine. */
void gpu_heirloom_offer(gpu_heirloom *h);

/* The part of the local rank `local` (its index in spec->ranks), which it has until somebody takes it; NULL: there is
 * none.  Once for each rank. */
void gpu_heirloom_keep(gpu_heirloom *h, int local, wnc_comm comm);

/* Takes back what was kept for the rank; NULL: nothing, or somebody has it. */
wnc_comm gpu_heirloom_reclaim(gpu_heirloom *h, int local);

/* The number of the newest communicator of which those of `spec` are some of the ranks, the same number in all
 * processes, or 0.  Waits up to a second for owners that have not said yet what they keep; after that no later call
 * waits for the same owners. */
uint64_t gpu_heritage_find(const struct weft_platform *platform, const weft_comm_spec *spec);

/* Takes the parts of the ranks of this process, out[spec->rank_count], and tells which ranks are left out:
 * *out_left_out is the caller's.  False: they are gone, or there is no memory. */
bool gpu_heritage_take(const struct weft_platform *platform, const weft_comm_spec *spec, uint64_t number, wnc_comm *out,
                       int **out_left_out, int *out_left_out_count);

#endif
