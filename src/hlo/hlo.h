/* hlo/hlo.h -- the one IR: modules of computations of instructions, with HLO's semantics.
 *
 * Everything lives in the module's arena and dies with it; instructions are unlinked, never freed singly.
 * A computation's list of instructions is at all times a topological order: operands and control predecessors
 * come first.  In a scheduled module (is_scheduled) the list is the schedule.
 * Threads: a module is thread-compatible: one writer, or many readers. */
#ifndef WEFT_HLO_HLO_H
#define WEFT_HLO_HLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "hlo/literal.h"
#include "hlo/opcode.h"
#include "hlo/shape.h"

typedef struct hlo_module hlo_module;
typedef struct hlo_computation hlo_computation;
typedef struct hlo_instr hlo_instr;

/* A counted list of int64 in the arena. */
typedef struct hlo_ints {
  int count;
  const int64_t *v;
} hlo_ints;
bool hlo_ints_equal(hlo_ints a, hlo_ints b);

/* ---- attribute groups ------------------------------------------------------------------------------------------ */

typedef enum hlo_direction { HLO_EQ, HLO_NE, HLO_GE, HLO_GT, HLO_LE, HLO_LT } hlo_direction;
typedef enum hlo_compare_type { /* DEFAULT: the operands' element type decides */
  HLO_COMPARE_DEFAULT, HLO_COMPARE_FLOAT, HLO_COMPARE_TOTALORDER, HLO_COMPARE_SIGNED, HLO_COMPARE_UNSIGNED
} hlo_compare_type;

typedef struct hlo_pad_dim { int64_t low, high, interior; } hlo_pad_dim;

typedef struct hlo_slice_attrs { hlo_ints start, limit, stride; /* empty stride: all 1 */ } hlo_slice_attrs;

typedef struct hlo_window_dim {
  int64_t size, stride, pad_low, pad_high;
  int64_t window_dilation, base_dilation; /* at least 1 */
  bool reversal;
} hlo_window_dim;
typedef struct hlo_window {
  int rank;
  const hlo_window_dim *dims;
} hlo_window;

typedef enum hlo_precision { HLO_PRECISION_DEFAULT, HLO_PRECISION_HIGH, HLO_PRECISION_HIGHEST,
                             HLO_PRECISION_PACKED_NIBBLE } hlo_precision;
/* Numbers of PrecisionConfig.Algorithm. */
typedef enum hlo_dot_algorithm {
  HLO_ALG_UNSET, HLO_ALG_ANY_F8_ANY_F8_F32, HLO_ALG_ANY_F8_ANY_F8_F32_FAST_ACCUM, HLO_ALG_F16_F16_F16,
  HLO_ALG_F16_F16_F32, HLO_ALG_BF16_BF16_BF16, HLO_ALG_BF16_BF16_F32, HLO_ALG_BF16_BF16_F32_X3,
  HLO_ALG_BF16_BF16_F32_X6, HLO_ALG_TF32_TF32_F32, HLO_ALG_TF32_TF32_F32_X3, HLO_ALG_F32_F32_F32,
  HLO_ALG_F64_F64_F64, HLO_ALG_BF16_BF16_F32_X9
} hlo_dot_algorithm;

typedef struct hlo_dot_attrs { /* dot, ragged-dot, scaled-dot */
  hlo_ints lhs_batch, rhs_batch, lhs_contracting, rhs_contracting;
  int precision_count;             /* 0, or the number of operands that have a precision */
  const hlo_precision *precision;
  hlo_dot_algorithm algorithm;
  hlo_ints lhs_ragged, rhs_group;  /* ragged-dot */
  const char *sparsity;            /* sparsity_config text, or NULL */
} hlo_dot_attrs;

typedef struct hlo_conv_attrs { /* convolution; a custom-call may have one, too */
  hlo_window window;
  int64_t lhs_batch, lhs_feature, rhs_in_feature, rhs_out_feature, out_batch, out_feature;
  hlo_ints lhs_spatial, rhs_spatial, out_spatial;
  int64_t feature_group_count, batch_group_count; /* at least 1 */
  int precision_count;
  const hlo_precision *precision;
  int kind;                        /* convolution_kind: proto number, 0 unset */
  const char *sparsity;            /* sparsity_config text, or NULL */
} hlo_conv_attrs;

