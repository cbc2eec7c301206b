/* passes/build.h -- HLO written as expressions, for passes that expand one operation into many.
 *
 *   pass_build b = PASS_BUILD_AT(instr);                      new instructions go before `instr`
 *   hlo_instr *half = pb_splat(&b, x, 0.5);
 *   hlo_instr *y = pb_mul(&b, half, pb_op1(&b, HLO_TANH, x));
 *   return pass_build_replace(&b, instr, y);
 *
 * The first error is kept in the builder; from then on every function returns NULL, and NULL operands are fine, so that
 * only the end has to look.  (`pb_` for pass_build, because expressions nest.) */
#ifndef WEFT_PASSES_BUILD_H
#define WEFT_PASSES_BUILD_H

#include "hlo/hlo.h"
#include "passes/util.h"

typedef struct pass_build {
  hlo_computation *comp;
  hlo_instr *before;         /* NULL: new instructions go to the end of the computation */
  const hlo_instr *origin;   /* new instructions get the metadata of this one; or NULL */
  weft_status *error;
} pass_build;

#define PASS_BUILD_AT(instr) ((pass_build){.comp = (instr)->parent, .before = (instr), .origin = (instr)})
#define PASS_BUILD_IN(computation) ((pass_build){.comp = (computation)})

/* Returns the first error (NULL: there was none), which the caller now owns. The builder has no error afterwards. */
WEFT_NODISCARD weft_status *pass_build_finish(pass_build *b);
/* Ends the expression: `with` replaces `instr`. If there was an error, it is returned instead. */
WEFT_NODISCARD weft_status *pass_build_replace(pass_build *b, hlo_instr *instr, hlo_instr *with);

/* Makes any instruction. The caller sets attributes on the result, which is NULL after an error. */
hlo_instr *pb_instr(pass_build *b, hlo_opcode op, const hlo_shape *shape, int count, hlo_instr *const *operands);
hlo_instr *pb_clone(pass_build *b, const hlo_instr *instr, hlo_instr *const *operands);

hlo_instr *pb_op1(pass_build *b, hlo_opcode op, hlo_instr *x);               /* shape of x */
hlo_instr *pb_op2(pass_build *b, hlo_opcode op, hlo_instr *x, hlo_instr *y); /* shape of x */
hlo_instr *pb_select(pass_build *b, hlo_instr *pred, hlo_instr *x, hlo_instr *y);
hlo_instr *pb_compare(pass_build *b, hlo_direction direction, hlo_instr *x, hlo_instr *y);
hlo_instr *pb_convert(pass_build *b, hlo_instr *x, weft_dtype type);         /* x itself if it has that type */
hlo_instr *pb_bitcast_convert(pass_build *b, hlo_instr *x, weft_dtype type); /* both types must have the same width */
static inline hlo_instr *pb_add(pass_build *b, hlo_instr *x, hlo_instr *y) { return pb_op2(b, HLO_ADD, x, y); }
static inline hlo_instr *pb_sub(pass_build *b, hlo_instr *x, hlo_instr *y) { return pb_op2(b, HLO_SUBTRACT, x, y); }
static inline hlo_instr *pb_mul(pass_build *b, hlo_instr *x, hlo_instr *y) { return pb_op2(b, HLO_MULTIPLY, x, y); }
static inline hlo_instr *pb_div(pass_build *b, hlo_instr *x, hlo_instr *y) { return pb_op2(b, HLO_DIVIDE, x, y); }

/* Scalar constants by value, and a constant with a copy of `literal`. */
hlo_instr *pb_scalar(pass_build *b, weft_dtype type, double value);
hlo_instr *pb_int(pass_build *b, weft_dtype type, int64_t value);
hlo_instr *pb_constant(pass_build *b, const hlo_literal *literal);
/* both have the type and the dimensions of `like` */
hlo_instr *pb_splat(pass_build *b, const hlo_instr *like, double value);
hlo_instr *pb_splat_int(pass_build *b, const hlo_instr *like, int64_t value);
/* broadcasts a scalar to those dimensions */
hlo_instr *pb_fill(pass_build *b, hlo_instr *scalar, const hlo_shape *dims);
hlo_instr *pb_iota(pass_build *b, const hlo_shape *shape, int64_t dim);

/* Dimension i of x becomes dimension map[i] of the result; a vector becomes dimension `dim`. */
hlo_instr *pb_broadcast(pass_build *b, hlo_instr *x, int rank, const int64_t *dims, const int64_t *map);
hlo_instr *pb_broadcast_1d(pass_build *b, hlo_instr *vector, const hlo_shape *dims, int64_t dim);
/* x itself if it has these dimensions */
hlo_instr *pb_reshape(pass_build *b, hlo_instr *x, int rank, const int64_t *dims);
hlo_instr *pb_reshape_like(pass_build *b, hlo_instr *x, const hlo_shape *dims);
/* x itself if `permutation` is the identity */
hlo_instr *pb_transpose(pass_build *b, hlo_instr *x, const int64_t *permutation);
hlo_instr *pb_slice_dim(pass_build *b, hlo_instr *x, int64_t dim, int64_t start, int64_t limit);
/* dynamic-slice and dynamic-update-slice along one dimension, from the scalar `at` on; all other dimensions are
 * taken whole. */
hlo_instr *pb_slice_at(pass_build *b, hlo_instr *x, int64_t dim, hlo_instr *at, int64_t size);
hlo_instr *pb_update_at(pass_build *b, hlo_instr *x, hlo_instr *part, int64_t dim, hlo_instr *at);
hlo_instr *pb_concat(pass_build *b, int64_t dim, int count, hlo_instr *const *parts);
hlo_instr *pb_pad(pass_build *b, hlo_instr *x, hlo_instr *value, const hlo_pad_dim *pads);
hlo_instr *pb_reduce(pass_build *b, hlo_instr *x, hlo_instr *init, int count, const int64_t *dims,
                     hlo_computation *reducer);
hlo_instr *pb_tuple(pass_build *b, int count, hlo_instr *const *elements);
hlo_instr *pb_gte(pass_build *b, hlo_instr *tuple, int64_t index);
/* lhs . rhs with the attributes of `dot`, as an array of its rank. */
hlo_instr *pb_dot_like(pass_build *b, const hlo_instr *dot, hlo_instr *lhs, hlo_instr *rhs, weft_dtype type,
                       const int64_t *dims);
hlo_ints pb_ints(pass_build *b, int count, const int64_t *v);

/* Applies f to whole arrays of `dims`, element by element; the arguments take the places of f's parameters. f must
 * be pointwise: it contains only elementwise instructions, maps, constants and parameters. `values` is a scratch
 * map, which any number of calls may use. */
hlo_instr *pb_apply(pass_build *b, const hlo_computation *f, hlo_instr *const *arguments, const hlo_shape *dims,
                    pass_map *values);
bool pass_is_pointwise(const hlo_computation *f);

/* for (i = 0; i < trips; i++) state = body(i, state), as a while whose result is (i, state...). The body makes the
 * new state with the builder `in`, in which it may leave an error. */
typedef void pb_loop_body(pass_build *in, const void *context, hlo_instr *i, hlo_instr *const *state, hlo_instr **next);
hlo_instr *pb_loop(pass_build *b, const char *name, int64_t trips, int count, hlo_instr *const *init,
                   pb_loop_body *body, const void *context);

#endif
