/* runtime/host_copies.h -- copies of a step's arguments in host memory, for devices whose memory the host cannot
 * use. */
#ifndef WEFT_RUNTIME_HOST_COPIES_H
#define WEFT_RUNTIME_HOST_COPIES_H

#include "runtime/thunk.h"

typedef struct rt_host_copies rt_host_copies;

/* Replaces the arguments of `thunk` in this run by copies in host memory, which hold the bytes that the step reads.
 * Arguments at one address share a copy. Returns when the copies are made; the compute stream has to be idle. Errors:
 * RESOURCE_EXHAUSTED; those of the device's reads. */
WEFT_NODISCARD weft_status *rt_host_copies_begin(const rt_thunk *thunk, rt_ctx *ctx, rt_host_copies **out_copies);
/* Writes back what the step writes, unless `st` (taken) is an error, and restores the arguments. Takes `copies`. */
WEFT_NODISCARD weft_status *rt_host_copies_end(const rt_thunk *thunk, rt_ctx *ctx, rt_host_copies *copies,
                                               weft_status *st);

#endif