typedef struct hlo_gather_attrs {
  hlo_ints offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims, start_indices_batching_dims;
  int64_t index_vector_dim;
  hlo_ints slice_sizes;
  bool indices_are_sorted;
} hlo_gather_attrs;

typedef struct hlo_scatter_attrs {
  hlo_ints update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, input_batching_dims,
      scatter_indices_batching_dims;
  int64_t index_vector_dim;
  bool indices_are_sorted, unique_indices;
} hlo_scatter_attrs;

typedef struct hlo_prefetch { bool is_prefetch; int64_t prefetch_index; } hlo_prefetch; /* copy-start */

typedef enum hlo_fft_type { HLO_FFT_FFT, HLO_FFT_IFFT, HLO_FFT_RFFT, HLO_FFT_IRFFT } hlo_fft_type;
typedef enum hlo_transpose { HLO_TRANSPOSE_INVALID, HLO_NO_TRANSPOSE, HLO_DO_TRANSPOSE, HLO_ADJOINT } hlo_transpose;
typedef enum hlo_rng_distribution { HLO_RNG_INVALID, HLO_RNG_UNIFORM, HLO_RNG_NORMAL } hlo_rng_distribution;
typedef enum hlo_rng_algorithm { HLO_RNG_DEFAULT, HLO_RNG_THREE_FRY, HLO_RNG_PHILOX } hlo_rng_algorithm;
typedef enum hlo_fusion_kind { HLO_FUSION_LOOP, HLO_FUSION_INPUT, HLO_FUSION_OUTPUT, HLO_FUSION_CUSTOM } hlo_fusion_kind;

/* One entry of output_to_operand_aliasing. */
typedef struct hlo_output_alias {
  hlo_ints output_index;
  int64_t operand;
  hlo_ints operand_index;
} hlo_output_alias;

/* A mesh and references to its axes, as replica groups and named shardings use them. */
typedef struct hlo_mesh_axis { const char *name; int64_t size; } hlo_mesh_axis;
typedef struct hlo_mesh {
  int axis_count;
  const hlo_mesh_axis *axes;
  hlo_ints device_ids; /* empty: iota */
} hlo_mesh;
typedef struct hlo_axis_ref { const char *name; int64_t pre_size, size; /* 0: the whole axis */ } hlo_axis_ref;

/* replica_groups in each of its forms. */
typedef struct hlo_replica_groups {
  enum { HLO_GROUPS_LIST, HLO_GROUPS_IOTA, HLO_GROUPS_MESH } form;
  int group_count;             /* LIST: 0 means one group of all devices */
  const hlo_ints *groups;      /* LIST */
  int64_t num_groups, group_size;              /* IOTA: [num_groups, group_size] */
  hlo_ints reshape_dims, transpose_perm;       /* IOTA: <=[dims]T(perm); empty perm: identity */
  const hlo_mesh *mesh;                        /* MESH */
  int axis_count;
  const hlo_axis_ref *axes;
} hlo_replica_groups;

typedef struct hlo_collective_attrs { /* every collective, send, recv */
  hlo_replica_groups groups;
  int64_t channel_id;          /* 0: none */
  bool use_global_device_ids, constrain_layout, is_host_transfer, has_dynamic_root;
  int pair_count;              /* source_target_pairs */
  const int64_t (*pairs)[2];
  int slice_count;             /* collective-permute in place: one list for each slice */
  const hlo_ints *slice_sizes;
  int64_t split_count;         /* all-to-all from StableHLO: its split_count; 0 when not given */
} hlo_collective_attrs;

typedef struct hlo_custom_call_attrs {
  const char *target;
  bool has_side_effect;
  int api_version;             /* proto number: 0 unspecified 1 original 2 status 3 unified 4 typed FFI */
  int schedule;                /* 0 none 1 latest 2 earliest */
  const char *padding_type;    /* or NULL */
  int layout_count;            /* operand_layout_constraints */
  const hlo_shape *const *operand_layouts;
  int alias_count;             /* output_to_operand_aliasing */
  const hlo_output_alias *aliases;
  const hlo_literal *literal;  /* or NULL */
  const hlo_conv_attrs *conv;  /* window, dim_labels, feature_group_count where given, or NULL */
} hlo_custom_call_attrs;

