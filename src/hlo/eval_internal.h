/* hlo/eval_internal.h -- declarations that the evaluator's files share: wide elements, walks over indices, called
 * computations. */
#ifndef WEFT_HLO_EVAL_INTERNAL_H
#define WEFT_HLO_EVAL_INTERNAL_H

#include "hlo/eval.h"

/* The state of one device in an evaluation. */
typedef struct eval_device {
  int64_t place;       /* replica * partitions + partition */
  uint64_t rng_state;  /* the state of rng, which advances with each use */
  uint64_t counter[2]; /* the 128-bit state of rng-get-and-update-state, low word first */
} eval_device;

/* One evaluation, or a part of it.  Results are made in `arena`; each iteration of a loop uses an arena of its own.
 *
 * The devices of a context run in lockstep: each instruction is evaluated for all of them before the next one.
 * Devices that take different branches continue in contexts of their own, whose `outer` is this one. */
typedef struct eval_ctx {
  const hlo_eval_options *options;
  weft_arena *arena;
  int depth;                   /* of calls; bounded by EVAL_MAX_DEPTH */
  int device_count;
  eval_device **devices;       /* of this context */
  const struct eval_ctx *outer; /* the context that this one was split from; NULL: this one has all devices */
  /* the instruction at which the devices of this context were split from those of `outer` */
  const hlo_instr *parted_at;
} eval_ctx;

enum { EVAL_MAX_DEPTH = 200, EVAL_MAX_DEVICES = 4096 };

/* Evaluates one instruction.  Most evaluators work for one device: they take its operands and make its result in
 * ctx->arena.  Those of control flow and collectives work for all devices of the context: `operands` has all operands
 * of the first device, then those of the second, and so on; `out` has a result for each device. */
typedef weft_status *eval_op(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out);

/* ---- elements -------------------------------------------------------------------------------------------------- */

/* The value of one element in a wide type.  The class of its type decides which member is used: s for pred and
 * signed integers, u for unsigned integers, re for floats, (re, im) for complex numbers. */
typedef union eval_scalar {
  int64_t s;
  uint64_t u;
  struct {
    double re, im;
  };
} eval_scalar;

/* Read and write one element in memory.  Storing rounds floats to nearest even and wraps integers. */
eval_scalar eval_load(weft_dtype type, const void *from);
void eval_store(weft_dtype type, void *to, eval_scalar value);

/* Converts a value of type `from` to the class of `to` by the rules of HLO convert.  eval_store then rounds it to
 * `to`. */
eval_scalar eval_convert(weft_dtype from, weft_dtype to, eval_scalar value);

/* Complex functions, accurate enough for c128; eval_complex.c. */
eval_scalar eval_complex_unary(hlo_opcode op, eval_scalar x);
eval_scalar eval_complex_binary(hlo_opcode op, eval_scalar x, eval_scalar y);

/* True if `op` is an elementwise operation that exists for operands of `type`. */
bool eval_elem_exists(hlo_opcode op, weft_dtype type);
/* Applies an elementwise instruction to one element of each operand, in memory. */
void eval_elem_apply(const hlo_instr *instr, const void *const *in, void *out);

/* Returns -1, 0 or 1.  Floats are in total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN. */
int eval_compare_total(weft_dtype type, const void *a, const void *b);

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

/* A zeroed array with the type and dimensions of `shape`, which are taken as static. */
WEFT_NODISCARD weft_status *eval_result(eval_ctx *ctx, const hlo_shape *shape, hlo_literal **out);
WEFT_NODISCARD weft_status *eval_result_tuple(eval_ctx *ctx, const hlo_shape *shape, const hlo_literal **elements,
                                              const hlo_literal **out);

