/* hlo/proto_write_attrs.c -- writes attributes into an HloModuleProto: a walk over the schema (attributes.h).
 *
 * put_KIND writes a value of that kind from its field of the instruction to its field of the message. */
#include <config.h>

#include "hlo/attributes.h"
#include "hlo/proto_write.h"

/* One value to write. */
typedef struct proto_sink {
  proto_writer *w;
  const hlo_instr *instr;
  const hlo_attr *attr;
  const void *from; /* the field in the instruction */
  HloPb__Instruction *message;
} proto_sink;

/* The message that contains the field, in *out; it is made if it is absent. */
static weft_status *make_message(const proto_sink *s, const hlo_attr_message *message, char **out)
{
  char *parent, **place;

  *out = (char *)s->message;
  if (!message) return NULL;
  WEFT_TRY(make_message(s, message->parent, &parent));
  place = (char **)(parent + message->offset);
  if (!*place) {
    *place = weft_arena_alloc(&s->w->scratch, message->type->sizeof_message);
    WEFT_TRY_ALLOC(*place);
    protobuf_c_message_init(message->type, *place);
  }
  *out = *place;
  return NULL;
}

static weft_status *field_to_write(const proto_sink *s, void *out_field)
{
  char *message, *field;

  WEFT_TRY(make_message(s, s->attr->message, &message));
  field = message + s->attr->field;
  memcpy(out_field, &field, sizeof field);
  return NULL;
}

/* Writes one number or pointer and returns. */
#define PUT(s, type, value)            \
  do {                                 \
    type *field_;                      \
    WEFT_TRY(field_to_write(s, &field_)); \
    *field_ = (type)(value);           \
    return NULL;                       \
  } while (0)
#define VALUE(s, type) (*(type const *)(s)->from)

/* A repeated field is its count followed by a pointer to its items, which are borrowed: the packer only reads them. */
static weft_status *put_list(const proto_sink *s, int count, const void *items)
{
  size_t *field;

  WEFT_TRY(field_to_write(s, &field));
  *field = (size_t)count;
  memcpy(field + 1, &items, sizeof items);
  return NULL;
}

static weft_status *put_none(const proto_sink *s)
{
  (void)s;
  return NULL;
}

/* ---- numbers, truth values, enums -------------------------------------------------------------------------------- */

static weft_status *put_int64(const proto_sink *s) { PUT(s, int64_t, VALUE(s, int64_t)); }
static weft_status *put_count(const proto_sink *s) { PUT(s, int64_t, VALUE(s, int64_t)); }
static weft_status *put_channel(const proto_sink *s) { PUT(s, int64_t, VALUE(s, int64_t)); }
static weft_status *put_int32(const proto_sink *s) { PUT(s, int32_t, VALUE(s, int)); }
static weft_status *put_bool(const proto_sink *s) { PUT(s, protobuf_c_boolean, VALUE(s, bool)); }
static weft_status *put_float(const proto_sink *s) { PUT(s, float, VALUE(s, float)); }
static weft_status *put_enum(const proto_sink *s) { PUT(s, int32_t, VALUE(s, int)); }
static weft_status *put_word_enum(const proto_sink *s) { PUT(s, char *, s->attr->words->word[VALUE(s, int)]); }

/* XLA always wants the type of a compare. */
static weft_status *put_compare_type(const proto_sink *s)
{
  hlo_compare_type type = VALUE(s, hlo_compare_type);

  if (type == HLO_COMPARE_DEFAULT) type = hlo_default_compare_type(s->instr->operands[0]->shape->type);
  PUT(s, char *, s->attr->words->word[type]);
}

/* An unspecified version is written as the original one. */
static weft_status *put_api_version(const proto_sink *s) { PUT(s, int32_t, WEFT_MAX(VALUE(s, int), 1)); }

/* ---- text and lists of integers ---------------------------------------------------------------------------------- */

