/* collective/prepare.h -- an operation's arguments, checked and copied. */
#ifndef WEFT_COLLECTIVE_PREPARE_H
#define WEFT_COLLECTIVE_PREPARE_H

#include "collective/internal.h"

/* Fills op->args, problem, reducer, fingerprint, memory.  Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_op_prepare(coll_op *op, const weft_coll_op *args, const weft_coll_call *call);

/* The same for `count` all-reduces of one type and reduction, packed into one. */
WEFT_NODISCARD weft_status *coll_op_fuse(coll_op *op, const weft_coll_op *ops, size_t count, const weft_coll_call *call);

/* At least `bytes` at op->stage. */
WEFT_NODISCARD weft_status *coll_stage_reserve(coll_op *op, size_t bytes);

#endif
