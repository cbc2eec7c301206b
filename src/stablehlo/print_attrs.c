/* stablehlo/print_attrs.c -- types and attributes as MLIR text.  Names say which attribute is an array, a matrix or an
 * enumeration; what the readers have spread (mlir.h) is gathered. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/mlir_text.h"
#include "stablehlo/print.h"

static void print_types(shlo_printer *p, int count, const mlir_type *const *types)
{
  for (int i = 0; i < count; i++) {
    if (i) shlo_put(p, ", ");
    shlo_print_type(p, types[i]);
  }
}

static void print_quant(shlo_printer *p, const mlir_quant *q)
{
  const char *storage = weft_dtype_mlir_name(q->storage);
  int bits = weft_dtype_bits(q->storage);
  bool is_signed = weft_dtype_is_signed(q->storage);
  int64_t min = is_signed ? -((int64_t)1 << (bits - 1)) : 0, max = min + ((int64_t)1 << bits) - 1;

  fprintf(p->out, "!quant.uniform<%s", storage[0] == 'u' && storage[1] == 'i' ? "u" : "");
  shlo_put(p, storage[0] == 'u' ? storage + 2 - (storage[1] != 'i') : storage);
  if (q->min != min || q->max != max) fprintf(p->out, "<%" PRId64 ":%" PRId64 ">", q->min, q->max);
  fprintf(p->out, ":%s", weft_dtype_mlir_name(q->expressed));
  if (q->axis >= 0) fprintf(p->out, ":%d", q->axis);
  shlo_put(p, q->axis >= 0 ? ", {" : ", ");
  for (int i = 0; i < q->count; i++) {
    fprintf(p->out, "%s%.17e", i ? ", " : "", q->scales[i]);
    if (q->zeros[i]) fprintf(p->out, ":%" PRId64, q->zeros[i]);
  }
  shlo_put(p, q->axis >= 0 ? "}>" : ">");
}

static void print_shaped(shlo_printer *p, const char *name, const mlir_type *t)
{
  bool bounded = false;

  fprintf(p->out, "%s<", name);
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] == MLIR_DYNAMIC) shlo_put(p, "?x");
    else fprintf(p->out, "%" PRId64 "x", t->dims[i]);
    bounded |= t->bounds && t->bounds[i] != MLIR_DYNAMIC;
  }
  if (t->kind == MLIR_UNRANKED) shlo_put(p, "*x");
  shlo_print_type(p, t->element);
  if (bounded) {
    shlo_put(p, ", #stablehlo.bounds<");
    for (int i = 0; i < t->rank; i++) {
      if (t->bounds[i] == MLIR_DYNAMIC) fprintf(p->out, "%s?", i ? ", " : "");
      else fprintf(p->out, "%s%" PRId64, i ? ", " : "", t->bounds[i]);
    }
    shlo_put(p, ">");
  }
  shlo_put(p, ">");
}

void shlo_print_type(shlo_printer *p, const mlir_type *t)
{
  switch (t->kind) {
  case MLIR_NONE: shlo_put(p, "none"); break;
  case MLIR_ELEMENT:
    if (weft_dtype_is_complex(t->dtype))
      fprintf(p->out, "complex<%s>", weft_dtype_mlir_name(weft_dtype_component(t->dtype)));
    else shlo_put(p, weft_dtype_mlir_name(t->dtype));
    break;
  case MLIR_INDEX: shlo_put(p, "index"); break;
  case MLIR_QUANTIZED: print_quant(p, t->quant); break;
  case MLIR_TENSOR: case MLIR_UNRANKED: print_shaped(p, "tensor", t); break;
  case MLIR_BUFFER: print_shaped(p, "memref", t); break;
  case MLIR_TUPLE: case MLIR_FUTURE:
    shlo_put(p, t->kind == MLIR_TUPLE ? "tuple<" : "!stablehlo.future<");
    print_types(p, t->count, t->elements);
    shlo_put(p, ">");
    break;
  case MLIR_TOKEN: shlo_put(p, "!stablehlo.token"); break;
  case MLIR_FUNCTION:
    shlo_put(p, "(");
    print_types(p, t->count, t->elements);
    shlo_put(p, ") -> ");
    if (t->result_count != 1) shlo_put(p, "(");
    print_types(p, t->result_count, t->elements + t->count);
    if (t->result_count != 1) shlo_put(p, ")");
    break;
  case MLIR_OTHER: shlo_put(p, t->text); break;
  }
}

/* ---- numbers and words ------------------------------------------------------------------------------------------- */

void shlo_print_string(shlo_printer *p, const char *s, size_t size)
{
  fputc('"', p->out);
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\' || c < 0x20 || c >= 0x7f) fprintf(p->out, "\\%02X", c);
    else fputc(c, p->out);
  }
  fputc('"', p->out);
}

static bool is_bare(const char *s, const char *more)
{
  if (!((s[0] >= 'a' && s[0] <= 'z') || (s[0] >= 'A' && s[0] <= 'Z') || s[0] == '_')) return false;
  for (; *s; s++)
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' ||
          strchr(more, *s)))
      return false;
  return true;
}

