/* stablehlo/print.c -- programs as MLIR text that MLIR's parser takes: custom assembly where an operation's is a list of
 * operands and `key = [...]`, the generic form for the rest.  Attributes go back to how StableHLO writes them: what the
 * readers have spread (mlir.h) is gathered, and names say which attribute is an array, a matrix or an enumeration. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/lower.h"
#include "stablehlo/mlir_text.h"

typedef struct printer {
  FILE *out;
  const mlir_program *program;
  const mlir_module *module;
  weft_arena scratch;
  int next_value;
  int indent;
  bool in_function; /* the block being printed is a function's own */
  weft_status *st; /* the first error; printing goes on */
} printer;

static void keep(printer *p, weft_status *st)
{
  if (p->st) weft_status_free(st);
  else p->st = st;
}

static void put(printer *p, const char *s) { fputs(s, p->out); }

static void new_line(printer *p) { fprintf(p->out, "\n%*s", 2 * p->indent, ""); }

/* ---- types -------------------------------------------------------------------------------------------------------- */

static void print_type(printer *p, const mlir_type *t);

static void print_types(printer *p, int count, const mlir_type *const *types)
{
  for (int i = 0; i < count; i++) {
    if (i) put(p, ", ");
    print_type(p, types[i]);
  }
}

static void print_quant(printer *p, const mlir_quant *q)
{
  const char *storage = weft_dtype_mlir_name(q->storage);
  int bits = weft_dtype_bits(q->storage);
  bool is_signed = weft_dtype_is_signed(q->storage);
  int64_t min = is_signed ? -((int64_t)1 << (bits - 1)) : 0, max = min + ((int64_t)1 << bits) - 1;

  fprintf(p->out, "!quant.uniform<%s", storage[0] == 'u' && storage[1] == 'i' ? "u" : "");
  put(p, storage[0] == 'u' ? storage + 2 - (storage[1] != 'i') : storage);
  if (q->min != min || q->max != max) fprintf(p->out, "<%" PRId64 ":%" PRId64 ">", q->min, q->max);
  fprintf(p->out, ":%s", weft_dtype_mlir_name(q->expressed));
  if (q->axis >= 0) fprintf(p->out, ":%d", q->axis);
  put(p, q->axis >= 0 ? ", {" : ", ");
  for (int i = 0; i < q->count; i++) {
    fprintf(p->out, "%s%.17e", i ? ", " : "", q->scales[i]);
    if (q->zeros[i]) fprintf(p->out, ":%" PRId64, q->zeros[i]);
  }
  put(p, q->axis >= 0 ? "}>" : ">");
}

static void print_shaped(printer *p, const char *name, const mlir_type *t)
{
  bool bounded = false;

  fprintf(p->out, "%s<", name);
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] == MLIR_DYNAMIC) put(p, "?x");
    else fprintf(p->out, "%" PRId64 "x", t->dims[i]);
    bounded |= t->bounds && t->bounds[i] != MLIR_DYNAMIC;
  }
  if (t->kind == MLIR_UNRANKED) put(p, "*x");
  print_type(p, t->element);
  if (bounded) {
    put(p, ", #stablehlo.bounds<");
    for (int i = 0; i < t->rank; i++) {
      if (t->bounds[i] == MLIR_DYNAMIC) fprintf(p->out, "%s?", i ? ", " : "");
      else fprintf(p->out, "%s%" PRId64, i ? ", " : "", t->bounds[i]);
    }
    put(p, ">");
  }
  put(p, ">");
}

static void print_type(printer *p, const mlir_type *t)
{
  switch (t->kind) {
  case MLIR_NONE: put(p, "none"); break;
  case MLIR_ELEMENT:
    if (weft_dtype_is_complex(t->dtype)) fprintf(p->out, "complex<%s>", weft_dtype_mlir_name(weft_dtype_component(t->dtype)));
    else put(p, weft_dtype_mlir_name(t->dtype));
    break;
  case MLIR_INDEX: put(p, "index"); break;
  case MLIR_QUANTIZED: print_quant(p, t->quant); break;
  case MLIR_TENSOR: case MLIR_UNRANKED: print_shaped(p, "tensor", t); break;
  case MLIR_BUFFER: print_shaped(p, "memref", t); break;
  case MLIR_TUPLE: case MLIR_FUTURE:
    put(p, t->kind == MLIR_TUPLE ? "tuple<" : "!stablehlo.future<");
    print_types(p, t->count, t->elements);
    put(p, ">");
    break;
  case MLIR_TOKEN: put(p, "!stablehlo.token"); break;
  case MLIR_FUNCTION:
    put(p, "(");
    print_types(p, t->count, t->elements);
    put(p, ") -> ");
    if (t->result_count != 1) put(p, "(");
    print_types(p, t->result_count, t->elements + t->count);
    if (t->result_count != 1) put(p, ")");
    break;
  case MLIR_OTHER: put(p, t->text); break;
  }
}

/* ---- numbers and words -------------------------------------------------------------------------------------------- */

static void print_string(printer *p, const char *s, size_t size)
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
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' || strchr(more, *s)))
      return false;
  return true;
}

static void print_symbol(printer *p, const char *s)
{
  put(p, "@");
  if (is_bare(s, "$.:@")) put(p, s);
  else print_string(p, s, strlen(s));
}

/* A decimal that reads back as the same number, or the bits of what is none. */
static void print_float(printer *p, double v, weft_dtype type, uint64_t bits)
{
  char buf[40];

  if (!isfinite(v)) {
    fprintf(p->out, "0x%0*" PRIX64, (weft_dtype_bits(type) + 3) / 4, bits);
    return;
  }
  snprintf(buf, sizeof buf, type == WEFT_F64 ? "%.17g" : "%.9g", v);
  char *e = strchr(buf, 'e');
  if (strchr(buf, '.')) put(p, buf);
  else fprintf(p->out, "%.*s.0%s", (int)(e ? e - buf : (ptrdiff_t)strlen(buf)), buf, e ? e : "");
}

