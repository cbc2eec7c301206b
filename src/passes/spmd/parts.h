/* passes/spmd/parts.h -- operations in which each partition handles its own rows of a cut dimension: indexed reads
 * and writes, cumulative windows, reductions of several arrays. */
#ifndef WEFT_PASSES_SPMD_PARTS_H
#define WEFT_PASSES_SPMD_PARTS_H

#include "passes/spmd/factors.h"
#include "passes/spmd/reshard.h"

/* For a factor `i` that is handled in parts: true if it may be cut into `n` tiles, that is, if a slice fits into a
 * tile. */
bool spmd_parts_fit(const hlo_instr *instr, const spmd_factors *f, int i, int64_t n);
/* True if `axes` cut a factor that is handled in parts. */
bool spmd_parts_needed(const spmd_factors *f, const spmd_axes *axes);
/* Makes `instr` on tiles that are cut in this way. `made` is the same instruction on the tiles, with attributes and
 * shape of a tile. If the factor is reduced, *out has zeros in place of what other partitions have, and a sum joins
 * the parts; reductions come out whole. */
WEFT_NODISCARD weft_status *spmd_parts_compute(spmd_mover *m, pass_build *b, const hlo_instr *instr,
                                               const spmd_factors *f, const spmd_axes *axes, hlo_instr *made,
                                               hlo_instr **out);
/* x, of which all partitions but one have zeros, added up over `partial` bit by bit, with the sharding `to`. */
WEFT_NODISCARD weft_status *spmd_parts_combine(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_sharding *from,
                                               spmd_mask partial, const spmd_sharding *to, hlo_instr **out);

/* For the rules of factors.c: true if each partition can handle its own rows of dimension `dim` of the first
 * operand, for which operand number `operand` of `instr` holds the indices. */
bool spmd_parts_can_index(const hlo_instr *instr, int operand, int64_t dim);
bool spmd_parts_is_cumulative(const hlo_instr *instr, int *out_dim, bool *out_reverse);

#endif