void shlo_print_symbol(shlo_printer *p, const char *s)
{
  shlo_put(p, "@");
  if (is_bare(s, "$.:@")) shlo_put(p, s);
  else shlo_print_string(p, s, strlen(s));
}

/* A decimal that reads back as the same number, or the bits of an infinity or a NaN. */
static void print_float(shlo_printer *p, double v, weft_dtype type, uint64_t bits)
{
  char buf[40];

  if (!isfinite(v)) {
    fprintf(p->out, "0x%0*" PRIX64, (weft_dtype_bits(type) + 3) / 4, bits);
    return;
  }
  snprintf(buf, sizeof buf, type == WEFT_F64 ? "%.17g" : "%.9g", v);
  char *e = strchr(buf, 'e');
  if (strchr(buf, '.')) shlo_put(p, buf);
  else fprintf(p->out, "%.*s.0%s", (int)(e ? e - buf : (ptrdiff_t)strlen(buf)), buf, e ? e : "");
}

static void print_element(shlo_printer *p, const hlo_literal *l, int64_t i)
{
  weft_dtype type = l->shape->type;

  if (type == WEFT_PRED) {
    shlo_put(p, hlo_literal_get_s64(l, i) ? "true" : "false");
  } else if (weft_dtype_is_complex(type)) {
    weft_dtype part = weft_dtype_component(type);
    hlo_literal parts = {.shape = &HLO_SCALAR_SHAPE(part), .data = (char *)l->data + (size_t)i * weft_dtype_bytes(type)};
    shlo_put(p, "(");
    print_element(p, &parts, 0);
    parts.data = (char *)parts.data + weft_dtype_bytes(part);
    shlo_put(p, ", ");
    print_element(p, &parts, 0);
    shlo_put(p, ")");
  } else if (weft_dtype_is_float(type)) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)l->data + (size_t)i * weft_dtype_bytes(type), weft_dtype_bytes(type));
    print_float(p, hlo_literal_get_f64(l, i), type, bits);
  } else if (weft_dtype_is_unsigned(type)) {
    fprintf(p->out, "%" PRIu64, (uint64_t)hlo_literal_get_s64(l, i));
  } else {
    fprintf(p->out, "%" PRId64, hlo_literal_get_s64(l, i));
  }
}

static void print_elements(shlo_printer *p, const hlo_literal *l, const mlir_type *t, int dim, int64_t *at)
{
  if (dim == t->rank) {
    print_element(p, l, (*at)++);
    return;
  }
  shlo_put(p, "[");
  for (int64_t i = 0; i < t->dims[dim]; i++) {
    if (i) shlo_put(p, ", ");
    print_elements(p, l, t, dim + 1, at);
  }
  shlo_put(p, "]");
}

enum { MOST_LITERAL = 256 }; /* elements; more are printed as hex digits */

