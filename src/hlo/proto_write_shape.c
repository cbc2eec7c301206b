/* hlo/proto_write_shape.c -- shapes, literals and shardings as messages of HloModuleProto. */
#include <config.h>

#include "hlo/proto_write.h"

weft_status *hlo_proto_put_int32s(proto_writer *w, hlo_ints ints, size_t *out_count, int32_t **out)
{
  NEW_ARRAY(w, out, ints.count);
  *out_count = (size_t)ints.count;
  for (int i = 0; i < ints.count; i++) (*out)[i] = (int32_t)ints.v[i];
  return NULL;
}

weft_status *hlo_proto_put_bools(proto_writer *w, hlo_ints ints, size_t *out_count, protobuf_c_boolean **out)
{
  NEW_ARRAY(w, out, ints.count);
  *out_count = (size_t)ints.count;
  for (int i = 0; i < ints.count; i++) (*out)[i] = ints.v[i] != 0;
  return NULL;
}

/* A layout is always written: XLA takes a shape without a layout field as a shape without a layout. */
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
  return layout->physical_shape ? hlo_proto_put_shape(w, layout->physical_shape, &(*out)->physical_shape) : NULL;
}

weft_status *hlo_proto_put_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out)
{
  NEW(w, out, hlo_pb__shape__init);
  (*out)->type = weft_dtype_to_proto(shape->type);
  if (shape->elements) {
    NEW_ARRAY(w, &(*out)->elements, shape->rank);
    (*out)->n_elements = (size_t)shape->rank;
    for (int i = 0; i < shape->rank; i++) WEFT_TRY(hlo_proto_put_shape(w, shape->elements[i], &(*out)->elements[i]));
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

/* The shape of a literal.  Of its layout only the order is written. */
static weft_status *put_literal_shape(proto_writer *w, const hlo_shape *shape, HloPb__Shape **out)
{
  hlo_shape *plain;

  if (!shape->layout) return hlo_proto_put_shape(w, shape, out);
  plain = hlo_shape_with_layout(&w->scratch, shape, shape->layout->minor_to_major);
  WEFT_TRY_ALLOC(plain);
  return hlo_proto_put_shape(w, plain, out);
}

/* `shape` is the shape of `literal` with the layout in whose order the elements are stored. */
weft_status *hlo_proto_put_literal(proto_writer *w, const hlo_literal *literal, const hlo_shape *shape,
                                   HloPb__Literal **out)
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
      WEFT_TRY(hlo_proto_put_literal(w, literal->elements[i], shape->elements[i], &(*out)->elements[i]));
    return NULL;
  }
  if (!field) return WEFT_ERR(UNIMPLEMENTED, "literals of %s", weft_dtype_name(shape->type));
  elems = (size_t)hlo_shape_elems(shape);
  if (field->is_bool) {
    protobuf_c_boolean *truths;
    NEW_ARRAY(w, &truths, elems);
    hlo_layout_walk_init(&walk, shape);
    for (size_t i = 0; i < elems; i += (size_t)walk.run, hlo_layout_walk_next(&walk))
      for (int64_t j = 0; j < walk.run; j++) truths[i + (size_t)j] = ((const char *)literal->data)[walk.at + j];
    (*out)->preds = truths;
    (*out)->n_preds = elems;
    return NULL;
  }
  hlo_layout_walk_init(&walk, shape);
  if ((size_t)walk.run == elems && bits >= 8) { /* as they lie in memory */
    data = literal->data;
  } else {
    data = weft_arena_alloc_array(&w->scratch, elems, width);
    WEFT_TRY_ALLOC(data);
    for (size_t i = 0; i < elems; i += (size_t)walk.run, hlo_layout_walk_next(&walk))
      memcpy(data + i * width, (const char *)literal->data + (size_t)walk.at * width, (size_t)walk.run * width);
  }
  if (bits < 8)
    for (size_t i = 0; i < elems; i++) data[i] = (char)(data[i] & ((1 << bits) - 1));
  if (field->is_bytes) {
    *(ProtobufCBinaryData *)((char *)*out + field->data_offset) = (ProtobufCBinaryData){elems * width, (uint8_t *)data};
    return NULL;
  }
  count = weft_dtype_is_complex(shape->type) ? elems * 2 : elems;
  memcpy((char *)*out + field->count_offset, &count, sizeof count);
  memcpy((char *)*out + field->data_offset, &data, sizeof data);
  return NULL;
}

