/* cpu/dot_parts.h -- where the operands of a dot lie that reads parts of arrays in place. */
#ifndef WEFT_CPU_DOT_PARTS_H
#define WEFT_CPU_DOT_PARTS_H

#include "base/status.h"
#include "codegen/model/view.h"

/* Where the first element of an operand of the dot is. */
typedef struct cpu_source {
  int operand;       /* of the step's fusion: the array */
  int64_t offset;    /* bytes, without the starts */
  int start_count;
  struct cpu_start {
    int operand;     /* of the step's fusion: the number */
    weft_dtype type;
    int64_t most, step; /* step: bytes */
  } starts[HLO_MAX_RANK];
} cpu_source;

/* Finds the first element of `view`, a value inside of a step's fusion, or inside of `within`, a fusion in that fusion.
 * All operands of the step are arrays. Errors: UNIMPLEMENTED for an array or a start that the fusion computes. */
WEFT_NODISCARD weft_status *cpu_source_plan(cpu_source *source, const gen_view *view, const hlo_instr *within);
/* Its address in a run; args: the step's. Starts beyond the array's end count as the last that fits. */
const void *cpu_source_at(const cpu_source *source, void *const *args);

#endif
