/* stablehlo/lower.h -- what the files of the lowering share: lower.c (programs, functions, regions, control flow),
 * lower_ops.c (one function per kind of operation), lower_chlo.c (CHLO), lower_quant.c (quantized types),
 * lower_dynamic.c (values and shapes that must be known now), lower_shapes.c (sizes worked out in other dialects), lower_comm.c (collectives, custom-calls, host),
 * lower_repeat.c (operations like earlier ones), lower_refused.c (operations that cannot be lowered and may be of no use),
 * lower_sdy.c (Shardy's meshes, shardings and manual regions), constraints.c (what is checked of operations). */
#ifndef WEFT_STABLEHLO_LOWER_H
#define WEFT_STABLEHLO_LOWER_H

#include "hlo/frames.h"
#include "hlo/infer.h"
#include "stablehlo/mlir.h"
#include "stablehlo/stablehlo.h"

typedef struct lower_function {
  const char *name;
  const mlir_op *op;
  hlo_computation *comp;  /* once lowered */
  bool busy;              /* being lowered: a call of it now is recursion */
  bool reached;           /* something calls it */
} lower_function;

typedef struct lower_form lower_form; /* what an operation has become (lower_repeat.c) */

typedef struct lower_probe { const char *id; hlo_instr *instr; } lower_probe;

typedef struct lowering {
  const mlir_program *program;
  const mlir_module *source;
  hlo_module *module;
  weft_arena *arena;        /* the module's */
  hlo_computation *comp;    /* where instructions go */
  weft_arena scratch;
  int function_count;
  lower_function *functions;
  bool inline_calls;        /* shapes are dynamic: a callee is lowered anew for each call, in place */
  int depth;                /* of regions and inlined calls */
  int stamp;                /* of the last search for captured values */
  int operation_count;      /* lowered so far */
  int64_t elided_bytes;     /* of constants without elements */
  mlir_table names;         /* of operations, source files and functions: what the module has of each */
  hlo_frame_builder *frames; /* calls in the source, or NULL */
  int last_frame;           /* the highest id of them */
  struct { mlir_value *value; hlo_instr *before; } *undo; /* bindings to restore when a region ends */
  int undo_count, undo_capacity;
  const hlo_literal **known; /* by instruction id: values worked out by lower_value, in scratch */
  int known_capacity;
  int probe_count, probe_capacity;
  lower_probe *probes;      /* interpreter.probe by id */
  hlo_instr *transferred;   /* token of the last transfer with the host */
  lower_form **forms;       /* of operations so far, by hash, or NULL */
  struct lower_refusal *refusals; /* what may turn out to be of no use, or NULL */
  int reducer_count;
  struct { const mlir_op_kind *kind; weft_dtype type; hlo_computation *comp; } reducers[16];
} lowering;

typedef weft_status *lower_rule(lowering *l, const mlir_op *op);

/* What becomes of the operations of a name. */
typedef struct lower_entry {
  const char *name;
  lower_rule *rule;
  int code;            /* hlo_opcode of operations that become one instruction; 0: none; or: */
  int operands;        /* how many there must be; 0: the rule or inference knows; or: */
} lower_entry;
enum { LOWER_NO_OPERANDS = -1 };
enum { LOWER_STRUCTURE = -1 }; /* quantized values and discardable attributes are the rule's affair */

/* ---- constraints.c ------------------------------------------------------------------------------------------------ */

/* What the specification demands of an operation beyond what inference checks. */
typedef struct lower_constraint { const char *name; lower_rule *check; } lower_constraint;
const lower_constraint *lower_find_constraint(const mlir_op *op); /* or NULL */
/* Of an operation with an operand or result that is quantized per axis. */
WEFT_NODISCARD weft_status *lower_check_per_axis(const mlir_op *op);

/* ---- lower_repeat.c ----------------------------------------------------------------------------------------------- */

/* Done if an operation of that form came before; or else what `op` has become, the instructions behind `before`, is noted
 * for the next in *out_place, unless that is NULL: it cannot be repeated. */