weft_status *hlo_proto_put_mesh(proto_writer *w, const hlo_mesh *mesh, HloPb__Mesh **out)
{
  NEW(w, out, hlo_pb__mesh__init);
  NEW_ARRAY(w, &(*out)->axes, mesh->axis_count);
  (*out)->n_axes = (size_t)mesh->axis_count;
  for (int i = 0; i < mesh->axis_count; i++) {
    NEW(w, &(*out)->axes[i], hlo_pb__mesh__axis__init);
    (*out)->axes[i]->name = hlo_proto_string(mesh->axes[i].name);
    (*out)->axes[i]->size = mesh->axes[i].size;
  }
  PUT_INTS(*out, device_ids, mesh->device_ids);
  return NULL;
}

weft_status *hlo_proto_put_axes(proto_writer *w, const hlo_mesh *mesh, int count, const hlo_axis_ref *axes,
                                size_t *out_count, HloPb__AxisRef ***out)
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
  WEFT_TRY(hlo_proto_put_mesh(w, s->mesh, &(*out)->mesh));
  NEW_ARRAY(w, &(*out)->dims, s->dim_count);
  (*out)->n_dims = (size_t)s->dim_count;
  for (int i = 0; i < s->dim_count; i++) {
    HloPb__NamedSharding__Dim *dim;
    NEW(w, &dim, hlo_pb__named_sharding__dim__init);
    WEFT_TRY(hlo_proto_put_axes(w, s->mesh, s->dims[i].axis_count, s->dims[i].axes, &dim->n_axes, &dim->axes));
    dim->is_closed = !s->dims[i].open;
    (*out)->dims[i] = dim;
  }
  WEFT_TRY(
    hlo_proto_put_axes(w, s->mesh, s->replicated_count, s->replicated, &(*out)->n_replicated, &(*out)->replicated));
  WEFT_TRY(hlo_proto_put_axes(w, s->mesh, s->unreduced_count, s->unreduced, &(*out)->n_unreduced, &(*out)->unreduced));
  return hlo_proto_put_axes(w, s->mesh, s->manual_count, s->manual, &(*out)->n_manual, &(*out)->manual);
}

weft_status *hlo_proto_put_sharding(proto_writer *w, const hlo_sharding *s, HloPb__Sharding **out)
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
    for (int i = 0; i < s->tuple_count; i++) WEFT_TRY(hlo_proto_put_sharding(w, s->elements[i], &p->elements[i]));
  }
  if (s->kind != HLO_SHARDING_TILED) return NULL;
  PUT_INTS(p, tile_dims, s->tile_dims);
  PUT_INTS(p, tile_devices, s->tile_devices);
  PUT_INTS(p, iota_reshape, s->iota_reshape);
  p->replicate_last_dim = s->replicate_last_dim;
  NEW_ARRAY(w, &p->last_dims, s->last_dim_count);
  p->n_last_dims = (size_t)s->last_dim_count;
  for (int i = 0; i < s->last_dim_count; i++) p->last_dims[i] = (int32_t)s->last_dims[i];
  if (s->iota_reshape.count && !s->iota_transpose.count) { /* XLA wants the identity permutation in full */
    NEW_ARRAY(w, &p->iota_transpose, s->iota_reshape.count);
    p->n_iota_transpose = (size_t)s->iota_reshape.count;
    for (int i = 0; i < s->iota_reshape.count; i++) p->iota_transpose[i] = i;
    return NULL;
  }
  return hlo_proto_put_int32s(w, s->iota_transpose, &p->n_iota_transpose, &p->iota_transpose);
}
