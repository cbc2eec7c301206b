/* stablehlo/lower.h -- shared by the files of the lowering: lower.c (programs, functions, regions, control flow),
 * lower_ops.c (one function for each kind of operation), lower_chlo.c (CHLO), lower_quant.c (quantized types),
 * lower_dynamic.c (values and shapes that must be known at compile time), lower_shapes.c (sizes computed in other
 * dialects), lower_comm.c (collectives, custom-calls, host), lower_repeat.c (operations equal to earlier ones),
 * lower_refused.c (operations that cannot be lowered and that nothing may need), lower_sdy.c (Shardy's meshes,
 * shardings and manual regions), constraints.c (checks of operations). */
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
  bool busy;              /* the function is being lowered: a call of it now is a recursion */
  bool reached;           /* something calls it */
} lower_function;

typedef struct lower_form lower_form; /* the instructions that an operation has become (lower_repeat.c) */

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
  bool inline_calls;        /* shapes are dynamic: a callee is lowered anew, in place, for each call */
  int depth;                /* the nesting of regions and inlined calls */
  int stamp;                /* the number of the last search for captured values */
  int operation_count;      /* lowered so far */
  int64_t elided_bytes;     /* bytes that the elided constants of the program will take */
  mlir_table names;         /* the module's own strings for operations, source files and functions */
  hlo_frame_builder *frames; /* the call sites in the source, or NULL */
  int last_frame;           /* the highest id of the frames */
  struct { mlir_value *value; hlo_instr *before; } *undo; /* bindings to restore when a region ends */
  int undo_count, undo_capacity;
  const hlo_literal **known; /* by instruction id, in scratch memory: values computed by lower_value */
  int known_capacity;
  int probe_count, probe_capacity;
  lower_probe *probes;      /* interpreter.probe by id */
  hlo_instr *transferred;   /* the token of the last transfer with the host */
  lower_form **forms;       /* operations lowered so far, by hash; or NULL */
  struct lower_refusal *refusals; /* refused operations that nothing may need; or NULL */
  int reducer_count;
  struct { const mlir_op_kind *kind; weft_dtype type; hlo_computation *comp; } reducers[16];
} lowering;

typedef weft_status *lower_rule(lowering *l, const mlir_op *op);

/* How operations of one name are lowered. */
typedef struct lower_entry {
  const char *name;
  lower_rule *rule;
  int code;            /* the hlo_opcode of operations that become one instruction; 0: none; or: */
  int operands;        /* the number of operands; 0: the rule or the inference checks it; or: */
} lower_entry;
enum { LOWER_NO_OPERANDS = -1 };
enum { LOWER_STRUCTURE = -1 }; /* the rule itself handles quantized values and discardable attributes */

/* ---- constraints.c ----------------------------------------------------------------------------------------------- */

/* Checks what the specification demands of an operation beyond what shape inference checks. */
typedef struct lower_constraint { const char *name; lower_rule *check; } lower_constraint;
const lower_constraint *lower_find_constraint(const mlir_op *op); /* or NULL */
/* The same for an operation with an operand or result that is quantized per axis. */
WEFT_NODISCARD weft_status *lower_check_per_axis(const mlir_op *op);

/* ---- lower_repeat.c ---------------------------------------------------------------------------------------------- */

/* If an operation of the same form has been lowered, lowers `op` by repeating its instructions; then *out_done is
 * true. Otherwise *out_place receives the place where lower_note_form is to record the instructions of `op` (those
 * behind `before`), or NULL if `op` cannot be repeated. */
WEFT_NODISCARD weft_status *lower_repeat(lowering *l, const mlir_op *op, lower_form ***out_place, bool *out_done);
WEFT_NODISCARD weft_status *lower_note_form(lowering *l, const mlir_op *op, const hlo_instr *before,
                                            lower_form **place);

/* ---- lower_refused.c --------------------------------------------------------------------------------------------- */

/* Where the lowering of an operation began. */
typedef struct lower_place { hlo_computation *comp; hlo_instr *last; int depth, undo_count; } lower_place;