static void print_element(printer *p, const hlo_literal *l, int64_t i)
{
  weft_dtype type = l->shape->type;

  if (type == WEFT_PRED) {
    put(p, hlo_literal_get_s64(l, i) ? "true" : "false");
  } else if (weft_dtype_is_complex(type)) {
    weft_dtype part = weft_dtype_component(type);
    hlo_literal parts = {.shape = &HLO_SCALAR_SHAPE(part), .data = (char *)l->data + (size_t)i * weft_dtype_bytes(type)};
    put(p, "(");
    print_element(p, &parts, 0);
    parts.data = (char *)parts.data + weft_dtype_bytes(part);
    put(p, ", ");
    print_element(p, &parts, 0);
    put(p, ")");
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

static void print_elements(printer *p, const hlo_literal *l, const mlir_type *t, int dim, int64_t *at)
{
  if (dim == t->rank) {
    print_element(p, l, (*at)++);
    return;
  }
  put(p, "[");
  for (int64_t i = 0; i < t->dims[dim]; i++) {
    if (i) put(p, ", ");
    print_elements(p, l, t, dim + 1, at);
  }
  put(p, "]");
}

enum { MOST_LITERAL = 256 }; /* elements; more are printed as hex digits */

static weft_status *dense(printer *p, const mlir_attr *a)
{
  static const char digits[] = "0123456789ABCDEF";
  const mlir_type *t = a->type;
  hlo_literal l = {.shape = hlo_shape_array(&p->scratch, t->dtype, 0, NULL)};
  size_t bytes = weft_dtype_bytes(t->dtype);
  int64_t count, at = 0;
  bool splat;

  if (a->form == MLIR_DENSE_TEXT) {
    fprintf(p->out, "dense<%.*s> : ", (int)WEFT_MIN(a->u.text.size, INT32_MAX), a->u.text.s);
    print_type(p, t);
    return NULL;
  }
  if (mlir_is_elided(a)) {
    put(p, "dense_resource<__elided__> : ");
    print_type(p, t);
    return NULL;
  }
  WEFT_TRY(mlir_dense_size(p->program, p->module, a, &count, &splat));
  l.data = weft_arena_alloc_array(&p->scratch, (size_t)count + 1, bytes);
  WEFT_TRY_ALLOC(l.shape && l.data);
  WEFT_TRY(mlir_dense_read(p->program, p->module, a, l.data));
  put(p, "dense<");
  if (splat) {
    print_element(p, &l, 0);
  } else if (count <= MOST_LITERAL || t->dtype == WEFT_PRED || weft_dtype_bits(t->dtype) < 8) {
    if (count > 0) print_elements(p, &l, t, 0, &at);
  } else {
    put(p, "\"0x");
    for (size_t i = 0; i < (size_t)count * bytes; i++) {
      uint8_t byte = ((const uint8_t *)l.data)[i];
      fputc(digits[byte >> 4], p->out);
      fputc(digits[byte & 15], p->out);
    }
    put(p, "\"");
  }
  put(p, "> : ");
  print_type(p, t);
  return NULL;
}

/* ---- attributes --------------------------------------------------------------------------------------------------- */

static void print_attr(printer *p, const mlir_attr *a);

static void print_key(printer *p, const char *name)
{
  if (is_bare(name, "$.")) put(p, name);
  else print_string(p, name, strlen(name));
}

static void print_dict(printer *p, int count, const mlir_named_attr *items, const char *separator)
{
  for (int i = 0; i < count; i++) {
    if (i) put(p, ", ");
    print_key(p, items[i].name);
    if (items[i].value->kind == MLIR_UNIT) continue;
    put(p, separator);
    print_attr(p, items[i].value);
  }
}

static void print_number(printer *p, const mlir_attr *a)
{
  weft_dtype type = a->type ? a->type->dtype : a->kind == MLIR_FLOAT ? WEFT_F64 : WEFT_S64;

  if (a->kind == MLIR_FLOAT) {
    uint64_t bits = type == WEFT_F64 ? ((union { double d; uint64_t u; }){a->u.f}).u : weft_float_encode_f64(type, a->u.f);
    print_float(p, a->u.f, type, bits);
  } else if (type == WEFT_PRED) {
    put(p, a->u.i ? "true" : "false");
    return;
  } else {
    fprintf(p->out, "%" PRId64, a->u.i);
  }
  if (!a->type || (a->kind == MLIR_INT && type == WEFT_S64 && a->type->kind == MLIR_ELEMENT)) return;
  put(p, " : ");
  print_type(p, a->type);
}

static void print_list(printer *p, const mlir_attr *a)
{
  weft_dtype type = a->type ? a->type->dtype : WEFT_INVALID;

  if (a->type) fprintf(p->out, "array<%s%s", weft_dtype_mlir_name(type), a->u.array.count ? ": " : "");
  else put(p, "[");
  for (int i = 0; i < a->u.array.count; i++) {
    mlir_attr item = *a->u.array.items[i];
    if (i) put(p, ", ");
    if (a->type && item.kind == MLIR_INT) {
      if (type == WEFT_PRED) put(p, item.u.i ? "true" : "false");
      else fprintf(p->out, "%" PRId64, item.u.i);
    } else if (a->type && item.kind == MLIR_FLOAT) {
      item.type = NULL;
      print_number(p, &item);
    } else {
      print_attr(p, &item);
    }
  }
  put(p, a->type ? ">" : "]");
}

static void print_attr(printer *p, const mlir_attr *a)
{
  switch (a->kind) {
  case MLIR_UNIT: put(p, "unit"); break;
  case MLIR_BOOL: put(p, a->u.i ? "true" : "false"); break;
  case MLIR_INT: case MLIR_FLOAT: print_number(p, a); break;
  case MLIR_STRING: print_string(p, a->u.text.s, a->u.text.size); break;
  case MLIR_SYMBOL: print_symbol(p, a->u.text.s); break;
  case MLIR_ENUM: case MLIR_OPAQUE: put(p, a->u.text.s); break;
  case MLIR_TYPE: print_type(p, a->type); break;
  case MLIR_ARRAY: print_list(p, a); break;
  case MLIR_DICT:
    if (a->u.dict.name) fprintf(p->out, "#%s<", a->u.dict.name);
    else put(p, "{");
    print_dict(p, a->u.dict.count, a->u.dict.items, " = ");
    put(p, a->u.dict.name ? ">" : "}");
    break;
  case MLIR_DENSE: keep(p, dense(p, a)); break;
  }
}

/* ---- Shardy ------------------------------------------------------------------------------------------------------- */

static const mlir_attr empty_list = {.kind = MLIR_ARRAY};

static const mlir_attr *list_of(const mlir_attr *dict, const char *name)
{
  const mlir_attr *a = mlir_dict_get(dict, name);

  return a && a->kind == MLIR_ARRAY ? a : &empty_list;
}

static void print_name(printer *p, const mlir_attr *a)
{
  const char *s = a->kind == MLIR_DICT ? mlir_attr_text(mlir_dict_get(a, "name"), "") : mlir_attr_text(a, "");

  print_string(p, s, strlen(s));
}

/* {"x", "y":(2)4, ?} */
static void print_axes(printer *p, const mlir_attr *axes, bool open)
{
  put(p, "{");
  for (int i = 0; i < axes->u.array.count; i++) {
    const mlir_attr *sub = mlir_dict_get(axes->u.array.items[i], "sub_axis_info");
    if (i) put(p, ", ");
    print_name(p, axes->u.array.items[i]);
    if (sub)
      fprintf(p->out, ":(%" PRId64 ")%" PRId64, mlir_attr_int(mlir_dict_get(sub, "pre_size"), 1),
              mlir_attr_int(mlir_dict_get(sub, "size"), 1));
  }
  if (open) put(p, axes->u.array.count ? ", ?" : "?");
  put(p, "}");
}

static void print_mesh(printer *p, const mlir_attr *mesh)
{
  const mlir_attr *axes = list_of(mesh, "axes"), *ids = list_of(mesh, "device_ids");

  put(p, "<[");
  for (int i = 0; i < axes->u.array.count; i++) {
    if (i) put(p, ", ");
    print_name(p, axes->u.array.items[i]);
    fprintf(p->out, "=%" PRId64, mlir_attr_int(mlir_dict_get(axes->u.array.items[i], "size"), 1));
  }
  put(p, "]");
  if (ids->u.array.count > 0) {
    put(p, ", device_ids=");
    print_list(p, ids);
  }
  put(p, ">");
}

static void print_sharding(printer *p, const mlir_attr *a)
{
  static const char *const lists[] = {"replicated", "unreduced"};
  const mlir_attr *mesh = mlir_dict_get(a, "mesh"), *dims = list_of(a, "dims");

  put(p, "<");
  if (mesh && mesh->kind == MLIR_DICT) {
    put(p, "mesh");
    print_mesh(p, mesh);
  } else {
    print_symbol(p, mlir_attr_text(mesh, "mesh"));
  }
  put(p, ", [");
  for (int i = 0; i < dims->u.array.count; i++) {
    const mlir_attr *dim = dims->u.array.items[i];
    if (i) put(p, ", ");
    print_axes(p, list_of(dim, "axes"), !mlir_attr_bool(mlir_dict_get(dim, "is_closed"), true));
  }
  put(p, "]");
  for (size_t i = 0; i < WEFT_COUNT(lists); i++) {
    const mlir_attr *axes = list_of(a, lists[i]);
    if (axes->u.array.count == 0) continue;
    fprintf(p->out, ", %s=", lists[i]);
    print_axes(p, axes, false);
  }
  put(p, ">");
}

static void print_shardings(printer *p, const mlir_attr *a)
{
  put(p, "<[");
  for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
    if (i) put(p, ", ");
    print_sharding(p, a->u.array.items[i]);
  }
  put(p, "]>");
}

/* ---- attributes by name ------------------------------------------------------------------------------------------- */

typedef enum form { /* how an attribute is written */
  AS_IS, INTS, BOOLS, MATRIX, /* array<i64: ...>, array<i1: ...>, dense<...> : tensor<NxMxi64> */
  INT32, ENUM, ENUMS,         /* with the word of the enumeration */
  CALLEE, CALLEES,            /* symbols, perhaps as strings */
  STRUCT, STRUCTS,            /* a dictionary with the word before it */
  GATHERED,                   /* within another attribute */
  SHARDING, SHARDINGS, MESH, MANUAL_AXES, API_VERSION, QUOTED, UNIT
} form;

/* `neutral`: in VHLO the attribute stands for none when it is empty, or all of this number or word. */
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

static void ints_of(printer *p, const mlir_attr *a, hlo_ints *out)
{
  keep(p, mlir_attr_ints(p->program, p->module, &p->scratch, a, out));
}

static void print_ints(printer *p, const mlir_attr *a)
{
  hlo_ints v;

  ints_of(p, a, &v);
  put(p, "[");
  for (int i = 0; i < v.count; i++) fprintf(p->out, "%s%" PRId64, i ? ", " : "", v.v[i]);
  put(p, "]");
}

static bool is_dims(const mlir_attr *a)
{
  return a->kind == MLIR_ARRAY || a->kind == MLIR_DENSE;
}

static void print_group(printer *p, const mlir_op *op, const struct group *g)
{
  int printed = 0;

  put(p, g->open);
  for (int f = 0; g->fields[f]; f++) {
    const mlir_attr *a = mlir_attr_of(op, g->fields[f]);
    if (!a || is_none(a) || (is_dims(a) && ((a->kind == MLIR_ARRAY && a->u.array.count == 0) ||
                                            (a->kind == MLIR_DENSE && mlir_tensor_elems(a->type) == 0))))
      continue;
    fprintf(p->out, "%s%s = ", printed++ ? ", " : "", g->fields[f]);
    if (is_dims(a)) print_ints(p, a);
    else if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64, a->u.i);
    else print_attr(p, a);
  }
  put(p, ">");
}