weft_status *shlo_print_dense(shlo_printer *p, const mlir_attr *a)
{
  static const char digits[] = "0123456789ABCDEF";
  const mlir_type *t = a->type;
  hlo_literal l = {.shape = hlo_shape_array(&p->scratch, t->dtype, 0, NULL)};
  size_t bytes = weft_dtype_bytes(t->dtype);
  int64_t count, at = 0;
  bool splat;

  if (a->form == MLIR_DENSE_TEXT) {
    fprintf(p->out, "dense<%.*s> : ", (int)WEFT_MIN(a->u.text.size, INT32_MAX), a->u.text.s);
    shlo_print_type(p, t);
    return NULL;
  }
  if (mlir_is_elided(a)) {
    shlo_put(p, "dense_resource<__elided__> : ");
    shlo_print_type(p, t);
    return NULL;
  }
  WEFT_TRY(mlir_dense_size(p->program, p->module, a, &count, &splat));
  l.data = weft_arena_alloc_array(&p->scratch, (size_t)count + 1, bytes);
  WEFT_TRY_ALLOC(l.shape && l.data);
  WEFT_TRY(mlir_dense_read(p->program, p->module, a, l.data));
  shlo_put(p, "dense<");
  if (splat) {
    print_element(p, &l, 0);
  } else if (count <= MOST_LITERAL || t->dtype == WEFT_PRED || weft_dtype_bits(t->dtype) < 8) {
    if (count > 0) print_elements(p, &l, t, 0, &at);
  } else {
    shlo_put(p, "\"0x");
    for (size_t i = 0; i < (size_t)count * bytes; i++) {
      uint8_t byte = ((const uint8_t *)l.data)[i];
      fputc(digits[byte >> 4], p->out);
      fputc(digits[byte & 15], p->out);
    }
    shlo_put(p, "\"");
  }
  shlo_put(p, "> : ");
  shlo_print_type(p, t);
  return NULL;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static void print_key(shlo_printer *p, const char *name)
{
  if (is_bare(name, "$.")) shlo_put(p, name);
  else shlo_print_string(p, name, strlen(name));
}

static void print_dict(shlo_printer *p, int count, const mlir_named_attr *items, const char *separator)
{
  for (int i = 0; i < count; i++) {
    if (i) shlo_put(p, ", ");
    print_key(p, items[i].name);
    if (items[i].value->kind == MLIR_UNIT) continue;
    shlo_put(p, separator);
    shlo_print_attr(p, items[i].value);
  }
}

static void print_number(shlo_printer *p, const mlir_attr *a)
{
  weft_dtype type = a->type ? a->type->dtype : a->kind == MLIR_FLOAT ? WEFT_F64 : WEFT_S64;

  if (a->kind == MLIR_FLOAT) {
    uint64_t bits = type == WEFT_F64 ? ((union { double d; uint64_t u; }){a->u.f}).u : weft_float_encode_f64(type, a->u.f);
    print_float(p, a->u.f, type, bits);
  } else if (type == WEFT_PRED) {
    shlo_put(p, a->u.i ? "true" : "false");
    return;
  } else {
    fprintf(p->out, "%" PRId64, a->u.i);
  }
  if (!a->type || (a->kind == MLIR_INT && type == WEFT_S64 && a->type->kind == MLIR_ELEMENT)) return;
  shlo_put(p, " : ");
  shlo_print_type(p, a->type);
}

static void print_list(shlo_printer *p, const mlir_attr *a)
{
  weft_dtype type = a->type ? a->type->dtype : WEFT_INVALID;

  if (a->type) fprintf(p->out, "array<%s%s", weft_dtype_mlir_name(type), a->u.array.count ? ": " : "");
  else shlo_put(p, "[");
  for (int i = 0; i < a->u.array.count; i++) {
    mlir_attr item = *a->u.array.items[i];
    if (i) shlo_put(p, ", ");
    if (a->type && item.kind == MLIR_INT) {
      if (type == WEFT_PRED) shlo_put(p, item.u.i ? "true" : "false");
      else fprintf(p->out, "%" PRId64, item.u.i);
    } else if (a->type && item.kind == MLIR_FLOAT) {
      item.type = NULL;
      print_number(p, &item);
    } else {
      shlo_print_attr(p, &item);
    }
  }
  shlo_put(p, a->type ? ">" : "]");
}

void shlo_print_attr(shlo_printer *p, const mlir_attr *a)
{
  switch (a->kind) {
  case MLIR_UNIT: shlo_put(p, "unit"); break;
  case MLIR_BOOL: shlo_put(p, a->u.i ? "true" : "false"); break;
  case MLIR_INT: case MLIR_FLOAT: print_number(p, a); break;
  case MLIR_STRING: shlo_print_string(p, a->u.text.s, a->u.text.size); break;
  case MLIR_SYMBOL: shlo_print_symbol(p, a->u.text.s); break;
  case MLIR_ENUM: case MLIR_OPAQUE: shlo_put(p, a->u.text.s); break;
  case MLIR_TYPE: shlo_print_type(p, a->type); break;
  case MLIR_ARRAY: print_list(p, a); break;
  case MLIR_DICT:
    if (a->u.dict.name) fprintf(p->out, "#%s<", a->u.dict.name);
    else shlo_put(p, "{");
    print_dict(p, a->u.dict.count, a->u.dict.items, " = ");
    shlo_put(p, a->u.dict.name ? ">" : "}");
    break;
  case MLIR_DENSE: shlo_keep(p, shlo_print_dense(p, a)); break;
  }
}

/* ---- Shardy ------------------------------------------------------------------------------------------------------ */

static const mlir_attr empty_list = {.kind = MLIR_ARRAY};

static const mlir_attr *list_of(const mlir_attr *dict, const char *name)
{
  const mlir_attr *a = mlir_dict_get(dict, name);

  return a && a->kind == MLIR_ARRAY ? a : &empty_list;
}

static void print_name(shlo_printer *p, const mlir_attr *a)
{
  const char *s = a->kind == MLIR_DICT ? mlir_attr_text(mlir_dict_get(a, "name"), "") : mlir_attr_text(a, "");

  shlo_print_string(p, s, strlen(s));
}

/* {"x", "y":(2)4, ?} */
static void print_axes(shlo_printer *p, const mlir_attr *axes, bool open)
{
  shlo_put(p, "{");
  for (int i = 0; i < axes->u.array.count; i++) {
    const mlir_attr *sub = mlir_dict_get(axes->u.array.items[i], "sub_axis_info");
    if (i) shlo_put(p, ", ");
    print_name(p, axes->u.array.items[i]);
    if (sub)
      fprintf(p->out, ":(%" PRId64 ")%" PRId64, mlir_attr_int(mlir_dict_get(sub, "pre_size"), 1),
              mlir_attr_int(mlir_dict_get(sub, "size"), 1));
  }
  if (open) shlo_put(p, axes->u.array.count ? ", ?" : "?");
  shlo_put(p, "}");
}

static void print_mesh(shlo_printer *p, const mlir_attr *mesh)
{
  const mlir_attr *axes = list_of(mesh, "axes"), *ids = list_of(mesh, "device_ids");

  shlo_put(p, "<[");
  for (int i = 0; i < axes->u.array.count; i++) {
    if (i) shlo_put(p, ", ");
    print_name(p, axes->u.array.items[i]);
    fprintf(p->out, "=%" PRId64, mlir_attr_int(mlir_dict_get(axes->u.array.items[i], "size"), 1));
  }
  shlo_put(p, "]");
  if (ids->u.array.count > 0) {
    shlo_put(p, ", device_ids=");
    print_list(p, ids);
  }
  shlo_put(p, ">");
}

static void print_sharding(shlo_printer *p, const mlir_attr *a)
{
  static const char *const lists[] = {"replicated", "unreduced"};
  const mlir_attr *mesh = mlir_dict_get(a, "mesh"), *dims = list_of(a, "dims");

  shlo_put(p, "<");
  if (mesh && mesh->kind == MLIR_DICT) {
    shlo_put(p, "mesh");
    print_mesh(p, mesh);
  } else {
    shlo_print_symbol(p, mlir_attr_text(mesh, "mesh"));
  }
  shlo_put(p, ", [");
  for (int i = 0; i < dims->u.array.count; i++) {
    const mlir_attr *dim = dims->u.array.items[i];
    if (i) shlo_put(p, ", ");
    print_axes(p, list_of(dim, "axes"), !mlir_attr_bool(mlir_dict_get(dim, "is_closed"), true));
  }
  shlo_put(p, "]");
  for (size_t i = 0; i < WEFT_COUNT(lists); i++) {
    const mlir_attr *axes = list_of(a, lists[i]);
    if (axes->u.array.count == 0) continue;
    fprintf(p->out, ", %s=", lists[i]);
    print_axes(p, axes, false);
  }
  shlo_put(p, ">");
}

static void print_shardings(shlo_printer *p, const mlir_attr *a)
{
  shlo_put(p, "<[");
  for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
    if (i) shlo_put(p, ", ");
    print_sharding(p, a->u.array.items[i]);
  }
  shlo_put(p, "]>");
}

