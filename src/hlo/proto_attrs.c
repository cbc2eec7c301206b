/* hlo/proto_attrs.c -- attributes of instructions out of an HloModuleProto. */
#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/proto_read.h"
#include "hlo/text_internal.h"

weft_status *hlo_proto_read_key_values(proto_reader *r, const HloPb__Attributes *p, const hlo_key_value **out, int *out_count)
{
  hlo_key_value *list;

  *out_count = 0;
  if (!p || p->n_map == 0) return NULL;
  list = WEFT_ARENA_ARRAY(r->arena, hlo_key_value, p->n_map);
  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < p->n_map; i++) {
    list[i].key = weft_arena_strdup(r->arena, p->map[i]->key);
    list[i].value = weft_arena_strdup(r->arena, p->map[i]->value);
    if (!list[i].key || !list[i].value) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out = list;
  *out_count = (int)p->n_map;
  return NULL;
}

static weft_status *read_window(proto_reader *r, const HloPb__Window *p, hlo_window *out)
{
  hlo_window_dim *dims;

  *out = (hlo_window){0};
  if (!p) return NULL;
  if (p->n_dims > HLO_MAX_RANK) return BAD("a window of %zu dimensions", p->n_dims);
  dims = WEFT_ARENA_ARRAY(r->arena, hlo_window_dim, p->n_dims);
  WEFT_TRY_ALLOC(dims);
  for (size_t i = 0; i < p->n_dims; i++) {
    const HloPb__WindowDim *d = p->dims[i]; /* hand-written files leave factors of 1 out */
    dims[i] = (hlo_window_dim){d->size, d->stride ? d->stride : 1, d->pad_low, d->pad_high,
                               d->window_dilation ? d->window_dilation : 1, d->base_dilation ? d->base_dilation : 1,
                               d->reversal};
  }
  *out = (hlo_window){(int)p->n_dims, dims};
  return NULL;
}

static weft_status *read_precision(proto_reader *r, const HloPb__Precision *p, const hlo_precision **out, int *out_count)
{
  hlo_precision *list;

  if (!p) return NULL;
  list = WEFT_ARENA_ARRAY(r->arena, hlo_precision, p->n_operands);
  WEFT_TRY_ALLOC(list);
  bool any = false;
  for (size_t i = 0; i < p->n_operands; i++) {
    if (p->operands[i] < 0 || p->operands[i] > HLO_PRECISION_PACKED_NIBBLE) return BAD("operand precision %d", p->operands[i]);
    list[i] = (hlo_precision)p->operands[i];
    any |= list[i] != HLO_PRECISION_DEFAULT;
  }
  if (!any) return NULL; /* XLA stores the default for each operand */
  *out = list;
  *out_count = (int)p->n_operands;
  return NULL;
}

static weft_status *read_conv(proto_reader *r, const HloPb__Instruction *p, hlo_conv_attrs *conv)
{
  const HloPb__ConvDims *d = p->conv;

  WEFT_TRY(read_window(r, p->window, &conv->window));
  if (WEFT_MAX(p->feature_group_count, p->batch_group_count) > INT32_MAX) /* what the text format holds */
    return BAD("group counts %lld and %lld", (long long)p->feature_group_count, (long long)p->batch_group_count);
  conv->feature_group_count = WEFT_MAX(p->feature_group_count, 1);
  conv->batch_group_count = WEFT_MAX(p->batch_group_count, 1);
  if (p->conv_kind < 0 || p->conv_kind > 3) return BAD("convolution kind %d", p->conv_kind);
  conv->kind = p->conv_kind;
  WEFT_TRY(read_precision(r, p->precision, &conv->precision, &conv->precision_count));
  if (!d) return NULL;
  conv->lhs_batch = d->lhs_batch;
  conv->lhs_feature = d->lhs_feature;
  conv->rhs_in_feature = d->rhs_in_feature;
  conv->rhs_out_feature = d->rhs_out_feature;
  conv->out_batch = d->out_batch;
  conv->out_feature = d->out_feature;
  COPY_INTS(r, d, lhs_spatial, &conv->lhs_spatial);
  COPY_INTS(r, d, rhs_spatial, &conv->rhs_spatial);
  COPY_INTS(r, d, out_spatial, &conv->out_spatial);
  /* Each dimension has one role: the printer writes a letter at its place. */
  const hlo_ints *spatial[] = {&conv->lhs_spatial, &conv->rhs_spatial, &conv->out_spatial};
  const int64_t others[3][2] = {{conv->lhs_batch, conv->lhs_feature}, {conv->rhs_in_feature, conv->rhs_out_feature},
                                {conv->out_batch, conv->out_feature}};
  for (int g = 0; g < 3; g++) {
    uint64_t seen = 0;
    if (spatial[g]->count > 10 || spatial[g]->count != spatial[0]->count) return BAD("spatial dimensions of a convolution");
    for (int i = 0; i < spatial[g]->count + 2; i++) {
      int64_t dim = i < 2 ? others[g][i] : spatial[g]->v[i - 2];
      if (dim < 0 || dim >= HLO_MAX_RANK || seen >> dim & 1) return BAD("dimension numbers of a convolution");
      seen |= UINT64_C(1) << dim;
    }
  }
  return NULL;
}