/* [b, f, 0, 1] */
static void print_conv_operand(printer *p, const mlir_op *op, const char *const *names, const char *letters)
{
  char labels[HLO_MAX_RANK + 2][12];
  hlo_ints spatial;
  int rank;

  ints_of(p, mlir_attr_of(op, names[2]), &spatial);
  rank = WEFT_MIN(spatial.count + 2, HLO_MAX_RANK + 2);
  for (int i = 0; i < rank; i++) strcpy(labels[i], "?");
  for (int i = 0; i < rank - 2; i++)
    if (spatial.v[i] >= 0 && spatial.v[i] < rank) snprintf(labels[spatial.v[i]], sizeof labels[0], "%d", i);
  for (int i = 0; i < 2; i++) {
    int64_t at = mlir_attr_int(mlir_attr_of(op, names[i]), -1);
    if (at >= 0 && at < rank) snprintf(labels[at], sizeof labels[0], "%c", letters[i]);
  }
  for (int i = 0; i < rank; i++) fprintf(p->out, "%s%s", i ? ", " : "[", labels[i]);
  put(p, "]");
}

static void print_conv(printer *p, const mlir_op *op, const struct group *g)
{
  static const char *const between[] = {"x", "->", ">"}, *const letters[] = {"bf", "io", "bf"};

  put(p, "#stablehlo.conv<");
  for (int i = 0; i < 3; i++) {
    print_conv_operand(p, op, g->fields + 3 * i, letters[i]);
    put(p, between[i]);
  }
}