/* ---- attributes by name ------------------------------------------------------------------------------------------ */

typedef enum form { /* how an attribute is written */
  AS_IS, INTS, BOOLS, MATRIX, /* array<i64: ...>, array<i1: ...>, dense<...> : tensor<NxMxi64> */
  INT32, ENUM, ENUMS,         /* with the word of the enumeration */
  CALLEE, CALLEES,            /* symbols, perhaps as strings */
  STRUCT, STRUCTS,            /* a dictionary with the word before it */
  GATHERED,                   /* within another attribute */
  SHARDING, SHARDINGS, MESH, MANUAL_AXES, API_VERSION, QUOTED, UNIT
} form;

/* `neutral`: in VHLO the attribute counts as absent when it is empty or when all its elements are this number or
 * word. */
static const struct attr_form { const char *name; form form; const char *neutral, *word; } forms[] = {
    {"allowed_direction", AS_IS, NULL, NULL},
    {"api_version", API_VERSION, "API_VERSION_ORIGINAL", NULL},
    {"backend_config", AS_IS, "", NULL},
    {"base_dilations", INTS, "1", NULL},
    {"broadcast_dimensions", INTS, NULL, NULL},
    {"broadcast_sizes", INTS, NULL, NULL},
    {"callee", CALLEE, NULL, NULL},
    {"called_computations", CALLEES, "", NULL},
    {"channel_id", GATHERED, NULL, NULL},
    {"channel_type", GATHERED, NULL, NULL},
    {"compare_type", ENUM, "NOTYPE", "comparison_type"},
    {"comparison_direction", ENUM, NULL, "comparison_direction"},
    {"composite_attributes", AS_IS, "", NULL},
    {"decomposition", CALLEE, NULL, NULL},
    {"dimensions", INTS, NULL, NULL},
    {"edge_padding_high", INTS, NULL, NULL},
    {"edge_padding_low", INTS, NULL, NULL},
    {"exponent_bits", INT32, NULL, NULL},
    {"fft_length", INTS, NULL, NULL},
    {"fft_type", ENUM, NULL, "fft_type"},
    {"in_shardings", SHARDINGS, NULL, NULL},
    {"index", INT32, NULL, NULL},
    {"infeed_config", AS_IS, "", NULL},
    {"interior_padding", INTS, NULL, NULL},
    {"known_expanding_dimensions", INTS, "", NULL},
    {"known_nonexpanding_dimensions", INTS, "", NULL},
    {"layout", AS_IS, "", NULL},
    {"lhs_dilation", INTS, "1", NULL},
    {"limit_indices", INTS, NULL, NULL},
    {"manual_axes", MANUAL_AXES, NULL, NULL},
    {"mantissa_bits", INT32, NULL, NULL},
    {"mesh", MESH, NULL, NULL},
    {"operand_layouts", AS_IS, "", NULL},
    {"out_shardings", SHARDINGS, NULL, NULL},
    {"outfeed_config", AS_IS, "", NULL},
    {"output_operand_aliases", STRUCTS, "", "output_operand_alias"},
    {"padding", MATRIX, "0", NULL},
    {"permutation", INTS, NULL, NULL},
    {"precision_config", ENUMS, "DEFAULT", "precision"},
    {"replica_groups", MATRIX, NULL, NULL},
    {"result_accuracy", STRUCT, "", "result_accuracy"},
    {"result_layouts", AS_IS, "", NULL},
    {"result_tilings", AS_IS, "", NULL},
    {"rhs_dilation", INTS, "1", NULL},
    {"rng_algorithm", ENUM, NULL, "rng_algorithm"},
    {"rng_distribution", ENUM, NULL, "rng_distribution"},
    {"sdy.sharding", SHARDING, NULL, NULL},
    {"sharding", SHARDING, NULL, NULL},
    {"slice_sizes", INTS, NULL, NULL},
    {"source_target_pairs", MATRIX, "", NULL},
    {"start_indices", INTS, NULL, NULL},
    {"strides", INTS, NULL, NULL},
    {"sym_visibility", AS_IS, "", NULL},
    {"transpose_a", ENUM, NULL, "transpose"},
    {"version", INT32, NULL, NULL},
    {"window_dilations", INTS, "1", NULL},
    {"window_dimensions", INTS, NULL, NULL},
    {"window_reversal", BOOLS, "0", NULL},
    {"window_strides", INTS, "1", NULL},
    {"has_side_effect", AS_IS, "0", NULL},
    {"indices_are_sorted", AS_IS, "0", NULL},
    {"unique_indices", AS_IS, "0", NULL},
    {"use_global_device_ids", UNIT, "0", NULL},
    {"has_dynamic_root", UNIT, "0", NULL},
    {"is_stable", AS_IS, "0", NULL},
    {"is_host_transfer", AS_IS, "0", NULL},
    {"sym_name", QUOTED, NULL, NULL},
};

