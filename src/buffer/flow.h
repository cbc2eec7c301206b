/* buffer/flow.h -- which value is where: dataflow through tuples, calls and loops, and how long each value lives.
 *
 * A *value* is one array with one defining step.  Tuples, get-tuple-element, reshape, calls and invariant loop state
 * only pass values on.  Loop state that changes and results of conditionals are values of their own.  They are
 * connected to their sources by *ties*: pairs of values that must share memory.  Ties are merged into classes
 * (buffers) as long as no two values of a class are live at once.  A tie that cannot merge needs a copy
 * (passes/copy_insertion.c); a module that can be planned has no such tie.
 *
 * Time is the flattened schedule: a while is its entry, its condition, its body and its exit; a conditional is its
 * entry, its branches one after the other, and its exit.  Step s reads at point 2s and writes at point 2s + 1; an
 * operand that it may still read while it writes is live until 2s + 1.  Two values clash when their closed intervals
 * [def, end] meet, except at the step that ends the one, defines the other and may write it over the first. */
#ifndef WEFT_BUFFER_FLOW_H
#define WEFT_BUFFER_FLOW_H

#include "hlo/hlo.h"

typedef struct buf_value {
  const hlo_instr *instr; /* NULL: the pseudo-value of an entry result */
  int leaf;               /* of instr; or the result's leaf */
  int64_t bytes;
  int def, end;           /* points; end >= def */
  int param_leaf;         /* the leaf's number over all entry parameters; -1: not a parameter */
  bool read_only;         /* a constant, or a parameter that is not donated */
} buf_value;

typedef enum buf_tie_kind { BUF_TIE_LOOP_ENTRY, BUF_TIE_LOOP_BACK, BUF_TIE_LOOP_EXIT, BUF_TIE_BRANCH, BUF_TIE_IN_PLACE,
                            BUF_TIE_DONATION, BUF_TIE_RESULT } buf_tie_kind;

/* `from` and `to` must share memory.  If they cannot, the copy is made of leaf `leaf` of operand `operand` of
 * `instr` (LOOP_ENTRY and IN_PLACE) or of leaf `leaf` of the root of `comp` (the other kinds). */
typedef struct buf_tie {
  buf_tie_kind kind;
  int from, to;
  const hlo_instr *instr;
  const hlo_computation *comp;
  int operand, leaf;
} buf_tie;

/* `instr` reads a value; NULL: the caller reads it as a result.  Placement by dependence needs every read. */
typedef struct buf_read { int value; const hlo_instr *instr; } buf_read;

/* The step that defines `to` may write it over `from`, if that step is the end of `from`. */
typedef struct buf_overwrite { int from, to; } buf_overwrite;

typedef struct buf_flow {
  weft_arena arena;
  const hlo_module *module;
  int step_count;
  int *step;               /* by instruction id; -1: its computation does not run by steps */
  int *leaf_base;          /* by instruction id: first index into value_of; -1 as for `step` */
  int *value_of;           /* by leaf_base[id] + leaf */
  int *leaf_count;         /* by instruction id */
  int *comp_begin, *comp_end;       /* by computation id: first and last step; -1: it does not run by steps */
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
/* True if the body of `loop` passes this leaf of the loop's state on unchanged, be it through tuples, calls or other
 * loops. */
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
    int *members;          /* values sorted by def; no two of them clash */
    int param_leaf, result_leaf; /* -1: none */
    bool read_only;
  } *classes;              /* by representative */
} buf_classes;

/* Each value in a class of its own. *out_classes is owned by the caller. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *buf_classes_new(const buf_flow *flow, buf_classes **out_classes);
void buf_classes_free(buf_classes *classes);
WEFT_DEFINE_AUTO(buf_classes, buf_classes_free)
int buf_class_of(const buf_classes *classes, int value);
/* Merges the classes of two values.  *out_merged is false, and nothing has changed, if values of the two clash,
 * their sizes differ, one of them is read-only, or both contain a parameter or both a result. */
WEFT_NODISCARD weft_status *buf_classes_merge(const buf_flow *flow, buf_classes *classes, int a, int b,
                                              bool *out_merged);
/* Merges the values of every tie, beginning with the ties for which a copy would cost most.  broken[i] becomes true
 * if the values of tie i cannot be merged. */
WEFT_NODISCARD weft_status *buf_classes_merge_ties(const buf_flow *flow, buf_classes *classes, bool *broken,
                                                   int *out_broken_count);

#endif
