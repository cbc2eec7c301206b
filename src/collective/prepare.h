/* collective/prepare.h -- an operation's arguments, checked and copied. */
#ifndef WEFT_COLLECTIVE_PREPARE_H
#define WEFT_COLLECTIVE_PREPARE_H

#include "collective/internal.h"

/* Checks `args` and fills op->args, problem, reducer, fingerprint and memory.  Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_op_prepare(coll_op *op, const weft_coll_op *args, const weft_coll_call *call);

/* How many operations of a group, from the first on, may travel as one message between `size` ranks: small ones of
 * one kind (all-reduce, all-gather, reduce-scatter of equal blocks), type and reduction.  At least 1. */
size_t coll_op_fusable(const weft_coll_op *ops, size_t count, int size);

/* As coll_op_prepare, for `count` (2 or more) fusable operations packed into one. */
WEFT_NODISCARD weft_status *coll_op_fuse(coll_op *op, const weft_coll_op *ops, size_t count,
                                         const weft_coll_call *call);

/* Copies the result of a fused operation to the output of each part. */
void coll_op_unpack(const coll_op *op);

/* Reserves at least `bytes` at op->stage. */
WEFT_NODISCARD weft_status *coll_stage_reserve(coll_op *op, size_t bytes);

#endif
