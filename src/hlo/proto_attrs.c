/* hlo/proto_attrs.c -- reads attributes of instructions from an HloModuleProto: a walk over the schema (attributes.h).
 *
 * get_KIND reads a value of that kind from its field of the message into its field of the instruction.  An attribute
 * that no function reads keeps its default. */
#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/attributes.h"
#include "hlo/proto_read.h"
#include "hlo/text_internal.h"

/* One value to read. */
typedef struct proto_source {
  proto_reader *r;
  const HloPb__Instruction *message;
  const hlo_attr *attr;
  const void *from; /* the field in the message, or the count of a repeated field */
  hlo_instr *instr;
  hlo_extra *extra; /* becomes the instruction's `extra` */
  void *to;         /* the field in the instruction */
} proto_source;

/* A repeated field is its count followed by the pointer to its items. */
static size_t item_count(const proto_source *s) { return *(const size_t *)s->from; }
#define ITEMS(s, type) (*(type *const *)((const size_t *)(s)->from + 1))
#define VALUE(s, type) (*(type const *)(s)->from)

static weft_status *get_none(const proto_source *s)
{
  (void)s;
  return NULL;
}

/* ---- numbers, truth values, enums -------------------------------------------------------------------------------- */

static weft_status *get_int64(const proto_source *s)
{
  *(int64_t *)s->to = VALUE(s, int64_t);
  return NULL;
}

/* Text has counts up to INT32_MAX, so a proto may not have larger ones. */
static weft_status *get_count(const proto_source *s)
{
  if (VALUE(s, int64_t) > INT32_MAX) return BAD("%s %" PRId64, s->attr->name, VALUE(s, int64_t));
  *(int64_t *)s->to = WEFT_MAX(VALUE(s, int64_t), 1);
  return NULL;
}

/* Older writers write the channel of an all-reduce into another field, all_reduce_id. */
static weft_status *get_channel(const proto_source *s)
{
  *(int64_t *)s->to = WEFT_MAX(VALUE(s, int64_t) ? VALUE(s, int64_t) : s->message->all_reduce_id, 0);
  return NULL;
}

static weft_status *get_int32(const proto_source *s)
{
  *(int *)s->to = VALUE(s, int32_t);
  return NULL;
}

static weft_status *get_bool(const proto_source *s)
{
  *(bool *)s->to = VALUE(s, protobuf_c_boolean);
  return NULL;
}

static weft_status *get_float(const proto_source *s)
{
  *(float *)s->to = VALUE(s, float);
  return NULL;
}

static weft_status *get_enum(const proto_source *s)
{
  const hlo_words *words = s->attr->words;
  int number = VALUE(s, int32_t);

  if (number < words->least || number >= words->count) return BAD("%s %d", words->subject, number);
  *(int *)s->to = number;
  return NULL;
}

static weft_status *get_word_enum(const proto_source *s)
{
  const hlo_words *words = s->attr->words;
  const char *word = VALUE(s, char *);

  for (int i = 0; i < words->count; i++) {
    if (strcmp(word, words->word[i] ? words->word[i] : "") != 0) continue;
    *(int *)s->to = i;
    return NULL;
  }
  return BAD("%s \"%.40s\"", words->subject, word);
}

static weft_status *get_compare_type(const proto_source *s)
{
  hlo_compare_type *type = s->to;

  WEFT_TRY(get_word_enum(s));
  if (*type == hlo_default_compare_type(s->instr->operands[0]->shape->type)) *type = HLO_COMPARE_DEFAULT;
  return NULL;
}

/* Text omits the original version, so it is read as unspecified. */
static weft_status *get_api_version(const proto_source *s)
{
  int *version = s->to;

  WEFT_TRY(get_enum(s));
  if (*version == 1) *version = 0;
  return NULL;
}

/* ---- text and lists of integers ---------------------------------------------------------------------------------- */

static weft_status *get_string(const proto_source *s)
{
  const char *text = VALUE(s, char *), **to = s->to;

  if (!(s->attr->flags & HLO_ATTR_REQUIRED)) return hlo_proto_copy_string(s->r, text, to);
  *to = weft_arena_strdup(s->r->arena, text);
  WEFT_TRY_ALLOC(*to);
  return NULL;
}

