/* gpu/nccl_calls.h -- NCCL's entry points, its errors as Weft's, and operations as calls of the library. */
#ifndef WEFT_GPU_NCCL_CALLS_H
#define WEFT_GPU_NCCL_CALLS_H

#include "collective/communicator.h"
#include "gpu/abi/nccl.h"
#include "gpu/gpu_internal.h"

typedef struct gpu_nccl_entries {
#define GPU_NCCL_MEMBER(type, name, args) type(*name) args;
  WNC_ENTRIES(GPU_NCCL_MEMBER)
  WNC_LATER_ENTRIES(GPU_NCCL_MEMBER) /* NULL in a library that is too old */
#undef GPU_NCCL_MEMBER
} gpu_nccl_entries;

/* The library's entry points, once gpu_nccl_open has succeeded; constant from then on. */
const gpu_nccl_entries *gpu_nccl(void);

/* NULL for Success and InProgress; otherwise an error with the name of the call and the library's message.  `comm` may
 * be NULL. */
WEFT_NODISCARD weft_status *gpu_nccl_error(wnc_result result, const char *call, wnc_comm comm);

/* Where one operation of one rank runs. */
typedef struct gpu_nccl_place {
  wnc_comm comm; /* NULL in a communicator of one rank */
  int size, rank;
  wcu_stream stream;
  /* receives device memory that the caller frees when the stream has done the operation; NULL: none may be taken */
  void **staged;
} gpu_nccl_place;

/* Queues an operation on the stream of the place, whose context is current.  *out_in_progress: the library is not done
 * with the call.  Errors: UNIMPLEMENTED for kinds that gpu_nccl_moves refuses; those of the library and the driver. */
WEFT_NODISCARD weft_status *gpu_nccl_queue(gpu_nccl_place *place, const coll_posting *posting, bool *out_in_progress);

/* The reduction in NCCL's terms.  False: NCCL does not have the reduction, or its results differ from Weft's. */
bool gpu_nccl_reduction(weft_dtype dtype, weft_reduction reduction, wnc_type *out_type, wnc_op *out_op,
                        int *out_per_elem);

#endif