WEFT_NODISCARD weft_status *lower_repeat(lowering *l, const mlir_op *op, lower_form ***out_place, bool *out_done);
WEFT_NODISCARD weft_status *lower_note_form(lowering *l, const mlir_op *op, const hlo_instr *before, lower_form **place);

/* ---- lower_refused.c ---------------------------------------------------------------------------------------------- */

/* Where the lowering of an operation began. */
typedef struct lower_place { hlo_computation *comp; hlo_instr *last; int depth, undo_count; } lower_place;

/* Why `op` cannot be lowered: it reads, here or in its regions, what was refused; else NULL. */
WEFT_NODISCARD weft_status *lower_reads_refused(lowering *l, const mlir_op *op);
/* Takes `why`, the error of lowering `op`, and returns it; unless `op` would be dropped if nothing read its results: then
 * they are placeholders, and all is as before it. */
WEFT_NODISCARD weft_status *lower_refuse(lowering *l, const mlir_op *op, const lower_place *before, weft_status *why);
/* Of the whole module, at its end.  Errors: why an operation was refused that something needs. */
WEFT_NODISCARD weft_status *lower_check_refused(lowering *l);
void lower_free_refused(lowering *l);

/* ---- lower_loc.c -------------------------------------------------------------------------------------------------- */

/* What a location says, shared by all that comes from it; NULL if it says nothing. */
WEFT_NODISCARD weft_status *lower_new_metadata(lowering *l, const mlir_location *location, const hlo_metadata **out);
WEFT_NODISCARD static inline weft_status *lower_metadata(lowering *l, const mlir_location *location, const hlo_metadata **out)
{
  if (WEFT_UNLIKELY(location->made_by != l->program->lowerings)) return lower_new_metadata(l, location, out);
  *out = location->metadata;
  return NULL;
}

/* ---- lower.c ------------------------------------------------------------------------------------------------------ */