static weft_status *get_bytes(const proto_source *s)
{
  return hlo_proto_copy_bytes(s->r, VALUE(s, ProtobufCBinaryData), s->to);
}

static weft_status *get_padding_type(const proto_source *s)
{
  int number = 0;
  proto_source as_number = *s;

  as_number.to = &number;
  WEFT_TRY(get_enum(&as_number));
  if (number) *(const char **)s->to = s->attr->words->word[number];
  return NULL;
}

static weft_status *get_sparsity(const proto_source *s)
{
  return VALUE(s, ProtobufCBinaryData).len ? WEFT_ERR(UNIMPLEMENTED, "sparsity_config") : NULL;
}

static weft_status *get_ints(const proto_source *s)
{
  return hlo_proto_copy_ints(s->r, item_count(s), ITEMS(s, int64_t), s->to);
}

static weft_status *get_dim(const proto_source *s)
{
  if (s->attr->flags & HLO_ATTR_REQUIRED && item_count(s) != 1)
    return BAD("an %s has one dimension, not %zu", hlo_opcode_name(s->instr->op), item_count(s));
  return get_ints(s);
}

static weft_status *get_bools(const proto_source *s)
{
  return hlo_proto_copy_bools(s->r, item_count(s), ITEMS(s, protobuf_c_boolean), s->to);
}

/* ---- windows, convolutions, slices ------------------------------------------------------------------------------- */

static void set_list(const proto_source *s, int count, const void *items)
{
  *(int *)s->to = count;
  memcpy(hlo_list_pointer(s->to), &items, sizeof items);
}

static weft_status *get_window(const proto_source *s)
{
  const HloPb__Window *p = VALUE(s, HloPb__Window *);
  hlo_window *out = s->to;
  hlo_window_dim *dims;

  if (!p) return NULL;
  if (p->n_dims > HLO_MAX_RANK) return BAD("a window of %zu dimensions", p->n_dims);
  dims = WEFT_ARENA_ARRAY(s->r->arena, hlo_window_dim, p->n_dims);
  WEFT_TRY_ALLOC(dims);
  for (size_t i = 0; i < p->n_dims; i++) {
    const HloPb__WindowDim *d = p->dims[i]; /* hand-written files omit factors of 1 */
    dims[i] = (hlo_window_dim){d->size,
                               d->stride ? d->stride : 1,
                               d->pad_low,
                               d->pad_high,
                               d->window_dilation ? d->window_dilation : 1,
                               d->base_dilation ? d->base_dilation : 1,
                               d->reversal};
  }
  *out = (hlo_window){(int)p->n_dims, dims};
  return NULL;
}

/* XLA stores the default for each operand; such a list is read as no list. */
static weft_status *get_precision(const proto_source *s)
{
  size_t count = item_count(s);
  hlo_precision *list = WEFT_ARENA_ARRAY(s->r->arena, hlo_precision, count);
  bool any = false;

  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < count; i++) {
    int32_t number = ITEMS(s, int32_t)[i];
    if (number < 0 || number > HLO_PRECISION_PACKED_NIBBLE) return BAD("operand precision %d", number);
    list[i] = (hlo_precision)number;
    any |= list[i] != HLO_PRECISION_DEFAULT;
  }
  if (any) set_list(s, (int)count, list);
  return NULL;
}

static weft_status *get_convolution(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr,
                                    hlo_conv_attrs *conv);

