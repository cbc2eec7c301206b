/* codegen/model/nest.h -- how the elements of a result are walked. */
#ifndef WEFT_CODEGEN_MODEL_NEST_H
#define WEFT_CODEGEN_MODEL_NEST_H

#include "hlo/hlo.h"

/* The loops that walk the elements of an array, outermost first. They cut the array's row-major order: two
 * dimensions have separate loops only if some access of the computation needs them apart. */
typedef struct gen_nest {
  int count;
  int64_t extent[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int cut_count[HLO_MAX_RANK];         /* where a loop is best split: at a concatenate, at a pad */
  const int64_t *cuts[HLO_MAX_RANK];   /* ascending, within (0, extent) */
  int period;                          /* elements that one step of the innermost loop makes, side by side; 0 means 1 */
  int vectors;                         /* vectors of the target in one step of the innermost loop; 0 means 1 */
  int64_t block;                       /* elements that one unit makes at most; 0: as many as the target says */
  /* the elements that do not fill a vector are made with some of those before them, which are made twice */
  bool overlaps;
} gen_nest;
WEFT_NODISCARD weft_status *gen_nest_of(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots,
                                        int root_count, const hlo_shape *shape, gen_nest *out);
/* Lets one step of the innermost loop make several neighbours (nest->period): whole short rows, or elements that
 * interior padding treats differently. */
WEFT_NODISCARD weft_status *gen_nest_join(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots,
                                          int root_count, gen_nest *nest);

#endif
