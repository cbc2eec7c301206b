/* codegen/model/weights.h -- weights that a dot of few rows reads in the narrow type in which they are stored, although
 * it multiplies by what arithmetic makes of them: each stored number is converted, and zero points are subtracted from
 * it, it is multiplied by scales, and biases are added. A number of these may belong to one column of the weights, to a
 * *group* of neighbouring rows of one column, or to all weights. */
#ifndef WEFT_CODEGEN_MODEL_WEIGHTS_H
#define WEFT_CODEGEN_MODEL_WEIGHTS_H

#include "codegen/model/target.h"
#include "codegen/model/view.h"

enum { GEN_WEIGHTS_STEPS = 4 };

/* value = value `op` operand; op: HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY. Parts along which the operand repeats have step
 * 0 in its view. Its numbers are exact in f32. */
typedef struct gen_stored_step {
  hlo_opcode op;
  gen_view view;
  int64_t row, column; /* set by gen_stored_lie: steps from group to group and from column to column */
} gen_stored_step;

typedef struct gen_stored {
  gen_view view;       /* of the stored numbers, whose type is that of view.array */
  int count;
  gen_stored_step steps[GEN_WEIGHTS_STEPS]; /* in the order in which they are done */
  bool rounds;         /* without excess precision, the program would round between the steps or behind them */
  bool shared;         /* something else reads a value that is between the stored numbers and the dot */
  int64_t group;       /* set by gen_stored_lie: rows that share the operands of all steps */
} gen_stored;

/* Is each number of `narrow`, which has fewer bytes, one of the float type `wide`? */
bool gen_type_widens(weft_dtype narrow, weft_dtype wide);

/* Is the canonical dot `dot` one of few rows by so many weights that reading them decides what it costs, and does the
 * library compute it? */
bool gen_dot_has_few_rows(const gen_target *target, const hlo_instr *dot);
/* The same where the weights are the left operand, of few columns. */
bool gen_dot_has_few_columns(const gen_target *target, const hlo_instr *dot);

/* The operand of `value` that is made of the stored numbers; -1: `value` may be the stored array. `in_parts`: arrays
 * may be read through slices, as gen_view_of does. */
int gen_stored_operand(const hlo_instr *value, bool in_parts);

/* Finds what `value` is made of. False: it is not made of narrower numbers, or by other arithmetic. */
bool gen_stored_of(const hlo_instr *value, bool in_parts, gen_stored *out);

/* Finds the groups in the weights of a dot of matrices; `depth_dim` is their contracted dimension. False: the library
 * has no kernel for the order in which they lie in memory. */
bool gen_stored_lie(gen_stored *weights, const hlo_shape *shape, int64_t depth_dim);

/* All of this for the right operand of a dot of few rows: can the library read it as it is stored? `rounds_narrow`:
 * excess precision is not allowed. */
bool gen_dot_reads_stored(const gen_target *target, const hlo_instr *dot, bool in_parts, bool rounds_narrow,
                          gen_stored *out);

#endif