static weft_status *put_string(const proto_sink *s) { PUT(s, char *, hlo_proto_string(VALUE(s, char *))); }
static weft_status *put_bytes(const proto_sink *s)
{
  ProtobufCBinaryData *field;

  WEFT_TRY(field_to_write(s, &field));
  *field = hlo_proto_bytes(VALUE(s, char *));
  return NULL;
}
static weft_status *put_config(const proto_sink *s) { return put_bytes(s); }

static weft_status *put_padding_type(const proto_sink *s)
{
  const hlo_words *words = s->attr->words;
  const char *type = VALUE(s, char *);

  for (int i = 0; type && i < words->count; i++)
    if (strcmp(type, words->word[i]) == 0) PUT(s, int32_t, i);
  return NULL;
}

static weft_status *put_sparsity(const proto_sink *s)
{
  return VALUE(s, char *) ? WEFT_ERR(UNIMPLEMENTED, "sparsity_config in HloModuleProto") : NULL;
}

static weft_status *put_ints(const proto_sink *s)
{
  return put_list(s, VALUE(s, hlo_ints).count, VALUE(s, hlo_ints).v);
}
static weft_status *put_dim(const proto_sink *s) { return put_ints(s); }

static weft_status *put_bools(const proto_sink *s)
{
  hlo_ints ints = VALUE(s, hlo_ints);
  protobuf_c_boolean *list;
  size_t count;

  if (!ints.count) return NULL;
  WEFT_TRY(hlo_proto_put_bools(s->w, ints, &count, &list));
  return put_list(s, (int)count, list);
}

/* ---- windows, convolutions, slices ------------------------------------------------------------------------------- */

static weft_status *put_window(const proto_sink *s)
{
  const hlo_window *window = s->from;
  HloPb__Window *message;

  NEW(s->w, &message, hlo_pb__window__init);
  NEW_ARRAY(s->w, &message->dims, window->rank);
  message->n_dims = (size_t)window->rank;
  for (int i = 0; i < window->rank; i++) {
    const hlo_window_dim *d = &window->dims[i];
    HloPb__WindowDim *p;
    NEW(s->w, &p, hlo_pb__window_dim__init);
    p->size = d->size;
    p->stride = d->stride;
    p->pad_low = d->pad_low;
    p->pad_high = d->pad_high;
    p->window_dilation = d->window_dilation;
    p->base_dilation = d->base_dilation;
    p->reversal = d->reversal;
    message->dims[i] = p;
  }
  PUT(s, HloPb__Window *, message);
}

/* XLA wants a precision for each operand that can have one. */
static weft_status *put_precision(const proto_sink *s)
{
  int count = hlo_list_count(s->from), total = WEFT_MAX((int)s->attr->usual, count);
  int32_t *list;

  NEW_ARRAY(s->w, &list, total);
  for (int i = 0; i < count; i++) list[i] = (int32_t)HLO_LIST_ITEMS(s->from, hlo_precision)[i];
  return put_list(s, total, list);
}

static bool has_labels(const hlo_conv_attrs *conv) { return conv->lhs_batch != conv->lhs_feature; }

static weft_status *put_dim_labels(const proto_sink *s)
{
  const hlo_conv_attrs *conv = s->from;
  HloPb__ConvDims *d;

  if (!has_labels(conv)) return NULL;
  NEW(s->w, &d, hlo_pb__conv_dims__init);
  d->lhs_batch = conv->lhs_batch;
  d->lhs_feature = conv->lhs_feature;
  d->rhs_in_feature = conv->rhs_in_feature;
  d->rhs_out_feature = conv->rhs_out_feature;
  d->out_batch = conv->out_batch;
  d->out_feature = conv->out_feature;
  PUT_INTS(d, lhs_spatial, conv->lhs_spatial);
  PUT_INTS(d, rhs_spatial, conv->rhs_spatial);
  PUT_INTS(d, out_spatial, conv->out_spatial);
  PUT(s, HloPb__ConvDims *, d);
}

static weft_status *put_custom_conv(const proto_sink *s); /* defined below: it walks over the rows of a convolution */

