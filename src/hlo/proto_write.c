/* hlo/proto_write.c -- a module as HloModuleProto.  The messages are built in a scratch arena, then packed at once.
 * Instruction ids are written as newer XLA does: computation id << 32 | place in the computation. */
#include <config.h>

#include "hlo/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hlo/frames.h"
#include "hlo/proto_internal.h"
#include "hlo/text_internal.h" /* hlo_default_compare_type */

typedef struct written_name { UT_hash_handle hh; } written_name;

typedef struct proto_writer {
  const hlo_module *module;
  weft_arena scratch;
  int32_t *local_ids;    /* by instruction id: place in its computation */
  bool *called_by_fusion; /* by computation id */
  written_name *names;    /* of instructions so far */
  int64_t next_suffix;
} proto_writer;

/* ---- making messages ------------------------------------------------------------------------------------------------ */

/* TYPE and its init function, of one message; WEFT_TRY inside. */
#define NEW(w, out, init)                                        \
  do {                                                           \
    *(out) = weft_arena_alloc(&(w)->scratch, sizeof **(out));    \
    WEFT_TRY_ALLOC(*(out));                                      \
    init(*(out));                                                \
  } while (0)

/* An array of `count` zeroed items in *out. */
#define NEW_ARRAY(w, out, count)                                                                \
  do {                                                                                          \
    *(out) = weft_arena_alloc_array(&(w)->scratch, (size_t)(count), sizeof **(out));            \
    WEFT_TRY_ALLOC(*(out));                                                                     \
  } while (0)

/* Lists of int64 are borrowed: the packer only reads them. */
#define PUT_INTS(message, field, ints) ((message)->n_##field = (size_t)(ints).count, (message)->field = (int64_t *)(ints).v)

static weft_status *put_int32s(proto_writer *w, hlo_ints ints, size_t *out_count, int32_t **out)
{
  NEW_ARRAY(w, out, ints.count);
  *out_count = (size_t)ints.count;
  for (int i = 0; i < ints.count; i++) (*out)[i] = (int32_t)ints.v[i];
  return NULL;
}

static weft_status *put_bools(proto_writer *w, hlo_ints ints, size_t *out_count, protobuf_c_boolean **out)
{
  NEW_ARRAY(w, out, ints.count);
  *out_count = (size_t)ints.count;
  for (int i = 0; i < ints.count; i++) (*out)[i] = ints.v[i] != 0;
  return NULL;
}

static char *string(const char *text) { return (char *)(text ? text : ""); }

static ProtobufCBinaryData bytes(const char *text)
{
  return (ProtobufCBinaryData){text ? strlen(text) : 0, (uint8_t *)text};
}

/* ---- shapes, literals, shardings ------------------------------------------------------------------------------------- */

static weft_status *put_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out);

/* Always with a layout: XLA reads a shape without one as having none. */
static weft_status *put_layout(proto_writer *w, const hlo_shape *shape, HloPb__Layout **out)
{
  static const hlo_layout plain;
  const hlo_layout *layout = shape->layout ? shape->layout : &plain;

  NEW(w, out, hlo_pb__layout__init);
  NEW_ARRAY(w, &(*out)->minor_to_major, shape->rank);
  (*out)->n_minor_to_major = (size_t)shape->rank;
  for (int i = 0; i < shape->rank; i++)
    (*out)->minor_to_major[i] = shape->layout ? layout->minor_to_major[i] : shape->rank - 1 - i;
  NEW_ARRAY(w, &(*out)->tiles, layout->tile_count);
  (*out)->n_tiles = (size_t)layout->tile_count;
  for (int i = 0; i < layout->tile_count; i++) {
    NEW(w, &(*out)->tiles[i], hlo_pb__tile__init);
    PUT_INTS((*out)->tiles[i], dims, ((hlo_ints){layout->tiles[i].rank, layout->tiles[i].dims}));
  }
  NEW_ARRAY(w, &(*out)->splits, layout->split_count);
  (*out)->n_splits = (size_t)layout->split_count;
  for (int i = 0; i < layout->split_count; i++) {
    NEW(w, &(*out)->splits[i], hlo_pb__split__init);
    (*out)->splits[i]->dim = layout->splits[i].dim;
    PUT_INTS((*out)->splits[i], indices, ((hlo_ints){layout->splits[i].index_count, layout->splits[i].indices}));
  }
  (*out)->element_bits = layout->element_bits;
  (*out)->memory_space = layout->memory_space;
  (*out)->tail_padding = WEFT_MAX(layout->tail_padding, 1);
  (*out)->index_type = weft_dtype_to_proto(layout->index_type);
  (*out)->pointer_type = weft_dtype_to_proto(layout->pointer_type);
  (*out)->dynamic_prefix_bytes = layout->dynamic_prefix_bytes;
  return layout->physical_shape ? put_shape(w, layout->physical_shape, &(*out)->physical_shape) : NULL;
}

static weft_status *put_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out)
{
  NEW(w, out, hlo_pb__shape__init);
  (*out)->type = weft_dtype_to_proto(shape->type);
  if (shape->elements) {
    NEW_ARRAY(w, &(*out)->elements, shape->rank);
    (*out)->n_elements = (size_t)shape->rank;
    for (int i = 0; i < shape->rank; i++) WEFT_TRY(put_shape(w, shape->elements[i], &(*out)->elements[i]));
    return NULL;
  }
  if (!hlo_shape_is_array(shape)) return NULL;
  PUT_INTS(*out, dims, ((hlo_ints){shape->rank, shape->dims}));
  NEW_ARRAY(w, &(*out)->dynamic, shape->rank);
  (*out)->n_dynamic = (size_t)shape->rank;
  for (int i = 0; i < shape->rank; i++)
    (*out)->dynamic[i] = (shape->dynamic && shape->dynamic[i]) || shape->dims[i] == HLO_UNBOUNDED;
  return put_layout(w, shape, &(*out)->layout);
}

