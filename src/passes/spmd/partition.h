/* passes/spmd/partition.h -- makes the program of one partition, once every array has a sharding. */
#ifndef WEFT_PASSES_SPMD_PARTITION_H
#define WEFT_PASSES_SPMD_PARTITION_H

#include "passes/spmd/propagate.h"

/* Rewrites `comp` (the entry, or a computation that sequential code calls) so that it computes this partition's
 * tiles. */
WEFT_NODISCARD weft_status *spmd_partition(spmd_program *p, int64_t *next_channel, hlo_computation *comp);

#endif
