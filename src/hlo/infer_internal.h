/* hlo/infer_internal.h -- declarations that the files of shape inference share: infer.c (elementwise operations, data
 * movement), infer_linear.c (reductions, windows, linear algebra, gather and scatter), infer_control.c (tuples, calls,
 * communication).  A rule reads an instruction and writes its result shape.  Operand counts and unbounded dimensions
 * have been checked before a rule runs. */
#ifndef WEFT_HLO_INFER_INTERNAL_H
#define WEFT_HLO_INFER_INTERNAL_H

#include "hlo/infer.h"

typedef weft_status *infer_rule(const hlo_instr *in, const hlo_shape **out);

#define INFER_FAIL(in, fmt, ...) \
  WEFT_ERR(INVALID_ARGUMENT, "%s: " fmt, hlo_opcode_name((in)->op) __VA_OPT__(, ) __VA_ARGS__)
/* A shape as text that lives until the end of the enclosing block. */
#define SHAPE_TEXT(shape) hlo_shape_format((shape), (char[160]){0}, 160)

static inline const hlo_shape *infer_operand(const hlo_instr *in, int i) { return in->operands[i]->shape; }
static inline weft_arena *infer_arena(const hlo_instr *in) { return &in->parent->module->arena; }

/* Equal except for layouts and dynamic flags; of dynamic dimensions the bounds are compared. */
bool infer_same_shape(const hlo_shape *a, const hlo_shape *b);

/* *out is the shape as the program gives it, for what HLO leaves free; an error if it gives none. */
WEFT_NODISCARD weft_status *infer_given(const hlo_instr *in, const hlo_shape **out);
/* The same without layout, for arrays only. */
WEFT_NODISCARD weft_status *infer_given_array(const hlo_instr *in, const hlo_shape **out);
WEFT_NODISCARD weft_status *infer_need_array(const hlo_instr *in, int operand);
WEFT_NODISCARD weft_status *infer_need_scalar(const hlo_instr *in, int operand, weft_dtype type /* INVALID: any */);
WEFT_NODISCARD weft_status *infer_need_same_type(const hlo_instr *in, int a, int b);
/* Checks that the entries are in [0, rank) and none is repeated; `what` names the list in errors. */
WEFT_NODISCARD weft_status *infer_need_dims(const hlo_instr *in, const char *what, hlo_ints dims, int rank);
/* Checks that there are `count` called computations. */
WEFT_NODISCARD weft_status *infer_need_calls(const hlo_instr *in, int count);
/* Checks that computation `which` takes scalars of `types` and gives scalars of `result_types`: a tuple, or a single
 * result by itself. */
WEFT_NODISCARD weft_status *infer_need_scalar_function(const hlo_instr *in, int which, int param_count,
                                                       const weft_dtype *types, int result_count,
                                                       const weft_dtype *result_types);

/* Makes shapes in the module's arena.  `dynamic` may be NULL. */
WEFT_NODISCARD weft_status *infer_array(const hlo_instr *in, weft_dtype type, int rank, const int64_t *dims,
                                        const bool *dynamic, const hlo_shape **out);
WEFT_NODISCARD weft_status *infer_tuple(const hlo_instr *in, int count, const hlo_shape *const *elements,
                                        const hlo_shape **out);
/* A single element by itself, or a tuple of several. */
WEFT_NODISCARD weft_status *infer_one_or_tuple(const hlo_instr *in, int count, const hlo_shape *const *elements,
                                               const hlo_shape **out);
static inline bool infer_is_dynamic(const hlo_shape *s, int64_t dim) { return s->dynamic && s->dynamic[dim]; }
static inline bool infer_contains(hlo_ints list, int64_t v)
{
  for (int i = 0; i < list.count; i++)
    if (list.v[i] == v) return true;
  return false;
}

/* infer_linear.c */
infer_rule infer_batch_norm_grad, infer_batch_norm_inference, infer_batch_norm_training, infer_cholesky,
  infer_convolution, infer_dot, infer_fft, infer_gather, infer_map, infer_ragged_dot, infer_reduce, infer_reduce_window,
  infer_scan, infer_scatter, infer_select_and_scatter, infer_sort, infer_topk, infer_triangular_solve;

/* infer_control.c */
infer_rule infer_after_all, infer_all_gather, infer_all_reduce, infer_all_to_all, infer_async_done, infer_async_start,
  infer_async_update, infer_call, infer_collective_same, infer_conditional, infer_copy_done, infer_copy_start,
  infer_first_operand, infer_free, infer_get_tuple_element, infer_infeed, infer_outfeed, infer_pair_done,
  infer_partition_id, infer_ragged_all_to_all, infer_recv, infer_recv_done, infer_reduce_scatter, infer_send,
  infer_send_done, infer_start, infer_tuple_op, infer_while;

#endif