static void print_words(printer *p, const mlir_op *op, const char *word, const mlir_attr *a)
{
  const char *dialect = op->dialect == SHLO_CHLO ? "chlo" : "stablehlo";

  if (a->kind != MLIR_ARRAY) {
    fprintf(p->out, "#%s<%s %s>", dialect, word, mlir_attr_text(a, ""));
    return;
  }
  put(p, "[");
  for (int i = 0; i < a->u.array.count; i++) {
    if (i) put(p, ", ");
    print_words(p, op, word, a->u.array.items[i]);
  }
  put(p, "]");
}

/* A list of lists: pairs, groups. */
static void print_matrix(printer *p, const mlir_attr *a)
{
  hlo_ints v;
  int64_t rows = a->u.array.count, columns;

  ints_of(p, a, &v);
  columns = rows ? v.count / rows : 0;
  put(p, "dense<");
  for (int64_t i = 0; i < rows; i++) {
    put(p, i ? ", [" : "[[");
    for (int64_t k = 0; k < columns; k++) fprintf(p->out, "%s%" PRId64, k ? ", " : "", v.v[i * columns + k]);
    put(p, "]");
  }
  fprintf(p->out, "%s> : tensor<%" PRId64 "x%" PRId64 "xi64>", rows ? "]" : "", rows, columns);
}