/* The shape of a literal: of a layout it has the order alone. */
static weft_status *put_literal_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out)
{
  hlo_shape *plain;

  if (!shape->layout) return put_shape(w, shape, out);
  plain = hlo_shape_with_layout(&w->scratch, shape, shape->layout->minor_to_major);
  WEFT_TRY_ALLOC(plain);
  return put_shape(w, plain, out);
}

/* `shape` is the literal's with the layout that the elements are to be stored in. */
static weft_status *put_literal(proto_writer *w, const hlo_literal *literal, const hlo_shape *shape, HloPb__Literal **out)
{
  const hlo_literal_field *field = hlo_literal_field_of(shape->type);
  size_t width = weft_dtype_bytes(shape->type), elems, count;
  int bits = weft_dtype_bits(shape->type);
  hlo_layout_walk walk;
  char *data;

  NEW(w, out, hlo_pb__literal__init);
  WEFT_TRY(put_literal_shape(w, shape, &(*out)->shape));
  if (hlo_shape_is_tuple(shape)) {
    NEW_ARRAY(w, &(*out)->elements, shape->rank);
    (*out)->n_elements = (size_t)shape->rank;
    for (int i = 0; i < shape->rank; i++)
      WEFT_TRY(put_literal(w, literal->elements[i], shape->elements[i], &(*out)->elements[i]));
    return NULL;
  }
  if (!field) return WEFT_ERR(UNIMPLEMENTED, "literals of %s", weft_dtype_name(shape->type));
  elems = (size_t)hlo_shape_elems(shape);
  if (field->is_bool) {
    protobuf_c_boolean *truths;
    NEW_ARRAY(w, &truths, elems);
    hlo_layout_walk_init(&walk, shape);
    for (size_t i = 0; i < elems; i++, hlo_layout_walk_next(&walk)) truths[i] = ((const char *)literal->data)[walk.at];
    (*out)->preds = truths;
    (*out)->n_preds = elems;
    return NULL;
  }
  data = weft_arena_alloc_array(&w->scratch, elems, width);
  WEFT_TRY_ALLOC(data);
  hlo_layout_walk_init(&walk, shape);
  for (size_t i = 0; i < elems; i++, hlo_layout_walk_next(&walk)) {
    memcpy(data + i * width, (const char *)literal->data + (size_t)walk.at * width, width);
    if (bits < 8) data[i] = (char)(data[i] & ((1 << bits) - 1));
  }
  if (field->is_bytes) {
    *(ProtobufCBinaryData *)((char *)*out + field->data_offset) = (ProtobufCBinaryData){elems * width, (uint8_t *)data};
    return NULL;
  }
  count = weft_dtype_is_complex(shape->type) ? elems * 2 : elems;
  memcpy((char *)*out + field->count_offset, &count, sizeof count);
  memcpy((char *)*out + field->data_offset, &data, sizeof data);
  return NULL;
}

static weft_status *put_mesh(proto_writer *w, const hlo_mesh *mesh, HloPb__Mesh **out)
{
  NEW(w, out, hlo_pb__mesh__init);
  NEW_ARRAY(w, &(*out)->axes, mesh->axis_count);
  (*out)->n_axes = (size_t)mesh->axis_count;
  for (int i = 0; i < mesh->axis_count; i++) {
    NEW(w, &(*out)->axes[i], hlo_pb__mesh__axis__init);
    (*out)->axes[i]->name = string(mesh->axes[i].name);
    (*out)->axes[i]->size = mesh->axes[i].size;
  }
  PUT_INTS(*out, device_ids, mesh->device_ids);
  return NULL;
}

static weft_status *put_axes(proto_writer *w, const hlo_mesh *mesh, int count, const hlo_axis_ref *axes, size_t *out_count,
                             HloPb__AxisRef ***out)
{
  NEW_ARRAY(w, out, count);
  *out_count = (size_t)count;
  for (int i = 0; i < count; i++) {
    HloPb__AxisRef *ref;
    int axis = 0;

    while (axis < mesh->axis_count && strcmp(mesh->axes[axis].name, axes[i].name) != 0) axis++;
    if (axis == mesh->axis_count) return WEFT_ERR(INVALID_ARGUMENT, "the mesh has no axis '%s'", axes[i].name);
    NEW(w, &ref, hlo_pb__axis_ref__init);
    ref->axis = axis;
    if (axes[i].size) {
      NEW(w, &ref->sub_axis, hlo_pb__axis_ref__sub_axis__init);
      ref->sub_axis->pre_size = axes[i].pre_size;
      ref->sub_axis->size = axes[i].size;
    }
    (*out)[i] = ref;
  }
  return NULL;
}

static weft_status *put_named_sharding(proto_writer *w, const hlo_sharding *s, HloPb__NamedSharding **out)
{
  if (s->unreduced_kind) return WEFT_ERR(UNIMPLEMENTED, "unreduced axes that do not sum, in a proto");
  NEW(w, out, hlo_pb__named_sharding__init);
  WEFT_TRY(put_mesh(w, s->mesh, &(*out)->mesh));
  NEW_ARRAY(w, &(*out)->dims, s->dim_count);
  (*out)->n_dims = (size_t)s->dim_count;
  for (int i = 0; i < s->dim_count; i++) {
    HloPb__NamedSharding__Dim *dim;
    NEW(w, &dim, hlo_pb__named_sharding__dim__init);
    WEFT_TRY(put_axes(w, s->mesh, s->dims[i].axis_count, s->dims[i].axes, &dim->n_axes, &dim->axes));
    dim->is_closed = !s->dims[i].open;
    (*out)->dims[i] = dim;
  }
  WEFT_TRY(put_axes(w, s->mesh, s->replicated_count, s->replicated, &(*out)->n_replicated, &(*out)->replicated));
  WEFT_TRY(put_axes(w, s->mesh, s->unreduced_count, s->unreduced, &(*out)->n_unreduced, &(*out)->unreduced));
  return put_axes(w, s->mesh, s->manual_count, s->manual, &(*out)->n_manual, &(*out)->manual);
}