static const struct attr_form *form_of(const mlir_op *op, const char *name)
{
  static const struct attr_form plain = {NULL, AS_IS, NULL, NULL};

  if (op->dialect == SHLO_OTHER) return &plain;
  for (size_t i = 0; i < WEFT_COUNT(forms); i++)
    if (strcmp(forms[i].name, name) == 0) return &forms[i];
  return &plain;
}

/* Attributes that are written as one, with the fields in order. */
static const struct group { const char *op, *name, *open, *fields[12]; } groups[] = {
    {"gather", "dimension_numbers", "#stablehlo.gather<",
     {"offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
      "index_vector_dim"}},
    {"dynamic_gather", "dimension_numbers", "#stablehlo.gather<",
     {"offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
      "index_vector_dim"}},
    {"scatter", "scatter_dimension_numbers", "#stablehlo.scatter<",
     {"update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
      "scatter_dims_to_operand_dims", "index_vector_dim"}},
    {"dot_general", "dot_dimension_numbers", "#stablehlo.dot<",
     {"lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions"}},
    {"dot_general", "algorithm", "#stablehlo.dot_algorithm<",
     {"lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
      "num_primitive_operations", "allow_imprecise_accumulation"}},
    {"ragged_dot", "ragged_dot_dimension_numbers", "#chlo.ragged_dot<",
     {"lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions",
      "lhs_ragged_dimensions", "rhs_group_dimensions"}},
    {"convolution", "dimension_numbers", "#stablehlo.conv<raw\n",
     {"input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
      "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension",
      "output_feature_dimension", "output_spatial_dimensions"}},
    {"dynamic_conv", "dimension_numbers", "#stablehlo.conv<raw\n",
     {"input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
      "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension",
      "output_feature_dimension", "output_spatial_dimensions"}},
};

static bool is_grouped(const mlir_op *op, const char *name)
{
  for (size_t g = 0; g < WEFT_COUNT(groups); g++)
    for (int f = 0; strcmp(groups[g].op, op->name) == 0 && groups[g].fields[f]; f++)
      if (strcmp(groups[g].fields[f], name) == 0) return true;
  return false;
}

static bool is_none(const mlir_attr *a) { return a && a->kind == MLIR_TYPE && a->type->kind == MLIR_NONE; }

void shlo_print_ints_of(shlo_printer *p, const mlir_attr *a, hlo_ints *out)
{
  shlo_keep(p, mlir_attr_ints(p->program, p->module, &p->scratch, a, out));
}

void shlo_print_ints(shlo_printer *p, const mlir_attr *a)
{
  hlo_ints v;

  shlo_print_ints_of(p, a, &v);
  shlo_put(p, "[");
  for (int i = 0; i < v.count; i++) fprintf(p->out, "%s%" PRId64, i ? ", " : "", v.v[i]);
  shlo_put(p, "]");
}