static weft_status *read_dot(proto_reader *r, const HloPb__Instruction *p, hlo_dot_attrs *dot)
{
  const HloPb__DotDims *d = p->ragged_dot ? p->ragged_dot->dot : p->dot;

  if (d) {
    COPY_INTS(r, d, lhs_batch, &dot->lhs_batch);
    COPY_INTS(r, d, rhs_batch, &dot->rhs_batch);
    COPY_INTS(r, d, lhs_contracting, &dot->lhs_contracting);
    COPY_INTS(r, d, rhs_contracting, &dot->rhs_contracting);
  }
  if (p->ragged_dot) {
    COPY_INTS(r, p->ragged_dot, lhs_ragged, &dot->lhs_ragged);
    COPY_INTS(r, p->ragged_dot, rhs_group, &dot->rhs_group);
  }
  if (p->precision) {
    if (p->precision->algorithm < 0 || p->precision->algorithm > HLO_ALG_BF16_BF16_F32_X9)
      return BAD("dot algorithm %d", p->precision->algorithm);
    dot->algorithm = (hlo_dot_algorithm)p->precision->algorithm;
  }
  return read_precision(r, p->precision, &dot->precision, &dot->precision_count);
}

static weft_status *read_gather(proto_reader *r, const HloPb__Instruction *p, hlo_gather_attrs *gather)
{
  const HloPb__GatherDims *d = p->gather;

  if (!d) return BAD("no gather_dimension_numbers");
  COPY_INTS(r, d, offset_dims, &gather->offset_dims);
  COPY_INTS(r, d, collapsed_slice_dims, &gather->collapsed_slice_dims);
  COPY_INTS(r, d, start_index_map, &gather->start_index_map);
  COPY_INTS(r, d, operand_batching_dims, &gather->operand_batching_dims);
  COPY_INTS(r, d, start_indices_batching_dims, &gather->start_indices_batching_dims);
  gather->index_vector_dim = d->index_vector_dim;
  gather->indices_are_sorted = p->indices_are_sorted;
  COPY_INTS(r, p, gather_slice_sizes, &gather->slice_sizes);
  return NULL;
}

static weft_status *read_scatter(proto_reader *r, const HloPb__Instruction *p, hlo_scatter_attrs *scatter)
{
  const HloPb__ScatterDims *d = p->scatter;

  if (!d) return BAD("no scatter_dimension_numbers");
  COPY_INTS(r, d, update_window_dims, &scatter->update_window_dims);
  COPY_INTS(r, d, inserted_window_dims, &scatter->inserted_window_dims);
  COPY_INTS(r, d, scatter_dims_to_operand_dims, &scatter->scatter_dims_to_operand_dims);
  COPY_INTS(r, d, input_batching_dims, &scatter->input_batching_dims);
  COPY_INTS(r, d, scatter_indices_batching_dims, &scatter->scatter_indices_batching_dims);
  scatter->index_vector_dim = d->index_vector_dim;
  scatter->indices_are_sorted = p->indices_are_sorted;
  scatter->unique_indices = p->unique_indices;
  return NULL;
}