static weft_status *put_sharding(proto_writer *w, const hlo_sharding *s, HloPb__Sharding **out)
{
  HloPb__Sharding *p;

  NEW(w, &p, hlo_pb__sharding__init);
  *out = p;
  if (s->kind == HLO_SHARDING_NAMED) {
    p->type = HLO_SHARDING_TILED;
    return put_named_sharding(w, s, &p->named);
  }
  p->type = (int32_t)s->kind;
  p->is_shard_group = s->shard_group != 0;
  p->shard_group_id = s->shard_group_id;
  p->shard_group_type = s->shard_group == 2;
  if (s->kind == HLO_SHARDING_MAXIMAL) {
    static const int64_t one = 1;
    PUT_INTS(p, tile_dims, ((hlo_ints){1, &one}));
    PUT_INTS(p, tile_devices, ((hlo_ints){1, &s->maximal_device}));
  }
  if (s->kind == HLO_SHARDING_TUPLE) {
    NEW_ARRAY(w, &p->elements, s->tuple_count);
    p->n_elements = (size_t)s->tuple_count;
    for (int i = 0; i < s->tuple_count; i++) WEFT_TRY(put_sharding(w, s->elements[i], &p->elements[i]));
  }
  if (s->kind != HLO_SHARDING_TILED) return NULL;
  PUT_INTS(p, tile_dims, s->tile_dims);
  PUT_INTS(p, tile_devices, s->tile_devices);
  PUT_INTS(p, iota_reshape, s->iota_reshape);
  p->replicate_last_dim = s->replicate_last_dim;
  NEW_ARRAY(w, &p->last_dims, s->last_dim_count);
  p->n_last_dims = (size_t)s->last_dim_count;
  for (int i = 0; i < s->last_dim_count; i++) p->last_dims[i] = (int32_t)s->last_dims[i];
  if (s->iota_reshape.count && !s->iota_transpose.count) { /* the identity in full */
    NEW_ARRAY(w, &p->iota_transpose, s->iota_reshape.count);
    p->n_iota_transpose = (size_t)s->iota_reshape.count;
    for (int i = 0; i < s->iota_reshape.count; i++) p->iota_transpose[i] = i;
    return NULL;
  }
  return put_int32s(w, s->iota_transpose, &p->n_iota_transpose, &p->iota_transpose);
}

/* ---- attributes -------------------------------------------------------------------------------------------------------- */

static weft_status *put_key_values(proto_writer *w, int count, const hlo_key_value *list, HloPb__Attributes **out)
{
  NEW(w, out, hlo_pb__attributes__init);
  NEW_ARRAY(w, &(*out)->map, count);
  (*out)->n_map = (size_t)count;
  for (int i = 0; i < count; i++) {
    NEW(w, &(*out)->map[i], hlo_pb__key_value__init);
    (*out)->map[i]->key = string(list[i].key);
    (*out)->map[i]->value = string(list[i].value);
  }
  return NULL;
}

static weft_status *put_window(proto_writer *w, const hlo_window *window, HloPb__Window **out)
{
  NEW(w, out, hlo_pb__window__init);
  NEW_ARRAY(w, &(*out)->dims, window->rank);
  (*out)->n_dims = (size_t)window->rank;
  for (int i = 0; i < window->rank; i++) {
    const hlo_window_dim *d = &window->dims[i];
    HloPb__WindowDim *p;
    NEW(w, &p, hlo_pb__window_dim__init);
    p->size = d->size;
    p->stride = d->stride;
    p->pad_low = d->pad_low;
    p->pad_high = d->pad_high;
    p->window_dilation = d->window_dilation;
    p->base_dilation = d->base_dilation;
    p->reversal = d->reversal;
    (*out)->dims[i] = p;
  }
  return NULL;
}

/* XLA wants a precision for each of the operands that can have one. */
static weft_status *put_precision(proto_writer *w, int operands, int count, const hlo_precision *list, int algorithm,
                                  HloPb__Precision **out)
{
  NEW(w, out, hlo_pb__precision__init);
  NEW_ARRAY(w, &(*out)->operands, WEFT_MAX(operands, count));
  (*out)->n_operands = (size_t)WEFT_MAX(operands, count);
  for (int i = 0; i < count; i++) (*out)->operands[i] = (int32_t)list[i];
  (*out)->algorithm = algorithm;
  return NULL;
}

static weft_status *put_conv(proto_writer *w, const hlo_conv_attrs *conv, int operands, HloPb__Instruction *p)
{
  HloPb__ConvDims *d;

  if (conv->sparsity) return WEFT_ERR(UNIMPLEMENTED, "sparsity_config in HloModuleProto");
  if (conv->lhs_batch != conv->lhs_feature) {
    NEW(w, &d, hlo_pb__conv_dims__init);
    d->lhs_batch = conv->lhs_batch;
    d->lhs_feature = conv->lhs_feature;
    d->rhs_in_feature = conv->rhs_in_feature;
    d->rhs_out_feature = conv->rhs_out_feature;
    d->out_batch = conv->out_batch;
    d->out_feature = conv->out_feature;
    PUT_INTS(d, lhs_spatial, conv->lhs_spatial);
    PUT_INTS(d, rhs_spatial, conv->rhs_spatial);
    PUT_INTS(d, out_spatial, conv->out_spatial);
    p->conv = d;
  }
  p->feature_group_count = conv->feature_group_count;
  p->batch_group_count = conv->batch_group_count;
  p->conv_kind = conv->kind;
  if (operands || conv->precision_count)
    WEFT_TRY(put_precision(w, operands, conv->precision_count, conv->precision, 0, &p->precision));
  return operands || conv->window.rank ? put_window(w, &conv->window, &p->window) : NULL;
}