/* A dimension may have one role only, because the printer writes one letter for it. */
static weft_status *check_roles(const hlo_conv_attrs *conv)
{
  const hlo_ints *spatial[] = {&conv->lhs_spatial, &conv->rhs_spatial, &conv->out_spatial};
  const int64_t others[3][2] = {{conv->lhs_batch, conv->lhs_feature}, {conv->rhs_in_feature, conv->rhs_out_feature},
                                {conv->out_batch, conv->out_feature}};
  for (int g = 0; g < 3; g++) {
    uint64_t seen = 0;
    if (spatial[g]->count > 10 || spatial[g]->count != spatial[0]->count)
      return BAD("spatial dimensions of a convolution");
    for (int i = 0; i < spatial[g]->count + 2; i++) {
      int64_t dim = i < 2 ? others[g][i] : spatial[g]->v[i - 2];
      if (dim < 0 || dim >= HLO_MAX_RANK || seen >> dim & 1) return BAD("dimension numbers of a convolution");
      seen |= UINT64_C(1) << dim;
    }
  }
  return NULL;
}

static weft_status *get_dim_labels(const proto_source *s)
{
  const HloPb__ConvDims *d = VALUE(s, HloPb__ConvDims *);
  hlo_conv_attrs *conv = s->to;
  proto_reader *r = s->r;

  if (!d) return s->attr->flags & HLO_ATTR_REQUIRED ? BAD("no convolution_dimension_numbers") : NULL;
  conv->lhs_batch = d->lhs_batch;
  conv->lhs_feature = d->lhs_feature;
  conv->rhs_in_feature = d->rhs_in_feature;
  conv->rhs_out_feature = d->rhs_out_feature;
  conv->out_batch = d->out_batch;
  conv->out_feature = d->out_feature;
  COPY_INTS(r, d, lhs_spatial, &conv->lhs_spatial);
  COPY_INTS(r, d, rhs_spatial, &conv->rhs_spatial);
  COPY_INTS(r, d, out_spatial, &conv->out_spatial);
  return check_roles(conv);
}

/* Reads what a custom-call has of a convolution: the rows of the conv family, if the message has any of them. */
static weft_status *get_custom_conv(const proto_source *s)
{
  const HloPb__Instruction *p = s->message;

  if (!p->window && !p->conv && p->feature_group_count <= 1 && p->batch_group_count <= 1) return NULL;
  WEFT_TRY(hlo_init_custom_conv(s->instr));
  return get_convolution(s->r, p, s->instr, (hlo_conv_attrs *)s->instr->u.custom->conv);
}

static weft_status *get_slice(const proto_source *s)
{
  HloPb__SliceDim *const *dims = ITEMS(s, HloPb__SliceDim *);
  int64_t part[3][HLO_MAX_RANK];
  size_t rank = item_count(s);

  if (rank > HLO_MAX_RANK) return BAD("a slice of %zu dimensions", rank);
  for (size_t i = 0; i < rank; i++) {
    part[0][i] = dims[i]->start;
    part[1][i] = dims[i]->limit;
    part[2][i] = dims[i]->stride ? dims[i]->stride : 1;
  }
  return hlo_set_slice(s->instr, (int)rank, part[0], part[1], part[2]);
}

static weft_status *get_padding(const proto_source *s)
{
  const HloPb__Padding *p = VALUE(s, HloPb__Padding *);
  size_t rank = p ? p->n_dims : 0;
  hlo_pad_dim *dims = WEFT_ARENA_ARRAY(s->r->arena, hlo_pad_dim, rank);

  WEFT_TRY_ALLOC(dims);
  if (rank > HLO_MAX_RANK) return BAD("padding of %zu dimensions", rank);
  for (size_t i = 0; i < rank; i++) dims[i] = (hlo_pad_dim){p->dims[i]->low, p->dims[i]->high, p->dims[i]->interior};
  set_list(s, (int)rank, dims);
  return NULL;
}

/* ---- collectives, aliases, custom-calls -------------------------------------------------------------------------- */

