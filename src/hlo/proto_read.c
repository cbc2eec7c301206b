/* hlo/proto_read.c -- HloModuleProto into a module.
 *
 * The bytes are a stranger's: messages are unpacked into an arena whose limit follows from their size, nesting is
 * checked before anything recurses, and every id, index and count is looked up or compared before it is used.
 * Instruction ids are (computation id << 32 | local id) in new files and plain in old ones: the low half, within the
 * computation, names an instruction in both. */
#include <config.h>

#include "hlo/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hlo/proto_internal.h"
#include "hlo/text_internal.h"

enum {
  MAX_MESSAGE_DEPTH = 100,      /* Module > Computation > Instruction > Shape > ... with tuples 32 deep */
  MEMORY_PER_BYTE = 128,        /* of what unpacking may take, for each byte of the file */
  MEMORY_TO_START = 16 << 20,
};

typedef struct instr_by_id {
  uint32_t id;
  hlo_instr *instr;
  UT_hash_handle hh;
} instr_by_id;

typedef struct comp_by_id {
  int64_t id;
  hlo_computation *comp;
  UT_hash_handle hh;
} comp_by_id;

typedef struct name_in_use {
  UT_hash_handle hh;
} name_in_use;

typedef struct proto_reader {
  hlo_module *module;
  weft_arena *arena;   /* the module's */
  weft_arena scratch;  /* messages and tables */
  const HloPb__Module *pb;
  comp_by_id *comps;
  instr_by_id *instrs; /* of the computation being read */
  name_in_use *names;  /* of its instructions */
  name_in_use *comp_names;
} proto_reader;

#define BAD(...) WEFT_ERR(INVALID_ARGUMENT, __VA_ARGS__)

/* ---- unpacking ---------------------------------------------------------------------------------------------------- */

static void *arena_alloc(void *arena, size_t size) { return weft_arena_alloc(arena, size); }
static void arena_free(void *arena, void *data) { (void)arena, (void)data; }