bool shlo_print_is_dims(const mlir_attr *a) { return a->kind == MLIR_ARRAY || a->kind == MLIR_DENSE; }

static void print_group(shlo_printer *p, const mlir_op *op, const struct group *g)
{
  int printed = 0;

  shlo_put(p, g->open);
  for (int f = 0; g->fields[f]; f++) {
    const mlir_attr *a = mlir_attr_of(op, g->fields[f]);
    if (!a || is_none(a) ||
        (shlo_print_is_dims(a) && ((a->kind == MLIR_ARRAY && a->u.array.count == 0) ||
                                   (a->kind == MLIR_DENSE && mlir_tensor_elems(a->type) == 0))))
      continue;
    fprintf(p->out, "%s%s = ", printed++ ? ", " : "", g->fields[f]);
    if (shlo_print_is_dims(a)) shlo_print_ints(p, a);
    else if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64, a->u.i);
    else shlo_print_attr(p, a);
  }
  shlo_put(p, ">");
}

/* [b, f, 0, 1] */
static void print_conv_operand(shlo_printer *p, const mlir_op *op, const char *const *names, const char *letters)
{
  char labels[HLO_MAX_RANK + 2][12];
  hlo_ints spatial;
  int rank;

  shlo_print_ints_of(p, mlir_attr_of(op, names[2]), &spatial);
  rank = WEFT_MIN(spatial.count + 2, HLO_MAX_RANK + 2);
  for (int i = 0; i < rank; i++) strcpy(labels[i], "?");
  for (int i = 0; i < rank - 2; i++)
    if (spatial.v[i] >= 0 && spatial.v[i] < rank) snprintf(labels[spatial.v[i]], sizeof labels[0], "%d", i);
  for (int i = 0; i < 2; i++) {
    int64_t at = mlir_attr_int(mlir_attr_of(op, names[i]), -1);
    if (at >= 0 && at < rank) snprintf(labels[at], sizeof labels[0], "%c", letters[i]);
  }
  for (int i = 0; i < rank; i++) fprintf(p->out, "%s%s", i ? ", " : "[", labels[i]);
  shlo_put(p, "]");
}

static void print_conv(shlo_printer *p, const mlir_op *op, const struct group *g)
{
  static const char *const between[] = {"x", "->", ">"}, *const letters[] = {"bf", "io", "bf"};

  shlo_put(p, "#stablehlo.conv<");
  for (int i = 0; i < 3; i++) {
    print_conv_operand(p, op, g->fields + 3 * i, letters[i]);
    shlo_put(p, between[i]);
  }
}

static void print_words(shlo_printer *p, const mlir_op *op, const char *word, const mlir_attr *a)
{
  const char *dialect = op->dialect == SHLO_CHLO ? "chlo" : "stablehlo";

  if (a->kind != MLIR_ARRAY) {
    fprintf(p->out, "#%s<%s %s>", dialect, word, mlir_attr_text(a, ""));
    return;
  }
  shlo_put(p, "[");
  for (int i = 0; i < a->u.array.count; i++) {
    if (i) shlo_put(p, ", ");
    print_words(p, op, word, a->u.array.items[i]);
  }
  shlo_put(p, "]");
}

/* A list of lists: pairs, groups. */
static void print_matrix(shlo_printer *p, const mlir_attr *a)
{
  hlo_ints v;
  int64_t rows = a->u.array.count, columns;

  shlo_print_ints_of(p, a, &v);
  columns = rows ? v.count / rows : 0;
  shlo_put(p, "dense<");
  for (int64_t i = 0; i < rows; i++) {
    shlo_put(p, i ? ", [" : "[[");
    for (int64_t k = 0; k < columns; k++) fprintf(p->out, "%s%" PRId64, k ? ", " : "", v.v[i * columns + k]);
    shlo_put(p, "]");
  }
  fprintf(p->out, "%s> : tensor<%" PRId64 "x%" PRId64 "xi64>", rows ? "]" : "", rows, columns);
}

static void print_struct(shlo_printer *p, const char *word, const mlir_attr *a)
{
  fprintf(p->out, "#stablehlo.%s<", word);
  for (int i = 0; a->kind == MLIR_DICT && i < a->u.dict.count; i++) {
    const mlir_named_attr *f = &a->u.dict.items[i];
    fprintf(p->out, "%s%s = ", i ? ", " : "", f->name);
    if (shlo_print_is_dims(f->value)) shlo_print_ints(p, f->value);
    else if (f->value->kind == MLIR_ENUM) fprintf(p->out, "#stablehlo.%s_%s<%s>", word, f->name, f->value->u.text.s);
    else if (f->value->kind == MLIR_FLOAT) print_float(p, f->value->u.f, WEFT_F64, 0);
    else fprintf(p->out, "%" PRId64, mlir_attr_int(f->value, 0));
  }
  shlo_put(p, ">");
}