static weft_status *put_dot(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p)
{
  const hlo_dot_attrs *dot = instr->u.dot;
  HloPb__DotDims *d;

  if (dot->sparsity) return WEFT_ERR(UNIMPLEMENTED, "sparsity_config in HloModuleProto");
  NEW(w, &d, hlo_pb__dot_dims__init);
  PUT_INTS(d, lhs_batch, dot->lhs_batch);
  PUT_INTS(d, rhs_batch, dot->rhs_batch);
  PUT_INTS(d, lhs_contracting, dot->lhs_contracting);
  PUT_INTS(d, rhs_contracting, dot->rhs_contracting);
  if (instr->op == HLO_RAGGED_DOT) {
    NEW(w, &p->ragged_dot, hlo_pb__ragged_dot_dims__init);
    p->ragged_dot->dot = d;
    PUT_INTS(p->ragged_dot, lhs_ragged, dot->lhs_ragged);
    PUT_INTS(p->ragged_dot, rhs_group, dot->rhs_group);
  } else {
    p->dot = d;
  }
  return put_precision(w, 2, dot->precision_count, dot->precision, (int)dot->algorithm, &p->precision);
}

static weft_status *put_gather(proto_writer *w, const hlo_gather_attrs *gather, HloPb__Instruction *p)
{
  HloPb__GatherDims *d;

  NEW(w, &d, hlo_pb__gather_dims__init);
  PUT_INTS(d, offset_dims, gather->offset_dims);
  PUT_INTS(d, collapsed_slice_dims, gather->collapsed_slice_dims);
  PUT_INTS(d, start_index_map, gather->start_index_map);
  PUT_INTS(d, operand_batching_dims, gather->operand_batching_dims);
  PUT_INTS(d, start_indices_batching_dims, gather->start_indices_batching_dims);
  d->index_vector_dim = gather->index_vector_dim;
  PUT_INTS(p, gather_slice_sizes, gather->slice_sizes);
  p->indices_are_sorted = gather->indices_are_sorted;
  p->gather = d;
  return NULL;
}

static weft_status *put_scatter(proto_writer *w, const hlo_scatter_attrs *scatter, HloPb__Instruction *p)
{
  HloPb__ScatterDims *d;

  NEW(w, &d, hlo_pb__scatter_dims__init);
  PUT_INTS(d, update_window_dims, scatter->update_window_dims);
  PUT_INTS(d, inserted_window_dims, scatter->inserted_window_dims);
  PUT_INTS(d, scatter_dims_to_operand_dims, scatter->scatter_dims_to_operand_dims);
  PUT_INTS(d, input_batching_dims, scatter->input_batching_dims);
  PUT_INTS(d, scatter_indices_batching_dims, scatter->scatter_indices_batching_dims);
  d->index_vector_dim = scatter->index_vector_dim;
  p->indices_are_sorted = scatter->indices_are_sorted;
  p->unique_indices = scatter->unique_indices;
  p->scatter = d;
  return NULL;
}

static weft_status *put_groups(proto_writer *w, const hlo_replica_groups *g, HloPb__Instruction *p)
{
  switch (g->form) {
  case HLO_GROUPS_LIST:
    NEW(w, &p->device_list, hlo_pb__device_list__init);
    NEW_ARRAY(w, &p->device_list->groups, g->group_count);
    p->device_list->n_groups = (size_t)g->group_count;
    for (int i = 0; i < g->group_count; i++) {
      NEW(w, &p->device_list->groups[i], hlo_pb__group__init);
      PUT_INTS(p->device_list->groups[i], ids, g->groups[i]);
    }
    return NULL;
  case HLO_GROUPS_IOTA:
    NEW(w, &p->iota_groups, hlo_pb__iota_groups__init);
    p->iota_groups->num_groups = g->num_groups;
    p->iota_groups->group_size = g->group_size;
    PUT_INTS(p->iota_groups, reshape_dims, g->reshape_dims);
    if (g->transpose_perm.count)
      return put_int32s(w, g->transpose_perm, &p->iota_groups->n_transpose_perm, &p->iota_groups->transpose_perm);
    NEW_ARRAY(w, &p->iota_groups->transpose_perm, g->reshape_dims.count);
    p->iota_groups->n_transpose_perm = (size_t)g->reshape_dims.count;
    for (int i = 0; i < g->reshape_dims.count; i++) p->iota_groups->transpose_perm[i] = i;
    return NULL;
  case HLO_GROUPS_MESH:
    NEW(w, &p->mesh_groups, hlo_pb__mesh_groups__init);
    WEFT_TRY(put_mesh(w, g->mesh, &p->mesh_groups->mesh));
    return put_axes(w, g->mesh, g->axis_count, g->axes, &p->mesh_groups->n_axes, &p->mesh_groups->axes);
  }
  return NULL;
}

/* One after another: the operands' ranks say where each ends. */
static weft_status *put_slice_sizes(proto_writer *w, const hlo_collective_attrs *c, HloPb__Instruction *p)
{
  int64_t total = 0, *sizes;

  for (int i = 0; i < c->slice_count; i++) total += c->slice_sizes[i].count;
  NEW_ARRAY(w, &sizes, total);
  p->dynamic_slice_sizes = sizes;
  p->n_dynamic_slice_sizes = (size_t)total;
  for (int i = 0; i < c->slice_count; i++)
    for (int d = 0; d < c->slice_sizes[i].count; d++) *sizes++ = c->slice_sizes[i].v[d];
  return NULL;
}

static weft_status *put_collective(proto_writer *w, const hlo_collective_attrs *c, HloPb__Instruction *p)
{
  p->channel_id = c->channel_id;
  p->use_global_device_ids = c->use_global_device_ids;
  p->constrain_layout = c->constrain_layout;
  p->is_host_transfer = c->is_host_transfer;
  p->has_dynamic_root = c->has_dynamic_root;
  NEW_ARRAY(w, &p->source_target_pairs, c->pair_count);
  p->n_source_target_pairs = (size_t)c->pair_count;
  for (int i = 0; i < c->pair_count; i++) {
    NEW(w, &p->source_target_pairs[i], hlo_pb__pair__init);
    p->source_target_pairs[i]->source = c->pairs[i][0];
    p->source_target_pairs[i]->target = c->pairs[i][1];
  }
  WEFT_TRY(put_slice_sizes(w, c, p));
  return put_groups(w, &c->groups, p);
}