/* Sharding (OpSharding, and the named form). */
typedef enum hlo_sharding_kind { HLO_SHARDING_REPLICATED, HLO_SHARDING_MAXIMAL, HLO_SHARDING_TUPLE,
                                 HLO_SHARDING_TILED, HLO_SHARDING_MANUAL, HLO_SHARDING_UNKNOWN,
                                 HLO_SHARDING_UNREDUCED, HLO_SHARDING_NAMED } hlo_sharding_kind;
typedef struct hlo_sharding hlo_sharding;
struct hlo_sharding {
  hlo_sharding_kind kind;
  int64_t maximal_device;
  hlo_ints tile_dims;                    /* TILED: tile_assignment_dimensions, subgroup dims included */
  hlo_ints tile_devices;                 /* explicit list, or empty when iota */
  hlo_ints iota_reshape, iota_transpose; /* iota form */
  bool replicate_last_dim;
  int last_dim_count;                    /* last_tile_dims={...}: kinds */
  const hlo_sharding_kind *last_dims;
  int tuple_count;
  const hlo_sharding *const *elements;   /* TUPLE */
  int shard_group;                       /* 0 none, 1 shard_as, 2 shard_like */
  int64_t shard_group_id;
  const hlo_mesh *mesh;                  /* NAMED */
  int dim_count;
  const struct hlo_named_dim { int axis_count; const hlo_axis_ref *axes; bool open; } *dims;
  int replicated_count, unreduced_count, manual_count;
  const hlo_axis_ref *replicated, *unreduced, *manual;
  int unreduced_kind;                    /* how unreduced axes combine: 0 sum, 1 max, 2 min */
};

typedef struct hlo_metadata {
  const char *op_type, *op_name, *source_file; /* NULL when absent, here and below */
  int source_line, source_end_line, source_column, source_end_column, stack_frame_id;
  const char *rest; /* the other fields, as text to print again */
} hlo_metadata;

typedef struct hlo_key_value { const char *key, *value; } hlo_key_value;

/* result_accuracy of a transcendental. */
typedef struct hlo_accuracy {
  int mode; /* 0 default 1 highest 2 tolerance */
  double atol, rtol;
  int64_t ulps;
} hlo_accuracy;

/* Attributes that few instructions have.  Each may be absent. */
typedef struct hlo_extra {
  const hlo_sharding *sharding;
  int frontend_count;
  const hlo_key_value *frontend_attributes; /* value: the string, or the text "{...}" of a nested map */
  const char *backend_config;               /* string or JSON as given; bytes with a NUL: "hex:00ff..."; NULL: absent */
  bool backend_config_is_json;              /* printed without quotes */
  const hlo_accuracy *accuracy;
  hlo_ints parameter_replication;
  const char *statistics, *origin;          /* text, kept only to be printed again */
  const char *async_thread;                 /* async_execution_thread */
} hlo_extra;

/* ---- instructions ---------------------------------------------------------------------------------------------- */

/* The control predecessors of an instruction, which must run before it, and its control successors, which must run
 * after it. */
typedef struct hlo_control {
  int pred_count, succ_count;
  hlo_instr **preds, **succs;
} hlo_control;

struct hlo_instr { /* a module's memory consists mostly of these: keep the struct small */
  hlo_opcode op;
  uint8_t operand_room, user_room; /* log2 of the capacity of each list; for hlo.c only */
  int id;                    /* unique in the module and below hlo_module.next_id: usable as the index of an array */
  int operand_count, user_count, called_count;
  const hlo_shape *shape;
  const char *name;          /* unique in the computation; without '%' */
  hlo_instr **operands;
  hlo_instr **users;         /* one entry per operand slot that names this instruction, unordered */
  hlo_computation **called;  /* while: body, condition; conditional: branches; select-and-scatter: select, scatter */
  const hlo_control *control; /* never NULL: instructions without control edges share an empty one */
  hlo_computation *parent;   /* NULL once removed */
  hlo_instr *prev, *next;    /* in the computation's list */
  const hlo_metadata *metadata; /* the source of the instruction, or NULL; shared and immutable */
  const hlo_extra *extra;    /* or NULL; shared and immutable: replaced as a whole (hlo_mutable_extra) */

