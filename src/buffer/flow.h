/* buffer/flow.h -- which value is where: dataflow through tuples, calls and loops, and how long each value lives.
 *
 * A *value* is one array with one defining step.  Tuples, get-tuple-element, reshape, calls and invariant loop state
 * only pass values on; loop state that changes and results of conditionals are values of their own, tied to their
 * sources by *ties*: pairs of values that must share memory.  Ties are merged into classes (buffers) as far as no two
 * values of a class are live at once; a tie that cannot merge needs a copy (passes/copy_insertion.c), and a planned
 * module has none left.
 *
 * Time is the schedule, flattened: a while is its entry, its condition, its body, its exit; a conditional its branches one
 * after the other.  Step s reads at point 2s and writes at 2s+1; an operand that the writing may not yet overwrite is
 * read until 2s+1.  Two values clash when their closed intervals [def, end] meet. */
#ifndef WEFT_BUFFER_FLOW_H
#define WEFT_BUFFER_FLOW_H

#include "hlo/hlo.h"

typedef struct buf_value {
  const hlo_instr *instr; /* NULL: the pseudo-value of an entry result */
  int leaf;               /* of instr; or the result's leaf */
  int64_t bytes;
  int def, end;           /* points; end >= def */
  int param_leaf;         /* an entry parameter's leaf over all parameters, else -1 */
  bool read_only;         /* a constant, or a parameter that is not donated */
} buf_value;

typedef enum buf_tie_kind { BUF_TIE_LOOP_ENTRY, BUF_TIE_LOOP_BACK, BUF_TIE_LOOP_EXIT, BUF_TIE_BRANCH, BUF_TIE_IN_PLACE,
                            BUF_TIE_DONATION, BUF_TIE_RESULT } buf_tie_kind;

/* `from` and `to` must share memory.  Where a copy would break the tie: on leaf `leaf` of operand `operand` of `instr`
 * (entry of a loop, in-place operation), or of the root of `comp` (the others). */
typedef struct buf_tie {
  buf_tie_kind kind;
  int from, to;
  const hlo_instr *instr;
  const hlo_computation *comp;
  int operand, leaf;
} buf_tie;

/* One use of a value, for placement by dependence: `instr` reads it. */
typedef struct buf_read { int value; const hlo_instr *instr; } buf_read;

/* The step that makes `to` may put it where `from` is, if that is the last use of `from`. */
typedef struct buf_overwrite { int from, to; } buf_overwrite;

typedef struct buf_flow {
  weft_arena arena;
  const hlo_module *module;
  int step_count;
  int *step;               /* by instruction id; -1: not a step of a sequential computation */
  int *leaf_base;          /* by instruction id: first index into value_of; -1 likewise */
  int *value_of;           /* by leaf_base[id] + leaf */
  int *leaf_count;         /* by instruction id */
  int *comp_begin, *comp_end;       /* by computation id: first and last step; -1: not sequential */
  const hlo_instr **caller;         /* by computation id: the one instruction that runs it; NULL: the entry */
  int value_count, value_capacity;
  buf_value *values;
  int tie_count, tie_capacity;
  buf_tie *ties;
  int read_count, read_capacity;
  buf_read *reads;         /* by reading step */
  int overwrite_count, overwrite_capacity;
  buf_overwrite *overwrites;        /* in order of `to` */
  int param_count, result_count;    /* leaves of all entry parameters, of the entry's result */
  int *result_value;       /* by result leaf: the pseudo-value that stands for the caller's memory */
  int first_param_value;
} buf_flow;

/* Errors: INVALID_ARGUMENT for a computation with two callers or nesting past BUF_MAX_DEPTH; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *buf_flow_new(const hlo_module *module, buf_flow **out_flow);
void buf_flow_free(buf_flow *flow);
WEFT_DEFINE_AUTO(buf_flow, buf_flow_free)
enum { BUF_MAX_DEPTH = 256 };

static inline int buf_flow_value(const buf_flow *flow, const hlo_instr *instr, int leaf)
{
  return flow->value_of[flow->leaf_base[instr->id] + leaf];
}
/* True if the body of `loop` hands this leaf of the loop's state on as it got it, whatever it passes on the way. */
static inline bool buf_flow_is_invariant(const buf_flow *flow, const hlo_instr *loop, int leaf)
{
  return buf_flow_value(flow, loop, leaf) == buf_flow_value(flow, loop->operands[0], leaf);
}

/* Classes of values that share memory. */
typedef struct buf_classes {
  weft_arena arena;
  int *parent;             /* by value: union-find */
  struct buf_class {
    int count, capacity;
    int *members;          /* values sorted by def; their intervals are disjoint */
    int param_leaf, result_leaf; /* -1: none */
    bool read_only;
  } *classes;              /* by representative */
} buf_classes;

WEFT_NODISCARD weft_status *buf_classes_new(const buf_flow *flow, buf_classes **out_classes);
void buf_classes_free(buf_classes *classes);
WEFT_DEFINE_AUTO(buf_classes, buf_classes_free)
int buf_class_of(const buf_classes *classes, int value);
/* Puts two values into one class unless some of their classes' values clash, sizes differ, or memory is promised to two
 * parties.  *out_merged false: nothing changed. */
WEFT_NODISCARD weft_status *buf_classes_merge(const buf_flow *flow, buf_classes *classes, int a, int b,
                                              bool *out_merged);
/* Merges all ties, the dearest to copy first; broken[i] tells of tie i whether it could not. */
WEFT_NODISCARD weft_status *buf_classes_merge_ties(const buf_flow *flow, buf_classes *classes, bool *broken,
                                                   int *out_broken_count);

#endif
