/* codegen/model/view.h -- parts of arrays that a dot of the CPU's library reads where they lie.
 *
 * A *view* says where the elements of a value lie that slices, dynamic slices, transposes and reshapes make of an
 * array. Each dimension of the value is walked by *parts*, nested loops of which each has a size and a step. A dense
 * dimension has one part. A dimension that a reshape has merged of dimensions that lie apart has several. A dimension
 * of size 1 has none. The last part of a dimension is the innermost loop. */
#ifndef WEFT_CODEGEN_MODEL_VIEW_H
#define WEFT_CODEGEN_MODEL_VIEW_H

#include "hlo/hlo.h"

enum {
  GEN_VIEW_PARTS = 2 * HLO_MAX_RANK,
  GEN_VIEW_LENGTH = 16, /* most instructions between a value and the array of its view */
};

typedef struct gen_part { int64_t size, step; } gen_part; /* step: in elements of the array */
typedef struct gen_parts {
  int count;
  gen_part v[GEN_VIEW_PARTS];
} gen_parts;

/* A start of a dynamic slice that is known only when the program runs: the view begins step * min(max(value, 0), most)
 * elements later. */
typedef struct gen_view_start {
  const hlo_instr *value; /* a scalar integer */
  int64_t most, step;
} gen_view_start;

typedef struct gen_view {
  const hlo_instr *array;     /* the dense array that is read; NULL: it is not known (gen_view_dense) */
  int64_t offset;             /* of the first element, in elements, without the starts */
  int start_count;
  gen_view_start starts[HLO_MAX_RANK];
  bool is_part;               /* a slice of any kind is between the array and the value */
  int rank;
  int first[HLO_MAX_RANK + 1]; /* dimension d has the parts first[d] to first[d + 1] - 1 */
  gen_parts parts;
} gen_view;

/* The view of a whole dense array. */
gen_view gen_view_dense(const hlo_shape *shape);
/* The view of `value` in the array that is farthest up and in which `value` has a view: `value` itself at least. */
gen_view gen_view_of(const hlo_instr *value);

/* Changes the view of the operand of `x` to that of `x`: a reshape, bitcast, transpose, slice, dynamic slice, or a
 * broadcast, whose new parts have step 0. False: `x` has no view in the array; the view is then lost. */
bool gen_view_apply(gen_view *view, const hlo_instr *x);

/* The parts of the dimensions dims[0, count), in this order, as few as possible. False: there are too many. */
bool gen_view_walk(const gen_view *view, int count, const int64_t *dims, gen_parts *out);
/* Splits the parts of two walks over equally many elements until both have the same sizes. False: there are no such
 * parts. */
bool gen_parts_match(gen_parts *a, gen_parts *b);

#endif
