/* hlo/proto_shape.c -- shapes, literals and shardings out of an HloModuleProto. */
#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/proto_read.h"
#include "hlo/sharding.h"
#include "hlo/text_internal.h"

static weft_status *read_layout(proto_reader *r, const HloPb__Layout *p, hlo_shape *shape, int depth)
{
  hlo_layout layout = {0};
  hlo_tile *tiles = WEFT_ARENA_ARRAY(r->arena, hlo_tile, p->n_tiles);
  hlo_split *splits = WEFT_ARENA_ARRAY(r->arena, hlo_split, p->n_splits);
  uint64_t seen = 0;
  bool plain = true;
  int64_t *order;

  if (p->n_minor_to_major == 0 && shape->rank > 0) return NULL; /* no order given: the default layout */
  if (p->n_minor_to_major != (size_t)shape->rank)
    return BAD("a layout of %zu dimensions for a shape of %d", p->n_minor_to_major, shape->rank);
  order = weft_arena_memdup(r->arena, p->minor_to_major, p->n_minor_to_major * sizeof *order);
  if (!tiles || !splits || !order) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < shape->rank; i++) {
    if (order[i] < 0 || order[i] >= shape->rank || seen >> order[i] & 1)
      return BAD("minor_to_major is no permutation of %d dimensions", shape->rank);
    seen |= UINT64_C(1) << order[i];
    plain &= order[i] == shape->rank - 1 - i;
  }
  for (size_t i = 0; i < p->n_dim_level_types; i++)
    if (p->dim_level_types[i] != 0) return WEFT_ERR(UNIMPLEMENTED, "a layout with sparse dimensions");
  for (size_t i = 0; i < p->n_tiles; i++) {
    hlo_ints dims;
    COPY_INTS(r, p->tiles[i], dims, &dims);
    tiles[i] = (hlo_tile){dims.count, dims.v};
    plain = false;
  }
  for (size_t i = 0; i < p->n_splits; i++) {
    hlo_ints indices;
    COPY_INTS(r, p->splits[i], indices, &indices);
    splits[i] = (hlo_split){p->splits[i]->dim, indices.count, indices.v};
    plain = false;
  }
  layout = (hlo_layout){
    .minor_to_major = order,
    .tile_count = (int)p->n_tiles,
    .split_count = (int)p->n_splits,
    .tiles = tiles,
    .splits = splits,
    .element_bits = p->element_bits,
    .memory_space = p->memory_space,
    .tail_padding = p->tail_padding > 1 ? p->tail_padding : 0,
    .index_type = weft_dtype_from_proto(p->index_type),
    .pointer_type = weft_dtype_from_proto(p->pointer_type),
    .dynamic_prefix_bytes = p->dynamic_prefix_bytes,
  };
  if (p->physical_shape) WEFT_TRY(hlo_proto_read_shape(r, p->physical_shape, depth + 1, &layout.physical_shape));
  if (layout.element_bits < 0 || layout.memory_space < 0 || layout.dynamic_prefix_bytes < 0)
    return BAD("a negative property of a layout");
  plain &= !layout.element_bits && !layout.memory_space && !layout.tail_padding && !layout.index_type &&
           !layout.pointer_type && !layout.dynamic_prefix_bytes && !layout.physical_shape;
  if (plain) return NULL;
  shape->layout = weft_arena_memdup(r->arena, &layout, sizeof layout);
  WEFT_TRY_ALLOC(shape->layout);
  return NULL;
}

static weft_status *read_array_shape(proto_reader *r, const HloPb__Shape *p, hlo_shape *shape, int depth)
{
  int64_t *dims = WEFT_ARENA_ARRAY(r->arena, int64_t, p->n_dims);
  bool *dynamic = WEFT_ARENA_ARRAY(r->arena, bool, p->n_dims), any_dynamic = false;

  WEFT_TRY_ALLOC(dims);
  WEFT_TRY_ALLOC(dynamic);
  if (p->n_dims > HLO_MAX_RANK) return BAD("a shape of %zu dimensions, more than %d", p->n_dims, HLO_MAX_RANK);
  if (p->n_dynamic > 0 && p->n_dynamic != p->n_dims)
    return BAD("is_dynamic_dimension does not have a value for each dimension");
  for (size_t i = 0; i < p->n_dims; i++) {
    dims[i] = p->dims[i];
    dynamic[i] = (p->n_dynamic && p->dynamic[i]) || dims[i] == HLO_UNBOUNDED;
    any_dynamic |= dynamic[i];
  }
  shape->rank = (int)p->n_dims;
  shape->dims = dims;
  shape->dynamic = any_dynamic ? dynamic : NULL;
  if (!hlo_shape_is_sane(shape)) return BAD("a shape with a negative dimension or more than 2^63 bytes");
  return p->layout ? read_layout(r, p->layout, shape, depth) : NULL;
}

