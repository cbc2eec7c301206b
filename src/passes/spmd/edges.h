/* passes/spmd/edges.h -- operations along a cut dimension whose tiles need rows of other tiles: slices, pads, concatenations,
 * windows, convolutions, reversals.
 *
 * Partition p of n makes rows [p * q, p * q + q) of the result; for them it needs a span of the operand's rows, which begins at
 * p * step + first.  What lies in other tiles comes by collective-permutes, as many rows as any partition needs. */
#ifndef WEFT_PASSES_SPMD_EDGES_H
#define WEFT_PASSES_SPMD_EDGES_H

#include "passes/spmd/factors.h"
#include "passes/spmd/reshard.h"

/* True if a fetched factor is cut by `axes`. */
bool spmd_edges_needed(const spmd_factors *f, const spmd_axes *axes);
/* Bytes that each partition receives for it; `tensors` are the shardings of operands and results. */
double spmd_edges_cost(const spmd_grid *grid, const hlo_instr *instr, const spmd_factors *f, const spmd_axes *axes,
                       const spmd_sharding *tensors);
/* Operands' tiles become the spans that they are needed in. */
WEFT_NODISCARD weft_status *spmd_edges_fetch(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                                             const spmd_axes *axes, hlo_instr **operands);
/* `*made`, which is `instr` on such operands with the shape of a tile, gets the attributes that go with them. */
WEFT_NODISCARD weft_status *spmd_edges_finish(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                                              const spmd_axes *axes, hlo_instr *const *operands, hlo_instr **made);

#endif
