/* hlo/text_attrs.c -- the attributes of instructions and modules: one table that both the reader and the printer use.
 *
 * An attribute has a name, a place (a field of the instruction, of its opcode's group, of hlo_extra, of the module) and a
 * kind: how the field is read, when it goes without saying, and how it is printed.  Each opcode has the list of its own
 * attributes, in the order in which they print; every instruction may have the common ones. */
#include <config.h>

#include "hlo/text_kinds.h"

enum { /* flags of an attribute */
  REQUIRED = 1,
  ALWAYS = 2, /* printed even when it has the usual value */
  OLD = 4,    /* read only: another spelling of what an entry further up prints */
};

typedef struct attr_list { const hlo_attr *attrs; int count; } attr_list;

/* What one opcode has. */
typedef struct op_attrs {
  attr_list own;
  size_t group_bytes;         /* of the group that a pointer in hlo_instr.u leads to; 0: none */
  const void *group_defaults; /* or NULL: zeros */
} op_attrs;

/* ---- words, by number ------------------------------------------------------------------------------------------------ */

#define WORDS(name) static const char *const name[HLO_MAX_WORDS]
WORDS(direction_words) = {"EQ", "NE", "GE", "GT", "LE", "LT"};
WORDS(compare_words) = {NULL, "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
WORDS(fft_words) = {"FFT", "IFFT", "RFFT", "IRFFT"};
WORDS(transpose_words) = {NULL, "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
WORDS(distribution_words) = {NULL, "rng_uniform", "rng_normal"};
WORDS(rng_words) = {"rng_default", "rng_three_fry", "rng_philox"};
WORDS(fusion_words) = {"kLoop", "kInput", "kOutput", "kCustom"};
WORDS(convolution_words) = {NULL, "fprop", "dgrad", "wgrad"};
WORDS(schedule_words) = {"SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"};
WORDS(api_words) = {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
                    "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
WORDS(algorithm_words) = {
  "dot_unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
  "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32",
  "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9",
};

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define INSTR(field) IN_INSTR, offsetof(hlo_instr, field)
#define DOT(field) IN_GROUP, offsetof(hlo_dot_attrs, field)
#define CONV(field) IN_GROUP, offsetof(hlo_conv_attrs, field)
#define SLICE(field) IN_GROUP, offsetof(hlo_slice_attrs, field)
#define GATHER(field) IN_GROUP, offsetof(hlo_gather_attrs, field)
#define SCATTER(field) IN_GROUP, offsetof(hlo_scatter_attrs, field)
#define CUSTOM(field) IN_GROUP, offsetof(hlo_custom_call_attrs, field)
#define CUSTOM_CONV(field) IN_CUSTOM_CONV, offsetof(hlo_conv_attrs, field)
#define COLLECTIVE(field) IN_GROUP, offsetof(hlo_collective_attrs, field)
#define EXTRA(field) IN_EXTRA, offsetof(hlo_extra, field)
#define MODULE(field) IN_MODULE, offsetof(hlo_module, field)

#define DIMENSIONS {"dimensions", &hlo_kind_ints, INSTR(dims), REQUIRED | ALWAYS, 0, NULL}
#define TO_APPLY {"to_apply", &hlo_kind_computation, CALLED, 0, REQUIRED, 0, NULL}

static const hlo_attr compare_attrs[] = {
  {"direction", &hlo_kind_enum, INSTR(u.compare.direction), REQUIRED | ALWAYS, 0, direction_words},
  {"type", &hlo_kind_enum, INSTR(u.compare.type), 0, 0, compare_words},
};
static const hlo_attr reduce_precision_attrs[] = {
  {"exponent_bits", &hlo_kind_int32, INSTR(u.reduce_precision.exponent_bits), REQUIRED | ALWAYS, 0, NULL},
  {"mantissa_bits", &hlo_kind_int32, INSTR(u.reduce_precision.mantissa_bits), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr dims_attrs[] = {DIMENSIONS};
static const hlo_attr broadcast_attrs[] = {{"dimensions", &hlo_kind_ints, INSTR(dims), ALWAYS, 0, NULL}};
static const hlo_attr iota_attrs[] = {{"iota_dimension", &hlo_kind_dim, INSTR(dims), REQUIRED, 0, NULL}};
static const hlo_attr reshape_attrs[] = {{"inferred_dimension", &hlo_kind_dim, INSTR(dims), 0, 0, NULL}};
static const hlo_attr dynamic_slice_attrs[] = {
  {"dynamic_slice_sizes", &hlo_kind_ints, INSTR(u.slice_sizes), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr slice_attrs[] = {{"slice", &hlo_kind_slice, SLICE(start), REQUIRED, 0, NULL}};
static const hlo_attr pad_attrs[] = {{"padding", &hlo_kind_padding, INSTR(u.pad.rank), REQUIRED, 0, NULL}};
static const hlo_attr gather_attrs[] = {
  {"offset_dims", &hlo_kind_ints, GATHER(offset_dims), REQUIRED | ALWAYS, 0, NULL},
  {"collapsed_slice_dims", &hlo_kind_ints, GATHER(collapsed_slice_dims), REQUIRED | ALWAYS, 0, NULL},
  {"start_index_map", &hlo_kind_ints, GATHER(start_index_map), REQUIRED | ALWAYS, 0, NULL},
  {"operand_batching_dims", &hlo_kind_ints, GATHER(operand_batching_dims), 0, 0, NULL},
  {"start_indices_batching_dims", &hlo_kind_ints, GATHER(start_indices_batching_dims), 0, 0, NULL},
  {"index_vector_dim", &hlo_kind_int64, GATHER(index_vector_dim), REQUIRED | ALWAYS, 0, NULL},
  {"slice_sizes", &hlo_kind_ints, GATHER(slice_sizes), REQUIRED | ALWAYS, 0, NULL},
  {"indices_are_sorted", &hlo_kind_bool, GATHER(indices_are_sorted), 0, 0, NULL},
};
static const hlo_attr scatter_attrs[] = {
  {"update_window_dims", &hlo_kind_ints, SCATTER(update_window_dims), REQUIRED | ALWAYS, 0, NULL},
  {"inserted_window_dims", &hlo_kind_ints, SCATTER(inserted_window_dims), REQUIRED | ALWAYS, 0, NULL},
  {"scatter_dims_to_operand_dims", &hlo_kind_ints, SCATTER(scatter_dims_to_operand_dims), REQUIRED | ALWAYS, 0, NULL},
  {"input_batching_dims", &hlo_kind_ints, SCATTER(input_batching_dims), 0, 0, NULL},
  {"scatter_indices_batching_dims", &hlo_kind_ints, SCATTER(scatter_indices_batching_dims), 0, 0, NULL},
  {"index_vector_dim", &hlo_kind_int64, SCATTER(index_vector_dim), REQUIRED | ALWAYS, 0, NULL},
  {"indices_are_sorted", &hlo_kind_bool, SCATTER(indices_are_sorted), 0, 0, NULL},
  {"unique_indices", &hlo_kind_bool, SCATTER(unique_indices), 0, 0, NULL},
  TO_APPLY,
};
#define DOT_DIMS                                                                \
  {"lhs_batch_dims", &hlo_kind_ints, DOT(lhs_batch), 0, 0, NULL},               \
  {"lhs_contracting_dims", &hlo_kind_ints, DOT(lhs_contracting), 0, 0, NULL},   \
  {"rhs_batch_dims", &hlo_kind_ints, DOT(rhs_batch), 0, 0, NULL},               \
  {"rhs_contracting_dims", &hlo_kind_ints, DOT(rhs_contracting), 0, 0, NULL}
static const hlo_attr dot_attrs[] = {
  DOT_DIMS,
  {"sparsity_config", &hlo_kind_braces, DOT(sparsity), 0, 0, NULL},
  {"operand_precision", &hlo_kind_precision, DOT(precision_count), 0, 0, NULL},
  {"algorithm", &hlo_kind_enum, DOT(algorithm), 0, HLO_ALG_UNSET, algorithm_words},
};
static const hlo_attr ragged_dot_attrs[] = {
  DOT_DIMS,
  {"lhs_ragged_dims", &hlo_kind_ints, DOT(lhs_ragged), 0, 0, NULL},
  {"rhs_group_dims", &hlo_kind_ints, DOT(rhs_group), 0, 0, NULL},
  {"operand_precision", &hlo_kind_precision, DOT(precision_count), 0, 0, NULL},
};
static const hlo_attr conv_attrs[] = {
  {"window", &hlo_kind_window, CONV(window), 0, 0, NULL},
  {"dim_labels", &hlo_kind_dim_labels, CONV(window), REQUIRED, 0, NULL}, /* the whole group is the field */
  {"feature_group_count", &hlo_kind_count, CONV(feature_group_count), 0, 1, NULL},
  {"batch_group_count", &hlo_kind_count, CONV(batch_group_count), 0, 1, NULL},
  {"operand_precision", &hlo_kind_precision, CONV(precision_count), 0, 0, NULL},
  {"convolution_kind", &hlo_kind_enum, CONV(kind), 0, 0, convolution_words},
  {"sparsity_config", &hlo_kind_braces, CONV(sparsity), 0, 0, NULL},
};
_Static_assert(offsetof(hlo_conv_attrs, window) == 0, "dim_labels takes the group by its first field");
static const hlo_attr reduce_attrs[] = {DIMENSIONS, TO_APPLY};
static const hlo_attr map_attrs[] = {{"dimensions", &hlo_kind_ints, INSTR(dims), ALWAYS, 0, NULL}, TO_APPLY};
static const hlo_attr reduce_window_attrs[] = {
  {"window", &hlo_kind_window, IN_GROUP, 0, ALWAYS, 0, NULL},
  TO_APPLY,
};
static const hlo_attr select_and_scatter_attrs[] = {
  {"window", &hlo_kind_window, IN_GROUP, 0, ALWAYS, 0, NULL},
  {"select", &hlo_kind_computation, CALLED, 0, REQUIRED, 0, NULL},
  {"scatter", &hlo_kind_computation, CALLED, 1, REQUIRED, 0, NULL},
};
static const hlo_attr scan_attrs[] = {
  DIMENSIONS,
  {"num_carries", &hlo_kind_int64, INSTR(u.scan.num_carries), 0, 0, NULL},
  {"is_reverse", &hlo_kind_bool, INSTR(u.scan.is_reverse), 0, 0, NULL},
  {"is_associative", &hlo_kind_tristate, INSTR(u.scan.is_associative), 0, 0, NULL},
  TO_APPLY,
};
static const hlo_attr sort_attrs[] = {
  DIMENSIONS,
  {"is_stable", &hlo_kind_bool, INSTR(u.is_stable), 0, 0, NULL},
  TO_APPLY,
};
static const hlo_attr topk_attrs[] = {
  {"k", &hlo_kind_int64, INSTR(u.topk.k), REQUIRED | ALWAYS, 0, NULL},
  {"largest", &hlo_kind_bool, INSTR(u.topk.largest), REQUIRED | ALWAYS, 0, NULL},
  {"is_stable", &hlo_kind_bool, INSTR(u.topk.is_stable), 0, 0, NULL},
};
static const hlo_attr fft_attrs[] = {
  {"fft_type", &hlo_kind_enum, INSTR(u.fft_type), REQUIRED | ALWAYS, 0, fft_words},
  {"fft_length", &hlo_kind_ints, INSTR(dims), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr cholesky_attrs[] = {{"lower", &hlo_kind_bool, INSTR(u.lower), 0, 0, NULL}};
static const hlo_attr triangular_attrs[] = {
  {"left_side", &hlo_kind_bool, INSTR(u.triangular.left_side), 0, 0, NULL},
  {"lower", &hlo_kind_bool, INSTR(u.triangular.lower), 0, 0, NULL},
  {"unit_diagonal", &hlo_kind_bool, INSTR(u.triangular.unit_diagonal), 0, 0, NULL},
  {"transpose_a", &hlo_kind_enum, INSTR(u.triangular.transpose_a), 0, HLO_TRANSPOSE_INVALID, transpose_words},
};
static const hlo_attr batch_norm_attrs[] = {
  {"epsilon", &hlo_kind_float, INSTR(u.batch_norm.epsilon), REQUIRED, 0, NULL},
  {"feature_index", &hlo_kind_int64, INSTR(u.batch_norm.feature_index), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr rng_attrs[] = {
  {"distribution", &hlo_kind_enum, INSTR(u.distribution), REQUIRED | ALWAYS, 0, distribution_words},
};
static const hlo_attr rng_bits_attrs[] = {
  {"algorithm", &hlo_kind_enum, INSTR(u.rng_algorithm), REQUIRED | ALWAYS, 0, rng_words},
};
static const hlo_attr rng_state_attrs[] = {{"delta", &hlo_kind_int64, INSTR(u.delta), REQUIRED | ALWAYS, 0, NULL}};
static const hlo_attr domain_attrs[] = {{"domain", &hlo_kind_domain, INSTR(u.domain.entry), REQUIRED, 0, NULL}};
static const hlo_attr gte_attrs[] = {{"index", &hlo_kind_int64, INSTR(u.tuple_index), REQUIRED | ALWAYS, 0, NULL}};
static const hlo_attr call_attrs[] = {
  TO_APPLY,
  {"is_composite", &hlo_kind_bool, INSTR(u.is_composite), 0, 0, NULL},
};
static const hlo_attr fusion_attrs[] = {
  {"kind", &hlo_kind_enum, INSTR(u.fusion.kind), REQUIRED | ALWAYS, 0, fusion_words},
  {"output_to_operand_aliasing", &hlo_kind_output_aliases, INSTR(u.fusion.alias_count), 0, 0, NULL},
  {"calls", &hlo_kind_computation, CALLED, 0, REQUIRED, 0, NULL},
};
static const hlo_attr while_attrs[] = {
  {"condition", &hlo_kind_computation, CALLED, 1, REQUIRED, 0, NULL},
  {"body", &hlo_kind_computation, CALLED, 0, REQUIRED, 0, NULL},
};
static const hlo_attr conditional_attrs[] = {
  {"true_computation", &hlo_kind_branch, CALLED, 0, 0, 0, NULL},
  {"false_computation", &hlo_kind_branch, CALLED, 1, 0, 0, NULL},
  {"branch_computations", &hlo_kind_branches, CALLED, 0, 0, 0, NULL},
};
static const hlo_attr custom_call_attrs[] = {
  {"window", &hlo_kind_window, CUSTOM_CONV(window), 0, 0, NULL},
  {"dim_labels", &hlo_kind_dim_labels, CUSTOM_CONV(window), 0, 0, NULL},
  {"feature_group_count", &hlo_kind_count, CUSTOM_CONV(feature_group_count), 0, 1, NULL},
  {"batch_group_count", &hlo_kind_count, CUSTOM_CONV(batch_group_count), 0, 1, NULL},
  {"operand_precision", &hlo_kind_precision, CUSTOM_CONV(precision_count), 0, 0, NULL},
  {"custom_call_target", &hlo_kind_string, CUSTOM(target), REQUIRED, 0, NULL},
  {"operand_layout_constraints", &hlo_kind_shapes, CUSTOM(layout_count), 0, 0, NULL},
  {"custom_call_has_side_effect", &hlo_kind_bool, CUSTOM(has_side_effect), 0, 0, NULL},
  {"literal", &hlo_kind_literal, CUSTOM(literal), 0, 0, NULL},
  {"output_to_operand_aliasing", &hlo_kind_output_aliases, CUSTOM(alias_count), 0, 0, NULL},
  {"padding_type", &hlo_kind_word, CUSTOM(padding_type), 0, 0, NULL},
  {"schedule", &hlo_kind_enum, CUSTOM(schedule), 0, 0, schedule_words},
  {"api_version", &hlo_kind_enum, CUSTOM(api_version), 0, 0, api_words},
  {"called_computations", &hlo_kind_computations, CALLED, 0, 0, 0, NULL},
  {"to_apply", &hlo_kind_computation, CALLED, 0, OLD, 0, NULL},
  {"opaque", &hlo_kind_config, EXTRA(backend_config), OLD, 0, NULL},
};
#define CHANNEL {"channel_id", &hlo_kind_int64, COLLECTIVE(channel_id), 0, 0, NULL}
#define GROUPS                                                                                \
  {"replica_groups", &hlo_kind_groups, COLLECTIVE(groups), ALWAYS, 0, NULL},                      \
  {"constrain_layout", &hlo_kind_bool, COLLECTIVE(constrain_layout), 0, 0, NULL},                 \
  {"use_global_device_ids", &hlo_kind_bool, COLLECTIVE(use_global_device_ids), 0, 0, NULL},   \
  {"mode", &hlo_kind_ignored, COLLECTIVE(groups), OLD, 0, NULL} /* says what the others imply */
static const hlo_attr all_reduce_attrs[] = {CHANNEL, GROUPS, TO_APPLY};
static const hlo_attr reduce_scatter_attrs[] = {CHANNEL, GROUPS, DIMENSIONS, TO_APPLY};
static const hlo_attr all_gather_attrs[] = {CHANNEL, GROUPS, DIMENSIONS};
static const hlo_attr all_to_all_attrs[] = {CHANNEL, GROUPS, {"dimensions", &hlo_kind_ints, INSTR(dims), 0, 0, NULL}};
static const hlo_attr group_attrs[] = {CHANNEL, GROUPS, {"has_dynamic_root", &hlo_kind_bool, COLLECTIVE(has_dynamic_root), 0, 0, NULL}};
static const hlo_attr permute_attrs[] = {
  CHANNEL,
  {"source_target_pairs", &hlo_kind_pairs, COLLECTIVE(pair_count), REQUIRED | ALWAYS, 0, NULL},
  {"slice_sizes", &hlo_kind_int_lists, COLLECTIVE(slice_count), 0, 0, NULL},
};
static const hlo_attr send_attrs[] = {
  CHANNEL,
  {"is_host_transfer", &hlo_kind_bool, COLLECTIVE(is_host_transfer), 0, 0, NULL},
  {"source_target_pairs", &hlo_kind_pairs, COLLECTIVE(pair_count), 0, 0, NULL},
};
static const hlo_attr infeed_attrs[] = {{"infeed_config", &hlo_kind_string, INSTR(u.feed.config), 0, 0, NULL}};
static const hlo_attr outfeed_attrs[] = {
  {"outfeed_shape", &hlo_kind_shape, INSTR(u.feed.outfeed_shape), 0, 0, NULL},
  {"outfeed_config", &hlo_kind_string, INSTR(u.feed.config), 0, 0, NULL},
};
static const hlo_attr async_start_attrs[] = {
  {"output_to_operand_aliasing", &hlo_kind_output_aliases, INSTR(u.fusion.alias_count), 0, 0, NULL},
  {"calls", &hlo_kind_computation, CALLED, 0, REQUIRED, 0, NULL},
};
static const hlo_attr async_rest_attrs[] = {{"calls", &hlo_kind_computation, CALLED, 0, 0, 0, NULL}};
static const hlo_attr copy_start_attrs[] = {
  {"cross_program_prefetch_index", &hlo_kind_prefetch, INSTR(u), 0, 0, NULL},
  {"is_cross_program_prefetch", &hlo_kind_bool, INSTR(u.copy_start.is_prefetch), OLD, 0, NULL},
};

static const hlo_attr common_attrs[] = {
  {"result_accuracy", &hlo_kind_accuracy, EXTRA(accuracy), 0, 0, NULL},
  {"sharding", &hlo_kind_sharding, EXTRA(sharding), 0, 0, NULL},
  {"parameter_replication", &hlo_kind_bools, EXTRA(parameter_replication), 0, 0, NULL},
  {"async_execution_thread", &hlo_kind_string, EXTRA(async_thread), 0, 0, NULL},
  {"frontend_attributes", &hlo_kind_map, EXTRA(frontend_count), 0, 0, NULL},
  {"control-predecessors", &hlo_kind_control_preds, INSTR(control), 0, 0, NULL},
  {"statistics", &hlo_kind_braces, EXTRA(statistics), 0, 0, NULL},
  {"origin", &hlo_kind_braces, EXTRA(origin), 0, 0, NULL},
  {"original_value", &hlo_kind_braces, EXTRA(origin), OLD, 0, NULL},
  {"metadata", &hlo_kind_metadata, INSTR(metadata), 0, 0, NULL},
  {"backend_config", &hlo_kind_config, EXTRA(backend_config), 0, 0, NULL},
};

static const hlo_attr module_attrs[] = {
  {"is_scheduled", &hlo_kind_bool, MODULE(is_scheduled), 0, 0, NULL},
  {"input_output_alias", &hlo_kind_io_aliases, MODULE(aliases), 0, 0, NULL},
  {"buffer_donor", &hlo_kind_donors, MODULE(donors), 0, 0, NULL},
  {"alias_passthrough_params", &hlo_kind_bool, MODULE(alias_passthrough_params), 0, 0, NULL},
  {"entry_computation_layout", &hlo_kind_entry_layout, MODULE(entry_result_shape), 0, 0, NULL},
  {"allow_spmd_sharding_propagation_to_parameters", &hlo_kind_bools, MODULE(propagate_to_parameters), 0, 0, NULL},
  {"allow_spmd_sharding_propagation_to_output", &hlo_kind_bools, MODULE(propagate_to_output), 0, 0, NULL},
  {"replica_count", &hlo_kind_count, MODULE(replica_count), 0, 1, NULL},
  {"num_partitions", &hlo_kind_count, MODULE(num_partitions), 0, 1, NULL},
  {"frontend_attributes", &hlo_kind_map, MODULE(frontend_count), 0, 0, NULL},
  {"origin_recovery_table", &hlo_kind_braces, MODULE(origin_recovery_table), 0, 0, NULL},
  {"original_value_recovery_table", &hlo_kind_braces, MODULE(origin_recovery_table), OLD, 0, NULL},
  {"debug_attributes", &hlo_kind_braces, MODULE(debug_attributes), 0, 0, NULL},
};

#define LIST(array) {(array), WEFT_COUNT(array)}
static const attr_list common_list = LIST(common_attrs), module_list = LIST(module_attrs);
static const hlo_conv_attrs conv_defaults = {.feature_group_count = 1, .batch_group_count = 1};

#define COLLECTIVE_OP(list) {LIST(list), sizeof(hlo_collective_attrs), NULL}
#define COLLECTIVE_DONE {{NULL, 0}, sizeof(hlo_collective_attrs), NULL}
static const op_attrs op_table[HLO_OPCODE_COUNT] = {
  [HLO_ALL_GATHER] = COLLECTIVE_OP(all_gather_attrs),
  [HLO_ALL_GATHER_DONE] = COLLECTIVE_DONE,
  [HLO_ALL_GATHER_START] = COLLECTIVE_OP(all_gather_attrs),
  [HLO_ALL_REDUCE] = COLLECTIVE_OP(all_reduce_attrs),
  [HLO_ALL_REDUCE_DONE] = COLLECTIVE_DONE,
  [HLO_ALL_REDUCE_START] = COLLECTIVE_OP(all_reduce_attrs),
  [HLO_ALL_TO_ALL] = COLLECTIVE_OP(all_to_all_attrs),
  [HLO_ASYNC_DONE] = {LIST(async_rest_attrs), 0, NULL},
  [HLO_ASYNC_START] = {LIST(async_start_attrs), 0, NULL},
  [HLO_ASYNC_UPDATE] = {LIST(async_rest_attrs), 0, NULL},
  [HLO_BATCH_NORM_GRAD] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BATCH_NORM_INFERENCE] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BATCH_NORM_TRAINING] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BROADCAST] = {LIST(broadcast_attrs), 0, NULL},
  [HLO_CALL] = {LIST(call_attrs), 0, NULL},
  [HLO_CHOLESKY] = {LIST(cholesky_attrs), 0, NULL},
  [HLO_COLLECTIVE_BROADCAST] = COLLECTIVE_OP(group_attrs),
  [HLO_COLLECTIVE_PERMUTE] = COLLECTIVE_OP(permute_attrs),
  [HLO_COLLECTIVE_PERMUTE_DONE] = COLLECTIVE_DONE,
  [HLO_COLLECTIVE_PERMUTE_START] = COLLECTIVE_OP(permute_attrs),
  [HLO_COMPARE] = {LIST(compare_attrs), 0, NULL},
  [HLO_CONCATENATE] = {LIST(dims_attrs), 0, NULL},
  [HLO_CONDITIONAL] = {LIST(conditional_attrs), 0, NULL},
  [HLO_CONVOLUTION] = {LIST(conv_attrs), sizeof(hlo_conv_attrs), &conv_defaults},
  [HLO_COPY_START] = {LIST(copy_start_attrs), 0, NULL},
  [HLO_CUSTOM_CALL] = {LIST(custom_call_attrs), sizeof(hlo_custom_call_attrs), NULL},
  [HLO_DOMAIN] = {LIST(domain_attrs), 0, NULL},
  [HLO_DOT] = {LIST(dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_DYNAMIC_SLICE] = {LIST(dynamic_slice_attrs), 0, NULL},
  [HLO_FFT] = {LIST(fft_attrs), 0, NULL},
  [HLO_FUSION] = {LIST(fusion_attrs), 0, NULL},
  [HLO_GATHER] = {LIST(gather_attrs), sizeof(hlo_gather_attrs), NULL},
  [HLO_GET_DIMENSION_SIZE] = {LIST(dims_attrs), 0, NULL},
  [HLO_GET_TUPLE_ELEMENT] = {LIST(gte_attrs), 0, NULL},
  [HLO_INFEED] = {LIST(infeed_attrs), 0, NULL},
  [HLO_IOTA] = {LIST(iota_attrs), 0, NULL},
  [HLO_MAP] = {LIST(map_attrs), 0, NULL},
  [HLO_OUTFEED] = {LIST(outfeed_attrs), 0, NULL},
  [HLO_PAD] = {LIST(pad_attrs), 0, NULL},
  [HLO_RAGGED_ALL_TO_ALL] = COLLECTIVE_OP(all_to_all_attrs),
  [HLO_RAGGED_DOT] = {LIST(ragged_dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_RECV] = COLLECTIVE_OP(send_attrs),
  [HLO_RECV_DONE] = COLLECTIVE_OP(send_attrs),
  [HLO_REDUCE] = {LIST(reduce_attrs), 0, NULL},
  [HLO_REDUCE_PRECISION] = {LIST(reduce_precision_attrs), 0, NULL},
  [HLO_REDUCE_SCATTER] = COLLECTIVE_OP(reduce_scatter_attrs),
  [HLO_REDUCE_WINDOW] = {LIST(reduce_window_attrs), sizeof(hlo_window), NULL},
  [HLO_RESHAPE] = {LIST(reshape_attrs), 0, NULL},
  [HLO_REVERSE] = {LIST(dims_attrs), 0, NULL},
  [HLO_RNG] = {LIST(rng_attrs), 0, NULL},
  [HLO_RNG_BIT_GENERATOR] = {LIST(rng_bits_attrs), 0, NULL},
  [HLO_RNG_GET_AND_UPDATE_STATE] = {LIST(rng_state_attrs), 0, NULL},
  [HLO_SCALED_DOT] = {LIST(dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_SCAN] = {LIST(scan_attrs), 0, NULL},
  [HLO_SCATTER] = {LIST(scatter_attrs), sizeof(hlo_scatter_attrs), NULL},
  [HLO_SELECT_AND_SCATTER] = {LIST(select_and_scatter_attrs), sizeof(hlo_window), NULL},
  [HLO_SEND] = COLLECTIVE_OP(send_attrs),
  [HLO_SEND_DONE] = COLLECTIVE_OP(send_attrs),
  [HLO_SET_DIMENSION_SIZE] = {LIST(dims_attrs), 0, NULL},
  [HLO_SLICE] = {LIST(slice_attrs), sizeof(hlo_slice_attrs), NULL},
  [HLO_SORT] = {LIST(sort_attrs), 0, NULL},
  [HLO_TOPK] = {LIST(topk_attrs), 0, NULL},
  [HLO_TRANSPOSE] = {LIST(dims_attrs), 0, NULL},
  [HLO_TRIANGULAR_SOLVE] = {LIST(triangular_attrs), 0, NULL},
  [HLO_WHILE] = {LIST(while_attrs), 0, NULL},
};

/* ---- reading ------------------------------------------------------------------------------------------------------ */

weft_status *hlo_init_attributes(hlo_instr *instr)
{
  const op_attrs *op = &op_table[instr->op];
  weft_arena *arena = &instr->parent->module->arena;
  void *group;

  if (op->group_bytes) {
    group = weft_arena_alloc(arena, op->group_bytes);
    WEFT_TRY_ALLOC(group);
    if (op->group_defaults) memcpy(group, op->group_defaults, op->group_bytes);
    memcpy(&instr->u, &group, sizeof group);
  }
  return NULL;
}

/* Where the attribute's value is.  For the printer NULL means: not there. */
static void *field_of(attr_site *site, const hlo_attr *attr, hlo_extra *extra)
{
  char *base = NULL;

  switch (attr->base) {
  case IN_INSTR: base = (char *)site->instr; break;
  case IN_GROUP: memcpy(&base, &site->instr->u, sizeof base); break;
  case IN_CUSTOM_CONV: base = (char *)site->instr->u.custom->conv; break;
  case IN_EXTRA: base = (char *)extra; break;
  case IN_MODULE: base = (char *)site->module; break;
  case CALLED: return site->instr;
  }
  return base ? base + attr->offset : NULL;
}

static weft_status *read_attr(hlo_reader *r, attr_site *site, const hlo_attr *attr)
{
  if (attr->base == IN_CUSTOM_CONV && !site->instr->u.custom->conv) {
    hlo_custom_call_attrs *custom = (hlo_custom_call_attrs *)site->instr->u.custom;
    custom->conv = weft_arena_memdup(r->arena, &conv_defaults, sizeof conv_defaults);
    WEFT_TRY_ALLOC(custom->conv);
  }
  if (attr->base == IN_EXTRA) site->has_extra = true;
  return attr->kind->read(r, (attr_value){site, attr, field_of(site, attr, &site->extra)});
}

static int find_attr(attr_list list, hlo_span name)
{
  for (int i = 0; i < list.count; i++)
    if (hlo_span_is(name, list.attrs[i].name)) return i;
  return -1;
}

/* One `name=value` into whichever of the lists knows the name.  seen[i] has a bit for each attribute of lists[i]. */
static weft_status *read_one(hlo_reader *r, int list_count, const attr_list *lists, attr_site *const *sites,
                             uint64_t *seen, const char *owner)
{
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "an attribute", &name));
  for (int l = 0; l < list_count; l++) {
    int i = find_attr(lists[l], name);

    if (i < 0) continue;
    if (seen[l] >> i & 1) return hlo_rd_error(r, name.p, "%s is given twice", lists[l].attrs[i].name);
    seen[l] |= UINT64_C(1) << i;
    WEFT_TRY(hlo_rd_expect(r, '='));
    return read_attr(r, sites[l], &lists[l].attrs[i]);
  }
  return hlo_rd_error(r, name.p, "%s has no attribute \"%.*s\"", owner, (int)WEFT_MIN(name.length, 60u), name.p);
}

static weft_status *check_required(const hlo_reader *r, const char *at, attr_list list, uint64_t seen, const char *owner)
{
  for (int i = 0; i < list.count; i++)
    if (list.attrs[i].flags & REQUIRED && !(seen >> i & 1))
      return hlo_rd_error(r, at, "%s needs the attribute \"%s\"", owner, list.attrs[i].name);
  return NULL;
}

/* Moves what was collected beside the instruction into it. */
static weft_status *finish_site(hlo_reader *r, attr_site *site)
{
  hlo_instr *instr = site->instr;

  for (int i = 0; i < site->called_count; i++)
    if (!site->called[i])
      return hlo_rd_error(r, r->p, "%s lacks a called computation", hlo_opcode_name(instr->op));
  if (site->called_count) WEFT_TRY(hlo_set_called(instr, site->called_count, site->called));
  if (site->has_extra) {
    instr->extra = weft_arena_memdup(r->arena, &site->extra, sizeof site->extra);
    WEFT_TRY_ALLOC(instr->extra);
  }
  return NULL;
}

hlo_compare_type hlo_default_compare_type(weft_dtype operand)
{
  if (weft_dtype_is_float(operand) || weft_dtype_is_complex(operand)) return HLO_COMPARE_FLOAT;
  return weft_dtype_is_signed(operand) ? HLO_COMPARE_SIGNED : HLO_COMPARE_UNSIGNED;
}

weft_status *hlo_rd_attributes(hlo_reader *r, hlo_instr *instr)
{
  const char *at = r->p, *owner = hlo_opcode_name(instr->op);
  attr_site site = {.instr = instr};
  attr_site *const sites[] = {&site, &site};
  const attr_list lists[] = {op_table[instr->op].own, common_list};
  uint64_t seen[2] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 2, lists, sites, seen, owner));
  WEFT_TRY(check_required(r, at, lists[0], seen[0], owner));
  if (instr->op == HLO_COMPARE && instr->u.compare.type == hlo_default_compare_type(instr->operands[0]->shape->type))
    instr->u.compare.type = HLO_COMPARE_DEFAULT;
  return finish_site(r, &site);
}

weft_status *hlo_rd_async_attributes(hlo_reader *r, hlo_instr *instr, hlo_instr *wrapped)
{
  const char *at = r->p, *owner = hlo_opcode_name(wrapped->op);
  attr_site outer = {.instr = instr}, inner = {.instr = wrapped};
  attr_site *const sites[] = {&outer, &inner, &outer};
  /* The start's aliasing goes before the wrapped op's own of that name. */
  const attr_list lists[] = {{async_start_attrs, instr->op == HLO_ASYNC_START}, op_table[wrapped->op].own, common_list};
  uint64_t seen[3] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 3, lists, sites, seen, owner));
  if (instr->op == HLO_ASYNC_START) WEFT_TRY(check_required(r, at, lists[1], seen[1], owner));
  WEFT_TRY(finish_site(r, &inner));
  return finish_site(r, &outer);
}

weft_status *hlo_rd_module_attributes(hlo_reader *r, hlo_module *module)
{
  attr_site site = {.module = module};
  attr_site *const sites[] = {&site};
  uint64_t seen = 0;

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 1, &module_list, sites, &seen, "HloModule"));
  return NULL;
}

/* ---- printing ------------------------------------------------------------------------------------------------------ */

static void print_list(FILE *out, attr_list list, attr_site *site, hlo_extra *extra, bool metadata)
{
  for (int i = 0; i < list.count; i++) {
    const hlo_attr *attr = &list.attrs[i];
    attr_value v = {site, attr, field_of(site, attr, extra)};

    if (!v.field || attr->flags & OLD) continue;
    if (!(attr->flags & ALWAYS) && attr->kind->is_usual && attr->kind->is_usual(v)) continue;
    if (attr->kind == &hlo_kind_metadata && !metadata) continue;
    fprintf(out, ", %s=", attr->name);
    attr->kind->print(out, v);
  }
}

void hlo_pr_attributes(FILE *out, const hlo_instr *instr, hlo_print_options options)
{
  attr_site site = {.instr = (hlo_instr *)instr};

  print_list(out, op_table[instr->op].own, &site, NULL, options.metadata);
  print_list(out, common_list, &site, (hlo_extra *)instr->extra, options.metadata);
}

void hlo_pr_module_attributes(FILE *out, const hlo_module *module)
{
  attr_site site = {.module = (hlo_module *)module};

  print_list(out, module_list, &site, NULL, true);
}
