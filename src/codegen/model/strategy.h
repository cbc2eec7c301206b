/* codegen/model/strategy.h -- which strategy makes a fusion's kernel.
 *
 * gen_decide is the one place that decides; passes and code generation obey its choice. The forms below it (rows,
 * columns, turned arrays) describe what a strategy works on. Each form has one recogniser, which the decision and
 * the emitter share. */
#ifndef WEFT_CODEGEN_MODEL_STRATEGY_H
#define WEFT_CODEGEN_MODEL_STRATEGY_H

#include "codegen/model/nest.h"
#include "codegen/model/target.h"
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
  X(ELEMENT_LOOP, element_loop, "a while, vector by vector of its arrays")        \
  X(REGION, region, "control flow around kernels")
typedef enum gen_strategy {
#define GEN_STRATEGY(upper, lower, does) GEN_STRATEGY_##upper,
  GEN_STRATEGIES(GEN_STRATEGY)
#undef GEN_STRATEGY
  GEN_STRATEGY_COUNT
} gen_strategy;
const char *gen_strategy_name(gen_strategy strategy);

/* The strategy of a finished fusion: the one that is kept on it (u.fusion.strategy), or, if none is kept yet, the
 * one that its computation asks for. The analysis allocates from `arena`. */
WEFT_NODISCARD weft_status *gen_decide(const gen_target *target, weft_arena *arena, const hlo_instr *fusion,
                                       gen_strategy *out);

/* INTERNAL: the strategy that is kept on a fusion does not fit its computation. */
weft_status *gen_wrong_form(gen_strategy strategy);
/* Do `a` and `b` have the same computation, kind, strategy, backend_config and aliases? Then one kernel serves both. */
bool gen_fusion_equal(const hlo_instr *a, const hlo_instr *b);

/* Does a scatter give the same bits in whatever order its updates are combined, by operations on integers of 4 or 8
 * bytes that processors do atomically? */
bool gen_scatter_in_any_order(const hlo_instr *scatter);

/* `x` seen through reshapes and bitcasts. */
const hlo_instr *gen_through_views(const hlo_instr *x);
/* The instruction that makes leaf `leaf` of the computation's result, seen through reshapes, bitcasts and copies. */
const hlo_instr *gen_updated_leaf(const hlo_computation *comp, int leaf);

/* ---- loops (element_loop.c) ------------------------------------------------------------------------------------ */

/* The while loop of which every result is an element; NULL if the computation has another form. */
const hlo_instr *gen_small_loop_of(const hlo_computation *comp);
/* Of such a computation: the result that holds element `k` of the state after the loop; -1: none does. */
int gen_loop_result_of(const hlo_computation *comp, int k);
/* The element of the state that `x` is, in the body or in the condition of a while; -1 if it is none. */
int gen_state_element(const hlo_instr *x);

/* A while that changes arrays element by element, and scalars that do not depend on them. All of these arrays have,
 * side by side, the dimensions of `elements`; there is an element for each index of these. Further dimensions, if there
 * are any, number the few numbers of an element (has_rows). A round of an element needs no other element, so each
 * vector of elements can make all of its rounds by itself. Either the condition asks for scalars alone, or also whether
 * any element goes on (`any`, a reduce by `or` in the condition); then the body keeps an element as it is once it is
 * done.
 * Other arrays of the state may be stacks: each round writes one row, with numbers of all elements, by a
 * dynamic-update-slice, and the rounds write all rows. No round reads a stack. */
typedef struct gen_element_loop {
  const hlo_instr *loop;
  hlo_shape elements;
  const int8_t *where;    /* by element of the state: the first of the dimensions of `elements`; of a stack, in a row */
  bool has_rows;
  const hlo_instr *any;   /* or NULL */
} gen_element_loop;
/* Numbers up to which a reduction has no loop: it reads them at indices that are known. */
enum { GEN_UNROLLED_REDUCE = 4 };
/* Is the while such a one? Its state must be a tuple that is read by get-tuple-element. */
WEFT_NODISCARD weft_status *gen_element_loop_of(weft_arena *arena, const hlo_instr *loop, gen_element_loop *out,
                                                bool *is_one);
/* Is the fused computation such a while, whose results are all arrays that it changes, or stacks? */
WEFT_NODISCARD weft_status *gen_element_loop_in(weft_arena *arena, const hlo_computation *comp, gen_element_loop *out,
                                                bool *is_one);
/* The dynamic-update-slice that writes a row of element `k`, a stack; NULL: it is none. */
const hlo_instr *gen_element_loop_stack(const gen_element_loop *l, int k);
/* Does the loop change element `k` of its state? */
bool gen_element_loop_changes(const gen_element_loop *l, int k);

/* ---- rows (rows.c) --------------------------------------------------------------------------------------------- */

/* Are all dimensions that `reduce` reduces behind all that it keeps (ignoring dimensions of size 1)? Then it has
 * *out_rows results, each made of *out_cols elements. */
bool gen_reduces_rows(const hlo_instr *reduce, int64_t *out_rows, int64_t *out_cols);
/* Does `broadcast` spread one value per row over rows x cols elements, so that each row gets its own value? */
bool gen_spreads_rows(const hlo_instr *broadcast, int64_t rows, int64_t cols);

enum { GEN_MOST_ROW_REDUCES = 16 };
/* A computation over arrays of rows x cols elements, whose reduces are done in stages: the reduces of stage 0 depend
 * on no other reduce, those of stage s on results of stage s - 1. */