static bool read_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
  *out = 0;
  for (int shift = 0; *p < end && shift < 64; shift += 7) {
    uint8_t byte = *(*p)++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* One field of a message: its number and, of length-delimited ones, its bytes.  False at the end or if malformed. */
typedef struct wire_field { uint32_t number; bool has_bytes; const uint8_t *data; size_t size; } wire_field;
static bool next_field(const uint8_t **p, const uint8_t *end, wire_field *out)
{
  uint64_t tag, value;

  if (!read_varint(p, end, &tag)) return false;
  *out = (wire_field){.number = (uint32_t)(tag >> 3)};
  switch (tag & 7) {
  case 0: return read_varint(p, end, &value);
  case 1: value = 8; break;
  case 5: value = 4; break;
  case 2:
    if (!read_varint(p, end, &value)) return false;
    out->has_bytes = true;
    out->data = *p;
    break;
  default: return false;
  }
  if (value > (uint64_t)(end - *p)) return false;
  out->size = (size_t)value;
  *p += value;
  return true;
}

/* Messages that contain messages, followed as the unpacker will follow them. */
static bool nested_too_deep(const ProtobufCMessageDescriptor *desc, const uint8_t *p, size_t size, int depth)
{
  const uint8_t *end = p + size;
  wire_field field;

  if (depth > MAX_MESSAGE_DEPTH) return true;
  while (next_field(&p, end, &field)) {
    const ProtobufCFieldDescriptor *known =
        field.has_bytes ? protobuf_c_message_descriptor_get_field(desc, field.number) : NULL;
    if (known && known->type == PROTOBUF_C_TYPE_MESSAGE &&
        nested_too_deep(known->descriptor, field.data, field.size, depth + 1))
      return true;
  }
  return false;
}

/* The first length-delimited field `number` of a message. */
static bool find_bytes(const uint8_t *p, size_t size, uint32_t number, wire_field *out)
{
  const uint8_t *end = p + size;

  while (next_field(&p, end, out))
    if (out->number == number && out->has_bytes) return true;
  return false;
}

/* Some computation's first instruction has an opcode: then it is an HloModuleProto and no wrapper of one. */
static bool looks_like_module(const uint8_t *data, size_t size)
{
  wire_field comp, instr, opcode;

  if (!find_bytes(data, size, 3, &comp) || !find_bytes(comp.data, comp.size, 2, &instr) ||
      !find_bytes(instr.data, instr.size, 2, &opcode) || opcode.size == 0)
    return false;
  for (size_t i = 0; i < opcode.size; i++)
    if (!((opcode.data[i] >= 'a' && opcode.data[i] <= 'z') || opcode.data[i] == '-' ||
          (opcode.data[i] >= '0' && opcode.data[i] <= '9')))
      return false;
  return true;
}

static weft_status *unpack(proto_reader *r, const ProtobufCMessageDescriptor *desc, const void *data, size_t size,
                           void *out_message)
{
  ProtobufCAllocator allocator = {arena_alloc, arena_free, &r->scratch};
  ProtobufCMessage *message;

  if (nested_too_deep(desc, data, size, 0)) return BAD("messages nested over %d deep", MAX_MESSAGE_DEPTH);
  r->scratch.limit_bytes = size < SIZE_MAX / MEMORY_PER_BYTE / 2 ? MEMORY_TO_START + size * MEMORY_PER_BYTE : 0;
  message = protobuf_c_message_unpack(desc, &allocator, size, data);
  memcpy(out_message, &message, sizeof message);
  if (message) return NULL;
  return r->scratch.limit_bytes && r->scratch.total_bytes > r->scratch.limit_bytes / 2
             ? WEFT_ERR(RESOURCE_EXHAUSTED, "the message asks for far more memory than its %zu bytes justify", size)
             : BAD("these %zu bytes are not a valid %s message", size, desc->short_name);
}

/* ---- small pieces -------------------------------------------------------------------------------------------------- */

static weft_status *copy_ints(proto_reader *r, size_t count, const int64_t *v, hlo_ints *out)
{
  *out = (hlo_ints){0};
  if (count == 0) return NULL;
  if (count > INT32_MAX) return BAD("a list of %zu integers", count);
  out->v = weft_arena_memdup(r->arena, v, count * sizeof *v);
  WEFT_TRY_ALLOC(out->v);
  out->count = (int)count;
  return NULL;
}
#define COPY_INTS(r, message, field, out) WEFT_TRY(copy_ints((r), (message)->n_##field, (message)->field, (out)))

static weft_status *copy_int32s(proto_reader *r, size_t count, const int32_t *v, hlo_ints *out)
{
  int64_t *wide = WEFT_ARENA_ARRAY(r->arena, int64_t, count);

  WEFT_TRY_ALLOC(wide);
  for (size_t i = 0; i < count; i++) wide[i] = v[i];
  *out = (hlo_ints){(int)count, count ? wide : NULL};
  return NULL;
}

/* The permutation of an iota's `rank` dimensions; the identity, which text leaves out, becomes empty. */
static weft_status *copy_permutation(proto_reader *r, size_t count, const int32_t *v, int rank, hlo_ints *out)
{
  uint64_t seen = 0;
  bool identity = true;

  WEFT_TRY(copy_int32s(r, count, v, out));
  if (count && count != (size_t)rank) return BAD("a permutation of %zu dimensions for an iota of %d", count, rank);
  if (rank > 64) return BAD("an iota of %d dimensions", rank);
  for (int i = 0; i < out->count; i++) {
    if (v[i] < 0 || v[i] >= rank || seen >> v[i] & 1) return BAD("an iota's permutation that is none");
    seen |= UINT64_C(1) << v[i];
    identity &= v[i] == i;
  }
  if (identity) *out = (hlo_ints){0};
  return NULL;
}

static weft_status *copy_bools(proto_reader *r, size_t count, const protobuf_c_boolean *v, hlo_ints *out)
{
  int64_t *wide = WEFT_ARENA_ARRAY(r->arena, int64_t, count);

  WEFT_TRY_ALLOC(wide);
  for (size_t i = 0; i < count; i++) wide[i] = v[i] != 0;
  *out = (hlo_ints){(int)count, count ? wide : NULL};
  return NULL;
}

/* Absent (empty) strings are NULL. */
static weft_status *copy_string(proto_reader *r, const char *text, const char **out)
{
  *out = NULL;
  if (!text || !*text) return NULL;
  *out = weft_arena_strdup(r->arena, text);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *copy_bytes(proto_reader *r, ProtobufCBinaryData bytes, const char **out)
{
  *out = NULL;
  if (bytes.len == 0) return NULL;
  if (memchr(bytes.data, '\0', bytes.len)) return WEFT_ERR(UNIMPLEMENTED, "a NUL byte in a configuration string");
  *out = weft_arena_strndup(r->arena, (const char *)bytes.data, bytes.len);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* Words that open something in HLO text where a name may stand. */
static bool is_reserved(const char *text)
{
  static const char *const words[] = {"ROOT", "ENTRY", "FileNames", "FunctionNames", "FileLocations", "StackFrames"};

  for (size_t i = 0; i < WEFT_COUNT(words); i++)
    if (strcmp(text, words[i]) == 0) return true;
  return false;
}

/* `text` with what HLO text cannot spell replaced, and new among `*used`. */
static weft_status *copy_name(proto_reader *r, const char *text, const char *otherwise, name_in_use **used, const char **out)
{
  if (!text || !*text) text = otherwise;
  char *name = weft_arena_printf(&r->scratch, "%s%s", text, is_reserved(text) ? "_" : "");
  name_in_use *found, *entry = WEFT_ARENA_NEW(&r->scratch, name_in_use);
  const char *kept;

  WEFT_TRY_ALLOC(name);
  WEFT_TRY_ALLOC(entry);
  for (char *p = name; *p; p++) {
    bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
    if (!letter && (p == name || !((*p >= '0' && *p <= '9') || *p == '.' || *p == '-'))) *p = '_';
    if (p[0] == '>' || (p > name && p[-1] == '-' && *p == '>')) *p = '_';
  }
  kept = name;
  HASH_FIND(hh, *used, kept, strlen(kept), found);
  while (found) {
    WEFT_TRY(hlo_unique_name(r->module, name, &kept));
    HASH_FIND(hh, *used, kept, strlen(kept), found);
  }
  HASH_ADD_KEYPTR(hh, *used, kept, strlen(kept), entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  *out = kept;
  return NULL;
}

/* ---- shapes, literals, shardings ------------------------------------------------------------------------------------ */

static weft_status *read_shape(proto_reader *r, const HloPb__Shape *p, int depth, const hlo_shape **out);

static weft_status *read_layout(proto_reader *r, const HloPb__Layout *p, hlo_shape *shape, int depth)
{
  hlo_layout layout = {0};
  hlo_tile *tiles = WEFT_ARENA_ARRAY(r->arena, hlo_tile, p->n_tiles);
  hlo_split *splits = WEFT_ARENA_ARRAY(r->arena, hlo_split, p->n_splits);
  uint64_t seen = 0;
  bool plain = true;
  int64_t *order;

  if (p->n_minor_to_major == 0 && shape->rank > 0) return NULL; /* none given: the default */
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
  if (p->physical_shape) WEFT_TRY(read_shape(r, p->physical_shape, depth + 1, &layout.physical_shape));
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
  if (p->n_dynamic > 0 && p->n_dynamic != p->n_dims) return BAD("is_dynamic_dimension does not have a value for each dimension");
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

static weft_status *read_shape(proto_reader *r, const HloPb__Shape *p, int depth, const hlo_shape **out)
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
    for (size_t i = 0; i < p->n_elements; i++) WEFT_TRY(read_shape(r, p->elements[i], depth + 1, &elements[i]));
    if (shape->type == WEFT_BUFFER && (p->n_elements != 1 || !hlo_shape_is_array(elements[0])))
      return BAD("a buffer shape that does not hold one array");
    shape->rank = (int)p->n_elements;
    shape->elements = elements;
    if (hlo_shape_is_tuple(shape)) hlo_shape_note_flat(shape);
    return NULL;
  }
  return hlo_shape_is_array(shape) ? read_array_shape(r, p, shape, depth) : NULL;
}

/* An element narrower than a byte as it is in memory: zero- or sign-extended. */
static char narrow(char byte, int bits, bool is_signed)
{
  uint8_t high = (uint8_t)((uint8_t)byte << (8 - bits));

  return (char)(is_signed ? (int8_t)high >> (8 - bits) : high >> (8 - bits));
}

/* The scalars of a literal's field: how many, where, and how wide one is on the wire's side. */
static weft_status *read_array_literal(proto_reader *r, const HloPb__Literal *p, const hlo_shape *shape, hlo_literal **out)
{
  const hlo_literal_field *field = hlo_literal_field_of(shape->type);
  size_t width = weft_dtype_bytes(shape->type), count;
  int64_t elems = hlo_shape_elems(shape);
  int bits = weft_dtype_bits(shape->type), parts = weft_dtype_is_complex(shape->type) ? 2 : 1;
  const char *data;
  hlo_layout_walk walk;

  if (!field) return WEFT_ERR(UNIMPLEMENTED, "literals of %s", weft_dtype_name(shape->type));
  if (hlo_shape_is_dynamic(shape)) return BAD("a literal of dynamic shape");
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
  for (size_t i = 0; i < count; i++, hlo_layout_walk_next(&walk)) {
    char *to = (char *)(*out)->data + (size_t)walk.at * width;
    if (field->is_bool)
      *to = ((const protobuf_c_boolean *)data)[i] != 0;
    else
      memcpy(to, data + i * width, width);
    if (bits < 8) *to = narrow(*to, bits, weft_dtype_is_signed(shape->type));
  }
  return NULL;
}

static weft_status *read_literal_of(proto_reader *r, const HloPb__Literal *p, const hlo_shape *shape, const hlo_literal **out)
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
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(read_literal_of(r, p->elements[i], shape->elements[i], &lit->elements[i]));
  *out = lit;
  return NULL;
}

static weft_status *read_literal(proto_reader *r, const HloPb__Literal *p, const hlo_literal **out)
{
  const hlo_shape *shape;

  if (!p) return BAD("no literal");
  WEFT_TRY_NOTE(read_shape(r, p->shape, 0, &shape), "literal's shape");
  return read_literal_of(r, p, shape, out);
}

static weft_status *read_mesh(proto_reader *r, const HloPb__Mesh *p, const hlo_mesh **out)
{
  hlo_mesh *mesh = WEFT_ARENA_NEW(r->arena, hlo_mesh);
  hlo_mesh_axis *axes;

  if (!p) return BAD("no mesh");
  axes = WEFT_ARENA_ARRAY(r->arena, hlo_mesh_axis, p->n_axes);
  WEFT_TRY_ALLOC(mesh);
  WEFT_TRY_ALLOC(axes);
  for (size_t i = 0; i < p->n_axes; i++) {
    axes[i].name = weft_arena_strdup(r->arena, p->axes[i]->name);
    WEFT_TRY_ALLOC(axes[i].name);
    axes[i].size = p->axes[i]->size;
    if (axes[i].size < 1 || axes[i].size > INT32_MAX) return BAD("mesh axis %s of size %" PRId64, axes[i].name, axes[i].size);
  }
  mesh->axis_count = (int)p->n_axes;
  mesh->axes = axes;
  COPY_INTS(r, p, device_ids, &mesh->device_ids);
  *out = mesh;
  return NULL;
}

static weft_status *read_axes(proto_reader *r, const hlo_mesh *mesh, size_t count, HloPb__AxisRef **p,
                              const hlo_axis_ref **out, int *out_count)
{
  hlo_axis_ref *axes = WEFT_ARENA_ARRAY(r->arena, hlo_axis_ref, count);

  WEFT_TRY_ALLOC(axes);
  for (size_t i = 0; i < count; i++) {
    if (p[i]->axis < 0 || p[i]->axis >= mesh->axis_count) return BAD("mesh axis %" PRId64 " of %d", p[i]->axis, mesh->axis_count);
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
  WEFT_TRY(read_mesh(r, p->mesh, &s->mesh));
  for (size_t i = 0; i < p->n_dims; i++) {
    WEFT_TRY(read_axes(r, s->mesh, p->dims[i]->n_axes, p->dims[i]->axes, &dims[i].axes, &dims[i].axis_count));
    dims[i].open = !p->dims[i]->is_closed;
  }
  s->dims = dims;
  s->dim_count = (int)p->n_dims;
  WEFT_TRY(read_axes(r, s->mesh, p->n_replicated, p->replicated, &s->replicated, &s->replicated_count));
  WEFT_TRY(read_axes(r, s->mesh, p->n_unreduced, p->unreduced, &s->unreduced, &s->unreduced_count));
  return read_axes(r, s->mesh, p->n_manual, p->manual, &s->manual, &s->manual_count);
}

static weft_status *read_tile_assignment(proto_reader *r, const HloPb__Sharding *p, hlo_sharding *s)
{
  hlo_sharding_kind *last = WEFT_ARENA_ARRAY(r->arena, hlo_sharding_kind, p->n_last_dims);
  int64_t tiles = 1;

  WEFT_TRY_ALLOC(last);
  COPY_INTS(r, p, tile_dims, &s->tile_dims);
  COPY_INTS(r, p, tile_devices, &s->tile_devices);
  COPY_INTS(r, p, iota_reshape, &s->iota_reshape);
  WEFT_TRY(copy_permutation(r, p->n_iota_transpose, p->iota_transpose, s->iota_reshape.count, &s->iota_transpose));
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

static weft_status *read_sharding(proto_reader *r, const HloPb__Sharding *p, bool nested, const hlo_sharding **out)
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
    for (size_t i = 0; i < p->n_elements; i++) WEFT_TRY(read_sharding(r, p->elements[i], true, &elements[i]));
    s->elements = elements;
    s->tuple_count = (int)p->n_elements;
  }
  return NULL;
}

/* ---- attributes ------------------------------------------------------------------------------------------------------ */

static weft_status *read_key_values(proto_reader *r, const HloPb__Attributes *p, const hlo_key_value **out, int *out_count)
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
  WEFT_TRY(copy_permutation(r, p->n_transpose_perm, p->transpose_perm, g->reshape_dims.count, &g->transpose_perm));
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
    WEFT_TRY(read_mesh(r, p->mesh_groups->mesh, &g->mesh));
    return read_axes(r, g->mesh, p->mesh_groups->n_axes, p->mesh_groups->axes, &g->axes, &g->axis_count);
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
      WEFT_TRY(copy_ints(r, (size_t)x->rank, p->dynamic_slice_sizes + used, &list[c->slice_count++]));
      used += (size_t)x->rank;
    }
  }
  return used < total ? copy_ints(r, total - used, p->dynamic_slice_sizes + used, &list[c->slice_count++]) : NULL;
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
    for (size_t i = 0; i < p->n_operand_layouts; i++) WEFT_TRY(read_shape(r, p->operand_layouts[i], 0, &layouts[i]));
    c->operand_layouts = layouts;
    c->layout_count = (int)p->n_operand_layouts;
  }
  if (p->literal) WEFT_TRY(read_literal(r, p->literal, &c->literal));
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