static weft_status *put_output_aliases(proto_writer *w, int count, const hlo_output_alias *aliases, HloPb__Instruction *p)
{
  NEW_ARRAY(w, &p->output_aliases, count);
  p->n_output_aliases = (size_t)count;
  for (int i = 0; i < count; i++) {
    NEW(w, &p->output_aliases[i], hlo_pb__output_alias__init);
    PUT_INTS(p->output_aliases[i], output_index, aliases[i].output_index);
    p->output_aliases[i]->operand = aliases[i].operand;
    PUT_INTS(p->output_aliases[i], operand_index, aliases[i].operand_index);
  }
  return NULL;
}

static weft_status *put_custom_call(proto_writer *w, const hlo_custom_call_attrs *c, HloPb__Instruction *p)
{
  p->custom_call_target = string(c->target);
  p->custom_call_has_side_effect = c->has_side_effect;
  p->custom_call_api_version = WEFT_MAX(c->api_version, 1);
  p->custom_call_schedule = c->schedule;
  for (int i = 0; c->padding_type && i < 3; i++)
    if (strcmp(c->padding_type, hlo_padding_type_names[i]) == 0) p->padding_type = i;
  p->constrain_layout = c->layout_count > 0;
  NEW_ARRAY(w, &p->operand_layouts, c->layout_count);
  p->n_operand_layouts = (size_t)c->layout_count;
  for (int i = 0; i < c->layout_count; i++) WEFT_TRY(put_shape(w, c->operand_layouts[i], &p->operand_layouts[i]));
  if (c->literal) WEFT_TRY(put_literal(w, c->literal, c->literal->shape, &p->literal));
  if (c->conv) WEFT_TRY(put_conv(w, c->conv, 0, p));
  p->feature_group_count = WEFT_MAX(p->feature_group_count, 1);
  p->batch_group_count = WEFT_MAX(p->batch_group_count, 1);
  return put_output_aliases(w, c->alias_count, c->aliases, p);
}

static weft_status *put_slice(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p)
{
  NEW_ARRAY(w, &p->slice, instr->u.slice->start.count);
  p->n_slice = (size_t)instr->u.slice->start.count;
  for (int i = 0; i < instr->u.slice->start.count; i++) {
    NEW(w, &p->slice[i], hlo_pb__slice_dim__init);
    p->slice[i]->start = instr->u.slice->start.v[i];
    p->slice[i]->limit = instr->u.slice->limit.v[i];
    p->slice[i]->stride = instr->u.slice->stride.v[i];
  }
  return NULL;
}

static weft_status *put_padding(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p)
{
  NEW(w, &p->padding, hlo_pb__padding__init);
  NEW_ARRAY(w, &p->padding->dims, instr->u.pad.rank);
  p->padding->n_dims = (size_t)instr->u.pad.rank;
  for (int i = 0; i < instr->u.pad.rank; i++) {
    NEW(w, &p->padding->dims[i], hlo_pb__pad_dim__init);
    p->padding->dims[i]->low = instr->u.pad.dims[i].low;
    p->padding->dims[i]->high = instr->u.pad.dims[i].high;
    p->padding->dims[i]->interior = instr->u.pad.dims[i].interior;
  }
  return NULL;
}

/* What belongs to the opcode. */
static weft_status *put_own_attributes(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p)
{
  if (instr->op == HLO_FFT)
    PUT_INTS(p, fft_length, instr->dims);
  else
    PUT_INTS(p, dims, instr->dims);
  switch (instr->op) {
  case HLO_PARAMETER: p->parameter_number = instr->u.parameter_number; return NULL;
  case HLO_CONSTANT: return put_literal(w, instr->u.literal, instr->shape, &p->literal);
  case HLO_GET_TUPLE_ELEMENT: p->tuple_index = instr->u.tuple_index; return NULL;
  case HLO_COMPARE: /* XLA wants the type in words, always */
    p->comparison_direction = string(hlo_direction_names[instr->u.compare.direction]);
    p->comparison_type = string(hlo_compare_type_names[instr->u.compare.type != HLO_COMPARE_DEFAULT
                                                           ? instr->u.compare.type
                                                           : hlo_default_compare_type(instr->operands[0]->shape->type)]);
    return NULL;
  case HLO_SLICE: return put_slice(w, instr, p);
  case HLO_DYNAMIC_SLICE: PUT_INTS(p, dynamic_slice_sizes, instr->u.slice_sizes); return NULL;
  case HLO_PAD: return put_padding(w, instr, p);
  case HLO_REDUCE_PRECISION:
    p->exponent_bits = instr->u.reduce_precision.exponent_bits;
    p->mantissa_bits = instr->u.reduce_precision.mantissa_bits;
    return NULL;
  case HLO_DOT:
  case HLO_RAGGED_DOT:
  case HLO_SCALED_DOT: return put_dot(w, instr, p);
  case HLO_CONVOLUTION: return put_conv(w, instr->u.conv, 2, p);
  case HLO_REDUCE_WINDOW:
  case HLO_SELECT_AND_SCATTER: return put_window(w, instr->u.window, &p->window);
  case HLO_GATHER: return put_gather(w, instr->u.gather, p);
  case HLO_SCATTER: return put_scatter(w, instr->u.scatter, p);
  case HLO_FFT: p->fft_type = (int32_t)instr->u.fft_type; return NULL;
  case HLO_CHOLESKY:
    NEW(w, &p->cholesky, hlo_pb__cholesky__init);
    p->cholesky->lower = instr->u.lower;
    return NULL;
  case HLO_TRIANGULAR_SOLVE:
    NEW(w, &p->triangular, hlo_pb__triangular__init);
    p->triangular->left_side = instr->u.triangular.left_side;
    p->triangular->lower = instr->u.triangular.lower;
    p->triangular->unit_diagonal = instr->u.triangular.unit_diagonal;
    p->triangular->transpose_a = (int32_t)instr->u.triangular.transpose_a;
    return NULL;
  case HLO_TOPK:
    p->k = instr->u.topk.k;
    p->largest = instr->u.topk.largest;
    p->is_stable = instr->u.topk.is_stable;
    return NULL;
  case HLO_SORT: p->is_stable = instr->u.is_stable; return NULL;
  case HLO_SCAN:
    p->num_carries = instr->u.scan.num_carries;
    p->is_reverse = instr->u.scan.is_reverse;
    p->is_associative = instr->u.scan.is_associative;
    return NULL;
  case HLO_RNG: p->distribution = (int32_t)instr->u.distribution; return NULL;
  case HLO_RNG_BIT_GENERATOR: p->rng_algorithm = (int32_t)instr->u.rng_algorithm; return NULL;
  case HLO_RNG_GET_AND_UPDATE_STATE: p->delta = instr->u.delta; return NULL;
  case HLO_BATCH_NORM_GRAD:
  case HLO_BATCH_NORM_INFERENCE:
  case HLO_BATCH_NORM_TRAINING:
    p->epsilon = instr->u.batch_norm.epsilon;
    p->feature_index = instr->u.batch_norm.feature_index;
    return NULL;
  case HLO_FUSION:
    p->fusion_kind = string(hlo_fusion_kind_names[instr->u.fusion.kind]);
    return put_output_aliases(w, instr->u.fusion.alias_count, instr->u.fusion.aliases, p);
  case HLO_ASYNC_START: return put_output_aliases(w, instr->u.fusion.alias_count, instr->u.fusion.aliases, p);
  case HLO_CALL: p->is_composite = instr->u.is_composite; return NULL;
  case HLO_CUSTOM_CALL: return put_custom_call(w, instr->u.custom, p);
  case HLO_INFEED: p->infeed_config = bytes(instr->u.feed.config); return NULL;
  case HLO_OUTFEED:
    p->outfeed_config = bytes(instr->u.feed.config);
    return put_shape(w, instr->u.feed.outfeed_shape ? instr->u.feed.outfeed_shape : instr->operands[0]->shape,
                     &p->outfeed_shape);
  case HLO_DOMAIN: /* swapped as proto_read.c says */
    WEFT_TRY(put_sharding(w, instr->u.domain.entry, &p->domain_exit));
    return put_sharding(w, instr->u.domain.exit, &p->domain_entry);
  case HLO_COPY_START:
    if (!instr->u.copy_start.is_prefetch) return NULL;
    NEW_ARRAY(w, &p->cross_program_prefetch_index, 1);
    p->n_cross_program_prefetch_index = 1;
    p->cross_program_prefetch_index[0] = (int32_t)instr->u.copy_start.prefetch_index;
    return NULL;
  default:
    if (hlo_opcode_is_collective(instr->op) || instr->op == HLO_SEND || instr->op == HLO_RECV ||
        instr->op == HLO_SEND_DONE || instr->op == HLO_RECV_DONE)
      return put_collective(w, instr->u.collective, p);
    return NULL;
  }
}