  /* `dimensions`: broadcast, concatenate {d}, iota {d}, map, reduce, reverse, scan {d}, sort {d}, transpose,
   * get/set-dimension-size {d}, all-gather {d}, all-to-all {d} or empty, reduce-scatter {d}, fft_length of fft. */
  hlo_ints dims;
  /* By opcode: the fields that attributes.def declares beside the attributes, as `struct { bool lower, ...; }
   * triangular`. Other opcodes have no attributes here. */
  union {
#define FIELD(...) __VA_ARGS__;
#include "hlo/attributes.def"
  } u;
};

struct hlo_computation {
  const char *name;
  int id;                        /* unique in the module, below next_computation_id */
  hlo_module *module;
  hlo_instr *first, *last;
  int instr_count;
  hlo_instr *root;
  hlo_instr **params;            /* by parameter number */
  int param_count, param_capacity;
  const char *execution_thread;  /* or NULL */
  hlo_computation *prev, *next;  /* in the module's list: callees before callers */
};

typedef struct hlo_input_output_alias {
  hlo_ints output_index;
  int64_t parameter;
  hlo_ints parameter_index;
  bool must_alias;
} hlo_input_output_alias;

typedef struct hlo_buffer_donor { int64_t parameter; hlo_ints parameter_index; } hlo_buffer_donor;

/* The tables of source locations of a module: FileNames, FunctionNames, FileLocations, StackFrames. */
typedef struct hlo_stack_frames hlo_stack_frames;

struct hlo_module {
  weft_arena arena;
  int refs;                      /* atomic; counts the owner and the clones that share attributes in this arena */
  struct hlo_module_ref *sources; /* the modules that this one was cloned from, which it keeps alive */
  const char *name;
  hlo_computation *first, *last; /* callees before callers */
  hlo_computation *entry;
  int computation_count;
  int next_id, next_computation_id;
  int64_t next_suffix;           /* above every number N at the end of a name "stem.N" */
  /* the digits of next_suffix, if `number` equals it; for hlo.c only */
  struct { int64_t number; int count; char text[20]; } suffix_digits;
  bool is_scheduled;
  int64_t replica_count, num_partitions; /* at least 1 */
  bool has_entry_layout;                 /* entry_computation_layout was given: */
  const hlo_shape **entry_param_shapes;  /* by parameter number, with layouts */
  const hlo_shape *entry_result_shape;
  int alias_count, donor_count;
  const hlo_input_output_alias *aliases;
  const hlo_buffer_donor *donors;
  bool alias_passthrough_params;
  int frontend_count;
  const hlo_key_value *frontend_attributes;
  hlo_ints propagate_to_parameters, propagate_to_output; /* allow_spmd_sharding_propagation_to_...: 0/1 */
  const hlo_sharding *spmd_output_sharding;
  int spmd_parameter_count;
  const hlo_sharding *const *spmd_parameter_shardings;
  bool is_dynamic, use_auto_spmd;
  const hlo_stack_frames *stack_frames;  /* or NULL; see frames.h */
  const char *origin_recovery_table, *debug_attributes; /* text of the header, kept only to be printed again; or NULL */
};

/* ---- modules and computations ------------------------------------------------------------------------------------ */

/* Makes an empty module, owned by the caller; `name` is copied. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_module_new(const char *name, hlo_module **out_module);
void hlo_module_free(hlo_module *module); /* NULL is fine */
WEFT_DEFINE_AUTO(hlo_module, hlo_module_free)
/* Writes the module's name to `buf` for use in a file's name.  The module's name may come from anyone, so every
 * character except letters, digits, '-', '_' and '.' becomes '_'; so does a '.' at the beginning. */