/* The reason why `op` cannot be lowered: it reads, itself or in its regions, a value that was refused. NULL: there
 * is none. */
WEFT_NODISCARD weft_status *lower_reads_refused(lowering *l, const mlir_op *op);
/* Takes `why`, the error of lowering `op`, and returns it. If `op` could be dropped when nothing reads its results,
 * they become placeholders instead, everything else is restored, and the result is NULL. */
WEFT_NODISCARD weft_status *lower_refuse(lowering *l, const mlir_op *op, const lower_place *before, weft_status *why);
/* To be called at the end of the module. Errors: why an operation that is needed was refused. */
WEFT_NODISCARD weft_status *lower_check_refused(lowering *l);
void lower_free_refused(lowering *l);

/* ---- lower_loc.c ------------------------------------------------------------------------------------------------- */

/* The metadata of a location, shared by all instructions that come from it; NULL if the location says nothing. */
WEFT_NODISCARD weft_status *lower_new_metadata(lowering *l, const mlir_location *location, const hlo_metadata **out);
WEFT_NODISCARD static inline weft_status *lower_metadata(lowering *l, const mlir_location *location,
                                                         const hlo_metadata **out)
{
  if (WEFT_UNLIKELY(location->made_by != l->program->lowerings)) return lower_new_metadata(l, location, out);
  *out = location->metadata;
  return NULL;
}

/* ---- lower.c ----------------------------------------------------------------------------------------------------- */

