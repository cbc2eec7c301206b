/* passes/spmd/reshard.h -- from a whole array to a partition's tile and back. */
#ifndef WEFT_PASSES_SPMD_RESHARD_H
#define WEFT_PASSES_SPMD_RESHARD_H

#include "passes/build.h"
#include "passes/spmd/tiling.h"

/* This partition's tile of `whole`: a dynamic-slice at offsets looked up by partition-id. */
WEFT_NODISCARD weft_status *spmd_slice(pass_build *b, hlo_instr *whole, const spmd_tiling *tiling, hlo_instr **out);

/* The whole array from every partition's `tile`: one all-gather in each group of partitions that together hold it. */
WEFT_NODISCARD weft_status *spmd_gather(pass_build *b, hlo_instr *tile, const spmd_tiling *tiling, hlo_instr **out);

/* Partial results of every partition, combined over the groups that differ in the cut dimensions `dims` of `tiling` alone. */
WEFT_NODISCARD weft_status *spmd_all_reduce(pass_build *b, hlo_instr *partial, const spmd_tiling *tiling, int dim_count,
                                            const int *dims, hlo_computation *reducer, hlo_instr **out);

/* The next free channel of the module. */
int64_t spmd_next_channel(const hlo_module *module);

#endif