weft_status *hlo_proto_read_shape(proto_reader *r, const HloPb__Shape *p, int depth, const hlo_shape **out)
{
  hlo_shape *shape = WEFT_ARENA_NEW(r->arena, hlo_shape);

  WEFT_TRY_ALLOC(shape);
  if (!p) return BAD("no shape");
  if (depth > HLO_MAX_TUPLE_DEPTH) return BAD("a shape nested over %d deep", HLO_MAX_TUPLE_DEPTH);
  *out = shape;
  shape->type = weft_dtype_from_proto(p->type);
  if (shape->type == WEFT_INVALID) return BAD("element type %d", p->type);
  if (shape->type == WEFT_TUPLE || shape->type == WEFT_BUFFER) {
    const hlo_shape **elements = WEFT_ARENA_ARRAY(r->arena, const hlo_shape *, p->n_elements);

    WEFT_TRY_ALLOC(elements);
    if (p->n_elements > INT32_MAX) return BAD("a tuple of %zu elements", p->n_elements);
    for (size_t i = 0; i < p->n_elements; i++)
      WEFT_TRY(hlo_proto_read_shape(r, p->elements[i], depth + 1, &elements[i]));
    if (shape->type == WEFT_BUFFER && (p->n_elements != 1 || !hlo_shape_is_array(elements[0])))
      return BAD("a buffer shape that does not hold one array");
    shape->rank = (int)p->n_elements;
    shape->elements = elements;
    if (hlo_shape_is_tuple(shape)) hlo_shape_note_parts(shape);
    return NULL;
  }
  return hlo_shape_is_array(shape) ? read_array_shape(r, p, shape, depth) : NULL;
}

/* Extends elements narrower than a byte to their form in memory: with zeros or copies of the sign. */
static void narrow(void *data, size_t count, int bits, bool is_signed)
{
  int unused = 8 - bits;
  uint8_t *zeros = data;
  int8_t *signs = data;

  if (is_signed)
    for (size_t i = 0; i < count; i++) signs[i] = (int8_t)((int8_t)(uint8_t)(zeros[i] << unused) >> unused);
  else
    for (size_t i = 0; i < count; i++) zeros[i] = (uint8_t)((uint8_t)(zeros[i] << unused) >> unused);
}

/* Reads the elements of an array, which the message has in the order of the shape's layout. */
static weft_status *read_array_literal(proto_reader *r, const HloPb__Literal *p, const hlo_shape *shape,
                                       hlo_literal **out)
{
  const hlo_literal_field *field = hlo_literal_field_of(shape->type);
  size_t width = weft_dtype_bytes(shape->type), count;
  int bits = weft_dtype_bits(shape->type), parts = weft_dtype_is_complex(shape->type) ? 2 : 1;
  const char *data;
  hlo_layout_walk walk;
  int64_t elems;

  if (!field) return WEFT_ERR(UNIMPLEMENTED, "literals of %s", weft_dtype_name(shape->type));
  if (hlo_shape_is_dynamic(shape)) return BAD("a literal of dynamic shape");
  elems = hlo_shape_elems(shape);
  if (field->is_bytes) {
    ProtobufCBinaryData bytes = *(const ProtobufCBinaryData *)((const char *)p + field->data_offset);
    data = (const char *)bytes.data;
    count = bytes.len / width;
    if (bytes.len % width) return BAD("%zu bytes of literal data for elements of %zu bytes", bytes.len, width);
  } else {
    memcpy(&count, (const char *)p + field->count_offset, sizeof count);
    memcpy(&data, (const char *)p + field->data_offset, sizeof data);
    count /= (size_t)parts;
  }
  if ((int64_t)count != elems) return BAD("a literal of %" PRId64 " elements has the data of %zu", elems, count);
  WEFT_TRY(hlo_literal_new(r->arena, shape, out));
  hlo_layout_walk_init(&walk, shape);
  for (size_t i = 0; i < count; i += (size_t)walk.run, hlo_layout_walk_next(&walk)) {
    char *to = (char *)(*out)->data + (size_t)walk.at * width;
    if (!field->is_bool) memcpy(to, data + i * width, (size_t)walk.run * width);
    else
      for (int64_t j = 0; j < walk.run; j++) to[j] = ((const protobuf_c_boolean *)data)[i + (size_t)j] != 0;
  }
  if (bits < 8 && !field->is_bool) narrow((*out)->data, count, bits, weft_dtype_is_signed(shape->type));
  return NULL;
}