static weft_status *read_slice(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  int64_t part[3][HLO_MAX_RANK];

  if (p->n_slice > HLO_MAX_RANK) return BAD("a slice of %zu dimensions", p->n_slice);
  for (size_t i = 0; i < p->n_slice; i++) {
    part[0][i] = p->slice[i]->start;
    part[1][i] = p->slice[i]->limit;
    part[2][i] = p->slice[i]->stride ? p->slice[i]->stride : 1;
  }
  WEFT_TRY(copy_ints(r, p->n_slice, part[0], &instr->u.slice.start));
  WEFT_TRY(copy_ints(r, p->n_slice, part[1], &instr->u.slice.limit));
  return copy_ints(r, p->n_slice, part[2], &instr->u.slice.stride);
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
static weft_status *read_own_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
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
  case HLO_SLICE: return read_slice(r, p, instr);
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
  case HLO_INFEED: return copy_bytes(r, p->infeed_config, &instr->u.feed.config);
  case HLO_OUTFEED:
    WEFT_TRY(copy_bytes(r, p->outfeed_config, &instr->u.feed.config));
    return p->outfeed_shape ? read_shape(r, p->outfeed_shape, 0, &instr->u.feed.outfeed_shape) : NULL;
  case HLO_DOMAIN:
    /* What the message calls entry is exit in text, and the other way round. */
    if (!p->domain_entry || !p->domain_exit) return BAD("a domain without both shardings");
    WEFT_TRY(read_sharding(r, p->domain_entry, false, &instr->u.domain.exit));
    return read_sharding(r, p->domain_exit, false, &instr->u.domain.entry);
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
  WEFT_TRY(copy_string(r, p->op_type, &m->op_type));
  WEFT_TRY(copy_string(r, p->op_name, &m->op_name));
  WEFT_TRY(copy_string(r, p->source_file, &m->source_file));
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
  WEFT_TRY(copy_bytes(r, bytes, &extra->backend_config));
  extra->backend_config_is_json = extra->backend_config && hlo_is_braced(extra->backend_config);
  return NULL;
}

