/* passes/spmd/parts.h -- operations of which each partition does what concerns its own rows of a cut dimension: indexed reads
 * and writes, cumulative windows, reductions of several arrays. */
#ifndef WEFT_PASSES_SPMD_PARTS_H
#define WEFT_PASSES_SPMD_PARTS_H

#include "passes/spmd/factors.h"
#include "passes/spmd/reshard.h"

/* Whether factor `i`, if it is done in parts, may be cut into `n`: a slice must fit into a tile. */
bool spmd_parts_fit(const hlo_instr *instr, const spmd_factors *f, int i, int64_t n);
/* True if a factor that is done in parts is cut by `axes`. */
bool spmd_parts_needed(const spmd_factors *f, const spmd_axes *axes);
/* `instr` on tiles that are cut so; `made` is the instruction on them as it stands, with attributes and shape of a tile.  Where
 * the factor is reduced, *out has zeros in place of what other partitions have, and a sum puts them together; reductions come
 * out whole. */
WEFT_NODISCARD weft_status *spmd_parts_compute(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                                               const spmd_axes *axes, hlo_instr *made, hlo_instr **out);
/* x, of which all partitions but one have zeros, added up over `partial` bit by bit, in the sharding `to`. */
WEFT_NODISCARD weft_status *spmd_parts_combine(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_sharding *from, spmd_mask partial,
                                               const spmd_sharding *to, hlo_instr **out);

/* What the rules ask: whether it can be done for this operation along dimension `dim` of its first operand. */
bool spmd_parts_can_index(const hlo_instr *instr, int operand, int64_t dim);
bool spmd_parts_is_cumulative(const hlo_instr *instr, int *out_dim, bool *out_reverse);

#endif
