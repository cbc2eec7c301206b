/* codegen/model/nest.h -- how the elements of a result are walked. */
#ifndef WEFT_CODEGEN_MODEL_NEST_H
#define WEFT_CODEGEN_MODEL_NEST_H

#include "hlo/hlo.h"

/* How the elements of an array are walked: their row-major order cut into nested loops, outermost first, so that what
 * every access of a computation needs apart is apart, and no more. */
typedef struct gen_nest {
  int count;
  int64_t extent[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int cut_count[HLO_MAX_RANK];         /* places where a loop is best split: concatenate, pad */
  const int64_t *cuts[HLO_MAX_RANK];   /* ascending, within (0, extent) */
  int period;                          /* elements that one step of the innermost loop makes, side by side; 0 is 1 */
} gen_nest;
WEFT_NODISCARD weft_status *gen_nest_of(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots,
                                        int root_count, const hlo_shape *shape, gen_nest *out);
/* Makes short rows, and neighbours that interior padding treats differently, one step of the innermost loop. */
WEFT_NODISCARD weft_status *gen_nest_join(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots,
                                          int root_count, gen_nest *nest);

#endif