static weft_status *read_common_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  static const hlo_extra none;
  hlo_extra extra = {0};
  hlo_accuracy *accuracy;

  if (p->sharding) WEFT_TRY(read_sharding(r, p->sharding, false, &extra.sharding));
  WEFT_TRY(read_key_values(r, p->frontend_attributes, &extra.frontend_attributes, &extra.frontend_count));
  WEFT_TRY(read_backend_config(r, p, &extra));
  WEFT_TRY(read_metadata(r, p->metadata, &extra.metadata));
  WEFT_TRY(copy_string(r, p->async_execution_thread, &extra.async_thread));
  if (p->parameter_replication)
    WEFT_TRY(copy_bools(r, p->parameter_replication->n_leaves, p->parameter_replication->leaves, &extra.parameter_replication));
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

/* ---- instructions ---------------------------------------------------------------------------------------------------- */

static hlo_instr *find_instr(const proto_reader *r, int64_t wire_id)
{
  uint32_t id = (uint32_t)wire_id;
  instr_by_id *found;

  HASH_FIND(hh, r->instrs, &id, sizeof id, found);
  return found ? found->instr : NULL;
}

static hlo_computation *find_computation(const proto_reader *r, int64_t id)
{
  comp_by_id *found;

  HASH_FIND(hh, r->comps, &id, sizeof id, found);
  return found ? found->comp : NULL;
}

