/* stablehlo/raise.h -- turns HLO modules into StableHLO, the reverse of lower*.c. Shared by raise.c (the module,
 * functions, regions, control flow, the table of rules), raise_build.c (makes types, attributes, operations and
 * values), raise_ops.c (instructions that compute or move elements), raise_comm.c (custom-calls and communication)
 * and raise_loc.c (locations).
 *
 * The module becomes the operations of mlir.h, which print.c prints. Tuples dissolve: the value of an instruction is
 * one MLIR value or a list of values (`raised`), and operations take and give leaves. stablehlo.tuple appears only
 * where a tuple passes through a call. Computations of loops, branches and reducers become regions; those of calls,
 * fusions and custom-calls become private functions. A pair of start and done becomes the operation itself, in the
 * place of the start. Copies and domains become their operands. Layouts stay where they mean something: at the
 * entry, at custom-calls, and in bitcasts, which become transpose, reshape and bitcast_convert. */
#ifndef WEFT_STABLEHLO_RAISE_H
#define WEFT_STABLEHLO_RAISE_H

#include <setjmp.h>

#include "stablehlo/mlir.h"

typedef struct raised raised;
struct raised {
  mlir_value *value;            /* NULL: the value is a tuple of */
  int count;
  const raised *const *elements;
};

typedef struct raising {
  mlir_program program;         /* its arena holds everything that is made */
  jmp_buf stop;
  weft_status *st;              /* why raising stopped; NULL: there was no memory */
  const hlo_module *module;
  mlir_block *block;            /* where operations go */
  const raised **at;            /* by instruction id */
  /* operations that may still be made, because a computation may be called from many places */
  size_t left;
  int depth;                    /* of regions */
  const mlir_location *location; /* the location of the operations being made, or NULL */
  const mlir_location **stacks; /* by the number of the frame, from 0; NULL until first used */
  bool aliases_by_argument;     /* otherwise the module says them */
} raising;

typedef struct raised_values { mlir_value **v; int count, capacity; } raised_values;

/* ---- raise_build.c ----------------------------------------------------------------------------------------------- */

/* Gives up by a long jump, which is safe because everything is in the arena. */
_Noreturn void raise_give_up(raising *r, weft_status *st);
void raise_check(raising *r, weft_status *st); /* gives up if the status is an error */
#define REFUSE(r, in, ...) raise_give_up(r, weft_status_note(WEFT_ERR(UNIMPLEMENTED, __VA_ARGS__), __FILE__, __LINE__, \
                                                             "%s", hlo_describe(in, (char[160]){0}, 160)))
#define MAKE(r, type, count) WEFT_ARENA_ARRAY(&(r)->program.arena, type, count)
#define TEXT(r, ...) weft_arena_printf(&(r)->program.arena, __VA_ARGS__)

/* Types: of a kind with `elements`, of an array, and of a value of shape `s`. */
const mlir_type *raise_new_type(raising *r, mlir_type_kind kind, int count, const mlir_type *const *elements);
const mlir_type *raise_array_type(raising *r, weft_dtype type, int rank, const int64_t *dims);
const mlir_type *raise_type_of(raising *r, const hlo_shape *s);

/* Attributes. */
mlir_attr *raise_new_attr(raising *r, mlir_attr_kind kind);
const mlir_attr *raise_number(raising *r, weft_dtype type, int64_t v);
const mlir_attr *raise_truth(raising *r, bool v);
const mlir_attr *raise_real(raising *r, weft_dtype type, double v);
const mlir_attr *raise_words(raising *r, mlir_attr_kind kind, const char *s);
const mlir_attr *raise_of_type(raising *r, const mlir_type *type);
const mlir_attr *raise_list(raising *r, int count, const mlir_attr *const *items);
const mlir_attr *raise_ints(raising *r, int count, const int64_t *v);
const mlir_attr *raise_dict(raising *r, int count, const mlir_named_attr *items);
const mlir_attr *raise_literal_attr(raising *r, const hlo_literal *l);
const mlir_attr *raise_matrix(raising *r, int64_t rows, int64_t columns, const int64_t *v);
const mlir_attr *raise_sharding_attr(raising *r, const hlo_sharding *sharding);

/* Makes operations at the end of the current block. */
mlir_op *raise_emit(raising *r, const char *spelling, int operand_count, mlir_value *const *operands, int result_count,
                    const mlir_type *const *types);