static weft_status *read_literal_of(proto_reader *r, const HloPb__Literal *p, const hlo_shape *shape,
                                    const hlo_literal **out)
{
  hlo_literal *lit;

  if (!hlo_shape_is_tuple(shape)) {
    if (!hlo_shape_is_array(shape)) return BAD("a literal of %s", weft_dtype_name(shape->type));
    WEFT_TRY(read_array_literal(r, p, shape, &lit));
    *out = lit;
    return NULL;
  }
  if (p->n_elements != (size_t)shape->rank) return BAD("a literal of %d elements has %zu", shape->rank, p->n_elements);
  lit = WEFT_ARENA_NEW(r->arena, hlo_literal);
  WEFT_TRY_ALLOC(lit);
  lit->shape = shape;
  lit->elements = WEFT_ARENA_ARRAY(r->arena, const hlo_literal *, shape->rank);
  WEFT_TRY_ALLOC(lit->elements);
  for (int i = 0; i < shape->rank; i++)
    WEFT_TRY(read_literal_of(r, p->elements[i], shape->elements[i], &lit->elements[i]));
  *out = lit;
  return NULL;
}

weft_status *hlo_proto_read_literal(proto_reader *r, const HloPb__Literal *p, const hlo_literal **out)
{
  const hlo_shape *shape;

  if (!p) return BAD("no literal");
  WEFT_TRY_NOTE(hlo_proto_read_shape(r, p->shape, 0, &shape), "literal's shape");
  return read_literal_of(r, p, shape, out);
}

weft_status *hlo_proto_read_mesh(proto_reader *r, const HloPb__Mesh *p, const hlo_mesh **out)
{
  hlo_mesh *mesh = WEFT_ARENA_NEW(r->arena, hlo_mesh);
  hlo_mesh_axis *axes;
  hlo_ints reshape, transpose;

  if (!p) return BAD("no mesh");
  axes = WEFT_ARENA_ARRAY(r->arena, hlo_mesh_axis, p->n_axes);
  WEFT_TRY_ALLOC(mesh);
  WEFT_TRY_ALLOC(axes);
  for (size_t i = 0; i < p->n_axes; i++) {
    axes[i].name = weft_arena_strdup(r->arena, p->axes[i]->name);
    WEFT_TRY_ALLOC(axes[i].name);
    axes[i].size = p->axes[i]->size;
    if (axes[i].size < 1 || axes[i].size > INT32_MAX)
      return BAD("mesh axis %s of size %" PRId64, axes[i].name, axes[i].size);
  }
  mesh->axis_count = (int)p->n_axes;
  mesh->axes = axes;
  COPY_INTS(r, p, device_ids, &mesh->device_ids);
  *out = mesh;
  if (!p->iota) return NULL;
  COPY_INTS(r, p->iota, reshape, &reshape);
  COPY_INTS(r, p->iota, transpose, &transpose);
  return hlo_mesh_set_iota(r->arena, mesh, reshape, transpose);
}

weft_status *hlo_proto_read_axes(proto_reader *r, const hlo_mesh *mesh, size_t count, HloPb__AxisRef **p,
                                 const hlo_axis_ref **out, int *out_count)
{
  hlo_axis_ref *axes = WEFT_ARENA_ARRAY(r->arena, hlo_axis_ref, count);

  WEFT_TRY_ALLOC(axes);
  for (size_t i = 0; i < count; i++) {
    if (p[i]->axis < 0 || p[i]->axis >= mesh->axis_count)
      return BAD("mesh axis %" PRId64 " of %d", p[i]->axis, mesh->axis_count);
    axes[i].name = mesh->axes[p[i]->axis].name;
    if (!p[i]->sub_axis) continue;
    axes[i].pre_size = p[i]->sub_axis->pre_size;
    axes[i].size = p[i]->sub_axis->size;
    if (axes[i].pre_size < 1 || axes[i].size < 1) return BAD("part of mesh axis %s with a size below 1", axes[i].name);
  }
  *out = axes;
  *out_count = (int)count;
  return NULL;
}