/* Opcodes of old files that are attributes of others today. */
static hlo_opcode old_opcode(const char *name, hlo_direction *out_direction)
{
  static const struct { const char *name; hlo_opcode op; hlo_direction direction; } old[] = {
    {"equal-to", HLO_COMPARE, HLO_EQ},     {"not-equal-to", HLO_COMPARE, HLO_NE},
    {"greater-than", HLO_COMPARE, HLO_GT}, {"greater-than-or-equal-to", HLO_COMPARE, HLO_GE},
    {"less-than", HLO_COMPARE, HLO_LT},    {"less-than-or-equal-to", HLO_COMPARE, HLO_LE},
    {"cross-replica-sum", HLO_ALL_REDUCE, HLO_EQ},
  };

  for (size_t i = 0; i < WEFT_COUNT(old); i++) {
    if (strcmp(name, old[i].name) != 0) continue;
    *out_direction = old[i].direction;
    return old[i].op;
  }
  return HLO_OPCODE_COUNT;
}

static weft_status *read_called(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  hlo_computation **called = WEFT_ARENA_ARRAY(&r->scratch, hlo_computation *, p->n_called_computation_ids);

  WEFT_TRY_ALLOC(called);
  for (size_t i = 0; i < p->n_called_computation_ids; i++) {
    called[i] = find_computation(r, p->called_computation_ids[i]);
    if (!called[i]) return BAD("no computation with id %" PRId64 " comes before this one", p->called_computation_ids[i]);
  }
  return hlo_set_called(instr, (int)p->n_called_computation_ids, called);
}

/* The called computations that printing relies on. */
static bool has_called(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_WHILE:
  case HLO_SELECT_AND_SCATTER: return instr->called_count == 2;
  case HLO_ALL_REDUCE:
  case HLO_ALL_REDUCE_START:
  case HLO_REDUCE_SCATTER:
  case HLO_ASYNC_START:
  case HLO_CALL:
  case HLO_FUSION:
  case HLO_MAP:
  case HLO_REDUCE:
  case HLO_REDUCE_WINDOW:
  case HLO_SCAN:
  case HLO_SCATTER:
  case HLO_SORT: return instr->called_count == 1;
  case HLO_CONDITIONAL: return instr->called_count >= 1;
  default: return true;
  }
}

static weft_status *read_parameter(const HloPb__Instruction *p, hlo_computation *comp, size_t instr_count,
                                   const hlo_shape *shape, const char *name, hlo_instr **out)
{
  if (p->parameter_number < 0 || (uint64_t)p->parameter_number >= instr_count)
    return BAD("parameter_number %" PRId64 " in a computation of %zu instructions", p->parameter_number, instr_count);
  return hlo_add_parameter(comp, p->parameter_number, shape, name, out);
}