WEFT_NODISCARD weft_status *lower_op(lowering *l, const mlir_op *op);
const lower_entry *lower_find_rule(const mlir_op *op); /* of any dialect; NULL: there is none */
/* The instruction that holds operand `i`, in the current computation. */
WEFT_NODISCARD weft_status *lower_operand(lowering *l, const mlir_op *op, int i, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_value_of(lowering *l, mlir_value *value, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_count_operands(const lower_entry *entry, const mlir_op *op);
WEFT_NODISCARD weft_status *lower_operands(lowering *l, const mlir_op *op, hlo_instr ***out); /* all, in scratch */
/* Result `i` is `instr`, whose shape must be what the program says. */
WEFT_NODISCARD weft_status *lower_result(lowering *l, const mlir_op *op, int i, hlo_instr *instr);
/* Results are the elements of the tuple `instr`, or the one result is `instr` itself. */
WEFT_NODISCARD weft_status *lower_tuple_results(lowering *l, const mlir_op *op, hlo_instr *instr);
/* A region of scalars (of a reduce, sort, ...) as a computation.  Its parameters are of type `as` (WEFT_INVALID: as
 * declared) and converted to what the region expects. */
WEFT_NODISCARD weft_status *lower_scalar_region(lowering *l, const mlir_op *op, int region, const char *name,
                                                weft_dtype as, hlo_computation **out);
/* What the region gives back, in scratch, if that is `count` values that are all from outside; else *out is NULL. */
WEFT_NODISCARD weft_status *lower_captured_results(lowering *l, const mlir_op *op, int region, int count, hlo_instr ***out);
/* Undoes bindings down to `mark` of l->undo_count. */
void lower_unbind(lowering *l, int mark);
/* A function as a computation, lowered once. */
WEFT_NODISCARD weft_status *lower_called_function(lowering *l, const char *name, hlo_computation **out);
lower_function *lower_find_function(lowering *l, const char *name);
WEFT_NODISCARD weft_status *lower_shape(lowering *l, const mlir_type *type, const hlo_shape **out);
/* The type's shape if it is static, else NULL. */
WEFT_NODISCARD weft_status *lower_static_shape(lowering *l, const mlir_type *type, const hlo_shape **out);
/* The operations of a block in the current computation; the operands of its terminator in *out (scratch). */
WEFT_NODISCARD weft_status *lower_block(lowering *l, const mlir_block *block, int *out_count, hlo_instr ***out);
WEFT_NODISCARD weft_status *lower_bind(lowering *l, mlir_value *value, hlo_instr *instr); /* undone when the region ends */
/* "4:7" of an operation. */
#define LOWER_AT(l, op) mlir_position((l)->program, (op)->position, (char[64]){0}, 64)

/* Makes an instruction whose shape lower_finish works out once the attributes are set. */
WEFT_NODISCARD weft_status *lower_emit(lowering *l, hlo_opcode op, const hlo_shape *given, int count,
                                       hlo_instr *const *operands, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_finish(hlo_instr *instr);
/* Both, for operations without attributes. */
WEFT_NODISCARD weft_status *lower_simple(lowering *l, hlo_opcode op, const hlo_shape *given, int count,
                                         hlo_instr *const *operands, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_unary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_binary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr *y, hlo_instr **out);
/* A constant of x's dimensions and type. */
WEFT_NODISCARD weft_status *lower_like(lowering *l, const hlo_instr *x, double value, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_convert(lowering *l, hlo_instr *x, weft_dtype type, hlo_instr **out); /* x if it is that */
WEFT_NODISCARD weft_status *lower_reshape(lowering *l, hlo_instr *x, int rank, const int64_t *dims, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_broadcast_in_dim(lowering *l, hlo_instr *x, const hlo_shape *to, hlo_ints map,
                                                   hlo_instr **out); /* size 1 expands */
WEFT_NODISCARD weft_status *lower_dense(lowering *l, const mlir_attr *a, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_ints(lowering *l, const mlir_op *op, const char *name, hlo_ints *out);
WEFT_NODISCARD weft_status *lower_new_extra(lowering *l, hlo_instr *instr, hlo_extra **out);
/* Adds them to those that `instr` has; keys and values stay where they are. */
WEFT_NODISCARD weft_status *lower_frontend_attributes(lowering *l, hlo_instr *instr, int count, const hlo_key_value *pairs);

/* ---- lower_dynamic.c ---------------------------------------------------------------------------------------------- */

/* The value of an integer array that shapes depend on, by constant folding.
 * Errors: UNIMPLEMENTED, if it depends on an argument. */
WEFT_NODISCARD weft_status *lower_known_ints(lowering *l, hlo_instr *x, hlo_ints *out);
/* The result's shape: as declared, or with the sizes that operand `i` gives.
 * Errors: INVALID_ARGUMENT, if operand `i` is a constant that says something else. */
WEFT_NODISCARD weft_status *lower_shape_operand(lowering *l, const mlir_op *op, int i, weft_dtype type, const hlo_shape **out);
/* From here on the value of an instruction is known. */
WEFT_NODISCARD weft_status *lower_remember(lowering *l, const hlo_instr *in, const hlo_literal *value);
bool lower_is_dynamic_program(const mlir_program *program, const mlir_module *module);
/* The custom-calls by which JAX writes operations of dynamic shape; *out_known is false for any other target. */
WEFT_NODISCARD weft_status *lower_dynamic_custom_call(lowering *l, const mlir_op *op, const char *target, bool *out_known);
/* Shapes of a custom-call's results: as declared, or from the operands that indices_of_shape_operands names, which the
 * call itself does not get (`drop`: a flag per operand). */
WEFT_NODISCARD weft_status *lower_custom_call_shapes(lowering *l, const mlir_op *op, const hlo_shape **shapes, bool *drop);
lower_rule lower_dynamic_broadcast_in_dim, lower_dynamic_conv, lower_dynamic_gather, lower_dynamic_iota,
    lower_dynamic_pad, lower_dynamic_reshape, lower_get_dimension_size, lower_real_dynamic_slice,
    lower_set_dimension_size;

/* ---- lower_ops.c -------------------------------------------------------------------------------------------------- */

/* The entry of an operation of StableHLO by name, or NULL; the operation by that entry (quantized values, attributes). */
const lower_entry *lower_find_entry(const char *name);
WEFT_NODISCARD weft_status *lower_table_op(lowering *l, const mlir_op *op);
WEFT_NODISCARD weft_status *lower_convolution_with(lowering *l, const mlir_op *op, hlo_ints padding);
WEFT_NODISCARD weft_status *lower_gather_with(lowering *l, const mlir_op *op, hlo_ints slice_sizes);
WEFT_NODISCARD weft_status *lower_reduce_window_with(lowering *l, const mlir_op *op, int inputs, hlo_computation *f,
                                                     const hlo_ints *window /* sizes, strides, base and window dilations,
                                                                              * padding */);
WEFT_NODISCARD weft_status *lower_pad_with(lowering *l, const mlir_op *op, hlo_ints low, hlo_ints high,
                                           hlo_ints interior);
WEFT_NODISCARD weft_status *lower_dot_attrs(lowering *l, const mlir_op *op, hlo_dot_attrs **out);

/* ---- lower_shapes.c ----------------------------------------------------------------------------------------------- */

/* The entry of an operation of the dialects shape, tensor and arith by its whole name, or NULL. */
const lower_entry *lower_find_shape_entry(const char *name);

/* ---- lower_quant.c ------------------------------------------------------------------------------------------------ */

/* An operand or result is quantized and the operation computes with it; what only moves elements moves stored ones. */
WEFT_NODISCARD weft_status *lower_is_quantized(const mlir_op *op, bool *out);
/* An operation on quantized values that computes: dequantize, the operation on floats, quantize. */
WEFT_NODISCARD weft_status *lower_quantized_op(lowering *l, const mlir_op *op);
lower_rule lower_uniform_quantize, lower_uniform_dequantize;

/* ---- lower_chlo.c, lower_comm.c ----------------------------------------------------------------------------------- */

lower_rule lower_chlo_op, lower_top_k;
lower_rule lower_all_gather, lower_all_reduce, lower_all_to_all, lower_async_done, lower_async_start, lower_check,
    lower_collective_broadcast, lower_collective_permute, lower_collective_reduce, lower_custom_call, lower_infeed,
    lower_interpreter, lower_outfeed, lower_recv, lower_reduce_scatter, lower_send;
/* ---- lower_sdy.c -------------------------------------------------------------------------------------------------- */
/* A sharding rule becomes the frontend attribute that XLA's programs have it in: Shardy's text. */
WEFT_NODISCARD weft_status *lower_sharding_rule(lowering *l, const mlir_attr *rule, hlo_instr *instr);

/* A TensorSharding as a named sharding. */
WEFT_NODISCARD weft_status *lower_sharding(lowering *l, const mlir_attr *sharding, const hlo_sharding **out);
/* {mesh, axes} of replica groups as lists. */
WEFT_NODISCARD weft_status *lower_mesh_groups(lowering *l, const mlir_attr *groups, hlo_replica_groups *out);
/* The module's sharding of its results, from what the entry function says of them. */
WEFT_NODISCARD weft_status *lower_result_shardings(lowering *l, const mlir_op *func, int count);
/* The block of a region inlined: its operations and results in the place of `op`. */
WEFT_NODISCARD weft_status *lower_inlined(lowering *l, const mlir_op *op, hlo_instr *const *args, int *out_count,
                                          hlo_instr ***out_results);
lower_rule lower_manual_computation, lower_sharding_constraint, lower_sharding_group;

/* Sharding and frontend attributes of an operation or argument (a dictionary's entries), on its instruction. */
WEFT_NODISCARD weft_status *lower_discardable(lowering *l, int count, const mlir_named_attr *attrs, hlo_instr *instr);

#endif