/* Steps idx to the next index in row-major order; false after the last.  Starts at zeros; not for empty arrays. */
bool eval_next(int rank, const int64_t *dims, int64_t *idx);
/* Row-major position of idx. */
int64_t eval_offset(int rank, const int64_t *dims, const int64_t *idx);
bool eval_contains(hlo_ints list, int64_t value);
static inline void *eval_at(const hlo_literal *lit, int64_t offset)
{
  return (char *)lit->data + offset * (int64_t)weft_dtype_bytes(lit->shape->type);
}
/* The start indices of dynamic-slice and dynamic-update-slice, from `count` scalars or from one vector; not clamped. */
void eval_start_indices(const hlo_literal *const *indices, int count, int rank, int64_t *starts);

/* A zeroed value of any shape. */
WEFT_NODISCARD weft_status *eval_zeros(eval_ctx *ctx, const hlo_shape *shape, const hlo_literal **out);

/* DEADLINE_EXCEEDED if the deadline of the evaluation has passed, else NULL. */
WEFT_NODISCARD weft_status *eval_check_deadline(const eval_ctx *ctx);

/* The limit of the arenas of a loop or a called computation, all together: half of what the limit of ctx->arena leaves,
 * so that nested loops never hold more than the limit once again.  0: no limit. */
size_t eval_nested_limit(const eval_ctx *ctx);

/* ---- called computations ----------------------------------------------------------------------------------------- */

/* A computation over scalars, prepared for a call for each element of an array. */
typedef struct eval_fn eval_fn;
WEFT_NODISCARD weft_status *eval_fn_new(eval_ctx *ctx, const hlo_computation *comp, eval_fn **out);
void eval_fn_free(eval_fn *fn);
WEFT_DEFINE_AUTO(eval_fn, eval_fn_free)
/* args: one element per parameter.  results: where to put each element of the root (the elements of a tuple in
 * order).  Results may overlap arguments, because all results are written after the last argument is read. */
WEFT_NODISCARD weft_status *eval_fn_call(eval_fn *fn, const void *const *args, void *const *results);

/* hlo_reducer_op of a computation over floats or complex numbers; HLO_OPCODE_COUNT for others. */
hlo_opcode eval_fn_float_op(const eval_fn *fn);

/* Runs `comp` in ctx->arena for all devices of the context.  `arguments` has the values of the first device, then
 * those of the second, and so on, in the shapes of the parameters; `out` gets a result for each device. */
WEFT_NODISCARD weft_status *eval_computation(eval_ctx *ctx, const hlo_computation *comp,
                                             const hlo_literal *const *arguments, const hlo_literal **out);

/* ---- operations, by group ---------------------------------------------------------------------------------------- */

eval_op eval_elementwise, eval_bitcast_convert; /* eval_elem.c */
eval_op eval_broadcast, eval_concatenate, eval_dynamic_reshape, eval_dynamic_slice, eval_dynamic_update_slice,
  eval_gather, eval_get_dimension_size, eval_iota, eval_pad, eval_bitcast, eval_reshape, eval_reverse,
  eval_set_dimension_size, eval_slice, eval_transpose; /* eval_move.c */
eval_op eval_map, eval_reduce, eval_reduce_window, eval_scan, eval_scatter, eval_select_and_scatter, eval_sort,
  eval_topk;                                                          /* eval_reduce.c */
eval_op eval_dot, eval_ragged_dot, eval_scaled_dot, eval_convolution; /* eval_dot.c */
eval_op eval_cholesky, eval_triangular_solve, eval_fft, eval_batch_norm_training, eval_batch_norm_inference,
  eval_batch_norm_grad;                                                             /* eval_linalg.c */
eval_op eval_rng, eval_rng_bit_generator, eval_rng_get_and_update_state;            /* eval_rng.c */
eval_op eval_collective, eval_collective_start, eval_partition_id, eval_replica_id; /* eval_collective.c */

/* glibc gives C11's macros for complex numbers to gcc only. */
#if defined(_Complex_I) && !defined(CMPLXL)
#define CMPLX(re, im) __builtin_complex((double)(re), (double)(im))
#define CMPLXL(re, im) __builtin_complex((long double)(re), (long double)(im))
#endif

#endif