static weft_status *read_instruction(proto_reader *r, const HloPb__Instruction *p, hlo_computation *comp, size_t instr_count)
{
  instr_by_id *entry = WEFT_ARENA_NEW(&r->scratch, instr_by_id);
  hlo_opcode op = hlo_opcode_from_name(p->opcode, strlen(p->opcode));
  hlo_direction direction = HLO_EQ;
  hlo_instr **operands = WEFT_ARENA_ARRAY(&r->scratch, hlo_instr *, p->n_operand_ids), *instr;
  const hlo_literal *literal = NULL;
  const hlo_shape *shape;
  const char *name;
  bool is_old = false;

  WEFT_TRY_ALLOC(entry);
  WEFT_TRY_ALLOC(operands);
  if (op == HLO_OPCODE_COUNT) {
    op = old_opcode(p->opcode, &direction);
    is_old = true;
  }
  if (op == HLO_OPCODE_COUNT) return BAD("opcode \"%.60s\"", p->opcode);
  if (p->n_operand_ids > INT32_MAX || (int)p->n_operand_ids < hlo_opcode_least_operands(op) ||
      (hlo_opcode_most_operands(op) >= 0 && (int)p->n_operand_ids > hlo_opcode_most_operands(op)))
    return BAD("%s cannot have %zu operands", p->opcode, p->n_operand_ids);
  for (size_t i = 0; i < p->n_operand_ids; i++) {
    operands[i] = find_instr(r, p->operand_ids[i]);
    if (!operands[i]) return BAD("operand %zu: no instruction with id %" PRId64 " comes before", i, p->operand_ids[i]);
  }
  WEFT_TRY_NOTE(read_shape(r, p->shape, 0, &shape), "its shape");
  WEFT_TRY(copy_name(r, p->name, hlo_opcode_name(op), &r->names, &name));
  if (op == HLO_CONSTANT) {
    WEFT_TRY(read_literal(r, p->literal, &literal));
    if (!hlo_shape_equal(literal->shape, shape, false)) return BAD("the literal's shape is not the constant's");
  }
  if (op == HLO_PARAMETER)
    WEFT_TRY(read_parameter(p, comp, instr_count, shape, name, &instr));
  else
    WEFT_TRY(hlo_add(comp, NULL, op, shape, (int)p->n_operand_ids, operands, name, &instr));
  WEFT_TRY(hlo_init_attributes(instr));
  if (op == HLO_CONSTANT) {
    instr->u.literal = literal;
  } else if (is_old && op == HLO_COMPARE) {
    instr->u.compare.direction = direction;
  } else {
    int64_t number = op == HLO_PARAMETER ? instr->u.parameter_number : 0;
    WEFT_TRY(read_own_attributes(r, p, instr));
    if (op == HLO_PARAMETER) instr->u.parameter_number = number;
  }
  WEFT_TRY(read_common_attributes(r, p, instr));
  WEFT_TRY(read_called(r, p, instr));
  if (!has_called(instr)) return BAD("%s cannot call %d computations", p->opcode, instr->called_count);
  entry->id = (uint32_t)p->id;
  entry->instr = instr;
  if (find_instr(r, p->id)) return BAD("id %" PRId64 " is taken by another instruction", p->id);
  HASH_ADD(hh, r->instrs, id, sizeof entry->id, entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  return NULL;
}

/* Predecessors may stand behind their instruction in the file; the list is sorted again if they do. */
static weft_status *read_control_edges(proto_reader *r, const HloPb__Computation *p, hlo_computation *comp)
{
  bool any = false;

  for (size_t i = 0; i < p->n_instructions; i++) {
    const HloPb__Instruction *q = p->instructions[i];
    hlo_instr *instr = q->n_control_predecessor_ids ? find_instr(r, q->id) : NULL;

    for (size_t j = 0; j < q->n_control_predecessor_ids; j++) {
      hlo_instr *pred = find_instr(r, q->control_predecessor_ids[j]);
      if (!pred) return BAD("%s: no control predecessor with id %" PRId64, q->name, q->control_predecessor_ids[j]);
      if (pred == instr) return BAD("%s is its own control predecessor", q->name);
      WEFT_TRY(hlo_add_control_edge(pred, instr));
      any = true;
    }
  }
  return any ? hlo_computation_sort(comp) : NULL;
}

/* Puts the list into the order of the schedule, which names each instruction once. */
static weft_status *apply_schedule(proto_reader *r, int64_t comp_id, hlo_computation *comp)
{
  const HloPb__Schedule *schedule = r->pb->schedule;
  const HloPb__Schedule__Sequence *sequence = NULL;
  bool *placed;

  for (size_t i = 0; schedule && i < schedule->n_sequences; i++)
    if (schedule->sequences[i]->computation == comp_id) sequence = schedule->sequences[i]->sequence;
  if (!sequence) return NULL;
  if (sequence->n_ids != (size_t)comp->instr_count)
    return BAD("the schedule has %zu instructions, the computation %d", sequence->n_ids, comp->instr_count);
  placed = WEFT_ARENA_ARRAY(&r->scratch, bool, r->module->next_id);
  WEFT_TRY_ALLOC(placed);
  for (size_t i = 0; i < sequence->n_ids; i++) {
    hlo_instr *instr = find_instr(r, sequence->ids[i]);

    if (!instr || placed[instr->id]) return BAD("instruction id %" PRId64 " in the schedule is unknown or repeated", sequence->ids[i]);
    for (int j = 0; j < instr->operand_count; j++)
      if (!placed[instr->operands[j]->id]) return BAD("the schedule has %s before its operand %s", instr->name, instr->operands[j]->name);
    for (int j = 0; j < instr->control_pred_count; j++)
      if (!placed[instr->control_preds[j]->id]) return BAD("the schedule has %s before its control predecessor", instr->name);
    placed[instr->id] = true;
    hlo_move_before(instr, NULL);
  }
  return NULL;
}

static weft_status *read_computation_body(proto_reader *r, const HloPb__Computation *p, hlo_computation *comp)
{
  for (size_t i = 0; i < p->n_instructions; i++)
    WEFT_TRY_NOTE(read_instruction(r, p->instructions[i], comp, p->n_instructions), "instruction %zu, \"%.80s\"", i,
                  p->instructions[i]->name);
  if (!comp->last) return BAD("no instructions");
  for (int i = 0; i < comp->param_count; i++)
    if (!comp->params[i]) return BAD("no parameter %d", i);
  comp->root = find_instr(r, p->root_id);
  if (!comp->root) return BAD("no instruction has the root's id %" PRId64, p->root_id);
  WEFT_TRY(read_control_edges(r, p, comp));
  return apply_schedule(r, p->id, comp);
}

static weft_status *read_computation(proto_reader *r, const HloPb__Computation *p)
{
  comp_by_id *entry = WEFT_ARENA_NEW(&r->scratch, comp_by_id);
  hlo_computation *comp;
  const char *name;
  weft_status *st;

  WEFT_TRY_ALLOC(entry);
  if (find_computation(r, p->id)) return BAD("id %" PRId64 " is taken by another computation", p->id);
  WEFT_TRY(copy_name(r, p->name, "computation", &r->comp_names, &name));
  WEFT_TRY(hlo_computation_new(r->module, name, &comp));
  WEFT_TRY(copy_string(r, p->execution_thread, &comp->execution_thread));
  if (comp->execution_thread && strcmp(comp->execution_thread, "main") == 0) comp->execution_thread = NULL;
  st = read_computation_body(r, p, comp);
  HASH_CLEAR(hh, r->instrs);
  HASH_CLEAR(hh, r->names);
  WEFT_TRY(st);
  entry->id = p->id;
  entry->comp = comp;
  HASH_ADD(hh, r->comps, id, sizeof entry->id, entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  return NULL;
}

/* ---- modules --------------------------------------------------------------------------------------------------------- */

static weft_status *read_entry_layout(proto_reader *r, const HloPb__ProgramShape *p)
{
  hlo_module *module = r->module;
  const hlo_computation *entry = module->entry;

  if (!p || !p->result) return NULL;
  if (p->n_params != (size_t)entry->param_count)
    return BAD("the program shape has %zu parameters, the entry computation %d", p->n_params, entry->param_count);
  module->entry_param_shapes = WEFT_ARENA_ARRAY(r->arena, const hlo_shape *, p->n_params);
  WEFT_TRY_ALLOC(module->entry_param_shapes);
  for (size_t i = 0; i < p->n_params; i++) {
    WEFT_TRY(read_shape(r, p->params[i], 0, &module->entry_param_shapes[i]));
    if (!hlo_shape_equal(module->entry_param_shapes[i], entry->params[i]->shape, false))
      return BAD("parameter %zu has another shape in the program shape", i);
  }
  WEFT_TRY(read_shape(r, p->result, 0, &module->entry_result_shape));
  if (!hlo_shape_equal(module->entry_result_shape, entry->root->shape, false))
    return BAD("the result has another shape in the program shape");
  module->has_entry_layout = true;
  return NULL;
}

static weft_status *read_aliases(proto_reader *r)
{
  const HloPb__InputOutputAlias *p = r->pb->input_output_alias;
  const HloPb__BufferDonor *q = r->pb->buffer_donor;
  hlo_input_output_alias *aliases = WEFT_ARENA_ARRAY(r->arena, hlo_input_output_alias, p ? p->n_entries : 0);
  hlo_buffer_donor *donors = WEFT_ARENA_ARRAY(r->arena, hlo_buffer_donor, q ? q->n_entries : 0);

  WEFT_TRY_ALLOC(aliases);
  WEFT_TRY_ALLOC(donors);
  for (size_t i = 0; p && i < p->n_entries; i++) {
    COPY_INTS(r, p->entries[i], output_index, &aliases[i].output_index);
    aliases[i].parameter = p->entries[i]->parameter;
    COPY_INTS(r, p->entries[i], parameter_index, &aliases[i].parameter_index);
    aliases[i].must_alias = p->entries[i]->kind == 2;
    if (aliases[i].parameter < 0 || aliases[i].parameter >= r->module->entry->param_count)
      return BAD("input_output_alias of parameter %" PRId64, aliases[i].parameter);
  }
  for (size_t i = 0; q && i < q->n_entries; i++) {
    donors[i].parameter = q->entries[i]->parameter;
    COPY_INTS(r, q->entries[i], parameter_index, &donors[i].parameter_index);
    if (donors[i].parameter < 0 || donors[i].parameter >= r->module->entry->param_count)
      return BAD("buffer_donor of parameter %" PRId64, donors[i].parameter);
  }
  r->module->alias_count = p ? (int)p->n_entries : 0;
  r->module->aliases = aliases;
  r->module->donor_count = q ? (int)q->n_entries : 0;
  r->module->donors = donors;
  return NULL;
}

static weft_status *read_stack_frames(proto_reader *r)
{
  const HloPb__StackFrames *p = r->pb->stack_frames;
  hlo_stack_frames *f;

  if (!p || p->n_frames == 0) return NULL;
  f = WEFT_ARENA_NEW(r->arena, hlo_stack_frames);
  WEFT_TRY_ALLOC(f);
  f->files = WEFT_ARENA_ARRAY(r->arena, const char *, p->n_files);
  f->functions = WEFT_ARENA_ARRAY(r->arena, const char *, p->n_functions);
  f->locations = WEFT_ARENA_ARRAY(r->arena, struct hlo_file_location, p->n_locations);
  f->frames = WEFT_ARENA_ARRAY(r->arena, struct hlo_stack_frame, p->n_frames);
  if (!f->files || !f->functions || !f->locations || !f->frames) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_files; i++)
    if (!(f->files[i] = weft_arena_strdup(r->arena, p->files[i]))) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_functions; i++)
    if (!(f->functions[i] = weft_arena_strdup(r->arena, p->functions[i]))) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_locations; i++) {
    const HloPb__StackFrames__Location *l = p->locations[i];
    f->locations[i] = (struct hlo_file_location){WEFT_MAX(l->file, 0), WEFT_MAX(l->function, 0), WEFT_MAX(l->line, 0),
                                                 WEFT_MAX(l->end_line, 0), WEFT_MAX(l->column, 0), WEFT_MAX(l->end_column, 0)};
  }
  for (size_t i = 0; i < p->n_frames; i++)
    f->frames[i] = (struct hlo_stack_frame){WEFT_MAX(p->frames[i]->location, 0),
                                            p->frames[i]->parent > 0 && p->frames[i]->parent < INT32_MAX ? p->frames[i]->parent + 1 : 1};
  f->file_count = (int)p->n_files;
  f->function_count = (int)p->n_functions;
  f->location_count = (int)p->n_locations;
  f->frame_count = (int)p->n_frames;
  r->module->stack_frames = f;
  return NULL;
}