static int64_t api_version(const mlir_attr *a)
{
  static const char *const words[] = {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
                                      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  const char *word = mlir_attr_text(a, NULL);

  for (size_t i = 0; word && i < WEFT_COUNT(words); i++)
    if (strcmp(words[i], word) == 0) return (int64_t)i;
  return mlir_attr_int(a, 1);
}

/* @mesh, or its axes and devices. */
static void print_stablehlo_mesh(shlo_printer *p, const mlir_attr *mesh)
{
  const mlir_attr *axes = list_of(mesh, "axes"), *ids = mlir_dict_get(mesh, "device_ids");

  if (mesh->kind != MLIR_DICT) {
    shlo_print_symbol(p, mlir_attr_text(mesh, ""));
    return;
  }
  shlo_put(p, "#stablehlo.mesh<axes = [");
  for (int i = 0; i < axes->u.array.count; i++) {
    shlo_put(p, i ? ", #stablehlo.mesh_axis<name = " : "#stablehlo.mesh_axis<name = ");
    print_name(p, axes->u.array.items[i]);
    fprintf(p->out, ", size = %" PRId64 ">", mlir_attr_int(mlir_dict_get(axes->u.array.items[i], "size"), 1));
  }
  shlo_put(p, "]");
  if (ids) {
    shlo_put(p, ", device_ids = ");
    shlo_print_attr(p, ids);
  }
  shlo_put(p, ">");
}

/* {mesh, axes} of replica groups */
static void print_mesh_groups(shlo_printer *p, const mlir_attr *a)
{
  const mlir_attr *mesh = mlir_dict_get(a, "mesh"), *axes = list_of(a, "axes");

  shlo_put(p, "#stablehlo.replica_group_mesh_axes<mesh = ");
  if (mesh) print_stablehlo_mesh(p, mesh);
  shlo_put(p, ", axes = [");
  for (int i = 0; i < axes->u.array.count; i++) {
    const mlir_attr *sub = mlir_dict_get(axes->u.array.items[i], "sub_axis_info");
    shlo_put(p, i ? ", #stablehlo.axis_ref<name = " : "#stablehlo.axis_ref<name = ");
    print_name(p, axes->u.array.items[i]);
    if (sub)
      fprintf(p->out, ", sub_axis_info = (%" PRId64 ")%" PRId64, mlir_attr_int(mlir_dict_get(sub, "pre_size"), 1),
              mlir_attr_int(mlir_dict_get(sub, "size"), 1));
    shlo_put(p, ">");
  }
  shlo_put(p, "]>");
}

static void print_formed(shlo_printer *p, const mlir_op *op, const struct attr_form *f, const mlir_attr *a)
{
  hlo_ints v;

  switch (f->form) {
  case AS_IS: case GATHERED: case UNIT: shlo_print_attr(p, a); break;
  case INTS: case BOOLS:
    if (!shlo_print_is_dims(a)) { /* not this operation's own attribute of that name */
      shlo_print_attr(p, a);
      break;
    }
    shlo_print_ints_of(p, a, &v);
    fprintf(p->out, "array<%s%s", f->form == INTS ? "i64" : "i1", v.count ? ": " : "");
    for (int i = 0; i < v.count; i++) {
      if (i) shlo_put(p, ", ");
      if (f->form == INTS) fprintf(p->out, "%" PRId64, v.v[i]);
      else shlo_put(p, v.v[i] ? "true" : "false");
    }
    shlo_put(p, ">");
    break;
  case MATRIX:
    if (a->kind == MLIR_DICT) print_mesh_groups(p, a);
    else if (a->kind == MLIR_ARRAY) print_matrix(p, a);
    else shlo_print_attr(p, a);
    break;
  case INT32:
    if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64 " : i32", a->u.i);
    else shlo_print_attr(p, a);
    break;
  case ENUM: case ENUMS: print_words(p, op, f->word, a); break;
  case CALLEE: shlo_print_symbol(p, mlir_attr_text(a, "")); break;
  case CALLEES:
    shlo_put(p, "[");
    for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
      if (i) shlo_put(p, ", ");
      shlo_print_symbol(p, mlir_attr_text(a->u.array.items[i], ""));
    }
    shlo_put(p, "]");
    break;
  case STRUCT: print_struct(p, f->word, a); break;
  case STRUCTS:
    shlo_put(p, "[");
    for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
      if (i) shlo_put(p, ", ");
      print_struct(p, f->word, a->u.array.items[i]);
    }
    shlo_put(p, "]");
    break;
  case SHARDING: case SHARDINGS:
    if (a->kind == MLIR_ARRAY) {
      shlo_put(p, "#sdy.sharding_per_value");
      print_shardings(p, a);
    } else if (a->kind == MLIR_DICT) {
      shlo_put(p, "#sdy.sharding");
      print_sharding(p, a);
    } else {
      shlo_print_attr(p, a);
    }
    break;
  case MESH:
    shlo_put(p, "#sdy.mesh");
    print_mesh(p, a);
    break;
  case MANUAL_AXES:
    shlo_put(p, "#sdy<manual_axes");
    print_axes(p, a->kind == MLIR_ARRAY ? a : &empty_list, false);
    shlo_put(p, ">");
    break;
  case QUOTED: shlo_print_string(p, mlir_attr_text(a, ""), strlen(mlir_attr_text(a, ""))); break;
  case API_VERSION: fprintf(p->out, "%" PRId64 " : i32", api_version(a)); break;
  }
}