static void print_struct(printer *p, const char *word, const mlir_attr *a)
{
  fprintf(p->out, "#stablehlo.%s<", word);
  for (int i = 0; a->kind == MLIR_DICT && i < a->u.dict.count; i++) {
    const mlir_named_attr *f = &a->u.dict.items[i];
    fprintf(p->out, "%s%s = ", i ? ", " : "", f->name);
    if (is_dims(f->value)) print_ints(p, f->value);
    else if (f->value->kind == MLIR_ENUM) fprintf(p->out, "#stablehlo.%s_%s<%s>", word, f->name, f->value->u.text.s);
    else if (f->value->kind == MLIR_FLOAT) print_float(p, f->value->u.f, WEFT_F64, 0);
    else fprintf(p->out, "%" PRId64, mlir_attr_int(f->value, 0));
  }
  put(p, ">");
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
static void print_stablehlo_mesh(printer *p, const mlir_attr *mesh)
{
  const mlir_attr *axes = list_of(mesh, "axes"), *ids = mlir_dict_get(mesh, "device_ids");

  if (mesh->kind != MLIR_DICT) {
    print_symbol(p, mlir_attr_text(mesh, ""));
    return;
  }
  put(p, "#stablehlo.mesh<axes = [");
  for (int i = 0; i < axes->u.array.count; i++) {
    put(p, i ? ", #stablehlo.mesh_axis<name = " : "#stablehlo.mesh_axis<name = ");
    print_name(p, axes->u.array.items[i]);
    fprintf(p->out, ", size = %" PRId64 ">", mlir_attr_int(mlir_dict_get(axes->u.array.items[i], "size"), 1));
  }
  put(p, "]");
  if (ids) {
    put(p, ", device_ids = ");
    print_attr(p, ids);
  }
  put(p, ">");
}

/* {mesh, axes} of replica groups */
static void print_mesh_groups(printer *p, const mlir_attr *a)
{
  const mlir_attr *mesh = mlir_dict_get(a, "mesh"), *axes = list_of(a, "axes");

  put(p, "#stablehlo.replica_group_mesh_axes<mesh = ");
  if (mesh) print_stablehlo_mesh(p, mesh);
  put(p, ", axes = [");
  for (int i = 0; i < axes->u.array.count; i++) {
    const mlir_attr *sub = mlir_dict_get(axes->u.array.items[i], "sub_axis_info");
    put(p, i ? ", #stablehlo.axis_ref<name = " : "#stablehlo.axis_ref<name = ");
    print_name(p, axes->u.array.items[i]);
    if (sub)
      fprintf(p->out, ", sub_axis_info = (%" PRId64 ")%" PRId64, mlir_attr_int(mlir_dict_get(sub, "pre_size"), 1),
              mlir_attr_int(mlir_dict_get(sub, "size"), 1));
    put(p, ">");
  }
  put(p, "]>");
}

static void print_formed(printer *p, const mlir_op *op, const struct attr_form *f, const mlir_attr *a)
{
  hlo_ints v;

  switch (f->form) {
  case AS_IS: case GATHERED: case UNIT: print_attr(p, a); break;
  case INTS: case BOOLS:
    if (!is_dims(a)) { /* not this operation's own attribute of that name */
      print_attr(p, a);
      break;
    }
    ints_of(p, a, &v);
    fprintf(p->out, "array<%s%s", f->form == INTS ? "i64" : "i1", v.count ? ": " : "");
    for (int i = 0; i < v.count; i++) {
      if (i) put(p, ", ");
      if (f->form == INTS) fprintf(p->out, "%" PRId64, v.v[i]);
      else put(p, v.v[i] ? "true" : "false");
    }
    put(p, ">");
    break;
  case MATRIX:
    if (a->kind == MLIR_DICT) print_mesh_groups(p, a);
    else if (a->kind == MLIR_ARRAY) print_matrix(p, a);
    else print_attr(p, a);
    break;
  case INT32:
    if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64 " : i32", a->u.i);
    else print_attr(p, a);
    break;
  case ENUM: case ENUMS: print_words(p, op, f->word, a); break;
  case CALLEE: print_symbol(p, mlir_attr_text(a, "")); break;
  case CALLEES:
    put(p, "[");
    for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
      if (i) put(p, ", ");
      print_symbol(p, mlir_attr_text(a->u.array.items[i], ""));
    }
    put(p, "]");
    break;
  case STRUCT: print_struct(p, f->word, a); break;
  case STRUCTS:
    put(p, "[");
    for (int i = 0; a->kind == MLIR_ARRAY && i < a->u.array.count; i++) {
      if (i) put(p, ", ");
      print_struct(p, f->word, a->u.array.items[i]);
    }
    put(p, "]");
    break;
  case SHARDING: case SHARDINGS:
    if (a->kind == MLIR_ARRAY) {
      put(p, "#sdy.sharding_per_value");
      print_shardings(p, a);
    } else if (a->kind == MLIR_DICT) {
      put(p, "#sdy.sharding");
      print_sharding(p, a);
    } else {
      print_attr(p, a);
    }
    break;
  case MESH:
    put(p, "#sdy.mesh");
    print_mesh(p, a);
    break;
  case MANUAL_AXES:
    put(p, "#sdy<manual_axes");
    print_axes(p, a->kind == MLIR_ARRAY ? a : &empty_list, false);
    put(p, ">");
    break;
  case QUOTED: print_string(p, mlir_attr_text(a, ""), strlen(mlir_attr_text(a, ""))); break;
  case API_VERSION: fprintf(p->out, "%" PRId64 " : i32", api_version(a)); break;
  }
}

/* Empty, or all of the number or word. */
static bool is_neutral(printer *p, const mlir_attr *a, const char *neutral)
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
      ints_of(p, a, &v);
      for (int i = 0; i < v.count; i++)
        if (!neutral[0] || v.v[i] != atoi(neutral)) return false;
      return true;
    }
    for (int i = 0; i < a->u.array.count; i++)
      if (!is_neutral(p, a->u.array.items[i], neutral)) return false;
    return true;
  default: return false;
  }
}

/* Whether an attribute is written in the list of its operation. */
static bool is_written(printer *p, const mlir_op *op, const mlir_named_attr *a)
{
  const struct attr_form *f = form_of(op, a->name);

  if (a->name[0] == '\0' || is_grouped(op, a->name) || f->form == GATHERED) return false;
  if (strcmp(a->name, "sdy.sharding_rule") == 0 || (a->value->kind == MLIR_OPAQUE && strncmp(a->name, "sdy.", 4) == 0))
    return false; /* rules for propagation */
  return !(op->kind->is_vhlo && f->neutral && is_neutral(p, a->value, f->neutral));
}

static bool has_group(const mlir_op *op, const struct group *g)
{
  if (strcmp(g->op, op->name) != 0) return false;
  if (strcmp(g->name, "algorithm") == 0)
    return mlir_attr_of(op, "accumulation_type") && !is_none(mlir_attr_of(op, "accumulation_type"));
  return true;
}

static const mlir_attr *channel(const mlir_op *op)
{
  const mlir_attr *a = mlir_attr_of(op, "channel_id");

  return a && (mlir_attr_of(op, "channel_type") || mlir_attr_int(a, 0) != 0) ? a : NULL;
}