static weft_status *read_iota_groups(proto_reader *r, const HloPb__IotaGroups *p, hlo_replica_groups *g)
{
  int64_t devices = 1, product;

  g->form = HLO_GROUPS_IOTA;
  g->num_groups = p->num_groups;
  g->group_size = p->group_size;
  COPY_INTS(r, p, reshape_dims, &g->reshape_dims);
  WEFT_TRY(
    hlo_proto_copy_permutation(r, p->n_transpose_perm, p->transpose_perm, g->reshape_dims.count, &g->transpose_perm));
  for (int i = 0; i < g->reshape_dims.count; i++)
    if (g->reshape_dims.v[i] < 1 || __builtin_mul_overflow(devices, g->reshape_dims.v[i], &devices))
      return BAD("an iota's dimensions are positive, their product below 2^63");
  if (g->num_groups < 1 || g->group_size < 1 || __builtin_mul_overflow(g->num_groups, g->group_size, &product) ||
      product != devices)
    return BAD("%" PRId64 " devices do not make %" PRId64 " groups of %" PRId64, devices, g->num_groups, g->group_size);
  return NULL;
}

static weft_status *get_groups(const proto_source *s)
{
  proto_reader *r = s->r;
  const HloPb__Instruction *p = s->message;
  hlo_replica_groups *g = s->to;
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

/* The number of slices of one input of a collective-permute.  Its offsets are a tuple of scalars for one slice, or a
 * tuple of such tuples. */
static int slices_of(const hlo_shape *offsets)
{
  return hlo_shape_is_tuple(offsets) && offsets->rank && hlo_shape_is_tuple(offsets->elements[0]) ? offsets->rank : 1;
}

/* The message has the sizes of all slices in one list.  Each slice has as many sizes as its input has dimensions.
 * Sizes that are left over, because they do not fit the operands, become one further list. */
static weft_status *get_slice_sizes(const proto_source *s)
{
  const hlo_instr *instr = s->instr;
  proto_reader *r = s->r;
  const size_t total = item_count(s);
  const int64_t *sizes = ITEMS(s, int64_t);
  hlo_ints *list = WEFT_ARENA_ARRAY(r->arena, hlo_ints, total + 1);
  const hlo_shape *input, *offsets;
  size_t used = 0;
  int count = 0;

  WEFT_TRY_ALLOC(list);
  if (!total) return NULL;
  if (instr->operand_count != 4)
    return BAD("slice sizes of a %s with %d operands", s->message->opcode, instr->operand_count);
  input = instr->operands[0]->shape;
  offsets = instr->operands[2]->shape;
  for (int i = 0; i < (hlo_shape_is_tuple(input) ? input->rank : 1); i++) {
    const hlo_shape *x = hlo_shape_is_tuple(input) ? input->elements[i] : input;
    const hlo_shape *at = !hlo_shape_is_tuple(input)                         ? offsets
                          : hlo_shape_is_tuple(offsets) && i < offsets->rank ? offsets->elements[i]
                                                                             : NULL;

    for (int k = 0; at && x->rank > 0 && k < slices_of(at) && used + (size_t)x->rank <= total; k++) {
      WEFT_TRY(hlo_proto_copy_ints(r, (size_t)x->rank, sizes + used, &list[count++]));
      used += (size_t)x->rank;
    }
  }
  if (used < total) WEFT_TRY(hlo_proto_copy_ints(r, total - used, sizes + used, &list[count++]));
  set_list(s, count, list);
  return NULL;
}

static weft_status *get_pairs(const proto_source *s)
{
  size_t count = item_count(s);
  int64_t(*pairs)[2] = weft_arena_alloc_array(s->r->arena, count, sizeof *pairs);

  WEFT_TRY_ALLOC(pairs);
  for (size_t i = 0; i < count; i++) {
    pairs[i][0] = ITEMS(s, HloPb__Pair *)[i]->source;
    pairs[i][1] = ITEMS(s, HloPb__Pair *)[i]->target;
  }
  set_list(s, (int)count, pairs);
  return NULL;
}

static weft_status *get_output_aliases(const proto_source *s)
{
  size_t count = item_count(s);
  hlo_output_alias *list = WEFT_ARENA_ARRAY(s->r->arena, hlo_output_alias, count);

  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < count; i++) {
    const HloPb__OutputAlias *alias = ITEMS(s, HloPb__OutputAlias *)[i];
    COPY_INTS(s->r, alias, output_index, &list[i].output_index);
    list[i].operand = alias->operand;
    if (alias->operand < 0 || alias->operand > INT32_MAX)
      return BAD("output_operand_aliasing names operand %" PRId64, alias->operand);
    COPY_INTS(s->r, alias, operand_index, &list[i].operand_index);
  }
  set_list(s, (int)count, list);
  return NULL;
}

