/* codegen/model/strategy.h -- which strategy makes a fusion's kernel.
 *
 * gen_decide is the one place that decides; passes and code generation obey what it says.  The forms below it
 * (rows, columns, turned arrays) say what a strategy works on; each has one recogniser, which the decision and the
 * emitter share. */
#ifndef WEFT_CODEGEN_MODEL_STRATEGY_H
#define WEFT_CODEGEN_MODEL_STRATEGY_H

#include "codegen/model/nest.h"
#include "hlo/hlo.h"

/* name, what the kernel does */
#define GEN_STRATEGIES(X)                                                         \
  X(UNDECIDED, undecided, "")                                                     \
  X(LOOP, loop, "loops over the results")                                         \
  X(ROWS, rows, "reduces rows, in stages")                                        \
  X(COLUMNS, columns, "reduces columns, many side by side")                       \
  X(TURN, turn, "loops over the results, transposed operands in tiles")           \
  X(SCATTER, scatter, "scatters into its operand")                                \
  X(UPDATE, update, "updates slices of its operands")                             \
  X(PICK, pick, "select-and-scatter")                                             \
  X(SMALL_LOOP, small_loop, "a while whose state is in registers")                \
  X(REGION, region, "control flow around kernels")
typedef enum gen_strategy {
#define GEN_STRATEGY(upper, lower, does) GEN_STRATEGY_##upper,
  GEN_STRATEGIES(GEN_STRATEGY)
#undef GEN_STRATEGY
  GEN_STRATEGY_COUNT
} gen_strategy;
const char *gen_strategy_name(gen_strategy strategy);

/* The strategy of a finished fusion: the one that is kept on it (u.fusion.strategy), or, where there is none yet,
 * the one that its computation asks for.  `arena` holds what the analysis needs. */
WEFT_NODISCARD weft_status *gen_decide(weft_arena *arena, const hlo_instr *fusion, gen_strategy *out);

/* INTERNAL: the strategy that is kept on a fusion does not fit its computation. */
weft_status *gen_wrong_form(gen_strategy strategy);
/* Same computation, kind, strategy and aliases: one kernel serves both. */
bool gen_fusion_equal(const hlo_instr *a, const hlo_instr *b);

/* `x` seen through reshapes and bitcasts. */
const hlo_instr *gen_through_views(const hlo_instr *x);
/* What makes leaf `leaf` of the computation's result, seen through reshapes, bitcasts and copies. */
const hlo_instr *gen_updated_leaf(const hlo_computation *comp, int leaf);
/* The while whose elements are all the results; NULL if the computation is something else. */
const hlo_instr *gen_small_loop_of(const hlo_computation *comp);

/* ---- rows (rows.c)
 * --------------------------------------------------------------------------------------------------- */

/* Are all dimensions that `reduce` reduces behind all that it keeps (dimensions of 1 aside)?  Then it has *rows
 * results, each of *cols elements. */
bool gen_reduces_rows(const hlo_instr *reduce, int64_t *out_rows, int64_t *out_cols);
/* Does `broadcast`, from one value a row to rows x cols elements, give each row its own value? */
bool gen_spreads_rows(const hlo_instr *broadcast, int64_t rows, int64_t cols);

enum { GEN_MOST_ROW_REDUCES = 16 };
/* A computation over arrays of rows x cols elements.  Stage s reduces what needs the results of s other reduces. */
typedef struct gen_rows {
  const hlo_computation *comp;
  int64_t rows, cols;
  const hlo_instr *reduces[GEN_MOST_ROW_REDUCES];
  int reduce_count, stages;
  int8_t *level;     /* by instruction id - low: the stages below the instruction */
  int low;
  bool per_row_only; /* no result has an element per column */
} gen_rows;
WEFT_NODISCARD weft_status *gen_rows_of(weft_arena *arena, const hlo_computation *comp, gen_rows *out, bool *is_rows);
static inline int gen_row_level(const gen_rows *r, const hlo_instr *x) { return r->level[x->id - r->low]; }

/* ---- columns (columns.c)
 * --------------------------------------------------------------------------------------------- */

enum { GEN_MOST_COLUMN_REDUCES = 8 };
/* Reduces over the same dimensions of arrays of the same dimensions, which keep the innermost ones. */
typedef struct gen_columns {
  const hlo_computation *comp;
  const hlo_instr *reduces[GEN_MOST_COLUMN_REDUCES];
  int reduce_count;
  const hlo_shape *in;
  bool reduced[HLO_MAX_RANK];         /* by dimension of `in` */
  int64_t cols, outer, results;       /* kept elements: of the innermost run of dimensions; before it; their product */
  int walk[HLO_MAX_RANK], walk_count; /* reduced dimensions of more than one element, outermost first */
} gen_columns;
WEFT_NODISCARD weft_status *gen_columns_of(weft_arena *arena, const hlo_computation *comp, gen_columns *out,
                                           bool *is_columns);

/* ---- turned arrays (turned.c)
 * ------------------------------------------------------------------------------------------- */

enum { GEN_MOST_TURNED = 3, GEN_TURNED_WIDTH = 8 };
/* A loop over the results whose transposed operands are read in tiles. */
typedef struct gen_turned {
  const hlo_instr *turned[GEN_MOST_TURNED];
  int turned_count;
  gen_nest nest;
  int h;                  /* the loop that is innermost in the operands; the innermost of the result is the last */
} gen_turned;
WEFT_NODISCARD weft_status *gen_turned_of(weft_arena *arena, const hlo_instr *fusion, gen_turned *out, bool *is_turned);

#endif