/* All attributes but those of `done`, as ` {...}`; nothing if there are none. */
static void print_attributes(printer *p, const mlir_op *op, const char *const *done, const char *before)
{
  bool first = true;
#define NEXT (put(p, first ? before : ", "), first = false)

  for (int i = 0; i < op->attr_count; i++) {
    bool skip = !is_written(p, op, &op->attrs[i]);
    for (int k = 0; done && done[k] && !skip; k++) skip = strcmp(done[k], op->attrs[i].name) == 0;
    if (skip) continue;
    NEXT;
    print_key(p, op->attrs[i].name);
    if (op->attrs[i].value->kind == MLIR_UNIT || form_of(op, op->attrs[i].name)->form == UNIT) continue;
    put(p, " = ");
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
  if (!first) put(p, "}");
#undef NEXT
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static void print_block(printer *p, const mlir_block *block, bool label);

static void name_values(printer *p, int count, mlir_value *values)
{
  for (int i = 0; i < count; i++) values[i].stamp = p->next_value++;
}

static void print_values(printer *p, int count, mlir_value *const *values)
{
  for (int i = 0; i < count; i++) fprintf(p->out, "%s%%%d", i ? ", " : "", values[i]->stamp);
}

/* (T, U) -> V */
static void print_signature(printer *p, const mlir_op *op)
{
  put(p, "(");
  for (int i = 0; i < op->operand_count; i++) {
    if (i) put(p, ", ");
    print_type(p, op->operands[i]->type);
  }
  put(p, ") -> ");
  if (op->result_count != 1) put(p, "(");
  for (int i = 0; i < op->result_count; i++) {
    if (i) put(p, ", ");
    print_type(p, op->results[i].type);
  }
  if (op->result_count != 1) put(p, ")");
}

/* `{ blocks }`; names the arguments of the first block with their types if `label`. */
static void print_region(printer *p, const mlir_region *region, bool label)
{
  put(p, "{");
  p->indent++;
  for (const mlir_block *b = region->first; b; b = b->next) print_block(p, b, label || b != region->first);
  p->indent--;
  new_line(p);
  put(p, "}");
}

static const char *dialect_of(const mlir_op *op)
{
  static const char *const names[] = {[SHLO_STABLEHLO] = "stablehlo.", [SHLO_CHLO] = "chlo.", [SHLO_FUNC] = "func.",
                                      [SHLO_CHECK] = "check.", [SHLO_INTERPRETER] = "interpreter.", [SHLO_SDY] = "sdy.",
                                      [SHLO_BUILTIN] = "builtin.", [SHLO_OTHER] = ""};

  return names[op->dialect];
}

static void print_generic(printer *p, const mlir_op *op)
{
  fprintf(p->out, "\"%s%s\"(", dialect_of(op), op->name);
  print_values(p, op->operand_count, op->operands);
  put(p, ")");
  for (int r = 0; r < op->region_count; r++) {
    put(p, r ? ", " : " (");
    print_region(p, &op->regions[r], true);
  }
  if (op->region_count) put(p, ")");
  print_attributes(p, op, NULL, " {");
  put(p, " : ");
  print_signature(p, op);
}

static bool named(const mlir_op *op, const char *name) { return strcmp(op->name, name) == 0; }

static void print_attr_dict(printer *p, const mlir_attr *dicts, int i)
{
  static mlir_op_kind kind = {.name = "", .dialect = SHLO_FUNC};
  const mlir_attr *dict = dicts && dicts->kind == MLIR_ARRAY && i < dicts->u.array.count ? dicts->u.array.items[i] : NULL;

  if (!dict || dict->kind != MLIR_DICT) return;
  mlir_op holder = {.name = "", .dialect = SHLO_FUNC, .kind = &kind, .attrs = dict->u.dict.items,
                    .attr_count = dict->u.dict.count};
  print_attributes(p, &holder, NULL, " {");
}

static void print_func(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs", NULL};
  const mlir_attr *type = mlir_attr_of(op, "function_type");
  const mlir_attr *args = mlir_attr_of(op, "arg_attrs"), *results = mlir_attr_of(op, "res_attrs");
  const char *visibility = mlir_attr_text(mlir_attr_of(op, "sym_visibility"), "");
  const mlir_block *block = op->region_count ? op->regions[0].first : NULL;
  int count = 0;

  fprintf(p->out, "func.func %s%s", visibility, visibility[0] ? " " : "");
  print_symbol(p, mlir_attr_text(mlir_attr_of(op, "sym_name"), "main"));
  put(p, "(");
  if (type && type->kind == MLIR_TYPE && type->type->kind == MLIR_FUNCTION) count = type->type->result_count;
  int inputs = block ? block->arg_count : type && type->kind == MLIR_TYPE ? type->type->count : 0;
  if (block) name_values(p, inputs, block->args);
  for (int i = 0; i < inputs; i++) {
    if (i) put(p, ", ");
    if (block) fprintf(p->out, "%%%d: ", block->args[i].stamp);
    print_type(p, block ? block->args[i].type : type->type->elements[i]);
    print_attr_dict(p, args, i);
  }
  put(p, ")");
  if (count > 0) put(p, " -> (");
  for (int i = 0; i < count; i++) {
    if (i) put(p, ", ");
    print_type(p, type->type->elements[type->type->count + i]);
    print_attr_dict(p, results, i);
  }
  if (count > 0) put(p, ")");
  print_attributes(p, op, done, " attributes {");
  if (!block) return;
  put(p, " ");
  p->in_function = true;
  print_region(p, &op->regions[0], false);
  p->in_function = false;
}

static void print_module(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"sym_name", NULL};
  const char *name = mlir_attr_text(mlir_attr_of(op, "sym_name"), NULL);

  put(p, "module ");
  if (name) {
    print_symbol(p, name);
    put(p, " ");
  }
  print_attributes(p, op, done, "attributes {");
  put(p, op->attr_count ? " " : "");
  if (op->region_count > 0) print_region(p, &op->regions[0], false);
  else put(p, "{}");
}

/* while(%arg = %x, ...) : T, ... cond { ... } do { ... }: both regions have arguments of the same names. */
static bool print_while(printer *p, const mlir_op *op)
{
  const mlir_block *cond, *body;
  int n = op->operand_count;

  if (op->region_count != 2 || op->regions[0].block_count != 1 || op->regions[1].block_count != 1 || n == 0) return false;
  cond = op->regions[0].first;
  body = op->regions[1].first;
  if (cond->arg_count != n || body->arg_count != n) return false;
  name_values(p, n, cond->args);
  for (int i = 0; i < n; i++) body->args[i].stamp = cond->args[i].stamp;
  put(p, "stablehlo.while(");
  for (int i = 0; i < n; i++) fprintf(p->out, "%s%%%d = %%%d", i ? ", " : "", cond->args[i].stamp, op->operands[i]->stamp);
  put(p, ") : ");
  for (int i = 0; i < n; i++) {
    if (i) put(p, ", ");
    print_type(p, op->operands[i]->type);
  }
  print_attributes(p, op, NULL, " attributes {");
  put(p, " cond ");
  print_region(p, &op->regions[0], false);
  put(p, " do ");
  print_region(p, &op->regions[1], false);
  return true;
}

static bool print_constant(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"value", NULL};
  const mlir_attr *value = mlir_attr_of(op, "value");

  if (!value || value->kind != MLIR_DENSE || op->result_count != 1 || !mlir_type_equal(value->type, op->results[0].type))
    return false;
  put(p, "stablehlo.constant");
  print_attributes(p, op, done, " {");
  put(p, " ");
  keep(p, dense(p, value));
  return true;
}