static weft_status *put_metadata(proto_writer *w, const hlo_metadata *m, HloPb__Metadata **out)
{
  NEW(w, out, hlo_pb__metadata__init);
  (*out)->op_type = string(m->op_type);
  (*out)->op_name = string(m->op_name);
  (*out)->source_file = string(m->source_file);
  (*out)->source_line = m->source_line;
  (*out)->source_end_line = m->source_end_line;
  (*out)->source_column = m->source_column;
  (*out)->source_end_column = m->source_end_column;
  (*out)->stack_frame_id = m->stack_frame_id;
  return NULL;
}

static weft_status *put_common_attributes(proto_writer *w, const hlo_extra *extra, HloPb__Instruction *p)
{
  if (extra->sharding) WEFT_TRY(put_sharding(w, extra->sharding, &p->sharding));
  if (extra->frontend_count)
    WEFT_TRY(put_key_values(w, extra->frontend_count, extra->frontend_attributes, &p->frontend_attributes));
  if (extra->accuracy) {
    NEW(w, &p->accuracy, hlo_pb__accuracy__init);
    if (extra->accuracy->mode == 2) {
      NEW(w, &p->accuracy->tolerance, hlo_pb__accuracy__tolerance__init);
      p->accuracy->tolerance->atol = extra->accuracy->atol;
      p->accuracy->tolerance->rtol = extra->accuracy->rtol;
      p->accuracy->tolerance->ulps = extra->accuracy->ulps;
    } else {
      p->accuracy->mode = extra->accuracy->mode;
    }
  }
  if (extra->parameter_replication.count) {
    NEW(w, &p->parameter_replication, hlo_pb__replication__init);
    WEFT_TRY(put_bools(w, extra->parameter_replication, &p->parameter_replication->n_leaves, &p->parameter_replication->leaves));
  }
  p->backend_config = bytes(extra->backend_config);
  p->async_execution_thread = string(extra->async_thread);
  return NULL;
}

/* ---- instructions, computations, the module ------------------------------------------------------------------------------ */

static int64_t wire_id(const proto_writer *w, const hlo_instr *instr)
{
  return (int64_t)instr->parent->id << 32 | w->local_ids[instr->id];
}