mlir_value *raise_make(raising *r, const char *spelling, int count, mlir_value *const *operands, const mlir_type *type);
void raise_set(raising *r, mlir_op *op, const char *name, const mlir_attr *value);
void raise_set_ints(raising *r, mlir_op *op, const char *name, hlo_ints v);
void raise_set_int(raising *r, mlir_op *op, const char *name, int64_t v);
void raise_set_extra(raising *r, mlir_op *op, const hlo_instr *in);
/* Makes an operation with all operands and results of `in` and with its further attributes; the results become the
 * value of `in`. */
mlir_op *raise_as_op(raising *r, const hlo_instr *in, const char *spelling);
mlir_op *raise_give(raising *r, const hlo_instr *in, mlir_op *op);

/* Values of instructions and operands. A tuple is a list of values; raise_value_of makes a stablehlo.tuple of it. */
const raised *raise_single(raising *r, mlir_value *value);
const raised *raise_tuple_of(raising *r, int count, const raised *const *elements);
const raised *raise_operand(raising *r, const hlo_instr *in, int i);
mlir_value *raise_value_of(raising *r, const raised *x);
const raised *raise_element(raising *r, const raised *x, int64_t i);
mlir_value *raise_array_operand(raising *r, const hlo_instr *in, int i);
void raise_push(raising *r, raised_values *list, mlir_value *v);
void raise_push_leaves(raising *r, raised_values *list, const raised *x);
raised_values raise_operand_leaves(raising *r, const hlo_instr *in, int first);
const mlir_type **raise_leaf_types(raising *r, const hlo_shape *s, int *out_count);
const raised *raise_from_leaves(raising *r, const hlo_shape *s, mlir_value *leaves, int *at);
const raised *raise_results_of(raising *r, const mlir_op *op, const hlo_shape *s);

/* ---- raise_loc.c ------------------------------------------------------------------------------------------------- */

const mlir_location *raise_location(raising *r, const hlo_instr *in); /* NULL: not known */

/* ---- raise.c ----------------------------------------------------------------------------------------------------- */

/* Makes the computations that `in` calls the regions of `op`. */
void raise_called(raising *r, mlir_op *op, const hlo_instr *in);
/* True if a function with a result of shape `s` returns the elements of a flat tuple as results of their own; else it
 * returns one value. */
bool raise_gives_elements(const hlo_shape *s);
const mlir_type **raise_function_results(raising *r, const hlo_shape *s, int *out_count);
/* The entry is "main"; a computation of that name gets another one. */
const char *raise_function_name(raising *r, const hlo_computation *c);
/* The operation that calls functions with whole values (call, custom_call, composite); raise_give_call makes its
 * results the value of `in`. */
mlir_op *raise_as_call(raising *r, const hlo_instr *in, const char *spelling);
void raise_give_call(raising *r, const hlo_instr *in, mlir_op *op);
/* The dictionary that `text` is in MLIR's assembly; NULL: it is none. */
const mlir_attr *raise_parsed_dict(raising *r, const char *text);

typedef void raise_rule(raising *r, const hlo_instr *in);

/* ---- raise_ops.c ------------------------------------------------------------------------------------------------- */

/* Constants and operations on single values. */
mlir_value *raise_scalar(raising *r, weft_dtype type, int64_t v);
mlir_value *raise_slice_of(raising *r, mlir_value *x, const int64_t *start, const int64_t *limit,
                           const int64_t *stride);
mlir_value *raise_reshaped(raising *r, mlir_value *x, int rank, const int64_t *dims);
mlir_value *raise_broadcast_to(raising *r, mlir_value *x, int rank, const int64_t *dims, const int64_t *map);
raise_rule raise_elementwise, raise_compare, raise_reduce_precision, raise_with_dims, raise_constant, raise_pad,
  raise_slice, raise_dynamic_slice, raise_gather, raise_scatter, raise_reduce, raise_reduce_window,
  raise_select_and_scatter, raise_map, raise_sort, raise_scan, raise_top_k, raise_dot, raise_ragged_dot,
  raise_scaled_dot, raise_convolution, raise_fft, raise_cholesky, raise_triangular_solve, raise_batch_norm, raise_rng,
  raise_rng_bit_generator, raise_rng_state, raise_stochastic_convert, raise_bitcast, raise_dynamic_reshape;

/* ---- raise_comm.c ------------------------------------------------------------------------------------------------ */

raise_rule raise_custom_call, raise_all_reduce, raise_all_gather, raise_reduce_scatter, raise_collective_permute,
  raise_collective_broadcast, raise_all_to_all, raise_collective_start, raise_async_start, raise_copy_start,
  raise_second_of_start, raise_first_of_start, raise_send, raise_send_done, raise_recv, raise_recv_done, raise_feed,
  raise_ragged_all_to_all;

#endif