static weft_status *read_iota_groups(proto_reader *r, const HloPb__IotaGroups *p, hlo_replica_groups *g)
{
  int64_t devices = 1, product;

  g->form = HLO_GROUPS_IOTA;
  g->num_groups = p->num_groups;
  g->group_size = p->group_size;
  COPY_INTS(r, p, reshape_dims, &g->reshape_dims);
  WEFT_TRY(hlo_proto_copy_permutation(r, p->n_transpose_perm, p->transpose_perm, g->reshape_dims.count, &g->transpose_perm));
  for (int i = 0; i < g->reshape_dims.count; i++)
    if (g->reshape_dims.v[i] < 1 || __builtin_mul_overflow(devices, g->reshape_dims.v[i], &devices))
      return BAD("an iota's dimensions are positive, their product below 2^63");
  if (g->num_groups < 1 || g->group_size < 1 || __builtin_mul_overflow(g->num_groups, g->group_size, &product) ||
      product != devices)
    return BAD("%" PRId64 " devices do not make %" PRId64 " groups of %" PRId64, devices, g->num_groups, g->group_size);
  return NULL;
}

static weft_status *read_groups(proto_reader *r, const HloPb__Instruction *p, hlo_replica_groups *g)
{
  size_t count = p->device_list ? p->device_list->n_groups : p->n_replica_groups;
  HloPb__Group **groups = p->device_list ? p->device_list->groups : p->replica_groups;
  hlo_ints *list;

  if (p->iota_groups) return read_iota_groups(r, p->iota_groups, g);
  if (p->device_list && p->device_list->iota) return read_iota_groups(r, p->device_list->iota, g);
  if (p->mesh_groups) {
    g->form = HLO_GROUPS_MESH;
    WEFT_TRY(hlo_proto_read_mesh(r, p->mesh_groups->mesh, &g->mesh));
    return hlo_proto_read_axes(r, g->mesh, p->mesh_groups->n_axes, p->mesh_groups->axes, &g->axes, &g->axis_count);
  }
  list = WEFT_ARENA_ARRAY(r->arena, hlo_ints, count);
  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < count; i++) COPY_INTS(r, groups[i], ids, &list[i]);
  g->form = HLO_GROUPS_LIST;
  g->group_count = (int)count;
  g->groups = list;
  return NULL;
}

/* How many slices of one input of a collective-permute there are: its offsets are a tuple of scalars, or a tuple of those. */
static int slices_of(const hlo_shape *offsets)
{
  return hlo_shape_is_tuple(offsets) && offsets->rank && hlo_shape_is_tuple(offsets->elements[0]) ? offsets->rank : 1;
}

/* The message has the sizes of all slices in one list; each slice has as many as its input has dimensions.  What is left
 * over, of sizes that do not fit the operands, stays together. */
static weft_status *read_slice_sizes(proto_reader *r, const HloPb__Instruction *p, const hlo_instr *instr, hlo_collective_attrs *c)
{
  const size_t total = p->n_dynamic_slice_sizes;
  hlo_ints *list = WEFT_ARENA_ARRAY(r->arena, hlo_ints, total + 1);
  const hlo_shape *input, *offsets;
  size_t used = 0;

  WEFT_TRY_ALLOC(list);
  if (!total) return NULL;
  if (instr->operand_count != 4) return BAD("slice sizes of a %s with %d operands", p->opcode, instr->operand_count);
  input = instr->operands[0]->shape;
  offsets = instr->operands[2]->shape;
  c->slice_sizes = list;
  for (int i = 0; i < (hlo_shape_is_tuple(input) ? input->rank : 1); i++) {
    const hlo_shape *x = hlo_shape_is_tuple(input) ? input->elements[i] : input;
    const hlo_shape *at = !hlo_shape_is_tuple(input) ? offsets
                          : hlo_shape_is_tuple(offsets) && i < offsets->rank ? offsets->elements[i] : NULL;

    for (int s = 0; at && x->rank > 0 && s < slices_of(at) && used + (size_t)x->rank <= total; s++) {
      WEFT_TRY(hlo_proto_copy_ints(r, (size_t)x->rank, p->dynamic_slice_sizes + used, &list[c->slice_count++]));
      used += (size_t)x->rank;
    }
  }
  return used < total ? hlo_proto_copy_ints(r, total - used, p->dynamic_slice_sizes + used, &list[c->slice_count++]) : NULL;
}

