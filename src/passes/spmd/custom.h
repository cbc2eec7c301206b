/* passes/spmd/custom.h -- custom-calls that a client partitions (passes/custom_partitioner.h). */
#ifndef WEFT_PASSES_SPMD_CUSTOM_H
#define WEFT_PASSES_SPMD_CUSTOM_H

#include "passes/custom_partitioner.h"
#include "passes/spmd/factors.h"
#include "passes/spmd/reshard.h"

/* The partitioner that is registered for `instr`; NULL: the instruction is treated like others. */
const pass_custom_partitioner *spmd_custom_of(const hlo_instr *instr);

/* The client's answer to the shardings of the operands and of the result's leaves. */
typedef struct spmd_custom_call {
  hlo_computation *body;       /* in the caller's module, for spmd_custom_inline */
  spmd_sharding *operands;     /* wanted */
  spmd_sharding **results;     /* by leaf: the sharding that the body gives */
} spmd_custom_call;
WEFT_NODISCARD weft_status *spmd_custom_ask(spmd_mover *m, const hlo_instr *instr,
                                            const pass_custom_partitioner *custom, spmd_sharding *const *operands,
                                            spmd_sharding *const *results, weft_arena *scratch, spmd_custom_call *out);
/* Puts the body in place, on tiles of the operands. */
WEFT_NODISCARD weft_status *spmd_custom_inline(pass_build *b, spmd_custom_call *call, hlo_instr *const *operands,
                                               weft_arena *scratch, hlo_instr **out);
WEFT_NODISCARD weft_status *spmd_custom_inspect(spmd_mover *m, const hlo_instr *instr,
                                                const pass_custom_partitioner *custom, const spmd_sharding *operand);

/* Fills in the factors of a Shardy rule such as "([i, j], [j, k])->([i, k]) {i=8, j=4, k=2} reduction={j}". False:
 * the rule does not fit the tensors of `f`, which then has no factors. */
bool spmd_rule_factors(const char *text, spmd_factors *f);

#endif