static weft_status *read_module_shardings(proto_reader *r)
{
  const HloPb__Module *p = r->pb;
  const hlo_sharding **list = WEFT_ARENA_ARRAY(r->arena, const hlo_sharding *, p->n_spmd_parameter_shardings);

  WEFT_TRY_ALLOC(list);
  if (p->spmd_output_sharding) WEFT_TRY(read_sharding(r, p->spmd_output_sharding, false, &r->module->spmd_output_sharding));
  for (size_t i = 0; i < p->n_spmd_parameter_shardings; i++)
    WEFT_TRY(read_sharding(r, p->spmd_parameter_shardings[i], false, &list[i]));
  r->module->spmd_parameter_shardings = list;
  r->module->spmd_parameter_count = (int)p->n_spmd_parameter_shardings;
  return NULL;
}

static weft_status *read_module(proto_reader *r)
{
  const HloPb__Module *p = r->pb;
  hlo_module *module = r->module;
  name_in_use *module_names = NULL;
  weft_status *st = copy_name(r, p->name, "module", &module_names, &module->name);

  HASH_CLEAR(hh, module_names);
  WEFT_TRY(st);
  module->name = weft_arena_strdup(r->arena, module->name);
  WEFT_TRY_ALLOC(module->name);
  for (size_t i = 0; i < p->n_computations; i++)
    WEFT_TRY_NOTE(read_computation(r, p->computations[i]), "computation %zu, \"%.80s\"", i, p->computations[i]->name);
  module->entry = find_computation(r, p->entry_computation_id);
  if (!module->entry) return BAD("no computation has the entry's id %" PRId64, p->entry_computation_id);
  module->is_scheduled = p->schedule && p->schedule->n_sequences > 0;
  module->is_dynamic = p->is_dynamic;
  module->use_auto_spmd = p->use_auto_spmd;
  WEFT_TRY(read_entry_layout(r, p->host_program_shape));
  WEFT_TRY(read_aliases(r));
  WEFT_TRY(read_key_values(r, p->frontend_attributes, &module->frontend_attributes, &module->frontend_count));
  WEFT_TRY(read_module_shardings(r));
  return read_stack_frames(r);
}