static void print_return(printer *p, const mlir_op *op)
{
  fprintf(p->out, "%sreturn", p->in_function ? "" : dialect_of(op));
  if (op->operand_count > 0) put(p, " ");
  print_values(p, op->operand_count, op->operands);
  for (int i = 0; i < op->operand_count; i++) {
    put(p, i ? ", " : " : ");
    print_type(p, op->operands[i]->type);
  }
}

static bool print_compare(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"comparison_direction", "compare_type", NULL};
  const mlir_attr *type = mlir_attr_of(op, "compare_type");

  if (op->operand_count != 2) return false;
  fprintf(p->out, "stablehlo.compare %s, %%%d, %%%d", mlir_attr_text(mlir_attr_of(op, done[0]), "EQ"),
          op->operands[0]->stamp, op->operands[1]->stamp);
  if (type && !is_neutral(p, type, "NOTYPE")) fprintf(p->out, ", %s", mlir_attr_text(type, ""));
  print_attributes(p, op, done, " {");
  put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_slice(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"start_indices", "limit_indices", "strides", NULL};
  hlo_ints v[3];

  if (op->operand_count != 1) return false;
  for (int i = 0; i < 3; i++) ints_of(p, mlir_attr_of(op, done[i]), &v[i]);
  if (p->st || v[0].count != v[1].count || v[0].count != v[2].count) return false;
  fprintf(p->out, "stablehlo.slice %%%d [", op->operands[0]->stamp);
  for (int i = 0; i < v[0].count; i++) {
    fprintf(p->out, "%s%" PRId64 ":%" PRId64, i ? ", " : "", v[0].v[i], v[1].v[i]);
    if (v[2].v[i] != 1) fprintf(p->out, ":%" PRId64, v[2].v[i]);
  }
  put(p, "]");
  print_attributes(p, op, done, " {");
  put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_dot_general(printer *p, const mlir_op *op)
{
  static const char *const done[] = {"dot_dimension_numbers", "precision_config", NULL};
  const mlir_attr *precision = mlir_attr_of(op, "precision_config");

  if (op->operand_count != 2 || has_group(op, &(struct group){.op = "dot_general", .name = "algorithm"})) return false;
  fprintf(p->out, "stablehlo.dot_general %%%d, %%%d", op->operands[0]->stamp, op->operands[1]->stamp);
  for (int batch = 1; batch >= 0; batch--) {
    const mlir_attr *lhs = mlir_attr_of(op, batch ? "lhs_batching_dimensions" : "lhs_contracting_dimensions");
    const mlir_attr *rhs = mlir_attr_of(op, batch ? "rhs_batching_dimensions" : "rhs_contracting_dimensions");
    hlo_ints v;
    ints_of(p, lhs, &v);
    if (batch && v.count == 0) continue;
    put(p, batch ? ", batching_dims = " : ", contracting_dims = ");
    print_ints(p, lhs);
    put(p, " x ");
    print_ints(p, rhs);
  }
  if (precision && !(op->kind->is_vhlo && is_neutral(p, precision, "DEFAULT"))) {
    put(p, ", precision = ");
    print_attr(p, precision);
  }
  print_attributes(p, op, done, " {");
  put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_call(printer *p, const mlir_op *op)
{
  bool custom = named(op, "custom_call");
  const char *const done[] = {custom ? "call_target_name" : "callee", NULL};

  put(p, custom ? "stablehlo.custom_call " : "func.call ");
  print_symbol(p, mlir_attr_text(mlir_attr_of(op, done[0]), ""));
  put(p, "(");
  print_values(p, op->operand_count, op->operands);
  put(p, ")");
  print_attributes(p, op, done, " {");
  put(p, " : ");
  print_signature(p, op);
  return true;
}

/* Operands, then `key = value` for each attribute that has a key: the shape that mlir_pretty.c calls universal. */
static bool print_universal(printer *p, const mlir_op *op)
{
  static const char *const same[] = { /* one type for all */
      "abs", "add", "and", "atan2", "ceil", "count_leading_zeros", "divide", "floor", "maximum", "minimum", "multiply",
      "negate", "not", "or", "popcnt", "power", "remainder", "round_nearest_afz", "round_nearest_even", "shift_left",
      "shift_right_arithmetic", "shift_right_logical", "sign", "subtract", "xor", "cbrt", "cosine", "exponential",
      "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine", "sqrt", "tan", "tanh", "iota", "reverse"};
  static const char *const others[] = {"bitcast_convert", "broadcast_in_dim", "clamp", "complex", "concatenate", "convert",
      "dynamic_slice", "fft", "get_dimension_size", "imag", "is_finite", "pad", "real", "reshape", "select", "transpose"};
  const char *done[8] = {0};
  int count = 0;
  bool one_type = false, known = false;

  for (size_t i = 0; i < WEFT_COUNT(same); i++) one_type |= named(op, same[i]);
  for (size_t i = 0; i < WEFT_COUNT(others); i++) known |= named(op, others[i]);
  if (!(known || one_type) || op->region_count > 0 || op->result_count != 1) return false;
  fprintf(p->out, "stablehlo.%s ", op->name);
  print_values(p, op->operand_count, op->operands);
  for (int k = 0; k < 7; k++) {
    const char *key, *attr;
    if (!text_key_of(op->name, k, &key, &attr)) break;
    const mlir_attr *a = mlir_attr_of(op, attr);
    if (!a) continue;
    fprintf(p->out, "%s%s = ", op->operand_count + count ? ", " : "", key);
    if (is_dims(a)) print_ints(p, a);
    else if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64, a->u.i);
    else print_attr(p, a);
    done[count++] = attr;
  }
  print_attributes(p, op, done, " {");
  put(p, " : ");
  for (int i = 0; one_type && i < op->operand_count; i++)
    one_type = mlir_type_equal(op->operands[i]->type, op->results[0].type);
  if (one_type) print_type(p, op->results[0].type);
  else print_signature(p, op);
  return true;
}