/* The layouts count only if the message has constrain_layout. */
static weft_status *get_layouts(const proto_source *s)
{
  size_t count = item_count(s);
  const hlo_shape **layouts;

  if (!s->message->constrain_layout) return NULL;
  layouts = WEFT_ARENA_ARRAY(s->r->arena, const hlo_shape *, count);
  WEFT_TRY_ALLOC(layouts);
  for (size_t i = 0; i < count; i++) WEFT_TRY(hlo_proto_read_shape(s->r, ITEMS(s, HloPb__Shape *)[i], 0, &layouts[i]));
  set_list(s, (int)count, layouts);
  return NULL;
}

static weft_status *get_shape(const proto_source *s)
{
  const HloPb__Shape *shape = VALUE(s, HloPb__Shape *);

  return shape ? hlo_proto_read_shape(s->r, shape, 0, s->to) : NULL;
}

static weft_status *get_literal(const proto_source *s)
{
  const HloPb__Literal *literal = VALUE(s, HloPb__Literal *);

  return literal ? hlo_proto_read_literal(s->r, literal, s->to) : NULL;
}

static weft_status *get_constant(const proto_source *s)
{
  const hlo_literal **literal = s->to;

  WEFT_TRY(hlo_proto_read_literal(s->r, VALUE(s, HloPb__Literal *), literal));
  if (!hlo_shape_equal((*literal)->shape, s->instr->shape, false))
    return BAD("the literal's shape is not the constant's");
  return NULL;
}

/* The names are swapped: the message's entry is the text's exit, and the message's exit the text's entry. */
static weft_status *get_domain(const proto_source *s)
{
  const HloPb__Instruction *p = s->message;

  if (!p->domain_entry || !p->domain_exit) return BAD("a domain without both shardings");
  WEFT_TRY(hlo_proto_read_sharding(s->r, p->domain_entry, false, &s->instr->u.domain.exit));
  return hlo_proto_read_sharding(s->r, p->domain_exit, false, &s->instr->u.domain.entry);
}

/* Older writers have no index, only the flag is_cross_program_prefetch. */
static weft_status *get_prefetch(const proto_source *s)
{
  hlo_prefetch *prefetch = s->to;

  prefetch->is_prefetch = s->message->is_cross_program_prefetch || item_count(s);
  if (item_count(s)) prefetch->prefetch_index = ITEMS(s, int32_t)[0];
  if (prefetch->prefetch_index < 0) return BAD("cross_program_prefetch_index %" PRId64, prefetch->prefetch_index);
  return NULL;
}

/* ---- common attributes of all instructions ----------------------------------------------------------------------- */

weft_status *hlo_proto_read_key_values(proto_reader *r, const HloPb__Attributes *p, const hlo_key_value **out,
                                       int *out_count)
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

static weft_status *get_map(const proto_source *s)
{
  const hlo_key_value *list = NULL;
  int count;

  WEFT_TRY(hlo_proto_read_key_values(s->r, VALUE(s, HloPb__Attributes *), &list, &count));
  set_list(s, count, list);
  return NULL;
}

static weft_status *get_sharding(const proto_source *s)
{
  const HloPb__Sharding *sharding = VALUE(s, HloPb__Sharding *);

  return sharding ? hlo_proto_read_sharding(s->r, sharding, false, s->to) : NULL;
}

static weft_status *get_accuracy(const proto_source *s)
{
  const HloPb__Accuracy *p = VALUE(s, HloPb__Accuracy *);
  hlo_accuracy *accuracy;

  if (!p || (!p->mode && !p->tolerance)) return NULL;
  accuracy = WEFT_ARENA_NEW(s->r->arena, hlo_accuracy);
  WEFT_TRY_ALLOC(accuracy);
  accuracy->mode = 1;
  if (p->tolerance) *accuracy = (hlo_accuracy){2, p->tolerance->atol, p->tolerance->rtol, p->tolerance->ulps};
  *(const hlo_accuracy **)s->to = accuracy;
  return NULL;
}