enum { HLO_FILE_NAME_BYTES = 128 };
const char *hlo_module_file_name(const hlo_module *module, char buf[HLO_FILE_NAME_BYTES]); /* returns buf */
/* A deep copy, owned by the caller. It shares attributes with `module`, whose memory it keeps alive. Errors:
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_module_clone(const hlo_module *module, hlo_module **out_module);

/* Appends an empty computation.  `name` is copied and must be new in the module (hlo_unique_name makes one). */
WEFT_NODISCARD weft_status *hlo_computation_new(hlo_module *module, const char *name, hlo_computation **out_comp);
/* Copies `comp` and places the copy before `before` in the list (NULL: at the end).  If `comp` is of another module,
 * the computations that it calls are cloned, too, and `module` keeps the memory of the other module alive; within
 * one module the clone calls the same computations.  `name` (NULL: that of `comp`) gets a new number, which makes it
 * unique; the clones of called computations keep their names. */
WEFT_NODISCARD weft_status *hlo_computation_clone(hlo_module *module, const hlo_computation *comp, const char *name,
                                                  hlo_computation *before, hlo_computation **out_comp);
/* Moves a computation to the place before `before` (NULL: to the end); the caller keeps callees before callers. */
void hlo_computation_move_before(hlo_computation *comp, hlo_computation *before);
/* Unlinks a computation that nothing calls. */
void hlo_computation_remove(hlo_computation *comp);
/* Removes the computations that the entry does not reach by calls, and orders the rest callees first. */
WEFT_NODISCARD weft_status *hlo_module_gc(hlo_module *module);
/* Restores the topological order of a computation's list after edits that broke it.  The sort is stable. */
WEFT_NODISCARD weft_status *hlo_computation_sort(hlo_computation *comp);
static inline hlo_instr *hlo_parameter(const hlo_computation *comp, int64_t number) { return comp->params[number]; }

/* Removes parameter `number`, which must have no users, and renumbers the parameters behind it.  The caller changes
 * the operands of the instructions that call `comp`. */
void hlo_computation_remove_parameter(hlo_computation *comp, int64_t number);

