/* passes/spmd/one_partition.h -- calls that one partition makes for all: host callbacks with a sharding of one
 * device. */
#ifndef WEFT_PASSES_SPMD_ONE_PARTITION_H
#define WEFT_PASSES_SPMD_ONE_PARTITION_H

#include "passes/spmd/reshard.h"

/* The only partition that `instr`'s sharding names; -1 if it names none or several. */
int64_t spmd_only_partition(const hlo_instr *instr);

/* Makes `instr` on whole `operands` on `partition` alone; all partitions get its whole results. The sharding of
 * `instr` stays on the call inside the branch; *out has none. */
WEFT_NODISCARD weft_status *spmd_call_on_one(spmd_mover *m, pass_build *b, const hlo_instr *instr,
                                             hlo_instr *const *operands, int64_t partition, hlo_instr **out);

#endif
