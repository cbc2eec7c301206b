/* hlo/attributes.c -- the schema of attributes as tables, made of attributes.def
 * and opcodes.def; equality and hashes. */
#include <config.h>

#include "hlo/attributes.h"

#include <string.h>

#include "base/hash.h"
#include "hlo/hlo.pb-c.h"

/* ---- names of enum values ---------------------------------------------------------------------------------------- */

/* The words of an enum.  `least` is the first number that a proto may have: some enums have no number 0. */
#define WORDS(name, subject, least, ...) \
  static const char *const name##_list[] = {__VA_ARGS__}; \
  static const hlo_words name = {subject, least, WEFT_COUNT(name##_list), name##_list}

WORDS(direction_words, "comparison_direction", 0, "EQ", "NE", "GE", "GT", "LE", "LT");
WORDS(compare_words, "comparison_type", 0, NULL, "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED");
WORDS(fft_words, "fft_type", 0, "FFT", "IFFT", "RFFT", "IRFFT");
WORDS(transpose_words, "transpose_a", 0, NULL, "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT");
WORDS(distribution_words, "distribution", 1, NULL, "rng_uniform", "rng_normal");
WORDS(rng_words, "rng_algorithm", 0, "rng_default", "rng_three_fry", "rng_philox");
WORDS(fusion_words, "fusion_kind", 0, "kLoop", "kInput", "kOutput", "kCustom");
WORDS(convolution_words, "convolution kind", 0, NULL, "fprop", "dgrad", "wgrad");
WORDS(schedule_words, "custom_call_schedule", 0, "SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST");
WORDS(padding_words, "padding_type", 0, "PADDING_INVALID", "PADDING_VALID", "PADDING_SAME");
WORDS(truth_words, "is_associative", 0, NULL, "true", "false");
WORDS(api_words, "custom_call_api_version", 0, "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL",
      "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI");
WORDS(algorithm_words, "dot algorithm", 0, "dot_unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum",
      "dot_f16_f16_f16", "dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3",
      "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64",
      "dot_bf16_bf16_f32_x9");

/* ---- groups and messages ----------------------------------------------------------------------------------------- */

static const hlo_conv_attrs conv_defaults = {.feature_group_count = 1, .batch_group_count = 1};
static const hlo_attr_family collective_wire_family;

#define GROUP(name, ...) static const hlo_attr_group name = {__VA_ARGS__}
GROUP(no_group, .bytes = 0);
GROUP(slice_group, .bytes = sizeof(hlo_slice_attrs));
GROUP(gather_group, .bytes = sizeof(hlo_gather_attrs));
GROUP(scatter_group, .bytes = sizeof(hlo_scatter_attrs));
GROUP(dot_group, .bytes = sizeof(hlo_dot_attrs));
GROUP(conv_group, .bytes = sizeof(hlo_conv_attrs), .defaults = &conv_defaults);
GROUP(window_group, .bytes = sizeof(hlo_window));
GROUP(custom_group, .bytes = sizeof(hlo_custom_call_attrs), .by_identity = true);
GROUP(collective_group, .bytes = sizeof(hlo_collective_attrs), .by_identity = true, .wire = &collective_wire_family);

/* A message that is the field `member` of the instruction's message. */
#define MESSAGE(member, descriptor, required) \
  static const hlo_attr_message member##_message = {NULL, offsetof(HloPb__Instruction, member), &descriptor, required}
MESSAGE(gather, hlo_pb__gather_dims__descriptor, "gather_dimension_numbers");
MESSAGE(scatter, hlo_pb__scatter_dims__descriptor, "scatter_dimension_numbers");
MESSAGE(dot, hlo_pb__dot_dims__descriptor, NULL);
MESSAGE(ragged_dot, hlo_pb__ragged_dot_dims__descriptor, NULL);
MESSAGE(precision, hlo_pb__precision__descriptor, NULL);
MESSAGE(cholesky, hlo_pb__cholesky__descriptor, NULL);
MESSAGE(triangular, hlo_pb__triangular__descriptor, "triangular_solve_options");
MESSAGE(parameter_replication, hlo_pb__replication__descriptor, NULL);
static const hlo_attr_message ragged_dot_dot_message = {&ragged_dot_message, offsetof(HloPb__RaggedDotDims, dot),
                                                        &hlo_pb__dot_dims__descriptor, NULL};

/* ---- the tables -------------------------------------------------------------------------------------------------- */

enum { REQUIRED = HLO_ATTR_REQUIRED, ALWAYS = HLO_ATTR_ALWAYS, OLD = HLO_ATTR_OLD };

/* Places in the IR. */
#define PLACE(where, type, member) .base = where, .offset = offsetof(type, member)
#define INSTR(member) PLACE(HLO_IN_INSTR, hlo_instr, member)
#define DOT(member) PLACE(HLO_IN_GROUP, hlo_dot_attrs, member)
#define CONV(member) PLACE(HLO_IN_GROUP, hlo_conv_attrs, member)
#define SLICE(member) PLACE(HLO_IN_GROUP, hlo_slice_attrs, member)
#define WINDOW(member) PLACE(HLO_IN_GROUP, hlo_window, member)
#define GATHER(member) PLACE(HLO_IN_GROUP, hlo_gather_attrs, member)
#define SCATTER(member) PLACE(HLO_IN_GROUP, hlo_scatter_attrs, member)
#define CUSTOM(member) PLACE(HLO_IN_GROUP, hlo_custom_call_attrs, member)
#define CUSTOM_CONV(member) PLACE(HLO_IN_CUSTOM_CONV, hlo_conv_attrs, member)
#define COLLECTIVE(member) PLACE(HLO_IN_GROUP, hlo_collective_attrs, member)
#define EXTRA(member) PLACE(HLO_IN_EXTRA, hlo_extra, member)
#define MODULE(member) PLACE(HLO_IN_MODULE, hlo_module, member)
#define CALLED(index) .base = HLO_IN_CALLED, .offset = index
_Static_assert(offsetof(hlo_conv_attrs, window) == 0, "DIM_LABELS takes the group of a convolution by its first field");
_Static_assert(offsetof(hlo_slice_attrs, start) == 0, "SLICE takes the group of a slice by its first field");

/* Places in HloModuleProto's instruction, of single fields and of repeated ones. */
#define PROTO(member) .field = offsetof(HloPb__Instruction, member)
#define PROTO_LIST(member) .field = offsetof(HloPb__Instruction, n_##member)
#define WITHIN(inner, type, member) .message = &inner##_message, .field = offsetof(HloPb__##type, member)
#define WITHIN_LIST(inner, type, member) .message = &inner##_message, .field = offsetof(HloPb__##type, n_##member)
#define GATHER_LIST(member) WITHIN_LIST(gather, GatherDims, member)
#define SCATTER_LIST(member) WITHIN_LIST(scatter, ScatterDims, member)
#define NONE .field = HLO_NO_FIELD

#define FAMILY(family) static const hlo_attr family##_attrs[] = {
#define ATTR(text, KIND, place, bits, proto, ...) \
  {.name = text, .kind = HLO_KIND_##KIND, place, .flags = bits, proto __VA_OPT__(, ) __VA_ARGS__},
#define END(family, in_group) \
  }; \
  static const hlo_attr_family family##_family = {WEFT_COUNT(family##_attrs), family##_attrs, &in_group};
#include "hlo/attributes.def"

static const hlo_attr_family none_family = {0, NULL, &no_group}, collective_done_family = {0, NULL, &collective_group};

const hlo_attr_family *hlo_attrs_of(hlo_opcode op)
{
  static const hlo_attr_family *const families[HLO_OPCODE_COUNT] = {
#define X(NAME, text, least, most, traits, classes, rule, evaluator, attributes) [HLO_##NAME] = &attributes##_family,
#include "hlo/opcodes.def"
#undef X
  };

  return families[op];
}

const hlo_attr_family *hlo_common_attrs(void) { return &common_family; }
const hlo_attr_family *hlo_module_attrs(void) { return &module_family; }

/* ---- fields ------------------------------------------------------------------------------------------------------ */

weft_status *hlo_init_attributes(hlo_instr *instr)
{
  const hlo_attr_group *group = hlo_attrs_of(instr->op)->group;
  void *memory;

  if (!group->bytes) return NULL;
  memory = weft_arena_alloc(&instr->parent->module->arena, group->bytes);
  WEFT_TRY_ALLOC(memory);
  if (group->defaults) memcpy(memory, group->defaults, group->bytes);
  memcpy(&instr->u, &memory, sizeof memory);
  return NULL;
}

weft_status *hlo_init_custom_conv(hlo_instr *custom_call)
{
  hlo_custom_call_attrs *custom = (hlo_custom_call_attrs *)custom_call->u.custom;

  if (custom->conv) return NULL;
  custom->conv = weft_arena_memdup(&custom_call->parent->module->arena, &conv_defaults, sizeof conv_defaults);
  WEFT_TRY_ALLOC(custom->conv);
  return NULL;
}

void *hlo_attr_field(const hlo_attr *attr, const hlo_instr *instr, const hlo_extra *extra)
{
  char *base = NULL;

  switch (attr->base) {
  case HLO_IN_INSTR: base = (char *)instr; break;
  case HLO_IN_GROUP: memcpy(&base, &instr->u, sizeof base); break;
  case HLO_IN_CUSTOM_CONV: base = (char *)instr->u.custom->conv; break;
  case HLO_IN_EXTRA: base = (char *)extra; break;
  case HLO_IN_CALLED: return (void *)instr;
  case HLO_IN_MODULE: break;
  }
  return base ? base + attr->offset : NULL;
}

hlo_compare_type hlo_default_compare_type(weft_dtype operand)
{
  if (weft_dtype_is_float(operand) || weft_dtype_is_complex(operand)) return HLO_COMPARE_FLOAT;
  return weft_dtype_is_signed(operand) ? HLO_COMPARE_SIGNED : HLO_COMPARE_UNSIGNED;
}

/* ---- equality and hashes of values, by the last column of HLO_ATTR_KINDS ----------------------------------------- */

static bool same_none(const void *a, const void *b) { return a == b; }
static uint64_t hash_none(uint64_t hash, const void *field)
{
  (void)field;
  return hash;
}

static bool same_int64(const void *a, const void *b) { return *(const int64_t *)a == *(const int64_t *)b; }
static uint64_t hash_int64(uint64_t hash, const void *field)
{
  return weft_mix(hash, (uint64_t)*(const int64_t *)field);
}

static bool same_int32(const void *a, const void *b) { return *(const int *)a == *(const int *)b; }
static uint64_t hash_int32(uint64_t hash, const void *field) { return weft_mix(hash, (uint64_t)*(const int *)field); }

static bool same_bool(const void *a, const void *b) { return *(const bool *)a == *(const bool *)b; }
static uint64_t hash_bool(uint64_t hash, const void *field) { return weft_mix(hash, *(const bool *)field); }

/* 0 and -0 are equal, so the hash adds 0, which makes -0 a 0. */
static bool same_float(const void *a, const void *b) { return *(const float *)a == *(const float *)b; }
static uint64_t hash_float(uint64_t hash, const void *field)
{
  float value = *(const float *)field + 0.0f;

  return weft_hash_bytes(hash, &value, sizeof value);
}

static bool same_text(const void *a, const void *b)
{
  const char *x = *(const char *const *)a, *y = *(const char *const *)b;

  return x == y || (x && y && strcmp(x, y) == 0);
}
static uint64_t hash_text(uint64_t hash, const void *field)
{
  const char *text = *(const char *const *)field;

  return text ? weft_hash_bytes(hash, text, strlen(text)) : hash;
}

static bool same_ints(const void *a, const void *b)
{
  return hlo_ints_equal(*(const hlo_ints *)a, *(const hlo_ints *)b);
}
static uint64_t hash_ints(uint64_t hash, const void *field)
{
  const hlo_ints *ints = field;

  return ints->count ? weft_hash_bytes(hash, ints->v, (size_t)ints->count * sizeof *ints->v) : hash;
}

static bool same_slice(const void *a, const void *b)
{
  const hlo_slice_attrs *x = a, *y = b;

  return same_ints(&x->start, &y->start) && same_ints(&x->limit, &y->limit) && same_ints(&x->stride, &y->stride);
}
static uint64_t hash_slice(uint64_t hash, const void *field)
{
  const hlo_slice_attrs *slice = field;

  return hash_ints(hash_ints(hash_ints(hash, &slice->start), &slice->limit), &slice->stride);
}

/* Lists of items without padding. */
static bool same_items(const void *a, const void *b, size_t size)
{
  int count = hlo_list_count(a);

  return count == hlo_list_count(b) &&
         (count == 0 || memcmp(HLO_LIST_ITEMS(a, char), HLO_LIST_ITEMS(b, char), (size_t)count * size) == 0);
}
static uint64_t hash_items(uint64_t hash, const void *field, size_t size)
{
  int count = hlo_list_count(field);

  return count ? weft_hash_bytes(hash, HLO_LIST_ITEMS(field, char), (size_t)count * size) : hash;
}
static bool same_padding(const void *a, const void *b) { return same_items(a, b, sizeof(hlo_pad_dim)); }
static uint64_t hash_padding(uint64_t hash, const void *field) { return hash_items(hash, field, sizeof(hlo_pad_dim)); }
static bool same_precision(const void *a, const void *b) { return same_items(a, b, sizeof(hlo_precision)); }
static uint64_t hash_precision(uint64_t hash, const void *field)
{
  return hash_items(hash, field, sizeof(hlo_precision));
}

static bool same_window(const void *a, const void *b)
{
  const hlo_window *w = a, *v = b;

  if (w->rank != v->rank) return false;
  for (int i = 0; i < w->rank; i++) {
    const hlo_window_dim *x = &w->dims[i], *y = &v->dims[i];
    if (x->size != y->size || x->stride != y->stride || x->pad_low != y->pad_low || x->pad_high != y->pad_high ||
        x->window_dilation != y->window_dilation || x->base_dilation != y->base_dilation || x->reversal != y->reversal)
      return false;
  }
  return true;
}
static uint64_t hash_window(uint64_t hash, const void *field)
{
  const hlo_window *window = field;

  for (int i = 0; i < window->rank; i++) {
    const hlo_window_dim *x = &window->dims[i];
    const int64_t values[] = {x->size, x->stride, x->pad_low, x->pad_high, x->window_dilation, x->base_dilation, x->reversal};
    hash = weft_hash_bytes(hash, values, sizeof values);
  }
  return hash;
}

static bool same_dim_labels(const void *a, const void *b)
{
  const hlo_conv_attrs *x = a, *y = b;

  return x->lhs_batch == y->lhs_batch && x->lhs_feature == y->lhs_feature && x->rhs_in_feature == y->rhs_in_feature &&
         x->rhs_out_feature == y->rhs_out_feature && x->out_batch == y->out_batch && x->out_feature == y->out_feature &&
         same_ints(&x->lhs_spatial, &y->lhs_spatial) && same_ints(&x->rhs_spatial, &y->rhs_spatial) &&
         same_ints(&x->out_spatial, &y->out_spatial);
}
static uint64_t hash_dim_labels(uint64_t hash, const void *field)
{
  const hlo_conv_attrs *x = field;
  const int64_t roles[] = {x->lhs_batch, x->lhs_feature, x->rhs_in_feature, x->rhs_out_feature, x->out_batch, x->out_feature};

  hash = weft_hash_bytes(hash, roles, sizeof roles);
  return hash_ints(hash_ints(hash_ints(hash, &x->lhs_spatial), &x->rhs_spatial), &x->out_spatial);
}

static bool same_output_aliases(const void *a, const void *b)
{
  const hlo_output_alias *x = HLO_LIST_ITEMS(a, hlo_output_alias), *y = HLO_LIST_ITEMS(b, hlo_output_alias);

  if (hlo_list_count(a) != hlo_list_count(b)) return false;
  for (int i = 0; i < hlo_list_count(a); i++)
    if (!same_ints(&x[i].output_index, &y[i].output_index) || x[i].operand != y[i].operand ||
        !same_ints(&x[i].operand_index, &y[i].operand_index))
      return false;
  return true;
}
static uint64_t hash_output_aliases(uint64_t hash, const void *field)
{
  return weft_mix(hash, (uint64_t)hlo_list_count(field));
}

static bool same_shape(const void *a, const void *b)
{
  const hlo_shape *x = *(const hlo_shape *const *)a, *y = *(const hlo_shape *const *)b;

  return x == y || (x && y && hlo_shape_equal(x, y, true));
}
static uint64_t hash_shape(uint64_t hash, const void *field) { return hash_none(hash, field); }

/* A literal of at most this size is hashed as a whole, a larger one by its two ends. */
enum { HASHED_LITERAL_BYTES = 1 << 16 };

static bool same_literal(const void *a, const void *b)
{
  const hlo_literal *x = *(const hlo_literal *const *)a, *y = *(const hlo_literal *const *)b;

  return x == y || (x && y && hlo_literal_equal(x, y));
}
static uint64_t hash_literal(uint64_t hash, const void *field)
{
  const hlo_literal *literal = *(const hlo_literal *const *)field;
  size_t bytes = (size_t)hlo_shape_bytes(literal->shape);

  if (literal->elements) {
    for (int i = 0; i < literal->shape->rank; i++) hash = hash_literal(hash, &literal->elements[i]);
    return hash;
  }
  if (bytes <= HASHED_LITERAL_BYTES) return weft_hash_bytes(hash, literal->data, bytes);
  hash = weft_hash_bytes(hash, literal->data, HASHED_LITERAL_BYTES / 2);
  return weft_hash_bytes(hash, (const char *)literal->data + bytes - HASHED_LITERAL_BYTES / 2,
                         HASHED_LITERAL_BYTES / 2);
}

/* Two domains are equal if they share both shardings. */
static bool same_domain(const void *a, const void *b) { return memcmp(a, b, 2 * sizeof(hlo_sharding *)) == 0; }
static uint64_t hash_domain(uint64_t hash, const void *field) { return hash_none(hash, field); }

static bool same_prefetch(const void *a, const void *b)
{
  const hlo_prefetch *x = a, *y = b;

  return x->is_prefetch == y->is_prefetch && x->prefetch_index == y->prefetch_index;
}
static uint64_t hash_prefetch(uint64_t hash, const void *field)
{
  return weft_mix(hash, (uint64_t)((const hlo_prefetch *)field)->prefetch_index);
}

static const struct {
  bool (*same)(const void *a, const void *b);
  uint64_t (*hash)(uint64_t hash, const void *field);
} compare[HLO_ATTR_KIND_COUNT] = {
#define K(KIND, text, proto, compare) [HLO_KIND_##KIND] = {same_##compare, hash_##compare},
  HLO_ATTR_KINDS(K)
#undef K
};

/* ---- equality and hashes of instructions' attributes ------------------------------------------------------------- */

/* True for the rows that are compared and hashed: an old spelling repeats another row, and the callers compare
 * `dims` once for all rows. */
static bool counts(const hlo_attr *attr)
{
  return !(attr->flags & HLO_ATTR_OLD) && (attr->base == HLO_IN_GROUP || attr->base == HLO_IN_INSTR) &&
         !(attr->base == HLO_IN_INSTR && attr->offset == offsetof(hlo_instr, dims));
}

static const char *const *backend_config(const hlo_instr *instr)
{
  static const char *const absent = NULL;

  return instr->extra ? &instr->extra->backend_config : &absent;
}

bool hlo_same_attributes(const hlo_instr *a, const hlo_instr *b)
{
  const hlo_attr_family *family = hlo_attrs_of(a->op);

  if (!hlo_ints_equal(a->dims, b->dims)) return false;
  if (a->op == HLO_CUSTOM_CALL && a->extra != b->extra) return false;
  if (a->op == HLO_FUSION && !same_text(backend_config(a), backend_config(b))) return false;
  if (family->group->by_identity) return memcmp(&a->u, &b->u, sizeof(void *)) == 0;
  for (int i = 0; i < family->count; i++) {
    const hlo_attr *attr = &family->attrs[i];
    if (counts(attr) && !compare[attr->kind].same(hlo_attr_field(attr, a, NULL), hlo_attr_field(attr, b, NULL)))
      return false;
  }
  return true;
}

uint64_t hlo_hash_attributes(uint64_t hash, const hlo_instr *instr)
{
  const hlo_attr_family *family = hlo_attrs_of(instr->op);

  hash = hash_ints(hash, &instr->dims);
  if (family->group->by_identity) return hash;
  for (int i = 0; i < family->count; i++) {
    const hlo_attr *attr = &family->attrs[i];
    if (counts(attr)) hash = compare[attr->kind].hash(hash, hlo_attr_field(attr, instr, NULL));
  }
  return hash;
}