/* Inside both loops the current item may be removed. */
#define HLO_FOREACH(instr, comp) \
  for (hlo_instr *instr = (comp)->first, *next_##instr = instr ? instr->next : NULL; instr; \
       instr = next_##instr, next_##instr = instr ? instr->next : NULL)
#define HLO_FOREACH_COMPUTATION(comp, module) \
  for (hlo_computation *comp = (module)->first, *next_##comp = comp ? comp->next : NULL; comp; \
       comp = next_##comp, next_##comp = comp ? comp->next : NULL)

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* Adds an instruction of that opcode and shape at the end of `comp`, or before `before` if that is not NULL.  The
 * shape is borrowed: it must live as long as the module, and usually lies in the module's arena.  The new
 * instruction becomes a user of its operands.  `name` is copied and must be new in the computation; NULL: the
 * opcode's name with a new number.  The union and dims are zero: set them after.  Use hlo_add_parameter for
 * parameters. */
WEFT_NODISCARD weft_status *hlo_add(hlo_computation *comp, hlo_instr *before, hlo_opcode op, const hlo_shape *shape,
                                    int operand_count, hlo_instr *const *operands, const char *name,
                                    hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_parameter(hlo_computation *comp, int64_t number, const hlo_shape *shape,
                                              const char *name, hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_constant(hlo_computation *comp, hlo_instr *before, const hlo_literal *literal,
                                             hlo_instr **out_instr);
/* Adds the same operation on other operands of the same shapes at the end of `comp`.  The new instruction has the
 * shape, attributes and called computations of `instr`, which must be of this module, but not its metadata and
 * `extra`. */
WEFT_NODISCARD weft_status *hlo_add_again(hlo_computation *comp, const hlo_instr *instr, hlo_instr *const *operands,
                                          hlo_instr **out_instr);
/* Adds a copy of `instr` under a new name with other operands (NULL: the same).  The copy shares attributes, called
 * computations, metadata and `extra`.  `instr` is of this module or of one that this module was cloned from.  Not
 * for parameters. */
WEFT_NODISCARD weft_status *hlo_add_clone(hlo_computation *comp, hlo_instr *before, const hlo_instr *instr,
                                          hlo_instr *const *operands, hlo_instr **out_instr);
/* Common operations.  The result's shape follows from the operands and the arguments. */
WEFT_NODISCARD weft_status *hlo_add_unary(hlo_computation *comp, hlo_instr *before, hlo_opcode op, hlo_instr *x,
                                          hlo_instr **out_instr); /* result shape: that of x */
WEFT_NODISCARD weft_status *hlo_add_binary(hlo_computation *comp, hlo_instr *before, hlo_opcode op, hlo_instr *x,
                                           hlo_instr *y, hlo_instr **out_instr); /* result shape: that of x */
WEFT_NODISCARD weft_status *hlo_add_compare(hlo_computation *comp, hlo_instr *before, hlo_direction direction,
                                            hlo_instr *x, hlo_instr *y, hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_convert(hlo_computation *comp, hlo_instr *before, hlo_instr *x, weft_dtype type,
                                            hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_reshape(hlo_computation *comp, hlo_instr *before, hlo_instr *x, int rank,
                                            const int64_t *dims, hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_transpose(hlo_computation *comp, hlo_instr *before, hlo_instr *x,
                                              const int64_t *permutation, hlo_instr **out_instr);
/* Broadcasts x to `rank` dimensions; dimension i of x becomes result dimension map[i]. */
WEFT_NODISCARD weft_status *hlo_add_broadcast(hlo_computation *comp, hlo_instr *before, hlo_instr *x, int rank,
                                              const int64_t *dims, const int64_t *map, hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_slice(hlo_computation *comp, hlo_instr *before, hlo_instr *x, const int64_t *start,
                                          const int64_t *limit, const int64_t *stride /* NULL: ones */,
                                          hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_reduce(hlo_computation *comp, hlo_instr *before, hlo_instr *x, hlo_instr *init,
                                           int dim_count, const int64_t *dims, hlo_computation *reducer,
                                           hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_tuple(hlo_computation *comp, hlo_instr *before, int count,
                                          hlo_instr *const *elements, hlo_instr **out_instr);
WEFT_NODISCARD weft_status *hlo_add_gte(hlo_computation *comp, hlo_instr *before, hlo_instr *tuple, int64_t index,
                                        hlo_instr **out_instr);
/* A scalar constant by value. */
WEFT_NODISCARD weft_status *hlo_add_scalar(hlo_computation *comp, hlo_instr *before, weft_dtype type, double value,
                                           hlo_instr **out_instr);
/* A computation op(p0, p1) on two scalars of that type, for use as a reducer. */
WEFT_NODISCARD weft_status *hlo_add_reducer(hlo_module *module, hlo_opcode op, weft_dtype type,
                                            hlo_computation **out_comp);
/* Makes the name "stem.N" in the module's arena, with an N that no name in the module has.  A number at the end of
 * `stem` is replaced. */
WEFT_NODISCARD weft_status *hlo_unique_name(hlo_module *module, const char *stem, const char **out_name);
/* Copies the lists into the attributes of `slice`. */
WEFT_NODISCARD weft_status *hlo_set_slice(hlo_instr *slice, int rank, const int64_t *start, const int64_t *limit,
                                          const int64_t *stride /* NULL: ones */);
/* Copies ints into the module's arena; count 0 gives {0, NULL}. */
WEFT_NODISCARD weft_status *hlo_ints_new(hlo_module *module, int count, const int64_t *v, hlo_ints *out_ints);

/* ---- editing ----------------------------------------------------------------------------------------------------- */

/* Replaces or appends an operand, which must be of the same computation; the caller keeps the list topological
 * (hlo_computation_sort) and the shapes right. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_set_operand(hlo_instr *instr, int index, hlo_instr *operand);
WEFT_NODISCARD weft_status *hlo_append_operand(hlo_instr *instr, hlo_instr *operand);
void hlo_keep_operands(hlo_instr *instr, const bool *keep); /* keep[i]: for operand i; the others are dropped */
/* Makes the users of `from` use `to` instead; if `from` was the root, `to` becomes the root.  Control edges stay
 * with `from`.  If `to` itself uses `from`, that use stays. */
WEFT_NODISCARD weft_status *hlo_replace_uses(hlo_instr *from, hlo_instr *to);
/* hlo_replace_uses; then the control edges of `from` move to `to`, and `from` is removed unless it is a parameter or
 * still used by `to`. */
WEFT_NODISCARD weft_status *hlo_replace(hlo_instr *from, hlo_instr *to);
/* Unlinks an instruction that has no users and is not the root.  Its operands stay.  Each control predecessor gets
 * an edge to each control successor.  Errors: INTERNAL for a root, a parameter or an instruction with users. */
WEFT_NODISCARD weft_status *hlo_remove(hlo_instr *instr);
/* Removes `instr`, and then every operand that has become dead (hlo_is_dead), directly or through others. */
WEFT_NODISCARD weft_status *hlo_remove_with_dead_operands(hlo_instr *instr);
/* `from` runs first; no effect if the edge exists */
WEFT_NODISCARD weft_status *hlo_add_control_edge(hlo_instr *from, hlo_instr *to);
void hlo_remove_control_edges(hlo_instr *instr);
WEFT_NODISCARD weft_status *hlo_set_called(hlo_instr *instr, int count, hlo_computation *const *called);
void hlo_move_before(hlo_instr *instr,
                     hlo_instr *before); /* NULL: to the end; the caller keeps the order topological */
WEFT_NODISCARD weft_status *hlo_set_name(hlo_instr *instr, const char *name); /* copied; new in its computation */
/* Gives `instr` an unshared copy of its extra attributes (all absent if it had none), and returns it writable. */
WEFT_NODISCARD weft_status *hlo_mutable_extra(hlo_instr *instr, hlo_extra **out_extra);

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static inline hlo_instr *hlo_operand(const hlo_instr *instr, int index) { return instr->operands[index]; }
bool hlo_has_side_effect(const hlo_instr *instr); /* itself or in what it calls */
bool hlo_is_dead(const hlo_instr *instr); /* no users, not root, no control edges, no side effect, no parameter */
bool hlo_is_constant_scalar(const hlo_instr *instr,
                            double value); /* a constant, or a broadcast of one, whose elements all equal `value` */
/* True for the same opcode, shape, attributes, operands (the same instructions) and called computations (equal
 * content).  Names, metadata and control edges are not compared. */
bool hlo_instr_equal(const hlo_instr *a, const hlo_instr *b);
bool hlo_instr_alike(const hlo_instr *a, const hlo_instr *b); /* the same, but for which operands they have */
bool hlo_computation_equal(const hlo_computation *a, const hlo_computation *b);
/* equal instructions have equal hashes; operands count by id */
uint64_t hlo_instr_hash(const hlo_instr *instr);
uint64_t hlo_computation_hash(const hlo_computation *comp); /* of the content; names and ids do not count */
/* True for the same groups in the same form. */
bool hlo_replica_groups_equal(const hlo_replica_groups *a, const hlo_replica_groups *b);
/* Floating-point operations of a dot or convolution, two for each multiply-add; 0 for other instructions. */
double hlo_multiply_add_flops(const hlo_instr *instr);
/* The number of iterations of a counted loop, which passes (and XLA's dumps) write into its backend_config as
 * {"known_trip_count":{"n":"5"}}; -1 if it is not known. */
int64_t hlo_known_trip_count(const hlo_instr *loop);
/* The opcode if `comp` is op(a, b) or op(b, a) of its two parameters and op is commutative (a reducer); else
 * HLO_OPCODE_COUNT. */
hlo_opcode hlo_reducer_op(const hlo_computation *comp);
/* True if the computations that the opcode calls run once for each element inside a kernel (reduce, map, sort, ...);
 * false for while, call, conditional, fusion, async operations and custom-call. */
bool hlo_calls_are_embedded(hlo_opcode op);
/* The range of the ids of a computation's instructions: a table by id needs `*out_count` entries, the first for
 * `*out_least`.  A computation is mostly built in one go, so the table is about as long as the list of instructions. */
void hlo_id_range(const hlo_computation *comp, int *out_least, int *out_count);
/* A frontend attribute's value, or NULL. */
const char *hlo_frontend_attribute(const hlo_instr *instr, const char *key);
/* For messages: writes "%dot.7 (jit(f)/dot_general, step.py:41)" to `buf`, at most `size` bytes, and returns buf. */
const char *hlo_describe(const hlo_instr *instr, char *buf, size_t size);

#endif