static weft_status *read_named_sharding(proto_reader *r, const HloPb__NamedSharding *p, hlo_sharding *s)
{
  struct hlo_named_dim *dims = WEFT_ARENA_ARRAY(r->arena, struct hlo_named_dim, p->n_dims);

  WEFT_TRY_ALLOC(dims);
  s->kind = HLO_SHARDING_NAMED;
  WEFT_TRY(hlo_proto_read_mesh(r, p->mesh, &s->mesh));
  for (size_t i = 0; i < p->n_dims; i++) {
    WEFT_TRY(hlo_proto_read_axes(r, s->mesh, p->dims[i]->n_axes, p->dims[i]->axes, &dims[i].axes, &dims[i].axis_count));
    dims[i].open = !p->dims[i]->is_closed;
  }
  s->dims = dims;
  s->dim_count = (int)p->n_dims;
  WEFT_TRY(hlo_proto_read_axes(r, s->mesh, p->n_replicated, p->replicated, &s->replicated, &s->replicated_count));
  WEFT_TRY(hlo_proto_read_axes(r, s->mesh, p->n_unreduced, p->unreduced, &s->unreduced, &s->unreduced_count));
  return hlo_proto_read_axes(r, s->mesh, p->n_manual, p->manual, &s->manual, &s->manual_count);
}

static weft_status *read_tile_assignment(proto_reader *r, const HloPb__Sharding *p, hlo_sharding *s)
{
  hlo_sharding_kind *last = WEFT_ARENA_ARRAY(r->arena, hlo_sharding_kind, p->n_last_dims);
  int64_t tiles = 1;

  WEFT_TRY_ALLOC(last);
  COPY_INTS(r, p, tile_dims, &s->tile_dims);
  COPY_INTS(r, p, tile_devices, &s->tile_devices);
  COPY_INTS(r, p, iota_reshape, &s->iota_reshape);
  WEFT_TRY(
    hlo_proto_copy_permutation(r, p->n_iota_transpose, p->iota_transpose, s->iota_reshape.count, &s->iota_transpose));
  for (int i = 0; i < s->tile_dims.count; i++)
    if (s->tile_dims.v[i] < 1 || __builtin_mul_overflow(tiles, s->tile_dims.v[i], &tiles))
      return BAD("a tile assignment's dimensions are positive, their product below 2^63");
  if (!s->iota_reshape.count && s->tile_devices.count != tiles)
    return BAD("%d devices for %" PRId64 " tiles", s->tile_devices.count, tiles);
  for (size_t i = 0; i < p->n_last_dims; i++) {
    last[i] = (hlo_sharding_kind)p->last_dims[i];
    if (p->last_dims[i] < 0 || last[i] > HLO_SHARDING_UNREDUCED) return BAD("sharding type %d", p->last_dims[i]);
  }
  if (p->n_last_dims > p->n_tile_dims) return BAD("more last_tile_dims than dimensions");
  s->replicate_last_dim = p->replicate_last_dim;
  s->last_dims = last;
  s->last_dim_count = (int)p->n_last_dims;
  return NULL;
}

weft_status *hlo_proto_read_sharding(proto_reader *r, const HloPb__Sharding *p, bool nested, const hlo_sharding **out)
{
  hlo_sharding *s = WEFT_ARENA_NEW(r->arena, hlo_sharding);

  WEFT_TRY_ALLOC(s);
  *out = s;
  if (p->named) return read_named_sharding(r, p->named, s);
  if (p->type < 0 || p->type > HLO_SHARDING_UNREDUCED) return BAD("sharding type %d", p->type);
  s->kind = (hlo_sharding_kind)p->type;
  if (p->is_shard_group) {
    s->shard_group = p->shard_group_type == 0 ? 1 : 2;
    s->shard_group_id = p->shard_group_id;
  }
  if (s->kind == HLO_SHARDING_MAXIMAL) {
    if (p->n_tile_devices != 1) return BAD("a maximal sharding has one device, not %zu", p->n_tile_devices);
    s->maximal_device = p->tile_devices[0];
  } else if (s->kind == HLO_SHARDING_TILED) {
    return read_tile_assignment(r, p, s);
  } else if (s->kind == HLO_SHARDING_TUPLE) {
    const hlo_sharding **elements = WEFT_ARENA_ARRAY(r->arena, const hlo_sharding *, p->n_elements);

    WEFT_TRY_ALLOC(elements);
    if (nested) return BAD("a tuple sharding in a tuple sharding");
    for (size_t i = 0; i < p->n_elements; i++) WEFT_TRY(hlo_proto_read_sharding(r, p->elements[i], true, &elements[i]));
    s->elements = elements;
    s->tuple_count = (int)p->n_elements;
  }
  return NULL;
}