static weft_status *read_collective(proto_reader *r, const HloPb__Instruction *p, const hlo_instr *instr, hlo_collective_attrs *c)
{
  int64_t(*pairs)[2] = weft_arena_alloc_array(r->arena, p->n_source_target_pairs, sizeof *pairs);

  WEFT_TRY_ALLOC(pairs);
  for (size_t i = 0; i < p->n_source_target_pairs; i++) {
    pairs[i][0] = p->source_target_pairs[i]->source;
    pairs[i][1] = p->source_target_pairs[i]->target;
  }
  c->pair_count = (int)p->n_source_target_pairs;
  c->pairs = pairs;
  c->channel_id = WEFT_MAX(p->channel_id ? p->channel_id : p->all_reduce_id, 0);
  c->use_global_device_ids = p->use_global_device_ids;
  c->constrain_layout = p->constrain_layout;
  c->is_host_transfer = p->is_host_transfer;
  c->has_dynamic_root = p->has_dynamic_root;
  WEFT_TRY(read_slice_sizes(r, p, instr, c));
  return read_groups(r, p, &c->groups);
}

static weft_status *read_output_aliases(proto_reader *r, const HloPb__Instruction *p, const hlo_output_alias **out, int *out_count)
{
  hlo_output_alias *list = WEFT_ARENA_ARRAY(r->arena, hlo_output_alias, p->n_output_aliases);

  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < p->n_output_aliases; i++) {
    COPY_INTS(r, p->output_aliases[i], output_index, &list[i].output_index);
    list[i].operand = p->output_aliases[i]->operand;
    COPY_INTS(r, p->output_aliases[i], operand_index, &list[i].operand_index);
  }
  *out = list;
  *out_count = (int)p->n_output_aliases;
  return NULL;
}

static weft_status *read_custom_call(proto_reader *r, const HloPb__Instruction *p, hlo_custom_call_attrs *c)
{
  c->target = weft_arena_strdup(r->arena, p->custom_call_target);
  WEFT_TRY_ALLOC(c->target);
  c->has_side_effect = p->custom_call_has_side_effect;
  if (p->custom_call_api_version < 0 || p->custom_call_api_version > 4)
    return BAD("custom_call_api_version %d", p->custom_call_api_version);
  c->api_version = p->custom_call_api_version == 1 ? 0 : p->custom_call_api_version; /* text leaves the original out */
  if (p->custom_call_schedule < 0 || p->custom_call_schedule > 2) return BAD("custom_call_schedule %d", p->custom_call_schedule);
  c->schedule = p->custom_call_schedule;
  if (p->padding_type < 0 || p->padding_type > 2) return BAD("padding_type %d", p->padding_type);
  if (p->padding_type) c->padding_type = hlo_padding_type_names[p->padding_type];
  if (p->constrain_layout) {
    const hlo_shape **layouts = WEFT_ARENA_ARRAY(r->arena, const hlo_shape *, p->n_operand_layouts);
    WEFT_TRY_ALLOC(layouts);
    for (size_t i = 0; i < p->n_operand_layouts; i++) WEFT_TRY(hlo_proto_read_shape(r, p->operand_layouts[i], 0, &layouts[i]));
    c->operand_layouts = layouts;
    c->layout_count = (int)p->n_operand_layouts;
  }
  if (p->literal) WEFT_TRY(hlo_proto_read_literal(r, p->literal, &c->literal));
  if (p->window || p->conv || p->feature_group_count > 1 || p->batch_group_count > 1) {
    hlo_conv_attrs *conv = WEFT_ARENA_NEW(r->arena, hlo_conv_attrs);
    WEFT_TRY_ALLOC(conv);
    WEFT_TRY(read_conv(r, p, conv));
    c->conv = conv;
  }
  return read_output_aliases(r, p, &c->aliases, &c->alias_count);
}