/* XLA wants the names of instructions to be unique in the module; ours are so in their computation. */
static weft_status *put_name(proto_writer *w, const char *name, char **out)
{
  written_name *found, *entry = WEFT_ARENA_NEW(&w->scratch, written_name);
  char *unique = (char *)name;

  WEFT_TRY_ALLOC(entry);
  HASH_FIND(hh, w->names, unique, strlen(unique), found);
  while (found) {
    unique = weft_arena_printf(&w->scratch, "%s.%" PRId64, name, w->next_suffix++);
    WEFT_TRY_ALLOC(unique);
    HASH_FIND(hh, w->names, unique, strlen(unique), found);
  }
  HASH_ADD_KEYPTR(hh, w->names, unique, strlen(unique), entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  *out = unique;
  return NULL;
}

static weft_status *put_instruction(proto_writer *w, const hlo_instr *instr, HloPb__Instruction **out)
{
  HloPb__Instruction *p;

  NEW(w, &p, hlo_pb__instruction__init);
  *out = p;
  WEFT_TRY(put_name(w, instr->name, &p->name));
  p->opcode = string(hlo_opcode_name(instr->op));
  p->id = wire_id(w, instr);
  WEFT_TRY(put_shape(w, instr->shape, &p->shape));
  NEW_ARRAY(w, &p->operand_ids, instr->operand_count);
  p->n_operand_ids = (size_t)instr->operand_count;
  for (int i = 0; i < instr->operand_count; i++) p->operand_ids[i] = wire_id(w, instr->operands[i]);
  NEW_ARRAY(w, &p->control_predecessor_ids, instr->control->pred_count);
  p->n_control_predecessor_ids = (size_t)instr->control->pred_count;
  for (int i = 0; i < instr->control->pred_count; i++) p->control_predecessor_ids[i] = wire_id(w, instr->control->preds[i]);
  NEW_ARRAY(w, &p->called_computation_ids, instr->called_count);
  p->n_called_computation_ids = (size_t)instr->called_count;
  for (int i = 0; i < instr->called_count; i++) p->called_computation_ids[i] = instr->called[i]->id;
  if (instr->metadata) WEFT_TRY(put_metadata(w, instr->metadata, &p->metadata));
  if (instr->extra) WEFT_TRY(put_common_attributes(w, instr->extra, p));
  return put_own_attributes(w, instr, p);
}

static weft_status *put_program_shape(proto_writer *w, const hlo_computation *comp, const hlo_shape *const *params,
                                      const hlo_shape *result, HloPb__ProgramShape **out)
{
  NEW(w, out, hlo_pb__program_shape__init);
  NEW_ARRAY(w, &(*out)->params, comp->param_count);
  NEW_ARRAY(w, &(*out)->names, comp->param_count);
  (*out)->n_params = (*out)->n_names = (size_t)comp->param_count;
  for (int i = 0; i < comp->param_count; i++) {
    WEFT_TRY(put_shape(w, params ? params[i] : comp->params[i]->shape, &(*out)->params[i]));
    (*out)->names[i] = string(comp->params[i]->name);
  }
  return put_shape(w, result ? result : comp->root->shape, &(*out)->result);
}

static weft_status *put_computation(proto_writer *w, const hlo_computation *comp, HloPb__Computation **out)
{
  HloPb__Computation *p;
  size_t i = 0;

  NEW(w, &p, hlo_pb__computation__init);
  *out = p;
  p->name = string(comp->name);
  p->id = comp->id;
  p->root_id = wire_id(w, comp->root);
  p->execution_thread = string(comp->execution_thread);
  p->is_fusion_computation = w->called_by_fusion[comp->id];
  WEFT_TRY(put_program_shape(w, comp, NULL, NULL, &p->program_shape));
  NEW_ARRAY(w, &p->instructions, comp->instr_count);
  p->n_instructions = (size_t)comp->instr_count;
  HLO_FOREACH(instr, comp) WEFT_TRY(put_instruction(w, instr, &p->instructions[i++]));
  return NULL;
}

static weft_status *put_schedule(proto_writer *w, HloPb__Schedule **out)
{
  NEW(w, out, hlo_pb__schedule__init);
  NEW_ARRAY(w, &(*out)->sequences, w->module->computation_count);
  HLO_FOREACH_COMPUTATION(comp, w->module) {
    HloPb__Schedule__Entry *entry;
    size_t i = 0;

    if (w->called_by_fusion[comp->id]) continue; /* has no order of its own in XLA */
    NEW(w, &entry, hlo_pb__schedule__entry__init);
    NEW(w, &entry->sequence, hlo_pb__schedule__sequence__init);
    entry->computation = comp->id;
    NEW_ARRAY(w, &entry->sequence->ids, comp->instr_count);
    entry->sequence->n_ids = (size_t)comp->instr_count;
    HLO_FOREACH(instr, comp) entry->sequence->ids[i++] = wire_id(w, instr);
    (*out)->sequences[(*out)->n_sequences++] = entry;
  }
  return NULL;
}

static weft_status *put_aliases(proto_writer *w, HloPb__Module *p)
{
  const hlo_module *module = w->module;

  NEW(w, &p->input_output_alias, hlo_pb__input_output_alias__init);
  NEW_ARRAY(w, &p->input_output_alias->entries, module->alias_count);
  p->input_output_alias->n_entries = (size_t)module->alias_count;
  for (int i = 0; i < module->alias_count; i++) {
    HloPb__InputOutputAlias__Entry *entry;
    NEW(w, &entry, hlo_pb__input_output_alias__entry__init);
    PUT_INTS(entry, output_index, module->aliases[i].output_index);
    entry->parameter = module->aliases[i].parameter;
    PUT_INTS(entry, parameter_index, module->aliases[i].parameter_index);
    entry->kind = module->aliases[i].must_alias ? 2 : 1;
    p->input_output_alias->entries[i] = entry;
  }
  NEW(w, &p->buffer_donor, hlo_pb__buffer_donor__init);
  NEW_ARRAY(w, &p->buffer_donor->entries, module->donor_count);
  p->buffer_donor->n_entries = (size_t)module->donor_count;
  for (int i = 0; i < module->donor_count; i++) {
    HloPb__BufferDonor__Entry *entry;
    NEW(w, &entry, hlo_pb__buffer_donor__entry__init);
    entry->parameter = module->donors[i].parameter;
    PUT_INTS(entry, parameter_index, module->donors[i].parameter_index);
    p->buffer_donor->entries[i] = entry;
  }
  return NULL;
}

static weft_status *put_stack_frames(proto_writer *w, const hlo_stack_frames *f, HloPb__StackFrames **out)
{
  HloPb__StackFrames *p;

  NEW(w, &p, hlo_pb__stack_frames__init);
  *out = p;
  p->n_files = (size_t)f->file_count;
  p->files = (char **)f->files;
  p->n_functions = (size_t)f->function_count;
  p->functions = (char **)f->functions;
  NEW_ARRAY(w, &p->locations, f->location_count);
  p->n_locations = (size_t)f->location_count;
  for (int i = 0; i < f->location_count; i++) {
    const struct hlo_file_location *l = &f->locations[i];
    NEW(w, &p->locations[i], hlo_pb__stack_frames__location__init);
    p->locations[i]->file = l->file;
    p->locations[i]->function = l->function;
    p->locations[i]->line = l->line;
    p->locations[i]->end_line = l->end_line;
    p->locations[i]->column = l->column;
    p->locations[i]->end_column = l->end_column;
  }
  NEW_ARRAY(w, &p->frames, f->frame_count);
  p->n_frames = (size_t)f->frame_count;
  for (int i = 0; i < f->frame_count; i++) {
    NEW(w, &p->frames[i], hlo_pb__stack_frames__frame__init);
    p->frames[i]->location = f->frames[i].location;
    p->frames[i]->parent = WEFT_MAX(f->frames[i].parent - 1, 0);
  }
  return NULL;
}

static weft_status *number_instructions(proto_writer *w)
{
  NEW_ARRAY(w, &w->local_ids, w->module->next_id);
  NEW_ARRAY(w, &w->called_by_fusion, w->module->next_computation_id);
  HLO_FOREACH_COMPUTATION(comp, w->module) {
    int32_t place = 0;
    HLO_FOREACH(instr, comp) {
      w->local_ids[instr->id] = place++;
      if (instr->op == HLO_FUSION) w->called_by_fusion[instr->called[0]->id] = true;
    }
  }
  return NULL;
}

static weft_status *put_module(proto_writer *w, HloPb__Module **out)
{
  const hlo_module *module = w->module;
  HloPb__Module *p;
  size_t i = 0;

  NEW(w, &p, hlo_pb__module__init);
  *out = p;
  WEFT_TRY(number_instructions(w));
  p->name = string(module->name);
  p->entry_computation_name = string(module->entry->name);
  p->entry_computation_id = module->entry->id;
  NEW_ARRAY(w, &p->computations, module->computation_count);
  p->n_computations = (size_t)module->computation_count;
  HLO_FOREACH_COMPUTATION(comp, module) WEFT_TRY(put_computation(w, comp, &p->computations[i++]));
  WEFT_TRY(put_program_shape(w, module->entry, module->has_entry_layout ? module->entry_param_shapes : NULL,
                             module->has_entry_layout ? module->entry_result_shape : NULL, &p->host_program_shape));
  if (module->is_scheduled) WEFT_TRY(put_schedule(w, &p->schedule));
  WEFT_TRY(put_aliases(w, p));
  p->is_dynamic = module->is_dynamic;
  p->use_auto_spmd = module->use_auto_spmd;
  if (module->frontend_count)
    WEFT_TRY(put_key_values(w, module->frontend_count, module->frontend_attributes, &p->frontend_attributes));
  if (module->spmd_output_sharding) WEFT_TRY(put_sharding(w, module->spmd_output_sharding, &p->spmd_output_sharding));
  NEW_ARRAY(w, &p->spmd_parameter_shardings, module->spmd_parameter_count);
  p->n_spmd_parameter_shardings = (size_t)module->spmd_parameter_count;
  for (int k = 0; k < module->spmd_parameter_count; k++)
    WEFT_TRY(put_sharding(w, module->spmd_parameter_shardings[k], &p->spmd_parameter_shardings[k]));
  return module->stack_frames ? put_stack_frames(w, module->stack_frames, &p->stack_frames) : NULL;
}

static weft_status *put_config(proto_writer *w, HloPb__Config **out)
{
  const hlo_module *module = w->module;

  NEW(w, out, hlo_pb__config__init);
  WEFT_TRY(put_program_shape(w, module->entry, module->has_entry_layout ? module->entry_param_shapes : NULL,
                             module->has_entry_layout ? module->entry_result_shape : NULL, &(*out)->entry_layout));
  (*out)->replica_count = module->replica_count;
  (*out)->num_partitions = module->num_partitions;
  (*out)->use_spmd_partitioning = module->num_partitions > 1;
  (*out)->alias_passthrough_params = module->alias_passthrough_params;
  WEFT_TRY(put_bools(w, module->propagate_to_parameters, &(*out)->n_propagate_to_parameters, &(*out)->propagate_to_parameters));
  return put_bools(w, module->propagate_to_output, &(*out)->n_propagate_to_output, &(*out)->propagate_to_output);
}

/* Packs a message into malloc'd bytes. */
static weft_status *pack(const ProtobufCMessage *message, void **out_data, size_t *out_size)
{
  *out_size = protobuf_c_message_get_packed_size(message);
  *out_data = malloc(*out_size ? *out_size : 1);
  WEFT_TRY_ALLOC(*out_data);
  protobuf_c_message_pack(message, *out_data);
  return NULL;
}

weft_status *hlo_to_proto(const hlo_module *module, void **out_data, size_t *out_size)
{
  proto_writer w = {.module = module};
  HloPb__Module *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_module(&w, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  HASH_CLEAR(hh, w.names);
  weft_arena_fini(&w.scratch);
  return st;
}

static weft_status *put_with_config(proto_writer *w, HloPb__ModuleWithConfig **out)
{
  NEW(w, out, hlo_pb__module_with_config__init);
  WEFT_TRY(put_module(w, &(*out)->module));
  return put_config(w, &(*out)->config);
}

weft_status *hlo_to_proto_with_config(const hlo_module *module, void **out_data, size_t *out_size)
{
  proto_writer w = {.module = module};
  HloPb__ModuleWithConfig *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_with_config(&w, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  HASH_CLEAR(hh, w.names);
  weft_arena_fini(&w.scratch);
  return st;
}

weft_status *hlo_shape_to_proto(const hlo_shape *shape, void **out_data, size_t *out_size)
{
  proto_writer w = {0};
  HloPb__Shape *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_shape(&w, shape, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  weft_arena_fini(&w.scratch);
  return st;
}

weft_status *hlo_sharding_to_proto(const hlo_sharding *sharding, void **out_data, size_t *out_size)
{
  proto_writer w = {0};
  HloPb__Sharding *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_sharding(&w, sharding, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  weft_arena_fini(&w.scratch);
  return st;
}