static weft_status *get_metadata(const proto_source *s)
{
  proto_reader *r = s->r;
  const HloPb__Metadata *p = VALUE(s, HloPb__Metadata *);
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
  *(const hlo_metadata **)s->to = m;
  return NULL;
}

/* The configuration is in the field itself, in a payload next to it, or in a payload of the module. */
static weft_status *get_config(const proto_source *s)
{
  const HloPb__Payload *payload = s->message->backend_config_payload;
  const HloPb__Module *module = s->r->pb;
  ProtobufCBinaryData bytes = VALUE(s, ProtobufCBinaryData);

  if (payload && payload->value.len) bytes = payload->value;
  if (payload && payload->n_id) {
    if (payload->id[0] < 0 || (uint64_t)payload->id[0] >= module->n_payloads)
      return BAD("payload %" PRId64 " of %zu", payload->id[0], module->n_payloads);
    bytes = module->payloads[payload->id[0]];
  }
  WEFT_TRY(hlo_proto_copy_bytes(s->r, bytes, &s->extra->backend_config));
  s->extra->backend_config_is_json = s->extra->backend_config && hlo_is_braced(s->extra->backend_config);
  return NULL;
}

/* ---- the walk over the schema ------------------------------------------------------------------------------------ */

/* The message that contains a field; NULL if it is absent. */
static const char *find_message(const HloPb__Instruction *p, const hlo_attr_message *message)
{
  const char *parent;

  if (!message) return (const char *)p;
  parent = find_message(p, message->parent);
  return parent ? *(const char *const *)(parent + message->offset) : NULL;
}

/* `to` is where the value goes; NULL: into the attribute's field in the instruction. */
static weft_status *get_attr(proto_source *s, const hlo_attr *attr, void *to)
{
  static weft_status *(*const get[HLO_ATTR_KIND_COUNT])(const proto_source *) = {
#define K(KIND, text, proto, compare) [HLO_KIND_##KIND] = get_##proto,
    HLO_ATTR_KINDS(K)
#undef K
  };
  const char *message;

  if (attr->field == HLO_NO_FIELD) return NULL;
  message = find_message(s->message, attr->message);
  if (!message) return attr->message->required ? BAD("no %s", attr->message->required) : NULL;
  s->attr = attr;
  s->from = message + attr->field;
  s->to = to ? to : hlo_attr_field(attr, s->instr, s->extra);
  return get[attr->kind](s);
}

static weft_status *get_family(proto_source *s, const hlo_attr_family *family)
{
  for (int i = 0; family && i < family->count; i++) WEFT_TRY(get_attr(s, &family->attrs[i], NULL));
  return NULL;
}

static weft_status *get_convolution(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr,
                                    hlo_conv_attrs *conv)
{
  const hlo_attr_family *family = hlo_attrs_of(HLO_CONVOLUTION);
  proto_source s = {.r = r, .message = p, .instr = instr};

  for (int i = 0; i < family->count; i++) {
    hlo_attr attr = family->attrs[i];
    attr.flags &= ~HLO_ATTR_REQUIRED;
    WEFT_TRY(get_attr(&s, &attr, (char *)conv + attr.offset));
  }
  return NULL;
}

weft_status *hlo_proto_read_attributes(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  static const hlo_extra none;
  const hlo_attr_family *own = hlo_attrs_of(instr->op);
  hlo_extra extra = {0};
  proto_source s = {.r = r, .message = p, .instr = instr, .extra = &extra};

  WEFT_TRY(get_family(&s, own));
  WEFT_TRY(get_family(&s, own->group->wire));
  WEFT_TRY(get_family(&s, hlo_common_attrs()));
  if (memcmp(&extra, &none, sizeof extra) == 0) return NULL;
  instr->extra = weft_arena_memdup(r->arena, &extra, sizeof extra);
  WEFT_TRY_ALLOC(instr->extra);
  return NULL;
}