static weft_status *put_slice(const proto_sink *s)
{
  const hlo_slice_attrs *slice = s->from;
  HloPb__SliceDim **dims;

  NEW_ARRAY(s->w, &dims, slice->start.count);
  for (int i = 0; i < slice->start.count; i++) {
    NEW(s->w, &dims[i], hlo_pb__slice_dim__init);
    dims[i]->start = slice->start.v[i];
    dims[i]->limit = slice->limit.v[i];
    dims[i]->stride = slice->stride.v[i];
  }
  return put_list(s, slice->start.count, dims);
}

static weft_status *put_padding(const proto_sink *s)
{
  int rank = hlo_list_count(s->from);
  const hlo_pad_dim *dims = HLO_LIST_ITEMS(s->from, hlo_pad_dim);
  HloPb__Padding *padding;

  NEW(s->w, &padding, hlo_pb__padding__init);
  NEW_ARRAY(s->w, &padding->dims, rank);
  padding->n_dims = (size_t)rank;
  for (int i = 0; i < rank; i++) {
    NEW(s->w, &padding->dims[i], hlo_pb__pad_dim__init);
    padding->dims[i]->low = dims[i].low;
    padding->dims[i]->high = dims[i].high;
    padding->dims[i]->interior = dims[i].interior;
  }
  PUT(s, HloPb__Padding *, padding);
}

/* ---- collectives, aliases, custom-calls -------------------------------------------------------------------------- */

static weft_status *put_groups(const proto_sink *s)
{
  const hlo_replica_groups *g = s->from;
  HloPb__Instruction *p = s->message;
  proto_writer *w = s->w;

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
      return hlo_proto_put_int32s(w, g->transpose_perm, &p->iota_groups->n_transpose_perm,
                                  &p->iota_groups->transpose_perm);
    NEW_ARRAY(w, &p->iota_groups->transpose_perm, g->reshape_dims.count);
    p->iota_groups->n_transpose_perm = (size_t)g->reshape_dims.count;
    for (int i = 0; i < g->reshape_dims.count; i++) p->iota_groups->transpose_perm[i] = i;
    return NULL;
  case HLO_GROUPS_MESH:
    NEW(w, &p->mesh_groups, hlo_pb__mesh_groups__init);
    WEFT_TRY(hlo_proto_put_mesh(w, g->mesh, &p->mesh_groups->mesh));
    return hlo_proto_put_axes(w, g->mesh, g->axis_count, g->axes, &p->mesh_groups->n_axes, &p->mesh_groups->axes);
  }
  return NULL;
}

/* All sizes of all slices in one list.  The ranks of the operands tell the reader where each slice ends. */
static weft_status *put_slice_sizes(const proto_sink *s)
{
  const hlo_ints *slices = HLO_LIST_ITEMS(s->from, hlo_ints);
  int count = hlo_list_count(s->from), total = 0, used = 0;
  int64_t *sizes;

  for (int i = 0; i < count; i++) total += slices[i].count;
  NEW_ARRAY(s->w, &sizes, total);
  for (int i = 0; i < count; i++)
    for (int d = 0; d < slices[i].count; d++) sizes[used++] = slices[i].v[d];
  return put_list(s, total, sizes);
}

static weft_status *put_pairs(const proto_sink *s)
{
  const int64_t *pairs = HLO_LIST_ITEMS(s->from, int64_t);
  int count = hlo_list_count(s->from);
  HloPb__Pair **list;

  NEW_ARRAY(s->w, &list, count);
  for (int i = 0; i < count; i++) {
    NEW(s->w, &list[i], hlo_pb__pair__init);
    list[i]->source = pairs[2 * i];
    list[i]->target = pairs[2 * i + 1];
  }
  return put_list(s, count, list);
}