static weft_status *read_config(proto_reader *r, const HloPb__Config *p)
{
  if (!p) return NULL;
  r->module->replica_count = WEFT_MAX(p->replica_count, 1);
  r->module->num_partitions = WEFT_MAX(p->num_partitions, 1);
  r->module->alias_passthrough_params = p->alias_passthrough_params;
  WEFT_TRY(copy_bools(r, p->n_propagate_to_parameters, p->propagate_to_parameters, &r->module->propagate_to_parameters));
  WEFT_TRY(copy_bools(r, p->n_propagate_to_output, p->propagate_to_output, &r->module->propagate_to_output));
  return read_entry_layout(r, p->entry_layout);
}

/* Finds the HloModuleProto in what may be a wrapper of it. */
static weft_status *read_any(proto_reader *r, const uint8_t *data, size_t size)
{
  const HloPb__ModuleWithConfig *with_config;
  wire_field outer = {.data = data, .size = size};

  for (int depth = 0; depth < 3; depth++) {
    if (looks_like_module(outer.data, outer.size)) {
      WEFT_TRY(unpack(r, &hlo_pb__module__descriptor, outer.data, outer.size, &r->pb));
      return read_module(r);
    }
    const uint8_t *p = outer.data;
    wire_field inner, config;
    if (!find_bytes(p, outer.size, 1, &inner)) break;
    if (looks_like_module(inner.data, inner.size) && find_bytes(p, outer.size, 2, &config) &&
        !find_bytes(p, outer.size, 3, &config)) {
      WEFT_TRY(unpack(r, &hlo_pb__module_with_config__descriptor, outer.data, outer.size, &with_config));
      if (!with_config->module) break;
      r->pb = with_config->module;
      WEFT_TRY(read_module(r));
      return read_config(r, with_config->config);
    }
    outer = inner;
  }
  return BAD("these %zu bytes hold no HloModuleProto", size);
}

weft_status *hlo_from_proto(const void *data, size_t size, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  proto_reader r = {0};
  weft_status *st;

  *out_module = NULL;
  WEFT_TRY(hlo_module_new("module", &module));
  r.module = module;
  r.arena = &module->arena;
  weft_arena_init(&r.scratch);
  st = read_any(&r, data, size);
  HASH_CLEAR(hh, r.comps);
  HASH_CLEAR(hh, r.comp_names);
  weft_arena_fini(&r.scratch);
  WEFT_TRY(st);
  *out_module = WEFT_MOVE(module);
  return NULL;
}

weft_status *hlo_shape_from_proto(weft_arena *arena, const void *data, size_t size, const hlo_shape **out)
{
  proto_reader r = {.arena = arena};
  const HloPb__Shape *p;
  weft_status *st;

  *out = NULL;
  weft_arena_init(&r.scratch);
  st = unpack(&r, &hlo_pb__shape__descriptor, data, size, &p);
  if (!st) st = read_shape(&r, p, 0, out);
  weft_arena_fini(&r.scratch);
  return st;
}

weft_status *hlo_sharding_from_proto(weft_arena *arena, const void *data, size_t size, const hlo_sharding **out)
{
  proto_reader r = {.arena = arena};
  const HloPb__Sharding *p;
  weft_status *st;

  *out = NULL;
  weft_arena_init(&r.scratch);
  st = unpack(&r, &hlo_pb__sharding__descriptor, data, size, &p);
  if (!st) st = read_sharding(&r, p, false, out);
  weft_arena_fini(&r.scratch);
  return st;
}