typedef struct gen_rows {
  const hlo_computation *comp;
  int64_t rows, cols;
  const hlo_instr *reduces[GEN_MOST_ROW_REDUCES];
  int reduce_count, stages;
  int8_t *level;     /* by instruction id - low: how many stages the value depends on */
  int low;
  bool per_row_only; /* no result has an element per column */
} gen_rows;
WEFT_NODISCARD weft_status *gen_rows_of(weft_arena *arena, const hlo_computation *comp, gen_rows *out, bool *is_rows);
/* Are the fusion's operand `operand` and its results arrays of rows x cols elements, and does each row of a result
 * need no other row of that operand than its own? A single result needs its row; one of several may need none. */
WEFT_NODISCARD weft_status *gen_keeps_rows(weft_arena *arena, const hlo_instr *fusion, int operand, int64_t rows,
                                           int64_t cols, bool *out);
/* Is the fusion's kernel, one of GEN_STRATEGY_LOOP with one result, a loop over rows around one over the elements of a
 * row? Then each unit of the kernel makes one row, if there are as many units as rows. */
WEFT_NODISCARD weft_status *gen_loops_by_rows(weft_arena *arena, const hlo_instr *fusion, int64_t rows, int64_t cols,
                                              bool *out);
/* The mask of a kernel over rows that may leave out the last columns of a row, where the mask takes them all: one that
 * is stored, and by which the kernel chooses a number of the row (or of all rows) for masked columns, so that all that
 * it adds up, compares and stores there is one number of the row. A sum then needs one masked column, and the others if
 * that number is not zero; an extreme needs one of them. */
typedef struct gen_bound {
  const hlo_instr *mask; /* of rows x cols elements, in the fused computation, seen through views; NULL: none */
  bool is_unwanted;      /* it is true in masked columns */
} gen_bound;
enum {
  GEN_BOUND_STEP = 64,     /* columns: bounds are multiples of it */
  GEN_LEAST_BOUNDED = 256, /* columns: loops over fewer ones are quicker if their number is known to the compiler */
};
WEFT_NODISCARD weft_status *gen_bound_of(weft_arena *arena, const hlo_instr *fusion, gen_bound *out);
static inline int gen_row_level(const gen_rows *r, const hlo_instr *x) { return r->level[x->id - r->low]; }

/* ---- scans (scan.c) -------------------------------------------------------------------------------------------- */

/* A reduce-window whose windows are all prefixes of one dimension, or, if `is_reverse`, all suffixes. */
typedef struct gen_scan {
  int dim;
  int64_t n, inner;  /* elements along the dimension; elements of the dimensions inside of it */
  bool is_reverse;
  hlo_opcode op;     /* add, multiply, maximum, minimum, and, or, xor; HLO_OPCODE_COUNT: the reducer is a computation */
} gen_scan;
/* The backend_config of a scan whose reducer is a computation that pass reduce-window-rewriter takes to be
 * associative. */
#define GEN_ASSOCIATIVE_SCAN "associative"
/* The backend_config of a scan that is a step of the CPU's library (cpu/scan.h). */
#define GEN_LIBRARY_SCAN "scan"
enum {
  GEN_SCAN_BLOCK = 16, GEN_LEAST_SCAN_BLOCK = GEN_SCAN_BLOCK / 2,
  GEN_MOST_TOP_SCAN = 2 * GEN_SCAN_BLOCK, /* elements that one block holds, with no carry */
};
/* Elements of a block of a scan of n: near GEN_SCAN_BLOCK, and if possible a divisor of n. */
int64_t gen_scan_block(int64_t n);
/* Is it a scan of a type and by an operation that the CPU's library has, with the mark above or worth it? Fills `out`.
 * A scan that is worth it may get the mark if its initial value, combined several times with the elements, changes
 * nothing. */
bool gen_library_scan(const hlo_instr *instr, gen_scan *out);
bool gen_is_library_scan(const hlo_instr *instr); /* has it the mark? */
/* Is the instruction a prefix or suffix reduction along one dimension, by any reducer? Fills `out` but for `op`. */
bool gen_is_scan(const hlo_instr *instr, gen_scan *out);
/* Is it one that a platform of blocks has a kernel for: long enough, by one of these operations, or marked as above? */
bool gen_scan_of(const hlo_instr *instr, gen_scan *out);

/* ---- columns (columns.c) --------------------------------------------------------------------------------------- */

enum { GEN_MOST_COLUMN_REDUCES = 8 };
/* Reduces of arrays that have the same dimensions, over the same of these dimensions; the innermost ones are kept. */
typedef struct gen_columns {
  const hlo_computation *comp;
  const hlo_instr *reduces[GEN_MOST_COLUMN_REDUCES];
  int reduce_count;
  const hlo_shape *in;
  bool reduced[HLO_MAX_RANK];         /* by dimension of `in` */
  int64_t cols, outer, results;       /* kept elements: of the innermost dimensions; of those before; the product */
  int walk[HLO_MAX_RANK], walk_count; /* reduced dimensions of more than one element, outermost first */
} gen_columns;
WEFT_NODISCARD weft_status *gen_columns_of(weft_arena *arena, const hlo_computation *comp, gen_columns *out,
                                           bool *is_columns);
/* Are the columns too few for vectors of columns, and is the innermost reduced dimension long enough for vectors along
 * it? */
bool gen_columns_are_narrow(const gen_columns *columns);

/* ---- turned arrays (turned.c) ---------------------------------------------------------------------------------- */

enum { GEN_MOST_TURNED = 3, GEN_TURNED_WIDTH = 8 };
/* A loop over the results whose transposed operands are read in tiles. */
typedef struct gen_turned {
  const hlo_instr *turned[GEN_MOST_TURNED];
  int turned_count;
  gen_nest nest;
  int h;                  /* the loop over the operands' innermost dimension; the last loop is over the result's */
} gen_turned;
WEFT_NODISCARD weft_status *gen_turned_of(weft_arena *arena, const hlo_instr *fusion, gen_turned *out, bool *is_turned);

#endif