/* all_gather [{}, {"x"}] %x out_sharding=<...> : T, of which the reader keeps what stands around the operands. */
static bool print_sdy(printer *p, const mlir_op *op)
{
  const mlir_attr *before = mlir_attr_of(op, "before"), *after = mlir_attr_of(op, "after");
  bool text = (before && before->kind == MLIR_OPAQUE) || (after && after->kind == MLIR_OPAQUE);

  if (!text) {
    for (int i = 0; i < op->attr_count && !p->st; i++)
      if (op->attrs[i].value->kind == MLIR_OPAQUE)
        keep(p, WEFT_ERR(UNIMPLEMENTED, "sdy.%s: attribute %s cannot be printed", op->name, op->attrs[i].name));
    return false;
  }
  fprintf(p->out, "sdy.%s %s%s", op->name, before ? before->u.text.s : "", before ? " " : "");
  print_values(p, op->operand_count, op->operands);
  fprintf(p->out, "%s%s : ", after ? " " : "", after ? after->u.text.s : "");
  print_type(p, op->results[0].type);
  return true;
}

static bool print_custom(printer *p, const mlir_op *op)
{
  static const struct { const char *name; bool (*print)(printer *, const mlir_op *); } special[] = {
      {"while", print_while}, {"custom_call", print_call}, {"constant", print_constant}, {"compare", print_compare}, {"slice", print_slice},
      {"dot_general", print_dot_general}};

  if (op->dialect == SHLO_FUNC && named(op, "call")) return print_call(p, op);
  if (op->dialect == SHLO_SDY && op->result_count > 0) return print_sdy(p, op);
  if (op->dialect != SHLO_STABLEHLO) return false;
  for (size_t i = 0; i < WEFT_COUNT(special); i++)
    if (named(op, special[i].name)) return special[i].print(p, op);
  return print_universal(p, op);
}

/* Between spellings of one type, as artifacts have it: the values themselves. */
static bool skip_cast(const mlir_op *op)
{
  if (op->dialect != SHLO_BUILTIN || !named(op, "unrealized_conversion_cast") || op->operand_count != op->result_count)
    return false;
  for (int i = 0; i < op->result_count; i++)
    if (!mlir_type_equal(op->operands[i]->type, op->results[i].type)) return false;
  for (int i = 0; i < op->result_count; i++) op->results[i].stamp = op->operands[i]->stamp;
  return true;
}

static void print_op(printer *p, const mlir_op *op)
{
  if (skip_cast(op)) return;
  new_line(p);
  if (named(op, "return")) {
    print_return(p, op);
    return;
  }
  if (op->dialect == SHLO_FUNC && named(op, "func") && op->region_count == 1) {
    print_func(p, op);
    return;
  }
  bool in_function = p->in_function;
  p->in_function = false;
  name_values(p, op->result_count, op->results);
  for (int i = 0; i < op->result_count; i++) fprintf(p->out, "%s%%%d", i ? ", " : "", op->results[i].stamp);
  if (op->result_count > 0) put(p, " = ");
  if (!print_custom(p, op)) print_generic(p, op);
  p->in_function = in_function;
}

static void print_block(printer *p, const mlir_block *block, bool label)
{
  if (label) {
    name_values(p, block->arg_count, block->args);
    new_line(p);
    fprintf(p->out, "^bb%d(", p->next_value);
    for (int i = 0; i < block->arg_count; i++) {
      fprintf(p->out, "%s%%%d: ", i ? ", " : "", block->args[i].stamp);
      print_type(p, block->args[i].type);
    }
    put(p, "):");
  }
  for (const mlir_op *op = block->first; op; op = op->next) print_op(p, op);
}

weft_status *mlir_print(const mlir_program *program, FILE *out)
{
  printer p = {.out = out, .program = program};

  weft_arena_init(&p.scratch);
  for (int m = 0; m < program->module_count; m++) {
    p.module = &program->modules[m];
    if (m) put(&p, "\n// -----\n");
    print_module(&p, p.module->op);
    put(&p, "\n");
  }
  weft_arena_fini(&p.scratch);
  if (!p.st && ferror(out)) p.st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write the program");
  return p.st;
}