static weft_status *put_output_aliases(const proto_sink *s)
{
  const hlo_output_alias *aliases = HLO_LIST_ITEMS(s->from, hlo_output_alias);
  int count = hlo_list_count(s->from);
  HloPb__OutputAlias **list;

  NEW_ARRAY(s->w, &list, count);
  for (int i = 0; i < count; i++) {
    NEW(s->w, &list[i], hlo_pb__output_alias__init);
    PUT_INTS(list[i], output_index, aliases[i].output_index);
    list[i]->operand = aliases[i].operand;
    PUT_INTS(list[i], operand_index, aliases[i].operand_index);
  }
  return put_list(s, count, list);
}

static weft_status *put_layouts(const proto_sink *s)
{
  const hlo_shape *const *shapes = HLO_LIST_ITEMS(s->from, hlo_shape *);
  int count = hlo_list_count(s->from);
  HloPb__Shape **list;

  NEW_ARRAY(s->w, &list, count);
  for (int i = 0; i < count; i++) WEFT_TRY(hlo_proto_put_shape(s->w, shapes[i], &list[i]));
  s->message->constrain_layout = count > 0;
  return put_list(s, count, list);
}

/* XLA always wants the shape of an outfeed's data. */
static weft_status *put_shape(const proto_sink *s)
{
  const hlo_shape *shape = VALUE(s, hlo_shape *);
  HloPb__Shape *message;

  WEFT_TRY(hlo_proto_put_shape(s->w, shape ? shape : s->instr->operands[0]->shape, &message));
  PUT(s, HloPb__Shape *, message);
}

static weft_status *put_literal_of_shape(const proto_sink *s, const hlo_literal *literal, const hlo_shape *shape)
{
  HloPb__Literal *message;

  WEFT_TRY(hlo_proto_put_literal(s->w, literal, shape, &message));
  PUT(s, HloPb__Literal *, message);
}
static weft_status *put_literal(const proto_sink *s)
{
  const hlo_literal *literal = VALUE(s, hlo_literal *);

  return literal ? put_literal_of_shape(s, literal, literal->shape) : NULL;
}
static weft_status *put_constant(const proto_sink *s)
{
  return put_literal_of_shape(s, VALUE(s, hlo_literal *), s->instr->shape);
}

/* The names are swapped: the text's entry is the message's exit, and the text's exit the message's entry. */
static weft_status *put_domain(const proto_sink *s)
{
  WEFT_TRY(hlo_proto_put_sharding(s->w, s->instr->u.domain.entry, &s->message->domain_exit));
  return hlo_proto_put_sharding(s->w, s->instr->u.domain.exit, &s->message->domain_entry);
}

static weft_status *put_prefetch(const proto_sink *s)
{
  const hlo_prefetch *prefetch = s->from;
  int32_t *index;

  if (!prefetch->is_prefetch) return NULL;
  NEW_ARRAY(s->w, &index, 1);
  *index = (int32_t)prefetch->prefetch_index;
  return put_list(s, 1, index);
}

/* ---- common attributes of all instructions ----------------------------------------------------------------------- */

weft_status *hlo_proto_put_key_values(proto_writer *w, int count, const hlo_key_value *list, HloPb__Attributes **out)
{
  NEW(w, out, hlo_pb__attributes__init);
  NEW_ARRAY(w, &(*out)->map, count);
  (*out)->n_map = (size_t)count;
  for (int i = 0; i < count; i++) {
    NEW(w, &(*out)->map[i], hlo_pb__key_value__init);
    (*out)->map[i]->key = hlo_proto_string(list[i].key);
    (*out)->map[i]->value = hlo_proto_string(list[i].value);
  }
  return NULL;
}

static weft_status *put_map(const proto_sink *s)
{
  int count = hlo_list_count(s->from);
  HloPb__Attributes *message;

  if (!count) return NULL;
  WEFT_TRY(hlo_proto_put_key_values(s->w, count, HLO_LIST_ITEMS(s->from, hlo_key_value), &message));
  PUT(s, HloPb__Attributes *, message);
}

