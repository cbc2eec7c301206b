/* gpu/multicast.h -- scratch memory of several GPUs that each of them reaches at one address.
 *
 * Where GPUs are connected by NVLink's switches, a multicast object joins memory of each of them: a store to the
 * object's address goes to the memory of all, and a load-and-reduce combines what all hold, in the switch (multimem in
 * PTX).  Such an address is for these instructions only; the GPU reaches its own memory at another address. */
#ifndef WEFT_GPU_MULTICAST_H
#define WEFT_GPU_MULTICAST_H

#include "gpu/gpu_internal.h"

typedef struct gpu_multicast_member {
  gpu_device *gpu;
  wcu_mem_handle memory; /* 0: none yet */
  bool bound;
  wcu_ptr own;           /* address of the GPU's memory, for that GPU; 0: not mapped */
  wcu_ptr all;           /* address of the object, for that GPU; 0: not mapped */
} gpu_multicast_member;

typedef struct gpu_multicast {
  wcu_mem_handle object; /* 0: none yet */
  int64_t bytes;         /* of each GPU's memory */
  size_t unit;           /* of which addresses of the object are multiples */
  int count;
  gpu_multicast_member members[];
} gpu_multicast;

/* Memory of at least `bytes` bytes on each of `count` different GPUs.  Its content is arbitrary.
 * Errors: UNAVAILABLE: a GPU or the driver has no multicast; those of the driver, as RESOURCE_EXHAUSTED where it has no
 * more objects or memory. */
WEFT_NODISCARD weft_status *gpu_multicast_new(gpu_device *const *gpus, int count, int64_t bytes,
                                              gpu_multicast **out_multicast);
/* Nothing queued uses the memory any more.  If a device hangs, all of it is left as it is. */
void gpu_multicast_free(gpu_multicast *multicast);

#endif