/* The number of `text` in a table of names; -1 if it is not there. */
static int name_number(const char *text, const char *const *names, int count)
{
  for (int i = 0; i < count; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

static weft_status *read_slice(const HloPb__Instruction *p, hlo_instr *instr)
{
  int64_t part[3][HLO_MAX_RANK];

  if (p->n_slice > HLO_MAX_RANK) return BAD("a slice of %zu dimensions", p->n_slice);
  for (size_t i = 0; i < p->n_slice; i++) {
    part[0][i] = p->slice[i]->start;
    part[1][i] = p->slice[i]->limit;
    part[2][i] = p->slice[i]->stride ? p->slice[i]->stride : 1;
  }
  return hlo_set_slice(instr, (int)p->n_slice, part[0], part[1], part[2]);
}

static weft_status *read_padding(proto_reader *r, const HloPb__Padding *p, hlo_instr *instr)
{
  size_t rank = p ? p->n_dims : 0;
  hlo_pad_dim *dims = WEFT_ARENA_ARRAY(r->arena, hlo_pad_dim, rank);

  WEFT_TRY_ALLOC(dims);
  if (rank > HLO_MAX_RANK) return BAD("padding of %zu dimensions", rank);
  for (size_t i = 0; i < rank; i++) dims[i] = (hlo_pad_dim){p->dims[i]->low, p->dims[i]->high, p->dims[i]->interior};
  instr->u.pad.rank = (int)rank;
  instr->u.pad.dims = dims;
  return NULL;
}

/* What belongs to the opcode; hlo_init_attributes has made its group. */
weft_status *hlo_proto_read_own_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  int number;

  if (p->sparsity_config.len) return WEFT_ERR(UNIMPLEMENTED, "sparsity_config");
  COPY_INTS(r, p, dims, &instr->dims);
  switch (instr->op) {
  case HLO_GET_TUPLE_ELEMENT: instr->u.tuple_index = p->tuple_index; return NULL;
  case HLO_COMPARE:
    number = name_number(p->comparison_direction, hlo_direction_names, 6);
    if (number < 0) return BAD("comparison_direction \"%.40s\"", p->comparison_direction);
    instr->u.compare.direction = (hlo_direction)number;
    number = name_number(p->comparison_type, hlo_compare_type_names, 5);
    if (number < 0) return BAD("comparison_type \"%.40s\"", p->comparison_type);
    instr->u.compare.type = (hlo_compare_type)number;
    if (instr->u.compare.type == hlo_default_compare_type(instr->operands[0]->shape->type))
      instr->u.compare.type = HLO_COMPARE_DEFAULT;
    return NULL;
  case HLO_SLICE: return read_slice(p, instr);
  case HLO_DYNAMIC_SLICE: COPY_INTS(r, p, dynamic_slice_sizes, &instr->u.slice_sizes); return NULL;
  case HLO_PAD: return read_padding(r, p->padding, instr);
  case HLO_REDUCE_PRECISION:
    instr->u.reduce_precision.exponent_bits = p->exponent_bits;
    instr->u.reduce_precision.mantissa_bits = p->mantissa_bits;
    return NULL;
  case HLO_DOT:
  case HLO_RAGGED_DOT:
  case HLO_SCALED_DOT: return read_dot(r, p, (hlo_dot_attrs *)instr->u.dot);
  case HLO_CONVOLUTION:
    if (!p->conv) return BAD("no convolution_dimension_numbers");
    return read_conv(r, p, (hlo_conv_attrs *)instr->u.conv);
  case HLO_IOTA: return p->n_dims == 1 ? NULL : BAD("an iota has one dimension, not %zu", p->n_dims);
  case HLO_REDUCE_WINDOW:
  case HLO_SELECT_AND_SCATTER: return read_window(r, p->window, (hlo_window *)instr->u.window);
  case HLO_GATHER: return read_gather(r, p, (hlo_gather_attrs *)instr->u.gather);
  case HLO_SCATTER: return read_scatter(r, p, (hlo_scatter_attrs *)instr->u.scatter);
  case HLO_FFT:
    if (p->fft_type < 0 || p->fft_type > HLO_FFT_IRFFT) return BAD("fft_type %d", p->fft_type);
    instr->u.fft_type = (hlo_fft_type)p->fft_type;
    COPY_INTS(r, p, fft_length, &instr->dims);
    return NULL;
  case HLO_CHOLESKY: instr->u.lower = p->cholesky && p->cholesky->lower; return NULL;
  case HLO_TRIANGULAR_SOLVE:
    if (!p->triangular) return BAD("no triangular_solve_options");
    if (p->triangular->transpose_a < 0 || p->triangular->transpose_a > HLO_ADJOINT) return BAD("transpose_a %d", p->triangular->transpose_a);
    instr->u.triangular.left_side = p->triangular->left_side;
    instr->u.triangular.lower = p->triangular->lower;
    instr->u.triangular.unit_diagonal = p->triangular->unit_diagonal;
    instr->u.triangular.transpose_a = (hlo_transpose)p->triangular->transpose_a;
    return NULL;
  case HLO_TOPK:
    instr->u.topk.k = p->k;
    instr->u.topk.largest = p->largest;
    instr->u.topk.is_stable = p->is_stable;
    return NULL;
  case HLO_SORT: instr->u.is_stable = p->is_stable; return NULL;
  case HLO_SCAN:
    if (p->is_associative < 0 || p->is_associative > 2) return BAD("is_associative %d", p->is_associative);
    instr->u.scan.num_carries = p->num_carries;
    instr->u.scan.is_reverse = p->is_reverse;
    instr->u.scan.is_associative = p->is_associative;
    return NULL;
  case HLO_RNG:
    if (p->distribution < HLO_RNG_UNIFORM || p->distribution > HLO_RNG_NORMAL) return BAD("distribution %d", p->distribution);
    instr->u.distribution = (hlo_rng_distribution)p->distribution;
    return NULL;
  case HLO_RNG_BIT_GENERATOR:
    if (p->rng_algorithm < 0 || p->rng_algorithm > HLO_RNG_PHILOX) return BAD("rng_algorithm %d", p->rng_algorithm);
    instr->u.rng_algorithm = (hlo_rng_algorithm)p->rng_algorithm;
    return NULL;
  case HLO_RNG_GET_AND_UPDATE_STATE: instr->u.delta = p->delta; return NULL;
  case HLO_BATCH_NORM_GRAD:
  case HLO_BATCH_NORM_INFERENCE:
  case HLO_BATCH_NORM_TRAINING:
    instr->u.batch_norm.epsilon = p->epsilon;
    instr->u.batch_norm.feature_index = p->feature_index;
    return NULL;
  case HLO_FUSION:
    number = name_number(p->fusion_kind, hlo_fusion_kind_names, 4);
    if (number < 0) return BAD("fusion_kind \"%.40s\"", p->fusion_kind);
    instr->u.fusion.kind = (hlo_fusion_kind)number;
    return read_output_aliases(r, p, &instr->u.fusion.aliases, &instr->u.fusion.alias_count);
  case HLO_ASYNC_START: return read_output_aliases(r, p, &instr->u.fusion.aliases, &instr->u.fusion.alias_count);
  case HLO_CALL: instr->u.is_composite = p->is_composite; return NULL;
  case HLO_CUSTOM_CALL: return read_custom_call(r, p, (hlo_custom_call_attrs *)instr->u.custom);
  case HLO_INFEED: return hlo_proto_copy_bytes(r, p->infeed_config, &instr->u.feed.config);
  case HLO_OUTFEED:
    WEFT_TRY(hlo_proto_copy_bytes(r, p->outfeed_config, &instr->u.feed.config));
    return p->outfeed_shape ? hlo_proto_read_shape(r, p->outfeed_shape, 0, &instr->u.feed.outfeed_shape) : NULL;
  case HLO_DOMAIN:
    /* What the message calls entry is exit in text, and the other way round. */
    if (!p->domain_entry || !p->domain_exit) return BAD("a domain without both shardings");
    WEFT_TRY(hlo_proto_read_sharding(r, p->domain_entry, false, &instr->u.domain.exit));
    return hlo_proto_read_sharding(r, p->domain_exit, false, &instr->u.domain.entry);
  case HLO_COPY_START:
    instr->u.copy_start.is_prefetch = p->is_cross_program_prefetch || p->n_cross_program_prefetch_index;
    if (p->n_cross_program_prefetch_index) instr->u.copy_start.prefetch_index = p->cross_program_prefetch_index[0];
    return NULL;
  default:
    if (hlo_opcode_is_collective(instr->op) || instr->op == HLO_SEND || instr->op == HLO_RECV ||
        instr->op == HLO_SEND_DONE || instr->op == HLO_RECV_DONE)
      return read_collective(r, p, instr, (hlo_collective_attrs *)instr->u.collective);
    return NULL;
  }
}

static weft_status *read_metadata(proto_reader *r, const HloPb__Metadata *p, const hlo_metadata **out)
{
  hlo_metadata *m;

  if (!p || !(*p->op_type || *p->op_name || *p->source_file || p->source_line || p->stack_frame_id)) return NULL;
  m = WEFT_ARENA_NEW(r->arena, hlo_metadata);
  WEFT_TRY_ALLOC(m);
  WEFT_TRY(hlo_proto_copy_string(r, p->op_type, &m->op_type));
  WEFT_TRY(hlo_proto_copy_string(r, p->op_name, &m->op_name));
  WEFT_TRY(hlo_proto_copy_string(r, p->source_file, &m->source_file));
  m->source_line = WEFT_MAX(p->source_line, 0);
  m->source_end_line = WEFT_MAX(p->source_end_line, 0);
  m->source_column = WEFT_MAX(p->source_column, 0);
  m->source_end_column = WEFT_MAX(p->source_end_column, 0);
  m->stack_frame_id = WEFT_MAX(p->stack_frame_id, 0);
  *out = m;
  return NULL;
}

static weft_status *read_backend_config(proto_reader *r, const HloPb__Instruction *p, hlo_extra *extra)
{
  const HloPb__Payload *payload = p->backend_config_payload;
  ProtobufCBinaryData bytes = p->backend_config;

  if (payload && payload->value.len) bytes = payload->value;
  if (payload && payload->n_id) {
    if (payload->id[0] < 0 || (uint64_t)payload->id[0] >= r->pb->n_payloads)
      return BAD("payload %" PRId64 " of %zu", payload->id[0], r->pb->n_payloads);
    bytes = r->pb->payloads[payload->id[0]];
  }
  WEFT_TRY(hlo_proto_copy_bytes(r, bytes, &extra->backend_config));
  extra->backend_config_is_json = extra->backend_config && hlo_is_braced(extra->backend_config);
  return NULL;
}

weft_status *hlo_proto_read_common_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  static const hlo_extra none;
  hlo_extra extra = {0};
  hlo_accuracy *accuracy;

  if (p->sharding) WEFT_TRY(hlo_proto_read_sharding(r, p->sharding, false, &extra.sharding));
  WEFT_TRY(hlo_proto_read_key_values(r, p->frontend_attributes, &extra.frontend_attributes, &extra.frontend_count));
  WEFT_TRY(read_backend_config(r, p, &extra));
  WEFT_TRY(read_metadata(r, p->metadata, &instr->metadata));
  WEFT_TRY(hlo_proto_copy_string(r, p->async_execution_thread, &extra.async_thread));
  if (p->parameter_replication)
    WEFT_TRY(hlo_proto_copy_bools(r, p->parameter_replication->n_leaves, p->parameter_replication->leaves, &extra.parameter_replication));
  if (p->accuracy && (p->accuracy->mode || p->accuracy->tolerance)) {
    extra.accuracy = accuracy = WEFT_ARENA_NEW(r->arena, hlo_accuracy);
    WEFT_TRY_ALLOC(accuracy);
    accuracy->mode = p->accuracy->tolerance ? 2 : 1;
    if (p->accuracy->tolerance)
      *accuracy = (hlo_accuracy){2, p->accuracy->tolerance->atol, p->accuracy->tolerance->rtol, p->accuracy->tolerance->ulps};
  }
  if (memcmp(&extra, &none, sizeof extra) == 0) return NULL;
  instr->extra = weft_arena_memdup(r->arena, &extra, sizeof extra);
  WEFT_TRY_ALLOC(instr->extra);
  return NULL;
}