static weft_status *put_sharding(const proto_sink *s)
{
  const hlo_sharding *sharding = VALUE(s, hlo_sharding *);
  HloPb__Sharding *message;

  if (!sharding) return NULL;
  WEFT_TRY(hlo_proto_put_sharding(s->w, sharding, &message));
  PUT(s, HloPb__Sharding *, message);
}

static weft_status *put_accuracy(const proto_sink *s)
{
  const hlo_accuracy *accuracy = VALUE(s, hlo_accuracy *);
  HloPb__Accuracy *message;

  if (!accuracy) return NULL;
  NEW(s->w, &message, hlo_pb__accuracy__init);
  if (accuracy->mode == 2) {
    NEW(s->w, &message->tolerance, hlo_pb__accuracy__tolerance__init);
    message->tolerance->atol = accuracy->atol;
    message->tolerance->rtol = accuracy->rtol;
    message->tolerance->ulps = accuracy->ulps;
  } else {
    message->mode = accuracy->mode;
  }
  PUT(s, HloPb__Accuracy *, message);
}

static weft_status *put_metadata(const proto_sink *s)
{
  const hlo_metadata *m = VALUE(s, hlo_metadata *);
  HloPb__Metadata *message;

  if (!m) return NULL;
  NEW(s->w, &message, hlo_pb__metadata__init);
  message->op_type = hlo_proto_string(m->op_type);
  message->op_name = hlo_proto_string(m->op_name);
  message->source_file = hlo_proto_string(m->source_file);
  message->source_line = m->source_line;
  message->source_end_line = m->source_end_line;
  message->source_column = m->source_column;
  message->source_end_column = m->source_end_column;
  message->stack_frame_id = m->stack_frame_id;
  PUT(s, HloPb__Metadata *, message);
}

/* ---- the walk over the schema ------------------------------------------------------------------------------------ */

static weft_status *put_attr(proto_sink *s, const hlo_attr *attr, const void *from)
{
  static weft_status *(*const put[HLO_ATTR_KIND_COUNT])(const proto_sink *) = {
#define K(KIND, text, proto, compare) [HLO_KIND_##KIND] = put_##proto,
    HLO_ATTR_KINDS(K)
#undef K
  };

  if (attr->field == HLO_NO_FIELD || !from) return NULL;
  s->attr = attr;
  s->from = from;
  return put[attr->kind](s);
}

static weft_status *put_family(proto_sink *s, const hlo_attr_family *family)
{
  for (int i = 0; family && i < family->count; i++)
    WEFT_TRY(put_attr(s, &family->attrs[i], hlo_attr_field(&family->attrs[i], s->instr, s->instr->extra)));
  return NULL;
}

/* Writes what a custom-call has of a convolution: the rows of the conv family with a value.  The group counts are
 * written for every custom-call. */
static weft_status *put_custom_conv(const proto_sink *s)
{
  const hlo_attr_family *family = hlo_attrs_of(HLO_CONVOLUTION);
  const hlo_conv_attrs *conv = VALUE(s, hlo_conv_attrs *);
  proto_sink part = *s;

  s->message->feature_group_count = s->message->batch_group_count = 1;
  for (int i = 0; conv && i < family->count; i++) {
    hlo_attr attr = family->attrs[i];
    const void *from = (const char *)conv + attr.offset;
    bool is_list = attr.kind == HLO_KIND_WINDOW || attr.kind == HLO_KIND_PRECISION;

    attr.usual = 0;
    if (!is_list || hlo_list_count(from)) WEFT_TRY(put_attr(&part, &attr, from));
  }
  return NULL;
}

weft_status *hlo_proto_put_attributes(proto_writer *w, const hlo_instr *instr, HloPb__Instruction *p)
{
  const hlo_attr_family *own = hlo_attrs_of(instr->op);
  proto_sink s = {.w = w, .instr = instr, .message = p};

  WEFT_TRY(put_family(&s, own));
  WEFT_TRY(put_family(&s, own->group->wire));
  return put_family(&s, hlo_common_attrs());
}