/* True if the attribute is empty, or if all its elements are the number or word. */
bool shlo_print_is_neutral(shlo_printer *p, const mlir_attr *a, const char *neutral)
{
  hlo_ints v;

  switch (a->kind) {
  case MLIR_STRING: return a->u.text.size == 0;
  case MLIR_ENUM: return strcmp(a->u.text.s, neutral) == 0;
  case MLIR_INT: case MLIR_BOOL: return neutral[0] && a->u.i == atoi(neutral);
  case MLIR_DICT: { /* an accuracy */
    const char *mode = mlir_attr_text(mlir_dict_get(a, "mode"), NULL);
    return a->u.dict.count == 0 || (mode && strcmp(mode, "DEFAULT") == 0);
  }
  case MLIR_ARRAY: case MLIR_DENSE:
    if (a->kind == MLIR_DENSE || !neutral[0] || (neutral[0] >= '0' && neutral[0] <= '9')) {
      if (a->kind == MLIR_ARRAY && a->u.array.count > 0 && !neutral[0]) return false;
      shlo_print_ints_of(p, a, &v);
      for (int i = 0; i < v.count; i++)
        if (!neutral[0] || v.v[i] != atoi(neutral)) return false;
      return true;
    }
    for (int i = 0; i < a->u.array.count; i++)
      if (!shlo_print_is_neutral(p, a->u.array.items[i], neutral)) return false;
    return true;
  default: return false;
  }
}

/* Whether an attribute is written in the list of its operation. */
static bool is_written(shlo_printer *p, const mlir_op *op, const mlir_named_attr *a)
{
  const struct attr_form *f = form_of(op, a->name);

  if (a->name[0] == '\0' || is_grouped(op, a->name) || f->form == GATHERED) return false;
  if (strcmp(a->name, "sdy.sharding_rule") == 0 || (a->value->kind == MLIR_OPAQUE && strncmp(a->name, "sdy.", 4) == 0))
    return false; /* rules for propagation */
  return !(op->kind->is_vhlo && f->neutral && shlo_print_is_neutral(p, a->value, f->neutral));
}

static bool has_group(const mlir_op *op, const struct group *g)
{
  if (strcmp(g->op, op->name) != 0) return false;
  if (strcmp(g->name, "algorithm") == 0)
    return mlir_attr_of(op, "accumulation_type") && !is_none(mlir_attr_of(op, "accumulation_type"));
  return true;
}

bool shlo_print_has_algorithm(const mlir_op *op)
{
  return has_group(op, &(struct group){.op = "dot_general", .name = "algorithm"});
}

static const mlir_attr *channel(const mlir_op *op)
{
  const mlir_attr *a = mlir_attr_of(op, "channel_id");

  return a && (mlir_attr_of(op, "channel_type") || mlir_attr_int(a, 0) != 0) ? a : NULL;
}

/* All attributes but those of `done`, as ` {...}`; nothing if there are none. */
void shlo_print_attributes(shlo_printer *p, const mlir_op *op, const char *const *done, const char *before)
{
  bool first = true;
#define NEXT (shlo_put(p, first ? before : ", "), first = false)

  for (int i = 0; i < op->attr_count; i++) {
    bool skip = !is_written(p, op, &op->attrs[i]);
    for (int k = 0; done && done[k] && !skip; k++) skip = strcmp(done[k], op->attrs[i].name) == 0;
    if (skip) continue;
    NEXT;
    print_key(p, op->attrs[i].name);
    if (op->attrs[i].value->kind == MLIR_UNIT || form_of(op, op->attrs[i].name)->form == UNIT) continue;
    shlo_put(p, " = ");
    print_formed(p, op, form_of(op, op->attrs[i].name), op->attrs[i].value);
  }
  for (size_t g = 0; g < WEFT_COUNT(groups); g++) {
    if (!has_group(op, &groups[g])) continue;
    bool skip = false;
    for (int k = 0; done && done[k] && !skip; k++) skip = strcmp(done[k], groups[g].name) == 0;
    if (skip) continue;
    NEXT;
    fprintf(p->out, "%s = ", groups[g].name);
    if (strstr(groups[g].open, "conv")) print_conv(p, op, &groups[g]);
    else print_group(p, op, &groups[g]);
  }
  if (channel(op)) {
    NEXT;
    fprintf(p->out, "channel_handle = #stablehlo.channel_handle<handle = %" PRId64 ", type = %" PRId64 ">",
            mlir_attr_int(channel(op), 0), mlir_attr_int(mlir_attr_of(op, "channel_type"), 0));
  }
  if (!first) shlo_put(p, "}");
#undef NEXT
}