WEFT_NODISCARD weft_status *lower_op(lowering *l, const mlir_op *op);
/* The rule of an operation of any dialect; NULL: there is none. */
const lower_entry *lower_find_rule(const mlir_op *op);
/* The instruction in the current computation that holds operand `i`. */
WEFT_NODISCARD weft_status *lower_operand(lowering *l, const mlir_op *op, int i, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_value_of(lowering *l, mlir_value *value, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_count_operands(const lower_entry *entry, const mlir_op *op);
WEFT_NODISCARD weft_status *lower_operands(lowering *l, const mlir_op *op, hlo_instr ***out); /* all, in scratch */
/* Makes `instr` result `i`. Its shape must be the one that the program declares. */
WEFT_NODISCARD weft_status *lower_result(lowering *l, const mlir_op *op, int i, hlo_instr *instr);
/* Makes the elements of the tuple `instr` the results; or `instr` itself, if there is one result. */
WEFT_NODISCARD weft_status *lower_tuple_results(lowering *l, const mlir_op *op, hlo_instr *instr);
/* Makes a computation of a region of scalars (of a reduce, a sort, ...). Its parameters have the type `as`
 * (WEFT_INVALID: the declared types) and are converted to what the region expects. */
WEFT_NODISCARD weft_status *lower_scalar_region(lowering *l, const mlir_op *op, int region, const char *name,
                                                weft_dtype as, hlo_computation **out);
/* If the region returns `count` values that are all from outside the region: those values, in scratch memory.
 * Otherwise *out is NULL. */
WEFT_NODISCARD weft_status *lower_captured_results(lowering *l, const mlir_op *op, int region, int count,
                                                   hlo_instr ***out);
/* Undoes bindings until `mark` of them (l->undo_count) are left. */
void lower_unbind(lowering *l, int mark);
/* The computation of a function, which is lowered once. */
WEFT_NODISCARD weft_status *lower_called_function(lowering *l, const char *name, hlo_computation **out);
lower_function *lower_find_function(lowering *l, const char *name);
WEFT_NODISCARD weft_status *lower_shape(lowering *l, const mlir_type *type, const hlo_shape **out);
/* The type's shape if it is static, otherwise NULL. */
WEFT_NODISCARD weft_status *lower_static_shape(lowering *l, const mlir_type *type, const hlo_shape **out);
/* Lowers the operations of a block into the current computation. *out (scratch memory) receives the operands of its
 * terminator. */
WEFT_NODISCARD weft_status *lower_block(lowering *l, const mlir_block *block, int *out_count, hlo_instr ***out);
/* the binding is undone when the region ends */
WEFT_NODISCARD weft_status *lower_bind(lowering *l, mlir_value *value, hlo_instr *instr);
/* The position of an operation as text, for example "4:7". */
#define LOWER_AT(l, op) mlir_position((l)->program, (op)->position, (char[64]){0}, 64)

/* Makes an instruction. lower_finish infers its shape after the attributes are set. */
WEFT_NODISCARD weft_status *lower_emit(lowering *l, hlo_opcode op, const hlo_shape *given, int count,
                                       hlo_instr *const *operands, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_finish(hlo_instr *instr);
/* Does both, for operations without attributes. */
WEFT_NODISCARD weft_status *lower_simple(lowering *l, hlo_opcode op, const hlo_shape *given, int count,
                                         hlo_instr *const *operands, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_unary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_binary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr *y, hlo_instr **out);
/* A constant with the dimensions and the type of x. */
WEFT_NODISCARD weft_status *lower_like(lowering *l, const hlo_instr *x, double value, hlo_instr **out);
/* x itself if it has that type */
WEFT_NODISCARD weft_status *lower_convert(lowering *l, hlo_instr *x, weft_dtype type, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_reshape(lowering *l, hlo_instr *x, int rank, const int64_t *dims, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_broadcast_in_dim(lowering *l, hlo_instr *x, const hlo_shape *to, hlo_ints map,
                                                   hlo_instr **out); /* size 1 expands */
WEFT_NODISCARD weft_status *lower_dense(lowering *l, const mlir_attr *a, hlo_instr **out);
WEFT_NODISCARD weft_status *lower_ints(lowering *l, const mlir_op *op, const char *name, hlo_ints *out);
WEFT_NODISCARD weft_status *lower_new_extra(lowering *l, hlo_instr *instr, hlo_extra **out);
/* Adds the attributes to those that `instr` has. Keys and values are not copied. */
WEFT_NODISCARD weft_status *lower_frontend_attributes(lowering *l, hlo_instr *instr, int count,
                                                      const hlo_key_value *pairs);

/* ---- lower_dynamic.c --------------------------------------------------------------------------------------------- */

/* The value, by constant folding, of an integer array that shapes depend on. Errors: UNIMPLEMENTED if the value
 * depends on an argument. */
WEFT_NODISCARD weft_status *lower_known_ints(lowering *l, hlo_instr *x, hlo_ints *out);
/* The shape of the result: as declared, or with the sizes that operand `i` gives. Errors: INVALID_ARGUMENT if
 * operand `i` is a constant that contradicts the declared shape. */
WEFT_NODISCARD weft_status *lower_shape_operand(lowering *l, const mlir_op *op, int i, weft_dtype type,
                                                const hlo_shape **out);
/* Records the value of an instruction. */
WEFT_NODISCARD weft_status *lower_remember(lowering *l, const hlo_instr *in, const hlo_literal *value);
bool lower_is_dynamic_program(const mlir_program *program, const mlir_module *module);
/* Handles the custom-calls by which JAX writes operations of dynamic shape; *out_known is false for all other
 * targets. */
WEFT_NODISCARD weft_status *lower_dynamic_custom_call(lowering *l, const mlir_op *op, const char *target,
                                                      bool *out_known);
/* The shapes of a custom-call's results: as declared, or from the operands that indices_of_shape_operands names. The
 * call itself does not get those operands (`drop` has a flag for each operand). */
WEFT_NODISCARD weft_status *lower_custom_call_shapes(lowering *l, const mlir_op *op, const hlo_shape **shapes,
                                                     bool *drop);
lower_rule lower_dynamic_broadcast_in_dim, lower_dynamic_conv, lower_dynamic_gather, lower_dynamic_iota,
  lower_dynamic_pad, lower_dynamic_reshape, lower_get_dimension_size, lower_real_dynamic_slice,
  lower_set_dimension_size;

/* ---- lower_ops.c ------------------------------------------------------------------------------------------------- */

/* The entry of a StableHLO operation by name, or NULL; and the lowering of an operation by its entry, with quantized
 * values and attributes. */
const lower_entry *lower_find_entry(const char *name);
WEFT_NODISCARD weft_status *lower_table_op(lowering *l, const mlir_op *op);
WEFT_NODISCARD weft_status *lower_convolution_with(lowering *l, const mlir_op *op, hlo_ints padding);
WEFT_NODISCARD weft_status *lower_gather_with(lowering *l, const mlir_op *op, hlo_ints slice_sizes);
/* window: sizes, strides, base and window dilations, padding. */
WEFT_NODISCARD weft_status *lower_reduce_window_with(lowering *l, const mlir_op *op, int inputs, hlo_computation *f,
                                                     const hlo_ints *window);
WEFT_NODISCARD weft_status *lower_pad_with(lowering *l, const mlir_op *op, hlo_ints low, hlo_ints high,
                                           hlo_ints interior);
WEFT_NODISCARD weft_status *lower_dot_attrs(lowering *l, const mlir_op *op, hlo_dot_attrs **out);

/* ---- lower_shapes.c ---------------------------------------------------------------------------------------------- */

/* The entry of an operation of the dialects shape, tensor and arith by its full name, or NULL. */
const lower_entry *lower_find_shape_entry(const char *name);

/* ---- lower_quant.c ----------------------------------------------------------------------------------------------- */

/* True if an operand or result is quantized and the operation computes with it. Operations that only move elements
 * move the stored integers. */
WEFT_NODISCARD weft_status *lower_is_quantized(const mlir_op *op, bool *out);
/* Lowers a computing operation on quantized values: dequantize, the operation on floats, quantize. */
WEFT_NODISCARD weft_status *lower_quantized_op(lowering *l, const mlir_op *op);
lower_rule lower_uniform_quantize, lower_uniform_dequantize;

/* ---- lower_chlo.c, lower_comm.c ---------------------------------------------------------------------------------- */

lower_rule lower_chlo_op, lower_top_k;
lower_rule lower_all_gather, lower_all_reduce, lower_all_to_all, lower_async_done, lower_async_start, lower_check,
  lower_collective_broadcast, lower_collective_permute, lower_collective_reduce, lower_custom_call, lower_infeed,
  lower_interpreter, lower_outfeed, lower_recv, lower_reduce_scatter, lower_send;
/* ---- lower_sdy.c ------------------------------------------------------------------------------------------------- */
/* Turns a sharding rule into the frontend attribute that holds it in XLA's programs: Shardy's text. */
WEFT_NODISCARD weft_status *lower_sharding_rule(lowering *l, const mlir_attr *rule, hlo_instr *instr);

/* Turns a TensorSharding into a named sharding. */
WEFT_NODISCARD weft_status *lower_sharding(lowering *l, const mlir_attr *sharding, const hlo_sharding **out);
/* Turns {mesh, axes} of replica groups into lists. */
WEFT_NODISCARD weft_status *lower_mesh_groups(lowering *l, const mlir_attr *groups, hlo_replica_groups *out);
/* Sets the module's sharding of its results from what the entry function says about them. */
WEFT_NODISCARD weft_status *lower_result_shardings(lowering *l, const mlir_op *func, int count);
/* Inlines the block of a region: its operations and results take the place of `op`. */
WEFT_NODISCARD weft_status *lower_inlined(lowering *l, const mlir_op *op, hlo_instr *const *args, int *out_count,
                                          hlo_instr ***out_results);
lower_rule lower_manual_computation, lower_sharding_constraint, lower_sharding_group;

/* Puts the sharding and the frontend attributes of an operation or argument (a dictionary's entries) on its
 * instruction. */
WEFT_NODISCARD weft_status *lower_discardable(lowering *l, int count, const mlir_named_attr *attrs, hlo_instr *instr);

#endif
