/* passes/spmd/edges.h -- operations along a cut dimension whose tiles need rows of other tiles: slices, pads,
 * concatenations, windows, convolutions, reversals.
 *
 * Partition p of n computes the rows [p * q, p * q + q) of the result. For them it needs a span of the operand's
 * rows, which begins at p * step + first. The rows of the span that lie in other tiles come by collective-permutes,
 * which move as many rows as the partition with the greatest need wants. */
#ifndef WEFT_PASSES_SPMD_EDGES_H
#define WEFT_PASSES_SPMD_EDGES_H

#include "passes/spmd/factors.h"
#include "passes/spmd/reshard.h"

/* True if `axes` cut a factor whose rows are fetched (is_fetched). */
bool spmd_edges_needed(const spmd_factors *f, const spmd_axes *axes);
/* The bytes that each partition receives when the spans are fetched. `tensors` are the shardings of operands and
 * results. */
double spmd_edges_cost(const spmd_grid *grid, const hlo_instr *instr, const spmd_factors *f, const spmd_axes *axes,
                       const spmd_sharding *tensors);
/* Replaces operands' tiles by the spans that are needed. */
WEFT_NODISCARD weft_status *spmd_edges_fetch(spmd_mover *m, pass_build *b, const hlo_instr *instr,
                                             const spmd_factors *f, const spmd_axes *axes, hlo_instr **operands);
/* Gives `*made`, which is `instr` on such operands with the shape of a tile, the attributes that fit them. */
WEFT_NODISCARD weft_status *spmd_edges_finish(spmd_mover *m, pass_build *b, const hlo_instr *instr,
                                              const spmd_factors *f, const spmd_axes *axes, hlo_instr *const *operands,
                                              hlo_instr **made);

#endif
